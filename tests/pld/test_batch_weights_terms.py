"""Every term of the weights that cover the later batches, evaluated anew from the statement of the theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from mpmath import mp

from calipers.numerics.normal import gaussian_delta
from calipers.pld.allocation.batch_weights import (
    Majorant,
    find_majorant,
    first_payoff,
    loss_share,
    lower_hull,
    weights_of_records,
)
from calipers.pld.allocation.worst_case_term import zeroed_out

SETTINGS = [(0.5, 100, 2_000, 7.0), (0.9, 240, 60_000, 11.0), (1 / 3, 50, 1_010, 5.0)]
"""r, batch size, dataset size, exponent; the last batch of the last one is short."""


class Terms(NamedTuple):
    """What the statement needs: the weights of records up to a loss, and batches."""

    width: float
    batch: int
    size: int
    exponent: float
    loss: float

    @property
    def batches(self) -> int:
        """Later ones, a short one included."""
        return -(-self.size // self.batch) - 1

    def log_moment(self, tilt: float) -> float:
        """Bennett: log E exp(tilt B (w - 1)) of a mean of B weights of records."""
        ratio = math.exp(2 * self.width**2)
        reach = ratio / (1 - self.loss) - 1
        variance = (ratio + 1) ** 2 / (4 * ratio * (1 - self.loss)) - 1
        return self.batch * variance / reach**2 * (math.expm1(tilt * reach) - tilt * reach)

    def high(self, tilt: float) -> float:
        """A union bound over batches: P(some w > high) <= e^-exponent."""
        return 1 + (self.log_moment(tilt) + self.exponent + math.log(self.batches)) / (tilt * self.batch)

    def total(self, level: float, y: float, tilt: float) -> float:
        """P(sum of (w - level)+ > total) <= e^-exponent."""
        spread = math.exp(min(self.log_moment(tilt) - tilt * self.batch * (level - 1), 300.0))
        factor = y * (1 - y) ** ((1 - y) / y)
        return (self.exponent + self.batches * math.log1p(factor * spread)) / (y * tilt * self.batch)


def least(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimum over a positive argument: a grid, then golden section."""
    places = np.geomspace(low, high, 60).tolist()
    best = min(range(len(places)), key=lambda i: function(places[i]))
    a, b = places[max(0, best - 1)], places[min(len(places) - 1, best + 1)]
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        c, d = b - shrink * (b - a), a + shrink * (b - a)
        a, b = (a, d) if function(c) < function(d) else (c, b)
    return min(function(a), function(b))


