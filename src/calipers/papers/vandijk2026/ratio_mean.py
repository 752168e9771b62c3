"""The distribution function of a mean of n likelihood ratios, by Fourier inversion.

With Y = exp(X/sigma - 1/(2 sigma^2)), X standard normal, and S the standardized sum of n copies,

    P(S <= x) = 1/2 - (1/pi) int_0^inf Im(e^(-itx) phi(t)) / t dt,    phi(t) = E[e^(it(Y-1)/(s sqrt n))]^n.

E is the trapezoidal rule over X, whose error for a Gaussian weight is far below rounding as long as the phase turns
slowly from node to node, and where it does not the weight is below 1e-9. The integral over t is the midpoint rule with
step h: it is exact for the law folded to a circle of circumference 2 pi/h standard deviations, so it misses the mass
beyond half of that. What is left is rounding, raised to the n-th power: about n 1e-14.

These are estimates (no error bound is charged); `tests/papers` holds them against other computations. They serve to
look at Theorem 5.1, whose own error term has no known size either.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.domains import COUNT
from calipers.numerics.types import FloatArray
from calipers.theorems.lognormal_ratio import ratio_variance

_NODE_SPACING = 2.0**-8
_REACH = 12.0
_STEP = 0.1
_BLOCK = 64
_MOST_BLOCKS = 400
_NEGLIGIBLE = 1e-17


def standardized_cdf(noise_multiplier: float, count: int, x: FloatArray) -> FloatArray:
    """P(S <= x) for the standardized mean of `count` likelihood ratios: an estimate, see the module docstring."""
    n = COUNT.check_int("count", count)
    deviation = math.sqrt(ratio_variance(noise_multiplier) * n)
    width = 1.0 / noise_multiplier
    nodes = np.arange(-_REACH, _REACH + 3.0 * width, _NODE_SPACING)
    weights = np.exp(-0.5 * nodes * nodes)
    weights /= weights.sum()
    terms = np.expm1(width * nodes - 0.5 * width * width)
    # The mean is zero; what rounding leaves of it would be multiplied by n.
    terms = (terms - weights @ terms) / deviation
    total = np.zeros(len(x))
    for block in range(_MOST_BLOCKS):
        t = _STEP * (block * _BLOCK + np.arange(_BLOCK) + 0.5)
        transform = (np.exp(1j * np.outer(t, terms)) @ weights) ** n
        total += (np.exp(-1j * np.outer(x, t)) @ (transform / t)).imag
        if np.max(np.abs(transform)) < _NEGLIGIBLE:
            break
    found: FloatArray = 0.5 - total * _STEP / math.pi
    return found
