"""Random allocation: every record takes part in exactly k of all t steps, drawn uniformly and independently.

The likelihood ratio of a record is an elementary symmetric mean of the steps' ratios
(`calipers.pld.allocation.several_rounds`). With k = 1 it is a record hidden in one of t batches, and the bracket
closes.

**Drawing.** Random allocation: every record takes part in exactly k of the t steps, uniformly, independently of the
others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.domains import COUNT, Domain
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.pld.allocation.several_rounds import several_rounds_attack, several_rounds_proof, tilts_for
from calipers.pld.core.source import AttainedPair, DominatingPair
from calipers.run_fields import RunFields
from calipers.samplers.allocated import hidden, hidden_noise
from calipers.samplers.analysis import Analysis, Attack, Proof, Scheme, known_times
from calipers.samplers.law import Sampler, SamplerLaw

_MOST_PLACES = 2**29
_BLOCK = 2**20


@dataclass(frozen=True, kw_only=True)
class RandomAllocation(Sampler):
    """Every record in exactly `participations` of `steps` steps.

    Formal guarantees:
        - Participation: every set of k of the t steps is equally likely, for every record, independently.
        - Batch size: Binomial(N, k/t) in every step; all of them add up to k N.
        - Other records' batches are independent of this record's and reveal nothing about it.
        - Exact in integer arithmetic. Memory: 8 bytes for each of the k N places, drawn before the first batch.
    """

    steps: int
    participations: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(steps=COUNT)
        self._keep(participations=Domain(1, self.steps, integer=True))
        places = self.dataset_size * self.participations
        if places > _MOST_PLACES:
            raise InputError(
                f"Expected dataset_size * participations <= {_MOST_PLACES}, got {places}: the places of all records "
                "are drawn beforehand and kept in memory."
            )

    @property
    def batch_size(self) -> float | None:
        """The mean size, which follows from public numbers."""
        return self.law().mean_batch_size

    def law(self) -> SamplerLaw:
        """One epoch of all steps, in k of which a record takes part."""
        rate = self.participations / self.steps
        mean = self.dataset_size * self.participations / self.steps
        size, steps = self.dataset_size, self.steps
        return SamplerLaw("random-allocation", size, rate=rate, rounds=steps, mean_batch_size=mean)

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """All steps, from the places of all records."""
        places = self._places(rng)
        order = np.argsort(places, kind="stable")
        ends = np.cumsum(np.bincount(places.astype(np.intp), minlength=self.steps))
        starts = np.concatenate(([0], ends[:-1]))
        records = order // self.participations
        for start, end in zip(starts, ends, strict=True):
            yield records[start:end]

    def _places(self, rng: np.random.Generator) -> IntArray:
        """The steps of record 0, of record 1, ...: for each a uniformly random set, by Floyd's method."""
        found = np.empty((self.dataset_size, self.participations), dtype=np.int64)
        block = max(1, _BLOCK // self.participations)
        for start in range(0, self.dataset_size, block):
            rows = found[start : start + block]
            # Floyd: for j = t - k .. t - 1 draw one of 0 .. j; if it is there already, take j itself.
            for place, highest in enumerate(range(self.steps - self.participations, self.steps)):
                drawn = rng.integers(highest + 1, size=len(rows))
                taken = (rows[:, :place] == drawn[:, None]).any(axis=1)
                rows[:, place] = np.where(taken, highest, drawn)
        return found.ravel()


STATEMENT = "calipers:several-rounds"


class RandomAllocationScheme(Scheme):
    """k of t."""

    name = "random-allocation"
    summary = "k of all steps"
    whole_epochs = False
    drawn_by = RandomAllocation

    def check(self, run: RunFields) -> None:
        """k of t steps, and a batch size that says the same."""
        if run.steps is None:
            raise InputError(f"sampler={self.name!r} draws participations of all steps; give steps instead of epochs.")
        assert run.participations is not None
        if run.participations > run.steps:
            raise InputError(
                f"Expected participations <= steps, got participations={run.participations} of {run.steps} steps."
            )
        share = run.participations / run.steps
        said = run.sample_rate
        if run.sizes is not None:
            expected = run.sizes[0] * share
            if abs(run.sizes[1] - expected) >= 1.0:
                raise InputError(
                    f"{run.participations} of {run.steps} steps put {expected:.6g} records into a batch on average, "
                    f"got batch_size={run.sizes[1]}; leave batch_size out."
                )
        elif said is not None and abs(said - share) > 1e-9 * share:
            raise InputError(
                f"A record takes part in {run.participations}/{run.steps} = {share:.6g} of all steps, got "
                f"sample_rate={said:g}; leave it out."
            )

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """As many participations as epochs."""
        steps = run.total_steps
        chosen = max(1, round(steps * run.mean_rate))
        return {"sampler": self.name, "participations": chosen, "steps": steps, "batch_size": None, "sample_rate": None}

    def batches(self, run: RunFields) -> str:
        """In words."""
        return f"randomly allocated batches (each record is in exactly {run.participations} of the steps)"

    def analyze(self, run: RunFields) -> Analysis:
        """Groups of steps above, summed scores below."""
        assert run.participations is not None
        steps, chosen, noise = run.total_steps, run.participations, run.noise_multiplier
        if chosen == steps:
            return known_times(run, steps)
        if chosen == 1:
            return hidden(noise, [(steps, 1.0, 1)], run.adjacency == "substitute")
        more = f" or {steps // chosen + 1}" if steps % chosen else ""
        above, below = _factors(noise, steps, chosen, run.adjacency)
        proof = Proof(
            *above[0],
            STATEMENT,
            f"The {chosen} steps of a record are one of each of {chosen} groups of {steps // chosen}{more} steps, "
            "groups that are drawn and revealed",
            additional=above[1:],
        )
        attacks = [_attack(run, factors) for factors in below]
        return Analysis((proof,), attacks[0], tuple(attacks[1:]))

    def noise_range(self, run: RunFields) -> Domain:
        """Of a hidden record."""
        return hidden_noise(run)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """Independence, and why the bounds differ."""
        return (
            f"Every record takes part in exactly {run.participations} of {run.total_steps} steps, drawn independently "
            "of all others. The bounds need not meet: the proof gives away more than is released (groups of steps with "
            "one of them each), and the attack uses a weaker test than the best.",
        )


def _attack(run: RunFields, factors: tuple[tuple[AttainedPair, int], ...]) -> Attack:
    replaced = run.adjacency == "substitute"
    instead = ", its replacement's the opposite one," if replaced else ""
    other = "e_k(1/Y_1, ..., 1/Y_t)" if replaced else "C(t, k)"
    ratio = "exp(x_i/sigma)" if replaced else "exp(x_i/sigma - 1/(2 sigma^2))"
    description = (
        f"The record's clipped gradient is the same unit vector in every step{instead} and all other gradients are "
        f"zero. With x_i the sum of step i along it over sigma, Y_i = {ratio} and e_k the elementary symmetric "
        f"polynomial, the only score is that of the whole run, log(e_k(Y_1, ..., Y_t) / {other}). The number is "
        "computed for a weaker test, on a sum of log(1 + c Y_i); the test on the score shows at least as much."
    )
    return Attack(*factors[0], STATEMENT, description, one_sided=True, additional=factors[1:])


@functools.lru_cache(maxsize=16)
def _factors(
    noise: float, steps: int, chosen: int, adjacency: str
) -> tuple[tuple[tuple[DominatingPair, int], ...], tuple[tuple[tuple[AttainedPair, int], ...], ...]]:
    """Those of the proof, and those of every attack."""
    tilts = tilts_for(noise, steps, chosen)
    attacks = [several_rounds_attack(noise, steps, chosen, adjacency, tilt) for tilt in tilts]
    return tuple(several_rounds_proof(noise, steps, chosen, adjacency)), tuple(tuple(factors) for factors in attacks)
