"""One control for every strike: the frontier of terms, cells above it, and sums between the truth and worst terms."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from oracles.hidden_calls import STRIKES, call_of_shifts
from oracles.shuffled_adversary import Shuffled, disc, line

from calipers.laws.allocated.controlled_sum import Earlier, Payoff, block_law, controlled_divergence
from calipers.laws.allocated.controls import Placed, cell, controls
from calipers.laws.allocated.hidden_sums import divergence
from calipers.laws.allocated.hidden_term import HiddenTerm, replaced, zeroed_out
from calipers.laws.allocated.shuffle import ShuffleAttack

TERMS = {
    "zeroed": lambda sigma, epsilon: zeroed_out(sigma, epsilon, False),
    "reverse": lambda sigma, epsilon: zeroed_out(sigma, epsilon, True),
    "replaced": replaced,
}


def shifts(term: HiddenTerm, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """The shifts of a control, drawn in the plane from the three lengths that the docs give."""
    rho = term.right[0] - term.right[1]
    a_max, b_max = max(term.right[0], term.left[0]), max(term.right[1], term.left[1])
    a = math.sqrt(min(a_max**2, b_max**2 + tau))
    b = math.sqrt(a * a - tau)
    if b < 1e-9:
        return np.array([a, 0.0]), np.zeros(2)
    if a < 1e-9:
        return np.zeros(2), np.array([b, 0.0])
    cosine = min(1.0, max(-1.0, (a * a + b * b - rho * rho) / (2.0 * a * b)))
    return a * np.array([cosine, math.sqrt(1.0 - cosine * cosine)]), np.array([b, 0.0])


def call_of_placed(found: Placed, step: float, strike: float) -> float:
    """E[(X - c)+] of what stands on the lattice, and the charge."""
    near = (found.low + np.arange(len(found.masses))) * step
    values, masses = np.concatenate((near, found.places * step)), np.concatenate((found.masses, found.far))
    assert masses.min() >= 0.0
    return float(masses @ np.maximum(values - strike, 0.0)) + found.charge


@pytest.mark.parametrize("epsilon", [0.0, 0.6])
@pytest.mark.parametrize("kind", list(TERMS))
def test_every_choice_lies_below_one_control(kind: str, epsilon: float) -> None:
    """25 random admissible shifts: the control with the same |a|^2 - |b|^2 has no smaller call, at any strike.

    Shifts with |a - b| < rho and |a| + |b| < rho are first stretched, which changes tau; those are left out here.
    """
    rng = np.random.default_rng(5)
    sigma, k = 1.4, math.exp(epsilon)
    term = TERMS[kind](sigma, epsilon)
    a_max, b_max = max(term.right[0], term.left[0]), max(term.right[1], term.left[1])
    tried, closest = 0, 0.0
    while tried < 25:
        a, b = (rng.uniform(-2.0, 2.0, 2) / sigma for _ in range(2))
        far, near = np.hypot(*a), np.hypot(*b)
        if np.hypot(*(a - b)) > term.width or far > a_max or near > b_max or far + near < term.width:
            continue
        tried += 1
        best = shifts(term, far**2 - near**2)
        for strike in (-1.0, -0.2, 0.2, 1.0):
            chosen, bound = call_of_shifts(a, b, k, strike), call_of_shifts(*best, k, strike)
            assert chosen <= bound + 1e-5
            closest = max(closest, chosen / bound)
    assert closest > 0.9


@pytest.mark.parametrize("epsilon", [0.0, 0.6])
@pytest.mark.parametrize("kind", list(TERMS))
def test_a_cell_lies_above_its_controls_and_below_the_worst_term(kind: str, epsilon: float) -> None:
    """At every strike, for controls at the ends and inside; one cell of all controls is the worst term, placed."""
    sigma, k, step = 1.4, math.exp(epsilon), 0.02
    term = TERMS[kind](sigma, epsilon)
    ends = controls(term, 3)
    whole = cell(term, float(ends[0]), float(ends[-1]), step, 8.0, (-60.0, 60.0))
    for first, last in pairwise(ends):
        found = cell(term, float(first), float(last), step, 8.0, (-60.0, 60.0))
        for strike in STRIKES:
            bound = call_of_placed(found, step, strike)
            for tau in (first, 0.5 * (first + last), last):
                assert call_of_shifts(*shifts(term, float(tau)), k, strike) <= bound + 1e-5
            assert bound <= call_of_placed(whole, step, strike) * 1.003 + 1e-5


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_no_enumerated_adversary_exceeds_the_recursion(epsilon: float, replace: bool, reverse: bool) -> None:
    """N = 3, B = 1, one record dropped, every gradient adaptive: inequality without tolerance, and close."""
    term = replaced(2.0, epsilon) if replace else zeroed_out(2.0, epsilon, reverse)
    attacked = Shuffled(3, 1, 2, 2.0, replaced=replace).divergence(math.exp(epsilon), line(3), reverse)
    bound = controlled_divergence(term, 2, 2 / 3)
    assert bound is not None
    assert attacked <= bound <= 1.12 * attacked


def test_two_dimensions_stay_below_the_recursion() -> None:
    """Gradients in the plane, adaptive."""
    attacked = Shuffled(3, 1, 2, 2.0, width=1.0).divergence(math.exp(0.1), disc(4))
    bound = controlled_divergence(zeroed_out(2.0, 0.1, False), 2, 2 / 3)
    assert bound is not None
    assert attacked <= bound


@pytest.mark.parametrize(
    ("sigma", "rounds", "epsilon", "attained"),
    [(2.0, 100, 0.7, 1.2615e-6), (5.0, 100, 0.05, 9.624e-5), (1.0, 30, 2.0, 0.0071425)],
)
def test_between_an_adaptive_adversary_and_worst_terms(
    sigma: float, rounds: int, epsilon: float, attained: float
) -> None:
    """At least the best adversary whose others agree, by an independent dynamic program.

    With much noise a good part of the gap is closed; where one term decides there is none, and placing terms costs.
    """
    term = zeroed_out(sigma, epsilon, False)
    worst = divergence(term, rounds, 1.0, 0.04, -50.0)[1]
    found = controlled_divergence(term, rounds, 1.0)
    assert found is not None
    assert attained * (1.0 - 1e-4) <= found <= 1.03 * worst
    if sigma > 2.0:
        assert found - attained <= 0.35 * (worst - attained)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("rounds", [63, 64, 70, 97, 500])
def test_blocks_and_what_is_left_of_them(rounds: int, share: float) -> None:
    """Whole blocks, remainders, one block only: above the attack, below worst terms, falling with the rounds."""
    epsilon = 0.08 * share
    found = controlled_divergence(zeroed_out(3.0, epsilon, False), rounds, share)
    worst = divergence(zeroed_out(3.0, epsilon, False), rounds, share, 0.1, -45.0)[1]
    assert found is not None
    assert ShuffleAttack(3.0, rounds, share).best_test(epsilon).delta <= found <= worst


@pytest.mark.parametrize("core", [slice(0, 9), slice(3, 6)])
def test_a_round_earlier_is_no_less_than_every_sum_says(core: slice) -> None:
    """Three rounds, by matrices of all places: above them everywhere, and close where every sum is looked at."""
    term, step = zeroed_out(1.5, 0.1, True), 0.15
    cells = [cell(term, a, b, step, 3.0, (-15.0, 12.0)) for a, b in pairwise(controls(term, 3).tolist())]
    payoff = Payoff.at_the_end((5, 4), core, step)
    places, earlier = payoff.low + np.arange(len(payoff.values)), Earlier(cells, len(payoff.values), core, step)
    plain = payoff.values
    for _ in range(3):
        payoff = earlier(payoff)
        rounds = []
        for one in cells:
            moves = np.concatenate((one.low + np.arange(len(one.masses)), one.places))
            there = np.add.outer(places, moves)
            found = np.interp(there, places, plain) + step * np.maximum(there - places[-1], 0)
            rounds.append(found @ np.concatenate((one.masses, one.far)) + one.charge)
        plain = np.max(rounds, axis=0)
        assert np.all(payoff.values >= plain * (1.0 - 1e-13))
        assert np.all(payoff.values <= plain * 1.003 + 2e-3)
        assert np.all(np.diff(payoff.values, 2) >= -1e-12)


def test_the_law_of_a_block_has_the_payoff_as_its_call() -> None:
    """At every place, within the charge; a dent of rounding is filled, never cut off."""
    payoff = Payoff(-40, 0.25, np.logaddexp(0.0, np.arange(-40, 41) * 0.25), np.arange(81))
    places, masses, charge = block_law(payoff, 1.0)
    values = 0.25 * places
    assert masses.min() >= 0.0
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    for s in (-9.0, -1.3, 0.0, 2.2, 9.0, 30.0):
        call = float(masses @ np.maximum(values + s, 0.0)) + charge
        assert math.log1p(math.exp(s)) <= call * (1.0 + 1e-12)
        assert call <= math.log1p(math.exp(s)) * 1.01 + 1e-3
    dented = payoff.values.copy()
    dented[40] += 0.02
    places, masses, charge = block_law(replace(payoff, values=dented), 1.0)
    assert masses.min() >= 0.0
    calls = np.maximum(0.25 * (places[:, None] + np.arange(-40, 41)), 0.0).T @ masses + charge
    assert np.all(calls >= dented * (1.0 - 1e-14))
    assert np.all(calls <= dented + 0.5)


def test_little_noise_is_left_to_worst_terms() -> None:
    """Long lattices, and nothing to gain."""
    assert controlled_divergence(zeroed_out(0.5, 1.0, False), 100, 1.0) is None
