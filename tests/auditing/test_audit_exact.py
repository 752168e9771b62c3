"""The exact test of P(E) <= e^epsilon Q(E) + delta: its size by enumeration, and what it gains over two intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from calipers.auditing.binomial_rows import BinomialRows
from calipers.auditing.exact import INTERVAL_SHARE, EventCounts, exact_delta, exact_epsilon
from calipers.auditing.statistics import lower_rate, upper_rate

ERROR = 0.05


def weights_of(p: float, q: float, n: int, m: int, odds: float) -> tuple[float, float]:
    own, other = math.sqrt(p * (1 - p) / n), odds * math.sqrt(q * (1 - q) / m)
    return own / math.hypot(own, other), other / math.hypot(own, other)


def wrong_bounds(bounds: np.ndarray, p: float, q: float, truth: float) -> float:
    """P[bound > truth], summed over all outcomes (x, y) with the masses of SciPy's binomial law."""
    n, m = bounds.shape[0] - 1, bounds.shape[1] - 1
    mass = np.outer(stats.binom.pmf(np.arange(n + 1), n, p), stats.binom.pmf(np.arange(m + 1), m, q))
    return float(mass[bounds > truth].sum())


@pytest.mark.parametrize(("epsilon", "weights"), [(0.0, (0.7, 0.7)), (1.0, (0.3, 0.95)), (0.5, (1.0, 0.0))])
def test_bounds_on_delta_are_wrong_no_more_often_than_stated(epsilon: float, weights: tuple[float, float]) -> None:
    """All 13 x 15 outcomes and a grid of true rates; and often enough wrong that a larger bound would not do."""
    n, m, odds = 12, 14, math.exp(epsilon)
    bounds = np.array(
        [
            [exact_delta(EventCounts((x, n), (y, m), ERROR, weights), epsilon) for y in range(m + 1)]
            for x in range(n + 1)
        ]
    )
    largest = 0.0
    for q in np.linspace(0.0, 0.6, 31):
        for p in np.linspace(0.02, 1.0, 50):
            if p > odds * q:
                largest = max(largest, wrong_bounds(bounds, p, q, p - odds * q))
    assert 0.4 * ERROR < largest <= ERROR


@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_bounds_on_epsilon_are_wrong_no_more_often_than_stated(delta: float) -> None:
    """The same for epsilon at a given delta, with few trials on one side."""
    n, m = 16, 9
    bounds = np.array(
        [
            [exact_epsilon(EventCounts((x, n), (y, m), ERROR, (0.4, 0.9)), delta) for y in range(m + 1)]
            for x in range(n + 1)
        ]
    )
    largest = 0.0
    for q in np.linspace(0.01, 0.6, 30):
        for p in np.linspace(0.02, 1.0, 50):
            if p - delta > q:
                largest = max(largest, wrong_bounds(bounds, p, q, math.log((p - delta) / q)))
    assert 0.4 * ERROR < largest <= ERROR


@pytest.mark.parametrize(("x", "n", "y", "m"), [(70, 100, 40, 120), (9, 300, 0, 250), (300, 300, 20, 400)])
def test_the_p_value_is_the_largest_probability_of_its_region(x: int, n: int, y: int, m: int) -> None:
    """At least the enumerated probability at every q of the interval, and within 8 % of the largest."""
    counts = EventCounts((x, n), (y, m), ERROR, weights_of(x / (n + 1), (y + 0.5) / (m + 1), n, m, 1.0))
    offset = counts.least_likely - counts.most_rare
    start, limits = counts._limits
    assert start == 0 or stats.binom.cdf(start - 1, m, y / m) < 1e-4
    least = counts._least(1.0, offset)
    for delta in (0.0, 0.5 * (x / n - y / m)):
        found = counts.p_value(1.0, offset, lambda rate, delta=delta: rate + delta)
        half = 0.5 * INTERVAL_SHARE * ERROR
        interval = np.linspace(
            stats.beta.ppf(half, y, m - y + 1) if y else 0.0, stats.beta.ppf(1 - half, y + 1, m - y), 400
        )
        values = np.arange(start, start + limits.size)
        values = values[values <= m]
        reached = [
            float(stats.binom.pmf(values, m, q) @ stats.binom.sf(least[: values.size] - 1, n, min(q + delta, 1.0)))
            for q in interval
        ]
        assert max(reached) + INTERVAL_SHARE * ERROR <= found
        assert found <= 1.08 * max(reached) + 1.01 * INTERVAL_SHARE * ERROR


@pytest.mark.parametrize(
    ("p", "q", "epsilon"),
    [(0.69, 0.31, 0.0), (0.6, 0.3, 0.5), (0.13, 0.013, 1.0), (0.99, 0.002, 0.0), (0.02, 0.0, 2.0)],
)
def test_the_exact_bound_beats_two_intervals_at_any_share(p: float, q: float, epsilon: float) -> None:
    """At the expected counts of 750 runs it is above Clopper-Pearson's with the best of five shares of the error."""
    n = 750
    odds = math.exp(epsilon)
    x, y = round(p * n), round(q * n)
    counts = EventCounts((x, n), (y, n), ERROR, weights_of((x + 0.5) / (n + 1), (y + 0.5) / (n + 1), n, n, odds))
    intervals = max(
        float(lower_rate(x, n, ERROR * (1 - share))) - odds * float(upper_rate(y, n, ERROR * share))
        for share in (0.1, 0.3, 0.5, 0.7, 0.9)
    )
    assert intervals < exact_delta(counts, epsilon) < p - odds * q


def test_rows_of_binomial_laws_are_upper_bounds_and_close() -> None:
    """Masses and tails of tilted rows against SciPy's, from rates near 0 to 1 and over windows that cut."""
    rows = BinomialRows(500, 60, 3.0)
    rates = np.array([0.0, 1e-4, 0.08, 0.12, 0.2])
    first, masses, before, after = rows.masses(rates)
    values = first[:, None] + np.arange(masses.shape[1])
    exact = stats.binom.pmf(values, 500, rates[:, None])
    assert np.all(masses >= exact * (1 - 1e-15))
    np.testing.assert_allclose(masses, exact, rtol=1e-8, atol=1e-280)
    np.testing.assert_allclose(before + masses.sum(axis=1) + after, 1.0, rtol=1e-8)
    rates = np.array([0.05, 0.12, 0.999, 1.0])
    least = np.array([[0.0, 20.0, 300.0, 501.0]] * 2 + [[0.0, 500.0, 499.0, 501.0]] * 2)
    tails = rows.tails(rates, least)
    exact = stats.binom.sf(least - 1, 500, rates[:, None])
    assert np.all(tails >= exact * (1 - 1e-12))
    # Above the window a tail is replaced by that of the window's end.
    assert np.all(tails <= np.maximum(exact * (1 + 1e-8), stats.norm.sf(3.0)))


def test_a_million_runs_are_no_trouble() -> None:
    """Close to the normal approximation, which is accurate there."""
    n = 1_000_000
    counts = EventCounts((500_000, n), (480_000, n), ERROR, (0.7071, 0.7071))
    width = math.sqrt(2 * 0.2498 / n)
    assert exact_delta(counts, 0.0) == pytest.approx(0.02 - 1.645 * width, abs=0.1 * width)
