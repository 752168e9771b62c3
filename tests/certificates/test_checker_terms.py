"""The checker's smallest parts: which way each number is rounded, and which factor belongs to which neighbors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

from flint import arb, ctx, fmpz
from mpmath import mp

from calipers_verify import attacks, checker, pmfs, stop_loss
from calipers_verify.neighbors import cut, neighbors_of
from calipers_verify.reading import Refused, effort_left, spend
from calipers_verify.rows import ONE, Row, coarser, composed, window
from calipers_verify.shuffled import _moved
from calipers_verify.steps import Phase, phases_of
from calipers_verify.stop_loss import ball, tail


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    attacks._epoch.cache_clear()
    with ctx.workprec(stop_loss.PRECISION):
        yield
    attacks._epoch.cache_clear()


def row(low: int, *masses: int) -> Row:
    return Row(low, [fmpz(mass) for mass in masses])


def rows(*masses: int) -> list[Row]:
    return [row(0, *masses) for _ in range(4)]


def exact_product(first: Row, second: Row) -> dict[int, Fraction]:
    found: dict[int, Fraction] = {}
    for i, a in enumerate(first.masses, first.low):
        for j, b in enumerate(second.masses, second.low):
            found[i + j] = found.get(i + j, Fraction(0)) + Fraction(int(a) * int(b), ONE)
    return found


def assert_rounded(found: Row, exact: dict[int, Fraction], up: bool, units: int) -> None:
    """Each mass on its side of the exact one, by at most so many units, and not by chance equal to all of them."""
    for place, value in exact.items():
        mass = int(found.masses[place - found.low])
        assert value <= mass <= value + units if up else value - units <= mass <= value
    assert any(int(found.masses[place - found.low]) != value for place, value in exact.items())


def test_sums_of_scores_are_rounded_down_for_powers_and_up_for_false_positives() -> None:
    """Masses of a few 2^-256 and of a third: all four rows of a sum, against exact fractions."""
    first, second = rows(3, ONE // 3, 7), rows(ONE // 7, 5)
    noise_down, noise_up, p, q = attacks._added(first, second)
    exact = exact_product(first[0], second[0])
    twice = {place: 2 * value for place, value in exact.items()}
    assert_rounded(noise_down, exact, False, 1)
    assert_rounded(noise_up, exact, True, 1)
    assert_rounded(p, twice, False, 2)  # the record is in the one or in the other
    assert_rounded(q, twice, True, 2)


def test_a_sum_with_itself_counts_the_record_in_either_half() -> None:
    """Doubling one object takes a shorter way to the same rows."""
    one = rows(3, ONE // 3, 7)
    for short, long in zip(attacks._added(one, one), attacks._added(one, rows(3, ONE // 3, 7)), strict=True):
        assert [int(mass) for mass in short.masses] == [int(mass) for mass in long.masses]


def test_coins_are_rounded_with_their_row() -> None:
    """Odd scores with odd masses: halves go to both neighbors, down in even rows and up in odd ones."""
    exact = {0: 4 + Fraction(5, 2), 1: Fraction(5, 2) + Fraction(9, 2), 2: Fraction(9, 2)}
    one = [row(0, 4, 5, 0, 9) for _ in range(4)]
    for i, found in enumerate(attacks._halved(one)):
        assert_rounded(found, exact, bool(i % 2), 2)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("opposed", [False, True])
def test_cells_of_one_round_lie_on_their_sides(replaced: bool, opposed: bool, back: bool) -> None:
    """p below and q above the exact probabilities of every cell, a share of 1/3 in noise: by at most three units."""
    phase = Phase("dealt", 1, Fraction(1, 2), replaced, Fraction(1, 3), 1, opposed)
    cuts = [Fraction(-1, 3), Fraction(2, 7), Fraction(1)]
    p, q = attacks.epoch(cuts, [0, 1, 2, 3], phase, back, 0)
    r = ball(Fraction(1, 2)).sqrt()
    # The record's gradient is u, its replacement's -u; others, where they may be chosen, -u, and it takes their place.
    present, absent = (2, 0 if replaced else 1) if opposed else (1, -1 if replaced else 0)
    for found, mean, up in ((p, absent if back else present, False), (q, present if back else absent, True)):
        for cell in range(4):
            exact = (2 * _cell(cuts, cell, arb(0)) + _cell(cuts, cell, mean * r)) / 3 * ONE
            gap = arb(int(found.masses[cell])) - exact
            assert (gap >= 0 and gap < 3) if up else (gap <= 0 and gap > -3)


def _cell(cuts: list[Fraction], cell: int, mean: arb) -> arb:
    above = [arb(1), *(tail(ball(one) - mean) for one in cuts), arb(0)]
    return above[cell] - above[cell + 1]


def test_shares_of_rounds_are_rounded_once_more_on_the_same_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not divide by 3 rounds and a share of 2/5: floor for p, ceiling for q, as exact fractions say."""
    fixed = [row(0, 4, 11), row(0, 4, 11), row(0, 7, 23), row(0, 7, 23)]
    monkeypatch.setattr(attacks, "_sum", lambda parts, every, dust: fixed)
    phase = Phase("dealt", 1, Fraction(1), False, Fraction(2, 5), 3)
    p, q = attacks.epoch([Fraction(0)], [0, 1], phase, False, 0)
    exact = [Fraction(2, 5) * mass / 3 + Fraction(3, 5) * noise for mass, noise in ((7, 4), (23, 11))]
    assert [int(mass) for mass in p.masses] == [math.floor(value) for value in exact]
    assert [int(mass) for mass in q.masses] == [math.ceil(value) for value in exact]


