"""How fine the lattices of a long sum must be.

A multi-resolution grid (`calipers.pld.allocation.multi_resolution`) moves its lowest level up whenever the spread of
the sum has doubled. With spacing eta times the spread at every size, each move adds a share of at most eta^2/8 to the
variance of the sum, so with E moves eta = resolution / sqrt(1 + E/2) keeps the total near resolution^2/6, which is what
one split with cells of `resolution` standard deviations costs.

Spread and center are those of a typical sum: a heavy tail makes the variance say nothing about it
(for sigma = 0.2 one term has variance 7e10 and median 4e-6), so both are taken over terms between the
two quantiles that a sum of m terms rarely passes.

A positive sum that reaches down to a small share of its spread, as single lognormals do, needs a grid that is
geometric towards zero as well: there the center of the multi-resolution grid is 0, and its lowest level resolves the
smallest value that matters, which Chernoff's bound finds.

All of this decides the cost and the width of a bracket, never its truth.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.errors import CertificationError
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.multi_resolution import ResolutionPlan

_RARE = 0.02
"""Expected number of terms outside the quantiles that define center and spread."""
_STEEPNESS = 0.22
"""Spacing over distance, in units of eta times the width of the log of a term: level 0 reaches 9 spreads at width 1."""
_COARSEST_GRAIN = 1.0 / 24.0
"""Spacing over distance, at most."""
_CLEAR_OF_ZERO = 4.0
"""Where the least sum is within so many steps of 0, levels are centered at 0."""
_WIDEST = 700.0
"""Logarithm of the largest quotient of two ratios of one term that is a double."""
_RATES_PER_FACTOR = 2.0
"""Rates tried for every factor of two."""


def typical(values: FloatArray, weights: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Center and spread of a typical sum of each of `counts` terms; values increase, weights sum to about 1."""
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


def smallest(values: FloatArray, weights: FloatArray, counts: FloatArray, log_mass: float) -> FloatArray:
    """For each count m about the x with m-fold sums below x of probability e^log_mass m / max count; values > 0.

    P(S < x) <= e^(t x) (E e^(-t X))^m for every t > 0, solved for x at the best of a grid of rates t.
    """
    if not math.log(float(values[-1])) - math.log(max(float(values[0]), 5e-324)) < _WIDEST:
        raise CertificationError(
            "Likelihood ratios lie too far apart for double precision, with so little noise at so small a probability; "
            "ask for a larger delta or false positive rate."
        )
    octaves = math.log2(float(values[-1]) / float(values[0]))
    rates = np.ldexp(1.0 / float(values[-1]), np.arange(0.0, octaves + 12.0, 1.0 / _RATES_PER_FACTOR).astype(int))
    thinned = slice(None, None, max(1, len(values) // 600))
    share = weights[thinned] / weights[thinned].sum()
    log_laplace = np.log(np.exp(-np.outer(rates, values[thinned])) @ share + 1e-300)
    target = log_mass + np.log(counts / counts[-1])
    bounds = (target[:, None] - counts[:, None] * log_laplace) / rates
    return np.asarray(np.maximum(bounds.max(axis=1), float(values[0])))


def resolution_plans(
    values: FloatArray, weights: FloatArray, count: int, resolution: float, log_width: float, log_tail: float
) -> list[ResolutionPlan]:
    """Plans for sums of 1, 2, 4, ... up to `count` terms with these atoms (values increasing)."""
    sizes = np.ldexp(1.0, np.arange(count.bit_length()))
    centers, spreads = typical(values, weights, sizes)
    # A term that is usually the same number has no spread of its own: that of the first sum that has one will do.
    some = spreads[spreads > 0]
    smallest_spread = float(some.min()) if len(some) else max(1e-6 * float(np.max(np.abs(values))), 1e-300)
    spreads = np.where(spreads > 0, spreads, smallest_spread)
    moves = min(len(sizes) - 1.0, math.log2(float(spreads.max()) / float(spreads[0])))
    eta = resolution / math.sqrt(1.0 + 0.5 * moves)
    grain = min(_COARSEST_GRAIN, _STEEPNESS * eta * log_width)
    steps = eta * spreads
    if values[0] > 0:
        least = smallest(values, weights, sizes, log_tail)
        reaches_zero = least < _CLEAR_OF_ZERO * steps
        centers = np.where(reaches_zero, 0.0, centers)
        steps = np.where(reaches_zero, np.minimum(0.5 * grain * least, steps), steps)
    base = float(steps.min())
    lowest = np.floor(np.log2(steps / base)).astype(int)
    log_loss = log_tail - math.log(6.0 * len(sizes))
    return [ResolutionPlan(base, grain, float(c), int(e), log_loss) for c, e in zip(centers, lowest, strict=True)]
