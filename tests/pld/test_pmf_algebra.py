"""The algebra of laws against direct computation with the two distributions, as exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import finite_laws

from calipers.bracket import Side
from calipers.errors import InputError
from calipers.pld.core.pmf import PrivacyLossPmf

Masses = list[Fraction]
DENOMINATOR = 2**24


def dyadic(weights: list[int]) -> Masses:
    """Weights as probabilities whose denominators are powers of two, so that floats hold them exactly."""
    total = sum(weights)
    masses = [Fraction(w * DENOMINATOR // total, DENOMINATOR) for w in weights]
    masses[weights.index(max(weights))] += 1 - sum(masses)
    return masses


@st.composite
def pairs(draw: st.DrawFn, zeros: bool = True) -> tuple[Masses, Masses]:
    """Two distributions on up to seven points, some of which only one of them may reach."""
    size = draw(st.integers(2, 7))
    entry = st.one_of(st.integers(1, 50), st.integers(1, 10**5), *([st.just(0)] if zeros else []))
    columns = st.lists(entry, min_size=size, max_size=size).filter(lambda ws: sum(ws) > 0)
    return dyadic(draw(columns)), dyadic(draw(columns))


def law_of(p: Masses, q: Masses, side: Side) -> PrivacyLossPmf:
    return finite_laws.law_of(np.array([float(m) for m in p]), np.array([float(m) for m in q]), side)


def profile(p: Masses, q: Masses, eps: float) -> mp.mpf:
    """D_{e^eps}(P||Q) to 40 digits."""
    with mp.workdps(40):
        k = mp.exp(mp.mpf(eps))
        gains = (
            mp.mpf(a.numerator) / a.denominator - k * mp.mpf(b.numerator) / b.denominator
            for a, b in zip(p, q, strict=True)
        )
        return mp.fsum(g for g in gains if g > 0)


def assert_jaws(upper: PrivacyLossPmf, lower: PrivacyLossPmf, p: Masses, q: Masses, eps: float) -> None:
    truth = profile(p, q, eps)
    assert lower.delta(eps) <= truth <= upper.delta(eps)
    assert upper.delta(eps) - lower.delta(eps) <= 1e-12


epsilons = st.one_of(st.floats(-3.0, 8.0), st.just(0.0), st.floats(-1e-3, 1e-3))


@given(pairs(), epsilons)
def test_a_finite_pair_lies_between_its_laws(pair: tuple[Masses, Masses], eps: float) -> None:
    """No rounding is forgotten: the exact profile is between the two, which are 1e-12 apart."""
    p, q = pair
    assert_jaws(law_of(p, q, Side.UPPER), law_of(p, q, Side.LOWER), p, q, eps)


@given(pairs(), epsilons)
def test_reverse_swaps_the_pair(pair: tuple[Masses, Masses], eps: float) -> None:
    p, q = pair
    assert_jaws(law_of(p, q, Side.UPPER).reverse(), law_of(p, q, Side.LOWER).reverse(), q, p, eps)


@given(pairs(), epsilons, st.floats(1e-9, 1.0))
def test_subsample_mixes_p_with_q(pair: tuple[Masses, Masses], eps: float, rate: float) -> None:
    """Poisson subsampling is P -> (1 - rate) Q + rate P, in both orders of the pair."""
    p, q = pair
    r = Fraction(rate)
    mixed = [(1 - r) * b + r * a for a, b in zip(p, q, strict=True)]
    upper, lower = law_of(p, q, Side.UPPER).subsample(rate), law_of(p, q, Side.LOWER).subsample(rate)
    assert_jaws(upper, lower, mixed, q, eps)
    assert_jaws(upper.reverse(), lower.reverse(), q, mixed, eps)


@given(st.lists(pairs(), min_size=1, max_size=3), epsilons, st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_mixture_reveals_the_index(parts: list[tuple[Masses, Masses]], eps: float, shares: list[int]) -> None:
    """The pair of (index, outcome): the profile is the mean of the profiles."""
    weights = dyadic(shares[: len(parts)])
    p = [w * a for w, (ps, _) in zip(weights, parts, strict=True) for a in ps]
    q = [w * b for w, (_, qs) in zip(weights, parts, strict=True) for b in qs]
    made = {
        side: PrivacyLossPmf.mixture([law_of(*part, side) for part in parts], [float(w) for w in weights])
        for side in Side
    }
    assert_jaws(made[Side.UPPER], made[Side.LOWER], p, q, eps)


@given(pairs(), st.floats(0.01, 1.0), st.floats(0.01, 1.0), epsilons)
def test_subsampling_twice_multiplies_the_rates(
    pair: tuple[Masses, Masses], one: float, two: float, eps: float
) -> None:
    p, q = pair
    r = Fraction(one) * Fraction(two)
    mixed = [(1 - r) * b + r * a for a, b in zip(p, q, strict=True)]
    upper, lower = (law_of(p, q, side).subsample(one).subsample(two) for side in (Side.UPPER, Side.LOWER))
    assert_jaws(upper, lower, mixed, q, eps)


def test_tiny_masses_keep_their_promise() -> None:
    """Masses near 1e-290, where a logarithm has only 13 digits after the point: the charge grows with it."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        tiny_p, tiny_q = rng.uniform(1.0, 9.0, 2) * 10.0 ** rng.integers(-300, -280)
        p, q = [tiny_p, 1.0], [tiny_q, 1.0]
        eps = math.log(tiny_p / tiny_q) - rng.uniform(0.01, 0.5)
        truth = max(mp.mpf(0), mp.mpf(tiny_p) - mp.exp(mp.mpf(eps)) * mp.mpf(tiny_q))
        if eps > 1e-9:  # above 0 the atom of mass 1 contributes nothing
            assert law_of_floats(p, q, Side.LOWER).delta(eps) <= truth <= law_of_floats(p, q, Side.UPPER).delta(eps)