def test_what_a_test_shows_is_its_power_less_k_times_its_false_positives() -> None:
    """Two rows, every threshold: sums from the threshold on, and e^epsilon."""
    both = [row(-1, ONE // 8, ONE // 4, ONE // 2), row(-1, ONE // 2, ONE // 4, ONE // 8)]
    for threshold, power, wrong in ((-5, 7, 7), (-1, 7, 7), (0, 6, 3), (1, 4, 1), (2, 0, 0)):
        shown = attacks.delta_shown(both, threshold, Fraction(1, 2))
        assert abs(float(shown.mid()) - (power - math.exp(0.5) * wrong) / 8) < 1e-15


def test_places_are_cut_only_where_little_is() -> None:
    """At most the dust goes at either end, and never everything."""
    assert window([1, 1, 5, 1], 1) == (1, 3)
    assert window([1, 1, 5, 1], 2) == (2, 3)
    start, end = window([1, 1], 100)
    assert end - start == 1
    cut_rows = attacks._cut([row(0, 1, 9, 9, 1), row(0, 1, 9, 9, 1)], 2)
    assert [each.low for each in cut_rows] == [1, 1]
    assert [len(each.masses) for each in cut_rows] == [2, 2]


def test_halving_keeps_mass_and_mean() -> None:
    """Both shares of an odd place are half of it, whether the row begins at an odd or at an even place."""
    for low in (-3, -2, 5):
        coarse = coarser(row(low, 10, 20, 30, 40), False)
        assert sum(map(int, coarse.masses)) == 100
        assert sum(2 * n * int(mass) for n, mass in enumerate(coarse.masses, coarse.low)) == sum(
            n * mass for n, mass in enumerate((10, 20, 30, 40), low)
        )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 13])
def test_doubling_joins_as_many_as_were_asked_for(count: int) -> None:
    """Joined by addition, halved never: counts of parts add up."""
    found = composed([((1, 0), count), ((0, 1), 5)], 0, lambda one: one, lambda a, b, _: (a[0] + b[0], a[1] + b[1]))
    assert found == (count, 5)


@pytest.mark.parametrize(("replaced", "factor"), [(False, 1), (True, 4)])
def test_fixed_batches_compose_to_one_gaussian_of_their_squares(replaced: bool, factor: int) -> None:
    """mu^2 = sum of repeats r^2, four times as much where records are replaced: u against -u is 2 apart."""
    phases = [Phase("dealt", 7, Fraction(1, 4), replaced), Phase("dealt", 3, Fraction(1, 9), replaced)]
    found = checker.fixed_batches(phases, "upper")
    assert abs(float((found * found).mid()) - factor * (7 / 4 + 3 / 9)) < 1e-12


