"""Which statements license the jaws of a run.

A route turns the phases of a run into a backend: closed form where every step is a plain Gaussian, a product
of laws where a tight pair is known, and a proof with a separate attack for shuffled batches. A
combination for which nothing is proven is refused, with what is missing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from calipers.domains import OPEN_UNIT, Domain
from calipers.errors import UnsupportedError
from calipers.laws.average import SIGMA, AllocationPair
from calipers.laws.direction import LawSource
from calipers.laws.product import Product
from calipers.laws.shuffle import ShuffleAttack
from calipers.measure.allocation import ShuffleBackend, participation
from calipers.measure.backends import Backend, GaussianBackend, ProductBackend, SplitBackend
from calipers.measure.measurement import Claim, Measurement
from calipers.mechanisms.gaussian import NOISE, gaussian, poisson_gaussian
from calipers.run import Run, as_phases

SUPPORTED_NORMALIZATIONS = ("none", "constant")

_POISSON_ATTACK = (
    "The record's clipped gradient is the same unit vector in every step and all other gradients are zero, so each "
    "step shows exactly this pair."
)

_ALLOCATION_ATTACK = (
    "The record's clipped gradient is the same unit vector in every step and all other gradients are zero, so an epoch "
    "shows exactly the mean of its rounds' likelihood ratios."
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
    remedy = "With so little noise nothing is private; with so much, nothing is left to resolve."
    noise_range(run).check("noise_multiplier", run.noise_multiplier, remedy)
    allocated = run.sampler in ("shuffle", "balls-and-bins")
    if allocated and run.adjacency == "substitute":
        raise UnsupportedError(
            f"adjacency='substitute' cannot be measured for sampler={run.sampler!r} yet; measure 'zero-out', or use "
            "sampler 'poisson' or 'deterministic'."
        )
    if run.normalization not in SUPPORTED_NORMALIZATIONS:
        raise UnsupportedError(
            f"normalization={run.normalization!r} cannot be measured yet; supported are "
            f"{', '.join(repr(name) for name in SUPPORTED_NORMALIZATIONS)}. Divide by a public constant."
        )


def noise_range(run: Run) -> Domain:
    """The noise multipliers at which a run like this one can be measured."""
    return SIGMA if run.sampler in ("shuffle", "balls-and-bins") else NOISE


def gaussian_shift(run: Run) -> float | None:
    """mu of one participation when it shows a plain Gaussian whose time is known, or None."""
    in_doubt = {
        "poisson": run.rate < 1,
        "deterministic": False,
        "balls-and-bins": run.steps_per_epoch > 1,
        # Even a single shuffled batch hides a record if it may be left out of it.
        "shuffle": run.steps_per_epoch > 1 or participation(run) < 1,
    }
    if in_doubt[run.sampler]:
        return None
    return (2.0 if run.adjacency == "substitute" else 1.0) / run.noise_multiplier


def participations(run: Run) -> int:
    """How many releases a record can take part in: every step under Poisson sampling, else one per epoch."""
    if run.sampler == "poisson":
        return run.total_steps
    assert run.total_epochs is not None  # a Run with fixed batches has whole epochs
    return run.total_epochs


def _gaussian_backend(phases: tuple[Run, ...]) -> GaussianBackend:
    """Every participation as a plain Gaussian at a known time."""
    shifts = [(2.0 if run.adjacency == "substitute" else 1.0) / run.noise_multiplier for run in phases]
    counts = [participations(run) for run in phases]
    mu = math.sqrt(math.fsum(count * shift * shift for count, shift in zip(counts, shifts, strict=True)))
    return GaussianBackend(mu, f"The record takes part in {sum(counts)} Gaussian releases whose times are known.")


def _backend(phases: tuple[Run, ...]) -> Backend:
    if all(gaussian_shift(run) is not None for run in phases):
        return _gaussian_backend(phases)
    shuffled = [run for run in phases if run.sampler == "shuffle" and run.view == "worst-case"]
    if not shuffled:
        return _product_backend(phases)
    kinds = {(run.noise_multiplier, run.steps_per_epoch, participation(run)) for run in phases}
    if len(shuffled) < len(phases) or len(kinds) > 1:
        raise UnsupportedError(
            "Phases that shuffle cannot be mixed with other phases yet in the worst-case view; measure them one by "
            "one, or use sampler='balls-and-bins', whose phases compose."
        )
    first = shuffled[0]
    attack = ShuffleAttack(first.noise_multiplier, first.steps_per_epoch, participation(first))
    epochs = sum(participations(run) for run in phases)
    above = replace(
        _gaussian_backend(phases),
        reason="Shuffling never leaks more than fixed batches (Chua et al. 2024, Theorem 4.1), which show the record "
        f"in {epochs} Gaussian releases.",
    )
    return SplitBackend(above, ShuffleBackend(attack, epochs), single_epoch=epochs == 1)


@functools.lru_cache(maxsize=64)
def _pair(shift: float | None, rate: float, noise_multiplier: float, adjacency: str) -> LawSource:
    return gaussian(shift) if shift is not None else poisson_gaussian(rate, noise_multiplier, adjacency)


def _source(run: Run) -> LawSource:
    """The pair of one participation, one object per kind so that equal phases are counted together."""
    if run.sampler == "poisson" or gaussian_shift(run) is not None:
        return _pair(gaussian_shift(run), run.rate, run.noise_multiplier, run.adjacency)
    share = participation(run) if run.sampler == "shuffle" else 1.0
    return AllocationPair(run.noise_multiplier, run.steps_per_epoch, share)


def _product_backend(phases: tuple[Run, ...]) -> ProductBackend:
    counts: dict[LawSource, int] = {}
    for run in phases:
        source = _source(run)
        counts[source] = counts.get(source, 0) + participations(run)
    factors = list(counts.items())
    steps = sum(counts.values())
    if any(run.sampler != "poisson" for run in phases):
        reason = f"Each epoch hides the record in one of its batches: a product of {steps} pairs."
        return ProductBackend(Product(factors), reason, "calipers:allocation", _ALLOCATION_ATTACK)
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
    samplers = {run.sampler for run in phases}
    notes: list[str] = []
    for sampler in ("poisson", "deterministic", "shuffle", "balls-and-bins"):
        if sampler in samplers:
            notes.extend(_sampler_notes(sampler, phases[0]))
    if any(run.normalization == "none" for run in phases):
        notes.append(
            "The released quantity is the noisy sum. Dividing it by a public constant changes nothing; dividing it by "
            "a number that depends on the data (dataset size, realized batch size) does."
        )
    if phases[0].adjacency == "substitute":
        notes.append("Substitution compares two datasets of equal size; the claim is for adding or removing a record.")
    return tuple(notes)


def _sampler_notes(sampler: str, run: Run) -> list[str]:
    """What an honest reader must know about a sampler, in plain words."""
    empty_place = (
        "Fixed batches have no add-remove neighbor of their own: removing a record is read as leaving its place empty "
        "(zero-out). A loader that re-packs the remaining records is not covered."
    )
    fixed = [empty_place] if run.adjacency == "add-remove" and sampler in ("deterministic", "shuffle") else []
    if sampler == "poisson":
        return [
            "The upper jaw holds only if batches were really drawn by Poisson sampling, every record independently in "
            "every step. If the data were shuffled, say sampler = 'shuffle'."
        ]
    if sampler == "deterministic":
        return [
            "Fixed batches hide nothing about when a record is used: there is no amplification by sampling, and the "
            "Poisson claim does not apply to this run.",
            *fixed,
        ]
    if sampler == "balls-and-bins":
        return ["Every record is drawn into one batch of the epoch independently of all others; the bracket closes."]
    if run.view == "isolated":
        return [
            "The isolated view assumes an adversary who sees only the record's own noisy contribution. One who knows "
            "the other records of a batch of fixed size can learn where the record is: see view = 'worst-case'.",
            *fixed,
        ]
    return [
        "The bracket is open: with batches of fixed size the other records reveal where this one is, and nobody has "
        "proven how much that is worth. The truth lies between the attack and the proof.",
        "Drawing every record into a random batch independently (sampler = 'balls-and-bins') costs the same training "
        "and closes the bracket.",
        *fixed,
    ]
