"""TradeoffCurve against rational arithmetic, closed forms and enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.bracket import Side
from calipers.curves import TradeoffCurve, adp_tradeoff, compare, gaussian_curve
from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon, gaussian_power, gaussian_tradeoff

SIDES = (Side.UPPER, Side.LOWER)


def exact_pair(weights):
    """A pair (P, Q) with rational masses, and the same masses as floats (dyadic, so they are equal)."""
    p = [Fraction(w, 1024) for w, _ in weights]
    q = [Fraction(w, 1024) for _, w in weights]
    return p, q


@st.composite
def dyadic_pairs(draw, largest=6):
    """Masses in multiples of 1/1024 that sum to 1 exactly in floating point."""
    count = draw(st.integers(1, largest))

    def masses():
        cuts = sorted(draw(st.lists(st.integers(0, 1024), min_size=count - 1, max_size=count - 1)))
        return [b - a for a, b in itertools.pairwise([0, *cuts, 1024])]

    return exact_pair(list(zip(masses(), masses(), strict=True)))


def exact_profile(p, q, k):
    """sum (p - k q)+, by definition."""
    return sum((max(a - k * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


def exact_tradeoff(p, q, alpha):
    """The smallest false negative rate at alpha, by filling the best atoms first (fractional knapsack)."""
    order = sorted(range(len(p)), key=lambda i: math.inf if q[i] == 0 else p[i] / q[i], reverse=True)
    beta, left = Fraction(1), alpha
    for i in order:
        share = Fraction(1) if q[i] <= left else left / q[i]
        beta -= share * p[i]
        left -= share * q[i]
        if left <= 0 and q[i] > 0:
            break
    return beta


def as_floats(masses):
    return [float(x) for x in masses]


@given(dyadic_pairs(), st.integers(0, 256))
def test_the_curve_of_atoms_brackets_the_neyman_pearson_curve(pair, step):
    p, q = pair
    alpha = Fraction(step, 256)
    truth = exact_tradeoff(p, q, alpha)
    below = TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=Side.UPPER)
    above = TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=Side.LOWER)
    assert Fraction(float(below(float(alpha)))) <= truth <= Fraction(float(above(float(alpha))))
    assert float(above(float(alpha))) - float(below(float(alpha))) < 1e-13


@given(dyadic_pairs(), st.sampled_from([Fraction(1, 8), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(16)]))
def test_the_profile_of_a_curve_is_the_hockey_stick_divergence(pair, k):
    p, q = pair
    truth = exact_profile(p, q, k)
    eps = math.log(k)
    below, above = (
        float(TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=side).delta(eps)) for side in reversed(SIDES)
    )
    # math.log of a power of two and exp of it are not inverse; the slack is one ulp of k.
    slack = Fraction(1, 2**50) * k
    assert Fraction(below) - slack <= truth <= Fraction(above) + slack
    assert above - below < 1e-13 * (1 + float(k))


@given(dyadic_pairs())
def test_profile_nodes_give_the_curve_back(pair):
    """A finite pair's profile is linear between its likelihood ratios, so those nodes are the whole curve."""
    p, q = pair
    ratios = sorted({a / b for a, b in zip(p, q, strict=True) if a and b} | {Fraction(1)})
    forward = [r for r in ratios if r >= 1]
    backward = [1 / r for r in ratios if r <= 1]
    nodes = [(math.log(k), float(exact_profile(p, q, k))) for k in forward]
    mirrored = [(math.log(k), float(exact_profile(q, p, k))) for k in backward]
    curve = TradeoffCurve.from_profile(*zip(*nodes, strict=True), reverse=tuple(zip(*mirrored, strict=True)))
    direct = TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=Side.UPPER)
    grid = np.linspace(0.0, 1.0, 65)
    assert np.max(np.abs(curve(grid) - direct(grid))) < 1e-12
    signed = [(math.log(k), float(exact_profile(p, q, k))) for k in ratios]
    again = TradeoffCurve.from_profile(*zip(*signed, strict=True))
    assert np.max(np.abs(again(grid) - direct(grid))) < 1e-12


@given(dyadic_pairs(), dyadic_pairs())
def test_tensor_is_the_pair_of_products(first, second):
    """Enumerating the product of two pairs in rational arithmetic gives a curve inside the two tensors."""
    joint = [[a * b for a in x for b in y] for x, y in zip(first, second, strict=True)]
    curves = {}
    for side in SIDES:
        one, two = (TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=side) for p, q in (first, second))
        curves[side] = one.tensor(two)
    for step in range(0, 65, 8):
        alpha = Fraction(step, 64)
        truth = exact_tradeoff(*joint, alpha)
        assert Fraction(float(curves[Side.UPPER](float(alpha)))) <= truth
        assert Fraction(float(curves[Side.LOWER](float(alpha)))) >= truth
        assert float(curves[Side.LOWER](float(alpha))) - float(curves[Side.UPPER](float(alpha))) < 1e-12


