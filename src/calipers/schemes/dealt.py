"""What samplers share that deal every record out at most once per epoch, to a random one of M batches.

A record that nobody else gives away is hidden in the mean of M independent ratios: zeroed out, that pair is proven and
attained (`calipers.laws.allocated.average`); replaced, opposite gradients are (`calipers.laws.allocated.replaced`).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from calipers.domains import Domain
from calipers.errors import UnsupportedError
from calipers.laws.allocated.average import SIGMA, AllocationPair
from calipers.laws.allocated.replaced import ReplacedPair
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.numerics.types import FloatArray, IntArray
from calipers.run_fields import RunFields
from calipers.schemes.exposure import Exposure, closed, known_release
from calipers.schemes.scheme import Scheme

MOST_CONFIGURATIONS = 20_000


def epochs_of(run: RunFields) -> int:
    """How often a record takes part at most: once per epoch."""
    assert run.total_epochs is not None  # a run whose records are dealt out has whole epochs
    return run.total_epochs


_KEPT_NOISE, _ATTACKED_NOISE = (SIGMA.low, 0.145), (SIGMA.low, 0.18)
"""Least noise at which sums of a record that is kept in its batch, or replaced there, stay in the range of doubles; and
what attacks are given where there is less, since they take long at the least."""


def hidden_alone(run: RunFields, share: float) -> Exposure:
    """A record dealt to one of the epoch's batches with probability `share`, which nothing else gives away.

    Dealt once and for all, it sits in the same batch in every epoch: the product of that batch's ratios is the ratio of
    one release at noise sigma / sqrt(E), whatever adaptive gradients do (docs/mathematics, "bins that are kept").
    """
    noise, rounds, epochs = run.noise_multiplier, run.steps_per_epoch, epochs_of(run)
    replaced = run.adjacency == "substitute"
    if run.reshuffle == "every-epoch" or epochs == 1:
        return hidden(noise, rounds, share, epochs, replaced)
    seen = noise / math.sqrt(epochs)
    if seen >= _KEPT_NOISE[replaced]:
        return hidden(seen, rounds, share, 1, replaced)
    # More noise than there is can only weaken the attack; above, the batch counts as known.
    attack = hidden(_ATTACKED_NOISE[replaced], rounds, share, 1, replaced).attack
    return Exposure((known_release(run, epochs),), dataclasses.replace(attack, one_sided=not replaced))


def hidden(noise: float, rounds: int, share: float, epochs: int, replaced: bool) -> Exposure:
    """`epochs` independent epochs that each hide a record in one of `rounds` batches."""
    same = "The record's clipped gradient is the same unit vector in every step"
    if replaced:
        return closed(
            ReplacedPair(noise, rounds, share),
            epochs,
            "calipers:replaced-pair",
            "Each epoch hides the record in one of its batches, and replacing it is dominated by opposite gradients in "
            "every round",
            f"{same}, its replacement's the opposite one, and all other gradients are zero, so an epoch shows exactly "
            "two mixtures of Gaussians shifted in one round, opposite ways.",
        )
    return closed(
        AllocationPair(noise, rounds, share),
        epochs,
        "calipers:allocation",
        "Each epoch hides the record in one of its batches",
        f"{same} and all other gradients are zero, so an epoch shows exactly the mean of its rounds' likelihood "
        "ratios.",
    )


def dealt_unit(run: RunFields, places: int, batch_size: int | None = None) -> tuple[DealtUnit, int]:
    """The deal of every epoch, or that of all; `places`: bins, or records in batches of this size."""
    records, epochs, shift = run.records_per_unit, epochs_of(run), run.largest_shift
    records = records if batch_size is None else min(records, places)
    if run.reshuffle == "once":
        return DealtUnit(records, shift * math.sqrt(epochs), places, batch_size), 1
    return DealtUnit(records, shift, places, batch_size), epochs


def hidden_noise(run: RunFields) -> Domain:
    """The noise at which such epochs can be measured. Replacing a record moves a sum by 2, so attacks live at half."""
    low = 2.0 * SIGMA.low if run.adjacency == "substitute" else SIGMA.low
    return Domain(low, SIGMA.high)


def kept_noise(run: RunFields) -> Domain:
    """The noise at which epochs can be measured that all use the first throw: sigma / sqrt(E) is what is seen."""
    base = hidden_noise(run)
    return Domain(base.low, base.high * (math.sqrt(epochs_of(run)) if run.reshuffle == "once" else 1.0))


def at_places(place: IntArray, rounds: int) -> FloatArray:
    """1 in the round whose number is `place`, over a last axis of `rounds`; nowhere if it is beyond them."""
    return np.asarray(place[..., None] == np.arange(rounds), dtype=np.float64)


def refuse_many(count: int) -> None:
    """Refuse to list more configurations than a likelihood ratio can mix in reasonable time."""
    if count > MOST_CONFIGURATIONS:
        raise UnsupportedError(
            f"The exact likelihood ratio would mix {count} configurations of the batches, more than "
            f"{MOST_CONFIGURATIONS}; use the matched filter, gradient=0, or a smaller dataset."
        )


class CutScheme(Scheme):
    """Consecutive blocks of an order; the last one, if it is shorter, is dropped or kept."""

    equal_batches = True

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """What becomes of the records that do not fill a batch is a choice somebody made."""
        if run.sizes is None:
            return ()
        batches, rest = divmod(run.sizes[0], run.sizes[1])
        if not rest:
            return ()
        if run.last_batch == "keep":
            return (f"An epoch is read as {batches:,} full batches and a last one of {rest:,}.",)
        left, them = ("the record left over is", "it") if rest == 1 else (f"the {rest:,} records left over are", "them")
        return (
            f"An epoch is read as {batches:,} full batches; {left} dropped from it. A loader that keeps {them} as a "
            "short last batch (PyTorch's default) is last_batch = 'keep'.",
        )
