"""Probe an implementation of DP-SGD: what does it really do, as opposed to what it is accounted for?

`probe` runs the implementation as a black box (see `calipers.probing.protocol`) and infers the distribution of its
batches, the rate it samples at and the rate it accounts for, the divisor of the noisy sum, the clipping,
the noise, and what changes when the dataset has one record more. Each finding carries its evidence and the
probability that chance misled it; together they are wrong with probability at most `error_probability`.
The report ends with the `Run` to measure, or with the reason why no `Run` describes what was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from calipers.display import as_record
from calipers.domains import OPEN_UNIT, SEED, Domain
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.probing.batches import BatchCounts, epochs_needed, loader_keys, rates_left, sampler_finding
from calipers.probing.clipping import clipping_finding, infinite_finding
from calipers.probing.companions import companion_findings, undescribed
from calipers.probing.lens import Lens
from calipers.probing.noise import NoiseTable, correlation_finding, noise_finding
from calipers.probing.protocol import Configuration, Configure, Finding, Schedule, accounted
from calipers.probing.rules import (
    caveats,
    divisor_finding,
    divisor_rule,
    fraction,
    matching_run,
    neighbor_finding,
    run_normalization,
    sizes_to_probe,
    unseen,
)
from calipers.probing.sizes import StepNumbers, empty_finding, size_finding, step_numbers
from calipers.run import Run
from calipers.samplers import scheme_named

SIZE = Domain(2, 2**31, integer=True)
EPOCHS = Domain(2, 2**31, integer=True)
# Sampler, rate, noise, its correlation, noise by batch size, empty batches: the findings in which chance takes part
# share the error probability.
STATISTICAL = 6


@dataclass(frozen=True)
class ProbeReport:
    """What a probe found. `run` is None where `reason` says why."""

    name: str
    dataset_size: int
    batch_size: int
    error_probability: float
    findings: tuple[Finding, ...]
    schedules: tuple[Schedule, ...]
    run: Run | None
    reason: str
    caveats: tuple[str, ...]
    unseen: tuple[str, ...] = ()

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings that break the accounting or the training."""
        return tuple(finding for finding in self.findings if finding.alarm)

    def finding(self, subject: str) -> Finding:
        """The finding about one subject."""
        return next(finding for finding in self.findings if finding.subject == subject)

    def __str__(self) -> str:
        lines = [f"{self.name}, N = {self.dataset_size}, batch size {self.batch_size}"]
        lines += [f"{'!' if f.alarm else ' '} {f.subject}: {f.verdict}" for f in self.findings]
        lines.append(f"No run to measure: {self.reason}" if self.run is None else f"The run to measure: {self.run}")
        lines += [f"Note: {caveat}" for caveat in self.caveats] + [f"Not seen: {blind}" for blind in self.unseen]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """The report as JSON keys."""
        return as_record(self, name="target", schedules="sizes")


class HowToProbe(TypedDict, total=False):
    """What every probe may be given besides the loop."""

    seed: int
    error_probability: float
    epochs: int | None


