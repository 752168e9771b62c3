"""The adversary's dynamic program: above every adversary, and within a percent of the best."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from oracles.shuffled_adversary import Shuffled, disc, line
from oracles.shuffled_recursion import exact_divergence

from calipers.pld.allocation import recursion
from calipers.pld.allocation.fourier_sum import RepeatedTerms
from calipers.pld.allocation.frontier import cell_on_grid, control_range
from calipers.pld.allocation.recursion import (
    FINE,
    FINEST,
    QUICK,
    OneRound,
    SumGrid,
    block_pmf,
    recursion_divergence,
    recursion_payoff,
)
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.allocation.worst_case_sum import divergence
from calipers.pld.allocation.worst_case_term import replaced, zeroed_out


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("replace_record", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_no_enumerated_adversary_exceeds_the_recursion(epsilon: float, replace_record: bool, reverse: bool) -> None:
    """N = 3, B = 1, one record dropped, every gradient adaptive: inequality without tolerance, and close."""
    term = replaced(2.0, epsilon) if replace_record else zeroed_out(2.0, epsilon, reverse)
    attacked = Shuffled(3, 1, 2, 2.0, replaced=replace_record).divergence(math.exp(epsilon), line(3), reverse)
    bound = recursion_divergence(term, 2, 2 / 3, FINE)
    assert attacked <= bound <= 1.02 * attacked


def test_two_dimensions_stay_below_the_recursion() -> None:
    """Gradients in the plane, adaptive."""
    attacked = Shuffled(3, 1, 2, 2.0, width=1.0).divergence(math.exp(0.1), disc(4))
    assert attacked <= recursion_divergence(zeroed_out(2.0, 0.1, False), 2, 2 / 3, FINE)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("sigma", "rounds", "epsilon", "participation"),
    [(1.0, 12, 1.5, 1.0), (2.0, 20, 0.3, 0.97), (3.0, 30, 0.1, 0.6), (5.0, 40, 0.05, 1.0)],
)
def test_above_the_exact_value_and_close(
    sigma: float, rounds: int, epsilon: float, participation: float, reverse: bool
) -> None:
    """Against a dynamic program that shares no code, with and without records dropped.

    Zeroed out against present, the direction that leaks less, gains are small against the grid where noise is little.
    """
    exact = exact_divergence(sigma, rounds, epsilon, participation, reverse, shares=(0.0, 1.0))
    found = recursion_divergence(zeroed_out(sigma, epsilon, reverse), rounds, participation, FINE)
    assert exact <= found <= (1.2 if reverse else 1.015) * exact


def test_jumps_past_the_grid_count_with_their_own_distance() -> None:
    """At noise 1 one term may be longer than the grid of twelve: counted in full, it is within 1.5 % of the truth."""
    exact = exact_divergence(1.0, 12, 0.3, shares=(0.0, 1.0))
    assert exact <= recursion_divergence(zeroed_out(1.0, 0.3, False), 12, 1.0, QUICK) <= 1.015 * exact


def test_total_variation_has_no_direction() -> None:
    """At epsilon 0 heavy gains one way are heavy losses the other: however long they are, both count the same."""
    there, back = (recursion_divergence(zeroed_out(0.8, 0.0, reverse), 40, 1.0, QUICK) for reverse in (False, True))
    assert there == pytest.approx(back, rel=1e-4)


@pytest.mark.parametrize("kept", [slice(0, -1), slice(1, None)])
def test_every_end_of_the_controls_is_needed(kept: slice) -> None:
    """Without the first or the last cells the bound falls below what an adversary attains, in one of the directions."""
    some = replace(FINE, cells=FINE.cells[8:] if kept.start == 1 else FINE.cells[:6])
    fallen = []
    for reverse in (False, True):
        exact = exact_divergence(2.0, 20, 0.3, reverse=reverse)
        fallen.append(recursion_divergence(zeroed_out(2.0, 0.3, reverse), 20, 1.0, some) < exact)
    assert any(fallen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "rounds", "epsilon"),
    [
        (1.0, 50, 1.5),
        (1.0, 50, 4.0),
        (1.1, 234, 3.0),
        (2.0, 50, 1.0),
        (2.0, 234, 0.1),
        (2.0, 234, 0.2),
        (5.0, 500, 0.02),
    ],
)
def test_within_one_percent_of_the_exact_value(sigma: float, rounds: int, epsilon: float) -> None:
    """The direction that leaks more, delta from 1e-2 to 1e-6."""
    share = 2 * rounds / (2 * rounds + 1)
    exact = exact_divergence(sigma, rounds, epsilon, share)
    assert exact <= recursion_divergence(zeroed_out(sigma, epsilon, False), rounds, share, FINE) <= 1.01 * exact


@pytest.mark.slow
def test_where_small_and_large_terms_share_the_tail() -> None:
    """Neither a normal tail nor one large term alone is worth as much as both; without `mixed` 0.8 % at delta 3e-8."""
    rounds, epsilon = 400, 0.1
    share = 2 * rounds / (2 * rounds + 1)
    exact = exact_divergence(3.0, rounds, epsilon, share, shares=(0.0, 1.0))
    assert exact <= recursion_divergence(zeroed_out(3.0, epsilon, False), rounds, share, FINEST) <= 1.005 * exact


def test_where_the_finest_grid_is_too_long_the_usual_one_answers() -> None:
    """A finer answer is never 1 for that reason."""
    epoch, epsilon = ShuffledEpoch(5.0, 3000, 1.0, fine=True), 0.04
    assert recursion_divergence(epoch.term(epsilon, False), 3000, 1.0, FINE) == 1.0
    assert epoch.by_dynamic_program(epsilon, False) < 1e-9


def plain_round(values: np.ndarray, cells: list, grid: SumGrid) -> np.ndarray:
    """One round earlier by a matrix of all places: constant left of the grid, slope one right of it."""
    places = np.arange(grid.low, grid.high + 1)
    found = []
    for one in cells:
        there = np.add.outer(places, one.low + np.arange(len(one.masses)))
        ahead = np.interp(there, places, values) + grid.step * np.maximum(there - places[-1], 0)
        found.append([math.fsum(row) + one.excess for row in ahead * one.masses])
    return np.max(found, axis=0)


@pytest.mark.parametrize("tilt", [0.0, 0.8])
def test_a_round_earlier_is_what_a_matrix_says_and_no_less(tilt: float) -> None:
    """Three rounds, every place, ends included: above without tolerance, and equal to eight digits."""
    term, grid = zeroed_out(1.5, 0.1, True), SumGrid(-60, 45, 0.15)
    ends = np.linspace(*control_range(term), 4).tolist()
    cells = [cell_on_grid(term, cell, 0.1, grid.step, (-grid.size, grid.size), 200) for cell in pairwise(ends)]
    earlier = OneRound(cells, grid, tilt)
    plain = np.maximum(grid.sums, 0.0)
    values = plain * np.exp(-tilt * grid.sums)
    for done in range(3):
        values = earlier(values, done)
        plain = plain_round(plain, cells, grid)
        found = values * np.exp(tilt * grid.sums + (done + 1) * earlier.log_moment)
        assert np.all(found * (1.0 + 6.0 * earlier.rounding) >= plain)
        assert np.max(np.abs(found / plain - 1.0)[plain > 1e-4]) < 1e-7


def test_the_error_of_transforms_is_added() -> None:
    """Values of 1e-14 beside values of 1: transforms alone would lose them, and may fall below."""
    term, grid = zeroed_out(3.0, 0.0, False), SumGrid(-200, 200, 0.05)
    cells = [cell_on_grid(term, control_range(term), 0.0, grid.step, (-grid.size, grid.size), 200)]
    rng = np.random.default_rng(1)
    values = np.where(grid.sums < -4.0, 1e-17, 1.0 + rng.random(grid.size))
    earlier = OneRound(cells, grid, 0.0)
    assert np.all(earlier(values, 0) >= plain_round(values, cells, grid) - 1e-15)
    assert np.min(earlier(values, 0) - plain_round(values, cells, grid)) > 0.0


def test_a_tilt_changes_digits_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the same with half the tilt."""
    term = zeroed_out(2.0, 0.3, False)
    usual = recursion_divergence(term, 20, 0.9, QUICK)
    tilt = recursion._Problem.tilt
    monkeypatch.setattr(recursion._Problem, "tilt", lambda self, *rest: 0.5 * tilt(self, *rest))
    assert recursion_divergence(term, 20, 0.9, QUICK) == pytest.approx(usual, rel=1e-8)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("rounds", [40, 41, 63])
