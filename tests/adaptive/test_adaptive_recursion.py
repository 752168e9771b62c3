"""The recursion against all policies, one by one, of mechanisms with two or three outcomes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import calipers as cp
from calipers.adaptive.kernel import lower_kernel, trimmed, upper_kernel
from calipers.adaptive.recursion import Lattice, PolicyLevels, UpperLevels
from calipers.bracket import Side
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import KnownPmfs

Outcomes = tuple[tuple[float, float], ...]


def policies(menu: list[tuple[Outcomes, int]], budget: int) -> list[list[tuple[float, float]]]:
    """The transcripts, as (P, Q) probabilities, of every deterministic policy that spends at most the budget."""
    found = [[(1.0, 1.0)]]
    for outcomes, cost in menu:
        if cost <= budget:
            after = policies(menu, budget - cost)
            for chosen in itertools.product(after, repeat=len(outcomes)):
                found.append([(p * a, q * b) for (p, q), rest in zip(outcomes, chosen, strict=True) for a, b in rest])
    return found


def supremum(menu: list[tuple[Outcomes, int]], budget: int, k: float) -> float:
    return max(math.fsum(max(p - k * q, 0.0) for p, q in transcript) for transcript in policies(menu, budget))


def pair_of(outcomes: Outcomes) -> KnownPmfs:
    """The finite pair; both of its laws are exact."""
    p, q = (np.array(column) for column in zip(*sorted(outcomes, key=lambda o: o[0] / o[1]), strict=True))
    above = PrivacyLossPmf(np.log(p) - np.log(q), np.log(p), np.log(q), Side.UPPER)
    return KnownPmfs({Side.UPPER: above, Side.LOWER: PrivacyLossPmf.observed(np.log(p), np.log(q), 1e-15)})


def random_outcomes(rng: np.random.Generator, number: int) -> Outcomes:
    p, q = rng.dirichlet(np.full(number, 2.0)), rng.dirichlet(np.full(number, 2.0))
    return tuple(zip(p.tolist(), q.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_bounds_enclose_all_policies_without_tolerance(seed: int) -> None:
    """Upper bound >= best policy >= attack at every epsilon, for two or three kinds and up to three steps."""
    rng = np.random.default_rng(seed)
    kinds, outcomes, budget = [(2, 2, 3), (3, 2, 2), (2, 3, 2)][seed % 3]
    menu = [(random_outcomes(rng, outcomes), int(rng.integers(1, 3))) for _ in range(kinds)]
    run = cp.AdaptiveRun(
        [pair_of(o) for o, _ in menu], [cost for _, cost in menu], max(budget, max(c for _, c in menu))
    )
    measured = cp.measure(run)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        k = math.exp(epsilon)
        swapped = [(tuple((q, p) for p, q in o), cost) for o, cost in menu]
        truth = max(supremum(menu, run.budget, k), supremum(swapped, run.budget, k))
        found = measured.delta(epsilon)
        assert found.lower <= truth <= found.upper
        assert found.upper - found.lower <= 0.02


@pytest.mark.parametrize("seed", range(4))
def test_ratios_on_the_lattice_give_the_supremum_itself(seed: int) -> None:
    """Where all log ratios are lattice points nothing is rounded but floating point: both bounds meet."""
    rng, step = np.random.default_rng(seed), 0.25
    menu = []
    for cost in (1, 2):
        up, down = step * int(rng.integers(1, 5)), -step * int(rng.integers(1, 5))
        q = (1.0 - math.exp(down)) / (math.exp(up) - math.exp(down))  # Q-mass of the outcome with the larger ratio
        menu.append((((q * math.exp(up), q), ((1.0 - q) * math.exp(down), 1.0 - q)), cost))
    lattice, budget = Lattice(step, -40, 40), 3
    sources = [pair_of(o) for o, _ in menu]
    costs = [cost for _, cost in menu]
    above = UpperLevels([upper_kernel(s.upper(), step) for s in sources], costs, lattice)
    below = PolicyLevels([lower_kernel(s.lower(), step) for s in sources], costs, lattice)
    for _ in range(budget):
        above.advance()
        below.advance()
    alpha, power = below.tests()
    for place in (0, 2, 5, 9):
        epsilon = place * step
        truth = supremum(menu, budget, math.exp(epsilon))
        upper = above.delta(epsilon)
        lower = float(np.max(power - math.exp(epsilon) * alpha))
        assert lower <= truth <= upper
        assert upper - lower <= 1e-9


def test_mass_at_infinity_counts_once_a_step() -> None:
    """n steps that give the record away with probability d each: at large epsilon delta is 1 - (1 - d)^n."""
    run = cp.AdaptiveRun({"stated": cp.Guarantee(epsilon=0.5, delta=0.01)}, {"stated": 1}, 3)
    found = cp.measure(run).delta(10.0)
    truth = 1.0 - 0.99**3
    assert found.lower <= truth <= found.upper
    assert found.upper <= truth * (1.0 + 1e-7)
    assert found.lower >= truth * (1.0 - 1e-7)


def test_adaptive_choice_beats_every_fixed_schedule() -> None:
    """Somewhere the best policy shows more than each of its paths: else nothing would have to be proven."""
    rng = np.random.default_rng(33)
    menu = [(random_outcomes(rng, 2), 1), (random_outcomes(rng, 2), 1)]
    fixed = []
    for path in itertools.product((0, 1), repeat=3):
        pairs = [(1.0, 1.0)]
        for kind in path:
            pairs = [(p * a, q * b) for p, q in pairs for a, b in menu[kind][0]]
        fixed.append(math.fsum(max(p - 1.2 * q, 0.0) for p, q in pairs))
    assert supremum(menu, 3, 1.2) > max(fixed) + 1e-4


@pytest.mark.parametrize("lattice", [Lattice(0.25, -1, 40), Lattice(0.25, -40, 3), Lattice(0.25, -40, 3, tilt=2.0)])
def test_windows_that_are_too_short_are_charged(lattice: Lattice) -> None:
    """What paths do left and right of a short window is bounded from above, with and without tilting."""
    up, down = 0.75, -0.5
    q = (1.0 - math.exp(down)) / (math.exp(up) - math.exp(down))
    outcomes = ((q * math.exp(up), q), ((1.0 - q) * math.exp(down), 1.0 - q))
    above = UpperLevels([upper_kernel(pair_of(outcomes).upper(), lattice.step)], [1], lattice)
    for _ in range(3):
        above.advance()
    for epsilon in (0.0, 0.25, 0.5):
        assert supremum([(outcomes, 1)], 3, math.exp(epsilon)) <= above.delta(epsilon)


@pytest.mark.parametrize("least", [0.12, 0.3])
def test_trimmed_tails_are_charged(least: float) -> None:
    """Mass that is cut off counts where it hurts most: the bound stays above the best policy of the whole step."""
    outcomes = ((0.1, 0.02), (0.5, 0.28), (0.3, 0.4), (0.1, 0.3))
    whole = upper_kernel(pair_of(outcomes).upper(), 0.05)
    kernel = trimmed(whole, least)
    assert kernel.high < whole.high
    above = UpperLevels([kernel], [1], Lattice(0.05, -100, 200))
    for _ in range(2):
        above.advance()
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        assert supremum([(outcomes, 1)], 2, math.exp(epsilon)) <= above.delta(epsilon)
