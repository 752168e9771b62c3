"""Balls-and-bins: every record is thrown into one of the epoch's batches independently of all others.

What the others do says nothing about the differing record, so the pair of a hidden record is proven and attained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
from scipy import special

from calipers.domains import Domain
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.schemes.dealt import (
    at_places,
    dealt_unit,
    epochs_of,
    hidden_alone,
    kept_noise,
    refuse_many,
    summed_unit,
    whole_epochs_of,
)
from calipers.schemes.exposure import Attack, Exposure, known_times
from calipers.schemes.scheme import Configurations, Scheme, Sums
from calipers.schemes.units import binomial_shifts

_MOST_THROWS = 2**22


class BallsAndBinsScheme(Scheme):
    """Independent throws, one per record and epoch."""

    name = "balls-and-bins"
    summary = "random batch"
    others_zero = True
    drawn_by = "BallsAndBins"

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """The number of bins is a choice somebody made."""
        if not run.left_over:
            return ()
        return (f"An epoch is read as {run.steps_per_epoch:,} batches, into one of which each record is drawn.",)

    def batches(self, run: RunFields) -> str:
        """In words."""
        if run.reshuffle == "once":
            return "balls-and-bins batches (each record is drawn into one of {per_epoch}, the same in every epoch)"
        return "balls-and-bins batches (each record is drawn into one of the {per_epoch} of an epoch)"

    def exposure(self, run: RunFields) -> Exposure:
        """A record hidden in one of M batches; with one batch there is nothing to hide."""
        return known_times(run, epochs_of(run)) if run.steps_per_epoch == 1 else hidden_alone(run, 1.0)

    def dealt(self, run: RunFields) -> tuple[DealtUnit, int]:
        """Into bins."""
        return dealt_unit(run, run.steps_per_epoch)

    def unit_attack(self, run: RunFields) -> Attack:
        """An epoch that ends early leaves records out that would have come later."""
        share = 1.0 / run.steps_per_epoch
        return summed_unit(run, lambda steps: binomial_shifts(run.records_per_unit, min(1.0, steps * share), 1.0))

    def noise_range(self, run: RunFields) -> Domain:
        """Of a hidden record."""
        return kept_noise(run)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """Independence is what makes the pair exact."""
        if run.reshuffle == "once":
            return (
                "Every record is drawn into one batch once and sits in it in every epoch: one pair is both proven and "
                "attained, that of a single epoch at noise sigma / sqrt(epochs). Thrown anew every epoch (reshuffle = "
                "'every-epoch') records are hidden far better.",
            )
        return (
            "Every record is drawn into one batch of the epoch independently of all others, so nothing the others do "
            "gives it away: one pair is both proven and attained. A loader that shuffles and cuts equal batches is not "
            "this sampler.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The number of batches follows from the dataset size."""
        return (
            f"The number of batches floor(N/B) = {run.steps_per_epoch:,} is read as a public number, the same for both "
            "neighbors. A loop that computes it from its dataset changes it where N crosses a multiple of B, and is "
            "not covered there.",
        )

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Throw anew."""
        if run.reshuffle == "every-epoch" or run.total_epochs == 1:
            return ()
        text = "Throw every record into a new batch in every epoch (reshuffle = 'every-epoch')."
        return ((text, {"reshuffle": "every-epoch"}),)

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """Bins, and whether every epoch throws anew."""
        return {"batches": run.steps_per_epoch, "order": run.reshuffle, "epochs": whole_epochs_of(run)}

    def draw(self, sums: Sums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """A uniform round of every epoch."""
        return at_places(rng.integers(sums.rounds, size=shape[:2]), sums.rounds)

    def crowd(self, sums: Sums, epochs: int, rng: np.random.Generator) -> FloatArray:
        """Every other record thrown into one of the rounds, for every epoch."""
        found = np.empty((epochs, sums.rounds), dtype=np.intp)
        block = max(1, _MOST_THROWS // sums.others)
        for start in range(0, epochs, block):
            rows = min(block, epochs - start)
            thrown = rng.integers(sums.rounds, size=(rows, sums.others))
            thrown += sums.rounds * np.arange(rows)[:, None]
            counted = np.bincount(thrown.ravel(), minlength=rows * sums.rounds)
            found[start : start + rows] = counted.reshape(rows, sums.rounds)
        return found.astype(np.float64)

    def configurations(self, sums: Sums, member: bool) -> Configurations:
        """Where the record is, and, where that shows, how the others fell."""
        rounds = sums.rounds
        places = np.eye(rounds) if member else np.zeros((1, rounds))
        crowds, log_crowd = np.zeros((1, rounds)), np.zeros(1)
        if sums.crowd_matters:
            ways = math.comb(sums.others + rounds - 1, rounds - 1)
            refuse_many(ways * len(places))
            crowds = np.array(list(_fallen(sums.others, rounds)), dtype=np.float64).reshape(ways, rounds)
            log_crowd = special.gammaln(sums.others + 1.0) - special.gammaln(crowds + 1.0).sum(axis=1)
            log_crowd = log_crowd - sums.others * math.log(rounds)
        refuse_many(len(crowds) * len(places))
        log_weight = np.repeat(log_crowd, len(places)) - math.log(len(places))
        return log_weight, np.repeat(crowds, len(places), axis=0), np.tile(places, (len(crowds), 1))


def _fallen(balls: int, bins: int) -> Iterator[list[int]]:
    """All ways to write `balls` as an ordered sum of `bins` counts: where the bins - 1 bars stand among the balls."""
    for bars in combinations(range(balls + bins - 1), bins - 1):
        edges = (-1, *bars, balls + bins - 1)
        yield [edges[i + 1] - edges[i] - 1 for i in range(bins)]


SCHEME = BallsAndBinsScheme()
