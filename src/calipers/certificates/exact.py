"""A run in exact rationals, as a certificate states it.

A noise multiplier of 1.1 means eleven tenths, not the double next to it, and 256 of 60000 records are the fraction
itself. What cannot be certified is refused here, in one sentence with what to do instead.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction

from calipers.errors import UnsupportedError
from calipers.measure.divisors import is_divided, rate_moves
from calipers.run import Run
from calipers.samplers import scheme_of
from calipers.samplers.shuffle import MOST_OF_ONE_RECORD
from calipers_verify.steps import NOISE

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
    """The number as certificates write it: in decimals where it is one, and as a fraction otherwise."""
    with localcontext(prec=60) as context:
        context.traps[Inexact] = True
        try:
            return str(Decimal(number.numerator) / number.denominator)
        except Inexact:
            return str(number)


def run_record(phases: tuple[Run, ...]) -> dict[str, object]:
    """The run of a certificate, or `UnsupportedError` with what is missing."""
    return {"adjacency": phases[0].adjacency, "phases": [phase_record(run) for run in phases]}


def _refuse_unknown(run: Run) -> None:
    for field in dataclasses.fields(run):
        if field.name not in _STATED and getattr(run, field.name) != field.default:
            raise UnsupportedError(
                f"No certificate can be had yet for {field.name}={getattr(run, field.name)!r}; measure the run without "
                "one."
            )


def phase_record(run: Run) -> dict[str, object]:
    """One phase of a run, or `UnsupportedError` with what is missing."""
    _refuse_unknown(run)
    if not NOISE[0] <= exact(run.noise_multiplier) <= NOISE[1]:
        low, high = map(float, NOISE)
        raise UnsupportedError(
            f"No certificate can be had for noise_multiplier={run.noise_multiplier:g}: certificates state noise "
            f"multipliers from {low:g} to {high:g}; measure the run without one."
        )
    if run.sampler in ("shuffle", "deterministic"):
        return _cut(run)
    sampler, stated = run.sampler, scheme_of(run).stated(run)
    if rate_moves(run):
        assert run.batch_size is not None
        assert run.dataset_size is not None
        if run.batch_size > run.dataset_size - 2:
            raise UnsupportedError(
                "No certificate can be had for a moving rate that reaches 1 on a neighbor (batch_size >= "
                "dataset_size - 1): use a public rate, or smaller batches."
            )
        sampler += "-moving"
        stated = {"dataset_size": run.dataset_size, "batch_size": run.batch_size, "steps": run.total_steps}
    elif is_divided(run):
        if run.normalization != "realized" or run.rate >= 1.0:
            raise UnsupportedError(
                f"No certificate can be had yet for sums divided by a multiple of the dataset size "
                f"(normalization={run.normalization!r}): divide by a public constant, or measure it without one."
            )
        sampler += "-realized"
        stated = {"dataset_size": run.dataset_size, **stated}
    shared: dict[str, object] = {"sampler": sampler, "noise_multiplier": written(exact(run.noise_multiplier))}
    return shared | {key: written(value) if isinstance(value, Fraction) else value for key, value in stated.items()}


def _cut(run: Run) -> dict[str, object]:
    """Batches of a fixed size: the checker derives from the sizes which neighbors there are."""
    if run.sizes is None:
        raise UnsupportedError(
            f"No certificate can be had for sampler={run.sampler!r} without sizes, on which neighbors depend: give "
            "dataset_size and batch_size."
        )
    if run.total_epochs is None:
        raise UnsupportedError(
            f"No certificate can be had yet for steps={run.total_steps} that end inside an epoch of "
            f"{run.steps_per_epoch}; give whole epochs, or measure the run without one."
        )
    size, batch = run.sizes
    if run.sampler == "shuffle" and batch == 1 and size > MOST_OF_ONE_RECORD:
        raise UnsupportedError(
            f"No certificate can be had for {size:,} shuffled batches of one record: its proof would take too long. "
            "Use larger batches, or measure the run without one."
        )
    record: dict[str, object] = {"sampler": run.sampler, "noise_multiplier": written(exact(run.noise_multiplier))}
    record |= {"dataset_size": size, "batch_size": batch, "last_batch": run.last_batch}
    if run.sampler == "shuffle":
        record |= {"order": run.reshuffle, "view": run.view}
    return record | {"epochs": run.total_epochs}
