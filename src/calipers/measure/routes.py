"""Which statements license the jaws of a run.

A route turns the phases of a run into a backend: closed form where every step is a plain Gaussian,
a product of Poisson-subsampled Gaussians otherwise. A combination for which nothing is proven is
refused, with what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from calipers.domains import OPEN_UNIT
from calipers.errors import UnsupportedError
from calipers.laws.direction import LawSource
from calipers.laws.product import Product
from calipers.measure.backends import Backend, GaussianBackend, ProductBackend
from calipers.measure.measurement import Claim, Measurement
from calipers.mechanisms.gaussian import gaussian, poisson_gaussian
from calipers.run import Run, as_phases

SUPPORTED_SAMPLERS = ("poisson", "deterministic")
SUPPORTED_NORMALIZATIONS = ("none", "constant")

_POISSON_ATTACK = (
    "The record's clipped gradient is the same unit vector in every step and all other gradients are zero, so each "
    "step shows exactly this pair."
)


def measure(run: Run | Sequence[Run], *, tolerance: float = 1e-3) -> Measurement:
    """The certified bracket of what was executed.

    `run` is one run or a sequence of phases on the same data. `tolerance` is the relative width
    aimed for: upper - lower <= tolerance * upper for epsilon. Nothing is computed before a quantity
    is asked for.
    """
    phases = as_phases(run)
    tolerance = OPEN_UNIT.check("tolerance", tolerance)
    for phase in phases:
        _refuse_unproven(phase)
    backend = _backend(phases)
    claim = Claim(_poisson_backend(phases, "add-remove"), tolerance)
    return Measurement(phases, backend, claim, tolerance, _notes(phases))


def _refuse_unproven(run: Run) -> None:
    if run.sampler not in SUPPORTED_SAMPLERS:
        raise UnsupportedError(
            f"sampler={run.sampler!r} cannot be measured yet; supported are "
            f"{', '.join(repr(name) for name in SUPPORTED_SAMPLERS)}."
        )
    if run.normalization not in SUPPORTED_NORMALIZATIONS:
        raise UnsupportedError(
            f"normalization={run.normalization!r} cannot be measured yet; supported are "
            f"{', '.join(repr(name) for name in SUPPORTED_NORMALIZATIONS)}. Divide by a public constant."
        )


def gaussian_shift(run: Run) -> float | None:
    """mu of one participation when a step reveals nothing but a plain Gaussian, or None under real subsampling."""
    if run.sampler == "poisson" and run.rate < 1:
        return None
    return (2.0 if run.adjacency == "substitute" else 1.0) / run.noise_multiplier


def participations(run: Run) -> int:
    """How many steps a record can take part in: every step at rate 1, once per epoch for fixed batches."""
    if run.sampler == "poisson":
        return run.total_steps
    assert run.total_epochs is not None  # a Run with fixed batches has whole epochs
    return run.total_epochs


def _backend(phases: tuple[Run, ...]) -> Backend:
    shifts = [gaussian_shift(run) for run in phases]
    plain = [(shift, participations(run)) for shift, run in zip(shifts, phases, strict=True) if shift is not None]
    if len(plain) == len(phases):
        mu = math.sqrt(math.fsum(count * shift * shift for shift, count in plain))
        steps = sum(count for _, count in plain)
        return GaussianBackend(mu, f"The record takes part in {steps} Gaussian releases whose times are known.")
    return _product_backend(phases)


def _product_backend(phases: tuple[Run, ...]) -> ProductBackend:
    counts: dict[tuple[float, float, str] | float, int] = {}
    for run in phases:
        shift = gaussian_shift(run)
        key = shift if shift is not None else (run.rate, run.noise_multiplier, run.adjacency)
        counts[key] = counts.get(key, 0) + participations(run)
    factors: list[tuple[LawSource, int]] = []
    for key, count in counts.items():
        source = gaussian(key) if isinstance(key, float) else poisson_gaussian(*key)
        factors.append((source, count))
    steps = sum(count for _, count in factors)
    if phases[0].adjacency == "substitute":
        reason = f"Replacing a record is dominated, step by step, by opposite gradients: a product of {steps} pairs."
        return ProductBackend(Product(factors), reason, "calipers:substitute-pair", _POISSON_ATTACK)
    reason = f"Adding or removing a record is dominated, step by step, by its Poisson pair: a product of {steps} pairs."
    return ProductBackend(Product(factors), reason, "zhu2022:thm11", _POISSON_ATTACK)


def _poisson_backend(phases: tuple[Run, ...], adjacency: str) -> Backend:
    """What an accountant reports that assumes Poisson sampling of the undivided sum."""
    assumed = tuple(
        Run(
            sample_rate=run.rate,
            steps=run.total_steps,
            noise_multiplier=run.noise_multiplier,
            adjacency=adjacency,
        )
        for run in phases
    )
    return _backend(assumed)


def _notes(phases: tuple[Run, ...]) -> tuple[str, ...]:
    notes: list[str] = []
    samplers = {run.sampler for run in phases}
    adjacency = phases[0].adjacency
    if "deterministic" in samplers:
        notes.append(
            "Fixed batches hide nothing about when a record is used: there is no amplification by sampling, and the "
            "Poisson claim does not apply to this run."
        )
        if adjacency == "add-remove":
            notes.append(
                "Fixed batches have no add-remove neighbor of their own: removing a record is read as leaving its "
                "place empty (zero-out). A loader that re-packs the remaining records is not covered."
            )
    if "poisson" in samplers:
        notes.append(
            "The upper jaw holds only if batches were really drawn by Poisson sampling, every record independently in "
            "every step. If the data were shuffled, say sampler = 'shuffle'."
        )
    if any(run.normalization == "none" for run in phases):
        notes.append(
            "The released quantity is the noisy sum. Dividing it by a public constant changes nothing; dividing it by "
            "a number that depends on the data (dataset size, realized batch size) does."
        )
    if adjacency == "substitute":
        notes.append("Substitution compares two datasets of equal size; the claim is for adding or removing a record.")
    return tuple(notes)
