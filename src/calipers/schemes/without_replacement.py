"""Fixed-size batches drawn anew every step, without replacement: B of the N records, uniformly, in every step.

A record in the batch displaces another one, so under add-remove one record moves the sum by *two* clipped gradients
(`calipers.laws.drawn.fixed_size`). Several records of a unit: j of them are in the batch, j hypergeometric
(`calipers.laws.core.drawn_shift`, `calipers.laws.drawn.counted`).
"""

from __future__ import annotations

import functools

import numpy as np

from calipers.errors import InputError
from calipers.laws.core.drawn_shift import Shifts, drawn_shift
from calipers.laws.core.pair import Pair
from calipers.laws.drawn.counted import CountedPair
from calipers.laws.drawn.fixed_size import fixed_size_attacks, fixed_size_proof
from calipers.numerics.binomial import hypergeometric
from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.samplers.fixed_size import FixedSize
from calipers.schemes.displacing import CLOSED, PROVEN, counted_attacks, displaced_notes, displaced_scene, sizes_of
from calipers.schemes.exposure import Attack, Exposure, Proof, closed
from calipers.schemes.scheme import Configurations, Scheme, Sums, read_as_public


class WithoutReplacementScheme(Scheme):
    """B distinct records in every step."""

    name = "without-replacement"
    summary = "B of N, anew every step"
    whole_epochs = False
    equal_batches = True
    stepwise = True
    counts_units = ("add-remove", "zero-out", "substitute")
    isolates = False

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
        assert run.sizes is not None
        shift, steps, scene = 1.0 / run.noise_multiplier, run.total_steps, displaced_scene(run)
        if run.records_per_unit > 1:
            return self._unit(run)
        proof, attacks = _pairs(run.rate, shift, run.adjacency)
        if run.adjacency == "add-remove" or run.rate == 1.0:
            return closed(proof, steps, "calipers:fixed-size", CLOSED, scene)
        return Exposure(
            (Proof(proof, steps, "calipers:fixed-size", PROVEN),),
            *_competing([Attack(pair, steps, "calipers:fixed-size", scene, one_sided=True) for pair in attacks]),
        )

    def _unit(self, run: RunFields) -> Exposure:
        assert run.sizes is not None
        counts = _counts(*run.sizes, run.records_per_unit, 1.0 / run.noise_multiplier)
        return several_places(run, counts)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What displacement costs."""
        return displaced_notes(run)

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The steps of so many epochs; B of however many there are is no rate of its own."""
        return read_as_public(run, rate=False)

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Coins."""
        text = "Let every record enter every step by its own coin (sampler = 'poisson'): then it displaces nobody."
        return ((text, {"sampler": "poisson"}),)

    def sampler(self, run: RunFields) -> FixedSize:
        """Draws B of N."""
        assert run.sizes is not None
        return FixedSize(dataset_size=run.sizes[0], batch_size=run.sizes[1], steps=run.total_steps)

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


def several_places(run: RunFields, counts: Shifts) -> Exposure:
    """A unit of which j records (or copies) are in a batch, j drawn with the given law, each displacing another."""
    steps, scene, statement = run.total_steps, displaced_scene(run), "calipers:counted"
    if run.adjacency == "add-remove":
        pair = _doubled(counts)
        return closed(pair, steps, "calipers:drawn-shift", CLOSED, scene)
    attacks = [Attack(pair, steps, statement, scene, one_sided=True) for pair in counted_attacks(counts, run.adjacency)]
    proof = Proof(CountedPair(counts, run.adjacency), steps, statement, f"{PROVEN}.")
    return Exposure((proof,), *_competing(attacks))


def _competing(attacks: list[Attack]) -> tuple[Attack, tuple[Attack, ...]]:
    return attacks[0], tuple(attacks[1:])


@functools.lru_cache(maxsize=64)
def _pairs(rate: float, shift: float, adjacency: str) -> tuple[Pair, tuple[Pair, ...]]:
    """One object per kind, so that equal phases are counted together."""
    return fixed_size_proof(rate, shift, adjacency), fixed_size_attacks(rate, shift, adjacency)


@functools.lru_cache(maxsize=64)
def _counts(dataset_size: int, batch_size: int, records: int, shift: float) -> Shifts:
    chances, rounding = hypergeometric(dataset_size, records, batch_size)
    return Shifts.of([shift * j for j in range(records + 1)], [float(chance) for chance in chances], rounding)


@functools.lru_cache(maxsize=64)
def _doubled(counts: Shifts) -> Pair:
    return drawn_shift(Shifts(tuple(2.0 * s for s in counts.lengths), counts.weights, counts.rounding, counts.beyond))


SCHEME = WithoutReplacementScheme()
