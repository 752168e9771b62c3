"""A unit that a batch of fixed size may hold several times over: zeroed out, or replaced.

In a step j of the B places of the batch go to the unit, j drawn with probability w_j (binomial for places drawn with
replacement, hypergeometric for several records drawn without), each in place of another record. As in
`calipers.pld.subsampling.fixed_size` everything but j is revealed, and relative to the batch without the unit the sum
moves by a_j on one dataset and by b_j on the other, in units of sigma (r = 1/sigma):

    zeroed out:  |a_j| <= 2 j r,  |b_j| <= j r,    |a_j - b_j| <= j r
    replaced:    |a_j| <= 2 j r,  |b_j| <= 2 j r,  |a_j - b_j| <= 2 j r.

**Proof.** Let eta = 1 - w_0, and P', Q' what the two datasets show given j >= 1. Then for k >= 1, with
alpha = 1 + (k - 1)/eta and beta = k/alpha (advanced joint convexity, Balle, Barthe and Gaboardi 2018, Theorem 2)

    D_k(P||Q) = eta D_alpha(P' || (1 - beta) N(0) + beta Q')
             <= eta [(1 - beta) D_alpha(P'||N(0)) + beta D_alpha(P'||Q')],

the divergence being convex in its second argument. D_alpha(P'||N(0)) is largest with all moves on one line
(`calipers.pld.core.drawn_shift`), and D_alpha(P'||Q') is at most the mean of the Gaussian divergences of |a_j -
b_j|, j being revealed. Where w_0 = 0 (fewer than B records are not the unit's) eta is 1, beta is 1, and the second
term alone is the bound: no batch without the unit is needed. For k < 1 exchange the datasets, hence a and b. With one
record (j <= 1) and replacement of that record this is the exact worst case of `calipers.pld.subsampling.fixed_size`.

**Zeroed out, present against absent.** The second bound charges beta Q' as if nothing hid it. Reveal instead which j
it would be if there is one (given j >= 1, the same PLD on both datasets), and leave hidden whether there is one:

    D_k(P||Q) <= sum over j >= 1 of (w_j/eta) D_k((1 - eta) N(0) + eta N(2 j r) || (1 - eta) N(0) + eta N(j r)),

the divergence being jointly convex, and the pair of each j by the lemma of `calipers.pld.subsampling.fixed_size` with j
r for r (|b| <= j r, |a - b| <= j r). Its best test is z > x with a quadratic equation in e^(j r x). The least of both
counts.

Nodes are placed by the threshold x of the best test of the first term, where alpha is the likelihood ratio at x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtr

from calipers.bracket import Side
from calipers.citations import implements
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import gaussian_delta
from calipers.numerics.types import FloatArray
from calipers.pld.core.drawn_shift import Shifts
from calipers.pld.core.gaussian_part import log_sum_exp
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.profile_pmf import pmf_of_profile
from calipers.pld.core.source import DominatingPair

_STEP = 0.02
"""Distance of the nodes, in units of the noise."""
_SPARE = 10.0
"""Counts so much rarer than the depth asked for, in log, are distinguished."""
_FAR = 600.0
"""Of logs of ratios: beyond, (alpha - 1)/alpha is 1 in every digit, and alpha itself may be no number."""
_CERTAIN, _NEVER, _NOTHING = 9.0, 37.0, 1e-290
"""Phi(-9) and e^(-9^2/2) are nothing to 1, and Phi(-37) is less than 1e-290."""
_FARTHEST = 780.0
"""Of logs of ratios: what lies beyond has, without the unit, a probability that is no number: it counts as infinite."""
_SLACK = 1.0 + 1e-9
"""Covers the rounding of a node: differences of tails that agree to a few digits at most."""


@implements("calipers:counted", "balle2018:thm2")
@dataclass(frozen=True)
class CountedPair(DominatingPair):
    """`counts`: the distribution of j as lengths j r. UPPER only."""

    counts: Shifts
    adjacency: str

    @property
    def symmetric(self) -> bool:
        """Replacing is the same in both orders."""
        return self.adjacency == "substitute"

    def upper(self, resolution: float = _STEP, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.UPPER; there is one fineness, and a few depths."""
        return _pmf(self, 40.0 * math.floor(log_tail / 40.0))

    def nodes(self, reverse: bool, log_tail: float) -> list[tuple[float, float]]:
        """(epsilon, delta): upper bounds of the divergence, present against absent unless `reverse`."""
        none = self.counts.weights[0] if self.counts.lengths[0] == 0.0 else 0.0
        first = 1 if none else 0  # where every batch holds the unit, there is no part without it
        drawn = replace(self.counts, lengths=self.counts.lengths[first:], weights=self.counts.weights[first:])
        counts = drawn.without(math.exp(log_tail - _SPARE)).grouped(Side.UPPER)
        lengths, weights = np.array(counts.lengths), np.array(counts.weights)
        eta = float(np.sum(weights)) + counts.beyond if none else 1.0
        shares = weights / float(np.sum(weights))
        zeroed = self.adjacency == "zero-out"
        moves = lengths if zeroed and reverse else 2.0 * lengths
        apart = lengths if zeroed else 2.0 * lengths
        x = _grid(moves, shares, log_tail)
        log_alpha = log_sum_exp(np.log(shares), moves, x)
        log_alpha[0] = 0.0  # the first threshold is where the ratio is 1, up to rounding
        gained = ndtr(moves - x[:, None]) @ shares
        seen = gained - np.exp(log_alpha + log_ndtr(-x))
        revealed = _distinguished(apart, log_alpha) @ shares
        alpha_less_one = np.expm1(np.minimum(log_alpha, _FAR))
        # 1 - beta = (alpha - 1) w_0 / alpha, which never falls below 0 by rounding.
        rest = none * alpha_less_one / (1.0 + alpha_less_one)
        bound = eta * (rest * np.maximum(seen, 0.0) + (1.0 - rest) * revealed)
        # Rounding of `seen` is relative to its larger term, a sum in any order.
        rounded = 1.2e-16 * (4.0 + len(shares)) * eta * rest * gained
        hidden = math.log1p(-eta) if eta < 1.0 else -math.inf
        far = np.logaddexp(hidden, math.log(eta) + log_alpha)
        epsilon = np.where(log_alpha <= _FAR, np.log1p(eta * alpha_less_one), far)
        least = bound + rounded
        if zeroed and not reverse and none:
            larger = min(1.0, eta * (1.0 + counts.rounding + 1e-13))  # a larger rate dominates
            least = np.minimum(least, _places_revealed(lengths, shares, larger, epsilon))
        value = np.minimum(1.0, least * (_SLACK + counts.rounding) + counts.beyond)
        # The divergence falls as epsilon grows, so a value holds at a node that is rounded up.
        epsilon = epsilon * (1.0 + 1e-14)
        return [(float(e), float(v)) for e, v in zip(epsilon, value, strict=True)]


