"""Which record of the first batch made room: a rule that says little, when nothing is left over.

Where every record is used, the record j that makes room for x goes to the first batch, and is seen there. Which of the
first batch's records is taken for it is for the proof to say, and may depend on what the first batch showed. Taken with
probabilities proportional to the inverse of its likelihood ratio, it hardly says who it was: with S the first batch, e
its noise and c_i its gradients, g_i = exp(-<c_i, e> - |c_i|^2/2),

    P(j is taken | S, e) = g_j / sum of g_i over S.

Then, given the rest of the first batch, the weights Y_j of all later records differ by factors of at most rho = e^(2
r^2), whatever was seen, except for a share of them, the loss, that has a tail e^(1 - mu loss) whatever the gradients
are. A later batch weighs the mean w_t of B of them, drawn at random, so its weight is close to 1: it exceeds `high`
hardly ever, and the excesses beyond `low` add up to little. By majorization the weights of all batches are then as good
as `many` equal ones just above `low` and a `few` equal to `high` (`Cover`), and the theorem of docs/mathematics
("nothing left over") reads

    D_k <= (B/N) E[J(low' T + high T')] + exposed D_k(fixed batches),      J(s) >= E[(X_1 + h s)+],

T and T' sums of `many` and `few` worst terms, X_1 the term of the first batch, h the mean weight of a batch, E[h] = 1.
For s < 0, (x - |s|/y)+ <= x min(1, x y / (4 |s|)) with y = 1/h is concave in y, so y may be replaced by its mean given
what X_1 is made of; for s > 0 put-call parity leads to the same. E[(X_1 + h s)+] is convex in s, so it lies below the
lower hull of values of J.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.laws.allocated.hidden_sum import HiddenSum
from calipers.laws.allocated.hidden_sums import Payoff, expected_payoffs
from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.laws.allocated.waves import LONGEST, one_split, payoff_by_waves
from calipers.numerics.types import FloatArray

_SLACK = 1.0 + 1e-11
"""Covers the rounding of closed forms that are a few operations deep."""
_CELLS, _REACH = 1400, 14.0
_PLACES, _NEAREST, _FARTHEST = 110, 1e-3, 1e7
"""Places of the payoff on either side of 0, in units of the width of a term."""
_TANGENTS = 64
"""Points y at which 1/g is compared with a tangent."""
_FEW = 2.0
"""How much coarser the sum of the few heavy batches is kept than that of the many."""
_LOSSES = (1.0, 2.0, 4.0, 8.0)
"""Exponents of losses that count as covered, beyond what the share exposed asks for."""


class Cover(NamedTuple):
    """Weights above those of the later batches: `many` of `low`, `few` of `high`; `exposed`: what they do not cover."""

    many: int
    low: float
    few: int
    high: float
    exposed: float


class _Weights(NamedTuple):
    """Weights of records: mean 1, at most `largest`, of variance at most `variance`; `batch_size` make a batch."""

    largest: float
    variance: float
    batch_size: int

    def log_moment(self, tilt: FloatArray) -> FloatArray:
        """Log E[e^(tilt B (w - 1))] of a batch at most (Bennett; Hoeffding for draws without replacement)."""
        reach = self.largest - 1.0
        scaled = tilt * reach
        return np.asarray(self.batch_size * self.variance / reach**2 * (np.expm1(scaled) - scaled))


def weights_of_records(loss: float, width: float, batch_size: int) -> _Weights:
    """What the weights of records are like up to a loss."""
    ratio = math.exp(2.0 * width * width)
    variance = (ratio + 1.0) ** 2 / (4.0 * ratio * (1.0 - loss)) - 1.0
    return _Weights(ratio / (1.0 - loss) * _SLACK, variance * _SLACK + 1e-12, batch_size)


def loss_share(loss: float, width: float, batch_size: int, size: int) -> float:
    """At least the share of weight that goes with larger losses."""
    rate = (batch_size - 2) * (size - batch_size) / (size - 2)
    return batch_size / (batch_size - 1) * math.exp(2.0 * width * width + 1.0 - rate * loss) * _SLACK


@lru_cache(maxsize=256)
def cover(width: float, batch_size: int, size: int, exponent: float) -> Cover | None:
    """Weights that cover all but about e^-exponent, as even as possible; None where batches are too small."""
    later, batches = size / batch_size - 1.0, -(-size // batch_size) - 1
    if batch_size < 3 or later < 1.0 or width > 3.0:
        return None
    found = [_covered(width, batch_size, size, exponent, more, later, batches) for more in _LOSSES]
    proper = [each for each in found if each is not None]
    return min(proper, key=lambda each: each.many * each.low**2 + each.few * each.high**2, default=None)


def _covered(
    width: float, batch_size: int, size: int, exponent: float, more: float, later: float, batches: int
) -> Cover | None:
    rate = (batch_size - 2) * (size - batch_size) / (size - 2)
    loss = (exponent + more + 1.0 + 2.0 * width * width) / rate
    if loss >= 0.9:
        return None
    weights = weights_of_records(loss, width, batch_size)
    tilts = np.geomspace(1e-3, 40.0, 300) / (weights.largest - 1.0)
    log_moments = weights.log_moment(tilts)
    # P(w_t > high) for one of all batches.
    high = 1.0 + float(np.min((log_moments + exponent + math.log(batches)) / (tilts * batch_size)))
    # P(sum of (w_t - low)+ > total): weights of batches are negatively associated, so moments multiply;
    # e^(y t) - 1 <= y (1 - y)^((1 - y)/y) e^t for t > 0.
    lows = 1.0 + (high - 1.0) * np.linspace(0.02, 0.8, 40)
    exponents = log_moments - tilts * batch_size * (lows[:, None] - 1.0)
    spread = np.where(exponents < 50.0, np.exp(np.minimum(exponents, 50.0)), np.inf)
    totals = [
        (exponent + batches * np.log1p(y * (1.0 - y) ** ((1.0 - y) / y) * spread)) / (y * tilts * batch_size)
        for y in (0.1, 0.3, 0.5, 0.7, 0.9)
    ]
    best: Cover | None = None
    for low, total in zip(lows.tolist(), np.min(totals, axis=(0, 2)) * _SLACK, strict=True):
        few = math.ceil(total / (high - low))
        many = int((later - few * high) / low)
        if many < 1:
            continue
        level = (later - few * high) / many
        if best is None or many * level**2 + few * high**2 < best.many * best.low**2 + best.few * best.high**2:
            share = 2.0 * math.exp(-exponent) + loss_share(loss, width, batch_size, size)
            best = Cover(many, level, few, high, min(1.0, share * _SLACK))
    return best


def seen(epsilon: float, width: float, far: float, taus: FloatArray) -> FloatArray:
    """At least E[(rho - tau/y)+] for rho = (1 - e^(epsilon - d u - d^2/2))+, whatever d <= width and y > 0 are.

    The mean of y given u is at most e^(far^2 + f u - f^2/2) for some |f| <= far. rho grows with d where it is positive,
    if epsilon >= 0; if not, it is at most the larger one of its values at both ends.
    """
    floor = max(0.0, -math.expm1(epsilon))
    start = (epsilon / width - 0.5 * width) if epsilon >= 0.0 else -9.0
    ends = np.linspace(start, max(start, 0.0) + _REACH, _CELLS + 1)
    low, high = ends[:-1], ends[1:]
    masses = np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    rho = np.maximum(-np.expm1(epsilon - width * high - 0.5 * width * width), floor)
    farthest = np.maximum(np.abs(low), np.abs(high))
    slope = np.minimum(farthest, far)
    log_y = far * far + slope * farthest - 0.5 * slope * slope
    # Each cell counts min(1, turn / tau) times: fully up to its turn, and less beyond it.
    turns = np.exp(np.minimum(log_y, 600.0)) * rho / 4.0
    order = np.argsort(turns, kind="stable")
    parts = (masses * rho)[order]
    fully = np.append(np.cumsum(parts[::-1])[::-1], 0.0)
    partly = np.append(0.0, np.cumsum(parts * turns[order]))
    index = np.searchsorted(turns[order], taus)
    beyond = float(ndtr(-ends[-1])) + (float(ndtr(start)) if epsilon < 0.0 else 0.0)
    return np.asarray((fully[index] + partly[index] / taus + beyond) * _SLACK)


def by_mean_weight(term: HiddenTerm, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At least E[(X_1 - h s)+] and E[(-X_1 - h s)+] for every size s > 0, where a record is zeroed out.

    With G lognormal of deviation r and 1/g >= 1/y - (g - y)+ / y^2, g the mean of the first batch's inverse ratios,
    both are a divergence of one Gaussian release plus s E[G (G - y)+] / y^2, for every y > 0 (docs/mathematics,
    section 9).

    Args:
        term: What bounds the shifts, and epsilon >= 0.
        sizes: s.

    Returns:
        Both bounds, infinite where the record is replaced.
    """
    width, k = term.width, math.exp(term.epsilon)
    if term.farthest_shift <= 1.5 * width:
        nothing = np.full(len(sizes), math.inf)
        return nothing, nothing
    y = np.geomspace(0.5, math.exp(6.0 * width + 1.0), _TANGENTS)
    missed = np.exp(width * width) * ndtr(1.5 * width - np.log(y) / width) - y * ndtr(0.5 * width - np.log(y) / width)
    excess = sizes[:, None] * np.maximum(missed + 1e-13, 0.0) / y**2
    per = sizes[:, None] / y
    if term.left[1] > term.right[0]:  # zeroed out against present: A is the ratio without the record
        below, above = _exchange(width, 1.0 - per, k), _exchange(width, k, 1.0 + per)
    else:
        below, above = _exchange(width, 1.0, k + per), _exchange(width, k - per, 1.0)
    return np.min(below + excess, axis=1) * _SLACK, np.min(above + excess, axis=1) * _SLACK