def test_blocks_lie_above_the_whole_and_below_worst_case_sums(rounds: int, share: float) -> None:
    """Blocks of equal and of two sizes."""
    term = zeroed_out(3.0, 0.08 * share, False)
    whole = recursion_divergence(term, rounds, share, QUICK)
    blocks = recursion_divergence(term, rounds, share, replace(QUICK, work=6_000))
    worst = divergence(term, rounds, share, 0.1, -45.0)[1]
    assert exact_divergence(3.0, rounds, 0.08 * share, share) <= whole < blocks < worst


def test_what_lies_beyond_the_grid_of_a_block_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heavy gains on a grid that is much too short for them: more is claimed, never less than is attained."""
    monkeypatch.setattr(recursion, "_NEGLIGIBLE", 100.0)
    term, work = zeroed_out(1.0, 1.0, False), replace(QUICK, work=8_000)
    assert exact_divergence(1.0, 40, 1.0) <= recursion_divergence(term, 40, 1.0, work) < 1.0


def test_the_law_of_a_block_has_its_values_as_calls() -> None:
    """At every place, within the charge; a dent of rounding is filled, never cut off."""
    grid = SumGrid(-40, 40, 0.25)
    values = np.logaddexp(0.0, grid.sums)
    dented = values.copy()
    dented[40] += 0.02
    for given in (values, dented):
        places, masses, charge = block_pmf(grid, given)
        assert masses.min() >= 0.0
        assert masses.sum() == pytest.approx(1.0, abs=1e-12)
        calls = np.maximum(0.25 * places[:, None] + grid.sums, 0.0).T @ masses + charge
        assert np.all(calls >= given * (1.0 - 1e-14))
        assert np.all(calls <= given + 0.5)
    places, masses, charge = block_pmf(grid, values)
    assert float(masses @ np.maximum(0.25 * places + 30.0, 0.0)) + charge >= 30.0


@pytest.mark.parametrize(("sigma", "epsilon", "work"), [(1.0, 1.0, 1e3), (0.02, 1.0, 1e6), (1.0, 800.0, 1e6)])
def test_where_nothing_was_computed_nothing_is_claimed(sigma: float, epsilon: float, work: float) -> None:
    """Long grids, little noise and huge epsilons are left to worst-case sums."""
    assert recursion_divergence(zeroed_out(sigma, epsilon, False), 5_000, 1.0, replace(QUICK, work=work)) == 1.0


def test_what_every_use_of_a_term_adds_is_added_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms that say 0.01 more than they do make (r/M) V_M larger by r times 0.01."""
    before = recursion_divergence(zeroed_out(2.0, 0.1, False), 20, 0.9, QUICK)

    def more(*asked: object) -> object:
        found = cell_on_grid(*asked)  # type: ignore[arg-type]
        return replace(found, error_term=found.error_term + 0.01)

    monkeypatch.setattr(recursion, "cell_on_grid", more)
    after = recursion_divergence(zeroed_out(2.0, 0.1, False), 20, 0.9, QUICK)
    assert after - before == pytest.approx(0.009, rel=1e-9)


