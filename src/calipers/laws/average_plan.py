"""How fine the lattices of a long sum must be.

A ladder (`calipers.laws.average_ladder`) moves its lowest rung up whenever the spread of the sum has
doubled. With spacing eta times the spread at every size, each move adds a share of at most
eta^2/8 to the variance of the sum, so with E moves eta = resolution / sqrt(1 + E/2) keeps the total
near resolution^2/6, which is what one split with cells of `resolution` standard deviations costs.

Spread and centre are those of a typical sum: a heavy tail makes the variance say nothing about it
(for sigma = 0.2 one term has variance 7e10 and median 4e-6), so both are taken over terms between the
two quantiles that a sum of m terms rarely passes. They decide the cost and the width of a bracket,
never its truth.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.laws.average_ladder import LadderPlan
from calipers.numerics.types import FloatArray

_RARE = 0.02
"""Expected number of terms outside the quantiles that define centre and spread."""
_STEEPNESS = 0.22
"""Spacing over distance, in units of eta times the width of the log of a term: rung 0 reaches 9 spreads at width 1."""
_COARSEST_GRAIN = 1.0 / 24.0
_FINEST_ETA = 1.5e-3


def typical(values: FloatArray, weights: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre and spread of a typical sum of each of `counts` terms; values increase, weights sum to about 1."""
    below = np.cumsum(weights)
    above = np.cumsum(weights[::-1])[::-1]
    first = np.cumsum(weights * values)
    second = np.cumsum(weights * values * values)
    low = np.searchsorted(below, _RARE / counts)
    high = len(values) - 1 - np.searchsorted(above[::-1], _RARE / counts)
    high = np.maximum(high, np.minimum(low + 1, len(values) - 1))
    mass = below[high] - np.where(low > 0, below[low - 1], 0.0)
    mean = (first[high] - np.where(low > 0, first[low - 1], 0.0)) / mass
    square = (second[high] - np.where(low > 0, second[low - 1], 0.0)) / mass
    spread = np.sqrt(np.maximum(square - mean * mean, 1e-14 * square))
    return counts * mean, np.sqrt(counts) * spread


def ladder_plans(
    values: FloatArray, weights: FloatArray, count: int, resolution: float, log_width: float, log_tail: float
) -> list[LadderPlan]:
    """Plans for sums of 1, 2, 4, ... up to `count` terms with these atoms (values increasing)."""
    sizes = np.ldexp(1.0, np.arange(count.bit_length()))
    centres, spreads = typical(values, weights, sizes)
    moves = np.floor(np.log2(np.maximum.accumulate(spreads) / spreads[0])).astype(int)
    eta = max(_FINEST_ETA, resolution / math.sqrt(1.0 + 0.5 * float(moves[-1])))
    grain = min(_COARSEST_GRAIN, _STEEPNESS * eta * log_width)
    step = eta * float(spreads[0])
    log_loss = log_tail - math.log(6.0 * len(sizes))
    return [LadderPlan(step, grain, float(c), int(e), log_loss) for c, e in zip(centres, moves, strict=True)]
