"""How far shuffled and Poisson DP-SGD must stay from perfect privacy (Ertan and van Dijk 2026, Section 6).

The separation of a trade-off curve is its largest Euclidean distance from the line 1 - a,

    sep(f) = max_a (1 - a - f(a)) / sqrt 2,

which is total variation over sqrt 2, for any curve, symmetric or not.

One epoch of M rounds shows M standard normals, one of which is shifted by 1/sigma if the record
is present. Rejecting when the largest exceeds h has errors 1 - Phi(h)^M and
Phi(h - 1/sigma) Phi(h)^(M-1): the curve f_sub of Equation (17), above the true one. At
h = 1/sigma the false negative rate is half of Phi(h)^(M-1), and for sigma <= 1/sqrt(2 ln M) the
false positive rate a* is below 1/sqrt(4 pi ln M) (Lemma 6.2): this gives Theorem 6.1.

On the statement of Theorem 6.1. The proof gives the bound with a factor 1 - e_M,
e_M = 2/(M sqrt(4 pi ln M)), which the statement leaves out "since it tends to 1". The statement
holds without it all the same: 1 - a* - (1 - a*)^((M-1)/M)/2 decreases in a*, and at the largest
a*, that of sigma = 1/sqrt(2 ln M), it exceeds the stated bound for every M >= 2, because
Phi(-t) is below the tail bound used for it by a factor about 1 - 1/t^2 (for M = 2,
0.2369 against 0.2338; the two approach each other as M grows). Both are offered; M = 1, which the paper admits,
divides by ln 1 = 0.

All bounds here are lower bounds on separation. The shifted coordinate is what the outputs are
when all other records contribute nothing, so they hold for the worst case over datasets too.

Poisson sampling at rate q is the mixture "never drawn" (p = (1-q)^M) and "drawn at least once";
drawn twice is easier to detect than drawn once by every test that is increasing in the
coordinates, and the best test is, so f_pois <= p (1 - a) + (1 - p) f_shuf (Lemma 6.4).
(1 - 1/M)^M < 1/e makes Theorem 6.3's constant 1 - 1/e a valid one, not an approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from calipers.domains import COUNT, OPEN_UNIT, PROBABILITY
from calipers.errors import ConditionError
from calipers.theorems.registry import theorem


@dataclass(frozen=True)
class TractablePoint:
    """a* of Lemma 6.2, f_sub there, the distance of that point from the line, and the bound on a*."""

    fpr: float
    fnr: float
    separation: float
    fpr_bound: float


@theorem("ertan-eq-17", rounds=COUNT)
def max_test_tradeoff(fpr: float, noise_multiplier: float, rounds: int) -> float:
    """f_sub(a) = Phi(Phi^-1((1-a)^(1/M)) - 1/sigma) (1-a)^((M-1)/M).

    Post-condition: f_shuf(a) <= this. 1 - (1-a)^(1/M), the chance that one coordinate exceeds the
    threshold, is formed without cancellation, so M = 1e10 and a = 1e-12 keep their digits.
    """
    if fpr in (0.0, 1.0):
        return 1.0 - fpr
    log_below = math.log1p(-fpr) / rounds
    exceed = -math.expm1(log_below)
    threshold = -float(ndtri(exceed)) if exceed < 0.5 else float(ndtri_exp(log_below))
    return math.exp(float(log_ndtr(threshold - 1.0 / noise_multiplier)) + (rounds - 1) * log_below)


@theorem("ertan-eq-21", rounds=COUNT)
def max_test_separation(noise_multiplier: float, rounds: int) -> float:
    """max over h of Phi(h)^(M-1) (Phi(h) - Phi(h - 1/sigma)) / sqrt 2, the separation of f_sub.

    Post-condition: the separation of the shuffled curve is at least this, without a condition on
    sigma. Any h gives a valid bound; the search costs tightness only. Rounded down by 1e-12.
    """
    shift = 1.0 / noise_multiplier
    low, high = -9.0, math.sqrt(2.0 * math.log(rounds)) + shift + 9.0
    for _ in range(4):
        grid = np.linspace(low, high, 2001)
        # Differences of upper tails on the right, of lower tails on the left: no cancellation near 1.
        inside = np.where(grid > 0.5 * shift, ndtr(shift - grid) - ndtr(-grid), ndtr(grid) - ndtr(grid - shift))
        values = np.exp((rounds - 1) * log_ndtr(grid)) * inside
        best = int(np.argmax(values))
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 2000)])
    return float(values[best]) / math.sqrt(2.0) * (1.0 - 1e-12)


@theorem("ertan-noise-threshold")
def noise_threshold(rounds: int) -> float:
    """1 / sqrt(2 ln M): 0.24 for ImageNet in batches of 256 (M = 5,000), 0.17 for LAION-5B (M = 2.3e7)."""
    return 1.0 / math.sqrt(2.0 * math.log(rounds))


def _require_low_noise(noise_multiplier: float, rounds: int) -> None:
    threshold = noise_threshold(rounds)
    if noise_multiplier > threshold:
        raise ConditionError(
            f"Theorem 6.1 needs noise_multiplier <= 1/sqrt(2 ln rounds) = {threshold:.6g}, "
            f"got noise_multiplier={noise_multiplier:g}. Above it, max_test_separation still gives a lower bound."
        )


@theorem("ertan-lemma-6.2")
def tractable_point(noise_multiplier: float, rounds: int) -> TractablePoint:
    """a* = 1 - Phi(1/sigma)^M, exactly; f_sub(a*); and x' = (1 - a* - f_sub(a*))/sqrt 2 of Equation (20)."""
    _require_low_noise(noise_multiplier, rounds)
    log_below = rounds * float(log_ndtr(1.0 / noise_multiplier))
    missed = 0.5 * math.exp(log_below * (rounds - 1) / rounds)
    distance = (math.exp(log_below) - missed) / math.sqrt(2.0)
    return TractablePoint(-math.expm1(log_below), missed, distance, 1.0 / math.sqrt(4.0 * math.pi * math.log(rounds)))


