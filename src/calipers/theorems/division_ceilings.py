"""Ceilings: how good the guarantees for a divided sum can be at most (Wang et al. 2026, Section 3.4 and appendices).

Of the n coordinates of the output, n - 1 carry no signal and only change scale, by s = K/(K + 1). Forgetting the one
with signal weakens the adversary, so the guarantees of Theorems 3.6 and A.3 lie below

    f_bar = T(N(0, 1)^(n-1), N(0, s^2)^(n-1)),        K = N  or  K = floor(N q),

and that of Theorem 3.7, which mixes over batches of at most N records and gives weight q - q(1-q)^N to the nonempty
ones that the new record joins, below (q - q(1-q)^N) f_bar + (1 - q + q(1-q)^N) ID.

The paper bounds f_bar by a central limit theorem. There is no need to: the likelihood ratio depends on the squared
norm alone, so f_bar is a chi-square test, alpha = F(t), beta = 1 - F(t/s^2) with n - 1 degrees, exact, and T rounds of
it are the same test with T(n - 1) degrees. At T = 200, n = 26,010, K = 700, alpha = 0.1 it is 0.000443787 where the
limit theorem proves 0.0618.

Care with the reading:

- A ceiling bounds the *guarantee* of the theorems (batch and bit revealed) from above. It says nothing about the curve
  of the mechanism itself except at q = 1, where nothing is hidden. In particular Theorem 3.11 says that the guarantee
  of Theorem 3.7 collapses with the dimension; the mechanism that divides by |B| does not.
- Theorem 3.9 is a limit in n; the number it yields here is the dimension from which f_bar is below a given rate.
- Section 5.2 calls the leakage of division by |B| non-monotone in N. That is a property of the ceiling.

Two lemmas bound curves from above without any of that.

**Repeating (Lemma 2.6).** If a curve is not 1 - a, some test of one copy has a + b < 1. Run it on each of n copies and
count the rejections: binomial with probability a under the null, 1 - b under the alternative. The best test between
those two counts is a test between the n copies, so its false negative rate bounds f^(n) from above, and it falls
like e^(-n C) with C > 0 the Chernoff information of the two coins. The lemma states the limit 0; this is the number.

**Revealing (Lemma 3.3).** If mechanism i runs with probability w_i and i is revealed, the best split of the false
positive rate over the i is at least as good as the even one: T(a) <= sum w_i f_i(a). The best split itself (Lemmas 2.10
and 3.1) is `calipers.curves.TradeoffCurve.mixture`, which merges segments by slope; Lemma 3.2, that lower components
give a lower mixture, is what makes it respect the side of its curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves import TradeoffCurve
from calipers.domains import POSITIVE_PROBABILITY, PROBABILITY
from calipers.errors import ConditionError, InputError
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, log_binomial
from calipers.numerics.chi_square import LARGEST_DEGREES, log_scale_test_error
from calipers.numerics.elementary import fewest
from calipers.numerics.gamma import GAMMA_LOG_ERROR
from calipers.theorems.division_guarantees import uneven_floor
from calipers.theorems.division_pairs import ROUNDED
from calipers.theorems.registry import DESCRIBED, theorem, unmet


def scale_ceiling(fpr: float, degrees: int, divisor: int) -> float:
    """T(N(0, I_d), N(0, s^2 I_d))(fpr), s = divisor/(divisor + 1), from above; ID for d = 0.

    The curve falls, so it is evaluated at an fpr lowered by the error of its quantile, and then raised by its own.
    """
    if degrees > LARGEST_DEGREES:
        raise unmet("few-degrees", most=LARGEST_DEGREES, degrees=degrees)
    if degrees == 0 or fpr in (0.0, 1.0):
        return 1.0 - fpr
    slack = 4.0 * GAMMA_LOG_ERROR
    if fpr <= 0.5:
        log_fpr = math.log(fpr) * (1.0 + slack) - slack
    else:
        rest = math.log(1.0 - fpr)
        log_fpr = math.log1p(-math.exp(rest + slack * max(1.0, abs(rest))))
    value = float(log_scale_test_error(log_fpr, degrees, -2.0 * math.log1p(1.0 / divisor)))
    return min(math.exp(value + slack * max(1.0, abs(value))), 1.0 - fpr)


def _batch_share(dataset_size: int, sample_rate: float) -> float:
    """q - q(1-q)^N: the record joins a batch that is not empty without it."""
    if sample_rate == 1.0:
        return 1.0
    return -sample_rate * math.expm1(dataset_size * math.log1p(-sample_rate))


@theorem("wang-thm-b.1")
@theorem("wang-thm-3.8")
@theorem("wang-lemma-3.14")
@theorem("wang-lemma-3.15")
def expected_ceiling(fpr: float, dimension: int, dataset_size: int, steps: int) -> float:
    """f_bar^(T)(fpr), the exact chi-square test with T(n - 1) degrees; relative excess below 1e-10 where above 1e-100.

    Theorem 3.8 is T = 1. By the lemmas it is highest at the largest dataset, and at the smallest dimension.
    """
    return scale_ceiling(fpr, steps * (dimension - 1), dataset_size)


@theorem("wang-thm-3.9")
def collapse_dimension(fpr: float, fnr: float, dataset_size: int) -> int:
    """The first dimension at which the ceiling of Theorem 3.8 falls to fnr; by Lemma 3.15 it stays below.

    Raises `ConditionError` if that is beyond 1e12 coordinates.
    """
    largest = int(DESCRIBED["dimension"][0].high)
    if scale_ceiling(fpr, largest - 1, dataset_size) > fnr:
        raise ConditionError(f"The ceiling at fpr={fpr:g} stays above fnr={fnr:g} up to {largest:g} coordinates.")
    return fewest(lambda many: many >= largest or scale_ceiling(fpr, many - 1, dataset_size) <= fnr, 0, 1)


@theorem("wang-thm-3.10")
@theorem("wang-lemma-3.15-batch")
@theorem("wang-lemma-3.16")
def batch_ceiling(fpr: float, dimension: int, dataset_size: int, sample_rate: float) -> float:
    """(q - q(1-q)^N) f_bar(fpr) + (1 - q + q(1-q)^N) (1 - fpr), f_bar of Theorem 3.8.

    By the lemmas it is highest at the smallest dimension, and at the smallest rate.
    """
    share = _batch_share(dataset_size, sample_rate)
    value = share * expected_ceiling(fpr, dimension, dataset_size, 1) + (1.0 - share) * (1.0 - fpr)
    return min(value * (1.0 + 1e-15), 1.0)


@theorem("wang-thm-3.11")
def batch_ceiling_limit(fpr: float, dataset_size: int, sample_rate: float) -> float:
    """(1 - q + q(1-q)^N) (1 - fpr), rounded down."""
    return (1.0 - _batch_share(dataset_size, sample_rate)) * (1.0 - fpr) * (1.0 - ROUNDED)


@theorem("wang-thm-a.6")
@theorem("wang-thm-a.4")
def floor_ceiling_of_rounds(fpr: float, dimension: int, dataset_size: int, sample_rate: float, steps: int) -> float:
    """f_bar^(T)(fpr) with K = floor(N q): the chi-square test with T(n - 1) degrees, exact; Theorem A.4 is T = 1.

    The two floors must differ.
    """
    return scale_ceiling(fpr, steps * (dimension - 1), uneven_floor(dataset_size, sample_rate))


@theorem("wang-thm-b.1-batch")
def batch_ceiling_of_rounds(fpr: float, dimension: int, dataset_size: int, sample_rate: float, steps: int) -> float:
    """f_bar(a)^T with 1 - (1 - a)^T = fpr: at least f_bar^(T)(fpr), f_bar of Theorem 3.10.

    The paper leaves the T-fold curve without a number. Any test bounds it from above; the one that rejects as soon as
    one round rejects at level a has these errors. The value is the better of that test and of looking at one round.
    """
    one = batch_ceiling(fpr, dimension, dataset_size, sample_rate)
    if fpr in (0.0, 1.0):
        return one
    level = float(-np.expm1(np.log1p(-fpr) / steps)) * (1.0 - 1e-15)
    return min(one, batch_ceiling(level, dimension, dataset_size, sample_rate) ** steps * (1.0 + 1e-15 * steps))


_MASS_ALLOWANCE = 1e-9


@theorem("wang-lemma-2.6")
def repeated_test_fnr(fpr: float, copies: int, single_fpr: float, single_fnr: float) -> float:
    """The false negative rate of the best test that counts rejections of one test, rounded up.

    Post-condition: at least f^(copies)(fpr). Raises `ConditionError` where the single test is no better than guessing.
    """
    if single_fpr + single_fnr >= 1.0:
        raise unmet("beats-guessing", single_fpr=single_fpr, single_fnr=single_fnr)
    rejections = np.arange(copies, -1, -1, dtype=np.float64)
    # From the largest count down: reject while the false positives fit, then toss a coin at the next count.
    null = np.exp(log_binomial(rejections, copies, single_fpr)) * (1.0 + 2.0 * BINOMIAL_RELATIVE_ERROR)
    missed = np.exp(log_binomial(copies - rejections, copies, single_fnr))
    used = np.cumsum(null) * (1.0 + 1e-15 * copies)
    inside = int(np.searchsorted(used, fpr, side="right"))
    if inside > copies:
        return 0.0
    spent = float(used[inside - 1]) if inside else 0.0
    share = min((fpr - spent) / float(null[inside]), 1.0) if null[inside] > 0.0 else 0.0
    rest = math.fsum(missed[inside + 1 :]) + (1.0 - share) * float(missed[inside])
    return min(rest * (1.0 + 4.0 * BINOMIAL_RELATIVE_ERROR), 1.0)


@implements("wang2026:lemma3.3")
def revealed_mixture_ceiling(curves: Sequence[TradeoffCurve], weights: Sequence[float], fpr: float) -> float:
    """sum w_i f_i(fpr), at least the curve of the mixture whose index is revealed.

    The curves must be LOWER (at or above the true ones): the value bounds the truth from above.
    """
    alpha = PROBABILITY.check("fpr", fpr)
    if len(curves) != len(weights) or not curves:
        raise InputError(f"Expected one weight per curve, got {len(curves)} curves and {len(weights)} weights.")
    shares = [POSITIVE_PROBABILITY.check("weight", weight) for weight in weights]
    lost = abs(math.fsum(shares) - 1.0)
    if lost > _MASS_ALLOWANCE:
        raise InputError(f"Expected weights that sum to 1, got {math.fsum(shares)!r}.")
    if any(curve.side is not Side.LOWER for curve in curves):
        raise InputError("Expected LOWER curves: a bound from above needs curves at or above the true ones.")
    value = math.fsum(share * float(curve(alpha)) for share, curve in zip(shares, curves, strict=True))
    return min(value * (1.0 + 1e-15 * len(shares)) + lost, 1.0)
