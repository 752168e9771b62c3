"""One run against one budget.

    within        the upper bound, a proof, does not exceed the budget
    unproven      it does, or there is none; no attack exceeds the budget
    exceeded      the lower bound, an explicit attack, already exceeds the budget
    uncertified   the bracket could not be computed, or no proven statement covers the run

A comparison is exact: upper <= epsilon, or lower > epsilon, on the doubles. Where the budget is so near to a bound that
the numerical width decides, the run is measured again, more narrowly, before anything is said; so noise that
`calibrate` found for a budget passes the gate of that budget.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from calipers.bracket import Bracket
from calipers.errors import CertificationError, UnsupportedError
from calipers.gate.budget import Budget
from calipers.gate.receipt_shape import assumed_words
from calipers.measure import Measurement, measure
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.phases import as_phases
from calipers.provenance import digest
from calipers.run import Run
from calipers.scope import (
    FIXED_SHORT,
    NOT_DP,
    adjacency_notice,
    assumptions,
    in_units,
    last_batch_matters,
    only_side,
    other_side,
    promised_to_nobody,
    scope_text,
    unit_name,
)

TOLERANCES = (1e-3, 1e-4, 1e-5)
"""Tried in turn while a bound is nearer to the budget than the numerical width."""


class Outcome(enum.Enum):
    """What became of a run at the gate."""

    WITHIN = "within"
    UNPROVEN = "unproven"
    EXCEEDED = "exceeded"
    UNCERTIFIED = "uncertified"

    @property
    def exit_status(self) -> int:
        """The exit status of `calipers check` for this outcome."""
        return _EXIT[self]


_EXIT = {Outcome.WITHIN: 0, Outcome.UNCERTIFIED: 1, Outcome.UNPROVEN: 3, Outcome.EXCEEDED: 4}


@dataclass(frozen=True)
class Checked:
    """A run, the budget it was held against, the bracket at the budget's delta, and the outcome in one sentence."""

    name: str
    runs: tuple[Run, ...]
    budget: Budget
    outcome: Outcome
    sentence: str
    bracket: Bracket | None = None
    warned: bool = False
    """Whether the sentence begins with a warning about the budget itself."""

    def to_dict(self) -> dict[str, object]:
        """For programs; an end that is not finite is left to whoever writes JSON."""
        run = self.runs[0].to_dict() if len(self.runs) == 1 else {"phase": [run.to_dict() for run in self.runs]}
        return {
            "name": self.name,
            "outcome": self.outcome.value,
            "exit_status": self.outcome.exit_status,
            "sentence": self.sentence,
            "budget": self.budget.to_dict(),
            "run": run,
            "run_sha256": digest(run),
            "epsilon": None if self.bracket is None else {"delta": self.budget.delta, **self.bracket.to_dict()},
        }


def check(
    run: Run | Sequence[Run] | Measurement,
    budget: Budget,
    *,
    name: str = "the run",
    attained: bool = True,
    assumed: Sequence[str] | None = None,
) -> Checked:
    """Hold a run, its phases or a measurement against the budget.

    Args:
        run: what is checked.
        budget: what is allowed.
        name: of the run, in sentences.
        attained: if false the run only bounds what was executed from above, and no attack on it counts.
        assumed: what its receipt calls assumed, for a run that stands in one; else what the run leaves open is named.

    Returns:
        The outcome with a sentence; that nothing can be certified is an outcome too.

    Raises:
        InputError: the run cannot be read, or is about other neighbors or another view than the budget.
    """
    if not isinstance(run, Measurement):
        run = budget.asked_of(as_phases(run))
    runs = run.runs if isinstance(run, Measurement) else run
    budget.about(runs, assumed)
    try:
        bracket = _narrow_enough(run, budget)
    except (CertificationError, UnsupportedError) as error:
        return uncertified(name, runs, budget, str(error))
    if not attained:
        bracket = Bracket(0.0, bracket.upper, bracket.lower_evidence, bracket.upper_evidence)
    outcome = _outcome(bracket, budget)
    sided = bool(only_side(runs))
    if sided and outcome is Outcome.WITHIN:
        outcome = Outcome.UNPROVEN
    warning = _large_delta(runs, budget)
    said = _one_sided(bracket, budget, outcome, runs, attained) if sided else _sentence(bracket, budget, outcome)
    sentence = f"{warning}{said} {_scope(runs, assumed)}".rstrip()
    return Checked(name, runs, budget, outcome, sentence, bracket, bool(warning))


def uncertified(name: str, runs: tuple[Run, ...], budget: Budget, reason: str) -> Checked:
    """A run about which nothing is proven, and why."""
    why = " ".join(reason.split())
    said = why if why.startswith("Nothing is proven") else f"Nothing is proven: {why}"
    return Checked(name, runs, budget, Outcome.UNCERTIFIED, said)


_DECLARED = {"derived rate": "derived_rate = 'public'", "number of batches": "sample_rate = 1/M (M batches)"}
"""How a run file says that a number is a constant."""


