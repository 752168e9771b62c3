"""Both gamma tails and their inverses against continued fractions whose convergents enclose the truth."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.numerics.chi_square import (
    log_scale_test_error,
)
from calipers.numerics.gamma import (
    _DEPTH,
    _NODES,
    GAMMA_LOG_ERROR,
    LARGEST_SHAPE,
    _lower_cut,
    _upper_cut,
    exponential_excess,
    gamma_quantile,
    log_gamma_tail,
    log_poisson_weight,
    log_ratio_of,
    stirling_correction,
)

DIGITS = 50
SHAPES = (0.5, 1.0, 1.5, 2.0, 7.5, 19.5, 20.0, 20.5, 50.0, 1e3, 13004.5, 7e5, 2.6e6, 1.5e8, 1e12, 1e15)
DEVIATIONS = (-140.0, -37.0, -9.0, -4.6, -1.0, 1.0, 4.6, 9.0, 37.0, 140.0)


def convergent_limit(numerator, denominator, digits):
    """K = 1/(b0 + a1/(b1 + a2/(b2 + ...))) with positive elements: consecutive convergents enclose the value."""
    before, now = (mp.mpf(0), mp.mpf(1)), (mp.mpf(1), denominator(0))
    for k in range(1, 100_000):
        a, b = numerator(k), denominator(k)
        assert min(a, b) > 0
        following = tuple(b * new + a * old for new, old in zip(now, before, strict=True))
        scale = following[1]
        before, now = tuple(v / scale for v in now), tuple(v / scale for v in following)
        low, high = sorted((before[0] / before[1], now[0] / now[1]))
        if high - low < mp.mpf(10) ** (-digits) * high:
            return low
    raise AssertionError("the oracle does not converge this close to the mean")


def oracle(a, x):
    """(log P, log Q) at exact a and x, at least 0.9 standard deviations from the mean or with a small."""
    a, x = mp.mpf(a), mp.mpf(x)
    if a < 30:
        lower = mp.gammainc(a, 0, x, regularized=True)
        upper = mp.gammainc(a, x, mp.inf, regularized=True)
        return mp.log(lower), mp.log(upper)
    density = a * mp.log(x) - x - mp.loggamma(a)
    if x < a:
        # gamma(a, x) = x^a e^-x / (a - x + x/(a + 1 - x + 2x/(a + 2 - x + ...)))
        small = density + mp.log(convergent_limit(lambda k: k * x, lambda k: a + k - x, 22))
        return small, mp.log1p(-mp.exp(small))
    # Legendre: Gamma(a, x) = x^a e^-x / (x + 1 - a + (a - 1)/(x + 3 - a + 2(a - 2)/(x + 5 - a + ...)))
    small = density + mp.log(convergent_limit(lambda k: k * (a - k), lambda k: x + 2 * k + 1 - a, 22))
    return mp.log1p(-mp.exp(small)), small


def point_at(a, z):
    """x about z standard deviations from the mean, as a double; Wilson and Hilferty's cube keeps it positive."""
    return a * max(1.0 - 1.0 / (9.0 * a) + z / (3.0 * math.sqrt(a)), 0.01) ** 3


def log_lower(a, x):
    return log_gamma_tail(a, log_ratio_of(a, x), lower=True)


def log_upper(a, x):
    return log_gamma_tail(a, log_ratio_of(a, x), lower=False)


def agrees(value, truth):
    return abs(mp.mpf(float(value)) - truth) <= GAMMA_LOG_ERROR * max(1, abs(truth))


@pytest.mark.parametrize("a", SHAPES)
def test_both_tails_agree_with_enclosing_continued_fractions(a):
    """From a = 1/2 to 1e15, one standard deviation from the mean to log-probabilities of -1e4."""
    with mp.workdps(DIGITS):
        for z in DEVIATIONS:
            x = point_at(a, z)
            lower, upper = oracle(a, x)
            assert agrees(log_lower(a, x), lower), (a, z)
            assert agrees(log_upper(a, x), upper), (a, z)