@theorem("ertan-thm-6.1")
def shuffle_separation_lower(noise_multiplier: float, rounds: int) -> float:
    """(1 - 1/sqrt(4 pi ln M)) / sqrt 8. Post-condition: the separation is at least this (see the module text)."""
    _require_low_noise(noise_multiplier, rounds)
    return (1.0 - 1.0 / math.sqrt(4.0 * math.pi * math.log(rounds))) / math.sqrt(8.0)


@theorem("ertan-eq-30")
def shuffle_separation_lower_corrected(noise_multiplier: float, rounds: int) -> float:
    """Theorem 6.1 times 1 - 2/(M sqrt(4 pi ln M)): the inequality as its proof ends."""
    correction = 2.0 / (rounds * math.sqrt(4.0 * math.pi * math.log(rounds)))
    return shuffle_separation_lower(noise_multiplier, rounds) * (1.0 - correction)


@theorem(
    "ertan-lemma-6.4",
    shuffle_fnr=(PROBABILITY, "an upper bound on the shuffled trade-off curve at fpr"),
    sample_rate=OPEN_UNIT,
    rounds=COUNT,
)
def poisson_tradeoff_upper(fpr: float, shuffle_fnr: float, sample_rate: float, rounds: int) -> float:
    """p (1 - a) + (1 - p) f'(a) with p = (1 - q)^M, for f' above the shuffled curve at the same a."""
    if shuffle_fnr > 1.0 - fpr:
        raise ConditionError(f"A trade-off curve is at most 1 - fpr = {1.0 - fpr:g}, got shuffle_fnr={shuffle_fnr:g}.")
    never = math.exp(rounds * math.log1p(-sample_rate))
    return never * (1.0 - fpr) + (1.0 - never) * shuffle_fnr


@theorem("ertan-poisson-transfer")
def poisson_separation_from_shuffle(separation: float, rounds: int) -> float:
    """(1 - (1 - 1/M)^M) kappa_shuf, for any lower bound kappa_shuf on the shuffled separation."""
    return -math.expm1(rounds * math.log1p(-1.0 / rounds)) * separation


@theorem("ertan-thm-6.3")
def poisson_separation_lower(noise_multiplier: float, rounds: int) -> float:
    """(1 - 1/e) (1 - 1/sqrt(4 pi ln M)) / sqrt 8."""
    return -math.expm1(-1.0) * shuffle_separation_lower(noise_multiplier, rounds)
