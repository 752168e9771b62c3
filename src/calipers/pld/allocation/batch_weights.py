"""Which record made room, when there is no remainder: a rule that says little.

Where every record is used, the record j that makes room for x goes to an early batch, and is seen there. Which one is
taken for it is for the proof to say, and may depend on what was seen. Let the *pool* be the first l batches, e_u the
noise of batch u and c_i the gradients of its records, g_i = exp(-<c_i, e_u> - |c_i|^2/2); then

    P(j is taken | pool, noise) = g_j / sum of g_i over the pool.

Given the rest of the pool, the weights Y_j of all later records then hardly differ: after one batch by factors of at
most e^(2 r^2), except for a share of them, the loss, that has a tail e^(1 - mu loss); after several by less, but for
events as rare as tails of lognormals. A later batch weighs the mean w_t of B of them, drawn at random: it exceeds
`high` hardly ever, and the excesses beyond `low` add up to little. By majorization the weights of all batches are as
good as `many` equal ones just above `low` and a `few` equal to `high` (`Majorant`), and
(docs/theory/shuffling.md, section 9)

    D_k <= (B/N) E[J(low' T + high T')] + exposed D_k(fixed batches) + (B/N) l alone,    J(s) >= E[(l X_u + h s)+],

T and T' sums of `many` and `few` worst-case terms, X_u the term of the hole's batch, h the mean weight, E[h] = 1. In
place of T the variable of the recursion will do (`calipers.pld.allocation.recursion`), as equal weights have no order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.numerics.types import FloatArray
from calipers.pld.allocation.fourier_sum import Payoff
from calipers.pld.allocation.recursion import Effort, WithErrorTerms, recursion_payoff
from calipers.pld.allocation.release_payoff import (
    Vertices,
    exchanged,
    gradient_width,
    lower_hull,
    stop_losses_of_release,
)
from calipers.pld.allocation.worst_case_sum import WorstCaseSum, expected_payoff
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

_SLACK = 1.0 + 1e-11
"""Covers the rounding of closed forms that are a few operations deep."""
_PLACES, _NEAREST, _FARTHEST = 110, 1e-3, 1e7
"""Places of the payoff on either side of 0, in units of the width of a term."""
_TANGENTS = 64
"""Points y at which 1/g is compared with a tangent."""
_HEAVY = 0.1
"""Resolution of the grid on which the few heavy batches are summed."""
_FEW = 2.0
"""How much coarser the sum of the few heavy batches is kept than that of the many."""
_LOSSES, _LARGEST_LOSS = (1.0, 2.0, 4.0, 8.0), 0.9
"""Exponents of losses that count as covered, beyond what the share exposed asks for."""
_DEEPER = 2.5
"""The same for a pool, of which three things have to go wrong."""
_WORSE, _NOISY = 1.25, 0.8
"""How much more worst-case terms vary than an adversary's with gradients below so many deviations of the noise."""
_ORDERS, _LARGEST_EXPONENT = 25, 600.0
"""Moments of the mean of several lognormals."""


class Majorant(NamedTuple):
    """Weights above those of the later batches: `many` of `low`, `few` of `high`; `exposed`: what they do not cover.

    `pool`: how many batches the displaced record may go to. `alone`: at least E[A_u] where weights are not covered.
    `stages`: after how many batches everything is revealed, by the rule of `calipers.pld.allocation.rejection`, or 0.
    Where weights add up to more than those of the later batches do, k - 1 times the difference is added to the sum.
    """

    many: int
    low: float
    few: int
    high: float
    exposed: float
    pool: int = 1
    alone: float = 0.0
    stages: int = 0

    def squares(self, width: float) -> float:
        """About the variance of the sum: of a few terms the worst case is all that is known, which may vary more."""
        return self.many * self.low**2 + (_WORSE if width < _NOISY else 1.0) * self.few * self.high**2


class _RecordWeights(NamedTuple):
    """Weights of records: mean 1, at most `largest`, of variance at most `variance`; `batch_size` make a batch."""

    largest: float
    variance: float
    batch_size: int

    def log_moment(self, tilt: FloatArray) -> FloatArray:
        """Log E[e^(tilt B (w - 1))] of a batch at most (Bennett; Hoeffding for draws without replacement)."""
        reach = self.largest - 1.0
        scaled = tilt * reach
        return np.asarray(self.batch_size * self.variance / reach**2 * (np.expm1(scaled) - scaled))