def test_composing_randomized_response_by_hand():
    """Two rounds of randomized response with p = 3/4: TPR 9/16 at FPR 1/16, 15/16 at 7/16."""
    response = TradeoffCurve.from_atoms([0.75, 0.25], [0.25, 0.75], side=Side.UPPER)
    twice = response.tensor(response)
    assert twice(1 / 16) == pytest.approx(7 / 16, abs=1e-14)
    assert twice(7 / 16) == pytest.approx(1 / 16, abs=1e-14)
    assert twice.epsilon(0.0) == pytest.approx(2 * math.log(3.0), rel=1e-14)
    assert twice.delta(math.log(3.0)) == pytest.approx(9 / 16 - 3 / 16, rel=1e-13)


@given(dyadic_pairs(), dyadic_pairs(), st.integers(1, 15))
def test_a_mixture_is_the_pair_with_its_index_revealed(first, second, sixteenths):
    weight = Fraction(sixteenths, 16)
    joint = [[weight * a for a in x] + [(1 - weight) * b for b in y] for x, y in zip(first, second, strict=True)]
    for side in SIDES:
        parts = [TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=side) for p, q in (first, second)]
        mixed = TradeoffCurve.mixture(parts, [float(weight), float(1 - weight)])
        for alpha in (Fraction(0), Fraction(1, 16), Fraction(1, 2), Fraction(15, 16)):
            value, truth = Fraction(float(mixed(float(alpha)))), exact_tradeoff(*joint, alpha)
            assert value <= truth if side is Side.UPPER else value >= truth
            assert abs(value - truth) < Fraction(1, 10**12)


@given(dyadic_pairs())
def test_inverse_is_the_swapped_pair_and_an_involution(pair):
    p, q = pair
    curve = TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=Side.UPPER)
    swapped = TradeoffCurve.from_atoms(as_floats(q), as_floats(p), side=Side.LOWER)
    assert compare(curve.inverse().inverse(), curve) == "equal"
    grid = np.linspace(0.0, 1.0, 33)
    assert np.max(np.abs(curve.inverse()(grid) - swapped(grid))) < 1e-12


@given(dyadic_pairs())
def test_symmetrising_is_idempotent_and_below_both(pair):
    p, q = pair
    for side in SIDES:
        curve = TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=side)
        symmetric = curve.symmetrized()
        assert compare(symmetric, symmetric.symmetrized()) == "equal"
        if side is Side.UPPER:
            assert symmetric.is_below(curve)
            assert symmetric.is_below(curve.inverse())
        assert compare(symmetric, symmetric.inverse()) == "equal"
        # Nothing larger: every vertex is a vertex of f or of its inverse.
        originals = set(zip(curve.alpha, curve.beta, strict=True)) | set(zip(curve.beta, curve.alpha, strict=True))
        assert set(zip(symmetric.alpha, symmetric.beta, strict=True)) <= originals


@given(dyadic_pairs())
def test_epsilon_inverts_delta(pair):
    p, q = pair
    curve = TradeoffCurve.from_atoms(as_floats(p), as_floats(q), side=Side.UPPER)
    for delta in (0.001, 0.1, 0.4):
        eps = curve.epsilon(delta)
        if math.isinf(eps):
            assert exact_tradeoff(p, q, Fraction(0)) < 1 - Fraction(delta)
            continue
        k = Fraction(math.exp(eps)) * (1 + Fraction(1, 2**50))
        assert exact_profile(p, q, k) <= Fraction(delta)
        if eps > 1e-12:
            assert exact_profile(p, q, k * (1 - Fraction(1, 10**11))) > Fraction(delta) * (1 - Fraction(1, 10**9))