def charged_blocks(monkeypatch: pytest.MonkeyPatch, more: float) -> list[int]:
    """Every block says `more` than it does from now on; how many blocks were added up is written down."""
    counted: list[int] = []
    plain = recursion.payoff_by_fourier

    def counting(parts: list[RepeatedTerms], *rest: object, **named: object) -> object:
        counted.append(sum(part.count for part in parts))
        return plain(parts, *rest, **named)  # type: ignore[arg-type]

    def charged(grid: SumGrid, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        places, masses, charge = block_pmf(grid, values)
        return places, masses, charge + more

    monkeypatch.setattr(recursion, "payoff_by_fourier", counting)
    monkeypatch.setattr(recursion, "block_pmf", charged)
    return counted


@pytest.mark.parametrize("rounds", [40, 63])
def test_what_a_block_does_not_hold_is_added_for_every_block(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Blocks of one size and of two: each says 0.01 more, which makes (r/M) V_M larger by r/M times all of these."""
    asked = zeroed_out(3.0, 0.024, False), rounds, 0.3, replace(QUICK, work=6_000)
    before = recursion_divergence(*asked)
    counted = charged_blocks(monkeypatch, 0.01)
    more = recursion_divergence(*asked) - before
    assert counted[0] > 1
    assert more == pytest.approx(0.3 / rounds * 0.01 * counted[0], rel=1e-8)


def test_a_payoff_is_charged_for_blocks_and_for_other_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the sum of forty rounds beside one term that is 0: half their value, and every charge by its weight."""
    term, work = zeroed_out(3.0, 0.08, False), replace(QUICK, work=6_000)

    def paid(more: float) -> float:
        def nothing(step: float) -> tuple[RepeatedTerms, float]:
            return RepeatedTerms(np.array([0]), np.array([1.0]), step, 0.0, 1), more

        return recursion_payoff(term, 40, 0.5, lambda sums: np.maximum(sums, 0.0), nothing, work)

    exact, before = 20.0 * exact_divergence(3.0, 40, 0.08, shares=(0.0, 1.0)), paid(0.0)
    assert exact <= before <= 1.3 * exact
    assert paid(0.02) - before == pytest.approx(0.02, rel=1e-8)
    counted = charged_blocks(monkeypatch, 0.01)
    charged = paid(0.0)
    assert charged - before == pytest.approx(0.5 * 0.01 * (counted[0] - 1), rel=1e-8)


def test_every_round_is_charged_for_its_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds known up to a share of 1e-3, each of a value and of what it is divided by: e^(2 n 1e-3) for n of them."""
    term = zeroed_out(2.0, 0.1, False)
    before = recursion_divergence(term, 20, 0.9, QUICK)
    monkeypatch.setattr(recursion.OneRound, "rounding", property(lambda _: 1e-3))
    assert recursion_divergence(term, 20, 0.9, QUICK) == pytest.approx(before * math.exp(0.04), rel=1e-8)