def law_of_floats(p: list[float], q: list[float], side: Side) -> PrivacyLossPmf:
    return finite_laws.law_of(np.array(p), np.array(q), side)


def test_infinite_and_zero_ratios() -> None:
    """Where Q vanishes P is lost for good; where P vanishes Q is; subsampling turns L = 0 into 1 - rate."""
    pmf = law_of_floats([0.25, 0.75, 0.0], [0.0, 0.5, 0.5], Side.UPPER)
    assert (pmf.p_inf, pmf.q_zero, pmf.size) == (0.25, 0.5, 1)
    assert pmf.delta(50.0) >= 0.25
    thinned = pmf.subsample(0.5)
    assert (thinned.p_inf, thinned.q_zero, thinned.size) == (0.125, 0.0, 2)
    assert thinned.log_ratio[0] == pytest.approx(math.log(0.5), rel=1e-15)


def test_subsampling_with_rate_one_changes_nothing() -> None:
    pmf = law_of_floats([0.25, 0.75], [0.5, 0.5], Side.UPPER)
    assert pmf.subsample(1.0) is pmf


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 2.0, 40.0, 1e4])
def test_cumulants(order: float) -> None:
    """K, K' and K'' of log E_Q[L^t], by direct sums in mpmath."""
    p, q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.45, 0.05]
    found = law_of_floats(p, q, Side.UPPER).cumulants(order)
    with mp.workdps(40):
        x = [mp.log(mp.mpf(a) / mp.mpf(b)) for a, b in zip(p, q, strict=True)]
        w = [mp.mpf(b) * mp.exp(mp.mpf(order) * y) for b, y in zip(q, x, strict=True)]
        total = mp.fsum(w)
        mean = mp.fsum(a * y for a, y in zip(w, x, strict=True)) / total
        variance = mp.fsum(a * (y - mean) ** 2 for a, y in zip(w, x, strict=True)) / total
    assert found[0] == pytest.approx(float(mp.log(total)), rel=1e-12, abs=1e-14)
    assert found[1] == pytest.approx(float(mean), rel=1e-11)
    assert found[2] == pytest.approx(float(variance), rel=1e-9, abs=1e-25)


def test_mixing_sides_raises() -> None:
    """An UPPER and a LOWER law together would bound nothing."""
    pmfs = [law_of_floats([0.25, 0.75], [0.5, 0.5], side) for side in Side]
    with pytest.raises(InputError, match="UPPER with a LOWER"):
        PrivacyLossPmf.mixture(pmfs, [0.5, 0.5])


HALVES = np.array([0.5, 0.5])


@pytest.mark.parametrize(
    "changed",
    [
        {"log_ratio": np.array([1.0, 0.0])},
        {"log_ratio": np.array([0.0])},
        {"log_ratio": np.array([0.0, math.nan])},
        {"log_p": np.array([-math.inf, 0.0])},
        {"log_q": np.array([0.0, math.inf])},
        {"p_inf": -0.1},
        {"p_inf": math.nan},
        {"q_zero": 1.5},
    ],
)
def test_laws_that_make_no_sense_are_refused(changed: dict[str, object]) -> None:
    fields: dict[str, object] = {
        "log_ratio": np.array([0.0, 0.0]),
        "log_p": np.log(HALVES),
        "log_q": np.log(HALVES),
        "side": Side.UPPER,
    }
    PrivacyLossPmf(**fields)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        PrivacyLossPmf(**(fields | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan, True, "0.5"])
def test_rates_outside_the_domain_are_refused(rate: object) -> None:
    with pytest.raises(InputError, match="rate"):
        law_of_floats([0.25, 0.75], [0.5, 0.5], Side.UPPER).subsample(rate)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [-0.5, 1.5], [math.nan, 0.5], []])
def test_weights_that_do_not_sum_to_one_are_refused(weights: list[float]) -> None:
    pmf = law_of_floats([0.25, 0.75], [0.5, 0.5], Side.UPPER)
    with pytest.raises(InputError, match=r"weight"):
        PrivacyLossPmf.mixture([pmf, pmf], weights)


@pytest.mark.parametrize("eps", [math.nan, math.inf, "1", True])
def test_epsilons_outside_the_domain_are_refused(eps: object) -> None:
    with pytest.raises(InputError, match="epsilon"):
        law_of_floats([0.25, 0.75], [0.5, 0.5], Side.UPPER).delta(eps)  # type: ignore[arg-type]
