"""Batches in a fixed order: every record in a batch known beforehand, the same in every epoch. Nothing is hidden."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.schemes.dealt import CutScheme, at_places, epochs_of
from calipers.schemes.exposure import Exposure, known_times
from calipers.schemes.scheme import EMPTY_PLACE, Configurations, Sums
from calipers.schemes.units import known_unit, together


class DeterministicScheme(CutScheme):
    """No draw at all."""

    name = "deterministic"
    summary = "fixed order"
    counts_units = ("add-remove", "zero-out", "substitute")
    drawn_by = "Deterministic"

    def batches(self, run: RunFields) -> str:
        """In words."""
        return "batches in a fixed order ({per_epoch} per epoch)"

    def exposure(self, run: RunFields) -> Exposure:
        """One plain Gaussian per epoch, at a known time."""
        if run.records_per_unit > 1:
            return known_unit(run, together(run.records_per_unit, run.batch_size), epochs_of(run))
        return known_times(run, epochs_of(run))

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """No amplification."""
        return (
            "Fixed batches hide nothing about when a record is used: there is no amplification by sampling, and the "
            "Poisson claim does not apply to this run.",
            *((EMPTY_PLACE,) if run.adjacency == "add-remove" else ()),
        )

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Draw."""
        text = "Draw the batches at random: a fixed order hides nothing about when a record is used."
        return ((text, {"sampler": "balls-and-bins"}),)

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """Nothing but how often."""
        return {"epochs": epochs_of(run)}

    def draw(self, sums: Sums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """The first round of every epoch."""
        return at_places(np.zeros(shape[:2], dtype=np.int64), sums.rounds)

    def configurations(self, sums: Sums, member: bool) -> Configurations:
        """There is one."""
        included = np.zeros((1, sums.rounds))
        included[0, 0] = 1.0
        return np.zeros(1), sums.batch_size - included, included


SCHEME = DeterministicScheme()
