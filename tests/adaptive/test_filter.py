"""Filters and odometers: what they allow is proven, and what was spent survives crashes and second processes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import calipers as cp
from calipers.adaptive import FilterSpent
from calipers.adaptive.rules import FilterRule
from calipers.adaptive.solver import PRECISION, Menu
from calipers.adaptive.steps import step_pairs

QUIET, SHARP = (cp.Run(sample_rate=0.1, steps=1, noise_multiplier=sigma) for sigma in (2.0, 1.5))
MENU = {"quiet": QUIET, "sharp": SHARP}
EPSILON, DELTA = 2.0, 1e-5


@pytest.fixture(scope="module")
def used() -> cp.PrivacyFilter:
    return cp.PrivacyFilter(MENU, EPSILON, DELTA, rule="menu")


def test_the_budget_is_proven_and_one_more_unit_is_not_needed(used: cp.PrivacyFilter) -> None:
    """Measured from both sides, the run that the filter admits is within the target, and nearly attains it."""
    run = used.adaptive_run
    assert run is not None
    found = cp.measure(run).epsilon(DELTA)
    assert found.lower <= EPSILON
    assert found.upper <= 1.002 * EPSILON  # another lattice than that of the calibration, both bounds hold
    assert found.lower >= 0.95 * EPSILON


def test_no_kind_is_allowed_more_steps_than_a_fixed_length(used: cp.PrivacyFilter) -> None:
    """`remaining` steps of one kind alone are proven by the ordinary composition, too."""
    for name, count in used.remaining.items():
        assert count >= 1
        assert cp.measure(MENU[name].replace(steps=count)).epsilon(DELTA).lower <= EPSILON


def test_one_kind_of_step_loses_almost_nothing() -> None:
    """Of one kind the filter allows what a length fixed in advance does, but for the lattice."""
    alone = cp.PrivacyFilter({"quiet": QUIET}, EPSILON, DELTA, rule="menu").remaining["quiet"]
    assert cp.measure(QUIET.replace(steps=alone)).epsilon(DELTA).lower <= EPSILON
    assert cp.measure(QUIET.replace(steps=round(1.03 * alone) + 2)).epsilon(DELTA).lower > EPSILON


def test_gaussian_releases_use_the_gaussian_filter() -> None:
    """Sum of mu^2, at most that of the Gaussian mechanism with this target; the report says which filter."""
    made = cp.PrivacyFilter({"a": cp.Guarantee(mu=0.1), "b": cp.Guarantee(mu=0.03)}, 1.0, 1e-5)
    assert made.rule.kind == "gaussian"
    assert "Gaussian filter" in made.report()
    made.spend("a", 3)
    made.spend("b", made.remaining["b"])
    spent = made.spent
    total = (spent["a"] * 0.1**2 + spent["b"] * 0.03**2) ** 0.5
    assert cp.measure(cp.Guarantee(mu=total)).epsilon(1e-5).lower <= 1.0
    one_more = (total**2 + 0.03**2) ** 0.5
    assert cp.measure(cp.Guarantee(mu=one_more)).epsilon(1e-5).upper > 1.0


def test_the_renyi_filter_is_proven_and_allows_less_here(used: cp.PrivacyFilter) -> None:
    """Its steps of one kind are within the target; the menu filter, which allows more, is chosen by default."""
    renyi = cp.PrivacyFilter(MENU, EPSILON, DELTA, rule="renyi")
    assert renyi.rule.order is not None
    for name, count in renyi.remaining.items():
        assert cp.measure(MENU[name].replace(steps=max(1, count))).epsilon(DELTA).upper <= EPSILON
        assert count < used.remaining[name]
    assert cp.PrivacyFilter(MENU, EPSILON, DELTA).rule.kind == "menu"


def test_spending_beyond_the_budget_raises_and_counts_nothing() -> None:
    """The step that does not fit must not be taken, and leaves the counts as they were."""
    made = cp.PrivacyFilter(MENU, EPSILON, DELTA, rule="menu")
    made.spend("quiet", made.remaining["quiet"])
    before = made.spent
    assert not made.allows("sharp")
    with pytest.raises(FilterSpent, match="no room for 1 x 'sharp'"):
        made.spend("sharp")
    assert made.spent == before


def test_noise_off_the_menu_is_charged_as_the_next_worse_step(used: cp.PrivacyFilter) -> None:
    """A run with more noise than a step of the menu is covered by it; one with less than all is not."""
    assert used.name_of(SHARP.replace(noise_multiplier=1.7)) == "sharp"
    assert used.name_of(QUIET.replace(noise_multiplier=7.0)) == "quiet"
    for step in (SHARP.replace(noise_multiplier=0.9), SHARP.replace(sample_rate=0.3)):
        with pytest.raises(cp.InputError, match="not on the menu"):
            used.name_of(step)
    with pytest.raises(cp.InputError, match="'quite'"):
        used.allows("quite")


def test_a_target_that_no_step_meets_is_refused() -> None:
    """Nothing fits: the filter is not made."""
    with pytest.raises(cp.CertificationError, match="No step of the menu"):
        cp.PrivacyFilter({"sharp": SHARP.replace(noise_multiplier=0.3)}, 0.5, 1e-6)


def test_an_odometer_reads_filters_that_share_delta() -> None:
    """Readings are the smallest epsilon whose budget, at delta / 3, holds what was spent."""
    meter = cp.Odometer(MENU, [0.5, 1.0, 2.0], DELTA)
    assert meter.reading == 0.0
    assert list(meter.budgets) == sorted(meter.budgets)
    seen = [meter.spend("quiet") for _ in range(3)]
    assert seen == sorted(seen)
    for epsilon, budget in zip(meter.epsilons, meter.budgets, strict=True):
        for cost, step in zip(meter.costs, MENU.values(), strict=True):
            if budget // cost:
                assert cp.measure(step.replace(steps=budget // cost)).epsilon(DELTA / 3).lower <= epsilon
    meter.spend("sharp", 10_000)
    assert meter.reading == float("inf")


def test_a_file_resumes_and_refuses_another_menu_or_target(tmp_path: Path) -> None:
    """What was spent is there again; the menu, epsilon and delta of a file cannot be changed afterwards."""
    path = tmp_path / "run.filter"
    made = cp.PrivacyFilter({"quiet": QUIET}, EPSILON, DELTA, path=path)
    made.spend("quiet", 2)
    again = cp.PrivacyFilter({"quiet": QUIET}, EPSILON, DELTA, path=path)
    assert again.spent == {"quiet": 2}
    assert again.rule == made.rule
    for menu, epsilon in (({"quiet": QUIET}, 3.0), ({"quiet": SHARP}, EPSILON)):
        with pytest.raises(cp.InputError, match="another menu or target"):
            cp.PrivacyFilter(menu, epsilon, DELTA, path=path)
    path.write_bytes(b"no database at all, but a file of somebody's" * 40)
    with pytest.raises(cp.InputError, match="no filter of Calipers"):
        cp.PrivacyFilter({"quiet": QUIET}, EPSILON, DELTA, path=path)


SPENDER = textwrap.dedent(
    """
    import sys
    from calipers.adaptive.filter import FilterSpent, PrivacyFilter
    from calipers.run import Run
    quiet = Run(sample_rate=0.1, steps=1, noise_multiplier=2.0)
    keep = PrivacyFilter({"quiet": quiet}, 2.0, 1e-5, path=sys.argv[1])
    taken = 0
    try:
        while True:
            keep.spend("quiet")
            taken += 1
            print(taken, flush=True)
    except FilterSpent:
        pass
    """
)


def _spender(path: Path) -> subprocess.Popen[str]:
    source = str(Path(cp.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", SPENDER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
    )


@pytest.mark.slow
def test_two_processes_cannot_both_spend_the_last_step(tmp_path: Path) -> None:
    """Together they take exactly as many steps as the budget holds."""
    path = tmp_path / "shared.filter"
    allowed = cp.PrivacyFilter({"quiet": QUIET}, EPSILON, DELTA, path=path).remaining["quiet"]
    racers = [_spender(path), _spender(path)]
    taken = [len(racer.communicate(timeout=120)[0].split()) for racer in racers]
    assert sum(taken) == allowed
    assert cp.PrivacyFilter({"quiet": QUIET}, EPSILON, DELTA, path=path).remaining["quiet"] == 0


@pytest.mark.slow
def test_a_killed_process_has_spent_every_step_it_took(tmp_path: Path) -> None:
    """After kill -9 the file holds at least as many steps as the process said it had taken."""
    path = tmp_path / "killed.filter"
    victim = _spender(path)
    assert victim.stdout is not None
    seen = [victim.stdout.readline() for _ in range(3)]
    victim.send_signal(signal.SIGKILL)
    rest = victim.communicate(timeout=60)[0].split()
    said = int(rest[-1] if rest else seen[-1])
    spent = cp.PrivacyFilter({"quiet": QUIET}, EPSILON, DELTA, path=path).spent["quiet"]
    assert said <= spent <= said + 1


@pytest.mark.slow
def test_five_noise_levels_and_a_thousand_steps_take_less_than_five_seconds() -> None:
    """q = 0.01, epsilon 3, delta 1e-5, of one core; what is lost against a fixed schedule is stated, at most 30 %."""
    menu = [cp.Run(sample_rate=0.01, steps=1, noise_multiplier=sigma) for sigma in (0.7, 0.74, 0.78, 0.82, 0.84)]
    began = time.process_time()
    made = cp.PrivacyFilter(menu, 3.0, 1e-5)
    assert time.process_time() - began < 5.0
    assert made.rule.kind == "menu"
    assert max(made.remaining.values()) > 900
    assert min(made.rule.shares) > 0.7
    assert "% of about" in made.report()


@pytest.fixture
def hurried(monkeypatch) -> None:
    """As if every recursion over a budget took minutes."""
    monkeypatch.setattr("calipers.adaptive.solver.PRECISION", dataclasses.replace(PRECISION, most_work=1e4))


@pytest.mark.usefixtures("hurried")
def test_a_menu_that_would_take_minutes_is_refused_at_once() -> None:
    """Named, the menu filter is refused before it begins; the sentence says why."""
    with pytest.raises(cp.UnsupportedError, match=r"would take \d+ levels"):
        cp.PrivacyFilter(MENU, EPSILON, DELTA, rule="menu")


@pytest.mark.usefixtures("hurried")
def test_the_renyi_filter_is_taken_where_the_menu_filter_is_not_computed_and_named() -> None:
    """The Renyi filter is the one then, and the report and JSON say so."""
    made = cp.PrivacyFilter(MENU, EPSILON, DELTA)
    assert made.rule.kind == "renyi"
    assert min(made.rule.shares) > 0.3
    assert "Renyi filter" in made.report()
    assert f"order {made.rule.order:.4g}" in made.report()
    described = made.to_dict()["rule"]
    assert isinstance(described, dict)
    assert described["kind"] == "renyi"
    for name, count in made.remaining.items():
        assert cp.measure(MENU[name].replace(steps=count)).epsilon(DELTA).upper <= EPSILON


def test_the_second_direction_is_solved_where_renyi_divergences_do_not_prove_it(monkeypatch) -> None:
    """Skipping it by Renyi divergences gives the budget that solving both directions gives."""
    quick = cp.PrivacyFilter(MENU, EPSILON, DELTA, rule="menu").rule
    monkeypatch.setattr(Menu, "meets", lambda *_: False)
    assert cp.PrivacyFilter(MENU, EPSILON, DELTA, rule="menu").rule == quick


def test_renyi_divergences_prove_no_direction_that_is_wrong() -> None:
    """`meets` is a proof: at the same budget the recursion's own bound is at most the epsilon it accepted."""
    menu = Menu(tuple(step_pairs(name, step) for name, step in MENU.items()), (2, 5))
    lattice = menu.lattice(140, 4.0)
    for reverse in (False, True):
        levels = menu.upper_levels(lattice, reverse)
        for _ in range(140):
            levels.advance()
        accepted = [e for e in (1.0, 1.5, 1.8, 2.0, 2.5, 3.0, 4.0) if menu.meets(140, e, DELTA, reverse)]
        assert accepted
        truth = [e for e in (1.0, 1.5, 1.8, 2.0, 2.5, 3.0, 4.0) if levels.delta(e) <= DELTA]
        assert set(accepted) <= set(truth)


