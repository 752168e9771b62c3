"""What to change so that the bracket closes, or comes down, and what that would give.

A remedy names the keys of the run to change and, where the changed run can be measured, its bracket: a promise that
is proven for the changed run, not a guess. A remedy whose run is refused (nothing is proven for it) is left without
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from calipers.bracket import Bracket
from calipers.errors import CalipersError
from calipers.measure.divisors import is_divided
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.reports.answers import Answers
from calipers.reports.paragraph import GOOD_REGRET, regret_text
from calipers.reports.readings import PUBLIC, Standing
from calipers.reports.standing import is_closed
from calipers.run import Run
from calipers.samplers import scheme_of
from calipers.scope import only_side

if TYPE_CHECKING:
    from calipers.measure import Measurement


@dataclass(frozen=True)
class Remedy:
    """One thing to change, and the bracket of epsilon at `delta` that the changed run has."""

    text: str
    change: Mapping[str, object] = field(default_factory=dict)
    delta: float | None = None
    epsilon: Bracket | None = None
    adjacency: str = "add-remove"

    @property
    def sentence(self) -> str:
        """The remedy with what it gives."""
        if self.epsilon is None or self.delta is None:
            return self.text
        upper = self.epsilon.upper
        proven = f"at most {ceil_digits(upper)} (proof)" if math.isfinite(upper) else "no finite upper bound is proven"
        return (
            f"{self.text} Measured so, with all other settings unchanged (adjacency = '{self.adjacency}'): epsilon at "
            f"least {floor_digits(self.epsilon.lower)} (attack), {proven}, at delta = {setting(self.delta)}."
        )

    def to_dict(self) -> dict[str, object]:
        """The remedy as a JSON object."""
        record: dict[str, object] = {"text": self.text, "change": dict(self.change)}
        if self.epsilon is not None:
            record["epsilon"] = {"delta": self.delta, **self.epsilon.to_dict()}
        return record


def remedies(measurement: Measurement, answers: Answers) -> tuple[Remedy, ...]:
    """What would close or lower this bracket, the most telling change first.

    Changes of a run that was not executed are none.
    """
    if answers.executed:
        return (Remedy(_BOUNDED), *_regret(answers))
    delta = answers.epsilon[0].at if answers.epsilon else None
    tried = (_tried(text, dict(change), measurement, delta) for text, change in dict.fromkeys(_advised(answers)))
    return (*tried, *_general(measurement, answers))


def _advised(answers: Answers) -> Iterator[tuple[str, tuple[tuple[str, object], ...]]]:
    """Changes of the run, in words and as its keys; sizes of batches only where there is one phase to change."""
    if any(is_divided(run) for run in answers.runs):
        constant = (
            "Divide the noisy sum by a public constant, or not at all (in Opacus: loss_reduction='sum', with a "
            "criterion that sums too, reduction='sum': else gradients are divided before they are clipped), and scale "
            "the learning rate instead."
        )
        yield constant, (("normalization", "constant"),)
    for run in answers.runs:
        for text, change in scheme_of(run).remedies(run):
            if len(answers.runs) == 1 or "batch_size" not in change:
                yield text, tuple(change.items())
    if any(run.view == "isolated" for run in answers.runs):
        worst = (
            "Measure against an adversary who may choose all other records and, step by step, all gradients (view = "
            "'worst-case') before promising anything to the people in the data."
        )
        yield worst, (("view", "worst-case"),)


def _general(measurement: Measurement, answers: Answers) -> Iterator[Remedy]:
    row = answers.epsilon[0] if answers.epsilon else None
    beyond = row is not None and row.standing in (Standing.REFUTED, Standing.UNDECIDED)
    payable = beyond and not only_side(answers.runs)  # no noise makes the other side finite
    if row is not None and payable and row.claim > 0 and not answers.as_accounted:
        yield Remedy(
            "Pay with noise, for the number of standard accounting: calipers calibrate, with this run and "
            f"--epsilon {setting(float(ceil_digits(row.claim)))} --delta {setting(row.at)}, finds nearly the "
            "smallest noise multiplier at which this epsilon, which standard accounting gives at the present noise, is "
            "proven."
        )
    elif answers.stated is not None and not answers.stated.is_described:
        yield Remedy(answers.stated.remedy)
    elif row is not None and is_closed(row.bracket, measurement.tolerance):
        yield Remedy(
            "The bounds agree: only another run has a clearly lower number, for example one with more noise, fewer "
            f"steps{_fewer(answers)} or a smaller share of the data in each batch. calipers calibrate finds the noise "
            "for a target."
        )
    yield from _regret(answers)


_BOUNDED = (
    "The run whose bound was taken is not what was executed ('Notes' says why), so no change of it is measured here."
)


def _regret(answers: Answers) -> Iterator[Remedy]:
    """That mu alone does not sum up the curve."""
    if GOOD_REGRET < answers.regret < math.inf:
        yield Remedy(
            f"The regret of mu is {regret_text(answers)}, so mu alone may overstate what leaks: "
            "report the privacy profile (delta at each epsilon) or the trade-off curve as well."
        )


def _fewer(answers: Answers) -> str:
    """What lowers the number of a unit of several records most."""
    if answers.runs and answers.runs[0].records_per_unit > 1:
        name = answers.runs[0].unit_name
        return f", fewer records of one {name} (or batches drawn and gradients clipped {name} by {name})"
    return ""


def _tried(text: str, change: dict[str, object], measurement: Measurement, delta: float | None) -> Remedy:
    """The remedy with the bracket of the changed run, where that is proven."""
    if delta is None:
        return Remedy(text, change)
    from calipers.measure import measure

    try:
        changed = tuple(_changed(run, change) for run in measurement.runs)
        bracket = measure(changed, tolerance=measurement.tolerance).epsilon(delta)
    except CalipersError:
        return Remedy(text, change)
    return Remedy(text, change, delta, bracket, changed[0].adjacency)


def _changed(run: Run, change: dict[str, object]) -> Run:
    """The run with the keys changed where the change is about it: a public divisor or a Poisson phase stays."""
    if "normalization" in change and run.normalization in PUBLIC:
        return run
    if "sampler" in change and not any(change == advised for _, advised in scheme_of(run).remedies(run)):
        return run
    return run.replace(**change, adjacency=run.adjacency)  # a promise to other people would not compare
