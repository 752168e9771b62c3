"""Rarely large steps: bounds against enumeration and against a contour integral of many bits; widths in hard places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from oracles import line_arb
from oracles.finite_laws import law_of

from calipers.bracket import Side
from calipers.curves.gdp import gdp_mu
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.pld.composition.direction import Direction
from calipers.pld.composition.large_steps import LargeSteps
from calipers.pld.composition.product import Product
from calipers.pld.composition.sweep import directed_sweep, sweep
from calipers.pld.composition.tails import LowerTail
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import TwoSidedPair

# (rate, noise, steps, eps, D of present against absent), by `oracles.line_arb` with a line of 1200/0.05 nodes and more:
# the last node contributes less than 1e-30 of the value. The contour integral in doubles loses all but the first.
REFERENCE = [
    (1e-5, 0.7, 100_000, 0.02285567147707018, 1.0006818162741251e-5),
    (1e-5, 0.7, 100_000, 0.022859948081394584, 0.9991883930593944e-5),
    (1e-4, 1.0, 10_000, 0.30427090039483434, 1.0004795675730886e-15),
    (1e-4, 1.0, 10_000, 0.30430325941242226, 0.9994885959592661e-15),
]
# Two phases, and D at two places by the same integral.
PHASES = [(1e-4, 1.0, 6000), (2e-4, 1.3, 3000)]
PHASES_REFERENCE = [(0.12870917650812663, 1.000309663116107e-12), (0.12872288730774725, 0.99943407884957e-12)]
# (rate, noise, steps, delta): few participations in large datasets.
HARD = [
    (1e-5, 0.7, 100_000, 1e-5),
    (1e-5, 0.7, 100_000, 1e-9),
    (1e-4, 1.0, 10_000, 1e-15),
    (1e-5, 0.5, 1_000_000, 1e-5),
    (1e-6, 0.7, 10_000, 1e-15),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "eps", "truth"), REFERENCE)
def test_delta_between_the_humps(rate: float, noise: float, steps: int, eps: float, truth: float) -> None:
    """delta in the valley between the noise of many steps and one large step, to two parts in a thousand."""
    found = Product([(poisson_gaussian(rate, noise), steps)]).delta(eps)
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower <= 2e-3 * found.upper


def two_phases() -> Product:
    return Product([(poisson_gaussian(rate, noise), steps) for rate, noise, steps in PHASES])


@pytest.mark.parametrize(("eps", "truth"), PHASES_REFERENCE)
def test_delta_of_two_phases_between_the_humps(eps: float, truth: float) -> None:
    """Jumps of two kinds: delta to two parts in a thousand."""
    found = two_phases().delta(eps)
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower <= 2e-3 * found.upper


def test_epsilon_of_two_phases_is_narrow() -> None:
    """It was up to 16 percent wide and took 6 s; it lies where the integral crosses delta."""
    found = two_phases().epsilon(1e-12)
    assert found.upper - found.lower <= 1e-3 * found.upper
    assert found.lower < PHASES_REFERENCE[1][0]
    assert found.upper > PHASES_REFERENCE[0][0]


def test_phases_that_are_alike_are_one() -> None:
    """Five phases of the same steps, told apart by a digit of the noise: what one phase has, to its width."""
    alike = Product([(poisson_gaussian(1e-5, 0.7 + 1e-13 * i), 20_000) for i in range(5)]).epsilon(1e-7)
    one = Product([(poisson_gaussian(1e-5, 0.7), 100_000)]).epsilon(1e-7)
    assert alike.upper - alike.lower <= 2e-3 * alike.upper
    assert max(alike.lower, one.lower) <= min(alike.upper, one.upper)


@pytest.mark.slow
def test_the_reference_values() -> None:
    """One of them once more, with half the spacing of the line."""
    rate, noise, steps, eps, truth = REFERENCE[2]
    value, last = line_arb.poisson_delta(rate, noise, steps, eps, top=1200.0, spacing=0.025)
    assert value == pytest.approx(truth, rel=1e-12)
    assert last < 1e-20 * truth


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), HARD)
def test_epsilon_of_few_participations_is_narrow(rate: float, noise: float, steps: int, delta: float) -> None:
    """Widths were 5 to 99 percent; they are below one in a thousand. The truth of the first lies inside."""
    found = Product([(poisson_gaussian(rate, noise), steps)]).epsilon(delta)
    assert 0.0 < found.lower <= found.upper
    assert found.upper - found.lower <= 1e-3 * found.upper


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), [(1e-6, 1.0, 100_000, 1e-15), (1e-6, 2.0, 10, 1e-15)])
def test_an_epsilon_that_is_next_to_nothing_is_small(rate: float, noise: float, steps: int, delta: float) -> None:
    """An epsilon below 3e-3 at delta 1e-15 is known to a few percent only, and both bounds are that small."""
    found = Product([(poisson_gaussian(rate, noise), steps)]).epsilon(delta)
    assert 0.0 < found.lower <= found.upper <= 3e-3
    assert found.upper - found.lower <= 0.1 * found.upper


@pytest.mark.parametrize("index", [0, 2])
def test_epsilon_lies_where_the_contour_integral_crosses_delta(index: int) -> None:
    """D is 1.0007e-5 at one place and 0.9992e-5 at another, so epsilon at 1e-5 lies between the two."""
    rate, noise, steps, left, _ = REFERENCE[index]
    right = REFERENCE[index + 1][3]
    found = Product([(poisson_gaussian(rate, noise), steps)]).epsilon(1e-5 if index == 0 else 1e-15)
    assert found.lower < right
    assert found.upper > left


def test_a_finer_tolerance_never_proves_less() -> None:
    """q = 1e-5, sigma = 0.7, T = 1e5: tolerance 0.3 proved 0.0239 where 1e-3 proved 0.0490."""
    product = Product([(poisson_gaussian(1e-5, 0.7), 100_000)])
    uppers = [product.epsilon(1e-5, tolerance).upper for tolerance in (0.3, 1e-2, 1e-3)]
    assert uppers[1] <= uppers[0] * (1.0 + 1e-3)
    assert uppers[2] <= uppers[1] * (1.0 + 1e-3)
    assert product.delta(uppers[2], 1e-3).upper <= 1e-5 * (1.0 + 1e-2)


@dataclass(frozen=True)
class Atoms(TwoSidedPair):
    """A pair with finitely many outcomes: the same law on both sides."""

    p: tuple[float, ...]
    q: tuple[float, ...]
    symmetric: bool = False

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        del resolution, log_tail
        return law_of(np.array(self.p), np.array(self.q), Side.UPPER)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        del resolution, log_tail
        return law_of(np.array(self.p), np.array(self.q), Side.LOWER)


def outcomes(atoms: Atoms, steps: int) -> Iterator[tuple[mp.mpf, mp.mpf]]:
    """P-mass and Q-mass of all counts of outcomes of so many steps."""
    for counts in itertools.product(range(steps + 1), repeat=len(atoms.p) - 1):
        rest = steps - sum(counts)
        if rest < 0:
            continue
        every = (*counts, rest)
        ways = mp.factorial(steps)
        for count in every:
            ways /= mp.factorial(count)
        p, q = (mp.fprod(mp.mpf(m) ** c for m, c in zip(masses, every, strict=True)) for masses in (atoms.p, atoms.q))
        yield ways * p, ways * q


def enumerated(atoms: Atoms, steps: int, eps: float) -> mp.mpf:
    """D of the product, over all counts of outcomes."""
    return sum((max(mp.mpf(0), p - mp.exp(mp.mpf(eps)) * q) for p, q in outcomes(atoms, steps)), mp.mpf(0))


SMALL, LARGE = 2.0**-16, 2.0**-24
FINITE = Atoms(
    (0.5 + 2.0**-8, 0.5 - 2.0**-8 - 6 * SMALL - 30 * LARGE, 6 * SMALL, 30 * LARGE),
    (0.5, 0.5 - SMALL - LARGE, SMALL, LARGE),
)


SPARSER = Atoms((0.5 + 2.0**-9, 0.5 - 2.0**-9 - 11 * LARGE, 11 * LARGE), (0.5, 0.5 - LARGE, LARGE))


@pytest.mark.parametrize("eps", [0.0, 0.02, 0.5, 2.1, 3.0, 5.0])
def test_two_kinds_of_steps_against_enumeration(eps: float) -> None:
    """Jumps of log 6 and log 30 in five steps and of log 11 in three more: both bounds hold between all of them."""
    kinds = [(FINITE, 5), (SPARSER, 3)]
    truth = mp.mpf(0)
    for first, second in itertools.product(*[list(outcomes(atoms, steps)) for atoms, steps in kinds]):
        truth += max(mp.mpf(0), first[0] * second[0] - mp.exp(mp.mpf(eps)) * first[1] * second[1])
    apart = LargeSteps(Direction.of(kinds)[0], float(mp.log(truth)), -60.0, 1e-3)
    assert apart.useful
    found = apart.delta(eps)
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower <= 0.1 * found.upper


@pytest.mark.parametrize("steps", [2, 5, 14])
@pytest.mark.parametrize("eps", [0.0, 0.05, 0.5, 1.7, 3.0, 5.0])
def test_against_enumeration(steps: int, eps: float) -> None:
    """Jumps of log 6 and log 30 among coin flips: both bounds hold at every eps, also between the jumps."""
    direction, _ = Direction.of([(FINITE, steps)])
    truth = enumerated(FINITE, steps, eps)
    apart = LargeSteps(direction, float(mp.log(truth)), -60.0, 1e-3)
    assert apart.useful
    found = apart.delta(eps)
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower <= 0.1 * found.upper


def test_one_side_may_have_no_jump() -> None:
    """q = 0.0268, sigma = 6.25, 5 steps: one cell of the attack's law lies above the threshold, none of the proof's."""
    found = Product([(poisson_gaussian(0.02677811057501396, 6.2482137514708445), 5)]).delta(0.0)
    assert 0.0 < found.lower <= found.upper <= 1.001 * found.lower


def test_tests_by_their_two_rates() -> None:
    """Every stated test keeps below the true D at the reference places, and its own place shows nearly all of it."""
    rate, noise, steps, eps, truth = REFERENCE[2]
    direction = Product([(poisson_gaussian(rate, noise), steps)]).directions[0]
    apart = LargeSteps(direction, math.log(1e-15), math.log(1e-15) - 30.0, 1e-3)
    for place in (0.02, 0.2, eps, 0.5):
        tests = apart.tests(place, np.array([place]))
        power, alpha = math.exp(tests.log_power[0]), math.exp(tests.log_alpha[0])
        assert 0.0 < alpha < power < 1.0
        assert power - math.exp(eps) * alpha <= truth
        assert power - math.exp(place) * alpha >= 0.999 * apart.delta(place).lower
        if place == eps:
            assert power - math.exp(eps) * alpha >= 0.997 * truth


@pytest.mark.slow
def test_curves_of_few_participations_are_narrow() -> None:
    """mu was [0.010, 0.063]: now within 1 %; delta of both curves holds the contour integral, TPR is within 1e-3."""
    rate, noise, steps, eps, truth = REFERENCE[0]
    curves = sweep(Product([(poisson_gaussian(rate, noise), steps)]), 1e-12)
    assert float(curves[Side.LOWER].delta(eps)) <= truth <= float(curves[Side.UPPER].delta(eps))
    assert float(curves[Side.UPPER].delta(eps)) <= 1.01 * truth
    lower, upper = (gdp_mu(curves[side], 1e-10) for side in (Side.LOWER, Side.UPPER))
    assert 0.99 * upper <= lower <= upper
    for fpr in (0.1, 1e-3, 1e-6):
        low, high = (float(curves[side].rates(fpr)[1]) for side in (Side.LOWER, Side.UPPER))
        assert (1.0 - 1e-3) * high <= low <= high


def test_total_variation_has_no_direction() -> None:
    """At epsilon = 0 both orders are one number, so the better bound of either counts; three times wider otherwise."""
    bounds = Product([(poisson_gaussian(1e-6, 0.7), 10_000)]).delta(0.0)
    assert 0.0 < bounds.upper - bounds.lower <= 1e-3 * bounds.upper


def test_the_order_that_shows_less_is_not_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first proof is below what the other order shows; no test of it is ever composed."""
    composed = []
    plain = Direction.lower

    def noted(self: Direction, *rest: Any, **more: Any) -> LowerTail:
        composed.append(self.reverse)
        return plain(self, *rest, **more)

    monkeypatch.setattr(Direction, "lower", noted)
    bounds = Product([(poisson_gaussian(1e-6, 0.7), 10_000)]).delta(1e-3)
    assert 0.0 < bounds.upper - bounds.lower <= 5e-3 * bounds.upper
    assert not bounds.reversed
    assert True not in composed


def test_a_curve_of_two_steps_with_hardly_any_noise() -> None:
    """Nearly all steps that are no jump are alike and below zero: the curve ends, beside sums over a fine grid."""
    rate, noise, alpha = 20 / 460, 0.3, 0.1
    at = (np.arange(1000) + 0.5) / 1000 * 20.0 - 8.0
    width = at[1] - at[0]
    null = width * np.exp(-0.5 * at**2) / math.sqrt(2.0 * math.pi)
    present = (1.0 - rate) * null + rate * null * np.exp(at / noise - 0.5 / noise**2)
    both = [np.multiply.outer(one, one).ravel() for one in (present, null)]
    order = np.argsort(-both[0] / both[1], kind="stable")
    truth = float(np.interp(alpha, np.cumsum(both[1][order]), np.cumsum(both[0][order])))
    curves = directed_sweep(Product([(poisson_gaussian(rate, noise), 2)]), 1e-10)
    upper, lower = (1.0 - curves[side](alpha) for side in (Side.UPPER, Side.LOWER))
    assert lower <= truth + 1e-4
    assert truth - 1e-4 <= upper <= lower + 1e-3
