"""A run in exact rationals, as a certificate states it.

A noise multiplier of 1.1 means eleven tenths, not the double next to it, and 256 of 60000 records are the fraction
itself. What a certificate speaks of is the noisy sums; a divisor that moves with the data is another mechanism, and
is refused.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from calipers.errors import UnsupportedError
from calipers.measure.divisors import is_divided
from calipers.run import Run

_STATED = frozenset(
    (
        "noise_multiplier",
        "dataset_size",
        "batch_size",
        "sample_rate",
        "steps",
        "epochs",
        "sampler",
        "normalization",
        "dimension",
        "adjacency",
        "view",
    )
)
"""Keys of a run that a certificate can state, or that `is_divided` looks at."""


def exact(number: float) -> Fraction:
    """The decimal number that was written, exactly."""
    return Fraction(repr(float(number)))


def written(number: Fraction) -> str:
    """The fraction as certificates write it."""
    return f"{number.numerator}/{number.denominator}" if number.denominator > 1 else str(number.numerator)


def run_record(phases: tuple[Run, ...]) -> dict[str, object]:
    """The run of a certificate, or `UnsupportedError` with what is missing."""
    return {"adjacency": phases[0].adjacency, "phases": [_phase(run) for run in phases]}


def _refuse_unknown(run: Run) -> None:
    """A certificate speaks of the run that these keys describe; one that says more is another mechanism."""
    harmless = ("last_batch",) if run.sampler == "deterministic" else ()  # every record is still used once per epoch
    for field in dataclasses.fields(run):
        if field.name in _STATED or field.name in harmless or getattr(run, field.name) == field.default:
            continue
        raise UnsupportedError(
            f"No certificate can be had yet for {field.name}={getattr(run, field.name)!r}; measure the run without one."
        )


_CERTIFIED = ("poisson", "deterministic", "balls-and-bins", "shuffle")


def _phase(run: Run) -> dict[str, object]:
    if run.sampler not in _CERTIFIED:
        raise UnsupportedError(f"No certificate can be had yet for sampler={run.sampler!r}; measure it without one.")
    _refuse_unknown(run)
    if is_divided(run):
        raise UnsupportedError(
            f"No certificate can be had yet for sums divided by a number that moves with the data "
            f"(normalization={run.normalization!r}); measure it without one, or divide by a public constant."
        )
    shared: dict[str, object] = {"sampler": run.sampler, "noise_multiplier": written(exact(run.noise_multiplier))}
    if run.sampler == "poisson":
        return shared | {"sample_rate": written(_rate(run)), "steps": run.total_steps}
    epochs = run.total_epochs
    assert epochs is not None  # a Run with fixed batches has whole epochs
    if run.sampler == "deterministic":
        return shared | {"epochs": epochs}
    if run.sampler == "balls-and-bins":
        return shared | {"batches": run.steps_per_epoch, "epochs": epochs}
    size, batch = run.dataset_size, run.batch_size
    if size is None or batch is None:  # a sample rate 1/M: equal batches, nobody is left out
        size, batch = run.steps_per_epoch, 1
    return shared | {"dataset_size": size, "batch_size": batch, "epochs": epochs, "view": run.view}


def _rate(run: Run) -> Fraction:
    if run.sample_rate is not None:
        return exact(run.sample_rate)
    assert run.batch_size is not None
    assert run.dataset_size is not None
    return Fraction(run.batch_size, run.dataset_size)
