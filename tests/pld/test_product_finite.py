"""Compositions of finite pairs from both sides, against enumeration of all outcomes in exact fractions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from oracles import enumeration
from oracles.finite_laws import law_of

from calipers.bracket import Side
from calipers.errors import InputError
from calipers.pld.composition.direction import Direction
from calipers.pld.composition.product import Product
from calipers.pld.composition.saddle import saddle_at
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import TwoSidedPair

AS_DRAWN = (Phase.explicit, Phase.generate)
"""Failures are shown as drawn: shrinking would repeat compositions for minutes."""


@dataclass(frozen=True)
class Finite(TwoSidedPair):
    """Two probability vectors as a source of laws."""

    p: tuple[float, ...]
    q: tuple[float, ...]
    symmetric: bool = False

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        return law_of(np.array(self.p), np.array(self.q), Side.UPPER)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        return law_of(np.array(self.p), np.array(self.q), Side.LOWER)


@pytest.mark.parametrize("truth", [0.52, 0.75, 0.99])
@pytest.mark.parametrize("steps", [1, 2, 7, 100, 400])
def test_randomized_response(truth: float, steps: int) -> None:
    """T answers are a binomial; fractions give the exact delta, and it lies inside."""
    product = Product([(Finite((truth, 1 - truth), (1 - truth, truth), symmetric=True), steps)])
    t = Fraction(truth)
    largest = steps * math.log(truth / (1 - truth))
    for share in (0.0, 0.02, 0.1, 0.4):
        eps = share * largest
        # 1 - truth is rounded, so the pair is (t, s) with s that float: two exact numbers that need not sum to 1.
        exact = _binary_profile(t, Fraction(1 - truth), steps, eps)
        bounds = product.delta(eps)
        assert bounds.lower <= exact <= bounds.upper, eps


def _binary_profile(t: Fraction, s: Fraction, steps: int, eps: float) -> mp.mpf:
    with mp.workdps(60):
        a, b, k = mp.mpf(t.numerator) / t.denominator, mp.mpf(s.numerator) / s.denominator, mp.exp(mp.mpf(eps))
        gains = (
            math.comb(steps, n) * (a**n * b ** (steps - n) - k * b**n * a ** (steps - n)) for n in range(steps + 1)
        )
        return mp.fsum(g for g in gains if g > 0)


@pytest.mark.parametrize("tilt", [1.5, 3.0, 6.0])
def test_one_moment_bounds_the_profile_from_above(tilt: float) -> None:
    """(L - k)+ <= L^t k^(1-t) for every t, so its mean is at least the profile; and near it where t is suitable."""
    direction, _ = Direction.of([(Finite((0.75, 0.25), (0.25, 0.75), symmetric=True), 7)])
    saddle = saddle_at(direction.pilot(-40.0), tilt)
    slack = []
    for epsilon in (0.5, 2.0, 3.5, 5.0):
        exact = float(_binary_profile(Fraction(3, 4), Fraction(1, 4), 7, epsilon))
        slack.append(direction.moment_bound(epsilon, saddle, -40.0) / exact)
    assert 1.0 <= min(slack) < 20.0


def test_randomized_response_agrees_with_the_oracle() -> None:
    """The formula above is the enumeration oracle's where probabilities are exact."""
    for steps, k in ((3, Fraction(1)), (8, Fraction(5, 2))):
        theirs = enumeration.randomized_response(Fraction(3, 4), steps, k)
        ours = _binary_profile(Fraction(3, 4), Fraction(1, 4), steps, math.log(k))
        assert abs(ours - mp.mpf(theirs.numerator) / theirs.denominator) < mp.mpf(1e-15)


