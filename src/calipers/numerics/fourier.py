"""Powers and products on the circle Z/n by FFT, with a proven bound on the rounding error.

Let `w_j >= 0` be vectors of length n with sum at most 1 (up to rounding), and let
`W = w_1^(*T_1) * w_2^(*T_2) * ...` be their cyclic convolution. `cyclic_product` returns a
computed `V` and a number `e` with

    || V - W ||_2 <= e .

Three facts carry the bound (u = 2^-53 is the unit round-off):

1. A transform of length n = r_1 r_2 ... with factors 2, 3, 4 and 5 (`fast_length` gives no others) goes through
   levels; level r replaces r numbers by r sums of them with coefficients of modulus 1, after one product
   with a rounded root of unity. Along any path a number meets at most m_r = 5, 9, 6, 11 roundings for r = 2, 3, 4, 5
   (additions, products with constants, the twiddle factor and its product, sqrt(5) u each at most). So
   - entry by entry: every output errs by at most u (sum of m_r) sum |x_j|, and m_r <= 12 log2(r);
   - in the 2-norm: a level that errs by m_r u times the sum of r moduli errs by m_r sqrt(r) u times the norm of
     its output at most, and m_r sqrt(r) <= 12 log2(r) as well.
   Hence c = 12 in both: `||fl(Fx) - Fx||_2 <= c u log2(n) ||Fx||_2` and `|fl(Fx)_k - (Fx)_k| <= c u log2(n) sum |x|`.
   (Radix 2 alone is Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., Theorem 24.2, c < 7.) Real
   transforms do part of the same operations. Against transforms in extended precision the largest
   error seen is below half of the charge (`tests/numerics/test_fourier.py`).
2. `|a^T - b^T| <= T |a - b| max(|a|, |b|)^(T-1)`, and the Fourier coefficients of a vector with
   sum at most 1 are at most 1 in modulus. So a perturbation `d_j` of the coefficients of w_j
   moves the product by at most `sum_j T_j d_j`, in the 2-norm as well.
   Two bounds on `d_j` are used, and the smaller one counts: that in the 2-norm, and `c u log2(n) sum |w|` for
   every single coefficient, which the other coefficients of the product damp.
3. A complex product has relative error below `sqrt(5) u`, so binary powering and the product
   of the factors lose at most `4 u sum_j T_j` relative to the result.

Where T is large and few coefficients of the product are left, those are summed directly, and only the others carry the
error of 2 (`calipers.numerics.low_frequencies`).

Parseval (`||Fx||_2 = sqrt(n) ||x||_2`) brings all three back to the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft

from calipers.errors import CertificationError
from calipers.numerics.low_frequencies import low_frequencies, low_frequencies_of_powers
from calipers.numerics.types import FloatArray

UNIT_ROUNDOFF = 2.0**-53
_FFT_CONSTANT = 12.0
_MANY, _MANY_IN_A_BLOCK = 8, 200
"""From so high powers on, errors of a transform are damped by the product, and few coefficients are summed directly:
fewer terms of a block lose less than its transforms do."""


# Let glibc keep the memory of arrays that are freed, up to 64 MiB; elsewhere this does nothing. It returns arrays
# larger than any mapping freed before to the system, and hands out zeroed pages for the next: a quarter of the time of
# an epsilon. One mapping as large as it heeds, of which no page is touched, teaches it better.
np.empty(2**25 - 2**16, dtype=np.uint8)


@dataclass(frozen=True)
class CyclicFactor:
    """One vector of the product, `sum over k of terms[k] * jump^(*k)`, and how often it occurs.

    Usually there is one term and no jump. `error` is the 2-norm of the error of the whole vector.
    """

    terms: tuple[FloatArray, ...]
    count: int
    error: float = 0.0
    jump: FloatArray | None = None
    large: FloatArray | None = None
    """Jumps that `product_with_large_jumps` tells apart; `jump` are the others."""
    large_error: float = 0.0
    """The 2-norm of the error of what has such a jump."""

    def spectrum(self) -> tuple[np.ndarray, float]:
        """Fourier coefficients, and a bound on the 2-norm of the error they stand for in the data."""
        n = len(self.terms[0])
        per_transform = fft_relative_error(n)
        if self.jump is None:
            return scipy.fft.rfft(self.terms[0]), self.error + per_transform * two_norm(self.terms[0])
        jump = scipy.fft.rfft(self.jump)
        jump_mass, jump_norm = float(np.abs(self.jump).sum()), two_norm(self.jump)
        total = np.zeros_like(jump)
        error = self.error
        for k in reversed(range(len(self.terms))):
            term = self.terms[k]
            total = total * jump + scipy.fft.rfft(term)
            mass, norm = float(np.abs(term).sum()), two_norm(term)
            # |change of A_k b^k| <= |change of A_k| b^k + k A_k b^(k-1) |change of b|, and Horner's rounding.
            error += per_transform * norm * jump_mass**k + 8.0 * UNIT_ROUNDOFF * norm * jump_mass**k
            if k:
                error += k * mass * jump_mass ** (k - 1) * per_transform * jump_norm
        return total, error


def two_norm(values: FloatArray) -> float:
    """The Euclidean norm, by a plain sum: a threaded dot product costs more than it saves here."""
    return math.sqrt(float(np.einsum("i,i->", values, values)))


def fast_length(minimum: int) -> int:
    """The smallest length >= minimum whose real transform is fast."""
    return int(scipy.fft.next_fast_len(max(int(minimum), 16), real=True))


def fft_relative_error(n: int) -> float:
    """c u log2(n): the relative 2-norm error of one transform of length n."""
    return _FFT_CONSTANT * UNIT_ROUNDOFF * math.log2(n)


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """base**exponent by binary powering (relative error below sqrt(5) u exponent); works in place on a copy."""
    result = base.copy()
    for bit in f"{exponent:b}"[1:]:
        np.multiply(result, result, out=result)
        if bit == "1":
            np.multiply(result, base, out=result)
    return result


def cyclic_product(factors: Sequence[CyclicFactor]) -> tuple[FloatArray, float]:
    """The cyclic convolution V of all factors with multiplicity, and e with ||V - W||_2 <= e.

    Every factor must have non-negative true weights of sum at most 1 + 1e-9; counts are >= 1. `directly`: whether to
    sum the coefficients that matter one by one, where that makes e smaller.
    """
    n = len(factors[0].terms[0])
    spectra = [factor.spectrum() for factor in factors]
    total = sum(factor.count for factor in factors)
    # |computed coefficient| <= 1 + |its error|: bound its T-th power. The error is at most sqrt(n) * data_error, and
    # for a plain vector that of a single coefficient.
    growth = math.fsum(
        f.count * (math.sqrt(n) * f.error + 1.01 * fft_relative_error(n) if f.jump is None else math.sqrt(n) * error)
        for f, (_, error) in zip(factors, spectra, strict=True)
    )
    _refuse_growth(growth, total, n)
    spectrum = _power(spectra[0][0], factors[0].count)
    for factor, (coefficients, _) in zip(factors[1:], spectra[1:], strict=True):
        spectrum = spectrum * _power(coefficients, factor.count)
    plain = all(factor.jump is None for factor in factors)
    slow = low_frequencies([(f.terms[0], f.count) for f in factors], spectrum, n) if plain else None
    others, summed = spectrum, 0.0
    if slow is not None:
        others, spectrum, summed = spectrum.copy(), spectrum.copy(), slow.error
        others[slow.index], spectrum[slow.index] = 0.0, slow.values
    result = scipy.fft.irfft(spectrum, n)
    rounding = (4.0 * UNIT_ROUNDOFF * total + 2.0 * fft_relative_error(n)) * two_norm(result)
    propagated = math.fsum(
        f.count * (min(error, f.error + _damped_error(coefficients, others, n)) if f.count >= _MANY else error)
        for f, (coefficients, error) in zip(factors, spectra, strict=True)
    )
    return result, 1.02 * (propagated + summed + rounding)


def product_with_large_jumps(factors: Sequence[CyclicFactor]) -> tuple[FloatArray, float]:
    """The part V of the product in which at least one jump is large, and e with ||V - W||_2 <= e, W the true part.

    With s the part of a factor without a large jump and b the rest, J = prod (s + b)^T - prod s^T is a polynomial with
    positive coefficients in transforms of vectors of positive numbers, evaluated by sums and products alone. Each of
    its monomials is a product of inputs, at most as many per factor as there are terms, which err by a share of their
    masses (1 above) and meet a few roundings each, so every coefficient of J errs by that share of J at the masses.
    An error d of the data of s moves J by at most T d/mass(s) times that J, and one of b by at most T d.
    """
    n = len(factors[0].terms[0])
    per_input, lost, moved_small, moved_large = fft_relative_error(n) + 16.0 * UNIT_ROUNDOFF, 0.0, 0.0, 0.0
    parts: tuple[Any, Any] = (1.0, 0.0)
    masses: tuple[Any, Any] = (1.0, 0.0)
    for factor in factors:
        assert factor.large is not None
        usual = np.zeros(n) if factor.jump is None else factor.jump
        jump, jump_mass = (scipy.fft.rfft(usual), scipy.fft.rfft(factor.large)), (usual.sum(), factor.large.sum())
        base: tuple[Any, Any] = (0.0, 0.0)
        size: tuple[Any, Any] = (0.0, 0.0)
        for term in reversed(factor.terms):
            base, size = _both_parts(base, jump), _both_parts(size, jump_mass)
            base, size = (base[0] + scipy.fft.rfft(term), base[1]), (size[0] + np.abs(term).sum(), size[1])
        parts = _both_parts(parts, _power_of_parts(base, factor.count))
        masses = _both_parts(masses, _power_of_parts(size, factor.count))
        lost += factor.count * len(factor.terms) * per_input
        moved_small += factor.count * factor.error / max(float(size[0]), 1e-300)
        moved_large += factor.count * factor.large_error
    result = scipy.fft.irfft(parts[1], n)
    if not lost + math.sqrt(n) * (moved_small + moved_large) < 0.01:  # beyond what the bound is proven for
        return result, math.inf
    inputs = float(masses[1]) * (lost + moved_small) + moved_large * max(1.0, float(masses[0] + masses[1]))
    # Masses too small for a double were lost.
    return result, 1.05 * inputs + 2.0 * fft_relative_error(n) * two_norm(result) + 1e-290


def _power_of_parts(base: tuple[Any, Any], exponent: int) -> tuple[Any, Any]:
    found = base
    for bit in f"{exponent:b}"[1:]:
        found = _both_parts(found, found)
        if bit == "1":
            found = _both_parts(found, base)
    return found


def _both_parts(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[Any, Any]:
    """(without, with) a large jump, of a product."""
    return first[0] * second[0], first[0] * second[1] + first[1] * (second[0] + second[1])


def _damped_error(coefficients: np.ndarray, product: np.ndarray, n: int) -> float:
    """2-norm, back in the data, of one transform's coefficient errors times the rest of the product.

    Each coefficient of a vector of mass 1 has error at most c u log2(n), and two roundings more where jumps are
    added by Horner's rule; it enters the product times |product / coefficient|, which is small except at
    low frequencies. Used only for high powers, where a coefficient that vanishes makes the rest vanish too.
    """
    rest = float(np.sum(_squares(product) / np.maximum(_squares(coefficients), 1e-300)))
    return (fft_relative_error(n) + 16.0 * UNIT_ROUNDOFF) * math.sqrt(2.0 * rest / n)


def _squares(values: np.ndarray) -> FloatArray:
    """|values|^2 of complex values, without their roots."""
    return np.asarray(values.real * values.real + values.imag * values.imag)


def descending_powers(weights: FloatArray, top: int, number: int) -> list[tuple[FloatArray, float]]:
    """The cyclic powers top, top - 1, ..., top - number + 1 of one vector, each with its 2-norm error.

    Same guarantee as `cyclic_product`, one forward transform for all of them. Powers must be >= 1,
    except that a power of 0 is the unit mass at 0.
    """
    n = len(weights)
    base = scipy.fft.rfft(weights)
    per_transform = fft_relative_error(n)
    data_error = per_transform * two_norm(weights)
    squares = np.maximum(_squares(base), 1e-300)
    lowest = top - number + 1
    spectrum = _power(base, lowest) if lowest > 0 else np.ones_like(base)
    results: list[tuple[FloatArray, float]] = []
    powers = range(lowest, top + 1)
    direct = low_frequencies_of_powers(weights, powers, spectrum, n) if lowest >= _MANY_IN_A_BLOCK else None
    for i, power in enumerate(powers):
        others, sharper, summed = spectrum, spectrum, 0.0
        if direct is not None:
            others, sharper, summed = spectrum.copy(), spectrum.copy(), direct[i].error
            others[direct[i].index], sharper[direct[i].index] = 0.0, direct[i].values
        values = scipy.fft.irfft(sharper, n)
        norm = two_norm(values)
        rounding = (4.0 * UNIT_ROUNDOFF * max(power, 1) + 2.0 * per_transform) * norm
        rest = float(np.sum(_squares(others) / squares))
        damped = per_transform * math.sqrt(2.0 * rest / n) if power >= _MANY else math.inf
        results.append((values, 1.02 * (power * min(data_error, damped) + summed + rounding)))
        if power < top:
            spectrum = spectrum * base
    _refuse_growth(top * math.sqrt(n) * data_error, top, n)
    return results[::-1]


def _refuse_growth(growth: float, total: int, n: int) -> None:
    """The bound above needs (1 + coefficient error)^total to stay near 1."""
    if growth > 0.01:
        raise CertificationError(
            f"The rounding error of a {total}-fold convolution of length {n} could not be bounded "
            f"(growth {growth:.2g}). Use a larger tolerance or fewer steps."
        )


def weight_norm(tilt: float, step: float) -> float:
    """At least the 2-norm of the weights of a tilted hockey-stick divergence on a lattice.

    These are g(m step), m = 1, 2, ..., with g(y) = e^(-(tilt-1) y) - e^(-tilt y).

    g rises to its largest value and falls from there, so the sum of squares exceeds the integral 1 / (2 a b (a + b)),
    a = tilt - 1 and b = tilt, by at most one such value: the square of g <= 1/(e a).

    Args:
        tilt: exponent of the likelihood ratio, at least 1.
        step: width of the lattice.

    Returns:
        An upper bound of the norm; infinite where tilt is 1.
    """
    if tilt <= 1.0:
        return math.inf
    least, most = tilt - 1.0, tilt
    return math.sqrt(1.0 / (2.0 * step * least * most * (least + most)) + (math.e * least) ** -2)


def decayed_tail_sums(weights: FloatArray, rate: float) -> FloatArray:
    """S_i = sum over l > i of exp(-rate (l - i)) weights_l, for rate >= 0, without overflow.

    Error below 4 (n + 300) u of the same sum of absolute weights, and 2^-960 of the largest weight for what underflows:
    sums run in blocks so short that the exponentials stay far inside the range, only terms of the weights' own sign are
    added, and weights are scaled by a power of two, which changes no digit.
    """
    n = len(weights)
    exponent = math.frexp(float(np.max(np.abs(weights), initial=0.0)))[1]
    block = n if rate * n <= 30.0 else max(1, int(30.0 / rate))
    blocks = -(-n // block)
    padded = np.zeros(blocks * block)
    padded[blocks * block - n :] = np.ldexp(weights, -exponent)
    ahead = np.arange(block)
    decay = np.exp(-rate * ahead)
    inside = np.cumsum((padded.reshape(blocks, block) * decay)[:, ::-1], axis=1)[:, ::-1]
    carry = np.zeros(blocks)  # sum over l >= end of a block of exp(-rate (l - end)) weights_l
    # Of many blocks each decays by e^-15 at least, so that some fifty of them are all that can be distinguished from 0.
    passed, factor = 1.0, math.exp(-rate * block)
    for following in range(1, blocks):
        if passed == 0.0:
            break
        carry[:-following] += passed * inside[following:, 0]
        passed *= factor
    # Over l from a place on, itself included; what it is from the next place on is what is asked for.
    reach = inside / decay + carry[:, None] * np.exp(-rate * (block - ahead))
    sums = math.exp(-rate) * np.append(reach[:, 1:], carry[:, None], axis=1)
    return np.asarray(np.ldexp(sums.ravel()[blocks * block - n :], exponent))


def strided_tail_sums(weights: FloatArray, rate: float, stride: int) -> tuple[FloatArray, FloatArray]:
    """(i, S_i) for i = -1, stride - 1, 2 stride - 1, ...: S_i as in `decayed_tail_sums`, with the same relative error.

    Costs one pass over the weights instead of several exponentials for every position.
    """
    blocks = math.ceil(len(weights) / stride)
    padded = np.zeros(blocks * stride)
    padded[: len(weights)] = weights
    inside = np.einsum("ij,j->i", padded.reshape(blocks, stride), np.exp(-rate * np.arange(1, stride + 1)))
    index = np.arange(blocks, dtype=np.float64) * float(stride) - 1.0
    sums: FloatArray = inside + decayed_tail_sums(inside, rate * stride)
    return index, sums
