"""How many sums a certificate asks for: everywhere while there are few, and no more than it has operations for."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

from flint import arb

from calipers.certificates import certify, upper
from calipers.certificates.rounds import Focus
from calipers.run import Run
from calipers_verify.reading import spend

SMALL, COST = 1e-6, 1_000
SIDES = list(range(1_000)), [-place for place in range(1_000)]


def value(place: int) -> float:
    return math.exp(-abs(place) / 20.0)


def asked(effort: int) -> list[int]:
    """Where is asked, in order, if every sum costs the same."""
    found: list[int] = []

    def ask(place: int) -> arb:
        spend(COST)
        found.append(place)
        return arb(value(place))

    spend(0, anew=True)
    upper._ask_outward(SIDES, ask, arb(SMALL), Focus(1.0, 10.0, False, effort))
    return found


def test_where_operations_suffice_it_is_asked_wherever_there_is_something_to_gain() -> None:
    found = set(asked(10**7))
    assert all(
        {place, -place} <= found
        for place in range(300)
        if value(place) > SMALL and value(place) - value(place + 1) > SMALL
    )
    assert max(found) < 400


@pytest.mark.parametrize("effort", [0, 20 * COST, 100 * COST])
def test_no_more_sums_are_asked_for_than_there_are_operations(effort: int) -> None:
    """The first places are asked in any case, and reach as far as there is something."""
    found, first = asked(effort), asked(0)
    assert len(found) == max(len(first), effort // COST)
    assert len(first) < 16
    for side in (1, -1):
        farthest = max(side * place for place in found)
        assert value(farthest) <= SMALL < value(farthest - 64)


@pytest.mark.slow
def test_a_certificate_with_fewer_sums_is_looser_and_as_true(coarse: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are accepted by the checker, or `certify` would raise."""
    run = Run(dataset_size=97, batch_size=1, epochs=10, noise_multiplier=20.0, sampler="shuffle", adjacency="zero-out")
    usual = certify(run, delta=1e-5)
    monkeypatch.setattr(upper, "EFFORT", 0)
    rough = certify(run, delta=1e-5)
    sums = [one.record["claims"][0]["proof"][0]["factors"][0]["sums"] for one in (rough, usual)]
    assert len(sums[0]) < len(sums[1])
    assert usual.epsilon[1] < rough.epsilon[1] < 2 * usual.epsilon[1]