def _dyadic(weights: list[int]) -> tuple[float, ...]:
    total = sum(weights)
    masses = [w * 2**20 // total for w in weights]
    masses[weights.index(max(weights))] += 2**20 - sum(masses)
    return tuple(m / 2**20 for m in masses)


@st.composite
def finite_sources(draw: st.DrawFn) -> Finite:
    size = draw(st.integers(2, 4))
    column = st.lists(st.one_of(st.integers(0, 20), st.integers(1, 2000)), min_size=size, max_size=size)
    p, q = draw(column.filter(lambda ws: sum(ws) > 0)), draw(column.filter(lambda ws: sum(ws) > 0))
    # At least one outcome must be possible both ways, or there is nothing to compose.
    p[0], q[0] = p[0] + 5, q[0] + 7
    return Finite(_dyadic(p), _dyadic(q))


FACTORS = st.lists(st.tuples(finite_sources(), st.integers(1, 3)), min_size=1, max_size=2)


def _exact_delta(factors: list[tuple[Finite, int]], eps: float) -> mp.mpf:
    """Both directions by enumeration of all products of the finite laws."""
    with mp.workdps(40):
        k = mp.exp(mp.mpf(eps))
        found = []
        for swap in (False, True):
            joint: dict[Fraction, Fraction] = {Fraction(1): Fraction(1)}
            survives = Fraction(1)
            for source, count in factors:
                p, q = (source.q, source.p) if swap else (source.p, source.q)
                one, lost = enumeration.product_law([Fraction(x) for x in p], [Fraction(x) for x in q], count)
                survives *= 1 - lost
                joint = _multiplied(joint, one)
            gains = (
                (mp.mpf(r.numerator) / r.denominator - k) * mp.mpf(m.numerator) / m.denominator
                for r, m in joint.items()
            )
            lost = 1 - survives
            found.append(mp.fsum(g for g in gains if g > 0) + mp.mpf(lost.numerator) / lost.denominator)
        return max(found)


def _multiplied(first: dict[Fraction, Fraction], second: dict[Fraction, Fraction]) -> dict[Fraction, Fraction]:
    total: dict[Fraction, Fraction] = {}
    for a, m in first.items():
        for b, n in second.items():
            total[a * b] = total.get(a * b, Fraction(0)) + m * n
    return total


@settings(max_examples=60, phases=AS_DRAWN)
@given(FACTORS, st.floats(0.0, 4.0))
def test_products_of_finite_pairs(factors: list[tuple[Finite, int]], eps: float) -> None:
    """Any finite pairs, with outcomes that give the datasets away, in any number: the exact delta is inside."""
    bounds = Product(factors).delta(eps)
    assert bounds.lower <= _exact_delta(factors, eps) <= bounds.upper


@settings(max_examples=25, phases=AS_DRAWN)
@given(
    st.lists(st.tuples(finite_sources(), st.integers(1, 3)), min_size=1, max_size=2), st.sampled_from([0.3, 0.05, 1e-3])
)
def test_epsilons_of_finite_pairs(factors: list[tuple[Finite, int]], delta: float) -> None:
    """delta at the upper eps is at most delta, at the lower eps at least; infinite where no eps would do."""
    bounds = Product(factors).epsilon(delta)
    if bounds.upper < math.inf:
        assert _exact_delta(factors, bounds.upper) <= delta
    if 0.0 < bounds.lower < math.inf:
        assert _exact_delta(factors, bounds.lower) >= delta
    if bounds.lower == math.inf:
        assert _exact_delta(factors, 200.0) > delta


def test_the_far_end_of_a_finite_pair() -> None:
    """Near its largest ratio a finite law is tilted by 1e9, and tilt times ratio has no digits after the point left.

    The bounds may widen there. They may not cross.
    """
    factors = [
        (
            Finite(
                (0.005578041076660156, 0.8727188110351562, 0.1217031478881836),
                (0.01971149444580078, 0.25473785400390625, 0.725550651550293),
            ),
            3,
        ),
        (
            Finite(
                (0.473663330078125, 0.1295328140258789, 0.29317760467529297, 0.10362625122070312),
                (0.7846174240112305, 0.02115345001220703, 0.019229888916015625, 0.17499923706054688),
            ),
            2,
        ),
    ]
    bounds = Product(factors).epsilon(1e-3)
    assert bounds.lower <= bounds.upper
    assert _exact_delta(factors, bounds.upper) <= 1e-3 <= _exact_delta(factors, bounds.lower)


def test_a_leak_that_no_epsilon_covers() -> None:
    """With P-mass at infinity above delta no eps is enough; below it there is one, and both bounds know."""
    leaky = Finite((0.01, 0.5, 0.49), (0.0, 0.4, 0.6))
    exact = 1 - 0.99**3
    product = Product([(leaky, 3)])
    assert product.epsilon(0.5 * exact).lower == math.inf
    assert product.epsilon(2.0 * exact).upper < math.inf
    bounds = product.delta(30.0)
    assert bounds.lower <= exact <= bounds.upper
    assert bounds.lower >= 0.99 * exact, "rejecting where Q vanishes is a test too"


def test_factors_of_different_sides_are_refused() -> None:
    """A source that hands out the wrong side is found out before anything is computed from it."""

    class Liar(Finite):
        def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
            return law_of(np.array(self.p), np.array(self.q), Side.LOWER)

    with pytest.raises(InputError):
        Product([(Liar((0.5, 0.5), (0.4, 0.6)), 2)]).epsilon(1e-3)