def terms_of(covered: Majorant, width: float, batch: int, size: int, exponent: float) -> Terms:
    """The loss is what is exposed beyond the two events of probability e^-exponent."""
    beyond = covered.exposed - 2.0 * math.exp(-exponent)
    rate = (batch - 2) * (size - batch) / (size - 2)
    assert beyond > 0.0  # two events, not one, and a share of records besides
    loss = (2 * width**2 + 1 - math.log(beyond * (batch - 1) / batch)) / rate
    return Terms(width, batch, size, exponent, loss)


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_exposed_is_two_events_and_a_loss(setting: tuple[float, int, int, float]) -> None:
    """2 e^-x for the largest weight and for the excesses; the loss that is left over is one that covers everything."""
    covered = find_majorant(*setting)
    assert covered is not None
    terms = terms_of(covered, *setting)
    assert 0.0 < terms.loss < 0.9
    assert loss_share(terms.loss, *setting[:3]) == pytest.approx(
        covered.exposed - 2.0 * math.exp(-setting[3]), rel=1e-6
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_largest_weight_is_a_union_bound_over_all_later_batches(setting: tuple[float, int, int, float]) -> None:
    """`high` is at least the least bound over all tilts, with the logarithm of the number of batches in it."""
    covered = find_majorant(*setting)
    assert covered is not None
    terms = terms_of(covered, *setting)
    reach = weights_of_records(terms.loss, *setting[:2]).largest - 1
    bound = least(terms.high, 1e-3 / reach, 40.0 / reach)
    assert bound <= covered.high * (1 + 1e-9)
    assert covered.high <= 1 + 1.01 * (bound - 1)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_few_heavy_batches_hold_all_excesses_and_no_fewer_do(setting: tuple[float, int, int, float]) -> None:
    """few (high - level) is at least the total excess beyond some level up to `low`; an eighth fewer hold less."""
    covered = find_majorant(*setting)
    assert covered is not None
    terms = terms_of(covered, *setting)
    reach = weights_of_records(terms.loss, *setting[:2]).largest - 1

    def missing(few: int) -> float:
        """The smallest total that few heavy batches do not hold, over all levels up to low; negative: all is held."""
        levels = np.linspace(1.0 + 0.02 * (covered.high - 1), covered.low, 13).tolist()
        return min(
            least(partial(terms.total, level, y), 1e-2 / reach, 40.0 / reach) - few * (covered.high - level)
            for level in levels
            for y in (0.3, 0.5, 0.7, 0.9)
        )

    assert covered.low <= covered.high
    assert missing(covered.few) <= 0.0 < missing(covered.few - covered.few // 8 - 1)
    # All of the later weight is there: N/B - 1.
    whole = covered.many * covered.low + covered.few * covered.high
    assert whole == pytest.approx(setting[2] / setting[1] - 1, rel=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
def test_bennett_s_moment_is_above_every_mean_of_two_valued_weights(share: float) -> None:
    """Weights 1 and ratio in this share, of mean 1: the exact moment of a mean of B independent ones, by mpmath."""
    width, batch = 0.6, 30
    weights = weights_of_records(0.0, width, batch)
    ratio = mp.exp(2 * mp.mpf(width) ** 2)
    mean = 1 - share + share * ratio
    for tilt in (0.05, 0.5, 2.0):
        exact = batch * mp.log((1 - share) * mp.exp(tilt * (1 / mean - 1)) + share * mp.exp(tilt * (ratio / mean - 1)))
        assert exact <= float(weights.log_moment(np.array([tilt]))[0])


def test_variance_is_that_of_two_values_in_the_worst_share() -> None:
    """Two values at the largest ratio, whatever their share: the variance over the squared mean, attained."""
    width = 0.6
    ratio, shares = math.exp(2 * width**2), np.linspace(0.0, 1.0, 2001)
    means = 1 + shares * (ratio - 1)
    variances = (1 + shares * (ratio**2 - 1)) / means**2 - 1
    bound = weights_of_records(0.0, width, 10).variance
    assert float(np.max(variances)) <= bound <= float(np.max(variances)) * (1 + 1e-5)
    # Weights that are lost make the mean of the others smaller.
    assert weights_of_records(0.5, width, 10).variance >= 2 * (1 + float(np.max(variances))) - 1


def test_the_loss_has_the_tail_of_the_statement() -> None:
    """B/(B - 1) e^(2 r^2 + 1 - rate loss), rate = (B - 2)(N - B)/(N - 2), by mpmath."""
    for loss, r, batch, size in ((0.1, 0.5, 50, 1000), (0.6, 1.0, 5, 60)):
        rate = mp.mpf((batch - 2) * (size - batch)) / (size - 2)
        exact = mp.mpf(batch) / (batch - 1) * mp.exp(2 * mp.mpf(r) ** 2 + 1 - rate * loss)
        assert exact <= loss_share(loss, r, batch, size) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("setting", [(0.5, 2, 100, 5.0), (0.5, 100, 190, 5.0), (3.1, 100, 10_000, 5.0)])
def test_batches_that_the_theorem_does_not_cover_are_refused(setting: tuple[float, int, int, float]) -> None:
    """Fewer than three records, less than two batches, or hardly any noise: None, never a number."""
    assert find_majorant(*setting) is None


def test_hulls_stay_below_their_points_and_above_convex_functions() -> None:
    """The lower hull of values above x^2: at most each of them at its place, and never below x^2."""
    rng = np.random.default_rng(3)
    places = np.sort(rng.uniform(-2.0, 2.0, 60))
    values = places**2 + rng.exponential(0.2, 60)
    x, y = lower_hull(places, values)
    assert np.all(np.interp(places, x, y) <= values)
    assert np.all(np.interp(places, x, y) >= places**2)
    assert np.all(np.diff(np.diff(y) / np.diff(x)) > 0.0)
    assert len(x) < 40


def test_the_payoff_is_never_above_what_fixed_batches_show() -> None:
    """J(s) <= D_k + s+, J(0) = D_k, and it falls to nothing far to the left."""
    epsilon = 0.4
    known = float(gaussian_delta(0.8, epsilon)) * (1.0 + 1e-9)
    places, values = first_payoff(zeroed_out(1.25, epsilon, False), known)
    assert np.all(values <= (known + np.maximum(places, 0.0)) * (1.0 + 1e-9))
    assert values[0] < 1e-3 * known


@pytest.mark.parametrize("single", [False, True])
def test_weights_below_the_largest_with_little_excess_are_majorized(single: bool) -> None:
    """Random weights of sum nu, at most omega_2, of excess at most Sigma beyond omega_1, against n_1 and n_2 of them.

    With a single weight of the first kind omega' may exceed omega_2, and the weights are majorized all the same.
    """
    rng = np.random.default_rng(9)
    levels, beyond = np.linspace(0.0, 4.0, 400), 0
    for _ in range(300):
        count = 3 if single else int(rng.integers(5, 40))
        weights = rng.dirichlet(np.full(count, 8.0)) * (count - 0.3)
        second, total = float(weights.max()) * 1.01, float(weights.sum())
        first = 1.0 + 0.5 * (second - 1.0)
        excess = float(np.maximum(weights - first, 0.0).sum())
        few = max(1, math.ceil(excess / (second - first)))
        many = int((total - few * second) / first)
        if many < 1 or second <= 1.0:
            continue
        level = (total - few * second) / many
        beyond += level > second
        above = many * np.maximum(level - levels, 0.0) + few * np.maximum(second - levels, 0.0)
        assert np.all(np.maximum(weights[:, None] - levels, 0.0).sum(axis=0) <= above + 1e-12)
    assert beyond > 0 or not single
