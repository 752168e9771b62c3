"""Theorem 4.1 of van Dijk and Ertan: moments, terms, Table 1, conditions, and where it does not hold."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
import scipy.fft
from scipy.special import ndtr

from calipers.errors import ConditionError, InputError
from calipers.theorems.lognormal_ratio import (
    absolute_third_moment,
    berry_esseen_distance,
    berry_esseen_distance_high_noise,
    berry_esseen_distance_low_noise,
    ratio_moments,
)
from calipers.theorems.samplers_gap import shuffle_delta_lower
from calipers.theorems.shuffle_one_epoch import (
    epochs_tradeoff,
    shuffle_condition_rounds,
    shuffle_dataset_size,
    shuffle_delta,
    shuffle_delta_two_terms,
    shuffle_rounds,
    shuffle_rounds_two_terms,
)

# sigma: M from Equation (3), M exact, N as printed in Table 1 (delta = 0.01).
TABLE_1 = {
    0.50: ("1.57e+09", "1.57e+09", "7.87e+09"),
    0.75: ("3.71e+06", "3.72e+06", "2.79e+07"),  # the paper prints 3.72e6 twice
    1.00: ("1.14e+06", "1.14e+06", "1.14e+07"),
    1.50: ("3.23e+06", "3.23e+06", "4.85e+07"),
    2.00: ("1.49e+07", "1.49e+07", "2.98e+08"),
}


def mean_ratio_law(sigma, rounds, step, length):
    """Values and masses of the mean of M lognormal ratios, by FFT of a rounded ratio (nearest multiple of step).

    Values of the sum far from M wrap around; their probability is below 1e-9 for the settings used here.
    """
    edges = (np.arange(length + 1) - 0.5) * step
    with np.errstate(divide="ignore"):
        cdf = ndtr(sigma * np.log(np.maximum(edges, 0.0)) + 1 / (2 * sigma))
    masses = np.diff(cdf)
    drift = float(np.sum(masses * np.arange(length) * step)) - 1.0
    power = scipy.fft.irfft(scipy.fft.rfft(masses) ** rounds, length)
    start = round(rounds / step) - length // 2
    values = (start + np.arange(length)) * step - rounds * drift
    return values / rounds, power[(start + np.arange(length)) % length]


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.999, 2.001, 20.0, 1e4])
def test_moments_by_quadrature(sigma):
    """All four moments of Proposition C.2, on both sides of the switch to the power series (sigma = 2)."""
    with mp.workdps(22):
        u = mp.mpf(1) / mp.mpf(sigma)
        nodes = [u / 2 + k for k in (-30, -9, -4, -2, -1, 0, 1, 2, 4, 9)] + [4 * u + k for k in (9, 30)]
        nodes = sorted(set(nodes))

        def moment(power, absolute=False):
            def integrand(x):
                y = mp.expm1(u * x - u * u / 2)
                return (abs(y) if absolute else y) ** power * mp.npdf(x)

            return float(mp.quad(integrand, nodes))

        moments = ratio_moments(sigma)
        assert moments.variance == pytest.approx(moment(2), rel=1e-12)
        assert moments.third == pytest.approx(moment(3), rel=1e-9)
        assert moments.fourth == pytest.approx(moment(4), rel=1e-12)
        assert moments.absolute_third == pytest.approx(moment(3, absolute=True), rel=1e-12)


@pytest.mark.parametrize("sigma", [0.2, 0.4, 0.8, 1.0, 1.7, 3.0, 7.0, 20.0, 300.0])
def test_proposition_c3_orders_its_three_forms(sigma):
    """(19) <= (20) and (19) <= (21), without tolerance; (19) tends to B sqrt(8/pi)."""
    exact = berry_esseen_distance(sigma, 100)
    assert exact <= berry_esseen_distance_low_noise(sigma, 100)
    assert exact <= berry_esseen_distance_high_noise(sigma, 100)
    assert exact > 0.04748 * math.sqrt(8 / math.pi)


def test_proposition_c3_bounds_the_real_distance():
    """sigma = 1, n = 400, the law by FFT: the sup distance to the normal is below (19), by less than a factor 10."""
    values, masses = mean_ratio_law(1.0, 400, 0.01, 2**18)
    standardized = (values - 1.0) * math.sqrt(400 / math.expm1(1.0))
    distance = np.max(np.abs(np.cumsum(masses) - ndtr(standardized)))
    bound = berry_esseen_distance(1.0, 400)
    assert distance <= bound
    assert distance > 0.1 * bound


def printed_theorem(sigma, rounds):
    """The right-hand side of Theorem 4.1 and both sides of (1), term by term as printed, at 40 digits."""
    with mp.workdps(40):
        v = 1 / mp.mpf(sigma) ** 2
        big = mp.mpf("0.4748")
        mu = mp.sqrt((mp.exp(v) - 1) / (rounds - 1))
        root = mp.sqrt(2 * mp.e * mp.pi)
        berry = big * mp.exp(v) * (1 + 4 * mp.exp(-3 * v)) / (1 - mp.exp(-v)) ** 2 * mu
        log = mp.log(rounds)
        delta = (
            2 * berry
            + mu / mp.sqrt(2 * mp.pi)
            + (1 / (4 * mp.sqrt(2 * mp.pi)) + (1 + mp.exp(v) / (1 - mp.exp(-v))) / (2 * root)) * mu**2
            + mu**3 / (4 * root)
            + mu**4 / (32 * root)
            + mp.mpf("4.52")
            / (mp.mpf("2.88") * mp.sqrt(log) - mp.mpf("2.41") / mp.sqrt(log))
            * mp.mpf(rounds) ** (-mp.mpf(25) / 24)
        )
        return float(delta), float(mp.mpf(1) / 2 - mp.ncdf(-(mp.exp(v) - 1) / 2) - delta - berry)


@pytest.mark.parametrize(
    ("sigma", "rounds"), [(0.5, 2 * 10**7), (0.7, 10**6), (1.0, 5000), (2.0, 10**7), (5.0, 10**11), (20.0, 10**17)]
)
def test_theorem_4_1_as_printed(sigma, rounds):
    bound = shuffle_delta(sigma, rounds)
    delta, slack = printed_theorem(sigma, rounds)
    assert bound.delta == pytest.approx(delta, rel=1e-12)
    assert bound.slack == pytest.approx(slack, rel=1e-9)
    assert bound.slack >= 0.0
    assert shuffle_delta(sigma, rounds, sharp=True).delta <= bound.delta
    assert shuffle_delta_two_terms(sigma, rounds) < bound.delta


def test_table_1_to_the_printed_digits():
    for sigma, (two_terms, exact, records) in TABLE_1.items():
        assert f"{shuffle_rounds_two_terms(0.01, sigma):.2e}" == two_terms
        assert f"{shuffle_rounds(0.01, sigma):.2e}" == exact
        assert f"{shuffle_dataset_size(0.01, sigma):.2e}" == records
        assert shuffle_rounds(0.01, sigma) == pytest.approx(shuffle_rounds_two_terms(0.01, sigma), rel=1e-3)


def test_worked_multi_epoch_settings():
    """Section 6.2: 1.82e7 rounds for delta = 1/400, 1.14e10 for 1e-4, both at sigma = 1."""
    assert f"{shuffle_rounds(1 / 400, 1.0):.2e}" == "1.82e+07"
    assert f"{shuffle_rounds(1e-4, 1.0):.2e}" == "1.14e+10"
    assert f"{shuffle_dataset_size(1e-4, 1.0):.2e}" == "1.14e+11"


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.15, 0.01, 1e-4])
def test_the_inversion_is_the_smallest_count(sigma, delta):
    """At M the theorem gives delta under its conditions, by the printed formula; at M - 1 it does not."""
    rounds = shuffle_rounds(delta, sigma)
    value, slack = printed_theorem(sigma, rounds)
    assert value <= delta * (1 + 1e-12)
    assert slack >= -1e-12
    before, slack_before = printed_theorem(sigma, rounds - 1)
    assert before > delta * (1 - 1e-12) or slack_before < 1e-12
    assert shuffle_rounds(delta, sigma, sharp=True) <= rounds


def test_equation_3_implies_equation_4_where_the_paper_says():
    """delta <= (2/3)(1/2 - Phi(-(e^v-1)/2)): 0.20 at sigma = 1; 0.01 up to sigma = 3.71."""
    assert shuffle_rounds_two_terms(0.20, 1.0) >= shuffle_condition_rounds(1.0)
    assert shuffle_rounds_two_terms(0.01, 3.71) >= shuffle_condition_rounds(3.71)
    assert shuffle_rounds_two_terms(0.30, 1.0) < shuffle_condition_rounds(1.0)


def test_total_variation_of_the_pair_is_far_below_the_theorem():
    """The pair by FFT: TV = 0.00999 already at M = 2735, sigma = 1; at M = 429,713 it is 1/12 of the bound's 0.01."""
    values, masses = mean_ratio_law(1.0, 2735, 0.005, 2**19)
    assert float(np.sum(np.maximum(1 - values, 0) * masses)) == pytest.approx(0.0099895, rel=2e-4)
    rounds = shuffle_rounds(0.01, 1.0, sharp=True)
    values, masses = mean_ratio_law(1.0, rounds, 0.05, 2**19)
    truth = float(np.sum(np.maximum(1 - values, 0) * masses))
    assert truth <= shuffle_delta(1.0, rounds, sharp=True).delta
    assert truth == pytest.approx(math.sqrt(math.expm1(1.0) / rounds / (2 * math.pi)), rel=0.02)