def test_a_replaced_record_s_known_batch_costs_what_two_gaussians_do() -> None:
    """D of N(2 r, 1) against N(0, 1) at e^8 by mpmath is the bound of the checker, for both kinds of proof."""
    sigma, steps, epsilon = Fraction(1), 4, Fraction(8)
    phase = Phase("dealt", steps, 1 / sigma**2, True)
    mu, x = mp.mpf(2) * mp.sqrt(steps), mp.mpf(8)
    exact = mp.ncdf(mu / 2 - x / mu) - mp.exp(x) * mp.ncdf(-mu / 2 - x / mu)
    found = stop_loss.gaussian(checker.fixed_batches([phase], "upper"), ball(epsilon))
    assert abs(float(found.mid()) - float(exact)) < 1e-12
    assert abs(float((phase.mu * phase.mu).mid()) - 4.0) < 1e-12


def test_fixed_batches_prove_no_attack_on_hidden_records() -> None:
    """Neither where the round is random, nor where taking part is; nor anything where the size is seen."""
    for phase in (
        Phase("dealt", 1, Fraction(1), False, rounds=2),
        Phase("dealt", 1, Fraction(1), False, share=Fraction(1, 2)),
        Phase("realized", 1, Fraction(1), False),
        Phase("size", 1, Fraction(1), False),
    ):
        with pytest.raises(Refused):
            checker.fixed_batches([phase], "lower")
    with pytest.raises(Refused):
        checker.fixed_batches([Phase("size", 1, Fraction(1), False)], "upper")


def brute(size: int, batch: int, kept: bool) -> tuple[int, int]:
    """Full batches before the last, and records of the last (kept) or dropped, one record after the other."""
    full, rest = 0, 0
    for _ in range(size):
        if rest == batch:
            full, rest = full + 1, 0
        rest += 1
    return (full, rest) if kept or rest < batch else (full + 1, 0)


@pytest.mark.parametrize("last", ["drop", "keep"])
def test_cuts_are_those_of_dealing_records_one_by_one(last: str) -> None:
    """All N up to 30 and B up to 7: batches, rest, and the neighbors with as many full batches and a last one."""
    for batch in range(1, 8):
        for size in range(batch, 31):
            found = cut(size, batch, last)
            assert (found.rounds, found.rest) == brute(size, batch, last == "keep")
            same = set()
            for other in (size - 1, size + 1):
                full, rest = brute(other, batch, last == "keep") if other else (0, 0)
                if full == found.rounds and (last == "drop" or rest > 0):
                    same.add(other)
            assert found.neighbors == same


def phase_of(adjacency: str, record: tuple[Any, ...]) -> list[list[Phase]]:
    return phases_of(record, neighbors_of(adjacency, (record,)))


def test_every_sampler_has_the_rounds_shares_and_shifts_of_its_theorem() -> None:
    """r^2, rounds, share and repeats of each kind, from the statements in docs/mathematics."""
    two, tenth = Fraction(2), Fraction(1, 10)
    ((step,),) = phase_of("add-remove", ("poisson", two, tenth, 50))
    assert (step.kind, step.repeats, step.shift, step.share, step.rounds) == ("dealt", 50, Fraction(1, 4), tenth, 1)
    ((bins,),) = phase_of("add-remove", ("balls-and-bins", two, 20, "every-epoch", 3))
    assert (bins.repeats, bins.shift, bins.rounds, bins.share) == (3, Fraction(1, 4), 20, 1)
    ((bins,),) = phase_of("add-remove", ("balls-and-bins", two, 20, "once", 3))
    assert (bins.repeats, bins.shift, bins.rounds) == (1, Fraction(3, 4), 20)
    ((fixed,),) = phase_of("zero-out", ("deterministic", two, 100, 9, "drop", 5))
    assert (fixed.repeats, fixed.shift, fixed.rounds) == (5, Fraction(1, 4), 1)
    # Really removed from a fixed order: M sums move by 2, a last one that is kept by 1.
    ((fixed,),) = phase_of("add-remove", ("deterministic", two, 100, 9, "keep", 5))
    assert (fixed.repeats, fixed.shift) == (1, Fraction(5, 4) * (4 * 11 + 1))
    ((fixed,),) = phase_of("add-remove", ("deterministic", two, 100, 9, "drop", 5))
    assert fixed.shift == Fraction(5, 4) * 4 * 11