@pytest.mark.parametrize("mu", [0.01, 0.5, 1.0, 4.0])
def test_a_discretized_gaussian_brackets_the_closed_forms_without_tolerance(mu):
    below, above = gaussian_curve(mu, Side.UPPER), gaussian_curve(mu, Side.LOWER)
    assert compare(above, below) == "first more private"
    for alpha in (1e-200, 1e-40, 1e-9, 1e-3, 0.2, 0.5, 0.9, 0.999):
        # Powers and misses are compared where each has its digits.
        assert below.rates(alpha)[1] >= gaussian_power(mu, alpha) >= above.rates(alpha)[1]
        assert below(alpha) <= gaussian_tradeoff(mu, alpha) <= above(alpha)
        # Second order in the spacing 0.037 times the depth, which is 30 standard deviations at alpha = 1e-200.
        assert below.rates(alpha)[1] / above.rates(alpha)[1] - 1.0 < (2e-3 if alpha > 1e-12 else 5e-2)
    for delta in (1e-250, 1e-50, 1e-10, 1e-5, 1e-3):
        assert below.epsilon(delta) >= gaussian_epsilon(mu, delta) >= above.epsilon(delta)
    for eps in (0.0, 0.1, 1.0, 5.0, -1.0):
        assert below.delta(eps) >= gaussian_delta(mu, eps) >= above.delta(eps)


def test_tails_survive_in_all_four_corners():
    """alpha = 1e-40 with 1 - beta = 1e-38, and the mirrored point, come back with all digits."""
    tests = TradeoffCurve.from_tests(alpha=[1e-40, 1.0], power=[1e-38, 1.0], alpha_c=[1.0, 1e-38], power_c=[1.0, 1e-40])
    assert tests.rates(1e-40)[1] == 1e-38
    assert tests(1.0, 1e-38) == 1e-40
    assert tests.delta(math.log(50.0)) == pytest.approx(5e-39, rel=1e-13)
    assert tests.epsilon(5e-39) == pytest.approx(math.log(50.0), rel=1e-14)
    assert tests.inverse().rates(1e-40)[1] == 1e-38
    twice = tests.tensor(tests)
    assert twice.rates(1e-80)[1] == pytest.approx(1e-76, rel=1e-12)


def test_an_approximate_dp_curve_by_hand():
    """The vertex of (eps, delta) is at (1 - delta)/(1 + e^eps) on the diagonal."""
    curve = adp_tradeoff(1.0, 0.1)
    corner = 0.9 / (1.0 + math.e)
    assert curve.alpha.tolist() == pytest.approx([0.0, corner, 0.9], rel=1e-14)
    assert curve.beta.tolist() == pytest.approx([0.9, corner, 0.0], rel=1e-14)
    assert curve(0.0) == 0.9
    assert curve.epsilon(0.1) == pytest.approx(1.0, rel=1e-14)
    assert curve.epsilon(0.09) == math.inf
    assert compare(curve, adp_tradeoff(1.0, 0.05)) == "second more private"
    assert compare(adp_tradeoff(0.5, 0.1), adp_tradeoff(1.0, 0.05)) == "incomparable"
    assert compare(curve, TradeoffCurve.perfect_privacy()) == "second more private"


def test_rates_stay_probabilities_next_to_the_corners():
    curve = gaussian_curve(1.0, Side.LOWER)
    assert curve(1e-30) <= 1.0
    assert gaussian_curve(1.0, Side.UPPER).rates(1.0 - 1e-16)[1] <= 1.0


def test_a_loose_node_does_not_bind():
    """A node above the chord of its neighbors changes nothing, nor do later nodes that are larger."""
    good = TradeoffCurve.from_profile([0.0, 2.0], [0.4, 0.001], symmetric=True)
    more = TradeoffCurve.from_profile([0.0, 1.0, 2.0, 3.0], [0.4, 0.39, 0.001, 0.5], symmetric=True)
    assert compare(good, more) == "equal"


def test_a_loose_node_at_zero_does_not_bind():
    tight = TradeoffCurve.from_profile([0.5], [0.01], symmetric=True)
    with_zero = TradeoffCurve.from_profile([0.0, 0.5], [0.9, 0.01], symmetric=True)
    grid = np.linspace(0.0, 1.0, 101)
    assert np.max(np.abs(tight(grid) - with_zero(grid))) < 1e-14


def test_nodes_far_beyond_the_range_of_exp():
    curve = TradeoffCurve.from_profile([0.0, 600.0, 800.0], [0.5, 1e-290, 1e-300], symmetric=True)
    assert curve.epsilon(1.1e-290) == pytest.approx(600.0, rel=1e-6)
    # The meeting of the last two lines underflows; the answer is then the safe one.
    assert curve.epsilon(0.9e-290) == math.inf
    assert curve.delta(750.0) >= 1e-300


def test_tests_worse_than_guessing_are_replaced_by_guessing():
    assert compare(TradeoffCurve.from_tests([0.5], [0.2]), TradeoffCurve.perfect_privacy(Side.LOWER)) == "equal"


