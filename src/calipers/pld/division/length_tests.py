"""Where lengths tell two datasets apart beyond doubt: closed forms instead of grids.

Let everybody's gradient be zero, the record's too. Then all d = T n numbers released are noise, and only its scale
tells which dataset was used. A composition on a lattice would need more and more points to say "a lot".

**Tests.** Divisor K or K + 1: the sum of squares over its mean is a gamma variable of shape d/2, times s^2 =
(K/(K+1))^2 where the record is present. Rejecting below (or above) a threshold has two errors in closed form, kept as
logarithms (`calipers.numerics.gamma`).

From above nothing is proven there: epsilon would be some 5,000 and more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from calipers.citations import implements
from calipers.numerics.gamma import LARGEST_SHAPE, gamma_quantile, log_gamma_tail
from calipers.numerics.types import FloatArray

BEYOND_DOUBT = 100.0
"""Deviations between two lengths beyond which they are distinguished: both errors of the test are below e^-1000."""
_SLACK = 1e-11
"""Covers the rounding of logarithms of error rates."""
_POWERS = (1e-9, 1e-3, 0.1, 0.5, 0.9, 0.99, 0.999)
"""False negatives of a test are at least 1e-16 in double precision; power is given by its logarithm."""


@dataclass(frozen=True)
class LengthTest:
    """A test by its log power (a lower bound) and the log of its false positive rate (an upper bound)."""

    log_power: float
    log_alpha: float
    reversed: bool


def deviations(degrees: float, divisor: float) -> float:
    """How many standard deviations apart the lengths of noise over K and over K + 1 are."""
    return math.sqrt(0.5 * degrees) * 2.0 * math.log1p(1.0 / divisor)


@implements("calipers:noise-length")
def scale_tests(degrees: int, divisor: int, smallest: float) -> Iterator[LengthTest]:
    """Tests of `degrees` noise coordinates over K or K + 1, of power from `smallest` up, in both orders."""
    shape = min(0.5 * degrees, LARGEST_SHAPE)  # whoever has more coordinates may ignore some
    offset = 2.0 * math.log1p(1.0 / divisor)
    levels = np.log(_levels(smallest))
    # The first threshold makes both errors small, where they can be.
    short = np.append(0.5 * offset, gamma_quantile(shape, levels, True))
    yield from _tests(log_gamma_tail(shape, short, True), log_gamma_tail(shape, short - offset, True), False)
    long = gamma_quantile(shape, levels, False)
    yield from _tests(log_gamma_tail(shape, long, False), log_gamma_tail(shape, long + offset, False), True)


def _levels(smallest: float) -> list[float]:
    """Powers to try, from twice the smallest useful one."""
    ladder = smallest * np.array([1.5, 3.0, 10.0, 100.0])
    return sorted({float(power) for power in (*ladder, *_POWERS) if 0.0 < power < 0.9995})


def _tests(log_power: FloatArray, log_alpha: FloatArray, orientation: bool) -> Iterator[LengthTest]:
    # Errors of the gamma tails are 2e-14 of their logarithms; those of the offset are a few units of roundoff more.
    power, alpha = log_power - _SLACK * (1.0 + np.abs(log_power)), log_alpha + _SLACK * (1.0 + np.abs(log_alpha))
    return (LengthTest(high, low, orientation) for high, low in zip(power.tolist(), alpha.tolist(), strict=True))


def epsilon_shown(tests: Sequence[LengthTest], delta: float) -> tuple[float, bool]:
    """What the best of some tests shows at delta.

    Args:
        tests: By log power (a lower bound) and log false positive rate (an upper bound).
        delta: In [0, 1).

    Returns:
        The largest log((power - delta)/alpha), at least 0 and at most epsilon(delta); and whether its test rejects the
        dataset with the record.
    """
    shown = [(0.0, False)]
    for test in tests:
        gain = math.exp(test.log_power) - delta
        if gain > 0.0:
            value = math.log(gain) - test.log_alpha
            shown.append((value - _SLACK * (1.0 + abs(value)), test.reversed))
    return max(shown, key=itemgetter(0))


def delta_shown(tests: Sequence[LengthTest], epsilon: float) -> tuple[float, bool]:
    """The largest power - e^epsilon alpha, at least 0, and the order of its test."""
    shown = [(0.0, False)]
    for test in tests:
        value = math.exp(test.log_power) - math.exp(min(1.0, test.log_alpha + epsilon)) - 1e-15
        shown.append((value, test.reversed))
    return max(shown, key=itemgetter(0))
