"""Which record made room, when there is no remainder: batch by batch, one or none.

One representative of every batch is looked at, x of its own, and the others are known. After batch i showed z, let
W_j = exp(<c_j, z> - |c_j|^2/2) for those in no earlier batch, c_j their gradients, and w the number at which the mean
of min(1, W_j / w) is 1 - d. The one in batch i is said to have made room for x with probability min(1, w / W_j);
otherwise the next batch is looked at. (If x is in the batch, that is what is said.) Then places of x in later batches
have weights min(w, W_j): at most w, and in the mean (1 - d) w, whatever was seen. With m batches, n = (1 - d)(m - 1)
equal ones after the first, G = exp(r g - r^2/2), g standard normal, r the largest norm of a gradient in units of the
noise, and everything revealed after I `stages` (docs/theory/shuffling.md, section 9),

    D_k <= (B/N) E[T_1(Y)],    T_(I+1) = (m - I) known,
    T_i(s) = alone(s_i) + max over p in {p_0, 1} of p (s_i)+ / (1 - d) + (1 - p) T_(i+1)(s),
    s_i = s + (k - 1)((1 - d)(i - 1) + lack),    p_0 = (1 - d) times the integral of (1 - E[(1 - G/t)+] / d)+ over t,
    alone(s) = min(known, (1/d) integral over 0 < v < 1 of C(-s / v^2)) for s < 0; above, 1 - k is added, -X for X,

C(c) = E[(X - c)+] of the worst-case term, Y the variable of the recursion with n rounds
(`calipers.pld.allocation.recursion`; a sum of as many worst-case terms lies above it), `lack` the share of a batch that
the last one lacks. This holds for all n and I, which are chosen by rough estimates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from calipers.numerics.types import FloatArray
from calipers.pld.allocation.batch_weights import Majorant
from calipers.pld.allocation.release_payoff import Vertices, exchanged, gradient_width, lower_hull
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

_SLACK = 1.0 + 1e-10
"""Covers the rounding of closed forms and of sums over stages."""
_PLACES, _NEAREST, _FARTHEST, _ROUGHLY = 200, 1e-3, 1e7, 4
"""Places of the payoff on either side of 0, in units of the width of a term; every fourth one where it is rough."""
_PARTS, _LEVELS = np.arange(1, 49) / 48.0, np.arange(1, 401) / 400.0
"""Right ends of intervals: of v, and of t in units of its largest value."""
_SHORT, _STAGES, _LITTLE, _MOST_STAGES = np.geomspace(0.002, 0.4, 10), (0.35, 0.2, 0.1, 0.05), -14.0, 1000
"""What is tried: d, and stages as shares of all batches, at most until so little of the answer is left (a logarithm),
and at most so many."""


def rejection_payoff(term: WorstCaseTerm, known: float, rounds: int, lack: float, plan: Majorant) -> Vertices:
    """Places and values of T_1, the vertices of a convex function.

    Args:
        term: What bounds the shifts, and epsilon >= 0.
        known: At least the divergence of one release.
        rounds: m, the number of batches.
        lack: The share of a batch that the last one lacks.
        plan: n < m - 1 equal weights and from 1 to m - 1 stages.

    Returns:
        The vertices: (B/N) E[payoff(Y_n)] is at least the divergence at epsilon.
    """
    return _payoffs(term, known, rounds, lack, plan.many + plan.few, (plan.stages,))[0]


def _payoffs(
    term: WorstCaseTerm, known: float, rounds: int, lack: float, count: int, all_stages: Sequence[int], every: int = 1
) -> list[Vertices]:
    """The vertices of T_1 for every number of stages, from `every` so many places only."""
    places, found = _payoff(term, known, rounds, lack, count, all_stages, every)
    # Beyond the last place no slope is larger than 1/(1 - d).
    farther = found[:, -1:] + places[-1] * (rounds - 1) / count
    farthest = np.append(places, 2.0 * places[-1])
    return [lower_hull(farthest, values) for values in np.hstack((found, farther)) * _SLACK]


def _payoff(
    term: WorstCaseTerm, known: float, rounds: int, lack: float, count: int, all_stages: Sequence[int], every: int
) -> tuple[FloatArray, FloatArray]:
    """Places, and a row of values for every number of stages, which increase: later ones begin with fewer of them."""
    kept, drift = count / (rounds - 1), math.expm1(term.epsilon)
    accepted = acceptance(gradient_width(term), 1.0 - kept)
    sizes = _sizes(term)[::every]
    places = np.concatenate((-sizes[::-1], [0.0], sizes))
    # E[(X + w s)+] is convex, and so is the same less s E[w]: chords lie above.
    below, above = (_squared(term, side)[::every] / (1.0 - kept) for side in (0, 1))
    alone = np.minimum(known, np.concatenate((below[::-1], [known], above - drift)))
    last = np.array(all_stages)
    values = np.repeat((rounds - last)[:, None] * known, len(places), axis=1)
    sums = places + drift * (kept * np.arange(all_stages[-1]) + lack)[:, None]
    later = np.maximum(sums, 0.0) / kept
    shown, taken = np.interp(sums, places, alone), accepted * later
    for stage in range(all_stages[-1], 0, -1):
        begun = values[bisect_left(all_stages, stage) :]
        begun *= 1.0 - accepted
        begun += taken[stage - 1]
        np.maximum(begun, later[stage - 1], out=begun)
        begun += shown[stage - 1]
    return places, values


def _sizes(term: WorstCaseTerm) -> FloatArray:
    return np.asarray(term.width * np.geomspace(_NEAREST, _FARTHEST, _PLACES))


@lru_cache(maxsize=16)
def _squared(term: WorstCaseTerm, side: int) -> FloatArray:
    """At least the integral of E[(X - s/v^2)+] over 0 < v < 1 (side 1: of -X), the mean of (sqrt X - sqrt s)+^2."""
    thresholds = _sizes(term)[:, None] / _PARTS**2
    (first, second), factors = (term.right, term.left[::-1])[side], (1.0, math.exp(term.epsilon))
    z = term.branches[side].preimage(thresholds)
    part = factors[side] * ndtr(first - z)
    found = part - factors[1 - side] * ndtr(second - z) - thresholds * ndtr(-z) + 1e-13 * part
    return np.asarray(np.mean(np.maximum(found, 0.0), axis=1))


def acceptance(width: float, short: float) -> float:
    """At most the probability with which a stage says who made room, given the past: (1 - d) E[w]."""
    below = exchanged(width, 1.0, (1.0 - short) / _LEVELS)
    return float(np.mean(np.maximum(1.0 - below / short, 0.0))) / _SLACK


def find_rejection(
    term: WorstCaseTerm, known: float, rounds: int, worths: Callable[[FloatArray], FloatArray]
) -> Majorant:
    """The numbers of weights and of stages with the least bound, about.

    Args:
        term: What bounds the shifts, and epsilon >= 0.
        known: The divergence of one release.
        rounds: m, the number of batches.
        worths: About V_n(0), what n batches are worth, for every n.
    """
    width, found = gradient_width(term), []
    counts = np.unique(np.clip(np.round((rounds - 1) * (1.0 - _SHORT)), 2, rounds - 2)).astype(int)
    for count, worth in zip(counts.tolist(), worths(counts).tolist(), strict=True):
        left = math.log1p(-min(acceptance(width, 1.0 - count / (rounds - 1)), 0.999))
        little = min(math.log(max(worth, 1e-300)) - math.log(max(rounds * known, 1e-300)), 0.0) + _LITTLE
        most = min(math.ceil(little / left), _MOST_STAGES) if left < 0.0 else _MOST_STAGES
        all_stages = sorted({min(most, math.ceil(share * (rounds - 1))) for share in _STAGES})
        payoffs = _payoffs(term, known, rounds, 0.0, count, all_stages, _ROUGHLY)
        for stages, (places, values) in zip(all_stages, payoffs, strict=True):
            plan = Majorant(count - 1, 1.0, 1, 1.0, 0.0, stages=stages)
            slopes = np.diff(values) / np.diff(places)
            stop_losses = _rough(term, count, worth, -places[:-1])
            found.append((float(values[0] + np.diff(slopes, prepend=0.0) @ stop_losses), plan))
    return min(found)[1]


def _rough(term: WorstCaseTerm, later: int, worth: float, sums: FloatArray) -> FloatArray:
    """About V_n(s): of a normal sum and of one large term, and no less than between V_n(0) and its largest."""
    k = math.exp(term.epsilon)
    largest = float(ndtri(1.0 - 0.5 / later))  # of the noise: what lies beyond is seldom seen
    usual = math.exp(term.width**2) * ndtr(largest - 2.0 * term.width)
    spread = k * math.sqrt(later * max(usual - 1.0, 0.25 * term.width**2))
    drift = later * (k * ndtr(largest - term.left[1]) - ndtr(largest - term.left[0]))
    short = drift - sums
    z = short / spread
    normal = spread * (np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) - z * ndtr(-z))
    (a, b), ends = term.right, np.maximum(short, 1e-3 * spread)
    u = term.branches[0].preimage(ends)
    jump = np.where(short > 0.0, later * (ndtr(a - u) - k * ndtr(b - u) - ends * ndtr(-u)), 0.0)
    share = np.clip(sums / max(drift, 1e-300), 0.0, 1.0)
    between = math.log(max(worth, 1e-300)) * (1.0 - share) + math.log(0.4 * spread) * share
    return np.asarray(np.maximum(normal + jump, np.exp(between)))
