"""Batches of fixed size when a record is really added or removed: another record takes or leaves its place."""

from __future__ import annotations

import math

from calipers.errors import InputError
from calipers.laws.allocated.average import AllocationPair
from calipers.run_fields import RunFields
from calipers.schemes.exposure import Attack, Exposure, Proof, closed, release

_REASON = "Each epoch hides in one of its batches that a record takes the place of another"
_SCENE = "The record's clipped gradient is one unit vector in every step and all others have the opposite one."


def _cut(run: RunFields) -> tuple[int, float, bool]:
    """(full batches M, participation, whether a last batch shows its size) of the worse neighbor."""
    if run.sizes is None:
        raise InputError("Adding or removing a record needs dataset_size and batch_size; or name zero-out.")
    (size, batch), kept = run.sizes, run.last_batch == "keep"
    rounds, rest = divmod(size - kept, batch)
    removing, adding = rest >= 1, rest + kept <= batch - 2 + kept
    if not (removing or adding):
        raise InputError("No neighbor has as many batches; name adjacency = 'zero-out'.")
    return rounds, rounds * batch / (size if removing else size + 1), kept


def added_or_removed(run: RunFields, epochs: int) -> Exposure:
    """The allocation pair at half the noise; a kept last batch shows one record more or less besides."""
    rounds, share, kept = _cut(run)
    noise, count = run.noise_multiplier, epochs
    if run.reshuffle == "once":
        noise, count = noise / math.sqrt(epochs), 1
    if not rounds:
        return closed(release(1.0 / noise), count, "calipers:allocation", _REASON, _SCENE)
    pair = AllocationPair(0.5 * noise, rounds, share)
    beside = ((release(1.0 / noise), count),) if kept else ()
    proof = Proof(pair, count, "calipers:allocation", _REASON, beside=beside)
    return Exposure((proof,), Attack(pair, count, "calipers:allocation", _SCENE, beside=beside))


def moved_up(run: RunFields, epochs: int) -> Exposure:
    """A fixed order: every later record moves up by one place."""
    rounds, _, kept = _cut(run)
    mu = math.sqrt(epochs * (4 * rounds + kept)) / run.noise_multiplier
    return closed(release(mu), 1, "dong2022:cor2.13", _REASON, _SCENE)
