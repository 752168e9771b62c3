"""Which of several runs is more private, said only when the two bounds prove it.

Write f_A for the true trade-off curve of run A, and u_A <= f_A <= l_A for the curves of its upper
bound (proof) and its lower bound (attack). A is more private than B when f_A >= f_B at every false
positive rate: then A is no easier to attack than B, whatever the attack. The bounds prove it when

    u_A(alpha) >= l_B(alpha) - slack    for every alpha in [0, 1],

because then f_A >= u_A >= l_B - slack >= f_B - slack. The slack is printed with the verdict. It has
to be there: an upper bound keeps a mass of about 1e-16 for what lies beyond its window, so no proof
separates two runs exactly at alpha = 0. Curves may also cross, and then neither run is more
private; a comparison at a single delta is still possible and is given next to the verdict.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.display import PrintedDisplay
from calipers.errors import InputError
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.numerics.types import FloatArray
from calipers.phases import as_phases, with_one_adjacency
from calipers.reports.answers import Answers, Questions, answer
from calipers.reports.naming import names_by_difference
from calipers.run import Run
from calipers.samplers import scheme_of
from calipers.scope import only_side, unit_name

if TYPE_CHECKING:
    from calipers.curves.tradeoff import TradeoffCurve
    from calipers.measure import Measurement

SLACK = 1e-9
# Interpolating between breakpoints in double precision errs by less than this.
ROUNDING = 1e-14
# Profiles are drawn down to this delta.
SMALLEST_SHOWN = 1e-8


class Order(enum.Enum):
    """What is proven about a pair of runs."""

    FIRST = "first is more private"
    SECOND = "second is more private"
    SAME = "same"
    CROSSING = "curves cross"
    OPEN = "not settled"
    INCOMPARABLE = "not comparable"


_WON = (Order.FIRST, Order.SECOND)
_TURNED = {order: order for order in Order} | {Order.FIRST: Order.SECOND, Order.SECOND: Order.FIRST}


@dataclass(frozen=True)
class PairVerdict:
    """What is proven about two runs, in one word and in one sentence."""

    first: str
    second: str
    order: Order
    sentence: str


@dataclass(frozen=True)
class Comparison(PrintedDisplay):
    """Several measured runs and the verdict on each pair of them."""

    names: tuple[str, ...]
    answers: tuple[Answers, ...]
    verdicts: tuple[PairVerdict, ...]
    files: tuple[str, ...] = ()
    """The run files, where the runs were read from some."""

    def _next_to(self, name: str) -> list[tuple[Order, str]]:
        """Every verdict about this run, given as if it came first, and the other run."""
        turned = [(_TURNED[v.order], v.first) for v in self.verdicts if v.second == name]
        return turned + [(v.order, v.second) for v in self.verdicts if v.first == name]

    @property
    def winner(self) -> str | None:
        """The run that is proven to be at least as private as every other at every error rate, and more than one."""
        for name in self.names:
            orders = [order for order, _ in self._next_to(name)]
            if Order.FIRST in orders and all(order in (Order.FIRST, Order.SAME) for order in orders):
                return name
        return None

    @property
    def headline(self) -> str:
        """The comparison in one sentence, which names the winner where there is one."""
        if self.winner is not None:
            others = "the other" if len(self.names) == 2 else f"each of the other {len(self.names) - 1}"
            if len(self.verdicts) == 1:
                return self.verdicts[0].sentence
            better = any(v.order is Order.SAME and self.winner in (v.first, v.second) for v in self.verdicts)
            proven = "certainly at least as private as" if better else "certainly more private than"
            slack = f"but for differences below {setting(SLACK)} in the true positive rate"
            return f"{self.winner} is the most private: {proven} {others}, at every false positive rate, {slack}."
        if any(v.order is Order.INCOMPARABLE for v in self.verdicts):
            return "These runs do not all compare: they promise different things, as the pairs below say."
        if all(v.order is Order.SAME for v in self.verdicts):
            return f"{' and '.join(self.names)} are equally private (error rates within {setting(SLACK)})."
        for position, row in enumerate(self.answers[0].epsilon):
            sides = [only_side(answers.runs) for answers in self.answers]
            mixed, found = len(set(sides)) > 1, [answers.epsilon[position].bracket for answers in self.answers]
            # Against runs with numbers for both, one for adding alone has the epsilon of both: none that is finite.
            ends = [
                (math.inf, math.inf) if mixed and side else (bracket.lower, bracket.upper)
                for side, bracket in zip(sides, found, strict=True)
            ]
            most = min(upper for _, upper in ends)
            leading = [name for name, (lower, _) in zip(self.names, ends, strict=True) if lower <= most]
            if len(leading) < len(ends):
                least = min(lower for lower, _ in ends if lower > most)
                least_words = f"at least {floor_digits(least)}" if math.isfinite(least) else "none that is finite"
                following = "the next has" if len(leading) == 1 else "which of these is undecided; each other has"
                return (
                    f"At delta = {setting(row.at)} {' or '.join(leading)} certainly has the smallest epsilon, at most "
                    f"{ceil_digits(most)} ({following} {least_words}). {self._at_every_rate}"
                )
        return self._at_every_rate

    @property
    def _at_every_rate(self) -> str:
        """What is proven of the whole curves, where no run wins at every false positive rate."""
        crossed = {name for v in self.verdicts if v.order is Order.CROSSING for name in (v.first, v.second)}
        beaten = {v.second if v.order is Order.FIRST else v.first for v in self.verdicts if v.order in _WON}
        if crossed | beaten == set(self.names):
            return "No run is the most private at every false positive rate: trade-off curves certainly cross."
        return "Whether one run is the most private at every false positive rate is undecided: bounds overlap."

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is proven about the pairs: one sentence each, or where there are many one for every run that wins."""
        if len(self.names) <= MOST_SIDE_BY_SIDE:
            return tuple(verdict.sentence for verdict in self.verdicts)
        found = []
        for name in self.names:
            worse = [other for order, other in self._next_to(name) if order is Order.FIRST]
            if worse:
                found.append(_sentence(name, ", ".join(worse), Order.FIRST))
        for order, words in _ALL_OF.items():
            pairs = [f"{v.first} and {v.second}" for v in self.verdicts if v.order is order]
            if pairs:
                found.append(f"{words}: {'; '.join(pairs)}.")
        return tuple(found)


