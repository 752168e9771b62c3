"""Comparisons of many runs: who leads, and every pair told once, in few sentences."""

from __future__ import annotations

import dataclasses
from itertools import combinations

from calipers.measure import measure
from calipers.reports.answers import Answers, Questions, answer
from calipers.reports.compared import brief_comparison
from calipers.reports.comparison import Comparison, Order, PairVerdict
from calipers.run import Run

ONE = answer(measure(Run(sample_rate=1.0, steps=1, noise_multiplier=2.0)), Questions(fprs=(0.1,)))
NAMES = ("a", "b", "c", "d", "e")


def answers(lower: float, upper: float) -> Answers:
    """Somebody's answers with this bracket of epsilon."""
    first, *others = ONE.readings
    bracket = dataclasses.replace(first.bracket, lower=lower, upper=upper)
    return dataclasses.replace(ONE, readings=(dataclasses.replace(first, bracket=bracket), *others))


def compared(ends: list[tuple[float, float]], orders: dict[tuple[str, str], Order]) -> Comparison:
    names = NAMES[: len(ends)]
    pairs = combinations(names, 2)
    verdicts = tuple(PairVerdict(a, b, orders.get((a, b), Order.OPEN), f"{a} beside {b}.") for a, b in pairs)
    return Comparison(names, tuple(answers(*end) for end in ends), verdicts)


def test_those_who_may_have_the_smallest_epsilon_are_named():
    """a lies in [1, 2], b in [1.5, 3] may be smaller, c from 2.5 on is not; with all overlapping nothing is said."""
    said = compared([(1, 2), (1.5, 3), (2.5, 4)], {}).headline
    assert "a or b certainly has the smallest epsilon, at most 2 (which of these is undecided; each other has" in said
    assert "at least 2.5)" in said
    assert "a certainly has the smallest epsilon, at most 2 (the next has" in compared([(1, 2), (2.5, 4)], {}).headline
    undecided = "Whether one run is the most private at every false positive rate is undecided"
    assert compared([(1, 2), (1.5, 3)], {}).headline.startswith(undecided)


def test_curves_that_cross_leave_no_run_the_most_private() -> None:
    """a and b cross and a beats c: none of them is; with a pair left open it is undecided."""
    crossed = {("a", "b"): Order.CROSSING, ("a", "c"): Order.FIRST}
    assert "No run is the most private" in compared([(1, 2), (1.5, 3), (2.5, 4)], crossed).headline
    crossed.pop(("a", "c"))
    assert "is undecided: bounds overlap" in compared([(1, 2), (1.5, 3), (2.5, 4)], crossed).headline


def test_few_runs_have_a_sentence_for_every_pair():
    found = compared([(1, 2)] * 3, {("a", "b"): Order.FIRST})
    assert found.sentences == ("a beside b.", "a beside c.", "b beside c.")


def test_many_runs_have_a_sentence_for_everyone_who_wins():
    """Ten pairs of five runs: each is told, in the direction that is proven."""
    orders = {("a", "b"): Order.FIRST, ("a", "c"): Order.FIRST, ("b", "c"): Order.SECOND, ("d", "e"): Order.SAME}
    won, other, same, still = compared([(1, 2)] * 5, orders).sentences
    assert won.startswith("a is certainly more private than b, c, at every")
    assert other.startswith("c is certainly more private than b, at every")
    assert same.startswith("Equally private")
    assert same.endswith(": d and e.")
    assert still.endswith("between: a and d; a and e; b and d; b and e; c and d; c and e.")


def test_many_runs_stand_in_rows_and_what_they_share_is_said_once():
    table, _, runs, *_ = brief_comparison(compared([(1, 2)] * 5, {})).sections
    assert [row[0] for row in table.blocks[0].rows] == list(NAMES)
    assert "separation" not in table.blocks[0].columns
    few, *_ = brief_comparison(compared([(1, 2)] * 2, {})).sections
    assert few.blocks[0].columns == ("quantity, attack to proof", "a", "b")
    first, *others = runs.blocks[0].texts
    assert first.startswith("All: ")
    assert [words.split(":")[0] for words in others] == list(NAMES)