def _distinguished(apart: FloatArray, log_alpha: FloatArray) -> FloatArray:
    """At least the divergence of two Gaussians, a row for each log ratio; 1 or next to nothing where it is that."""
    # It is at most Phi(-a) with a = log alpha/mu - mu/2, and at least that less e^(-a^2/2).
    a = log_alpha[:, None] / apart - 0.5 * apart
    found = np.where(a < 0.0, 1.0, _NOTHING)
    some = (a > -_CERTAIN) & (a < _NEVER)
    rows, columns = np.nonzero(some)
    found[some] = gaussian_delta(apart[columns], log_alpha[rows])
    return found


def _places_revealed(lengths: FloatArray, shares: FloatArray, eta: float, epsilon: FloatArray) -> FloatArray:
    """At least the mean over j of D_k((1 - eta) N(0) + eta N(2 s) || (1 - eta) N(0) + eta N(s)), s the length of j."""
    s, log_k = lengths, epsilon[:, None]
    with np.errstate(divide="ignore"):
        # (k - 1)(1 - eta)/eta, what the part without the unit takes off.
        log_rest = log_k + np.log(-np.expm1(-log_k)) + math.log1p(-eta) - math.log(eta) if eta < 1.0 else -np.inf
    # e^(s x) = y solves e^(-2 s^2) y^2 - k e^(-s^2/2) y - (k - 1)(1 - eta)/eta = 0.
    root = 0.5 * np.logaddexp(2.0 * log_k - s * s, math.log(4.0) - 2.0 * s * s + log_rest)
    x = (2.0 * s * s - math.log(2.0) + np.logaddexp(log_k - 0.5 * s * s, root)) / s
    gained = ndtr(2.0 * s - x)
    kept = gained - np.exp(log_k + log_ndtr(s - x)) - np.exp(log_rest + log_ndtr(-x))
    # At the best x an error of x counts in second order only; that of the terms is relative to the largest.
    rounding = 4e-15 * (1.0 + log_k) * gained
    return np.asarray(eta * np.sum(shares * (np.maximum(kept, 0.0) + rounding), axis=1), dtype=np.float64)


def _grid(moves: FloatArray, shares: FloatArray, log_tail: float) -> FloatArray:
    """Thresholds from where the ratio is 1 to where the rest is rarer than e^log_tail."""

    def log_ratio(x: float) -> float:
        return float(np.logaddexp.reduce(np.log(shares) + moves * (x - 0.5 * moves)))

    _, high = bisect(0.0, float(np.max(moves)), lambda x: log_ratio(x) < 0.0, 80)
    reach = math.sqrt(-2.0 * log_tail)
    # Far beyond, only moves that are likely enough matter.
    likely = moves[np.log(shares) > log_tail]
    end = max(high + 1.0, float(np.max(likely, initial=0.0)) + reach)
    if log_ratio(end) > _FARTHEST:
        _, end = bisect(high, end, lambda x: log_ratio(x) < _FARTHEST, 40)
    return np.concatenate(([high], np.arange(high + _STEP, end + _STEP, _STEP)))


@lru_cache(maxsize=16)
def _pmf(pair: CountedPair, log_tail: float) -> PrivacyLossPmf:
    forward = pair.nodes(False, log_tail)
    return pmf_of_profile(forward, None if pair.symmetric else pair.nodes(True, log_tail))