MOST_SIDE_BY_SIDE = 4
"""Of more runs than this the table has one in each row, and pairs are given together."""
_ALL_OF = {
    Order.SAME: f"Equally private (error rates within {setting(SLACK)})",
    Order.CROSSING: "Neither is more private at every false positive rate, as their curves certainly cross",
    Order.OPEN: "Undecided at some false positive rates, as bounds overlap, between",
    Order.INCOMPARABLE: "Not comparable, as they promise different things",
}


@dataclass(frozen=True)
class ProfileBounds:
    """Bounds of one privacy profile: lower <= delta(epsilon) <= upper."""

    name: str
    epsilon: FloatArray
    lower: FloatArray
    upper: FloatArray


def nowhere_below(curve: TradeoffCurve, other: TradeoffCurve) -> bool:
    """True only if curve(alpha) >= other(alpha) - `SLACK` for every alpha in [0, 1].

    The breakpoints of `curve` decide: between two of them it is a straight line, and `other`, being
    convex, lies below the chord of its own values there.
    """
    others = np.interp(curve.alpha, other.alpha, other.beta)
    return bool(np.all(curve.beta >= others + ROUNDING - SLACK))


def somewhere_above(curve: TradeoffCurve, other: TradeoffCurve) -> bool:
    """True only if curve(alpha) > other(alpha) + `SLACK` for some alpha in (0, 1].

    Both are straight between the breakpoints of both. At 0 a curve may jump, and both ends of the jump are listed.
    """
    asked = np.union1d(curve.alpha, other.alpha)[1:]
    gap = np.interp(asked, curve.alpha, curve.beta) - np.interp(asked, other.alpha, other.beta)
    return bool(np.any(gap > ROUNDING + SLACK))


@dataclass(frozen=True)
class Judged:
    """What a verdict asks about a run: what was answered about it, and the trade-off curve of each side."""

    answers: Answers
    curve: Callable[[Side], TradeoffCurve]


