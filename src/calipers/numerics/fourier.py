"""Powers and products on the circle Z/n by FFT, with a proven bound on the rounding error.

Let `w_j >= 0` be vectors of length n with sum at most 1 (up to rounding), and let
`W = w_1^(*T_1) * w_2^(*T_2) * ...` be their cyclic convolution. `cyclic_product` returns a
computed `V` and a number `e` with

    || V - W ||_2 <= e .

Three facts carry the bound (u = 2^-53 is the unit round-off):

1. A Cooley-Tukey transform with accurate twiddle factors is backward stable:
   `||fl(Fx) - Fx||_2 <= c u log2(n) ||Fx||_2` (Higham, Accuracy and Stability of Numerical
   Algorithms, 2nd ed., Theorem 24.2, gives c < 7 for radix 2; higher radices do fewer
   operations a level). We charge c = 8.
2. `|a^T - b^T| <= T |a - b| max(|a|, |b|)^(T-1)`, and the Fourier coefficients of a vector with
   sum at most 1 are at most 1 in modulus. So a perturbation `d_j` of the coefficients of w_j
   moves the product by at most `sum_j T_j d_j`, in the 2-norm as well.
3. A complex product has relative error below `sqrt(5) u`, so binary powering and the product
   of the factors lose at most `4 u sum_j T_j` relative to the result.

Parseval (`||Fx||_2 = sqrt(n) ||x||_2`) brings all three back to the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.fft

from calipers.errors import CertificationError
from calipers.numerics.types import FloatArray

UNIT_ROUNDOFF = 2.0**-53
_FFT_CONSTANT = 8.0


@dataclass(frozen=True)
class CyclicFactor:
    """One vector of the product: its values, how often it occurs, the 2-norm of its own error."""

    weights: FloatArray
    count: int
    error: float = 0.0


def fast_length(minimum: int) -> int:
    """The smallest length >= minimum whose real transform is fast."""
    return int(scipy.fft.next_fast_len(max(int(minimum), 16), real=True))


def fft_relative_error(n: int) -> float:
    """c u log2(n): the relative 2-norm error of one transform of length n."""
    return _FFT_CONSTANT * UNIT_ROUNDOFF * math.log2(n)


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """base**exponent by binary powering (relative error below sqrt(5) u exponent)."""
    result: np.ndarray | None = None
    square = base
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    assert result is not None
    return result


def cyclic_product(factors: Sequence[CyclicFactor]) -> tuple[FloatArray, float]:
    """The cyclic convolution V of all factors with multiplicity, and e with ||V - W||_2 <= e.

    Every factor must have non-negative true weights of sum at most 1 + 1e-9; counts are >= 1.
    """
    n = len(factors[0].weights)
    per_transform = fft_relative_error(n)
    spectrum: np.ndarray | None = None
    propagated = 0.0
    total = 0
    worst_growth = 0.0
    for factor in factors:
        norm = float(np.linalg.norm(factor.weights))
        coefficients = scipy.fft.rfft(factor.weights)
        data_error = factor.error + per_transform * norm
        propagated += factor.count * data_error
        total += factor.count
        # |computed coefficient| <= 1 + |its error| <= 1 + sqrt(n) * data_error: bound its T-th power.
        excess = math.sqrt(n) * data_error + max(0.0, float(np.sum(factor.weights)) - 1.0)
        worst_growth += factor.count * excess
        powered = _power(coefficients, factor.count)
        spectrum = powered if spectrum is None else spectrum * powered
    if worst_growth > 0.01:
        raise CertificationError(
            f"The rounding error of a {total}-fold convolution of length {n} could not be bounded "
            f"(growth {worst_growth:.2g}). Use a larger tolerance or fewer steps."
        )
    assert spectrum is not None
    result = scipy.fft.irfft(spectrum, n)
    norm = float(np.linalg.norm(result))
    rounding = (4.0 * UNIT_ROUNDOFF * total + 2.0 * per_transform) * norm
    return result, 1.02 * (propagated + rounding)


def decayed_tail_sums(weights: FloatArray, rate: float) -> FloatArray:
    """S_i = sum over l > i of exp(-rate (l - i)) weights_l, for rate >= 0, without overflow.

    Relative error below 4 n u for non-negative weights: sums run in blocks so short that the
    exponentials stay in range, and only positive terms are added.
    """
    n = len(weights)
    block = n if rate * n <= 300.0 else max(1, int(300.0 / rate))
    sums = np.empty(n)
    carry = 0.0  # sum over l >= end of exp(-rate (l - end)) weights_l
    for end in range(n, 0, -block):
        start = max(0, end - block)
        size = end - start
        decay = np.exp(-rate * np.arange(size))  # exp(-rate (l - start))
        inside = np.cumsum((weights[start:end] * decay)[::-1])[::-1]  # sum over start+i <= l < end
        reach = inside / decay + carry * np.exp(-rate * (size - np.arange(size)))
        # reach_i = sum over l >= start + i of exp(-rate (l - start - i)) weights_l
        sums[start : end - 1] = math.exp(-rate) * reach[1:]
        sums[end - 1] = math.exp(-rate) * carry
        carry = float(reach[0])
    return sums