def _scope(runs: Sequence[Run], assumed: Sequence[str] | None) -> str:
    """What the numbers are about."""
    if not runs:
        return ""
    isolated = f" This is {NOT_DP}." if runs[0].view == "isolated" else ""
    # Of one direction the first sentence has said that the other has no finite epsilon.
    nothing = promised_to_nobody(runs).replace("It promises", "The numbers promise")
    notices = [f" {text}" for text in (nothing if only_side(runs) else adjacency_notice(runs),) if text]
    notices.append(_last_batch([run for run in runs if last_batch_matters(run)]))
    listed = assumptions(runs) if assumed is None else assumed_words(assumed, runs)
    if listed:
        where = "" if assumed is None else " in the receipt"
        notices.append(f" Assumed{where}, because not given: {', '.join(listed.values())}.")
    if taken := [name for name, words in listed.items() if words.endswith("taken as the same for both neighbors")]:
        moved = "the rate and the number of steps" if "derived rate" in taken else f"the {' and the '.join(taken)}"
        key = next((f" A run file says with {_DECLARED[name]} that it is." for name in taken if name in _DECLARED), "")
        notices.append(
            f" Write {moved} into the script: what it computes from its own data is not the same for both neighbors, "
            f"and then the numbers are not proven.{key}"
        )
    return f"The numbers are {scope_text(runs)}, and hold only if {FIXED_SHORT}.{isolated}{''.join(notices)}"


def _last_batch(open_runs: Sequence[Run]) -> str:
    """That a last, shorter batch is taken to be dropped where nobody said so; empty without such runs."""
    if not open_runs:
        return ""
    there = any(run.sizes is not None and run.sizes[0] % run.sizes[1] for run in open_runs)
    none = "" if there else in_units(" (there is none here, but one record more or fewer makes one)", open_runs[0])
    return f" Nobody said what becomes of a last, shorter batch{none}: it is taken to be dropped."


def _large_delta(runs: Sequence[Run], budget: Budget) -> str:
    """A budget whose delta is not below 1/N allows publishing somebody's record."""
    size = runs[0].dataset_size if runs else None
    if budget.delta * (size or 2) < 1.0:
        return ""
    below = "1/N for two records or more" if size is None else f"1/N = 1/{size:,}"
    return (
        f"Warning: the budget's delta = {setting(budget.delta)} is not below {below}; it allows publishing a record "
        "outright now and then. "
    )


def _narrow_enough(run: Run | Sequence[Run] | Measurement, budget: Budget) -> Bracket:
    if isinstance(run, Measurement):
        return run.epsilon(budget.delta)
    for tolerance in TOLERANCES:
        measurement = measure(run, tolerance=tolerance)
        bracket = measurement.epsilon(budget.delta)
        if not _near(bracket, budget.epsilon, tolerance):
            break
    return bracket


def _near(bracket: Bracket, epsilon: float, tolerance: float) -> bool:
    """Whether one of the bounds, computed more narrowly, might still move over to the other side of the budget."""
    reach = 2.0 * tolerance * epsilon
    return (epsilon < bracket.upper <= epsilon + reach) or (epsilon - reach <= bracket.lower <= epsilon < bracket.upper)


def _outcome(bracket: Bracket, budget: Budget) -> Outcome:
    if bracket.upper <= budget.epsilon:
        return Outcome.WITHIN
    return Outcome.EXCEEDED if bracket.lower > budget.epsilon else Outcome.UNPROVEN


def _wanted(budget: Budget) -> str:
    return f"epsilon = {setting(budget.epsilon)} at delta = {setting(budget.delta)}"


def _bounds(bracket: Bracket) -> tuple[str, str]:
    """What is proven, and what is shown."""
    proven = f"at most {ceil_digits(bracket.upper)} is proven"
    if math.isinf(bracket.upper):
        proven = "no finite epsilon is proven"
    return proven, f"an explicit attack shows at least {floor_digits(bracket.lower)}"


def _one_sided(bracket: Bracket, budget: Budget, outcome: Outcome, runs: Sequence[Run], attained: bool) -> str:
    """Where add-remove is asked and only one of adding and removing has a finite epsilon: that comes first.

    It is certain of the run. Where that only bounds what was executed (not `attained`), nothing is.
    """
    side, name = only_side(runs), unit_name(runs)
    other, (proven, shown) = other_side(side), _bounds(bracket)
    count = f"one {name} {'fewer' if other == 'removing' else 'more'} changes the number of batches"
    infinite = f"for {other} one {name} no epsilon is finite ({count})"
    if outcome is Outcome.EXCEEDED:
        return (
            f"The budget of {_wanted(budget)} is exceeded for add-remove: {infinite}; for {side} one {shown}, {proven}."
        )
    begun = "Not within" if attained else "Not proven to be within"
    attacked = f", and {shown}" if bracket.lower > 0 else ""
    return f"{begun} the budget of {_wanted(budget)} for add-remove: {infinite}; for {side} one {proven}{attacked}."


def _sentence(bracket: Bracket, budget: Budget, outcome: Outcome) -> str:
    wanted, (proven, shown) = _wanted(budget), _bounds(bracket)
    if outcome is Outcome.WITHIN:
        return f"Within the budget of {wanted}: {proven}."
    if outcome is Outcome.EXCEEDED:
        return f"The budget of {wanted} is exceeded: {shown}, {proven}."
    attacked = f", and {shown}" if bracket.lower > 0 else ""
    return f"Not proven to be within the budget of {wanted}: {proven}{attacked}."
