"""A run in words: one sentence a reader can check against the training script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.numerics.decimals import claim_digits, setting
from calipers.run import Run
from calipers.scope import (
    AT_MOST,
    VIEWS,
    assumptions,
    batches_text,
    divisor_text,
    in_units,
    neighbors_text,
    only_side,
    shared_neighbors,
    sums_text,
    unit_name,
)

if TYPE_CHECKING:
    from calipers.calibrate import Calibration
    from calipers.guarantee import GuaranteeSubject
    from calipers.reports.answers import Answers


def describe(run: Run, sizes: tuple[int, int] | None = None) -> str:
    """One sentence that names every choice the measurement depends on; `sizes`: the range it was made for."""
    length = f"{run.total_steps:,} step{'s' if run.total_steps != 1 else ''}"
    if run.epochs is not None:
        length += f" ({run.epochs:,} epoch{'s' if run.epochs != 1 else ''})"
    parts = [f"{length} of {batches_text(run)}", f"noise multiplier {claim_digits(run.noise_multiplier, 8)}"]
    if run.dataset_size is not None:
        of_size = f", batch size {run.batch_size:,}" if run.batch_size is not None else ""
        parts.append(f"{run.dataset_size:,} records{of_size}")
    if run.dimension is not None:
        parts.append(f"dimension {run.dimension:,}")
    parts += [divisor_text(run, sizes), f"neighbors differ by {neighbors_text(run)}", VIEWS[run.view]]
    return in_units("; ".join(parts) + ".", run)


def describe_phases(runs: Sequence[Run], sizes: tuple[int, int] | None = None) -> str:
    """The sentence of each phase, numbered when there are several; `sizes`: of a single one."""
    if len(runs) == 1:
        return describe(runs[0], sizes)
    return "\n".join(f"Phase {number}: {describe(run)}" for number, run in enumerate(runs, start=1))


def describe_calibrated(calibration: Calibration) -> str:
    """What was calibrated: the phases of a run, with what else is done with them; or what is stated."""
    if not calibration.phases:
        return calibration.run.stated.sentence  # type: ignore[union-attr]  # correlated noise has no phases
    reported = ", ".join(f"{name} = {value}" for name, value in calibration.release_keys.items())
    return describe_phases(calibration.phases) + (f" In addition: {reported}." if reported else "")


def calibrated_for(calibration: Calibration) -> str:
    """What the noise is enough for, as the first sentence says it shortly: neighbors, and what is released."""
    runs = calibration.phases
    if not runs:
        return f"{calibration.run.stated.differ} and correlated noise"  # type: ignore[union-attr]  # as above
    side = only_side(runs)
    whose = f"{side} one {unit_name(runs)} only" if side else shared_neighbors(runs)
    released = " and then ".join(dict.fromkeys(map(sums_text, runs)))
    if "selected_mean" in calibration.release_keys:
        released = f"the best of several runs with {released}"
    elif calibration.release_keys:
        released += " with what is released in addition"
    return f"{whose} and {released}{' in the isolated view' if runs[0].view == 'isolated' else ''}"


def describe_subject(answers: Answers) -> str:
    """What was measured: the phases of a run, or what is stated."""
    if answers.stated is not None:
        return answers.stated.sentence
    said = describe_phases(answers.runs, answers.dataset_sizes)
    if not answers.executed:
        return said
    return f"Executed: {answers.executed}, {AT_MOST} the run whose bound was taken:\n{said}"


def watched_text(library: str) -> str:
    """How a run is known that was watched."""
    return f"known from a record attached to the training ({library})"


def known_text(answers: Answers) -> str:
    """The same as a sentence of its own; empty for a run that somebody described."""
    return f"\nK{watched_text(answers.watched)[1:]}." if answers.watched else ""


def assumed_text(runs: Sequence[Run], deltas: Sequence[float] = (), stated: GuaranteeSubject | None = None) -> str:
    """On a line of its own, the settings that nobody named and what they are taken to be; empty where there are none.

    Of several phases, those that one of them leaves open; `deltas` are those that nobody named.
    """
    found = assumptions(runs)
    if stated is not None and "adjacency" in stated.assumed:
        found["adjacency"] = f"adjacency {stated.adjacency}"
    if deltas:
        found["delta"] = f"delta {' and '.join(map(setting, deltas))}"
    if not found:
        return ""
    return "\nAssumed, because not given: " + ", ".join(found.values()) + "."
