"""Where a profile passes delta: never before it does, hardly later, and wherever the search began."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from calipers.laws.allocated.crossing import CELL, Crossing
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon

MIXED = ((0.9, 0.02), (0.1, 0.5))


def profile(epsilon: float) -> float:
    """A mixture of a Gaussian that is well hidden and of one that is not."""
    return sum(share * float(gaussian_delta(mu, epsilon)) for share, mu in MIXED)


def smallest(delta: float) -> float:
    """By bisection."""
    low, high = 0.0, 4.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("delta", [5e-3, 1e-3, 1e-6, 1e-12])
def test_at_least_the_smallest_epsilon_and_close_to_it(delta: float) -> None:
    """Rough looks are 10 % too high; what is proven is exact, and the answer lies on a chord of one cell."""
    asked: list[float] = []

    def fine(epsilons: Sequence[float]) -> list[tuple[float, float]]:
        asked.extend(epsilons)
        return [(epsilon, profile(epsilon)) for epsilon in epsilons]

    true, found = smallest(delta), []
    for first in (0.01, 0.2, 1.0):
        crossing = Crossing(math.log(profile(0.0)), delta, 4.0, {})
        guess = crossing.passed(lambda epsilon: math.log(1.1 * profile(epsilon)), first)
        assert guess == pytest.approx(true, rel=0.2)
        found.append(crossing.proven(fine, guess))
    assert true * (1.0 - 1e-9) <= min(found)
    assert max(found) <= true * (1.0 + 3e-5)
    assert max(found) - min(found) <= 1e-12
    ends = [math.log(epsilon) / CELL for epsilon in asked]
    assert all(abs(end - round(end)) < 1e-6 for end in ends)


def test_what_is_known_already_is_not_looked_at_again() -> None:
    """Values on both sides, near to each other: no further look."""
    known = (0.5, 1.0, 0.97 * smallest(1e-6), 1.02 * smallest(1e-6), 2.9)
    crossing = Crossing(math.log(profile(0.0)), 1e-6, 3.0, {e: math.log(profile(e)) for e in known})
    assert crossing.on_line()[1] == known[2:4]
    guess = crossing.passed(lambda _: pytest.fail("a look"), 0.1)
    assert guess == pytest.approx(smallest(1e-6), rel=1e-3)


def test_bounds_that_say_nothing_lead_nowhere() -> None:
    """One of 1 far out, where no proof was found, beside values that fall; and a slope that is far off."""
    true, start = smallest(1e-8), math.log(profile(0.0))
    seen = {e: math.log(profile(e)) for e in (0.5 * true, 0.9 * true, 1.1 * true, 1.6 * true)}
    crossing = Crossing(start, 1e-8, 4.0, seen | {1.3 * true: 0.0})
    assert crossing.on_line()[0] == pytest.approx(true, rel=0.02)
    steep = Crossing(start, 1e-8, 4.0, {1.5 * true: -16.0, 1.52 * true: -60.0})
    assert steep.on_line()[0] > 1.49 * true
    found = steep.proven(lambda epsilons: [(epsilon, profile(epsilon)) for epsilon in epsilons], 1.5 * true)
    assert true * (1.0 - 1e-9) <= found <= true * (1.0 + 3e-5)


def test_a_profile_that_never_seems_to_fall_is_given_up() -> None:
    """Nothing is proven below the bound that is known, which stays."""
    crossing = Crossing(math.log(0.5), 1e-6, gaussian_epsilon(1.0, 1e-6), {})
    guess = crossing.passed(lambda _: math.log(0.5), 0.1)
    assert 0.0 < guess < gaussian_epsilon(1.0, 1e-6)
    found = crossing.proven(lambda epsilons: [(epsilon, 0.5) for epsilon in epsilons], guess)
    assert found == gaussian_epsilon(1.0, 1e-6)
