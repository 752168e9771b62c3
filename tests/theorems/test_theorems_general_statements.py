"""Published statements that hold for every mechanism, and the function that is each of them, on random finite pairs.

The coverage of the papers names these functions; here each statement is computed literally, in fractions.
"""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from oracles.finite import profile, tradeoff

from calipers.bracket import Side
from calipers.curves import (
    TradeoffCurve,
    advantage,
    delta_divergence,
    gaussian_curve,
    gdp_mu,
    regret,
    symmetric_divergence,
)
from calipers.mechanisms import compose, laplace, randomized_response
from calipers.pld.composition.sweep import sweep
from calipers.theorems.separation import symmetric_separation

LEVELS = [Fraction(k, 16) for k in range(17)]
SEEDS = range(6)


def a_law(source, outcomes, parts=64):
    """Random masses in multiples of 1/parts, all positive."""
    cuts = sorted(source.sample(range(1, parts), outcomes - 1))
    return [Fraction(b - a, parts) for a, b in itertools.pairwise([0, *cuts, parts])]


def a_pair(source, outcomes=4):
    """(null, alternative)."""
    return a_law(source, outcomes), a_law(source, outcomes)


def curve_of(pair, side=Side.LOWER):
    null, alternative = pair
    return TradeoffCurve.from_atoms([float(x) for x in alternative], [float(x) for x in null], side=side)


@pytest.mark.parametrize("seed", SEEDS)
def test_wang_lemmas_2_10_and_3_1_to_3_2(seed):
    """The revealed mixture is the least over all splits of the level, lies below the hidden one, falls with a part."""
    source = random.Random(seed)
    first, second, weight = a_pair(source), a_pair(source), Fraction(source.randint(1, 15), 16)
    mixture = TradeoffCurve.mixture([curve_of(first), curve_of(second)], [float(weight), float(1 - weight)])
    hidden = [
        [weight * a + (1 - weight) * b for a, b in zip(x, y, strict=True)] for x, y in zip(first, second, strict=True)
    ]
    lower_part = TradeoffCurve.mixture(
        [curve_of(first).tensor(curve_of(first)), curve_of(second)], [float(weight), float(1 - weight)]
    )
    for level in LEVELS:
        value = Fraction(float(mixture(float(level))))
        splits = (
            weight * tradeoff(*first, one) + (1 - weight) * tradeoff(*second, (level - weight * one) / (1 - weight))
            for one in (Fraction(k, 512) for k in range(513))
            if 0 <= (level - weight * one) / (1 - weight) <= 1
        )
        least = min(splits)
        assert value <= least + Fraction(1, 10**12)
        assert least - value < Fraction(1, 100)
        assert tradeoff(*hidden, level) >= value - Fraction(1, 10**12)
        assert float(lower_part(float(level))) <= float(value) + 1e-12