def order_of(first: Judged, second: Judged) -> Order:
    """FIRST or SECOND only when proven (see the module); SAME for equal runs or when both are proven.

    Guarantees about different neighbors or different adversaries answer different questions. Where a run's numbers are
    for adding alone, whoever counts the batches sees who was removed: a run with bounds for both is more private.
    """
    one, other = first.answers, second.answers
    if _terms(one) != _terms(other):
        return Order.INCOMPARABLE
    if only_side(one.runs) != only_side(other.runs):
        return Order.FIRST if _covers_both(one) else Order.SECOND if _covers_both(other) else Order.INCOMPARABLE
    if (one.runs, one.stated) == (other.runs, other.stated):
        return Order.SAME
    if shuffles(one.runs, other.runs):
        return Order.FIRST
    if shuffles(other.runs, one.runs):
        return Order.SECOND
    first_wins = nowhere_below(first.curve(Side.UPPER), second.curve(Side.LOWER))
    second_wins = nowhere_below(second.curve(Side.UPPER), first.curve(Side.LOWER))
    if first_wins and second_wins:
        return Order.SAME
    if first_wins or second_wins:
        return Order.FIRST if first_wins else Order.SECOND
    first_above = somewhere_above(first.curve(Side.UPPER), second.curve(Side.LOWER))
    second_above = somewhere_above(second.curve(Side.UPPER), first.curve(Side.LOWER))
    return Order.CROSSING if first_above and second_above else Order.OPEN


def shuffles(first: Sequence[Run], second: Sequence[Run]) -> bool:
    """True only if the first run is the second one with some fixed batches shuffled, which never leaks more.

    Chua et al. (2024), Lemma B.2: given the permutation batches are fixed, and divergences are jointly convex.
    """
    if len(first) != len(second) or first == second:
        return False
    return all(
        a == b or (scheme_of(a).revealed == b.sampler and a.replace(sampler=b.sampler) == b)
        for a, b in zip(first, second, strict=True)
    )


def compare_measurements(
    names: Sequence[str], measurements: Sequence[Measurement], questions: Questions, files: Sequence[str] = ()
) -> Comparison:
    """Answers for every run and a verdict for every pair."""
    return compare_judged(names, [Judged(answer(one, questions), one.curve) for one in measurements], files)


def compare_judged(names: Sequence[str], judged: Sequence[Judged], files: Sequence[str] = ()) -> Comparison:
    """A verdict for every pair of runs that have been asked already."""
    answers = [one.answers for one in judged]
    verdicts = []
    for i, j in combinations(range(len(judged)), 2):
        order = order_of(judged[i], judged[j])
        if _terms(answers[i]) == _terms(answers[j]) and only_side(answers[i].runs) != only_side(answers[j].runs):
            said = _against_one_side((names[i], answers[i]), (names[j], answers[j]), order)
        else:
            said = _sentence(names[i], names[j], order)
        words = " ".join([said, *_single_deltas(names, answers, i, j, order)])
        verdicts.append(PairVerdict(names[i], names[j], order, words))
    return Comparison(tuple(names), tuple(answers), tuple(verdicts), tuple(files))


def compare(
    *runs: Run | Sequence[Run],
    names: Sequence[str] = (),
    questions: Questions | None = None,
    tolerance: float = 1e-3,
    **named: Run | Sequence[Run],
) -> Comparison:
    """Measure several runs and say which is more private: compare(a, b), or compare(mine=a, theirs=b).

    Args:
        runs: two or more.
        names: what they are called; left out, what differs between them.
        questions: what all of them are asked; left out, the usual ones.
        tolerance: how far apart the bounds of each may be, relatively.
        named: more runs, by name.

    Returns:
        Both bounds of every run, and which is shown to be more private.

    Raises:
        InputError: fewer than two runs, or names that are not one for each.
    """
    from calipers.measure import measure

    described = with_one_adjacency([as_phases(run) for run in (*runs, *named.values())])
    if len(described) < 2:
        raise InputError(f"Expected at least two runs to compare, got {len(described)}.")
    own = tuple(names) or names_by_difference(described)[: len(runs)]
    found = (*own, *named)
    if len(found) != len(described) or len(set(found)) != len(found):
        raise InputError(f"Expected {len(described)} different names, one for each run, got {', '.join(found)}.")
    measurements = [measure(phases, tolerance=tolerance) for phases in described]
    return compare_measurements(found, measurements, questions if questions is not None else Questions.asked())


