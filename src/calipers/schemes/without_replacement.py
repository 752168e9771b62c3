"""Fixed-size batches drawn anew every step, without replacement: B of the N records, uniformly, in every step.

A record in the batch displaces another one, so under add-remove one record moves the sum by *two* clipped gradients
(`calipers.laws.drawn.fixed_size`). Several records of a unit: j of them are in the batch, j hypergeometric
(`calipers.laws.core.drawn_shift`, `calipers.laws.drawn.counted`).
"""

from __future__ import annotations

import functools

import numpy as np

from calipers.errors import InputError
from calipers.laws.core.drawn_shift import Shifts
from calipers.laws.core.pair import Pair
from calipers.laws.drawn.fixed_size import fixed_size_attacks, fixed_size_proof
from calipers.numerics.binomial import hypergeometric
from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.schemes.displacing import CLOSED, PROVEN, DisplacingScheme, displaced_scene, several_places
from calipers.schemes.exposure import Attack, Exposure, Proof, closed
from calipers.schemes.scheme import Configurations, Sums, sizes_of


class WithoutReplacementScheme(DisplacingScheme):
    """B distinct records in every step."""

    name = "without-replacement"
    summary = "B of N, anew every step"

    def default_adjacency(self, run: RunFields) -> str:
        """Zero-out where the neighbor with a unit fewer cannot fill its batch."""
        size, batch = sizes_of(run)
        return "add-remove" if size - run.records_per_unit >= batch else "zero-out"

    def check(self, run: RunFields) -> None:
        """Both sizes, and a neighbor that can fill its batch."""
        size, batch = sizes_of(run)
        left = size - run.records_per_unit
        if run.adjacency == "add-remove" and left < batch:
            raise InputError(
                f"With {left} records left when a {run.unit_name} is removed no batch of {batch} can be drawn "
                "without replacement; lower batch_size, or use adjacency 'zero-out' or 'substitute'."
            )

    def batches(self, run: RunFields) -> str:
        """In words."""
        return "batches of fixed size drawn anew without replacement (a record is in one with probability {rate})"

    def exposure(self, run: RunFields) -> Exposure:
        """One pair where a record is added or removed; else the worst of either order, and the attacks."""
        shift, steps, scene = 1.0 / run.noise_multiplier, run.total_steps, displaced_scene(run)
        if run.records_per_unit > 1:
            return several_places(run, _counts(*sizes_of(run), run.records_per_unit, shift))
        proof, attacks = _pairs(run.rate, shift, run.adjacency)
        if run.adjacency == "add-remove" or run.rate == 1.0:
            return closed(proof, steps, "calipers:fixed-size", CLOSED, scene)
        first, *others = (Attack(pair, steps, "calipers:fixed-size", scene, one_sided=True) for pair in attacks)
        return Exposure((Proof(proof, steps, "calipers:fixed-size", PROVEN),), first, tuple(others))

    def draw(self, sums: Sums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """Whether the record is among the B of N: a uniform place among all, below B."""
        return (rng.integers(sums.others + 1, size=shape) < sums.batch_size).astype(np.float64)

    def configurations(self, sums: Sums, member: bool) -> Configurations:
        """In the batch, or not."""
        rate = sums.batch_size / (sums.others + 1.0)
        included = np.array([[0.0], [1.0]])
        with np.errstate(divide="ignore"):
            log_weight = np.log(np.array([1.0 - rate, rate]))
        possible = np.isfinite(log_weight)
        return log_weight[possible], (sums.batch_size - included)[possible], included[possible]


@functools.lru_cache(maxsize=64)
def _pairs(rate: float, shift: float, adjacency: str) -> tuple[Pair, tuple[Pair, ...]]:
    """One object per kind, so that equal phases are counted together."""
    return fixed_size_proof(rate, shift, adjacency), fixed_size_attacks(rate, shift, adjacency)


@functools.lru_cache(maxsize=64)
def _counts(dataset_size: int, batch_size: int, records: int, shift: float) -> Shifts:
    chances, rounding = hypergeometric(dataset_size, records, batch_size)
    return Shifts.of([shift * j for j in range(records + 1)], [float(chance) for chance in chances], rounding)


SCHEME = WithoutReplacementScheme()