def best(
    laws: list[dict[int, float]], fits: Callable[[tuple[int, ...]], bool], counts: tuple[int, ...], x: float
) -> float:
    """The largest divergence at e^x of any policy whose counts fit, all of them tried."""
    found = max(-math.expm1(x), 0.0)
    for kind, law in enumerate(laws):
        more = tuple(count + (kind == place) for place, count in enumerate(counts))
        if fits(more):
            found = max(found, math.fsum(p * best(laws, fits, more, x - loss) for loss, p in law.items()))
    return found


@pytest.mark.parametrize("budget", [2, 3])
def test_steps_paid_in_blocks_show_no_more_than_blocks(budget: int) -> None:
    """Steps of two kinds in any order, paid two and three at a time: no policy exceeds the recursion over blocks."""
    laws = [{-1: 0.25, 1: 0.75}, {-2: 0.0625, 0: 0.5, 1: 0.4375}]
    rule = FilterRule("menu", (1.0, 1.0), budget, (9, 9), blocks=(2, 2))
    blocks = [
        {total: math.fsum(p * q for a, p in law.items() for b, q in law.items() if a + b == total) for total in sums}
        for law in laws
        for sums in [sorted({a + b for a in law for b in law})]
    ]
    for x in (0.0, 0.5, 1.0):
        whole = best(blocks, lambda counts: sum(counts) <= budget, (0, 0), x)
        assert best(laws, rule.fits, (0, 0), x) <= whole + 1e-15
        unpaid = best(laws, lambda counts: sum(counts) <= 2 * budget, (0, 0), x)
        assert rule.fits((2 * budget, 0))
        assert whole <= unpaid + 1e-15


