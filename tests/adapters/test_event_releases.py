"""Events beside Gaussian and Laplace noise: agreement with dp_accounting, quadrature, JSON, and refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.adapters import event_releases
from calipers.adapters.dp_accounting import measurement_of
from calipers.adapters.event_json import event_from_json, event_to_json, load_event
from calipers.errors import InputError, UnsupportedError

library = pytest.importorskip("dp_accounting", reason="dp-accounting comes with the extra of that name")
pytestmark = pytest.mark.dp_accounting

Event = library.dp_event
Gaussian, Repeated, Composed = library.GaussianDpEvent, library.SelfComposedDpEvent, library.ComposedDpEvent
Mixture, Zcdp, Select = Event.MixtureOfGaussiansDpEvent, Event.ZCDpEvent, Event.RepeatAndSelectDpEvent


def quadrature(deviation: float, shifts: list[float], weights: list[float], epsilon: float) -> tuple[float, float]:
    """delta of a mixture against N(0, s^2) in both orders, on a fine grid."""
    z = np.linspace(-12.0, 12.0 + max(shifts) / deviation, 200_001)
    q = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    p = sum(w * np.exp(-0.5 * (z - s / deviation) ** 2) for w, s in zip(weights, shifts, strict=True))
    p, k, width = np.asarray(p) / math.sqrt(2.0 * math.pi), math.exp(epsilon), z[1] - z[0]
    return float(np.maximum(p - k * q, 0).sum() * width), float(np.maximum(q - k * p, 0).sum() * width)


@pytest.mark.parametrize(
    ("deviation", "shifts", "weights"),
    [(1.0, [0.0, 1.0, 2.0], [0.25, 0.5, 0.25]), (2.0, [1.0, 3.0], [0.9, 0.1]), (0.7, [0.0, 1.0], [0.99, 0.01])],
)
def test_mixtures_contain_their_quadrature(deviation: float, shifts: list[float], weights: list[float]) -> None:
    """The larger order lies in the bracket; the other one does not exceed it."""
    measured = measurement_of(Mixture(deviation, shifts, weights))
    for epsilon in (0.0, 0.5, 2.0):
        exact, bracket = max(quadrature(deviation, shifts, weights, epsilon)), measured.delta(epsilon)
        assert bracket.lower <= exact * (1.0 + 1e-6)
        assert exact <= bracket.upper * (1.0 + 1e-6)


def test_mixtures_that_are_something_else() -> None:
    """Poisson sampling, a plain Gaussian, nothing at all."""
    sampled = measurement_of(Repeated(library.PoissonSampledDpEvent(0.1, Gaussian(2.0)), 20)).epsilon(1e-5)
    mixed = measurement_of(Repeated(Mixture(2.0, [0.0, 1.0], [0.9, 0.1]), 20)).epsilon(1e-5)
    assert mixed.upper == pytest.approx(sampled.upper, rel=1e-4)
    assert measurement_of(Mixture(2.0, [1.0], [1.0])).epsilon(1e-5).upper == pytest.approx(
        measurement_of(Gaussian(2.0)).epsilon(1e-5).upper, rel=1e-3
    )
    assert measurement_of(Mixture(2.0, [0.0], [1.0])).epsilon(1e-5).upper == 0.0
    with pytest.raises(UnsupportedError, match="adding or removing"):
        measurement_of(Mixture(2.0, [0.0, 1.0], [0.5, 0.5]), adjacency="substitute")
    with pytest.raises(InputError, match="sum 1"):
        measurement_of(Mixture(2.0, [0.0, 1.0], [0.5, 0.4]))


def test_their_mixture_is_above_our_attack_and_not_below_our_proof() -> None:
    """Their PLD rounds losses up to multiples of the interval, which we choose coarse: theirs takes a minute else."""
    event = Mixture(3.0, [0.0, 1.0, 2.0], [0.9, 0.07, 0.03])
    theirs = library.pld.PLDAccountant(value_discretization_interval=1e-2).compose(event).get_epsilon(1e-5)
    bracket = measurement_of(event, tolerance=1e-4).epsilon(1e-5)
    assert bracket.upper <= theirs


@pytest.mark.parametrize(
    "event",
    [
        Zcdp(0.5),
        Zcdp(0.1, 0.3),
        Repeated(Zcdp(0.05), 10),
        Select(Gaussian(2.0), 10, 1.0),
        Select(Gaussian(2.0), 3, 0.0),
        Select(Gaussian(2.0), 5, math.inf),
        Composed([Select(Gaussian(4.0), 3, math.inf), Gaussian(4.0)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_renyi_accounting_is_never_below_our_proof(event: Any, delta: float) -> None:
    """Their RDP accountant bounds the same event; our upper jaw is not above it, and our lower jaw not above ours."""
    bracket = measurement_of(event).epsilon(delta)
    assert bracket.lower <= bracket.upper <= library.rdp.RdpAccountant().compose(event).get_epsilon(delta)


def test_one_trial_and_silent_releases() -> None:
    """Selecting one of one is the release itself."""
    assert measurement_of(Select(Gaussian(2.0), 1, 1.0)).epsilon(1e-5) == measurement_of(Gaussian(2.0)).epsilon(1e-5)


def test_trees() -> None:
    """A power of two closes at sqrt(levels); other sizes have an incomplete level above."""
    whole = measurement_of(Event.SingleEpochTreeAggregationDpEvent(5.0, [4, 8])).epsilon(1e-5)
    flat = measurement_of(Gaussian(5.0 / 2.0)).epsilon(1e-5)
    assert whole.upper == pytest.approx(flat.upper, rel=1e-3)
    odd = measurement_of(Event.SingleEpochTreeAggregationDpEvent(5.0, 100)).epsilon(1e-5)
    assert odd.lower < odd.upper


class DiscreteGaussianDpEvent:
    """As newer versions of the library have it."""

    sigma, sensitivity, dimension = 3.0, 1.0, None


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("discrete Gaussian", (3.0, 1.0, 1.0)),
        ("discrete Gaussian", (3.0, 1.5, 0.0)),
        ("epsilon-delta", (0.5, 1e-6)),
        ("exponential", (1.0,)),
        ("permute-and-flip", (1.0,)),
    ],
)
def test_events_of_newer_versions_are_read_by_name(kind: str, parameters: tuple[float, ...]) -> None:
    """Their readers and pairs exist whatever is installed, and a lone release has jaws in order."""
    from calipers.measure import measure

    measured = measure(event_releases.PAIRS[kind](parameters))
    assert 0.0 < measured.epsilon(1e-4).lower <= measured.epsilon(1e-4).upper
    assert event_releases.READERS["DiscreteGaussianDpEvent"][1](DiscreteGaussianDpEvent()) == (3.0, 1.0, 0.0)


def test_json_there_and_back(tmp_path: Path) -> None:
    """Nested events survive; what is no event of the library is refused."""
    event = Composed(
        [Repeated(library.PoissonSampledDpEvent(0.01, Gaussian(1.0)), 3), Mixture(1.0, [0, 1], [0.5, 0.5])]
    )
    assert event_from_json(event_to_json(event)) == event
    path = tmp_path / "event.json"
    path.write_text('{"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}')
    assert load_event(path) == Gaussian(2.0)
    for text, message in (
        ("{", "valid JSON"),
        ("[1]", "class_name"),
        ('{"class_name": "GaussianDpEvent"}', "fields"),
        ('{"class_name": "GaussianDpEvent", "module_name": "os"}', "Expected an event of"),
        ('{"class_name": "Popen"}', "no event"),
    ):
        with pytest.raises((InputError, UnsupportedError), match=message):
            event_from_json(text)
    with pytest.raises(InputError, match="Cannot read"):
        load_event(tmp_path / "none.json")
