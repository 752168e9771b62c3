"""What samplers share that deal every record out at most once per epoch, to a random one of M batches.

A record that nobody else gives away is hidden in the mean of M independent ratios: zeroed out, that pair is proven and
attained (`calipers.pld.allocation.average`); replaced, opposite gradients are (`calipers.pld.allocation.replaced`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from calipers.domains import Domain
from calipers.errors import UnsupportedError
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.allocation.average import SIGMA, AllocationPair
from calipers.pld.allocation.replaced import ReplacedPair
from calipers.pld.core.allocated_unit import AllocatedUnit
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.source import TwoSidedPair
from calipers.pld.subsampling.equal_unit import EqualUnit
from calipers.run_fields import RunFields
from calipers.samplers.analysis import Analysis, Attack, closed, known_release
from calipers.samplers.units import all_of

MOST_CONFIGURATIONS = 20_000
_FEW_RECORDS, _FEW_BATCHES, _LOW_NOISE = 16, 10_000, 150.0
"""Of a unit, and of an epoch: more are weighed only by their sum; and where all records together tell the datasets
apart so well (squares of shifts), the usual outcomes of one have no probability on the other that is a number."""


def epochs_of(run: RunFields) -> int:
    """How often a record takes part at most: once per epoch that was begun."""
    return run.begun_epochs


def whole_epochs_of(run: RunFields) -> int:
    """The number of epochs, or `UnsupportedError` where the run ends inside one."""
    if run.total_epochs is None:
        raise UnsupportedError(
            f"No certificate can be had yet for a run that ends inside an epoch of {run.steps_per_epoch} steps; "
            "measure it without one."
        )
    return run.total_epochs


_KEPT_NOISE, _ATTACKED_NOISE = (SIGMA.low, 0.145), (SIGMA.low, 0.18)
"""Least noise at which sums of a record that is kept in its batch, or replaced there, stay in the range of doubles; and
what attacks are given where there is less, since they take long at the least."""


def hidden_alone(run: RunFields, share: float) -> Analysis:
    """A record allocated to one of the epoch's batches with probability `share`, which nothing else gives away.

    Allocated once and for all, it sits in the same batch in every epoch: the product of that batch's ratios is the
    ratio of one release at noise sigma / sqrt(E), whatever adaptive gradients do (docs/theory/sampling.md,
    section 14).
    """
    noise, epochs = run.noise_multiplier, epochs_of(run)
    replaced = run.adjacency == "substitute"
    parts = [(rounds, share * rounds / run.steps_per_epoch, count) for rounds, count in run.epoch_parts]
    if run.reshuffle == "every-epoch" or epochs == 1:
        return hidden(noise, parts, replaced)
    once = [(run.steps_per_epoch, share, 1)]
    seen = noise / math.sqrt(epochs)
    if seen >= _KEPT_NOISE[replaced]:
        return hidden(seen, once, replaced)
    # More noise than there is can only weaken the attack; above, the batch counts as known.
    attack = hidden(_ATTACKED_NOISE[replaced], once, replaced).attack
    return Analysis((known_release(run, epochs),), dataclasses.replace(attack, one_sided=not replaced))


def hidden(noise: float, parts: Sequence[tuple[int, float, int]], replaced: bool) -> Analysis:
    """Independent epochs that each hide a record: (batches, probability of being in one of them, how many epochs)."""
    same = "The record's clipped gradient is the same unit vector in every step"
    kind: type[AllocationPair] | type[ReplacedPair] = ReplacedPair if replaced else AllocationPair
    (source, count), *others = [(kind(noise, rounds, share), epochs) for rounds, share, epochs in parts]
    if replaced:
        found = closed(
            source,
            count,
            "calipers:replaced-pair",
            "In each epoch the record is in one random batch, which stays secret, and replacing it is dominated by "
            "opposite gradients in every batch",
            f"{same}, its replacement's the opposite one, and all other gradients are zero, so an epoch attains "
            "exactly two mixtures of Gaussians that are shifted in one batch, in opposite directions.",
        )
    else:
        found = closed(
            source,
            count,
            "calipers:allocation",
            "In each epoch the record is in one random batch, which stays secret",
            f"{same} and all other gradients are zero, so the likelihood ratio of an epoch is the mean of those of its "
            "batches.",
        )
    return with_others(found, others)


def with_others(analysis: Analysis, others: Sequence[tuple[TwoSidedPair, int]]) -> Analysis:
    """The exposure, and further pairs of the same run that are proven and attained."""
    (proof,), attack = analysis.proofs, analysis.attack
    return Analysis((replace(proof, additional=tuple(others)),), replace(attack, additional=tuple(others)))


def allocated_unit(run: RunFields, places: int, batch_size: int | None = None) -> tuple[AllocatedUnit, int]:
    """The deal of every epoch, or that of all; `places`: bins, or records in batches of this size."""
    records, epochs, shift = run.records_per_unit, epochs_of(run), run.largest_shift
    records = records if batch_size is None else min(records, places)
    if run.reshuffle == "once":
        return AllocatedUnit(records, shift * math.sqrt(epochs), places, batch_size), 1
    return AllocatedUnit(records, shift, places, batch_size), epochs


def summed_unit(run: RunFields, used: Callable[[int], Shifts]) -> Attack:
    """All records of the unit have gradient u, all others zero, and the sums of an epoch are added up.

    However the records are allocated, the sum of the M noisy sums moves by as many as are used, at noise sqrt(M) sigma.

    Args:
        run: Zero-out or substitute; records that are removed from batches of fixed size displace others.
        used: How many records of the unit are used in an epoch that ends after so many steps, each a shift of 1.

    Returns:
        One pair for every epoch; one for all where the allocation is kept, which then moves the sum of all epochs.
    """
    parts, replaced = [*run.epoch_parts], run.adjacency == "substitute"
    kept = parts[0][1] if run.reshuffle == "once" else 1
    parts = [(parts[0][0], 1)] if run.reshuffle == "once" else parts
    factors = []
    for steps, count in parts:
        scale, lengths = math.sqrt(kept / steps) / run.noise_multiplier, used(steps)
        shifts = dataclasses.replace(lengths, lengths=tuple(scale * length for length in lengths.lengths))
        factors.append((drawn_shift(shifts, opposite=replaced), count))
    instead = ", -u once replaced," if replaced else ""
    over = "all epochs" if run.reshuffle == "once" else "an epoch"
    description = f"{all_of(run)}{instead} and all other gradients are zero. The score is the sum of {over} along u."
    (first, count), *others = factors
    return Attack(first, count, "calipers:drawn-shift", description, one_sided=True, additional=tuple(others))


def weighed_unit(
    run: RunFields, seen: Callable[[int], tuple[int, int | None, float]], others: int
) -> tuple[Attack, ...]:
    """All records of the unit have gradient u, all others 0 or -u, and the batches of an epoch are weighed by how many
    of the records each of them may hold.

    Args:
        run: Zero-out or substitute, as for `summed_unit`.
        seen: Of an epoch that ends after so many steps: batches, their size (None for bins), and what is not seen.
        others: 0; or -1, where every record of the unit has the place of another one.

    Returns:
        One pair for every epoch, of noise sigma / sqrt(E) where one order is kept; nothing where there are many records
        or batches.
    """
    parts, once = [*run.epoch_parts], run.reshuffle == "once"
    records = run.records_per_unit if run.sizes is None else min(run.records_per_unit, run.sizes[0])
    shift = (math.sqrt(parts[0][1]) if once else 1.0) / run.noise_multiplier
    if records > _FEW_RECORDS or parts[0][0] > _FEW_BATCHES or records * run.largest_shift * shift > _LOW_NOISE:
        return ()
    present, absent = 1 - others, (-1 if run.adjacency == "substitute" else 0) - others
    (first, count), *further = [
        (EqualUnit(records, *seen(steps), present * shift, absent * shift), times)
        for steps, times in ([(parts[0][0], 1)] if once else parts)
    ]
    instead = ", -u once replaced," if run.adjacency == "substitute" else ""
    description = (
        f"{all_of(run)}{instead} and all other gradients are {'-u' if others else 'zero'}. The score is a log "
        "likelihood ratio of the rounded batch sums along u, averaged over how many of these records each batch holds."
    )
    return (Attack(first, count, "calipers:dealt-units", description, one_sided=True, additional=tuple(further)),)


def hidden_noise(run: RunFields) -> Domain:
    """The noise at which such epochs can be measured. Where a sum moves by 2, attacks live at half of it."""
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
