"""What rounding may cost the law of an allocated epoch: masses that are off by all that is allowed stay bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.pld.allocation import average
from calipers.pld.allocation.average import mixed_log_moment

Floats = NDArray[np.float64]
EPSILONS = (-0.7, -0.2, 0.0, 0.1, 0.4, 0.9)
ROUNDS = 4


def binomial(trials: int, chance: float) -> Floats:
    return np.array([math.comb(trials, j) * chance**j * (1 - chance) ** (trials - j) for j in range(trials + 1)])


Q = binomial(12, 0.4)
RATIO = np.exp(0.25 * np.arange(13.0))
RATIO /= float(Q @ RATIO)
P = Q * RATIO


def exact(epsilon: float, reverse: bool) -> float:
    """D of the finite pair, atom by atom."""
    first, second = (Q, P) if reverse else (P, Q)
    return float(np.sum(np.maximum(first - math.exp(epsilon) * second, 0.0)))


def allocation(q: Floats, p: Floats, error: float, drift: float, lost: float = 0.0) -> average._Allocation:
    return average._Allocation(ROUNDS * RATIO, np.stack([q, p]), error, drift, 0.0, lost, lost)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("error", "drift"), [(0.05, 1e-12), (1e-12, 0.01), (0.05, 0.01)])
def test_a_lower_law_stays_below_whatever_the_masses_are_off_by(error: float, drift: float, reverse: bool) -> None:
    """Both rows too large by e^error, and one against the other by 2 drift more: never above the exact divergence."""
    more = 1.0 + 2.0 * drift
    pmf = average._lower(allocation(Q * math.exp(error), P * math.exp(error) * more, error, drift))
    other = average._lower(allocation(Q * math.exp(error) * more, P * math.exp(error), error, drift)).reverse()
    for epsilon in EPSILONS:
        found = other.delta(epsilon) if reverse else pmf.delta(epsilon)
        assert found <= exact(epsilon, reverse)
        assert found >= exact(epsilon, reverse) - 2.0 * error - 8.0 * drift - 1e-9


@pytest.mark.parametrize("reverse", [False, True])
def test_an_upper_law_stays_above_masses_that_are_too_small(reverse: bool) -> None:
    """All masses too small by e^-error, which few rounds charge to the masses."""
    pmf = average._upper(allocation(Q * math.exp(-1e-3), P, 1e-3, 1.0), ROUNDS)
    pmf = pmf.reverse() if reverse else pmf
    for epsilon in EPSILONS:
        assert exact(epsilon, reverse) <= pmf.delta(epsilon) <= exact(epsilon, reverse) + 4e-3


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("end", [0, 1])
def test_an_upper_law_of_many_rounds_stays_above_tails_that_are_too_small(reverse: bool, end: int) -> None:
    """Shares of 2 drift missing at either end, hidden by dividing by the sum: a shift of log L covers them."""
    drift = 1e-8
    wrong = Q * np.where((np.arange(13) > 6) == bool(end), 1.0 - 2.0 * drift, 1.0)
    pmf = average._upper(allocation(wrong, P, 1e-3, drift), ROUNDS)
    assert pmf.shift_error > 9.0 * drift
    pmf = pmf.reverse() if reverse else pmf
    for epsilon in EPSILONS:
        assert exact(epsilon, reverse) <= pmf.delta(epsilon) <= exact(epsilon, reverse) + 1e-5


def test_what_is_lost_counts_at_zero_and_at_infinity() -> None:
    """The smallest and the largest atom taken out and said to be lost: both directions stay above."""
    kept = Q.copy()
    kept[[0, 12]] = 0.0
    lost = float(max(Q[0] + Q[12], P[0] + P[12]))
    pmf = average._upper(allocation(kept, P, 0.0, 0.0, lost), ROUNDS)
    for epsilon in EPSILONS:
        assert pmf.delta(epsilon) >= exact(epsilon, False)
        assert pmf.reverse().delta(epsilon) >= exact(epsilon, True)


def test_a_pair_that_is_met_sometimes_mixes_its_moment_with_one() -> None:
    """log(1 - p + p e^m), rounded up."""
    for chance, moment in ((0.3, 2.0), (1e-9, 30.0), (1.0, 0.7)):
        value = math.log(1.0 - chance + chance * math.exp(moment))
        assert value <= mixed_log_moment(chance, moment) <= value * (1.0 + 1e-9) + 1e-12
