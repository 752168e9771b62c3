"""Noncentral chi-square tails: the certified interval holds closed forms, contour integrals and empirical counts."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from calipers.errors import CertificationError, InputError
from calipers.numerics.gamma import exponential_excess, log_gamma_tail, log_ratio_of
from calipers.numerics.noncentral import (
    _arctan_excess,
    _contour,
    _mixture,
    log_noncentral_bounds_at,
)

DIGITS = 40


def excess(t, degrees, noncentrality):
    """t - d - L, rounded once."""
    with mp.workdps(60):
        return float(mp.mpf(t) - mp.mpf(degrees) - mp.mpf(noncentrality))


def log_noncentral_cdf_bounds(t, degrees, noncentrality):
    return log_noncentral_bounds_at(excess(t, degrees, noncentrality), degrees, noncentrality, True)


def log_noncentral_tail_bounds(t, degrees, noncentrality):
    return log_noncentral_bounds_at(excess(t, degrees, noncentrality), degrees, noncentrality, False)


def encloses(bounds, truth):
    low, high = (mp.mpf(float(value)) for value in bounds)
    width = mp.mpf(10) ** -12 * (10 + abs(truth) / 5)
    return low <= truth <= high and high - low <= width


def normal_tail(x):
    return mp.erfc(x / mp.sqrt(2)) / 2


@pytest.mark.parametrize("noncentrality", [1e-6, 0.5, 30.0, 2500.0, 4e4])
@pytest.mark.parametrize("z", [-30.0, -3.0, 0.0, 5.0, 36.0])
def test_one_degree_is_a_folded_normal(noncentrality, z):
    """P(|Z + r| <= s) and P(|Z + r| > s) with r^2 the noncentrality and s^2 = t."""
    t = max(math.sqrt(noncentrality) + z, 0.3) ** 2
    with mp.workdps(60):
        r, s = mp.sqrt(mp.mpf(noncentrality)), mp.sqrt(mp.mpf(t))
        cdf = normal_tail(r - s) - normal_tail(r + s)
        tail = normal_tail(s - r) + normal_tail(s + r)
        assert encloses(log_noncentral_cdf_bounds(t, 1, noncentrality), mp.log(cdf))
        assert encloses(log_noncentral_tail_bounds(t, 1, noncentrality), mp.log(tail))


@pytest.mark.parametrize(("noncentrality", "t"), [(0.1, 3.0), (9.0, 0.05), (9.0, 90.0), (400.0, 150.0), (400.0, 900.0)])
def test_three_degrees_have_a_closed_form(noncentrality, t):
    """P(X <= t) = Phi(s - r) - Phi(-s - r) - (phi(s - r) - phi(s + r))/r."""
    with mp.workdps(60):
        r, s = mp.sqrt(mp.mpf(noncentrality)), mp.sqrt(mp.mpf(t))
        density = (mp.npdf(s - r) - mp.npdf(s + r)) / r
        cdf = normal_tail(r - s) - normal_tail(s + r) - density
        tail = normal_tail(s - r) + normal_tail(s + r) + density
        assert encloses(log_noncentral_cdf_bounds(t, 3, noncentrality), mp.log(cdf))
        assert encloses(log_noncentral_tail_bounds(t, 3, noncentrality), mp.log(tail))


def contour_tail(t, degrees, noncentrality):
    """(log P(X <= t), log P(X > t)) as an inverse Laplace transform through the saddle point of the smaller tail."""
    t, n, shift = mp.mpf(t), mp.mpf(degrees), mp.mpf(noncentrality)

    def exponent(theta):
        return -n / 2 * mp.log(1 - 2 * theta) + shift * theta / (1 - 2 * theta) - theta * t

    # The saddle solves n w + shift w^2 = t in w = 1/(1 - 2 theta).
    w = 2 * t / (n + mp.sqrt(n**2 + 4 * shift * t))
    saddle = (1 - 1 / w) / 2
    spread = 1 / mp.sqrt(2 * n * w**2 + 4 * shift * w**3)
    base = exponent(saddle)

    def integrand(u):
        theta = mp.mpc(saddle, u * spread)
        return (mp.exp(exponent(theta) - base) / theta).real * spread / mp.pi

    value = mp.quad(integrand, [0, 1, 2, 4, 7, 11, 18])
    small = base + mp.log(abs(value))
    other = mp.log1p(-mp.exp(small))
    return (small, other) if saddle < 0 else (other, small)


@pytest.mark.parametrize(
    ("degrees", "noncentrality", "deviations"),
    [
        (100, 12.0, (-6.0, 4.0)),
        (26010, 3.4e4, (-25.0, 2.0, 30.0)),
        (1485217, 1e6, (-4.6, 8.0)),
        (10**12, 1.0, (-3.0, 5.0)),
        (10**12, 1e5, (-9.0, 2.0)),
        (10**6, 1e20, (-5.0, 1.0)),
    ],
)
def test_many_degrees_agree_with_a_contour_integral(degrees, noncentrality, deviations):
    """Both tails, `deviations` standard deviations from the mean, up to 1e12 degrees."""
    with mp.workdps(DIGITS):
        for z in deviations:
            t = degrees + noncentrality + z * math.sqrt(2.0 * degrees + 4.0 * noncentrality)
            cdf, tail = contour_tail(t, degrees, noncentrality)
            assert encloses(log_noncentral_cdf_bounds(t, degrees, noncentrality), cdf)
            assert encloses(log_noncentral_tail_bounds(t, degrees, noncentrality), tail)


def test_the_two_routes_enclose_the_same_number():
    """Contour and mixture share no formula but psi; their certified intervals overlap over the whole domain."""
    rng = np.random.default_rng(11)
    degrees = np.round(10.0 ** rng.uniform(1.5, 9.0, 30))
    shift = 10.0 ** rng.uniform(-2.0, 4.5, 30)
    excess = rng.uniform(-14.0, 14.0, 30) * np.sqrt(2.0 * degrees + 4.0 * shift)
    inside = degrees + shift + excess > 0.0
    degrees, shift = degrees[inside], shift[inside]
    t = degrees + shift + excess[inside]
    excess = (t - degrees) - shift
    side, own, error = _contour(excess, degrees, shift)
    assert np.mean(error < 1e-11) > 0.9
    for i in np.flatnonzero(error < 1e-11):
        low, high = _mixture(t[i], degrees[i], shift[i], lower=bool(side[i] < 0.0))
        # A rounding of t - d - L moves the threshold by 1e-16 (d + L).
        moved = 2e-16 * (degrees[i] + shift[i]) / math.sqrt(2.0 * degrees[i] + 4.0 * shift[i]) * 15.0
        assert low - error[i] - moved <= own[i] <= high + error[i] + moved


@pytest.mark.parametrize(
    "coarse",
    [
        *({"_DEPTH": depth} for depth in (1.0, 3.0, 5.0)),
        *({"_FAR_DEPTH": -1e9, "_NEAR_SPREADS": spreads} for spreads in (4.0, 6.0, 8.0)),
        *({"_FAR_DEPTH": depth, "_NEAR_SPREADS": 0.1} for depth in (6.0, 12.0, 18.0)),
    ],
    ids=str,
)
def test_the_certified_error_of_the_contour_is_an_error_bound(monkeypatch, coarse):
    """With the cut or the period made coarse the sum is visibly wrong, and the certificate says by how much at most."""
    degrees, shift, deviation = (
        part.ravel() for part in np.meshgrid([14.0, 60.0], [0.5, 40.0, 900.0], [-3.0, -0.5, 0.2, 1.0, 5.0, 8.0])
    )
    excess = deviation * np.sqrt(2.0 * degrees + 4.0 * shift)
    _, exact, sharp = _contour(excess, degrees, shift)
    for name, value in coarse.items():
        monkeypatch.setattr(f"calipers.numerics.noncentral.{name}", value)
    _, own, error = _contour(excess, degrees, shift)
    usable = np.isfinite(error) & (sharp < 1e-11)
    off = np.abs(np.expm1(exact - own))
    assert np.all(off[usable] <= error[usable] + 1e-11)
    assert np.any(off[usable] > 1e-8)


@pytest.mark.parametrize("z", [-4.0, 0.5, 6.0])
@pytest.mark.parametrize(("spreads", "drop"), [(0.6, 0.05), (0.0, -1.0)])
def test_the_bounds_of_a_cut_mixture_hold_what_is_cut_off(monkeypatch, z, spreads, drop):
    """With a window that leaves out most of the terms the interval is wide, and still holds the truth."""
    noncentrality = 1e6
    r = math.sqrt(noncentrality)
    t = (r + z) ** 2
    monkeypatch.setattr("calipers.numerics.noncentral._INDEX_SPREADS", spreads)
    monkeypatch.setattr("calipers.numerics.noncentral._DROP", drop)
    with mp.workdps(60):
        s = mp.sqrt(mp.mpf(t))
        truths = normal_tail(r - s) - normal_tail(r + s), normal_tail(s - r) + normal_tail(s + r)
        for lower, truth in zip((True, False), truths, strict=True):
            low, high = _mixture(t, 1.0, noncentrality, lower)
            assert low <= mp.log(truth) <= high
            assert high - low > 1e-3


def test_small_differences_keep_their_digits():
    """a - log(1 + a) and v - arctan v against mpmath."""
    with mp.workdps(DIGITS):
        for a in (-0.95, -0.5, -0.3, -1e-7, 1e-12, 1e-3, 0.4, 0.99, 1.01, 50.0):
            truth = mp.mpf(a) - mp.log1p(mp.mpf(a))
            assert abs(mp.mpf(float(exponential_excess(np.log1p(a)))) / truth - 1) < 2e-15
        for v in (1e-9, 1e-3, 0.1, 0.2499, 0.2501, 1.0, 60.0):
            truth = mp.mpf(v) - mp.atan(mp.mpf(v))
            assert abs(mp.mpf(float(_arctan_excess(np.array(v)))) / truth - 1) < 2e-14


@pytest.mark.parametrize("noncentrality", [0.004439860621285349, 0.962870659011257, 2.4596802404901412])
def test_far_below_the_mean_the_rounding_of_the_saddle_is_charged(noncentrality):
    """At a thousandth of the mean the digits of the saddle are few, and the interval knows."""
    degrees, below = 41, -0.999 * (41 + noncentrality)
    with mp.workdps(DIGITS):
        mean, x = mp.mpf(noncentrality) / 2, (degrees + mp.mpf(noncentrality) + mp.mpf(below)) / 2
        weights = [mp.exp(-mean) * mean**j / mp.factorial(j) for j in range(60)]
        parts = [w * mp.gammainc(mp.mpf(degrees) / 2 + j, 0, x, regularized=True) for j, w in enumerate(weights)]
        assert encloses(log_noncentral_bounds_at(below, degrees, noncentrality, True), mp.log(mp.fsum(parts)))


def test_a_hundred_million_of_noncentrality():
    """The far end of the domain, 1e12 degrees: four standard deviations below the mean."""
    degrees, noncentrality = 10**12, 1e8
    t = degrees + noncentrality - 4.0 * math.sqrt(2.0 * degrees + 4.0 * noncentrality)
    with mp.workdps(DIGITS):
        assert encloses(
            log_noncentral_cdf_bounds(t, degrees, noncentrality), contour_tail(t, degrees, noncentrality)[0]
        )


def test_too_many_terms_are_refused():
    with pytest.raises(CertificationError, match="noncentrality"):
        log_noncentral_cdf_bounds(1e12, 1, 1e12)


def test_counts_of_simulated_norms_fall_inside_six_standard_errors():
    """A route without formulas: squared norms of shifted Gaussian vectors."""
    rng = np.random.default_rng(7)
    trials, degrees, shift = 40_000, 6, 2.5
    draws = rng.standard_normal((trials, degrees))
    draws[:, 0] += shift
    norms = np.square(draws).sum(axis=1)
    for t in (4.0, 11.0, 25.0):
        low, high = (math.exp(float(v)) for v in log_noncentral_cdf_bounds(t, degrees, shift**2))
        share = float((norms <= t).mean())
        assert abs(share - 0.5 * (low + high)) < 6.0 * math.sqrt(share / trials)


def test_zero_noncentrality_and_zero_threshold():
    low, high = log_noncentral_bounds_at([-5.0, -2.0], 5, 0.0, True)
    assert low[0] == high[0] == -math.inf
    assert low[1] < float(log_gamma_tail(2.5, log_ratio_of(2.5, 1.5), lower=True)) < high[1]
    low, high = log_noncentral_tail_bounds(0.0, 5, 2.0)
    assert low == high == 0.0


@pytest.mark.parametrize(
    ("t", "degrees", "noncentrality"),
    [(math.nan, 2, 1.0), (math.inf, 2, 1.0), (1.0, 0, 1.0), (1.0, 2.5, 1.0), (1.0, 2, -1.0), (1.0, 2, 1e25)],
)
def test_outside_the_domain_is_refused(t, degrees, noncentrality):
    with pytest.raises(InputError):
        log_noncentral_tail_bounds(t, degrees, noncentrality)


@pytest.mark.parametrize("deviations", [-5.5, 5.5])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_rounding_of_the_threshold_is_charged(deviations, side):
    """One degree and much noncentrality: half a unit of the sum d + L + excess moves log P by more than the interval.

    The excess is placed half a unit beside a double, on either side of it.
    """
    noncentrality = 2.0**23 + 0.25
    beside = round(deviations * 2.0 * math.sqrt(noncentrality)) + side * 2.0**-30 * 0.999
    with mp.workdps(60):
        r = mp.sqrt(mp.mpf(noncentrality))
        s = mp.sqrt(1 + mp.mpf(noncentrality) + mp.mpf(beside))
        truth = normal_tail(r - s) - normal_tail(r + s) if deviations < 0.0 else normal_tail(s - r) + normal_tail(s + r)
        assert encloses(log_noncentral_bounds_at(beside, 1, noncentrality, deviations < 0.0), mp.log(truth))


def test_many_mixtures_of_many_terms_are_refused_at_once() -> None:
    """Sixty tails with some 400,000 terms each would take half a minute; one of them is computed."""
    shift = np.full(60, 9e8)
    some = -2.0 * np.sqrt(2.0 * shift) * np.linspace(1.0, 1.1, 60)
    with pytest.raises(CertificationError, match="too many terms together"):
        log_noncentral_bounds_at(some, 3.0, shift, True)
    low, high = log_noncentral_bounds_at(some[0], 3.0, shift[0], True)
    assert low <= high < math.log(0.1)
