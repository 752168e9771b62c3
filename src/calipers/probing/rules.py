"""From divisors at several dataset sizes to the rule behind them, and from findings to a `Run` and what it leaves open.

A rule is a function of the dataset size m: nothing (1), a constant, m q, floor(m q), with the q that the
library accounts for at that size, or the batch that came out. One size cannot tell them apart, so the
probe looks at N - 1, N, N + 1, at both sides of the multiple of the batch size below N, where libraries
that count batches change their mind, and at half the size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from calipers.errors import InputError
from calipers.probing.lens import close
from calipers.probing.protocol import Finding, Schedule
from calipers.probing.sizes import StepNumbers
from calipers.run import Run
from calipers.samplers import scheme_named

PHRASES = {
    "none": "nothing: the noisy sum itself is released",
    "constant": "a constant",
    "expected": "N q, the expected batch size",
    "floor": "floor(N q)",
    "realized": "|B|, the batch that came out",
}


def sizes_to_probe(dataset_size: int, batch_size: int) -> tuple[int, ...]:
    """N and its neighbors, both sides of the multiple of the batch size at or below N, and something far away."""
    multiple = dataset_size // batch_size * batch_size
    half = dataset_size // 2
    sizes = {dataset_size - 1, dataset_size, dataset_size + 1, multiple, multiple + 1, half, half + 1}
    return tuple(sorted(size for size in sizes if size >= max(1, batch_size)))


def divisor_rule(numbers: StepNumbers, schedules: Sequence[Schedule]) -> str | None:
    """The word a `Run` has for the divisor, or None if no rule fits all sizes.

    "constant" wins over a rule in q that happens to give the same number at every size.
    """
    if numbers.realized:
        return "realized"
    known = [schedule.divisor for schedule in schedules if schedule.divisor is not None]
    if not numbers.data_independent or not numbers.finite or len(known) < len(schedules):
        return None
    if all(close(divisor, 1.0) for divisor in known) and all(_expected(s) != 1.0 for s in schedules):
        return "none"
    if len(schedules) < 2:
        return None  # one dataset size cannot tell a constant from N q
    if all(close(divisor, known[0]) for divisor in known):
        return "constant"
    expected = [_expected(schedule) for schedule in schedules]
    if all(close(divisor, math.floor(value)) for divisor, value in zip(known, expected, strict=True)):
        return "floor"
    if all(close(divisor, value) for divisor, value in zip(known, expected, strict=True)):
        return "expected"
    return None


def _expected(schedule: Schedule) -> float:
    """N q as the library would compute it; q is one over the steps of an epoch if it accounts for nothing."""
    rate = schedule.accounted_rate
    return schedule.dataset_size * (1 / schedule.steps_per_epoch if rate is None else rate)


def divisor_finding(numbers: StepNumbers, schedules: Sequence[Schedule], dataset_size: int) -> Finding:
    """The rule, and the divisors it was read from."""
    here = next(schedule for schedule in schedules if schedule.dataset_size == dataset_size)
    shown = ", ".join(f"{_number(schedule.divisor)} at N = {schedule.dataset_size}" for schedule in schedules)
    if here.divisor == 0.0:
        return Finding("divisor", "ZERO: the step returns infinities or NaN", f"Divisors: {shown}.", alarm=True)
    shown_counts = ", ".join(f"{_number(value)} for {count}" for count, value in numbers.by_count.items())
    if not numbers.finite:
        verdict = "no answer: small gradients do not move the step"
        return Finding("divisor", verdict, f"Divisors by records in the batch: {shown_counts}.", alarm=True)
    rule = divisor_rule(numbers, schedules)
    if rule == "realized":
        return Finding("divisor", PHRASES[rule], f"Divisors by records in the batch: {shown_counts}.", alarm=True)
    if not numbers.data_independent:
        verdict = "follows the batch that came out, by no rule known here"
        return Finding("divisor", verdict, f"Divisors by records in the batch: {shown_counts}.", alarm=True)
    if rule is None and len(schedules) < 2:
        verdict = f"{_number(here.divisor)} at this N; whether it moves with N is not seen"
        return Finding("divisor", verdict, f"Divisors: {shown}.")
    if rule is None:
        return Finding("divisor", "no rule known here fits", f"Divisors: {shown}.", alarm=True)
    tail = f", {_number(here.divisor)}" if rule in ("constant", "floor", "expected") else ""
    # A divisor that moves with N is no post-processing of the noisy sum.
    return Finding("divisor", PHRASES[rule] + tail, f"Divisors: {shown}.", alarm=rule in ("floor", "expected"))


def neighbor_finding(schedules: Sequence[Schedule], dataset_size: int) -> Finding:
    """What changes when one record joins or leaves."""
    if len(schedules) < 2:
        return Finding("neighbors", "not seen: one dataset size was given", _described(schedules[0]) + ".")
    near = [schedule for schedule in schedules if abs(schedule.dataset_size - dataset_size) <= 1]
    shown = "; ".join(_described(schedule) for schedule in near)
    moves = moving(near)
    jump = _largest_jump(schedules)
    evidence = f"{shown}.{'' if moves else jump}"
    if not moves:
        return Finding("neighbors", "nothing moves when N changes by one", evidence)
    return Finding("neighbors", f"{', '.join(moves)} move when N changes by one", evidence, alarm=True)


def moving(near: Sequence[Schedule]) -> list[str]:
    """Which of rate, steps and divisor differ among neighbors."""
    divisors = [schedule.divisor for schedule in near if schedule.divisor is not None]
    moves = {
        "the sample rate": len({schedule.accounted_rate for schedule in near}) > 1,
        "the steps of an epoch": len({schedule.steps_per_epoch for schedule in near}) > 1,
        "the divisor": not all(close(divisor, divisors[0]) for divisor in divisors),
    }
    return [name for name, moved in moves.items() if moved]


def _largest_jump(schedules: Sequence[Schedule]) -> str:
    neighbors = [pair for pair in itertools.pairwise(schedules) if pair[1].dataset_size == pair[0].dataset_size + 1]
    moved = [" to ".join(map(_described, pair)) for pair in neighbors if moving(pair)]
    return f" One record more changes: {moved[-1]}." if moved else ""


def _described(schedule: Schedule) -> str:
    rate = "" if schedule.accounted_rate is None else f", accounted rate {fraction(schedule.accounted_rate)}"
    divisor = "" if schedule.divisor is None else f", divisor {_number(schedule.divisor)}"
    return f"N = {schedule.dataset_size}: {schedule.steps_per_epoch} steps{rate}{divisor}"


def fraction(rate: float) -> str:
    """A rate as 1/m where it is one, otherwise as a decimal."""
    whole = round(1 / rate) if rate > 0 else 0
    return f"1/{whole}" if whole and 1 / whole == rate else f"{rate:.6g}"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    if not math.isfinite(value):
        return str(value)
    return f"{round(value)}" if close(value, round(value)) else f"{value:.6g}"


def run_normalization(
    rule: str | None, near: Sequence[Schedule], rate: float, steps: int, ignores_batch: bool
) -> str | None:
    """The word for the divisors of N and its neighbors, where `Run` means by it what was measured; else None.

    Where one size was shown, neighbors have as many records, and a divisor that ignores the batch is a constant. A rule
    in the accounted rate need not hold for the rate that batches are drawn with. Neighbors with other steps have
    another rate; a caveat says so, and they are left out here.
    """
    if rule is None and len(near) == 1 and near[0].divisor is not None:
        return "constant" if ignores_batch else None
    if rule not in ("floor", "expected"):
        return rule
    near = [schedule for schedule in near if schedule.steps_per_epoch == steps]
    divisors = [schedule.divisor for schedule in near if schedule.divisor is not None]
    meant = [schedule.dataset_size * rate for schedule in near]
    if rule == "floor":
        meant = [float(math.floor(value)) for value in meant]
    if all(close(divisor, value) for divisor, value in zip(divisors, meant, strict=True)):
        return rule
    return "constant" if all(close(divisor, divisors[0]) for divisor in divisors) else None


def matching_run(
    found: Mapping[str, Any], *, rate: float, clips: bool, loader: Mapping[str, object]
) -> tuple[Run | None, str]:
    """One epoch of what was found (keys of a run; None where nothing was) as a `Run`, or None and the reason."""
    words = {"sampler": "sampler", "normalization": "divisor", "noise_multiplier": "noise"}
    missing = [word for key, word in words.items() if found[key] is None] + ([] if clips else ["clipping"])
    if missing:
        reported = " that a probe can tell apart" if "sampler" in missing else ""
        return None, f"No Run{reported} describes this {' or this '.join(missing)}."
    drawn: dict[str, object] = {"sample_rate": rate}
    if not scheme_named(found["sampler"]).independent:
        drawn = {**loader} or {"batch_size": found["dataset_size"] // found["steps"]}
    try:
        return Run.from_dict({**found, **drawn}), ""
    except InputError as error:
        return None, str(error)


def caveats(near: Sequence[Schedule], run: Run | None, findings: Sequence[Finding], one_size: bool) -> tuple[str, ...]:
    """What the run leaves out."""
    if run is None:
        return ()
    found = []
    if one_size:
        found.append(
            "The Run is for zero-out neighbors, which have equally many records: the loop was shown at one dataset "
            "size, and what moves when a record joins or leaves was not seen. For add-remove neighbors probe a "
            "function of (dataset_size, batch_size)."
        )
    moves = [name for name in moving(near) if name != "the divisor"]
    if moves:
        found.append(
            f"{' and '.join(moves).capitalize()} differ between neighboring datasets; the Run takes them for public "
            "constants, so what it measures is no guarantee for this implementation at this N."
        )
    if run.normalization in ("floor", "expected", "realized") and run.dimension is None:
        found.append("What such a divisor leaks grows with the number of parameters: give dimension (--dimension).")
    said = {finding.subject: finding for finding in findings}
    if "pass into" in said["gradients that are no numbers"].verdict:
        found.append("The Run takes every gradient for a finite number; a NaN or an infinity goes through, and shows.")
    if said["empty batch"].alarm:
        found.append("The Run takes a step with noise for an empty batch; this loop does something else.")
    return tuple(found)


def unseen(sampler: str | None, one_size: bool, layered: bool, real_data: bool) -> tuple[str, ...]:
    """What this probe was blind to."""
    found = [
        "Only the gradients, batch sizes, seeds and first steps that were tried: a rule that changes later in "
        "training, or for other gradients, is not seen.",
        (
            "Companions unlike those tried; datasets whose items hold other records; state outside of the model. "
            if real_data
            else "How gradients come from data (normalization across records, augmentation). "
        )
        + "A record that is in several places; what else is released (losses, metrics, checkpoints, choices by them).",
        "Whether seeds are secret and the generator cryptographic. Noise that is shared in other ways than at a fixed "
        "distance of coordinates, steps or runs, or by a common factor.",
    ]
    if not layered:
        found.append("Where layers begin: the loop names none (layers).")
    if sampler is not None and scheme_named(sampler).independent:
        found.append("Records that come together in groups above 32, or tied over more than two successive batches.")
    if one_size:
        found.append("What moves when the dataset has one record more: the loop was shown at one size only.")
    return tuple(found)
