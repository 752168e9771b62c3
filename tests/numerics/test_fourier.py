"""Cyclic powers and products: the stated 2-norm error holds against exact convolution and is not vacuous."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import CertificationError
from calipers.numerics.fourier import (
    UNIT_ROUNDOFF,
    CyclicFactor,
    cyclic_product,
    decayed_tail_sums,
    descending_powers,
    fast_length,
    fft_relative_error,
    product_with_large_jumps,
    two_norm,
)
from calipers.numerics.low_frequencies import low_frequencies

BITS = 256
"""Fixed-point convolution in Python integers keeps this many bits, five times what a float has."""


def scaled(weights: np.ndarray) -> list[int]:
    return [int(Fraction(float(w)) * 2**BITS) for w in weights]


def exact_cyclic(first: list[int], second: list[int]) -> list[int]:
    n = len(first)
    total = [0] * n
    for i, a in enumerate(first):
        if a:
            for j, b in enumerate(second):
                total[(i + j) % n] += a * b
    return [t >> BITS for t in total]


def exact_power(weights: list[int], power: int) -> list[int]:
    n = len(weights)
    result = [2**BITS] + [0] * (n - 1)
    square = weights
    while power:
        if power & 1:
            result = exact_cyclic(result, square)
        power >>= 1
        if power:
            square = exact_cyclic(square, square)
    return result


def distance(values: np.ndarray, exact: list[int]) -> float:
    """The 2-norm of values - exact, rounded up."""
    with mp.workdps(60):
        square = sum(
            (mp.mpf(float(v)) - mp.mpf(e) / mp.mpf(2) ** BITS) ** 2 for v, e in zip(values, exact, strict=True)
        )
        return float(mp.sqrt(square)) * (1 + 1e-15)


def bell(n: int, width: float) -> np.ndarray:
    weights = np.exp(-0.5 * ((np.arange(n) - n / 3.0) / width) ** 2)
    return weights / weights.sum()


def shapes(n: int) -> dict[str, np.ndarray]:
    spiky = np.zeros(n)
    spiky[1], spiky[n // 2], spiky[n - 1] = 0.7, 0.2, 0.1
    rough = np.random.default_rng(n).random(n) ** 8
    return {"bell": bell(n, 3.0), "wide": bell(n, n / 4.0), "spiky": spiky, "rough": rough / rough.sum()}


@pytest.mark.parametrize("shape", ["bell", "wide", "spiky", "rough"])
@pytest.mark.parametrize("n", [16, 45, 64])
@pytest.mark.parametrize("power", [1, 2, 7, 1000, 10**6])
def test_the_error_of_a_power_is_bounded(shape: str, n: int, power: int) -> None:
    """|| V - W ||_2 <= e, against exact integer convolution, up to a million factors."""
    weights = shapes(n)[shape]
    values, error = cyclic_product([CyclicFactor((weights,), power)])
    assert distance(values, exact_power(scaled(weights), power)) <= error


@pytest.mark.parametrize("n", [64, 1024])
@pytest.mark.parametrize("power", [1, 30, 10**4])
def test_the_bound_is_not_vacuous(n: int, power: int) -> None:
    """e stays within a few u log2(n) T of the norms: relative accuracy near round-off, however often we convolve."""
    values, error = cyclic_product([CyclicFactor((bell(n, 3.0),), power)])
    scale = (14.0 * math.log2(n) + 5.0) * (power + 4)
    assert 0 < error <= scale * UNIT_ROUNDOFF * (two_norm(values) + two_norm(bell(n, 3.0)))


def narrow(n: int, width: float) -> np.ndarray:
    """A bell around 0 on a long circle: what one of very many steps looks like."""
    away = (np.arange(n) + n // 2) % n - n // 2
    weights = np.where(np.abs(away) <= 9, np.exp(-0.5 * ((away - 0.3) / width) ** 2), 0.0)
    return weights / weights.sum()


@pytest.mark.parametrize("powers", [(20_000,), (10**6,), (10**6, 3000)])
def test_slow_waves_do_not_lose_with_the_number_of_steps(powers: tuple[int, ...]) -> None:
    """Against exact convolution: after a million steps the error is of one rounding a step, not of a transform.

    On a circle of 90 points a million steps have gone round often enough that only the constant is left; twenty
    thousand steps of a narrow bell have not.
    """
    n = 90
    made = [narrow(n, 0.4 + 0.1 * i) for i in range(len(powers))]
    exact = [2**BITS] + [0] * (n - 1)
    for weights, power in zip(made, powers, strict=True):
        exact = exact_cyclic(exact, exact_power(scaled(weights), power))
    values, error = cyclic_product([CyclicFactor((w,), power) for w, power in zip(made, powers, strict=True)])
    assert distance(values, exact) <= error
    assert error <= 10.0 * UNIT_ROUNDOFF * (sum(powers) + 3000.0) * two_norm(values)


def test_slow_waves_themselves() -> None:
    """Every coefficient they replace, against mpmath; far more accurate than a power of a transform."""
    n, count = 5000, 10**6
    weights = narrow(n, 0.4)
    rough = scipy.fft.rfft(weights) ** count
    found = low_frequencies([(weights, count)], rough, n)
    assert found is not None
    assert 3 <= len(found.index) < 300
    worst = mp.mpf(0)
    with mp.workdps(40):
        places = np.flatnonzero(weights)
        for k, value in zip(found.index, found.values, strict=True):
            turn = [mp.expjpi(-2 * mp.mpf(int(k) * int(s)) / n) for s in places]
            exact = mp.fsum(mp.mpf(float(weights[s])) * t for s, t in zip(places, turn, strict=True)) ** count
            worst += 2 * abs(mp.mpc(complex(value)) - exact) ** 2
        assert mp.sqrt(worst / n) <= found.error <= 1e-9
    assert low_frequencies([(weights, 10)], scipy.fft.rfft(weights) ** 10, n) is None


def test_slow_waves_of_one_wide_term_beside_many_narrow_ones() -> None:
    """A single term may be as wide as the sum, so that its own coefficients are small: they keep their digits.

    Their modulus from |1 + d|^2 - 1, which is right for narrow terms, would err by a hundred times what is charged.
    """
    n = 300
    wide, thin = bell(n, 25.0), narrow(n, 0.12)
    powers = [(wide, 1), (thin, 20_000)]
    found = low_frequencies(powers, scipy.fft.rfft(wide) * scipy.fft.rfft(thin) ** 20_000, n)
    assert found is not None
    square = mp.mpf(0)
    with mp.workdps(40):
        for k, value in zip(found.index, found.values, strict=True):
            exact = mp.mpf(1)
            for weights, count in powers:
                places = np.flatnonzero(weights)
                turns = [mp.mpf(float(weights[s])) * mp.expjpi(-2 * mp.mpf(int(k) * int(s)) / n) for s in places]
                exact *= mp.fsum(turns) ** count
            square += (1 if k == 0 else 2) * abs(mp.mpc(complex(value)) - exact) ** 2
        assert mp.sqrt(square / n) <= found.error


@pytest.mark.parametrize("n", [24, 60])
def test_products_of_different_factors(n: int) -> None:
    """Factors with different counts, one of them known only up to an error of its own."""
    made = shapes(n)
    nudge = 1e-9 * np.cos(np.arange(n))
    factors = [
        CyclicFactor((made["bell"],), 5),
        CyclicFactor((made["rough"] + nudge,), 3, error=two_norm(nudge) * (1 + 1e-9)),
        CyclicFactor((made["spiky"],), 2),
    ]
    values, error = cyclic_product(factors)
    exact = exact_cyclic(exact_power(scaled(made["bell"]), 5), exact_power(scaled(made["rough"]), 3))
    exact = exact_cyclic(exact, exact_power(scaled(made["spiky"]), 2))
    observed = distance(values, exact)
    assert observed <= error
    # 3 * 1.01 * ||nudge|| is what the inherited error alone costs; the transform adds next to nothing.
    assert error <= 3.2 * two_norm(nudge)
    assert observed > 1e-11, "the inherited error is real, so a bound without it would fail"


@pytest.mark.parametrize("mass", [2.0**-10, 2.0**-40])
@pytest.mark.parametrize("count", [1, 4, 50])
def test_the_part_with_a_large_jump(count: int, mass: float) -> None:
    """All of two factors but what has no large jump, with an error relative to its own mass, however rare it is."""
    n = 40
    made = shapes(n)
    small, usual, large = 0.98 * made["bell"], 0.015 * made["rough"], mass * made["spiky"]
    unit = np.zeros(n)
    unit[0] = 1.0
    blocks = CyclicFactor((small, unit), count, jump=usual, large=large)
    plain = CyclicFactor((made["wide"], unit), 3, large=large)
    values, error = product_with_large_jumps([blocks, plain])

    def product(with_large: bool) -> list[int]:
        more = scaled(large) if with_large else [0] * n
        first = [a + b + c for a, b, c in zip(scaled(small), scaled(usual), more, strict=True)]
        second = [a + b for a, b in zip(scaled(made["wide"]), more, strict=True)]
        return exact_cyclic(exact_power(first, count), exact_power(second, 3))

    exact = [a - b for a, b in zip(product(True), product(False), strict=True)]
    assert distance(values, exact) <= error
    assert 0.0 < error <= 1e-11 * (count + 3) * mass


@pytest.mark.parametrize("count", [1, 4, 50])
def test_jump_expansions(count: int) -> None:
    """A factor `sum of terms[k] * jump^k` is convolved as what it says."""
    n = 40
    made = shapes(n)
    jump = 0.01 * made["spiky"]
    terms = (0.985 * made["bell"], 0.9 * made["rough"], 0.4 * made["wide"])
    values, error = cyclic_product([CyclicFactor(terms, count, jump=jump)])
    exact_jump = scaled(jump)
    one = [0] * n
    for k, term in enumerate(terms):
        one = [a + b for a, b in zip(one, exact_cyclic(scaled(term), exact_power(exact_jump, k)), strict=True)]
    assert distance(values, exact_power(one, count)) <= error <= 1e-12


@pytest.mark.parametrize("n", [16, 48])
@pytest.mark.parametrize(("top", "number"), [(2, 3), (3, 3), (10, 3), (500, 2), (500, 1)])
def test_descending_powers(n: int, top: int, number: int) -> None:
    """Powers top, top-1, ... in this order, each inside its own error; power 0 is the unit mass."""
    for weights in shapes(n).values():
        found = descending_powers(weights, top, number)
        assert len(found) == number
        exact = scaled(weights)
        for power, (values, error) in zip(range(top, top - number, -1), found, strict=True):
            assert distance(values, exact_power(exact, power)) <= error <= 1e-11


def test_descending_powers_do_not_lose_with_the_number_of_steps() -> None:
    """A block of twenty thousand steps errs by one rounding a step, not by one transform a step."""
    weights = narrow(90, 0.4)
    exact = scaled(weights)
    for power, (values, error) in zip((20_000, 19_999), descending_powers(weights, 20_000, 2), strict=True):
        assert distance(values, exact_power(exact, power)) <= error
        assert error <= 10.0 * UNIT_ROUNDOFF * (power + 3000.0) * two_norm(values)


def test_a_product_that_cannot_be_bounded_is_refused() -> None:
    """With 1e14 factors the rounding of the coefficients themselves is out of control: an error, no number."""
    with pytest.raises(CertificationError, match="could not be bounded"):
        cyclic_product([CyclicFactor((bell(64, 3.0),), 10**14)])
    with pytest.raises(CertificationError, match="could not be bounded"):
        descending_powers(bell(64, 3.0), 10**14, 2)


@given(st.integers(1, 10**7))
def test_fast_lengths(minimum: int) -> None:
    """At least the minimum, at most a quarter longer (at least 16), and built from the primes 2, 3 and 5."""
    length = fast_length(minimum)
    assert max(16, minimum) <= length <= max(16, 1.25 * minimum)
    for prime in (2, 3, 5):
        while length % prime == 0:
            length //= prime
    assert length == 1


@pytest.mark.parametrize("n", [64, 60, 81, 125, 240])
def test_one_transform_keeps_its_promise(n: int) -> None:
    """|| fl(Fx) - Fx || <= c u log2(n) || Fx || for lengths of radix 2, 3 and 5."""
    x = np.random.default_rng(n).standard_normal(n)
    computed = scipy.fft.rfft(x)
    with mp.workdps(40):
        roots = [mp.expjpi(-mp.mpf(2) * k / n) for k in range(n)]
        data = [mp.mpf(float(v)) for v in x]
        exact = [sum(v * roots[(j * k) % n] for j, v in enumerate(data)) for k in range(n // 2 + 1)]
        gap = mp.sqrt(sum(abs(mp.mpc(complex(c)) - e) ** 2 for c, e in zip(computed, exact, strict=True)))
        size = mp.sqrt(sum(abs(e) ** 2 for e in exact))
    assert gap <= fft_relative_error(n) * size


def direct_tail_sums(weights: np.ndarray, rate: float, positions: list[int]) -> list[mp.mpf]:
    with mp.workdps(40):
        decay = mp.exp(-mp.mpf(rate))
        running = mp.mpf(0)
        found = {}
        for i in range(len(weights) - 1, -1, -1):
            found[i] = running
            running = (running + mp.mpf(float(weights[i]))) * decay
        return [found[i] for i in positions]


@pytest.mark.parametrize("rate", [0.0, 1e-12, 1e-3, 0.07, 1.0, 29.9, 300.0, 5e3])
@pytest.mark.parametrize("n", [200, 4321])
def test_decayed_tail_sums(n: int, rate: float) -> None:
    """Relative error below 4 n u, whatever the rate: rates so large that only the next weight counts included."""
    weights = np.random.default_rng(n).random(n) ** 6
    sums = decayed_tail_sums(weights, rate)
    for found, exact in zip(sums, direct_tail_sums(weights, rate, list(range(n))), strict=True):
        # Below the smallest normal float there are no digits to keep.
        assert abs(mp.mpf(float(found)) - exact) <= 4 * n * UNIT_ROUNDOFF * exact + mp.mpf(2.3e-308)
    assert sums[-1] == 0.0


def test_decayed_tail_sums_of_long_arrays() -> None:
    """Many weights: constant weights have a geometric series as answer, at every decay."""
    n = 200_000
    for rate in (0.0, 1e-7, 1e-4, 0.5, 40.0):
        sums = decayed_tail_sums(np.ones(n), rate)
        for i in (0, 1, n // 2, n - 3, n - 2, n - 1):
            m = n - 1 - i
            with mp.workdps(40):
                r = mp.exp(-mp.mpf(rate))
                exact = mp.mpf(m) if rate == 0 else r * mp.expm1(-rate * mp.mpf(m)) / mp.expm1(-mp.mpf(rate))
            assert abs(mp.mpf(float(sums[i])) - exact) <= 4 * n * UNIT_ROUNDOFF * exact


def test_tail_sums_of_a_tail_that_falls_faster_than_the_decay() -> None:
    """The far weights are 1e-120 of the near ones, and their own sums still have all digits."""
    n = 3000
    weights = np.exp(-0.5 * (np.arange(n) / 130.0) ** 2)
    sums = decayed_tail_sums(weights, 0.05)
    checked = list(range(0, n, 97))
    for i, exact in zip(checked, direct_tail_sums(weights, 0.05, checked), strict=True):
        assert abs(mp.mpf(float(sums[i])) - exact) <= 4 * n * UNIT_ROUNDOFF * exact


@pytest.mark.parametrize("size", [1e-300, 1e-204, 1e200])
def test_tail_sums_keep_their_digits_whatever_the_size_of_the_weights(size: float) -> None:
    """The largest weight is `size`, the others lie far below it; nothing underflows on the way."""
    n = 3000
    weights = size * np.exp(-0.5 * (np.arange(n) - 400.0) ** 2 / 1e5)
    sums = decayed_tail_sums(weights, 0.1)
    checked = list(range(0, n, 97))
    for i, exact in zip(checked, direct_tail_sums(weights, 0.1, checked), strict=True):
        assert abs(mp.mpf(float(sums[i])) - exact) <= 4 * n * UNIT_ROUNDOFF * exact + mp.mpf(5e-324)


@pytest.mark.parametrize("minimum", [16, 45, 81, 125, 1000, 3**7, 5**5, 40_000, 2**16 + 1, 300_000])
def test_transforms_err_less_than_charged_in_both_senses(minimum: int) -> None:
    """Forward and back, every factor up to 5, against extended precision: 2-norm, and entry by entry."""
    n = fast_length(minimum)
    rest = n
    for factor in (2, 3, 5):
        while rest % factor == 0:
            rest //= factor
    assert rest == 1, "the derivation covers no other factors"
    assert np.finfo(np.longdouble).eps < 2e-19
    for weights in shapes(n).values():
        exact = scipy.fft.rfft(weights.astype(np.longdouble))
        error = np.abs(scipy.fft.rfft(weights).astype(np.clongdouble) - exact)
        assert np.sqrt(np.sum(error**2)) <= 0.5 * fft_relative_error(n) * np.sqrt(np.sum(np.abs(exact) ** 2))
        assert np.max(error) <= 0.5 * fft_relative_error(n) * np.sum(weights)
        spectrum = exact.astype(np.complex128)
        back = np.abs(scipy.fft.irfft(spectrum, n) - scipy.fft.irfft(spectrum.astype(np.clongdouble), n))
        assert np.sqrt(np.sum(back**2)) <= 0.5 * fft_relative_error(n) * two_norm(weights)