def probe(
    configure: Configure,
    *,
    dataset_size: int,
    batch_size: int,
    name: str = "target",
    seed: int = 0,
    error_probability: float = 1e-3,
    epochs: int | None = None,
    dimension: int | None = None,
    one_size: bool = False,
) -> ProbeReport:
    """Run an implementation as a black box and say what it does.

    `epochs` is the length of the run whose batches are counted (default: enough to tell the rates 1/T and
    1/(T-1) apart); `dimension` the number of parameters of your own model, for the `Run`; `one_size` keeps to this
    dataset size where the loop cannot be set up for others, and the `Run` is then for zero-out neighbors.
    Post-condition: with probability at least 1 - error_probability no finding is wrong because of chance (the sampler's
    share of it by normal approximation).
    """
    size = SIZE.check_int("dataset_size", dataset_size)
    batch = Domain(1, size, integer=True).check_int("batch_size", batch_size)
    seed = SEED.check_int("seed", seed)
    error = OPEN_UNIT.check("error_probability", error_probability) / STATISTICAL
    if epochs is not None:
        EPOCHS.check_int("epochs", epochs)
    lens = Lens(configure, size, batch, seed)
    numbers = step_numbers(lens, batch)
    sizes = (size,) if one_size else sizes_to_probe(size, batch)
    schedules = tuple(
        _schedule(lens, numbers, other) if other == size else _schedule_at(configure, other, batch, seed)
        for other in sizes
    )
    findings, sampler, rate, loader = _batch_findings(lens, size, epochs, seed, error)
    findings += [divisor_finding(numbers, schedules, size), neighbor_finding(schedules, size)]
    steps, noise, clips = _step_findings(lens, numbers, seed, error)
    findings += steps
    if numbers.finite:
        findings += companion_findings(lens, numbers.at, batch)
    findings += _accounted_noise(lens.configuration, noise)
    near = [schedule for schedule in schedules if abs(schedule.dataset_size - size) <= 1]
    rule = divisor_rule(numbers, schedules) if numbers.finite else None
    per_epoch = lens.configuration.steps_per_epoch
    found = {
        "noise_multiplier": noise,
        "dataset_size": size,
        "steps": per_epoch,
        "sampler": sampler,
        "normalization": run_normalization(rule, near, rate, per_epoch, numbers.finite and numbers.data_independent),
        "dimension": dimension,
    } | ({"adjacency": "zero-out"} if one_size else {})
    run, reason = matching_run(found, rate=rate, clips=clips, loader=loader)
    if run is not None and (why := undescribed({finding.subject: finding for finding in findings}, not loader)):
        run, reason = None, why
    return ProbeReport(
        name, size, batch, error_probability, tuple(findings), schedules, run, reason,
        caveats(near, run, findings, one_size), unseen(sampler, one_size, len(lens.layers) > 1, not lens.mixes),
    )  # fmt: skip


def _batch_findings(
    lens: Lens, size: int, epochs: int | None, seed: int, error: float
) -> tuple[list[Finding], str | None, float, dict[str, object]]:
    """What is to be said about batches, the word for the sampler, the rate, and the keys of a loader."""
    here = lens.configuration
    if not getattr(here, "shows_batches", True):
        return [Finding("sampler", "not seen: no batches were shown", "Nothing draws batches here.")], None, 0.0, {}
    length = epochs_needed(size, here.steps_per_epoch, error) if epochs is None else epochs
    counts = BatchCounts(here, size, length, seed + 1)
    sampler, word = sampler_finding(counts, BatchCounts(here, size, 2, seed + 2), error)
    rate, rates = _rate_findings(here, counts, word, error)
    return [sampler, *rates], word, rate, loader_keys(counts, word)


def _step_findings(
    lens: Lens, numbers: StepNumbers, seed: int, error: float
) -> tuple[list[Finding], float | None, bool]:
    """What is to be said about one step, the noise multiplier to describe it by, and whether it clips."""
    if not numbers.finite:
        if any(value == 0 for value in numbers.by_count.values()):
            return [], None, False
        return [_still_finding(lens, seed)], None, False
    table = NoiseTable(lens, numbers.divisor, seed + 3)
    correlated = correlation_finding(table, error)
    asked = float(lens.configuration.noise_multiplier)
    found, noise = noise_finding(table, asked, lens.bound, error, shared=correlated.alarm)
    sized = size_finding(lens, numbers, error)
    clipping = clipping_finding(lens, numbers.at)
    findings = [found, correlated, sized, clipping, empty_finding(lens, error), infinite_finding(lens)]
    if lens.memory:
        findings.append(MEMORY[lens.memory])
    if correlated.alarm or sized.alarm or lens.memory == "rule":
        noise = None
    return findings, noise, not clipping.alarm


