"""Which record made room, when there is no remainder: batch by batch, by rejection.

After batch i was seen, one of its records j is said to have made room for x with probability g_j / max(c B, sum of g),
g_j = exp(-<c_j, e> - |c_j|^2/2), e the batch's noise and c_j the gradients; otherwise, with probability
(1 - mean g / c)+, none is, and the next batch is looked at. (If x is in the batch, that is what is said.) Then all
places of x in later batches have the same weight 1/(c B), whatever was seen, but for a deficit where the sum exceeds
c B. With G = exp(r g - r^2/2), g standard normal, r the largest norm of a gradient in units of the noise, m batches,
and everything revealed after `stages` of them (docs/theory/shuffling.md, section 9):

    D_k <= (B/N) (sum over i < stages of (f^i / c) E[J_i(Y + (k - 1)(i + lack))] + f^stages (m - stages) known),
    J_i(s) = E[(c X + s)+] + E[(c X - tau)+] + v E[(G - c d / v)+] + (s + tau)+ E[G; G > c],
    f = 1 - (1 - E[(G - c)+])/c,    d = (k - 1)(m - 1 - i),    v = (d + min(s + tau, 0))+,

or J_i(s) = E[(c X + s)+] + d E[(G - c)+]. X is the term of one release, Y the variable of the recursion with m - 1
rounds (`calipers.pld.allocation.recursion`; a sum of as many worst-case terms lies above it), `lack` the share of a
batch that the last one lacks. This holds for every c > 1 and tau >= 0, which are chosen by rough estimates.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from calipers.numerics.types import FloatArray
from calipers.pld.allocation.release_payoff import (
    Vertices,
    exchanged,
    gradient_width,
    lower_hull,
    stop_losses_of_release,
)
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

_SLACK = 1.0 + 1e-10
"""Covers the rounding of closed forms and of the weights of stages."""
_PLACES, _NEAREST, _FARTHEST = 300, 1e-3, 1e7
"""Places of the payoff on either side of 0, in units of the width of a term."""
_STAGES = np.linspace(0.0, 1.0, 49) ** 1.5
"""Ends of groups of stages, of all of them."""
_CAPS, _SPLITS = np.geomspace(1.2, 400.0, 36), np.geomspace(0.05, 300.0, 40)
"""What is tried: c, and tau over c."""
_BEYOND = np.arange(0.1, 4.0, 0.2)
"""Where sums that exceed c B are looked at, in deviations of the noise."""
_LARGEST_EXPONENT = 300.0


class Rejection(NamedTuple):
    """c, tau (infinite: deficits count in full), stages until all is revealed, and about the bound over B/N."""

    cap: float
    split: float
    stages: int
    worth: float = 0.0


def rejection_payoff(term: WorstCaseTerm, known: float, rounds: int, lack: float, rejection: Rejection) -> Vertices:
    """Places and values of the sum of (f^i / c) J_i(s + (k - 1)(i + lack)), the vertices of a convex function.

    Args:
        term: What bounds the shifts, and epsilon >= 0.
        known: At least the divergence of one release.
        rounds: m, the number of batches.
        lack: The share of a batch that the last one lacks.
        rejection: c > 1, tau >= 0, and from 1 to m stages.

    Returns:
        The vertices: (B/N) E[payoff(Y_(m - 1))] is at least the divergence at epsilon.
    """
    cap, width, drift = rejection.cap, gradient_width(term), math.expm1(term.epsilon)
    excess = float(exchanged(width, 1.0, cap))
    stay = 1.0 - (1.0 - excess) / cap
    ends = np.unique(np.ceil(rejection.stages * _STAGES))
    weights = -np.diff(stay**ends) / (1.0 - excess)
    sizes = term.width * np.geomspace(_NEAREST, _FARTHEST, _PLACES)
    places = np.concatenate((-sizes[::-1], [0.0], sizes))
    # Of a group of stages the last has the largest sum, and the first the most batches after it.
    sums, later = places + drift * (ends[1:, None] - 1.0 + lack), rounds - 1.0 - ends[:-1, None]
    values = weights @ (_hidden(term, cap, sums) + _deficits(term, drift * later, rejection, sums))
    values += stay ** ends[-1] * (rounds - ends[-1]) * known
    # Beyond the last place no slope is larger than all of them together.
    farther = values[-1] + places[-1] * float(weights.sum()) * (1.0 + _heavy(width, cap))
    return lower_hull(np.append(places, 2.0 * places[-1]), np.append(values, farther) * _SLACK)


def _hidden(term: WorstCaseTerm, cap: FloatArray | float, sums: FloatArray) -> FloatArray:
    """At least E[(c X + s)+]."""
    below, above = stop_losses_of_release(term, np.abs(sums) / cap)
    return np.asarray(np.where(sums < 0.0, cap * below, sums - cap * math.expm1(term.epsilon) + cap * above))


def _deficits(term: WorstCaseTerm, drift: FloatArray, rejection: Rejection, sums: FloatArray) -> FloatArray:
    """At least what deficits add; `drift`: kappa of every row."""
    cap, split = rejection[:2]
    width = gradient_width(term)
    if math.isinf(split):
        return np.asarray(drift * exchanged(width, 1.0, cap) + np.zeros_like(sums))
    apart = float(_hidden(term, cap, np.array([-split]))[0])
    v = np.maximum(drift + np.minimum(sums + split, 0.0), 1e-300)
    with np.errstate(over="ignore"):
        ratio = np.clip(cap * drift / v, 1e-300, 1e300)  # less of what is subtracted: still at least the deficit
    within = v * exchanged(width, 1.0, ratio)
    return np.asarray(within + np.maximum(sums + split, 0.0) * _heavy(width, cap) + apart)


def _heavy(width: float, cap: float) -> float:
    """At least E[G; G > c]."""
    return float(ndtr(0.5 * width - math.log(cap) / width)) * _SLACK


def find_rejection(term: WorstCaseTerm, known: float, rounds: int, worth: float, slope: float) -> Rejection:
    """The c and tau with the least bound, about; whatever they are, the payoff is proven.

    Args:
        term: What bounds the shifts, and epsilon >= 0.
        known: The divergence of one release.
        rounds: m, the number of batches.
        worth: About what later batches alone are worth, V_n(0).
        slope: About how its logarithm grows with the sum.
    """
    width, step, k = gradient_width(term), math.expm1(term.epsilon), math.exp(term.epsilon)
    later, caps = rounds - 1, _CAPS[: max(1, int(np.sum(rounds > _CAPS)))]
    splits, drift = caps[:, None] * _SPLITS, step * later
    # Sums that exceed c: G under its own measure, and c / G.
    z = (np.log(caps)[:, None] + 0.5 * width * width) / width + _BEYOND
    masses = np.exp(-0.5 * (z - width) ** 2) * (_BEYOND[1] - _BEYOND[0]) / math.sqrt(2.0 * math.pi)
    left = caps[:, None] * np.exp(0.5 * width * width - width * z)
    passed = step * np.minimum(caps, later)[:, None]  # by so many stages, in the mean
    shifts = splits[:, :, None] + (passed + (drift - passed) * (1.0 - left))[:, None, :]
    values = np.sum(masses[:, None, :] * _rough(term, later, worth, shifts), axis=2)
    charges = np.column_stack((values + _hidden(term, caps[:, None], -splits), drift * exchanged(width, 1.0, caps)))
    split = np.argmin(charges, axis=1)
    far = _hidden(term, caps, np.full(len(caps), -drift))
    tilted = np.minimum(0.5 * math.expm1(width * width) * (slope * k * caps) ** 2, _LARGEST_EXPONENT)
    stages, staged = _revealed_after(term, known, rounds, worth, caps)
    values = staged * np.exp(tilted) + (charges.min(axis=1) + far) / (1.0 - exchanged(width, 1.0, caps))
    best = int(np.argmin(values))
    tau = np.append(splits[best], math.inf)[split[best]]
    return Rejection(float(caps[best]), float(tau), int(stages[best]), float(values[best]))


def _revealed_after(
    term: WorstCaseTerm, known: float, rounds: int, worth: float, caps: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """For every c, after how many stages it seems best to reveal everything, and about what all are worth then."""
    ends = np.unique(np.ceil(rounds * _STAGES))
    excess = exchanged(gradient_width(term), 1.0, caps)
    left = np.exp(np.outer(np.log1p((excess - 1.0) / caps), ends))
    sums = math.expm1(term.epsilon) * (ends[1:] - 1.0)
    staged = np.cumsum(-np.diff(left, axis=1) * _rough(term, rounds - 1, worth, sums), axis=1)
    totals = staged / (1.0 - excess)[:, None] + left[:, 1:] * (rounds - ends[1:]) * known
    return ends[1:][np.argmin(totals, axis=1)], np.min(totals, axis=1)


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