def weights_of_records(loss: float, width: float, batch_size: int, ratio: float | None = None) -> _RecordWeights:
    """What the weights of records are like up to a loss; `ratio`: of the largest to the least, but for losses."""
    ratio = math.exp(2.0 * width * width) if ratio is None else ratio
    variance = (ratio + 1.0) ** 2 / (4.0 * ratio * (1.0 - loss)) - 1.0
    return _RecordWeights(ratio / (1.0 - loss) * _SLACK, variance * _SLACK + 1e-12, batch_size)


def loss_share(loss: float, width: float, batch_size: int, size: int) -> float:
    """At least the share of weight that goes with larger losses."""
    rate = (batch_size - 2) * (size - batch_size) / (size - 2)
    return batch_size / (batch_size - 1) * math.exp(2.0 * width * width + 1.0 - rate * loss) * _SLACK


@lru_cache(maxsize=1024)
def find_majorant(
    width: float, batch_size: int, size: int, exponent: float, pool: int = 1, raised: bool = False
) -> Majorant | None:
    """Weights that cover all but about e^-exponent, as even as possible; None where batches are too small or too few.

    Args:
        width: The largest norm of a gradient, in units of the noise.
        batch_size: B.
        size: N.
        exponent: Minus the logarithm of what may be left uncovered, about.
        pool: How many of the first batches the displaced record may go to.
        raised: Whether weights may add up to more than those of the later batches, which certificates do not know.
    """
    if size / batch_size - pool < 1.0 or width > 3.0 or (pool == 1 and batch_size < 3):
        return None
    found = _pooled(width, batch_size, pool, exponent) if pool > 1 else _first(width, batch_size, size, exponent)
    sizes = size / batch_size - pool, -(-size // batch_size) - pool
    majorants = [each for weights, shown in found for each in _majorants(weights, *sizes, exponent, shown, raised)]
    return min(majorants, key=lambda each: each.squares(width), default=None)


def _first(width: float, batch_size: int, size: int, exponent: float) -> list[tuple[_RecordWeights, Majorant]]:
    """Weights of records after one batch up to some loss, and what is exposed beyond it."""
    rate = (batch_size - 2) * (size - batch_size) / (size - 2)
    losses = [(exponent + more + 1.0 + 2.0 * width * width) / rate for more in _LOSSES]
    return [
        (weights_of_records(loss, width, batch_size), Majorant(0, 0, 0, 0, loss_share(loss, width, batch_size, size)))
        for loss in losses
        if loss < _LARGEST_LOSS
    ]


def _pooled(width: float, batch_size: int, pool: int, exponent: float) -> list[tuple[_RecordWeights, Majorant]]:
    """Weights of records after a pool, and what is exposed beyond them.

    With probability 1 - 3 e^-deep the hole's batch has H_u <= (B - 1) a, the later records Ubar <= a, which lie
    below a lognormal in convex order, and the other pool batches H_o >= B (pool - 1) e^(-r^2/2 - x). Lemma 9.5 needs
    2 deep (pool - 1) >= r^2.
    """
    square, deep = width * width, exponent + _DEEPER
    if 2.0 * deep * (pool - 1) < square:
        return []
    x = width * math.sqrt(2.0 * deep / (pool - 1))
    most = pool / (pool - 1) * math.exp(0.5 * square + x)  # of h, where H_o is as large
    level = np.exp(width * np.linspace(-2.0, 12.0, _TANGENTS))
    stop_losses = exchanged(width, 1.0, level)
    a = float(np.min(level + stop_losses * math.exp(deep)))
    per = a * math.exp(0.5 * square + x) / (batch_size * (pool - 1))
    towards, away = math.exp(square), math.exp(-square)
    ratio = (1.0 + towards * (batch_size - 1) * per) / (1.0 + away * (batch_size - 1) * per)
    loss = towards * per / (1.0 + towards * per)
    if loss >= _LARGEST_LOSS:
        return []
    lower = level < away * a
    beyond = float(np.min(stop_losses[lower] / (away * a - level[lower]), initial=1.0))
    alone = min(1.0, (math.exp(-deep) + 2.0 * beyond) * _SLACK)
    weights = weights_of_records(loss, width, batch_size, ratio)
    return [(weights, Majorant(0, 0.0, 0, 0.0, 3.0 * most * math.exp(-deep) * _SLACK, pool, alone))]


def _majorants(
    weights: _RecordWeights, later: float, batches: int, exponent: float, shown: Majorant, raised: bool
) -> list[Majorant]:
    """Several levels of weights, with what is exposed beyond those of records."""
    batch_size = weights.batch_size
    tilts = np.geomspace(1e-3, 40.0, 300) / (weights.largest - 1.0)
    log_moments = weights.log_moment(tilts)
    # P(w_t > high) for one of all batches.
    bound = 1.0 + float(np.min((log_moments + exponent + math.log(batches)) / (tilts * batch_size)))
    high = min(bound, weights.largest)
    # P(sum of (w_t - low)+ > total): weights of batches are negatively associated, so moments multiply;
    # e^(y t) - 1 <= y (1 - y)^((1 - y)/y) e^t for t > 0.
    lows = 1.0 + (high - 1.0) * np.linspace(0.02, 0.8, 40)
    exponents = log_moments - tilts * batch_size * (lows[:, None] - 1.0)
    spread = np.where(exponents < 50.0, np.exp(np.minimum(exponents, 50.0)), np.inf)
    totals = [
        (exponent + batches * np.log1p(y * (1.0 - y) ** ((1.0 - y) / y) * spread)) / (y * tilts * batch_size)
        for y in (0.1, 0.3, 0.5, 0.7, 0.9)
    ]
    share = (2.0 * math.exp(-exponent) + shown.exposed) * _SLACK
    found = []
    for low, total in zip(lows.tolist(), np.min(totals, axis=(0, 2)) * _SLACK, strict=True):
        if not total < (high - low) * later:  # they would take more weight than there is
            continue
        few = math.ceil(total / (high - low))
        many = int((later - few * high) / low)
        if many >= 1:
            level = (later - few * high) / many
            found.append(shown._replace(many=many, low=level, few=few, high=high, exposed=min(1.0, share)))
    even = int(later / high)  # all weights are at most as large
    for count, level in ((even, later / max(even, 1)), (even + 1 if raised else 0, high)):
        if count > 1:
            found.append(shown._replace(many=count - 1, low=level, few=1, high=level, exposed=min(1.0, share)))
    return found


def by_mean_weight(term: WorstCaseTerm, sizes: FloatArray, pool: int = 1) -> tuple[FloatArray, FloatArray]:
    """At least E[(l X_u - h s)+] and E[(-l X_u - h s)+] for every size s > 0, l the number of batches of the pool.

    With G the mean of l lognormals of deviation r and 1/g >= 1/y - (g - y)+ / y^2, g the mean of the pool's inverse
    ratios, both are l times a stop-loss transform of one release plus s E[G (G - y)+] / y^2, for every y > 0
    (docs/theory/shuffling.md, section 9).

    Args:
        term: What bounds the shifts, and epsilon >= 0.
        sizes: s.
        pool: l.

    Returns:
        Both bounds.
    """
    width = gradient_width(term)
    y = np.geomspace(0.5, math.exp(6.0 * width + 1.0), _TANGENTS)
    excess = sizes[:, None] * _excess(width, pool, y) / y**2
    per = sizes[:, None] / (pool * y)
    below, above = stop_losses_of_release(term, per)
    return np.min(pool * below + excess, axis=1) * _SLACK, np.min(pool * above + excess, axis=1) * _SLACK


def _excess(width: float, pool: int, y: FloatArray) -> FloatArray:
    """At least E[G (G - y)+]: of one lognormal, or from moments, as (g - y)+ <= (p - 1)^(p - 1)/p^p g^p y^(1 - p)."""
    part = math.exp(width * width) * ndtr(1.5 * width - np.log(y) / width)
    least = np.maximum(part - y * ndtr(0.5 * width - np.log(y) / width), 0.0) + 1e-13 * part
    if pool > 1:
        for p, moment in enumerate(_moments(width, pool)[3:], 2):
            least = np.minimum(least, (p - 1.0) ** (p - 1) / p**p * moment * y ** (1.0 - p))
    return np.asarray(least * _SLACK)


@lru_cache(maxsize=256)
def _moments(width: float, pool: int) -> tuple[float, ...]:
    """Of the mean of so many independent lognormals of mean one, from order 0 on."""
    orders = np.arange(max(4, min(_ORDERS, int(math.sqrt(_LARGEST_EXPONENT) / width))))
    factorials = np.cumprod(np.maximum(orders, 1.0))
    one = np.exp(0.5 * orders * (orders - 1.0) * width * width) / factorials
    total = np.eye(1, len(orders))[0]
    for _ in range(pool):
        total = np.convolve(total, one)[: len(orders)]
    return tuple((total * factorials / float(pool) ** orders).tolist())


def first_payoff(term: WorstCaseTerm, known: float, pool: int = 1) -> Vertices:
    """Places and values of J, the vertices of a convex function; `known` >= E[X_u+]."""
    sizes = term.width * np.geomspace(_NEAREST, _FARTHEST, _PLACES)
    below, above = by_mean_weight(term, sizes, pool)
    known *= pool
    losing = np.minimum(known, below)
    winning = np.minimum(known, pool * (1.0 - math.exp(term.epsilon)) + above) + sizes
    places = np.concatenate((-sizes[::-1], [0.0], sizes))
    return lower_hull(places, np.concatenate((losing[::-1], [known], winning)) * _SLACK)


class _Epoch(NamedTuple):
    """What later batches add to a payoff, the vertices of a convex function: few large weights, many equal ones."""

    few: WorstCaseSum
    many: WorstCaseSum
    places: FloatArray
    values: FloatArray

    @property
    def steepest(self) -> float:
        """At least the largest slope."""
        slope = float(self.values[-1] - self.values[-2]) / float(self.places[-1] - self.places[-2])
        return max(1.0, slope) * _SLACK

    def worth(self, sums: FloatArray) -> FloatArray:
        """The payoff over its largest slope."""
        beyond = np.maximum(sums - self.places[-1], 0.0)
        return np.asarray(np.interp(sums, self.places, self.values) / self.steepest + beyond)


def _epoch(term: WorstCaseTerm, payoff: Vertices, majorant: Majorant, log_tail: float) -> _Epoch:
    usual = majorant.many * majorant.low / majorant.high  # what the few have to make up for, but for k - 1
    return _Epoch(
        WorstCaseSum.deep(term, majorant.few, log_tail).ended(usual * math.expm1(term.epsilon)),
        WorstCaseSum.deep(term, majorant.many, log_tail).ended(0.0),
        *payoff,
    )


def worst_case_with_first(
    term: WorstCaseTerm,
    payoff: Vertices,
    majorant: Majorant,
    share: float,
    resolution: float,
    log_tail: float,
) -> tuple[float, float]:
    """(node, delta): `share` times E[J(low T + high T')] at the node, J the payoff.

    A node is the term's epsilon up to rounding.
    """
    epoch = _epoch(term, payoff, majorant, log_tail)
    value = _by_grids(epoch, majorant, resolution)
    # Sums are known up to a factor 1 +- rounding, and E|X| <= 1 + k for each of their terms.
    weight = 4.0 * (majorant.many * majorant.low + majorant.few * majorant.high)
    rounding = epoch.many.rounding * weight * (1.0 + math.exp(term.epsilon))
    return epoch.many.node, min(1.0, (value + rounding) * share * _SLACK)


def dynamic_program_with_first(
    term: WorstCaseTerm, payoff: Vertices, majorant: Majorant, share: float, log_tail: float, effort: Effort
) -> float:
    """As `worst_case_with_first` at the term's epsilon, with the recursion in place of the many worst-case terms."""
    epoch = _epoch(term, payoff, majorant, log_tail)
    steepest = epoch.steepest

    def heavy(step: float) -> WithErrorTerms:
        plan = replace(epoch.few.plans(_HEAVY)[0], step=step / majorant.high, lowest=0)
        terms, lost, moment = epoch.few.terms(plan, step)
        at_zero = float(np.interp(0.0, epoch.places, epoch.values))
        # Where a heavy term is lost, the others count too.
        others = majorant.low * majorant.many * (1.0 + math.exp(term.epsilon)) * moment
        return terms, majorant.high * epoch.few.left_out(moment) + 2.0 * at_zero * lost / steepest + others

    found = recursion_payoff(term, majorant.many, majorant.low, epoch.worth, heavy, effort)
    rounding = epoch.few.rounding * 4.0 * majorant.few * majorant.high * (1.0 + math.exp(term.epsilon))
    return min(1.0, (steepest * found + rounding) * share * _SLACK)


def _by_grids(epoch: _Epoch, majorant: Majorant, resolution: float) -> float:
    """At least E[J(low T + high T')] on multi-resolution grids."""
    # The few are asked for many payoffs: one rough grid will do.
    worths = _worth(epoch, majorant.high, epoch.places)
    values = expected_payoff(epoch.few, worths, _FEW * resolution)
    places, values = lower_hull(epoch.places, epoch.steepest * majorant.high * values * _SLACK)
    left = epoch._replace(places=places, values=values)
    found = expected_payoff(left.many, _worth(left, majorant.low, np.zeros(1)), resolution)
    return left.steepest * majorant.low * float(found[0]) * _SLACK


def _worth(epoch: _Epoch, scale: float, before: FloatArray) -> Payoff:
    """The payoff, where a scaled sum is added to each of what was there before, over its slope and scale."""
    return lambda sums: epoch.worth(before[:, None] + scale * sums) / scale