def test_what_is_left_counts_blocks_that_were_begun() -> None:
    """`further` is the largest number that fits, whatever was taken before."""
    rule = FilterRule("menu", (2.0, 1.0), 9, (20, 40), blocks=(3, 4))
    for counts in itertools.product(range(14), range(38)):
        if rule.fits(counts):
            for place in (0, 1):
                more = rule.further(counts, place)
                assert rule.fits(tuple(c + more * (i == place) for i, c in enumerate(counts)))
                assert not rule.fits(tuple(c + (more + 1) * (i == place) for i, c in enumerate(counts)))
    assert FilterRule.from_dict(rule.to_dict()) == rule


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "epsilon"), [(1e-3, 1.0), (1e-4, 0.2)])
def test_small_rates_are_paid_in_blocks(rate: float, epsilon: float) -> None:
    """Thousands of steps at rates of 1e-3 and 1e-4: quick, proven from both sides, and nearly what is allowed alone."""
    began = time.process_time()
    menu = {f"{sigma}": cp.Run(sample_rate=rate, steps=1, noise_multiplier=sigma) for sigma in (0.8, 0.9)}
    made = cp.PrivacyFilter(menu, epsilon, DELTA)
    assert time.process_time() - began < 10.0
    assert made.rule.kind == "menu"
    assert min(made.rule.blocks) > 10
    assert 0.9 < min(made.rule.shares) <= max(made.rule.shares) <= 1.0
    for name, count in made.remaining.items():
        assert count > 10_000
        assert cp.measure(menu[name].replace(steps=count)).epsilon(DELTA).lower <= epsilon
    made.spend("0.8", 5)
    assert made.remaining["0.9"] == made.rule.blocks[1] * (int(made.rule.budget) - 1)
    found = cp.measure(made.adaptive_run).epsilon(DELTA)
    assert 0.95 * epsilon <= found.lower <= epsilon
    assert found.upper <= 1.01 * epsilon


