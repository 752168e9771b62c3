"""Runs whose every participation has one pair that is proven and attained: closed forms and products."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from calipers.laws.average import AllocationPair
from calipers.laws.direction import LawSource
from calipers.laws.product import Product
from calipers.laws.replaced import ReplacedPair
from calipers.measure.allocation import ReplacedBackend
from calipers.measure.backends import GaussianBackend, ProductBackend
from calipers.measure.participation import gaussian_shift, largest_shift, participation, participations
from calipers.mechanisms.gaussian import gaussian, poisson_gaussian
from calipers.run import Run

_POISSON_ATTACK = (
    "The record's clipped gradient is the same unit vector in every step and all other gradients are zero, so each "
    "step shows exactly this pair."
)

_ALLOCATION_ATTACK = (
    "The record's clipped gradient is the same unit vector in every step and all other gradients are zero, so an epoch "
    "shows exactly the mean of its rounds' likelihood ratios."
)

_OPPOSITE_ATTACK = (
    "The record's clipped gradient is the same unit vector in every step, its replacement's the opposite one, and all "
    "other gradients are zero, so each step shows exactly this pair."
)

_REPLACED = ("the original against its replacement", "the replacement against the original")

_OPPOSITE = "Replacing a record is dominated by opposite gradients in every round."

_REPLACED_ATTACK = (
    "The record's clipped gradient is the same unit vector in every step, its replacement's the opposite one, and all "
    "other gradients are zero, so an epoch shows exactly two mixtures of Gaussians shifted in one round, opposite ways."
)


def gaussian_releases(count: int) -> str:
    """So many Gaussian releases, in words."""
    return "one Gaussian release at a known time" if count == 1 else f"{count} Gaussian releases at known times"


def gaussian_backend(phases: tuple[Run, ...]) -> GaussianBackend:
    """Every participation as a plain Gaussian at a known time."""
    shifts = [largest_shift(run) for run in phases]
    counts = [participations(run) for run in phases]
    mu = math.sqrt(math.fsum(count * shift * shift for count, shift in zip(counts, shifts, strict=True)))
    return GaussianBackend(mu, f"The record takes part in {gaussian_releases(sum(counts))}.")


@functools.lru_cache(maxsize=64)
def _pair(shift: float | None, rate: float, noise_multiplier: float, adjacency: str) -> LawSource:
    return gaussian(shift) if shift is not None else poisson_gaussian(rate, noise_multiplier, adjacency)


def source(run: Run) -> LawSource:
    """The pair of one participation, one object per kind so that equal phases are counted together."""
    if run.sampler == "poisson" or gaussian_shift(run) is not None:
        return _pair(gaussian_shift(run), run.rate, run.noise_multiplier, run.adjacency)
    share = participation(run) if run.sampler == "shuffle" else 1.0
    kind = ReplacedPair if run.adjacency == "substitute" else AllocationPair
    return kind(run.noise_multiplier, run.steps_per_epoch, share)


def known_release(run: Run) -> LawSource:
    """The plain Gaussian of one participation at a known time."""
    return _pair(largest_shift(run), run.rate, run.noise_multiplier, run.adjacency)


def counted(phases: tuple[Run, ...], pair: Callable[[Run], LawSource]) -> list[tuple[LawSource, int]]:
    """The pairs of all phases with the number of participations, equal ones together."""
    counts: dict[LawSource, int] = {}
    for run in phases:
        found = pair(run)
        counts[found] = counts.get(found, 0) + participations(run)
    return list(counts.items())


def product_backend(phases: tuple[Run, ...]) -> ProductBackend:
    """The product of the phases' pairs."""
    factors = counted(phases, source)
    steps = sum(count for _, count in factors)
    replaced = phases[0].adjacency == "substitute"
    if any(run.sampler != "poisson" for run in phases):
        reason = f"Each epoch hides the record in one of its batches: a product of {steps} pairs."
        if not replaced:
            return ProductBackend(Product(factors), reason, "calipers:allocation", _ALLOCATION_ATTACK)
        kind = ReplacedBackend if steps == 1 else ProductBackend
        return kind(Product(factors), f"{reason} {_OPPOSITE}", "calipers:replaced-pair", _REPLACED_ATTACK, _REPLACED)
    if replaced:
        reason = f"Replacing a record is dominated, step by step, by opposite gradients: a product of {steps} pairs."
        return ProductBackend(Product(factors), reason, "calipers:substitute-pair", _OPPOSITE_ATTACK, _REPLACED)
    reason = f"Adding or removing a record is dominated, step by step, by its Poisson pair: a product of {steps} pairs."
    return ProductBackend(Product(factors), reason, "zhu2022:thm11", _POISSON_ATTACK)