@pytest.mark.parametrize("a", [30.0, 2.6e6, 1e12])
@pytest.mark.parametrize("z", [-0.3, 0.0, 1e-3, 0.4])
def test_near_the_mean_they_agree_with_the_integral_of_the_density(a, z):
    """Quadrature over t = a + sqrt(a) s of the density itself, in 50 digits: another route than the code's."""
    with mp.workdps(DIGITS):
        mu = z / math.sqrt(a)
        shape, root = mp.mpf(a), mp.sqrt(a)
        log_peak = (shape - 1) * mp.log(shape) - shape - mp.loggamma(shape)

        def density(s):
            step = s / root
            return mp.exp(log_peak + (shape - 1) * mp.log1p(step) - shape * step) * root

        lowest = max(-25, -root)
        cut = mp.mpf(mu) * root
        knots = [lowest, *(k for k in (-12, -6, -3, -1) if k > lowest and k < cut), cut]
        lower = mp.quad(density, knots)
        upper = mp.quad(density, [cut, cut + 1, cut + 3, cut + 6, cut + 12, cut + 25, cut + 60])
        assert abs(lower + upper - 1) < mp.mpf(10) ** -20
        y = math.log1p(mu)
        assert agrees(log_gamma_tail(a, y, lower=True), mp.log(lower))
        assert agrees(log_gamma_tail(a, y, lower=False), mp.log(upper))


def test_whole_shapes_are_poisson_sums():
    """Q(k, x) = P(Poisson(x) < k), summed in rationals of exponentials."""
    with mp.workdps(DIGITS):
        for k in (1, 2, 5, 19, 20, 21, 60):
            for x in (1e-3, 0.5, 3.0, 20.0, 45.0, 400.0):
                total = mp.fsum(mp.mpf(x) ** i / mp.factorial(i) for i in range(k))
                upper = mp.log(total) - mp.mpf(x)
                assert agrees(log_upper(k, x), upper)
                assert agrees(log_poisson_weight(k, math.log(x / k)), k * mp.log(x) - mp.mpf(x) - mp.loggamma(k + 1))


def test_far_lower_tail_and_zero():
    """P(a, x) is x^a/Gamma(a + 1) as x falls to 0, and exactly 0 there."""
    with mp.workdps(DIGITS):
        for a in (0.5, 3.0, 25.0, 4e4):
            x = 1e-30
            truth = a * mp.log(mp.mpf(x)) - mp.loggamma(mp.mpf(a) + 1) - mp.mpf(x) * a / (a + 1)
            assert agrees(log_lower(a, x), truth)
        assert log_lower(2.0, 0.0) == -math.inf
        assert log_upper(2.0, 0.0) == 0.0


def test_quadrature_error_is_below_one_part_in_1e15_on_the_whole_domain():
    """n Gauss-Legendre nodes err by (64/15) M rho^(-2n) / (1 - rho^-2) on [-1, 1], M the maximum on an ellipse."""
    weights = np.polynomial.legendre.leggauss(_NODES.size)[1]
    circle = np.exp(1j * np.linspace(0.0, 2.0 * math.pi, 400))
    ellipses = [(rho, 0.5 + 0.25 * (rho * circle + 1.0 / (rho * circle))) for rho in np.geomspace(1.5, 6.0, 15)]
    for a in (0.5, 1.0, 3.0, 10.0, 20.0, 30.0, 100.0, 1e4, 1e8):
        for z in (0.0, 0.1, 1.0, 3.0, 8.0, 20.0, 100.0, 1e4):
            for side in (1.0, -1.0) if a >= 20.0 else (1.0,):
                y = side * min(z / math.sqrt(a), 10.0)
                x, slope = a * math.exp(y), side * a * math.expm1(y)
                length = float(_upper_cut(x, slope) if side > 0.0 else _lower_cut(a, slope))
                assert slope * length + x * float(exponential_excess(side * length)) >= _DEPTH
                u = length * _NODES
                integral = 0.5 * float(np.exp(-slope * u - x * exponential_excess(side * u)) @ weights)
                bounds = []
                for rho, ellipse in ellipses:
                    u = length * ellipse
                    largest = -float((slope * u + x * (np.exp(side * u) - 1.0 - side * u)).real.min())
                    bounds.append(largest - 2.0 * _NODES.size * math.log(rho) - math.log(1.0 - rho**-2))
                assert math.log(32.0 / 15.0) + min(bounds) < math.log(1e-15 * integral), (a, z, side)


@given(st.floats(math.log(0.5), math.log(LARGEST_SHAPE)), st.floats(-60.0, 60.0), st.floats(0.0, 3.0), st.booleans())
def test_tails_are_monotone_and_add_to_one(log_a, z, step, lower):
    """P rises and Q falls in x up to the stated error, and P + Q = 1."""
    a = min(max(math.exp(log_a), 0.5), LARGEST_SHAPE)
    y = z / math.sqrt(a)
    further = y + step / math.sqrt(a)
    p, q = float(log_gamma_tail(a, y, lower=True)), float(log_gamma_tail(a, y, lower=False))
    assert abs(math.exp(p) + math.exp(q) - 1.0) < 1e-15 + 2.0 * GAMMA_LOG_ERROR
    near, far = (float(log_gamma_tail(a, point, lower)) for point in ((y, further) if lower else (further, y)))
    assert near <= far + 2.0 * GAMMA_LOG_ERROR * max(1.0, abs(near))


