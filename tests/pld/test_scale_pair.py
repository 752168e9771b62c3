"""The scale law against the chi-square closed form in mpmath, from one coordinate to 2e11."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from oracles import contour, division

from calipers.bracket import Side
from calipers.errors import CertificationError, InputError
from calipers.pld.composition.product import Product
from calipers.pld.composition.sweep import sweep
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.division.scale import scale_pair

# (degrees, divisor): together from hardly distinguishable to nearly certain.
SETTINGS = [(1, 1), (1, 1000), (2, 1), (2, 4), (3, 2), (10, 1), (10, 50), (1000, 20), (1000, 999)]
LARGE = [(26_009, 999), (26_009, 59_999), (5_200_000, 59_999), (5_200_000, 700)]
HUGE = [(200_000_000_000, 1_000_000)]


def probes(degrees: int, divisor: int) -> list[float]:
    """Epsilons around and far above the bulk of log L, whose deviation is sqrt(degrees / 2) times 2/divisor."""
    spread = math.sqrt(0.5 * degrees) * 2.0 * math.log1p(1.0 / divisor)
    return [spread * z for z in (-1.0, 0.0, 0.3, 1.0, 2.5)] + [
        0.5 * spread * spread + spread * z for z in (0.0, 3.0, 6.0)
    ]


def check(pmf: dict[Side, PrivacyLossPmf], degrees: int, divisor: int, epsilons: list[float], close: float) -> None:
    for order in division.ORDERS:
        upper, lower = (pmf[side] if order == "PQ" else pmf[side].reverse() for side in (Side.UPPER, Side.LOWER))
        for eps in epsilons:
            truth = division.scale_delta(degrees, divisor, eps, order)
            assert lower.delta(eps) <= truth <= upper.delta(eps), (order, eps)
            if truth > 1e-12:
                assert upper.delta(eps) - lower.delta(eps) <= close * truth, (order, eps)


@pytest.mark.parametrize(("degrees", "divisor"), SETTINGS)
def test_the_closed_form_lies_between_the_two_laws(degrees: int, divisor: int) -> None:
    """delta of LOWER <= F_d(t/s^2) - k F_d(t) <= delta of UPPER in both orders, and the bounds are close."""
    pair = scale_pair(degrees, divisor)
    pmfs = {Side.UPPER: pair.upper(0.05, -60.0), Side.LOWER: pair.lower(0.05, -60.0)}
    check(pmfs, degrees, divisor, probes(degrees, divisor), 0.05)


@pytest.mark.parametrize(("degrees", "divisor"), [(1, 1), (3, 2), (10, 3), (1000, 40)])
@pytest.mark.parametrize("log_tail", [-2.0, -5.0])
def test_what_tails_leave_out_is_charged(degrees: int, divisor: int, log_tail: float) -> None:
    """Laws that stop after two or three deviations still enclose the closed form."""
    pair = scale_pair(degrees, divisor)
    pmfs = {Side.UPPER: pair.upper(0.05, log_tail), Side.LOWER: pair.lower(0.05, log_tail)}
    check(pmfs, degrees, divisor, probes(degrees, divisor), math.inf)


@pytest.mark.parametrize(("degrees", "divisor"), LARGE)
def test_the_closed_form_in_large_dimensions(degrees: int, divisor: int) -> None:
    """26,009 to 5.2 million coordinates, where library chi-square functions lose their digits."""
    pair = scale_pair(degrees, divisor)
    pmfs = {Side.UPPER: pair.upper(0.05, -60.0), Side.LOWER: pair.lower(0.05, -60.0)}
    spread = math.sqrt(0.5 * degrees) * 2.0 / divisor
    check(pmfs, degrees, divisor, [0.0, spread, 0.5 * spread**2 + 4.0 * spread], 0.05)


@pytest.mark.parametrize(("degrees", "divisor"), HUGE)
def test_the_closed_form_in_hundreds_of_billions_of_coordinates(degrees: int, divisor: int) -> None:
    """A model of a billion parameters trained for 200 steps."""
    pair = scale_pair(degrees, divisor)
    pmfs = {Side.UPPER: pair.upper(0.05, -60.0), Side.LOWER: pair.lower(0.05, -60.0)}
    spread = math.sqrt(0.5 * degrees) * 2.0 / divisor
    check(pmfs, degrees, divisor, [0.0, 0.5 * spread**2 + 3.0 * spread], 0.05)


@pytest.mark.parametrize(("degrees", "divisor", "steps"), [(1, 2, 5), (3, 4, 2), (10, 9, 20), (1000, 999, 7)])
def test_rounds_of_few_coordinates_are_one_round_of_many(degrees: int, divisor: int, steps: int) -> None:
    """The truth for T d coordinates lies inside the brackets of T rounds of d, and of one round of T d."""
    for eps in (0.0, 0.4):
        truth = max(division.scale_delta(steps * degrees, divisor, eps, order) for order in division.ORDERS)
        for product in (
            Product([(scale_pair(degrees, divisor), steps)]),
            Product([(scale_pair(steps * degrees, divisor), 1)]),
        ):
            bounds = product.delta(eps, 1e-3)
            assert bounds.lower <= truth <= bounds.upper
            assert bounds.upper - bounds.lower <= 2e-3 * truth


@pytest.mark.parametrize(
    ("degrees", "divisor", "steps", "eps"), [(100, 9, 3, 0.7), (26_009, 999, 1, 0.2), (26_009, 700, 200, 30.0)]
)
def test_the_contour_integral_agrees(degrees: int, divisor: int, steps: int, eps: float) -> None:
    """An independent second route, through the moments: inside the bracket in both orders together."""
    truth = max(
        contour.delta(division.isotropic(degrees, divisor, 0.0), steps, eps, order) for order in division.ORDERS
    )
    bounds = Product([(scale_pair(steps * degrees, divisor), 1)]).delta(eps, 1e-3)
    assert bounds.lower <= truth * (1 + 1e-9)
    assert truth * (1 - 1e-9) <= bounds.upper
    assert bounds.upper - bounds.lower <= 2e-3 * truth


ALPHAS = (0.001, 0.01, 0.1, 0.25, 0.5)
TABLE = [
    (26_009, 999, (0.997909, 0.98212, 0.854091, 0.672446, 0.409721)),
    (1_485_216, 59_999, (0.998899, 0.989209, 0.894868, 0.740786, 0.488542)),
]


@pytest.mark.parametrize(("degrees", "divisor", "betas"), TABLE)
def test_tradeoff_values(degrees: int, divisor: int, betas: tuple[float, ...]) -> None:
    """beta = 1 - F_d(t / s^2) at alpha = F_d(t): mpmath reproduces the table, and the curves enclose it."""
    curves = sweep(Product([(scale_pair(degrees, divisor), 1)]), 1e-12, 1e-3)
    for alpha, beta in zip(ALPHAS, betas, strict=True):
        truth = true_beta(degrees, divisor, alpha)
        assert abs(float(truth) - beta) <= 6e-7
        # The curves are symmetric: the smaller of both orders.
        other = true_beta_reversed(degrees, divisor, alpha)
        assert float(curves[Side.UPPER](alpha)) <= min(truth, other)
        # A hull of tests may lie below either order, never above the first.
        assert float(curves[Side.LOWER](alpha)) <= min(truth, other) + 2e-4


def true_beta(degrees: int, divisor: int, alpha: float) -> mp.mpf:
    shape, share = mp.mpf(degrees) / 2, (mp.mpf(divisor) / (divisor + 1)) ** 2
    start = float(shape) + _normal_quantile(alpha) * math.sqrt(float(shape))
    half = mp.findroot(
        lambda x: division.lower_gamma(shape, x) - alpha, (start, start + 0.01 * math.sqrt(float(shape))), tol=1e-12
    )
    return 1 - division.lower_gamma(shape, half / share)


def true_beta_reversed(degrees: int, divisor: int, alpha: float) -> mp.mpf:
    """Size alpha under the smaller variance: reject long vectors."""
    shape, share = mp.mpf(degrees) / 2, (mp.mpf(divisor) / (divisor + 1)) ** 2
    start = float(shape) - _normal_quantile(alpha) * math.sqrt(float(shape))
    half = mp.findroot(
        lambda x: division.upper_gamma(shape, x) - alpha, (start, start + 0.01 * math.sqrt(float(shape))), tol=1e-12
    )
    return division.lower_gamma(shape, half * share)


def _normal_quantile(alpha: float) -> float:
    return float(mp.sqrt(2) * mp.erfinv(2 * mp.mpf(alpha) - 1))


def test_the_published_bound_is_far_from_the_exact_value() -> None:
    """T = 200, n = 26,010, K = 700, alpha = 0.1: beta = 0.000443787 exactly."""
    assert abs(float(true_beta(200 * 26_009, 700, 0.1)) - 0.000443787) <= 6e-10


def test_both_laws_carry_all_mass() -> None:
    """UPPER laws have at least mass 1 on both sides, LOWER laws at most."""
    for degrees, divisor in SETTINGS + LARGE:
        upper = scale_pair(degrees, divisor).upper(0.1, -40.0)
        lower = scale_pair(degrees, divisor).lower(0.1, -40.0)
        for pmf, sign in ((upper, 1.0), (lower, -1.0)):
            blur = 4.0 * pmf.rounding + 1e-12
            assert sign * (math.fsum(np.exp(pmf.log_p)) + pmf.p_inf - 1.0) >= -blur
            assert sign * (math.fsum(np.exp(pmf.log_q)) + pmf.q_zero - 1.0) >= -blur


@pytest.mark.parametrize(
    ("degrees", "divisor"), [(0, 5), (-1, 5), (1.5, 5), (True, 5), (10**15 + 1, 5), (5, 0), (5, 2**54), (5, math.nan)]
)
def test_what_is_no_dimension_or_divisor_is_refused(degrees: float, divisor: float) -> None:
    """Both are whole numbers in a stated domain."""
    with pytest.raises(InputError):
        scale_pair(degrees, divisor)  # type: ignore[arg-type]


def test_datasets_told_apart_with_certainty_are_refused_in_words() -> None:
    """A divisor of 1 against 2 in 10^12 coordinates: the message says what is wrong."""
    with pytest.raises(CertificationError, match="distinguished with certainty"):
        scale_pair(10**12, 1)
