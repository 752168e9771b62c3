"""Every share of the error of a simultaneous band, from the statement of its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp

from calipers.auditing.band import Band, simultaneous_rates


def grid_of(trials: int) -> list[int]:
    """Counts 0, 1, 2, ... growing by a quarter up to a quarter of the trials, and the same from the other end."""
    near = [0]
    while near[-1] < trials / 4:
        near.append(max(near[-1] + 1, near[-1] * 5 // 4))
    return sorted({k for k in (*near, *(trials - k for k in near)) if 0 <= k < trials})


def above(successes: int, trials: int, rate: mp.mpf) -> mp.mpf:
    """P[Bin(trials, rate) <= successes], term by term."""
    return mp.fsum(mp.binomial(trials, j) * rate**j * (1 - rate) ** (trials - j) for j in range(successes + 1))


@pytest.mark.parametrize(("trials", "error"), [(20, 0.0125), (60, 0.3)])
def test_either_bound_has_half_of_the_error(trials: int, error: float) -> None:
    """DKW with e/2, order statistics with e/2 over the grid: at each count the smaller one, by mpmath, never less."""
    rates, grid = simultaneous_rates(trials, error), grid_of(trials)
    each = mp.mpf(error) / 2 / len(grid)
    for count in range(trials + 1):
        massart = mp.mpf(count) / trials + mp.sqrt(mp.log(2 / mp.mpf(error)) / (2 * trials))
        place = next((k for k in grid if k >= count), None)
        found = mp.mpf(float(rates[count]))
        if found < min(massart, 1):  # then the order statistic decides, and its tail is what is left of the error
            assert place is not None
            assert above(place, trials, found) <= each
            assert above(place, trials, found - mp.mpf("1e-6")) >= each
        else:
            assert found <= min(massart, 1) * (1 + mp.mpf("1e-12"))


def test_each_of_the_four_rates_has_a_quarter_of_the_error() -> None:
    """A band is four tables of simultaneous rates at a quarter of what is spent of the error."""
    rng = np.random.default_rng(4)
    absent, present = rng.normal(0.0, 1.0, 40), rng.normal(1.0, 1.0, 60)
    for confidence, spent in ((0.95, 1.0), (0.9, 0.5)):
        band = Band(absent, present, confidence, spent)
        error = (1.0 - confidence) * spent / 4.0
        for scores, over, under in (
            (absent, band.absent_above, band.absent_below),
            (present, band.present_above, band.present_below),
        ):
            rates = simultaneous_rates(len(scores), error)
            for t, high, low in zip(band.threshold, over, under, strict=True):
                assert high == pytest.approx(rates[int(np.sum(scores > t))], rel=1e-12)
                assert low == pytest.approx(rates[int(np.sum(scores <= t))], rel=1e-12)


def test_a_band_of_few_scores_holds_as_often_as_it_says() -> None:
    """Uniform scores, 8 of them: the exact chance that all order statistics stay below their bounds, by recursion."""
    trials, error = 8, 0.2
    rates = [mp.mpf(float(u)) for u in simultaneous_rates(trials, error)]
    # P[X > t] <= u[k] where k scores exceed t: the k-th largest is at least 1 - u[k - 1], for all k.
    least = sorted(1 - u for u in rates[:trials])
    # With j the last place at which the j-th smallest score is too small, j scores lie below least[j - 1].
    chances = [mp.mpf(1)]  # that m scores satisfy the last m conditions
    for m in range(1, trials + 1):
        failing = (mp.binomial(m, j) * least[trials - m + j - 1] ** j * chances[m - j] for j in range(1, m + 1))
        chances.append(1 - mp.fsum(failing))
    assert 1 - error <= chances[trials] <= 1
