"""From one epoch to many: Lemma G.5, its failure probability, the fixed point, and the limit of Section 4.1."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp

from calipers.bracket import Side
from calipers.curves import TradeoffCurve, gaussian_curve
from calipers.errors import ConditionError
from calipers.theorems.shuffle_limits import (
    epochs_tradeoff_limit,
    failure_probability,
    gaussian_fixed_point,
    shifted_curve_fnr,
)
from calipers.theorems.shuffle_one_epoch import epochs_tradeoff

CASES = [(0.05, 1e-4), (0.3, 0.01), (1.0, 0.2), (3.0, 0.05), (0.001, 1e-8)]


def gaussian(mu, a):
    """G_mu(a) by mpmath."""
    if a >= 1:
        return mp.mpf(0)
    if a <= 0:
        return mp.mpf(1)
    return mp.ncdf(mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(a)) - mu)


@pytest.mark.parametrize(("mu", "shift"), CASES)
def test_g5_lies_below_the_shifted_curve(mu, shift):
    """k <= h = max{G(a + t) - t, 0} on a grid; with the failure probability a percent smaller it does not."""
    lost = failure_probability(mu, shift)
    middle = gaussian_fixed_point(mu).fixed_point
    # The two places where the maximum in the definition is attained, and a grid.
    places = [0.0, middle * (1.0 - lost), middle - shift, *np.linspace(0.0, 1.0, 60)]
    for place in places:
        height = max(gaussian(mu, place + shift) - shift, mp.mpf(0))
        assert shifted_curve_fnr(place, mu, shift) <= height

    def crosses(smaller):
        return any(
            (1 - smaller) * gaussian(mu, place / (1 - smaller)) > max(gaussian(mu, place + shift) - shift, 0)
            for place in (0.0, middle * (1.0 - smaller))
        )

    assert lost >= shift / middle
    assert crosses(0.99 * lost)
    assert not crosses(lost)


@pytest.mark.parametrize(("mu", "shift"), CASES[1:4])
def test_g5_is_the_composition_with_a_failure(mu, shift):
    """(1 - d) G(a/(1 - d)) is the tensor product of G_mu with f_(0, d), built from atoms."""
    lost = failure_probability(mu, shift)
    failing = TradeoffCurve.from_atoms([1.0 - lost], [1.0 - lost], lost, lost, side=Side.LOWER)
    above = gaussian_curve(mu, Side.LOWER, 400).tensor(failing)
    below = gaussian_curve(mu, Side.UPPER, 400).tensor(
        TradeoffCurve.from_atoms([1.0 - lost], [1.0 - lost], lost, lost, side=Side.UPPER)
    )
    for fpr in (0.0, 0.01, 0.2, 0.5, 0.9):
        assert float(below(fpr)) <= shifted_curve_fnr(fpr, mu, shift) + 1e-11
        assert shifted_curve_fnr(fpr, mu, shift) <= float(above(fpr))


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 6.0])
def test_g6_the_fixed_point(mu):
    """G_mu(a*) = a*, and the two terms are off by mu^3/(48 sqrt(2 pi)) to first order."""
    found = gaussian_fixed_point(mu)
    assert float(gaussian(mu, found.fixed_point)) == pytest.approx(found.fixed_point, rel=1e-12)
    if mu <= 0.1:
        cubic = mu**3 / (48.0 * math.sqrt(2.0 * math.pi))
        assert found.fixed_point - found.two_terms == pytest.approx(cubic, rel=1e-2, abs=1e-15)


def test_g6_part_one_is_false_far_below_one_over_m():
    """mu = 1/sqrt(M): (1 - G_mu(a))/a stays near 1 at a = 1/M^2 and grows without bound at a = e^(-M^2)."""

    def log_ratio(rounds, log_a):
        return float(log_ndtr(ndtri_exp(log_a) + rounds**-0.5)) - log_a

    near = [log_ratio(m, -2.0 * math.log(m)) for m in (10**2, 10**4, 10**6)]
    assert near[0] > near[1] > near[2] > 0.0
    assert near[2] < 0.01
    far = [log_ratio(m, -(float(m) ** 2)) for m in (10, 100, 1000)]
    assert far == pytest.approx([math.sqrt(2 * m) for m in (10, 100, 1000)], rel=0.2)


def test_the_limit_of_section_4_1_is_approached_from_below():
    """delta = 0.5/sqrt(M), E = 2 sqrt(M): (1 - delta)^E - a rises to e^-1 - a."""
    limit = epochs_tradeoff_limit(0.1, 0.5, 2.0)
    assert limit == pytest.approx(math.exp(-1.0) - 0.1, rel=1e-14)
    values = [epochs_tradeoff(0.5 / root, 2 * root, 0.1) for root in (10, 100, 1000, 10**5)]
    assert values == sorted(values)
    assert limit - 1e-5 < values[-1] < limit
    assert epochs_tradeoff_limit(0.9, 0.5, 2.0) == 0.0


def test_a_shift_beyond_the_fixed_point_is_refused():
    with pytest.raises(ConditionError, match=r"shift < a\* = Phi\(-mu/2\) = 0\.308"):
        failure_probability(1.0, 0.31)
