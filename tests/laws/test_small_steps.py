"""Small steps: profiles beside enumeration where steps far below the others are lifted, and what is not composed."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from oracles.finite_laws import law_of

from calipers.bracket import Side
from calipers.laws.composed import product
from calipers.laws.composed.direction import Direction
from calipers.laws.composed.product import Product
from calipers.laws.composed.small_steps import Parts, SmallSteps
from calipers.laws.composed.tails import LowerTail
from calipers.laws.core.law import Law
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.numerics.types import FloatArray

# Coin flips that tell next to nothing, and outcomes of which only Q has much: log ratios of about -0.7 and -3.
P = (0.5 + 2.0**-8, 0.5 - 2.0**-8 - 2.0**-5 - 2.0**-9, 2.0**-5, 2.0**-9)
Q = (0.5, 0.5 - 2.0**-4 - 2.0**-5, 2.0**-4, 2.0**-5)
STEPS = 4
PLACES = np.array([-6.0, -3.0, -1.5, -0.7, -0.4, -0.2, -0.05, 0.0, 0.01, 0.05])


def profile() -> SmallSteps:
    laws = {side: law_of(np.array(P), np.array(Q), side) for side in Side}
    parts = {side: [Parts.of(law, math.inf)] for side, law in laws.items()}
    return SmallSteps(parts, [STEPS], -40.0, 1e-3, lambda _: -math.inf)


@functools.cache
def truth(eps: float) -> mp.mpf:
    """D of all steps, over all sequences of outcomes."""
    total = mp.mpf(0)
    for taken in itertools.product(range(len(P)), repeat=STEPS):
        p, q = (mp.fprod(mp.mpf(masses[i]) for i in taken) for masses in (P, Q))
        total += max(mp.mpf(0), p - mp.exp(mp.mpf(eps)) * q)
    return total


def test_small_steps_bound_the_profile_from_both_sides() -> None:
    """Steps far below the others included."""
    small = profile()
    upper, lower = small.upper(PLACES), small.lower(PLACES)
    for place, high, low in zip(PLACES, upper, lower, strict=True):
        assert low <= truth(float(place)) <= high
        assert high - low <= 2e-3


def test_compositions_beyond_what_is_asked_about_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Around 0 at most the second one is looked at, further out all of them."""
    made = []
    plain = Direction.lower

    def noted(self: Direction, *rest: Any, **more: Any) -> LowerTail:
        made.append(self)
        return plain(self, *rest, **more)

    monkeypatch.setattr(Direction, "lower", noted)
    law: dict[Side, Law] = {side: getattr(poisson_gaussian(1e-3, 1.0), side.value)(0.05, -60.0) for side in Side}
    parts = {side: [Parts.of(law[side], math.inf)] for side in Side}
    small = SmallSteps(parts, [1000], -60.0, 1e-2, lambda _: -math.inf)
    bounds: list[FloatArray] = [small.lower(np.array([0.0]))]
    assert 1 <= len(made) <= 2
    bounds.append(small.lower(np.array([0.0, 1.0])))
    assert len(made) > 2
    assert bounds[0][0] <= small.upper(np.array([0.0]))[0]
    assert bounds[0][0] == pytest.approx(bounds[1][0], rel=1e-3)


def test_an_epsilon_that_no_lattice_sees_is_conditioned_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """q = 1/38842232, sigma = 0.484, T = 44432: a far hump was looked at for 2 s, and epsilon was wider than asked."""
    monkeypatch.setattr(product, "_tilted_epsilon", None)
    jaws = Product([(poisson_gaussian(1 / 38842232, 0.484), 44_432)]).epsilon(1e-5)
    assert 0.0 < jaws.upper - jaws.lower <= 1e-3 * jaws.upper