def product(*pairs):
    """The pair of running all of them."""
    return tuple([math.prod(masses) for masses in itertools.product(*side)] for side in zip(*pairs, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_wang_theorem_a_5_two_adaptive_stages(seed):
    """Curves above both stages compose to one above the adaptive pair; curves below both to one below it."""
    source = random.Random(seed)
    stage, mildest = a_pair(source, 3), a_pair(source, 2)
    extras = [a_pair(source, 2) for _ in range(3)]
    seconds = [product(mildest, extra) for extra in extras]  # each leaks more than `mildest` alone
    joint = [[stage[side][y] * mass for y in range(3) for mass in seconds[y][side]] for side in (0, 1)]
    above = curve_of(stage).tensor(curve_of(mildest))
    below = curve_of(stage, Side.UPPER).tensor(curve_of(product(mildest, *extras), Side.UPPER))
    for level in LEVELS:
        truth = tradeoff(*joint, level)
        assert Fraction(float(below(float(level)))) <= truth <= Fraction(float(above(float(level))))
    # Not any composition will do: a first stage left out entirely is no bound from below.
    assert any(float(curve_of(mildest)(float(level))) > float(tradeoff(*joint, level)) + 1e-3 for level in LEVELS)


@pytest.mark.parametrize("seed", SEEDS)
def test_gomez_algorithm_2_and_theorem_a_10(seed):
    """Algorithm 2, literally, is the curve of atoms; its breakpoints are those of the theorem and the end (1, 0)."""
    null, alternative = a_pair(random.Random(seed), 5)
    curve = curve_of((null, alternative))
    order = sorted(range(5), key=lambda i: alternative[i] / null[i])
    # Privacy losses log Q/P with P the null, ascending; the support is shared because all masses are positive.
    x = [null[i] for i in order]
    y = [alternative[i] for i in order]

    def algorithm(level):
        t = next(i for i in range(6) if sum(x[i:]) <= level)
        if t == 0:
            return Fraction(0)
        gamma = (level - sum(x[t:])) / x[t - 1]
        return sum(y[:t], Fraction(0)) - gamma * y[t - 1]

    for level in LEVELS:
        assert float(curve(float(level))) == pytest.approx(float(algorithm(level)), abs=1e-12)
    breakpoints = [(sum(x[i + 1 :], Fraction(0)), sum(y[: i + 1], Fraction(0))) for i in range(5)]
    for level, missed in [*breakpoints, (Fraction(1), Fraction(0))]:
        assert tradeoff(null, alternative, level) == missed


@pytest.mark.parametrize("seed", SEEDS)
def test_gomez_theorems_a_6_a_7_and_a_9(seed):
    """(14) and (15) literally, over sums of privacy losses, and 1 + f*(-e^eps), are the profile of the curve."""
    source = random.Random(seed)
    first, second = a_pair(source), a_pair(source, 3)
    composed = curve_of(first).tensor(curve_of(second))
    for epsilon in (-0.7, 0.0, 0.4, 1.1):
        for pair, curve in ((first, curve_of(first)), (product(first, second), composed)):
            null, alternative = pair
            losses = [math.log(a / b) for a, b in zip(alternative, null, strict=True)]
            literal = sum(
                float(mass) * max(1.0 - math.exp(epsilon - loss), 0.0)
                for mass, loss in zip(alternative, losses, strict=True)
            )
            assert float(curve.delta(epsilon)) == pytest.approx(literal, abs=1e-12)
            odds = math.exp(epsilon)
            # f*(y) = sup_a (y a - f(a)), at the breakpoints because f is piecewise linear.
            conjugate = max(-odds * a - b for a, b in zip(curve.alpha, curve.beta, strict=True))
            assert float(curve.delta(epsilon)) == pytest.approx(1.0 + conjugate, abs=1e-12)
            assert float(curve.delta(epsilon)) == pytest.approx(
                float(profile(null, alternative, Fraction(odds))), abs=1e-12
            )


def test_gomez_theorem_a_6_for_stored_pairs():
    """Composing two mechanisms multiplies their pairs: Laplace beside two rounds of randomized response."""
    found = compose(randomized_response(1.0), (laplace(2.0), 1)).delta(0.5)
    ratio = math.e
    p, q = ratio / (1.0 + ratio), 1.0 / (1.0 + ratio)
    # P(loss of Laplace) by quadrature over the noise, both losses added before the hockey stick is taken.
    grid = np.linspace(-40.0, 41.0, 2_000_001)
    density = np.exp(-np.abs(grid - 1.0) / 2.0) / 4.0
    loss = (np.abs(grid) - np.abs(grid - 1.0)) / 2.0
    literal = sum(
        mass * np.trapezoid(density * np.maximum(1.0 - np.exp(0.5 - loss - extra), 0.0), grid)
        for mass, extra in ((p, 1.0), (q, -1.0))
    )
    assert found.lower - 1e-6 < literal < found.upper + 1e-6
    assert found.upper - found.lower < 1e-2 * found.upper


@pytest.mark.parametrize("seed", SEEDS)
def test_gomez_proposition_c_2_and_lemma_d_1(seed):
    """The regret of a bound below the curve needs no symmetrizing; the distance from perfect privacy is half eta."""
    source = random.Random(seed)
    curve = curve_of(a_pair(source))
    bound = curve.tensor(curve_of(a_pair(source)))
    assert bound.is_below(curve)
    assert delta_divergence(bound, curve) <= 1e-12
    assert symmetric_divergence(curve, bound) == pytest.approx(delta_divergence(curve, bound), abs=1e-12)
    # Equation (23) itself: the smallest shift of f down and left that puts it below the bound.
    kappa, grid = delta_divergence(curve, bound), np.linspace(0.0, 1.0, 2001)
    gap = np.asarray(curve(np.minimum(grid + kappa, 1.0))) - kappa - np.asarray(bound(grid))
    assert float(np.max(gap)) <= 1e-9
    shy = 0.99 * kappa
    assert float(np.max(np.asarray(curve(np.minimum(grid + shy, 1.0))) - shy - np.asarray(bound(grid)))) > 0.0
    perfect = TradeoffCurve.perfect_privacy(Side.LOWER)
    assert symmetric_divergence(perfect, curve) == pytest.approx(0.5 * advantage(curve), abs=1e-12)


def test_gomez_proposition_c_2_for_a_fitted_mu():
    """`regret` is the one-sided divergence from the curve to its best Gaussian bound."""
    curves = sweep(compose(laplace(1.0)), tolerance=1e-5)
    mu = gdp_mu(curves[Side.UPPER], 0.0)
    assert gaussian_curve(mu, Side.UPPER).is_below(curves[Side.LOWER])
    literal = delta_divergence(curves[Side.LOWER], gaussian_curve(mu, Side.LOWER, 4000))
    assert regret(curves[Side.LOWER], mu) == pytest.approx(literal, rel=1e-3)


def orders(records, buffer):
    """Every order a buffer shuffle can put out, with its probability: a random one of the buffer, refilled in turn."""
    found = {}

    def walk(held, waiting, out, probability):
        if not held:
            found[tuple(out)] = found.get(tuple(out), Fraction(0)) + probability
            return
        for i, record in enumerate(held):
            rest = [*held[:i], *held[i + 1 :], *waiting[:1]]
            walk(rest, waiting[1:], [*out, record], probability / len(held))

    walk(list(range(records))[:buffer], list(range(records))[buffer:], [], Fraction(1))
    return found


@pytest.mark.parametrize("buffer", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_chua_lemmas_b_1_and_b_2_for_any_order_that_ignores_the_data(buffer, seed):
    """A mechanism on four records, its order drawn by a buffer shuffle (4: uniformly): no divergence grows."""
    source = random.Random(seed)
    drawn = orders(4, buffer)
    assert sum(drawn.values()) == 1
    assert len(drawn) == (buffer ** (4 - buffer)) * math.factorial(buffer)
    # One random pair of laws for each order: the records' data are equal but for one.
    laws = {order: a_pair(source) for order in drawn}
    mixed = [[sum(drawn[o] * laws[o][side][i] for o in drawn) for i in range(4)] for side in (0, 1)]
    for odds in (Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(3)):
        each = [profile(*laws[order], odds) for order in drawn]
        average = sum(drawn[order] * value for order, value in zip(drawn, each, strict=True))
        assert profile(*mixed, odds) <= average <= max(each)
        revealed = TradeoffCurve.mixture([curve_of(laws[o]) for o in drawn], [float(drawn[o]) for o in drawn])
        assert float(revealed.delta(math.log(odds))) == pytest.approx(float(average), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_ertan_lemma_5_3_on_symmetric_curves(seed):
    """(1 - 2a)/sqrt 2 at the fixed point is the largest distance from the line, and 1/sqrt 2 is attained."""
    null, alternative = a_pair(random.Random(seed))
    symmetric = curve_of((null, alternative)).symmetrized()
    low, high = 0.0, 0.5
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(symmetric(middle)) > middle else (low, middle)
    assert symmetric_separation(low) == pytest.approx(advantage(symmetric) / math.sqrt(2.0), abs=1e-9)
    disjoint = TradeoffCurve.from_atoms([], [], 1.0, 1.0, side=Side.LOWER)
    assert advantage(disjoint) / math.sqrt(2.0) == pytest.approx(symmetric_separation(0.0), rel=1e-15)