def test_a_measurement_of_too_many_single_steps_says_how_to_block_them() -> None:
    """Refused before it begins, with the number of steps for a block."""
    step = cp.Run(sample_rate=1e-4, steps=1, noise_multiplier=0.8)
    with pytest.raises(cp.UnsupportedError, match=r"steps = 10, the same costs, and a budget of 1000"):
        cp.measure(cp.AdaptiveRun([step], [1], 10_000)).epsilon(1e-5)


@pytest.mark.slow
def test_an_odometer_at_a_small_rate_pays_in_blocks() -> None:
    """Rate 1e-3: the first step of a block pays for all of it, and a reading is never below what a fixed run has."""
    menu = {str(noise): cp.Run(sample_rate=1e-3, steps=1, noise_multiplier=noise) for noise in (0.8, 1.0)}
    meter = cp.Odometer(menu, [0.5, 1.0], DELTA)
    assert meter.blocks[0] > 1
    one = meter.spend("0.8")
    assert one == meter.spend("0.8", meter.blocks[0] - 1)
    steps = 2000
    reading = meter.spend("0.8", steps - meter.blocks[0])
    fixed = cp.measure(cp.Run(sample_rate=1e-3, steps=steps, noise_multiplier=0.8)).epsilon(DELTA / 2)
    assert fixed.upper <= reading < float("inf")
