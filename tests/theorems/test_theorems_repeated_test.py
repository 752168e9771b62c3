"""Repeating a test and revealing a mixture, against exact enumeration in fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from oracles.finite import tradeoff

from calipers.bracket import Side
from calipers.curves import TradeoffCurve, gaussian_curve
from calipers.errors import ConditionError, InputError
from calipers.numerics.normal import gaussian_tradeoff
from calipers.theorems.division_ceilings import repeated_test_fnr, revealed_mixture_ceiling


@pytest.mark.parametrize("copies", [1, 2, 5, 9])
@pytest.mark.parametrize("fpr", ["0", "1/1000", "1/10", "1/2", "99/100", "1"])
def test_the_counting_test_is_the_best_between_coins(copies, fpr):
    """Against all 2^n outcomes of n coins, in fractions: never below, and above by rounding only."""
    level, miss = Fraction(1, 4), Fraction(3, 8)
    null, alternative = [], []
    for coins in itertools.product((0, 1), repeat=copies):
        null.append(math.prod(level if coin else 1 - level for coin in coins))
        alternative.append(math.prod(1 - miss if coin else miss for coin in coins))
    exact = tradeoff(null, alternative, Fraction(fpr))
    found = Fraction(repeated_test_fnr(float(Fraction(fpr)), copies, float(level), float(miss)))
    assert exact <= found <= exact + Fraction(1, 10**10)


@pytest.mark.parametrize("copies", [1, 3, 10, 100])
def test_it_bounds_the_composed_curve_and_falls_exponentially(copies):
    """f = G_1 composed is G_sqrt(n), which lies below; ten times the copies make ten times the logarithm."""
    single = float(gaussian_tradeoff(1.0, 0.3))
    bound = repeated_test_fnr(0.05, copies, 0.3, single)
    assert float(gaussian_tradeoff(math.sqrt(copies), 0.05)) < bound
    if copies == 100:
        far = repeated_test_fnr(0.05, 1000, 0.3, single)
        assert math.log(far) / math.log(bound) > 10.0


def test_guessing_is_refused():
    with pytest.raises(ConditionError, match=r"0\.5 \+ 0\.5"):
        repeated_test_fnr(0.1, 10, 0.5, 0.5)


def test_an_even_split_is_never_better_than_the_best_one():
    """Lemma 3.3: the weighted sum lies above the revealed mixture, strictly where the components differ."""
    curves = [gaussian_curve(mu, Side.LOWER, 200) for mu in (0.2, 2.0)]
    weights = [0.75, 0.25]
    mixture = TradeoffCurve.mixture(curves, weights)
    for fpr in (0.0, 0.01, 0.1, 0.5, 1.0):
        assert float(mixture(fpr)) <= revealed_mixture_ceiling(curves, weights, fpr) + 1e-12
    assert float(mixture(0.1)) < revealed_mixture_ceiling(curves, weights, 0.1) - 0.001
    with pytest.raises(InputError, match="sum to 1"):
        revealed_mixture_ceiling(curves, [0.7, 0.25], 0.1)
    with pytest.raises(InputError, match="LOWER"):
        revealed_mixture_ceiling([gaussian_curve(1.0, Side.UPPER)], [1.0], 0.1)
    with pytest.raises(InputError, match="one weight per curve"):
        revealed_mixture_ceiling(curves, [1.0], 0.1)
