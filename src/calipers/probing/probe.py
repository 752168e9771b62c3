"""Probe an implementation of DP-SGD: what does it really do, as opposed to what it is accounted for?

`probe` runs the implementation as a black box (see `calipers.probing.protocol`) and infers the law of its
batches, the rate it samples at and the rate it accounts for, the divisor of the noisy sum, the clipping,
the noise, and what changes when the dataset has one record more. Each finding carries its evidence and the
probability that chance misled it; together they are wrong with probability at most `error_probability`.
The report ends with the `Run` to measure, or with the reason why no `Run` describes what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from calipers.probing.batches import (
    BatchCounts,
    count_batches,
    epochs_needed,
    rate_interval,
    sampler_finding,
)
from calipers.probing.protocol import Configuration, Configure, Finding, Schedule, accounted
from calipers.probing.rules import (
    divisor_finding,
    divisor_rule,
    fraction,
    matching_run,
    moving,
    neighbor_finding,
    run_normalization,
    sizes_to_probe,
)
from calipers.probing.steps import (
    StepNumbers,
    clipping_finding,
    empty_finding,
    noise_finding,
    step_numbers,
)
from calipers.domains import OPEN_UNIT, Domain
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.run import Run

SIZE = Domain(2, 2**31, integer=True)
EPOCHS = Domain(2, 2**31, integer=True)
SEED = Domain(0, 2**53, integer=True)
# Sampler, rate, noise: the findings in which chance takes part share the error probability.
STATISTICAL = 3


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

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings that break the accounting or the training."""
        return tuple(finding for finding in self.findings if finding.alarm)

    def finding(self, subject: str) -> Finding:
        """The finding about one subject."""
        return next(finding for finding in self.findings if finding.subject == subject)

    def to_dict(self) -> dict[str, object]:
        """The report as JSON keys."""
        return {
            "target": self.name,
            "dataset_size": self.dataset_size,
            "batch_size": self.batch_size,
            "error_probability": self.error_probability,
            "findings": [asdict(finding) for finding in self.findings],
            "sizes": [asdict(schedule) for schedule in self.schedules],
            "run": None if self.run is None else self.run.to_dict(),
            "reason": self.reason,
            "caveats": list(self.caveats),
        }


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
) -> ProbeReport:
    """Run an implementation as a black box and say what it does.

    `epochs` is the length of the run whose batches are counted (default: enough to tell the rates 1/T and
    1/(T-1) apart); `dimension` the number of parameters of your own model, for the `Run`. Post-condition: with
    probability at least 1 - error_probability no finding is wrong because of chance (the sampler's
    share of it by normal approximation).
    """
    size = SIZE.check_int("dataset_size", dataset_size)
    batch = Domain(1, size, integer=True).check_int("batch_size", batch_size)
    seed = SEED.check_int("seed", seed)
    error = OPEN_UNIT.check("error_probability", error_probability) / STATISTICAL
    here = configure(size, batch)
    numbers = step_numbers(here, seed)
    schedules = tuple(
        _schedule(here, numbers, size) if other == size else _schedule_at(configure, other, batch, seed)
        for other in sizes_to_probe(size, batch)
    )
    length = epochs_needed(size, here.steps_per_epoch, error) if epochs is None else EPOCHS.check_int("epochs", epochs)
    counts = count_batches(here, size, length, seed + 1)
    sampler, word = sampler_finding(counts, count_batches(here, size, 2, seed + 2), error)
    rate, rates = _rate_findings(here, counts, word, error)
    findings = [sampler, *rates, divisor_finding(numbers, schedules, size), neighbor_finding(schedules, size)]
    noise, clips = None, False
    if numbers.divisor > 0:
        found, noise = noise_finding(here, numbers.divisor, seed + 3, error)
        clipping = clipping_finding(here, numbers)
        clips = not clipping.alarm
        findings += [found, clipping, empty_finding(here, seed)]
    near = [schedule for schedule in schedules if abs(schedule.dataset_size - size) <= 1]
    rule = divisor_rule(numbers, schedules) if numbers.divisor > 0 else None
    run, reason = matching_run(
        dataset_size=size,
        rate=rate,
        steps=here.steps_per_epoch,
        noise_multiplier=noise,
        clips=clips,
        sampler=word,
        normalization=run_normalization(rule, near, rate, here.steps_per_epoch),
        dimension=dimension,
    )
    return ProbeReport(
        name, size, batch, error_probability, tuple(findings), schedules, run, reason, _caveats(near, run)
    )


def _schedule_at(configure: Configure, size: int, batch: int, seed: int) -> Schedule:
    configuration = configure(size, batch)
    return _schedule(configuration, step_numbers(configuration, seed), size)


def _schedule(configuration: Configuration, numbers: StepNumbers, size: int) -> Schedule:
    claimed = accounted(configuration)
    divisor = None if numbers.realized else numbers.divisor
    return Schedule(size, configuration.steps_per_epoch, None if claimed is None else claimed[0], divisor)


def _rate_findings(
    configuration: Configuration, counts: BatchCounts, word: str | None, error: float
) -> tuple[float, list[Finding]]:
    """The rate to describe the batches by, and what is to be said about sampled and accounted rates."""
    claimed = accounted(configuration)
    steps = configuration.steps_per_epoch
    if word != "poisson":
        rate = counts.rate
        verdict = "there is no rate of independent inclusion"
        evidence = f"A record is in a share {rate:.6g} of the batches."
        if claimed is None:
            return rate, [Finding("sample rate", verdict, evidence)]
        evidence += f" The accountant is told Poisson sampling at {fraction(claimed[0])}."
        return rate, [Finding("sample rate", verdict, evidence, alarm=True)]
    low, high = rate_interval(counts, error)
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
    undecided = f"; not told apart from {' and '.join(others)}" if others else ""
    found = [Finding("sample rate", f"samples at {fraction(rate)}{undecided}", evidence, error)]
    if claimed is not None:
        agrees = low <= claimed[0] <= high
        verdict = f"accounts at {fraction(claimed[0])}" + (", the rate it samples at" if agrees else "")
        if not agrees:
            verdict += f", but samples at {fraction(rate)}"
        told = f"The accountant is told rate {claimed[0]!r} and noise multiplier {claimed[1]:g}."
        found.append(Finding("accounting", verdict, told, error, alarm=not agrees))
    return rate, found


def _caveats(near: Sequence[Schedule], run: Run | None) -> tuple[str, ...]:
    """What the run leaves out."""
    if run is None:
        return ()
    found = []
    moves = [name for name in moving(near) if name != "the divisor"]
    if moves:
        found.append(
            f"{' and '.join(moves).capitalize()} differ between neighboring datasets; the Run takes them for public "
            "constants, so what it measures is no guarantee for this implementation at this N."
        )
    if run.normalization in ("floor", "expected", "realized") and run.dimension is None:
        found.append("What such a divisor leaks grows with the number of parameters: give dimension (--dimension).")
    return tuple(found)
