"""Products with so little noise that moments say all that is left to say, and no transform is needed.

**Distinguished.** Of the test "the sum of scores x is positive" both errors are at most E_Q[e^(t x)], which is
E_P[e^(-(1 - t) x)], 0 < t < 1, of all steps together (Chernoff). Where that is less than any number that a curve is
made of, one test is the whole curve.

**Out of reach.** A lattice for the total has up to some hundred thousand points. Where the total deviates by so much
that one of them is hundreds wide, rounding to it moves log L by as much, and nothing is proven that way. A test is
still there: by Chebyshev's inequality the sum of scores is more than k of its deviations below its mean with
probability at most 1/k^2 under P, and above c with probability at most e^-c under Q, where the score is log L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.pld.composition.tails import ErrorTerms
from calipers.pld.core.pmf import PrivacyLossPmf

LEAST_NOISE, FARTHER = 1e7, 10.0
"""The deviation of a total beyond which no lattice holds it, where its mean is so many times as large: a bell."""
LEAST = -690.0
"""Log of the smallest error rate that a curve keeps; what is smaller is rounded up to it."""
_SPARE = 40.0
_TILTS = (0.1, 0.25, 0.5, 0.75, 0.9)
_LARGEST, _SMALLEST, _BARE_TILTS = 710.0, -745.0, (0.5, 0.75, 0.9, 0.97)
"""Logs between which doubles lie; tilts at which moments are asked whether anything does."""


def hides_nothing(pmfs: Sequence[tuple[PrivacyLossPmf, int]]) -> bool:
    """Whether 1 - delta is no number where e^eps is one, so that no curve in doubles says anything.

    1 - delta = E_Q[min(L, k)] <= E_Q[L^t] k^(1-t) at k = e^eps. What says so are pilots, hence a wide margin.
    """
    return any(_log_moment(pmfs, t) + (1.0 - t) * _LARGEST < 2.0 * _SMALLEST for t in _BARE_TILTS)


def _log_moment(pmfs: Sequence[tuple[PrivacyLossPmf, int]], tilt: float) -> float:
    return math.fsum(count * pmf.cumulants(tilt)[0] for pmf, count in pmfs)


def log_errors(pmfs: Sequence[tuple[PrivacyLossPmf, int]]) -> float:
    """At least the logs of both errors of a test of what optimistic PLDs show, outcomes that they do not list included.

    Those are scored by their own log ratio: by Hoelder's inequality they add at most P^t Q^(1-t), P and Q being what is
    not listed of either mass.
    """
    rests = [_log_rests(pmf) for pmf, _ in pmfs]

    def log_moment(tilt: float) -> float:
        logs = [tilt * log_p + (1.0 - tilt) * log_q for log_p, log_q in rests]
        return math.fsum(
            n * np.logaddexp(pmf.cumulants(tilt)[0], log) for (pmf, n), log in zip(pmfs, logs, strict=True)
        )

    least, error_terms = min(map(log_moment, _TILTS)), ErrorTerms.of(list(pmfs))
    return least + error_terms.log_mass + error_terms.shift + 1e-9 * (1.0 + abs(least))


def _log_rests(pmf: PrivacyLossPmf) -> tuple[float, float]:
    """At least the logs of the masses that are not listed, under P and under Q."""
    if pmf.whole:
        return -math.inf, -math.inf
    sums = (float(np.exp(logs).sum()) for logs in (pmf.log_p, pmf.log_q))
    over_p, over_q = (math.log(abs(1.0 - total) + pmf.rounding + 1e-14) for total in sums)
    return over_p, over_q


def of_one_test(log_error: float) -> TradeoffCurve:
    """The curve (LOWER) of a test with such errors."""
    rate = math.exp(max(log_error, LEAST))
    return TradeoffCurve.from_tests([rate], [1.0 - rate], [1.0 - rate], [rate], side=Side.LOWER)


class Chebyshev(NamedTuple):
    """The sum of scores of optimistic PLDs: a threshold c below its mean is missed by P with probability at most
    `missed` + (`deviation`/(`mean` - c))^2, and exceeded by Q with at most e^-c."""

    mean: float
    deviation: float
    missed: float

    @classmethod
    def of(cls, pmfs: Sequence[tuple[PrivacyLossPmf, int]]) -> Chebyshev:
        """All errors added: to thresholds those of log L and of Q-masses, to deviations and `missed` those of P."""
        mean = variance = missed = drift = 0.0
        for pmf, count in pmfs:
            p = np.exp(pmf.log_p)
            total = float(np.sum(p))
            center = float(p @ pmf.log_ratio) / total
            square = float(p @ np.square(pmf.log_ratio - center)) / total
            # Masses err by a share each; what they leave out, and what rounding may have added, fails the test.
            missed += count * (abs(total - 1.0) + pmf.rounding)
            drift += count * 4.0 * pmf.rounding * math.sqrt(square)
            mean, variance = mean + count * center, variance + count * square * (1.0 + 4.0 * pmf.rounding)
        error_terms = ErrorTerms.of(list(pmfs))
        mean -= error_terms.log_mass + error_terms.shift + 1e-9 * abs(mean)
        # E[(S - mean)^2] is the variance and the square of what the mean errs by.
        return cls(mean, math.sqrt(variance * (1.0 + 1e-9) + drift * drift), missed + 1e-9)

    def epsilon(self, delta: float) -> float:
        """At most epsilon(delta): the power is 1 - (1 - delta)/2 and e^epsilon alpha half of the rest."""
        rest = 0.5 * (1.0 - delta) - self.missed
        if rest <= 0.0:
            return 0.0
        return max(0.0, self.mean - self.deviation / math.sqrt(rest) + math.log(0.25 * (1.0 - delta)))

    def delta(self, epsilon: float) -> float:
        """At most delta(epsilon), by the test whose threshold is larger by `_SPARE`."""
        below = self.mean - epsilon - _SPARE
        if below <= self.deviation:
            return 0.0
        return max(0.0, 1.0 - self.missed - (self.deviation / below) ** 2 - math.exp(-_SPARE) - 1e-15)