def profiles(names: Sequence[str], measurements: Sequence[Measurement]) -> list[ProfileBounds]:
    """Both bounds of every privacy profile on one grid of epsilons, read off the trade-off curves."""
    grid = shown_epsilons(measurements)
    bounds = ([one.curve(side).delta(grid) for side in (Side.LOWER, Side.UPPER)] for one in measurements)
    return [ProfileBounds(name, grid, *both) for name, both in zip(names, bounds, strict=True)]


def shown_epsilons(measurements: Sequence[Measurement]) -> FloatArray:
    """A grid up to where the loosest upper bound reaches `SMALLEST_SHOWN`, or to the largest epsilon that is finite."""
    ends = [one.curve(Side.UPPER).epsilon(SMALLEST_SHOWN) for one in measurements]
    last = max([end for end in ends if math.isfinite(end)], default=1.0) or 1.0
    # Denser towards 0: the profile of a well hidden record is over long before that of a known one.
    grid: FloatArray = last * np.linspace(0.0, 1.0, 401) ** 2
    return grid


def _covers_both(answers: Answers) -> bool:
    """Whether its proofs are finite for adding and for removing, at every delta that was asked for, at least one."""
    ends = [row.bracket.upper for row in answers.epsilon]
    return not only_side(answers.runs) and bool(ends) and all(map(math.isfinite, ends))


def _terms(answers: Answers) -> set[tuple[str, str]]:
    described = answers.runs if answers.stated is None else (answers.stated,)
    return {(one.adjacency, one.view) for one in described}


def _against_one_side(first: tuple[str, Answers], second: tuple[str, Answers], order: Order) -> str:
    """The verdict on two runs of which one has finite numbers for adding, or for removing, alone."""
    if order is Order.INCOMPARABLE:
        return (
            f"{first[0]} and {second[0]} do not compare: no finite epsilon is proven for both adding and removing a "
            f"{unit_name(first[1].runs)}."
        )
    better, worse = (first, second) if order is Order.FIRST else (second, first)
    moved = {"adding": "removed", "removing": "added"}[only_side(worse[1].runs)]
    return (
        f"{better[0]} is certainly more private than {worse[0]} for adding and removing together: whoever counts the "
        f"batches of {worse[0]} sees that a {unit_name(worse[1].runs)} was {moved}, which its numbers do not cover."
    )


def _sentence(first: str, second: str, order: Order) -> str:
    if order is Order.SAME:
        return f"{first} and {second} are equally private (error rates within {setting(SLACK)})."
    if order is Order.CROSSING:
        return (
            f"Neither {first} nor {second} is more private at every false positive rate: their trade-off curves "
            "certainly cross."
        )
    if order is Order.INCOMPARABLE:
        return (
            f"{first} and {second} do not compare: they differ in adjacency or view, so they promise different things."
        )
    if order is Order.OPEN:
        return f"Which of {first} and {second} is more private is undecided: their bounds overlap."
    better, worse = (first, second) if order is Order.FIRST else (second, first)
    return (
        f"{better} is certainly more private than {worse}, at every false positive rate, but for differences below "
        f"{setting(SLACK)} in the true positive rate."
    )


def _single_deltas(names: Sequence[str], answers: Sequence[Answers], i: int, j: int, order: Order) -> Iterator[str]:
    """Where the whole curves settle nothing: the deltas at which one epsilon is certainly smaller."""
    if order not in (Order.OPEN, Order.CROSSING):
        return
    for first, second in zip(answers[i].epsilon, answers[j].epsilon, strict=True):
        for low, high, better, worse in (
            (first.bracket.upper, second.bracket.lower, names[i], names[j]),
            (second.bracket.upper, first.bracket.lower, names[j], names[i]),
        ):
            if low < high:
                yield (
                    f"At delta = {setting(first.at)} the epsilon of {better} (at most {ceil_digits(low)}) is certainly "
                    f"smaller than that of {worse} (at least {floor_digits(high)})."
                )
