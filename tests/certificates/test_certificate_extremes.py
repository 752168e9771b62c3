"""Large epsilons, rare records and tiny deltas are certified or refused in a sentence; nothing overflows on the way."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

pytest.importorskip("flint")

from flint import ctx

from calipers.bracket import Bracket
from calipers.certificates import certify
from calipers.certificates.certify import sealed
from calipers.certificates.claims import claims_at_epsilon
from calipers.certificates.exact import run_record
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run
from calipers_verify import verify
from calipers_verify.stop_loss import PRECISION

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


def test_delta_that_is_spent_at_epsilon_0_takes_no_fine_lattice() -> None:
    """10,000 rare steps: a lattice that could tell a small epsilon from 0 took a minute, and there is none to tell."""
    run = Run(sample_rate=0.001, steps=10_000, noise_multiplier=2.0)
    assert measure(run).epsilon(0.1).upper == 0.0
    found = _checked(run, delta=0.1)
    assert found.epsilon == (None, 0)
    (claim,) = found.record["claims"]
    assert all(Fraction(proof["spacing"]) >= Fraction(1, 1 << 18) for proof in claim["proof"])


@pytest.mark.parametrize("wrong_by", [0.03, 0.3, 30.0])
def test_a_wrong_expectation_makes_no_certificate_wrong(wrong_by: float) -> None:
    """What is expected says how finely to compute; the checker cuts by what is claimed, and accepts both claims."""
    run = Run(sample_rate=0.1, steps=5, noise_multiplier=1.0)
    record = run_record((run,))
    measured = measure(run, tolerance=1e-2).delta(1.0)
    evidence = measured.lower_evidence, measured.upper_evidence
    expected = Bracket(wrong_by * measured.lower, wrong_by * measured.upper, *evidence)
    with ctx.workprec(PRECISION):
        claims = claims_at_epsilon(record, Fraction(1), expected, lambda _: None)
    low, high = sealed({"run": record, "claims": claims}).delta
    assert low is not None
    assert high is not None
    assert low <= high <= 1.01 * low
    assert low <= measured.upper
    assert measured.lower <= high


def test_a_run_whose_certified_delta_is_far_above_the_measured_one() -> None:
    """The checker knows a weaker theorem, and cuts more for the larger delta: the claim was a little too small."""
    run = Run(
        dataset_size=97, batch_size=9, epochs=30, noise_multiplier=3.0, sampler="shuffle",
        last_batch="drop", adjacency="zero-out",
    )  # fmt: skip
    low, high = _checked(run, epsilon=1.0).delta
    assert low is not None
    assert high is not None
    assert measure(run).delta(1.0).upper <= high


def test_the_rest_is_a_sentence() -> None:
    with pytest.raises(CertificationError, match="No certificate could be made of this run: places, or scores, spread"):
        certify(Run(sample_rate=0.01, steps=10**9, noise_multiplier=0.8), epsilon=10.0)
    with pytest.raises(UnsupportedError, match=r"noise multipliers from 0\.001 to 1e\+06"):
        certify(Run(sample_rate=0.1, steps=10, noise_multiplier=1e7), epsilon=10.0)
    with pytest.raises(InputError, match="Expected epsilon in"):
        certify(Run(sample_rate=0.1, steps=10, noise_multiplier=1.0), epsilon=1e300)


def test_next_to_no_noise_is_certified_without_an_overflow() -> None:
    """Likelihood ratios of noise 0.02 are beyond the largest double; their logarithms are not."""
    run = Run(dataset_size=10, batch_size=5, epochs=2, noise_multiplier=0.02)
    low, high = _checked(run, delta=0.01).epsilon
    assert low is not None
    assert high is not None
    assert low <= measure(run).epsilon(0.01).upper
    assert high >= measure(run).epsilon(0.01).lower


@pytest.mark.parametrize(
    ("run", "delta"),
    [
        (
            Run(dataset_size=97, batch_size=48, epochs=100, noise_multiplier=0.7, sampler="shuffle", reshuffle="once"),
            1e-5,
        ),
        (
            Run(
                dataset_size=10005,
                batch_size=1000,
                epochs=100,
                noise_multiplier=0.3,
                sampler="shuffle",
                reshuffle="once",
            ),
            1e-5,
        ),
    ],
)
def test_one_order_for_a_hundred_epochs_with_little_noise_is_refused(run: Run, delta: float) -> None:
    """Likelihood ratios of one release exceed what a double holds: a sentence, and no warning of an overflow."""
    with pytest.raises(CertificationError, match="too far apart for double precision"):
        certify(run, delta=delta)
