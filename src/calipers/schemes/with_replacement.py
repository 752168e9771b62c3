"""Fixed-size batches drawn anew every step, with replacement: B places, each filled by a uniformly random record.

A record may be in a batch several times, and displaces another one each time: j places, j binomial(B, 1/N)
(`calipers.laws.core.drawn_shift` where it is added or removed, `calipers.laws.drawn.counted` else).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.schemes.displacing import DisplacingScheme, several_places
from calipers.schemes.exposure import Exposure
from calipers.schemes.scheme import Sums, sizes_of
from calipers.schemes.units import binomial_shifts


class WithReplacementScheme(DisplacingScheme):
    """B places, each with a record of its own draw."""

    name = "with-replacement"
    summary = "B draws, anew every step"
    drawn_with: ClassVar[Mapping[str, object]] = {"replacement": True}

    def check(self, run: RunFields) -> None:
        """Both sizes, and a neighbor that has records."""
        size, _ = sizes_of(run)
        if run.adjacency == "add-remove" and size <= run.records_per_unit:
            raise InputError(
                f"Without one {run.unit_name} there are no records left to draw; use adjacency 'zero-out' or "
                "'substitute'."
            )

    def batches(self, run: RunFields) -> str:
        """In words."""
        return "batches of fixed size drawn anew with replacement (a record fills a place with probability 1/N)"

    def exposure(self, run: RunFields) -> Exposure:
        """One pair where a record is added or removed; else the worst of either order, and the attacks."""
        size, batch = sizes_of(run)
        return several_places(run, binomial_shifts(batch, run.records_per_unit / size, 1.0 / run.noise_multiplier))

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What displacement costs, and that a record may come several times."""
        (displaced,) = super().notes(run)
        return (f"A record may fill several places of one batch. {displaced}",)

    def draw(self, sums: Sums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """How often the record is among the B draws."""
        drawn = rng.integers(sums.others + 1, size=(*shape, sums.batch_size)) == 0
        return np.asarray(drawn.sum(axis=-1), dtype=np.float64)


SCHEME = WithReplacementScheme()
