"""Where a profile passes delta: never before it does, hardly later, and wherever the search began."""

from __future__ import annotations

import math

import pytest

from calipers.numerics.normal import gaussian_delta, gaussian_epsilon
from calipers.pld.allocation.crossing import CELL, Crossing

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

    def fine(epsilon: float) -> tuple[float, float]:
        asked.append(epsilon)
        return epsilon, profile(epsilon)

    true, found = smallest(delta), []
    for first in (0.01, 0.2, 1.0):
        crossing = Crossing(math.log(profile(0.0)), delta, 4.0)
        guess = crossing.passed(lambda epsilon: math.log(1.1 * profile(epsilon)), first)
        assert guess == pytest.approx(true, rel=0.2)
        found.append(crossing.proven(fine, guess))
    assert true * (1.0 - 1e-9) <= min(found)
    assert max(found) <= true * (1.0 + 3e-5)
    assert max(found) - min(found) <= 1e-12
    ends = [math.log(epsilon) / CELL for epsilon in asked]
    assert all(abs(end - round(end)) < 1e-6 for end in ends)


def test_a_profile_that_never_seems_to_fall_is_given_up() -> None:
    """Nothing is proven below the bound that is known, which stays."""
    crossing = Crossing(math.log(0.5), 1e-6, gaussian_epsilon(1.0, 1e-6))
    guess = crossing.passed(lambda _: math.log(0.5), 0.1)
    assert 0.0 < guess < gaussian_epsilon(1.0, 1e-6)
    found = crossing.proven(lambda epsilon: (epsilon, 0.5), guess)
    assert found == gaussian_epsilon(1.0, 1e-6)
