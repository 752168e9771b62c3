"""What is made of exposures: the least proof, the greatest attack, the worst neighbor, phase by phase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from calipers.measure.competing import MaximumBound
from calipers.measure.routes import evaluated
from calipers.mechanisms.classic import randomized_response
from calipers.mechanisms.gaussian import gaussian
from calipers.numerics.normal import gaussian_epsilon
from calipers.pld.allocation.replaced import ReplacedPair
from calipers.pld.composition.product import Product
from calipers.pld.core.source import TwoSidedPair
from calipers.samplers.analysis import Analysis, Attack, Proof, closed

DELTA, TOLERANCE = 1e-5, 1e-3
TIGHT = 2e-3


def proof(mu: float) -> Proof:
    return Proof(gaussian(mu), 1, "dong2022:cor2.13", "The record takes part in")


def attack(mu: float) -> Attack:
    return Attack(gaussian(mu), 1, "dong2022:cor2.13", "All others are zero.")


def analysis(proofs: Sequence[float], attacks: Sequence[float], neighbors: Sequence[Analysis] = ()) -> Analysis:
    """Shifts of the proofs that compete and of the attacks that compete."""
    first, *more = (attack(mu) for mu in attacks)
    return Analysis(tuple(proof(mu) for mu in proofs), first, tuple(more), tuple(neighbors))


def jaws(*phases: Analysis) -> tuple[float, float]:
    """(lower, upper) of epsilon."""
    found = evaluated(phases, adjacency="add-remove")
    return found.lower.epsilon(DELTA, TOLERANCE).value, found.upper.epsilon(DELTA, TOLERANCE).value


def exactly(mu: float) -> float:
    return gaussian_epsilon(mu, DELTA)


@pytest.mark.parametrize("proofs", [(2.0, 1.0), (1.0, 2.0), (3.0, 1.0, 2.0)])
@pytest.mark.parametrize("attacks", [(0.3, 0.7), (0.7, 0.3), (0.1, 0.7, 0.2)])
def test_the_least_proof_and_the_greatest_attack(proofs: tuple[float, ...], attacks: tuple[float, ...]) -> None:
    """In whatever order they are named; each jaw says what gave it."""
    lower, upper = jaws(analysis(proofs, attacks))
    assert exactly(1.0) <= upper <= exactly(1.0) * (1.0 + 1e-9)
    assert exactly(0.7) * (1.0 - TIGHT) <= lower <= exactly(0.7)


@pytest.mark.parametrize("order", [1, -1])
def test_the_worst_neighbor_counts_on_either_side(order: int) -> None:
    """A proof that forgot a neighbor would be too small."""
    mild, severe = analysis([1.0], [0.4]), analysis([2.0], [0.9])
    first, second = (mild, severe)[::order]
    lower, upper = jaws(Analysis(first.proofs, first.attack, neighbors=(second,)))
    assert exactly(2.0) <= upper <= exactly(2.0) * (1.0 + 1e-9)
    assert exactly(0.9) * (1.0 - TIGHT) <= lower <= exactly(0.9)


def test_phases_compose_choice_by_choice() -> None:
    """Shifts add up in squares; a phase with one choice joins every choice of the others."""
    lower, upper = jaws(analysis([2.0, 1.0], [0.3]), analysis([1.0], [0.4, 0.4]))
    assert exactly(math.sqrt(2.0)) <= upper <= exactly(math.sqrt(2.0)) * (1.0 + 1e-9)
    assert exactly(0.5) * (1.0 - TIGHT) <= lower <= exactly(0.5)


def test_a_pair_that_is_proven_and_attained_closes() -> None:
    """Equal participations count together, over phases too; nothing at all is perfect privacy."""
    source: TwoSidedPair = gaussian(0.5)
    phase = closed(source, 2, "dong2022:cor2.13", "The record takes part in", "All others are zero.")
    found = evaluated([phase, phase], adjacency="add-remove")
    assert found.closes
    assert found.lower.epsilon(DELTA, TOLERANCE).value <= exactly(1.0) <= found.upper.epsilon(DELTA, TOLERANCE).value
    coin = randomized_response(0.3)
    phase = closed(coin, 2, "zhu2022:thm10", "Coins", "All others are zero.")
    found = evaluated([phase, phase], adjacency="add-remove")
    assert found.upper.epsilon(DELTA, TOLERANCE).value == Product([(coin, 4)]).epsilon(DELTA, TOLERANCE).upper
    nothing = evaluated([], adjacency="add-remove")
    assert nothing.closes
    assert nothing.upper.delta(0.0, TOLERANCE).value == 0.0


def test_an_attack_that_neighbors_share_is_tried_once() -> None:
    """The same attack object behind both neighbors is one jaw."""
    one = analysis([1.0], [0.5])
    found = evaluated([replace(one, neighbors=(Analysis((proof(1.2),), one.attack),))], adjacency="add-remove")
    assert not isinstance(found.lower, MaximumBound)


def test_an_attack_beside_another_proof_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the proof is another's, the pair of an attack shows its tests, and nobody builds its UPPER law."""
    monkeypatch.setattr(ReplacedPair, "upper", None)
    shown = Attack(ReplacedPair(1.0, 3), 1, "calipers:replaced-pair", "All others are zero.")
    below = evaluated([Analysis((proof(9.0),), shown)], adjacency="substitute").lower
    assert below.epsilon(DELTA, TOLERANCE).value == ReplacedPair(1.0, 3).epsilon(DELTA)[0]
    hull = below.curve(1e-12, TOLERANCE)
    assert hull.epsilon(DELTA) == pytest.approx(ReplacedPair(1.0, 3).epsilon(DELTA)[0], rel=0.02)