def _still_finding(lens: Lens, seed: int) -> Finding:
    """Where small gradients do nothing: whether large ones do, and whether there is noise at all."""
    large = np.stack([8 * lens.bound * lens.directions[0]] * 2)
    moves = float(np.linalg.norm(lens.moved(large, seed))) > 0
    noisy = float(np.linalg.norm(lens.still(2, seed))) > 0
    evidence = f"Small gradients do nothing, large ones {'something' if moves else 'nothing'}; "
    evidence += "there is noise" if noisy else "there is no noise"
    return Finding("clipping", "no rule known here fits: small gradients are lost", evidence, alarm=True)


MEMORY = {
    "shift": Finding(
        "memory",
        "earlier steps are added to later ones",
        "The past moves a step but not what a gradient does to it (momentum?). Show the probe what the optimizer gets.",
    ),
    "rule": Finding(
        "memory",
        "what a gradient does depends on the gradients of earlier steps",
        "After a step with large gradients the same gradient moves the step by another amount: clipping or scaling "
        "that follows the data needs noise and accounting of its own.",
        alarm=True,
    ),
}


def _schedule_at(configure: Configure, size: int, batch: int, seed: int) -> Schedule:
    lens = Lens(configure, size, batch, seed)
    return _schedule(lens, step_numbers(lens, batch, (1, 2, 3)), size)


def _schedule(lens: Lens, numbers: StepNumbers, size: int) -> Schedule:
    claimed = accounted(lens.configuration)
    divisor = None if numbers.realized else numbers.divisor
    return Schedule(size, lens.configuration.steps_per_epoch, None if claimed is None else claimed[0], divisor)


def _accounted_noise(configuration: Configuration, noise: float | None) -> list[Finding]:
    """Whether the accountant learns the noise that is added."""
    claimed = accounted(configuration)
    if claimed is None or noise is None or claimed[1] <= noise:
        return []
    verdict = f"accounts for noise multiplier {claimed[1]:g}, but adds {noise:.6g}"
    return [Finding("accounted noise", verdict, "Compared with the noise above.", alarm=True)]


def _rate_findings(
    configuration: Configuration, counts: BatchCounts, word: str | None, error: float
) -> tuple[float, list[Finding]]:
    """The rate to describe the batches by, and what is to be said about sampled and accounted rates."""
    claimed = accounted(configuration)
    steps = configuration.steps_per_epoch
    if word is None or not scheme_named(word).independent:
        rate = counts.rate
        verdict = "there is no rate of independent inclusion"
        evidence = f"A record is in a share {rate:.6g} of the batches."
        if claimed is None:
            return rate, [Finding("sample rate", verdict, evidence)]
        evidence += f" The accountant assumes Poisson sampling at {fraction(claimed[0])}."
        return rate, [Finding("sample rate", verdict, evidence, alarm=True)]
    low, high = rates_left(counts, error)
    candidates = [] if claimed is None else [claimed[0]]
    candidates += [1 / count for count in (steps, steps + 1, steps - 1) if count >= 1]
    inside = [value for value in dict.fromkeys(candidates) if low <= value <= high]
    rate = inside[0] if inside else counts.rate
    evidence = (
        f"{counts.inclusions} inclusions in {counts.sizes.size} batches: rate in "
        f"[{floor_digits(low, 7)}, {ceil_digits(high, 7)}]"
        f" ({', '.join(fraction(value) for value in inside) or 'none of the simple rates'} inside)"
    )
    others = [fraction(value) for value in inside[1:]]
    undecided = f"; not distinguished from {' and '.join(others)}" if others else ""
    found = [Finding("sample rate", f"samples at {fraction(rate)}{undecided}", evidence, error)]
    if claimed is not None:
        agrees = low <= claimed[0] <= high
        verdict = f"accounts at {fraction(claimed[0])}" + (", the rate it samples at" if agrees else "")
        if not agrees:
            verdict += f", but samples at {fraction(rate)}"
        reported = f"The accountant is given rate {claimed[0]!r} and noise multiplier {claimed[1]:g}."
        found.append(Finding("accounting", verdict, reported, error, alarm=not agrees))
    return rate, found
