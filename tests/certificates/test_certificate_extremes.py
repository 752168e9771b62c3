"""Large epsilons, rare records and tiny deltas are certified or refused in a sentence; nothing overflows on the way."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("flint")

from calipers.certificates import certify
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run
from calipers_verify import verify

pytestmark = pytest.mark.slow


def _checked(run: Run, **asked: float):
    found = certify(run, **asked)
    verify(json.dumps(found.record).encode())
    return found


def test_an_epsilon_above_709_is_certified() -> None:
    """e^709.8 is the largest double; the upper claim holds, and the lower one is below what measure proves."""
    run = Run(dataset_size=1000, batch_size=100, epochs=100, noise_multiplier=0.2)
    low, high = _checked(run, delta=1e-5).epsilon
    measured = measure(run).epsilon(1e-5)
    assert low is not None
    assert high is not None
    assert high > 709
    assert low <= measured.upper
    assert high >= measured.lower


def test_rare_records_are_certified_closely() -> None:
    """Their scores left the range that the checker reads."""
    low, high = _checked(Run(sample_rate=1e-4, steps=1000, noise_multiplier=0.7), delta=1e-8).epsilon
    assert low is not None
    assert high is not None
    assert low <= high <= 1.01 * low


def test_deltas_that_no_certificate_states_are_rounded_up() -> None:
    run = Run(sample_rate=0.01, steps=10_000, noise_multiplier=1.0)
    found = _checked(run, epsilon=1000.0)
    low, high = found.delta
    assert low is None
    assert high is not None
    assert float(high) == 1e-60
    assert measure(run).delta(1000.0).upper <= float(high)
    assert found.remark is not None
    assert "no delta below 1e-60" in found.remark


def test_epsilon_0_is_certified() -> None:
    """The advantage, delta at epsilon 0: at a spacing made for 1e-3 the product had too many places."""
    run = Run(sample_rate=0.1, steps=10, noise_multiplier=1.0)
    low, high = _checked(run, epsilon=0.0).delta
    assert low is not None
    assert high is not None
    assert low <= high <= 1.002 * low
    measured = measure(run).advantage()
    assert measured.lower <= high
    assert low <= measured.upper


def test_the_rest_is_a_sentence() -> None:
    with pytest.raises(CertificationError, match="No certificate could be made of this run: a row spreads"):
        certify(Run(sample_rate=0.01, steps=10**9, noise_multiplier=0.8), epsilon=10.0)
    with pytest.raises(UnsupportedError, match=r"noise multipliers from 0\.001 to 1e\+06"):
        certify(Run(sample_rate=0.1, steps=10, noise_multiplier=1e7), epsilon=10.0)
    with pytest.raises(InputError, match="Expected epsilon in"):
        certify(Run(sample_rate=0.1, steps=10, noise_multiplier=1.0), epsilon=1e300)