def test_the_curve_is_not_symmetric_but_its_widest_point_is_inside():
    """P(mean > 1) differs from 1/2, by less than the Berry-Esseen distance: what replaces Lemma D.1's symmetry."""
    values, masses = mean_ratio_law(1.0, 2735, 0.005, 2**19)
    widest = float(np.sum(masses[values > 1.0]))
    assert 0.001 < abs(widest - 0.5) < berry_esseen_distance(1.0, 2735)


def test_the_theorem_fails_for_shuffling_in_the_worst_case():
    """sigma = 0.5, M = 1e10: it says 0.003968, and the max event of Chua et al. proves 0.004156 for real shuffling."""
    claimed = shuffle_delta(0.5, 10**10).delta
    attacked = shuffle_delta_lower(0.0, 0.5, 10**10)
    assert attacked.delta > claimed
    with mp.workdps(40):
        c, s = mp.mpf(attacked.threshold), mp.mpf("0.5")
        quiet = mp.ncdf(c / s) ** (10**10 - 1)
        assert quiet * (mp.ncdf((c - 1) / s) - mp.ncdf((c - 2) / s)) > claimed


def test_conditions_are_refused():
    with pytest.raises(ConditionError, match=r"sqrt\(3 / ln rounds\)"):
        shuffle_delta(0.4, 10**6)
    with pytest.raises(ConditionError, match="Condition \\(1\\)"):
        shuffle_delta(1.0, 1000)
    with pytest.raises(ConditionError, match="Condition \\(1\\)"):
        shuffle_delta(20.0, 10**10)
    with pytest.raises(ConditionError, match=r"sqrt\(3 / ln rounds\)"):
        shuffle_delta(0.4, 10**6, sharp=True)
    with pytest.raises(InputError, match="rounds"):
        shuffle_delta(1.0, 2)
    with pytest.raises(ConditionError, match="representable"):
        absolute_third_moment(0.05)


def test_epochs_of_the_line_compose_exactly():
    """Three copies of 'reveal with probability delta', enumerated: the best test has (1 - delta)^3 - a."""
    delta, fpr = 0.07, 0.2
    # Under the alternative an outcome is revealed with probability delta in each epoch; under the null never.
    hidden = sum(
        math.prod(delta if r else 1 - delta for r in pattern)
        for pattern in itertools.product((False, True), repeat=3)
        if not any(pattern)
    )
    assert epochs_tradeoff(delta, 3, fpr) == pytest.approx(hidden * (1 - fpr / hidden), rel=1e-14)
    assert epochs_tradeoff(delta, 10**6, fpr) == 0.0
    assert epochs_tradeoff(1e-12, 1, 0.0) == 1.0 - 1e-12
