"""How many sums a certificate asks for: where there is something to gain, and no more than it has operations for."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

from flint import arb

from calipers.certificates import certify, upper
from calipers.certificates.rounds import Focus, gain
from calipers.numerics.normal import gaussian_delta, gaussian_mu
from calipers.run import Run
from calipers_verify import reading
from calipers_verify.reading import spend

SMALL, COST = 1e-6, 1_000
SIDES = list(range(1_000)), [-place for place in range(1_000)]


def value(place: int) -> float:
    return math.exp(-abs(place) / 20.0)


def asked(effort: int, worth: float = 1.0) -> list[int]:
    """Where is asked, in order, if every sum costs the same and every place between two is worth as much."""
    found: list[int] = []

    def ask(place: int) -> arb:
        spend(COST)
        found.append(place)
        return arb(value(place))

    spend(0, anew=True)
    upper._ask_where_it_gains(SIDES, ask, arb(SMALL), lambda *_: worth, effort)
    return found


def test_where_operations_suffice_it_is_asked_wherever_there_is_something_to_gain() -> None:
    found = set(asked(10**7))
    assert found == set(range(-max(found), max(found) + 1))
    assert value(max(found)) <= SMALL < value(max(found) - 64)


def test_nothing_more_is_asked_where_little_can_be_gained() -> None:
    assert asked(10**7, worth=0.01 * upper.ENOUGH) == asked(0)


@pytest.mark.parametrize("effort", [0, 20 * COST, 100 * COST])
def test_no_more_sums_are_asked_for_than_there_are_operations(effort: int) -> None:
    """The first places are asked in any case, and reach as far as there is something."""
    found, first = asked(effort), asked(0)
    assert len(found) == max(len(first), effort // COST)
    assert len(first) < 36
    for side in (1, -1):
        farthest = max(side * place for place in found)
        assert value(farthest) <= SMALL < value(farthest - 64)


def test_the_gain_of_a_node_is_about_what_it_saves() -> None:
    """Two Gaussian epochs: at the log ratio that decides, a chord moves epsilon about as much as is expected."""
    epsilon, delta, half, width = 1.0, 1e-5, 0.5, 0.02
    mu = gaussian_mu(epsilon, delta) / math.sqrt(2.0)
    first, last = half - 0.5 * width, half + 0.5 * width
    focus = Focus(epsilon, delta, alone=True, effort=0)
    each = gain(focus, 2, first, last, *(float(gaussian_delta(mu, x)) for x in (first, last)))
    # Splitting all cells of this width moves epsilon by about T theta h^2 / 12; this one has its share of them.
    everything = 2.0 * (epsilon / (2.0 * mu * mu)) * width**2 / 12.0 / epsilon
    density = width / (mu * math.sqrt(math.pi))
    assert 0.3 < each / (everything * density) < 3.0


def test_places_that_decide_nothing_gain_nothing() -> None:
    focus = Focus(1.0, 1e-5, alone=True, effort=0)
    assert gain(focus, 10, 3.0, 3.1, 1e-30, 1e-31) < 1e-9 < gain(focus, 10, 0.1, 0.2, 1e-2, 5e-3)
    assert gain(focus, 10, 0.1, 0.2, 1e-2, 0.0) == 0.0


@pytest.mark.slow
def test_a_certificate_with_fewer_sums_is_looser_and_as_true(coarse: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are accepted by the checker, or `certify` would raise."""
    run = Run(dataset_size=97, batch_size=1, epochs=10, noise_multiplier=20.0, sampler="shuffle", adjacency="zero-out")
    usual = certify(run, delta=1e-5)
    spent = reading.MOST_EFFORT - reading.effort_left()
    assert spent < 2 * upper.EFFORT
    monkeypatch.setattr(upper, "EFFORT", 0)
    rough = certify(run, delta=1e-5)
    sums = [one.record["claims"][0]["proof"][0]["factors"][0]["sums"] for one in (rough, usual)]
    assert len(sums[0]) < len(sums[1])
    assert usual.epsilon[1] < rough.epsilon[1] < 2 * usual.epsilon[1]
