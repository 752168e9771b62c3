"""A run in exact rationals, as a certificate states it.

A noise multiplier of 1.1 means eleven tenths, not the double next to it, and 256 of 60000 records are the fraction
itself. What cannot be certified is refused here, in one sentence with what to do instead.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from calipers.errors import UnsupportedError
from calipers.measure.divisors import is_divided, rate_moves
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
        "last_batch",
        "reshuffle",
        "derived_rate",
    )
)
"""Keys of a run that a certificate states, or that this file looks at; a run that says more is another mechanism."""


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
    for field in dataclasses.fields(run):
        if field.name not in _STATED and getattr(run, field.name) != field.default:
            raise UnsupportedError(
                f"No certificate can be had yet for {field.name}={getattr(run, field.name)!r}; measure the run without "
                "one."
            )


_CERTIFIED = ("poisson", "deterministic", "balls-and-bins", "shuffle")


def _phase(run: Run) -> dict[str, object]:
    if run.sampler not in _CERTIFIED:
        raise UnsupportedError(f"No certificate can be had yet for sampler={run.sampler!r}; measure it without one.")
    _refuse_unknown(run)
    shared: dict[str, object] = {"sampler": run.sampler, "noise_multiplier": written(exact(run.noise_multiplier))}
    if run.sampler == "poisson":
        return shared | _poisson(run)
    epochs = run.total_epochs
    assert epochs is not None  # a Run with fixed batches has whole epochs
    if run.sampler == "deterministic":
        return shared | {"epochs": epochs}
    if run.sampler == "balls-and-bins":
        return shared | {"batches": run.steps_per_epoch, "epochs": epochs}
    size, batch = run.dataset_size, run.batch_size
    if size is None or batch is None:  # a sample rate 1/M: equal batches of a size that nobody said
        size, batch = run.steps_per_epoch, 1
    own = {"dataset_size": size, "batch_size": batch, "last_batch": run.last_batch, "order": run.reshuffle}
    return shared | own | {"epochs": epochs, "view": run.view}


def _poisson(run: Run) -> dict[str, object]:
    """The keys of Poisson sampling, and of the two ways in which one record may change more than its own steps."""
    if rate_moves(run):
        assert run.batch_size is not None
        assert run.dataset_size is not None
        if run.batch_size > run.dataset_size - 2:
            raise UnsupportedError(
                "No certificate can be had for a moving rate that reaches 1 on a neighbor (batch_size >= "
                "dataset_size - 1): use a public rate, or smaller batches."
            )
        own = {"dataset_size": run.dataset_size, "batch_size": run.batch_size}
        return {"sampler": "poisson-moving", **own, "steps": run.total_steps}
    rate = {"sample_rate": written(_rate(run)), "steps": run.total_steps}
    if not is_divided(run):
        return rate
    if run.normalization != "realized" or run.rate >= 1.0:
        raise UnsupportedError(
            f"No certificate can be had yet for sums divided by a multiple of the dataset size "
            f"(normalization={run.normalization!r}): divide by a public constant, or measure it without one."
        )
    return {"sampler": "poisson-realized", "dataset_size": run.dataset_size, **rate}


def _rate(run: Run) -> Fraction:
    if run.sample_rate is not None:
        return exact(run.sample_rate)
    assert run.batch_size is not None
    assert run.dataset_size is not None
    return Fraction(run.batch_size, run.dataset_size)