def test_comparison_needs_no_tolerance():
    """One ulp decides, and a point inside a segment is compared in rational arithmetic."""
    base = TradeoffCurve.from_tests([0.1], [0.5])
    finer = TradeoffCurve.from_tests([0.1], [np.nextafter(0.5, 1.0)])
    assert compare(base, finer) == "first more private"
    half = TradeoffCurve(
        np.array([0.0, 0.5, 1.0]),
        np.array([1.0, 0.5, 0.0]),
        np.array([1.0, 0.5, 0.0]),
        np.array([0.0, 0.5, 1.0]),
        Side.UPPER,
    )
    assert compare(half, TradeoffCurve.perfect_privacy()) == "equal"


def test_a_vertex_one_ulp_off_a_chord_is_seen():
    """The chord from (0, 1) to (0.3, 0.1) at 0.07 is no float; its two float neighbors lie on different sides."""
    steep = TradeoffCurve.from_tests([0.3], [0.9])
    stop_alpha, stop_beta = Fraction(0.3), 1 - Fraction(0.9)
    chord = 1 + (stop_beta - 1) * Fraction(0.07) / stop_alpha
    near = float(1 - chord)
    smaller, larger = (x for x in (near, np.nextafter(near, 0.0 if Fraction(near) > 1 - chord else 1.0)))
    powers = sorted((smaller, larger))
    assert Fraction(powers[0]) < 1 - chord < Fraction(powers[1])

    def with_power(power):
        alpha, beta_c = np.array([0.0, 0.07, 0.3, 1.0]), np.array([0.0, power, 0.9, 1.0])
        return TradeoffCurve(alpha, 1.0 - beta_c, 1.0 - alpha, beta_c, Side.LOWER)

    assert steep.is_below(with_power(powers[0]))
    assert not steep.is_below(with_power(powers[1]))


@pytest.mark.parametrize(
    "build",
    [
        lambda: TradeoffCurve.from_profile([], []),
        lambda: TradeoffCurve.from_profile([1.0], [1.5]),
        lambda: TradeoffCurve.from_profile([math.nan], [0.1]),
        lambda: TradeoffCurve.from_profile([-1.0], [0.1]),
        lambda: TradeoffCurve.from_profile([-1.0, 1.0], [0.9, 0.1], symmetric=True),
        lambda: TradeoffCurve.from_profile([1.0], [0.1], reverse=([-1.0], [0.9])),
        lambda: TradeoffCurve.from_tests([0.1, 0.2], [0.5]),
        lambda: TradeoffCurve.from_tests([0.1], [math.nan]),
        lambda: TradeoffCurve.from_tests([0.1], [0.5], alpha_c=[0.8]),
        lambda: TradeoffCurve.from_atoms([0.5, 0.4], [0.5, 0.5], side=Side.UPPER),
        lambda: TradeoffCurve.from_atoms([1.0], [0.5, 0.5], side=Side.UPPER),
        lambda: TradeoffCurve.mixture([TradeoffCurve.perfect_privacy()], [0.5, 0.5]),
        lambda: TradeoffCurve.mixture([TradeoffCurve.perfect_privacy()], [0.5]),
        lambda: TradeoffCurve.perfect_privacy().tensor(TradeoffCurve.perfect_privacy(Side.LOWER)),
        lambda: TradeoffCurve.perfect_privacy().epsilon(math.nan),
        lambda: TradeoffCurve.perfect_privacy().delta(math.inf),
        lambda: TradeoffCurve.perfect_privacy()(1.5),
        lambda: gaussian_curve(1.0, Side.LOWER, 2000).tensor(gaussian_curve(1.0, Side.LOWER, 2000)),
    ],
)
def test_bad_input_raises(build):
    with pytest.raises(InputError):
        build()


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [
        ([0.0, 0.5, 1.0], [1.0, 0.6, 0.0]),  # above 1 - alpha
        ([0.0, 0.2, 0.4, 0.9], [1.0, 0.6, 0.1, 0.0][:4]),  # slopes -2, -2.5
        ([0.1, 1.0], [0.9, 0.0]),  # does not start at 0
        ([0.0, 0.5], [1.0, 0.2]),  # does not end at beta = 0
        ([0.0, 0.5, 0.4], [1.0, 0.3, 0.0]),  # not increasing
    ],
)
def test_shapes_that_are_no_trade_off_curve_raise(alpha, beta):
    alpha, beta = np.array(alpha), np.array(beta)
    with pytest.raises(InputError):
        TradeoffCurve(alpha, beta, 1.0 - alpha, 1.0 - beta, Side.UPPER)


def test_stored_arrays_are_read_only():
    curve = TradeoffCurve.perfect_privacy()
    with pytest.raises(ValueError, match="read-only"):
        curve.alpha[0] = 0.5