def test_shuffled_epochs_have_the_kind_of_their_remainder_and_view() -> None:
    """With a remainder, without one, kept, known order, isolated; and add-remove with twice the shift."""
    two = Fraction(2)

    def one(adjacency: str, size: int, last: str, order: str, view: str) -> list[Phase]:
        (found,) = phase_of(adjacency, ("shuffle", two, size, 9, last, order, view, 5))
        return found

    (worst,) = one("zero-out", 100, "drop", "every-epoch", "worst-case")
    assert (worst.kind, worst.rounds, worst.share, worst.opposed) == ("dropping", 11, Fraction(99, 100), True)
    assert [each.kind for each in one("zero-out", 99, "drop", "every-epoch", "worst-case")] == ["full"]
    assert [each.kind for each in one("substitute", 100, "keep", "every-epoch", "worst-case")] == ["full"]
    assert [each.kind for each in one("zero-out", 100, "drop", "once", "worst-case")] == ["fixed"]
    assert [each.kind for each in one("zero-out", 100, "keep", "every-epoch", "isolated")] == ["covered"]
    assert [each.kind for each in one("zero-out", 100, "drop", "every-epoch", "isolated")] == ["dealt"]
    (hidden,) = one("add-remove", 100, "drop", "every-epoch", "worst-case")
    assert (hidden.kind, hidden.shift, hidden.rounds, hidden.share) == ("dealt", 1, 11, Fraction(99, 100))
    hidden, last = one("add-remove", 100, "keep", "every-epoch", "worst-case")
    assert (hidden.shift, hidden.rounds, last.shift, last.rounds) == (1, 11, Fraction(1, 4), 1)
    # Nothing to remove that leaves as many batches, so the larger dataset has one record more.
    (hidden,) = one("add-remove", 99, "drop", "every-epoch", "worst-case")
    assert hidden.share == Fraction(99, 100)


def test_infinity_of_either_law_is_infinity_of_the_product() -> None:
    """1 - (1 - a)(1 - b) of two laws of mass 1, rounded up; never less."""
    first, second = (
        pmfs.LatticePmf(Fraction(1, 8), row(0, ONE // 2, ONE // 2 - lost), lost) for lost in (ONE // 5, ONE // 7)
    )
    found = pmfs.multiplied(first, second, 0)
    exact = ONE - Fraction((ONE - first.infinity) * (ONE - second.infinity), ONE)
    assert exact <= found.infinity <= exact + 2


@pytest.mark.parametrize("c", [-0.8, -0.2, 0.3, 1.5])
def test_the_call_of_a_displaced_record_is_its_integral(c: float) -> None:
    """X* at the shifts (2r, r) above 0 and (0, r) below, replaced (2r, 0) and (0, 2r): E[(X - c)+]."""
    r, k, z = 0.7, 1.3, np.linspace(-12.0, 14.0, 100_001)
    density = np.exp(-0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    for replaced, right, left in ((False, (2, 1), (0, 1)), (True, (2, 0), (0, 2))):
        a, b = (r * shift for shift in (right if c > 0 else left))
        value = np.exp(a * z - a * a / 2) - k * np.exp(b * z - b * b / 2) - c
        exact = float(np.maximum(value, 0.0) @ density)
        found = stop_loss.displaced(ball(Fraction(7, 10)), ball(Fraction(13, 10)), replaced)(ball(Fraction(c)))
        assert abs(float(found.mid()) - exact) < 1e-7


def test_a_round_moves_thresholds_as_written_out() -> None:
    """E[V(s + X)] of whole numbers, V of slope 1 below the lattice and constant above it: every product, rounded up."""
    rng, size = np.random.default_rng(7), 6
    masses = [int(each) * ONE // 997 for each in rng.integers(0, 300, 2 * size + 1)]
    heights = sorted((int(each) * ONE // 991 for each in rng.integers(1, 5000, size + 1)), reverse=True)

    def height(place: int) -> int:
        return heights[max(0, min(place, size))] + max(0, -place) * ONE

    found = _moved([fmpz(mass) for mass in masses], fmpz(5))([fmpz(each) for each in heights])
    for place, value in enumerate(found):
        exact = sum(mass * height(place - move) for move, mass in enumerate(masses, -size))
        assert int(value) == exact // ONE + 1 + 5


def test_an_epoch_that_is_known_costs_as_much_effort() -> None:
    """What is remembered does not let a longer certificate pass here than elsewhere."""
    phase = Phase("dealt", 1, Fraction(1, 2), False, Fraction(1), 9)
    spent = []
    for _ in range(2):
        spend(0, anew=True)
        before = effort_left()
        attacks.epoch([Fraction(0)], [0, 1], phase, False, 0)
        spent.append(before - effort_left())
    assert spent[0] == spent[1] > 0