def _exchange(width: float, first: FloatArray | float, second: FloatArray | float) -> FloatArray:
    """At least E[(first A - second B)+] for ratios A, B of a Gaussian release of this shift; 0 where first <= 0."""
    some = np.maximum(first, 1e-300)
    middle = (np.log(some) - np.log(second)) / width
    part = some * ndtr(0.5 * width + middle)
    found = part - second * ndtr(middle - 0.5 * width) + 1e-13 * part
    return np.asarray(np.where(np.asarray(first) > 0.0, np.maximum(found, 0.0), 0.0))


def first_payoff(term: HiddenTerm, known: float) -> tuple[FloatArray, FloatArray]:
    """Places and values of J, the vertices of a convex function; `known` >= E[X_1+]."""
    epsilon, k = term.epsilon, math.exp(term.epsilon)
    sizes = term.width * np.geomspace(_NEAREST, _FARTHEST, _PLACES)
    below, above = by_mean_weight(term, sizes)
    losing = np.minimum(np.minimum(seen(epsilon, term.width, term.right[0], sizes), known), below)
    missed = np.minimum(k * seen(-epsilon, term.width, term.left[1], sizes / k), above)
    winning = np.minimum(known, 1.0 - k + missed) + sizes
    places = np.concatenate((-sizes[::-1], [0.0], sizes))
    return lower_hull(places, np.concatenate((losing[::-1], [known], winning)) * _SLACK)


