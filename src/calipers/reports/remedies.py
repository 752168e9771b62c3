"""What to change so that the bracket closes, or comes down, and what that would give.

A remedy names the keys of the run to change and, where the changed run can be measured, its bracket: a promise that
is proven for the changed run, not a guess. A remedy whose run is refused (nothing is proven for it) is left without
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from calipers.bracket import Bracket
from calipers.errors import CalipersError
from calipers.reports.answers import PUBLIC, Answers
from calipers.reports.document import setting
from calipers.reports.format import ceil_digits, floor_digits
from calipers.reports.paragraph import GOOD_REGRET
from calipers.reports.standing import Standing, is_claimed_run, is_closed, standing
from calipers.run import CUT, Run

if TYPE_CHECKING:
    from calipers.measure import Measurement


@dataclass(frozen=True)
class Remedy:
    """One thing to change, and the bracket of epsilon at `delta` that the changed run has."""

    text: str
    change: Mapping[str, object] = field(default_factory=dict)
    delta: float | None = None
    epsilon: Bracket | None = None

    @property
    def sentence(self) -> str:
        """The remedy with what it gives."""
        if self.epsilon is None or self.delta is None:
            return self.text
        upper = self.epsilon.upper
        proven = f"at most {ceil_digits(upper)} (proof)" if math.isfinite(upper) else "no finite proof"
        return (
            f"{self.text} Measured so, with everything else unchanged: ε at least {floor_digits(self.epsilon.lower)} "
            f"(attack), {proven}, at δ = {setting(self.delta)}."
        )

    def as_dict(self) -> dict[str, object]:
        """The remedy as a JSON object."""
        record: dict[str, object] = {"text": self.text, "change": dict(self.change)}
        if self.epsilon is not None:
            record["epsilon"] = {
                "delta": self.delta,
                "lower": self.epsilon.lower,
                "upper": self.epsilon.upper,
                "lower_evidence": self.epsilon.lower_evidence.as_dict(),
                "upper_evidence": self.epsilon.upper_evidence.as_dict(),
            }
        return record


def remedies(measurement: Measurement, answers: Answers) -> tuple[Remedy, ...]:
    """What would close or lower this bracket, the most telling change first."""
    delta = answers.epsilon[0].at if answers.epsilon else None
    found: list[Remedy] = []
    if any(run.normalization not in PUBLIC for run in answers.runs):
        found.append(
            _tried(
                "Divide the noisy sum by a public constant, or not at all (in Opacus: loss_reduction='sum'), and scale "
                "the learning rate instead.",
                {"normalization": "constant"},
                measurement,
                delta,
            )
        )
    if any(run.sampler == "shuffle" and run.view == "worst-case" for run in answers.runs):
        found.extend(_one_left_over(measurement, delta))
        found.append(
            _tried(
                "Draw every record into a random batch of the epoch independently of the others "
                "(sampler = 'balls-and-bins'): as many steps over as much data, only the batch sizes vary.",
                {"sampler": "balls-and-bins"},
                measurement,
                delta,
            )
        )
    if any(run.sampler == "deterministic" for run in answers.runs):
        found.append(
            _tried(
                "Draw the batches at random: a fixed order hides nothing about when a record is used.",
                {"sampler": "balls-and-bins"},
                measurement,
                delta,
            )
        )
    if any(run.view == "isolated" for run in answers.runs):
        found.append(
            _tried(
                "Measure against an adversary who may choose all other records (view = 'worst-case') before promising "
                "anything to the people in the data.",
                {"view": "worst-case"},
                measurement,
                delta,
            )
        )
    return (*found, *_general(measurement, answers))


def _one_left_over(measurement: Measurement, delta: float | None) -> list[Remedy]:
    """Leave a record over in every epoch, where a single shuffled run uses all of them: then far more is proven."""
    from calipers.measure.notes import leaving_some_over
    from calipers.measure.participation import left_over

    run = measurement.runs[0]
    if len(measurement.runs) > 1 or run.reshuffle == "once" or left_over(run) != 0:
        return []
    assert run.dataset_size is not None
    assert run.batch_size is not None
    if run.dataset_size % run.batch_size:
        text, size = "Drop the last, shorter batch (drop_last=True)", run.batch_size
    else:
        smaller = leaving_some_over(run.dataset_size, run.batch_size)
        if smaller is None:
            return []
        text, size = f"Use batches of {smaller} records and drop what does not fill one", smaller
    why = "every epoch then leaves a record over, and the one that makes room for another is seen nowhere"
    change: dict[str, object] = {"last_batch": "drop", "batch_size": size, "epochs": run.total_epochs}
    return [_tried(f"{text}: {why}.", change, measurement, delta)]


def _general(measurement: Measurement, answers: Answers) -> list[Remedy]:
    found: list[Remedy] = []
    row = answers.epsilon[0] if answers.epsilon else None
    beyond = row is not None and standing(answers, row) in (Standing.REFUTED, Standing.UNDECIDED)
    if row is not None and beyond and row.claim > 0 and not is_claimed_run(answers):
        found.append(
            Remedy(
                "Or pay with noise: calipers calibrate, with this run and "
                f"--epsilon {setting(float(ceil_digits(row.claim)))} --delta {setting(row.at)}, finds the smallest "
                "noise multiplier at which the usual claim would be proven."
            )
        )
    elif answers.stated is not None:
        found.append(Remedy("A stated guarantee says nothing of its mechanism: describe the run, and measure that."))
    elif row is not None and is_closed(row.bracket, measurement.tolerance):
        found.append(
            Remedy(
                "The jaws meet: the number can only be lowered by changing the run, with more noise, fewer steps or a "
                "smaller share of the data in each batch. calipers calibrate finds the noise for a target."
            )
        )
    if answers.regret > GOOD_REGRET:
        found.append(
            Remedy(
                f"The regret of mu is not proven to be below {GOOD_REGRET:g}, so mu alone may overstate what leaks: "
                "report the profile or the trade-off curve beside it."
            )
        )
    return found


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
    return Remedy(text, change, delta, bracket)


def _changed(run: Run, change: dict[str, object]) -> Run:
    """The run with the keys changed where the change is about it: a public divisor or a Poisson phase stays."""
    if "normalization" in change and run.normalization in PUBLIC:
        return run
    if "sampler" in change and run.sampler not in CUT:
        return run
    return run.replace(**change)