def test_quantiles_return_the_probability_in_the_oracle():
    """The tail at the returned point, recomputed by the oracle, is the one asked for."""
    with mp.workdps(DIGITS):
        for a in (0.5, 1.5, 19.5, 13004.5, 1.5e8, 1e12):
            for log_tail in (-3000.0, -100.0, -3.0):
                for index, lower in enumerate((True, False)):
                    y = float(gamma_quantile(a, log_tail, lower))
                    truth = oracle(a, mp.mpf(a) * mp.exp(mp.mpf(y)))[index]
                    assert abs(truth - log_tail) <= 3 * GAMMA_LOG_ERROR * abs(log_tail)


@given(st.floats(math.log(0.5), math.log(1e13)), st.floats(-15.0, 9.0), st.booleans())
def test_quantiles_invert_the_tails(log_a, log_depth, lower):
    """At every log-probability from -8000 to -3e-7, including those above one half."""
    a, target = min(max(math.exp(log_a), 0.5), 1e13), -math.exp(log_depth)
    value = float(log_gamma_tail(a, float(gamma_quantile(a, target, lower)), lower))
    small = abs(math.log(-math.expm1(target))) if target > -math.log(2.0) else 1.0
    assert abs(value / target - 1.0) <= 4.0 * GAMMA_LOG_ERROR * max(
        1.0, small, 1.0 / abs(target) if small == 1.0 else 1.0
    )


def test_excess_and_stirling_keep_their_digits():
    """psi near 0 and s(a) on both sides of its switch, against mpmath."""
    with mp.workdps(DIGITS):
        for u in (-30.0, -1.0001, -0.9999, -1e-3, -1e-9, 1e-12, 1e-6, 0.02, 0.3, 1.0, 1.5, 40.0):
            truth = mp.expm1(mp.mpf(u)) - mp.mpf(u)
            assert abs(mp.mpf(float(exponential_excess(u))) / truth - 1) < 2e-15
        for a in (0.5, 1.0, 3.3, 9.999, 10.0, 11.0, 1e3, 1e9):
            truth = mp.loggamma(a) - ((mp.mpf(a) - mp.mpf(1) / 2) * mp.log(a) - a + mp.log(2 * mp.pi) / 2)
            assert abs(mp.mpf(float(stirling_correction(a))) - truth) < 1e-14


def test_chi_square_is_the_gamma_law_of_half_its_degrees():
    """One degree: a squared normal; two degrees: an exponential."""
    t = np.array([1e-8, 0.3, 1.0, 9.0, 1400.0])
    with mp.workdps(DIGITS):
        for value, point in zip(log_upper(0.5, 0.5 * t), t, strict=True):
            assert agrees(value, mp.log(mp.erfc(mp.sqrt(mp.mpf(float(point)) / 2))))
        for value, point in zip(log_lower(1.0, 0.5 * t), t, strict=True):
            assert agrees(value, mp.log(-mp.expm1(-mp.mpf(float(point)) / 2)))
    assert np.allclose(log_upper(1.0, 0.5 * t), -0.5 * t, rtol=GAMMA_LOG_ERROR, atol=0.0)


def test_scale_test_reproduces_the_curves_of_the_divided_sum():
    """Errors of the best test of N(0, I) against N(0, s^2 I), computed elsewhere by a contour integral."""
    alphas = np.array([0.001, 0.01, 0.1, 0.25, 0.5])
    for degrees, size, betas in (
        (26009, 999, (0.997909, 0.98212, 0.854091, 0.672446, 0.409721)),
        (1485216, 59999, (0.998899, 0.989209, 0.894868, 0.740786, 0.488542)),
        (200 * 26009, 700, (None, None, 0.000443787, None, None)),
    ):
        shift = 2.0 * math.log1p(1.0 / size)
        values = np.exp(log_scale_test_error(np.log(alphas), degrees, -shift))
        for value, beta in zip(values, betas, strict=True):
            assert beta is None or value == pytest.approx(beta, rel=2e-6)


@pytest.mark.parametrize(
    ("a", "x"), [(0.4, 1.0), (2e15, 1.0), (math.nan, 1.0), (1.0, -1.0), (1.0, math.inf), (1.0, math.nan)]
)
def test_outside_the_domain_is_refused(a, x):
    with pytest.raises(InputError):
        log_lower(a, x)


@pytest.mark.parametrize("log_probability", [0.0, 0.1, -math.inf, math.nan])
def test_probabilities_zero_and_one_have_no_quantile(log_probability):
    with pytest.raises(InputError):
        gamma_quantile(1.0, log_probability, lower=True)