def lower_hull(places: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The points below which no convex function through lower values at all places can rise."""
    kept: list[tuple[float, float]] = []
    for x, y in zip(places.tolist(), values.tolist(), strict=True):
        while len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2], kept[-1]
            if (by - ay) * (x - ax) < (y - ay) * (bx - ax):
                break
            kept.pop()
        kept.append((x, y))
    found = np.array(kept)
    return found[:, 0], found[:, 1]


class _Epoch(NamedTuple):
    """What later batches add to a payoff, the vertices of a convex function: few large weights, many equal ones."""

    few: HiddenSum
    many: HiddenSum
    places: FloatArray
    values: FloatArray

    @property
    def steepest(self) -> float:
        """At least the largest slope."""
        slope = float(self.values[-1] - self.values[-2]) / float(self.places[-1] - self.places[-2])
        return max(1.0, slope) * _SLACK


def hidden_with_first(
    terms: Sequence[HiddenTerm],
    knowns: Sequence[float],
    covered: Cover,
    share: float,
    resolution: float,
    log_tail: float,
    waves: bool = True,
) -> list[tuple[float, float]]:
    """(node, delta) for each of a few terms alike: `share` times E[J(low T + high T')] at the node.

    A node is the term's epsilon up to rounding. Without `waves`, which are finer, shared ladders are quicker.
    """
    usual = covered.many * covered.low / covered.high  # what the few have to make up for, but for k - 1
    epochs = [
        _Epoch(
            HiddenSum.deep(term, covered.few, log_tail).ended(usual * math.expm1(term.epsilon)),
            HiddenSum.deep(term, covered.many, log_tail).ended(0.0),
            *first_payoff(term, known),
        )
        for term, known in zip(terms, knowns, strict=True)
    ]
    by_waves = (_both_by_waves(epoch, covered, resolution) for epoch in (epochs if waves else ()))
    found = [value for value in takewhile(lambda value: value is not None, by_waves) if value is not None]
    if len(found) < len(epochs):
        found += _by_ladders(epochs[len(found) :], covered, resolution)
    # Sums are known up to a factor 1 +- rounding, and E|X| <= 1 + k for each of their terms.
    weight = 4.0 * (covered.many * covered.low + covered.few * covered.high)
    return [
        (many.node, min(1.0, (value + many.rounding * weight * (1.0 + math.exp(many.term.epsilon))) * share * _SLACK))
        for value, (_, many, _, _) in zip(found, epochs, strict=True)
    ]


def _by_ladders(epochs: Sequence[_Epoch], covered: Cover, resolution: float) -> list[float]:
    """At least E[J(low T + high T')] of each, on shared ladders."""
    # The few are asked for many payoffs, none of which bends where they all lie near A = k B: one rough way will do.
    worths = [_worth(epoch, covered.high, epoch.places) for epoch in epochs]
    before = expected_payoffs([epoch.few for epoch in epochs], worths, _FEW * resolution, 0.0, ways=1)
    left = []
    for epoch, values in zip(epochs, before, strict=True):
        places, values = lower_hull(epoch.places, epoch.steepest * covered.high * values * _SLACK)
        left.append(epoch._replace(places=places, values=values))
    worths = [_worth(epoch, covered.low, np.zeros(1)) for epoch in left]
    found = expected_payoffs([epoch.many for epoch in left], worths, resolution, 0.0)
    return [epoch.steepest * covered.low * float(each[0]) * _SLACK for epoch, each in zip(left, found, strict=True)]


def _worth(epoch: _Epoch, scale: float, before: FloatArray) -> Payoff:
    """The payoff, where a scaled sum is added to each of what was there before, over its slope and scale."""
    _, _, places, values = epoch
    steepest = epoch.steepest

    def worth(sums: FloatArray) -> FloatArray:
        after = before[:, None] + scale * sums
        beyond = steepest * np.maximum(after - places[-1], 0.0)
        return np.asarray(np.interp(after, places, values) + beyond) / (steepest * scale)

    return worth


def _both_by_waves(epoch: _Epoch, covered: Cover, resolution: float) -> float | None:
    """At least E[J(low T + high T')] by transforms, both sums on one lattice; None where ladders are better."""
    few, many, places, values = epoch
    plan = min((one_split(way) for way in many.plans(resolution)), key=lambda each: each.step)
    heavy_losses = many.term.left[1] > many.term.right[0]  # windows are too long then
    if heavy_losses or max(many.clipped[1], few.clipped[1]) > LONGEST * plan.step or many.hopeless(resolution):
        return None
    steepest, step = epoch.steepest, covered.low * plan.step
    light, lost, moment = many.terms(plan, step)
    heavy, lost_too, moment_too = few.terms(replace(plan, step=step / covered.high), step)

    def worth(sums: FloatArray) -> FloatArray:
        return np.asarray(np.interp(sums, places, values) / steepest + np.maximum(sums - places[-1], 0.0))

    found = payoff_by_waves([light, heavy], worth, 0.0, resolution, everywhere=True)
    if found is None:
        return None
    # Where one of the sums is lost, the other one counts too.
    left_out = sum(w * each.left_out(moment + moment_too) for w, each in ((covered.low, many), (covered.high, few)))
    at_zero = float(np.interp(0.0, places, values))
    return (steepest * (found + left_out) + 2.0 * at_zero * (lost + lost_too)) * _SLACK
