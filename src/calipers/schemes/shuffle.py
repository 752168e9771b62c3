"""Shuffled batches: a random order of the records, cut into equal batches.

**Isolated view.** An adversary who sees nothing but the differing record's noisy contribution faces a hidden record
(van Dijk and Ertan; Ertan and van Dijk).

**Worst case.** With batches of fixed size the other records reveal where the differing one is. Above, two proofs
compete: fixed batches (shuffling never leaks more, Chua et al. 2024, Theorem 4.1: given the order batches are fixed,
and divergences are jointly convex), and the law of an epoch, `calipers.laws.allocated.shuffled` where records are
left over, `calipers.laws.allocated.displaced` where none is. Below, all other gradients are -u and the record's is u:
one dataset throughout (`calipers.laws.allocated.shuffle`), which Conjecture 3.2 of Chua et al. held to be the worst
case, or the record that changes sides (`calipers.laws.allocated.switching`), which shows that it is not.

**One order for all epochs.** A record then sits in the same batch in every epoch. An attack that repeats itself sees
one epoch at noise sigma / sqrt(E); above, fixed batches are all that is proven.

**A short last batch** is not looked at by the attack: a record that sits in it counts as left out. In the isolated view
an epoch that keeps one hides a record less well than as many equal batches do, and at least as well as its full ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from calipers.domains import Domain
from calipers.laws.allocated.average import SIGMA, AllocationPair
from calipers.laws.allocated.displaced import DisplacedEpoch
from calipers.laws.allocated.shuffle import ShuffleAttack
from calipers.laws.allocated.shuffled import ShuffledEpoch
from calipers.laws.allocated.switching import SwitchingAttack
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.schemes.dealt import (
    CutScheme,
    at_places,
    dealt_unit,
    epochs_of,
    hidden,
    hidden_alone,
    hidden_noise,
    refuse_many,
)
from calipers.schemes.exposure import Attack, Exposure, Proof, known_release, known_times
from calipers.schemes.scheme import Configurations, Sums
from calipers.schemes.shuffle_words import attack_scene, leaving_some_over, shuffled_notes

FIXED, SHUFFLED, DISPLACED = "chua2024:thm4.1", "calipers:shuffled", "calipers:displaced"
NEVER_MORE = "Shuffling never leaks more than fixed batches (Chua et al. 2024, Theorem 4.1), which show the record in"
_LEFT_OVER = (
    "Every epoch leaves at least one record over, so the record that makes room for this one goes where nobody looks, "
    "and where this one is shows in one batch sum only: an epoch is dominated by a sum of independent worst terms, and "
    "by a recursion over what an adversary can choose from round to round; the smaller one counts."
)
_NOTHING_LEFT_OVER = (
    "Every record is used in every epoch, so the record that makes room for this one is seen once, in the first batch, "
    "which hardly says who it was: an epoch is dominated by a sum of worst terms with nearly equal weights, and by "
    "fixed batches for the small share of weight they do not cover."
)


class ShuffleScheme(CutScheme):
    """A new order every epoch, or one for all."""

    name = "shuffle"
    summary = "equal batches"
    revealed = "deterministic"
    drawn_by = "Shuffle"

    def batches(self, run: RunFields) -> str:
        """In words."""
        return "shuffled batches of fixed size ({per_epoch} per epoch)"

    def exposure(self, run: RunFields) -> Exposure:
        """Even a single batch hides a record if it may be left out of it."""
        epochs = epochs_of(run)
        if run.steps_per_epoch == 1 and run.kept_share == 1:
            return known_times(run, epochs)
        hidden_well = run.view == "isolated" and run.reshuffle == "every-epoch"
        full = _full_batches(run)
        if hidden_well and full.steps_per_epoch == run.steps_per_epoch:
            return hidden_alone(run, run.kept_share)
        proofs: tuple[Proof, ...] = (known_release(run, epochs, FIXED, NEVER_MORE),)
        if hidden_well and full.steps_per_epoch > 1:
            # Places of weights B/N and, in the short batch, less: majorized by the full batches with equal weights.
            replaced = run.adjacency == "substitute"
            proofs += hidden(run.noise_multiplier, full.steps_per_epoch, 1.0, epochs, replaced).proofs
        return Exposure((*proofs, *_epoch(run, epochs)), _attack(run, epochs))

    def dealt(self, run: RunFields) -> tuple[DealtUnit, int] | None:
        """Into places of a random order."""
        return None if run.sizes is None else dealt_unit(run, *run.sizes)

    def noise_range(self, run: RunFields) -> Domain:
        """Of a hidden record."""
        return hidden_noise(run)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What the order hides."""
        return shuffled_notes(run)

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Leave a record over, or throw every record by itself."""
        if run.view != "worst-case":
            return ()
        thrown: tuple[str, dict[str, object]] = (
            "Draw every record into a random batch of the epoch independently of the others (sampler = "
            "'balls-and-bins'): as many steps over as much data, only the batch sizes vary.",
            {"sampler": "balls-and-bins"},
        )
        return (*_one_left_over(run), thrown)

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """Sizes; a sample rate 1/M is read as equal batches of a size that nobody said."""
        size, batch = run.sizes or (run.steps_per_epoch, 1)
        own = {"last_batch": run.last_batch, "order": run.reshuffle, "view": run.view, "epochs": epochs_of(run)}
        return {"dataset_size": size, "batch_size": batch, **own}

    def draw(self, sums: Sums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """The place in a random permutation of all records; the last ones are left out of the epoch."""
        return at_places(rng.integers(sums.others + 1, size=shape[:2]) // sums.batch_size, sums.rounds)

    def configurations(self, sums: Sums, member: bool) -> Configurations:
        """Where the record is, or that it is left out."""
        rounds, size = sums.rounds, sums.others + 1
        left_out = size - rounds * sums.batch_size
        refuse_many(rounds + 1)
        included = np.eye(rounds)
        log_weight = np.full(rounds, math.log(sums.batch_size / size))
        if left_out > 0:
            included = np.vstack([included, np.zeros(rounds)])
            log_weight = np.append(log_weight, math.log(left_out / size))
        return log_weight, sums.batch_size - included, included


def _epoch(run: RunFields, epochs: int) -> tuple[Proof, ...]:
    """The theorem about one shuffled epoch; nothing where fixed batches are all that is proven."""
    if run.sizes is None or run.reshuffle == "once" or run.view == "isolated":
        return ()
    noise, rounds, replaced = run.noise_multiplier, run.steps_per_epoch, run.adjacency == "substitute"
    if run.left_over:
        return (Proof(ShuffledEpoch(noise, rounds, run.kept_share, replaced), epochs, SHUFFLED, _LEFT_OVER),)
    size, batch = run.sizes
    displaced = DisplacedEpoch(noise, rounds, 1.0, replaced, batch, size)
    return (Proof(displaced, epochs, DISPLACED, _NOTHING_LEFT_OVER),)


def _full_batches(run: RunFields) -> RunFields:
    """The run without the short last batch, if it keeps one."""
    if run.last_batch == "drop":
        return run
    # By epochs: a number of steps counts the short batches, too.
    return dataclasses.replace(run, last_batch="drop", steps=None, epochs=run.total_epochs)


def _attack(run: RunFields, epochs: int) -> Attack:
    """What an attack sees of one order, and how often an order is drawn."""
    full = _full_batches(run)
    noise, rounds, share = run.noise_multiplier, full.steps_per_epoch, full.kept_share
    once, replaced = run.reshuffle == "once", run.adjacency == "substitute"
    if once:
        # More noise than there is can only weaken the attack.
        noise, epochs = max(noise / math.sqrt(epochs), 2.0 * SIGMA.low), 1
    statement, scene = "calipers:shuffle-sum-test", attack_scene(run)
    if run.view == "isolated":
        return Attack(AllocationPair(noise, rounds, share), epochs, statement, scene, one_sided=True)
    rival = None if once else SwitchingAttack(noise, rounds, share, substituted=replaced)
    if replaced:
        # With the record every batch sums to -B along u but one, at a random place, which sums to -B + 2.
        return Attack(AllocationPair(0.5 * noise, rounds, share), epochs, statement, scene, True, rival)
    return Attack(ShuffleAttack(noise, rounds, share), epochs, statement, scene, True, rival)


def _one_left_over(run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
    """Leave a record over in every epoch, where all of them are used: then far more is proven."""
    if run.reshuffle == "once" or run.sizes is None or run.left_over:
        return ()
    size, batch = run.sizes
    if size % batch:
        text, smaller = "Drop the last, shorter batch (drop_last=True)", batch
    else:
        found = leaving_some_over(size, batch)
        if found is None:
            return ()
        text, smaller = f"Use batches of {found} records and drop what does not fill one", found
    why = "every epoch then leaves a record over, and the one that makes room for another is seen nowhere"
    return ((f"{text}: {why}.", {"last_batch": "drop", "batch_size": smaller, "epochs": epochs_of(run)}),)


SCHEME = ShuffleScheme()
