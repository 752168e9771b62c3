"""Poisson batches with a largest size: what exceeds it is dropped at random.

Compiled training wants batches of at most B records: every record joins with probability q, and if more than B have
joined, B of them are kept, uniformly at random. The differing unit has g records (g = 1: one record); m of the n other
records join.

**Proof.** Reveal how many of the others are used without the unit, min(m, B), and which (given the number, a uniformly
random choice, whatever m is). With the unit, k of its records are kept (`calipers.pld.subsampling.truncation`) and with
f = (B - m)+ free places (k - f)+ of the others have gone, so the sum moves by at most k + (k - f)+, in units of the
clipping norm. The number min(m, B) has the same PLD on both datasets, and which of the others go depends on nothing. So
the step is dominated by a mixture, its index f revealed, of pairs with a drawn shift
(`calipers.pld.core.drawn_shift`). Where f = 0 the number m itself need not be revealed, because a random choice of B
out of a random m is a random choice of B: the probabilities of k are averages over m >= B. For one record: with
probability 1 - tau the Poisson pair of rate q, with probability tau = P(m >= B) the pair of rate
q' = q B E[1/(m + 1) | m >= B] and *twice* the sensitivity, as under batches of fixed size, which a truncated batch is.

**Fewer parts.** A drawn shift that is stochastically larger dominates. So neighboring cases f may be put together,
all of them with the PLD whose tails P(length >= t) are the largest of theirs at every t; that is done where it adds
next to nothing to the tails of the whole mixture (`_ADDED`).

**Zeroed out or replaced, one record.** The pairs of `calipers.pld.subsampling.fixed_size` at rate q' where the batch is
full, the Poisson pairs where it is not.

**Zeroed out or replaced, several records.** The unit is there on both datasets, and k has one PLD on both. Where
there is room for all that join, nobody is displaced: the Poisson pairs of the unit. Elsewhere k of the unit's records
displace at most k others, as if k places of a batch of fixed size went to the unit: the pairs of
`calipers.pld.subsampling.counted`. Their proof allows moves that are drawn, given the count, as long as they keep the
bounds; so a count that is stochastically larger dominates, and the largest tails of all k given f serve all these f
at once.

**Attacks.** All others zero: truncation then only makes the record rarer. All others -v u, the record u: where batches
are truncated, it displaces one that opposes it, as the proof has it. All others at an angle to u, where batches are
truncated neither rarely nor always (`calipers.pld.subsampling.oblique`). The gap between both bounds is of the order of
tau.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from calipers.citations import implements
from calipers.domains import POSITIVE
from calipers.numerics.binomial import binomial_window
from calipers.numerics.types import FloatArray
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import RoundedPair, revealed
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair, DominatingPair
from calipers.pld.division.collinear import Components, mixture_pmf
from calipers.pld.subsampling.counted import CountedPair
from calipers.pld.subsampling.fixed_size import fixed_size_proof
from calipers.pld.subsampling.truncation import Truncation

_SPARE = 30.0
"""How far below e^log_tail the probability of what is left out lies."""
_FINEST, _DEPTH = 0.01, 40.0
_ADDED, _RARE = 3e-4, 1e-12
"""Cases are put together where the probability p of no length (or more) grows by more than this share. Of what is rarer
than `_RARE` a share is less of the epsilon that goes with it: 1 + log(_RARE/p) times as much is allowed."""
_UNSEEN = 1e-40
"""Lengths that are rarer than this may grow as they like: they decide nothing."""


class _Case(NamedTuple):
    """How much room there is, how likely, and P(the sum moves by t or more), t = 0, 1, ..., in clipping norms."""

    free: float
    probability: float
    tails: FloatArray


@lru_cache(maxsize=8)
def _cases(truncation: Truncation) -> tuple[_Case, ...]:
    """Full batches first, then those with ever more room, and last those with room for all."""
    rows = zip(truncation.free, truncation.probabilities, truncation.kept, strict=True)
    found = [_case(float(free), float(probability), kept) for free, probability, kept in rows]
    found.append(_case(math.inf, truncation.plain, truncation.joining))
    return tuple(case for case in found if case.probability > 0.0)


def _case(free: float, probability: float, kept: FloatArray) -> _Case:
    t = np.arange(2 * len(kept) - 1)
    # The sum moves by t or more if k + (k - f)+ >= t.
    least = np.where(t <= free, t, np.ceil(0.5 * (t + min(free, t[-1])))).astype(np.intp)
    return _Case(free, probability, _beyond(kept)[np.minimum(least, len(kept))])


def _beyond(chances: FloatArray) -> FloatArray:
    """P(k or more), k = 0 .. as many as there are."""
    return np.append(np.cumsum(chances[::-1])[::-1], 0.0)


def _mixed(cases: Sequence[_Case]) -> FloatArray:
    return np.asarray(np.sum([case.probability * case.tails for case in cases], axis=0))


def _added(more: FloatArray, less: FloatArray) -> float:
    """The largest share that any length's probability grows by, less for what is very rare."""
    seen = more > _UNSEEN
    more, less = more[seen], np.maximum(less[seen], 1e-300)
    return float(np.max((more - less) / less / (1.0 + np.maximum(0.0, np.log(_RARE / more)))))


def _together(cases: Sequence[_Case]) -> list[_Case]:
    """Neighboring cases put together, each group with the largest tails in it."""
    whole = _mixed(cases)
    found, mixed = [cases[-1]], _mixed(cases[-1:])
    for case in cases[-2::-1]:
        wider = _Case(case.free, case.probability + found[0].probability, np.maximum(case.tails, found[0].tails))
        together = mixed + case.probability * case.tails
        if _added(whole + wider.probability * wider.tails - together, whole) <= _ADDED:
            found[0], mixed = wider, together
        else:
            found.insert(0, case)
            mixed = case.probability * case.tails
    return found


def _shifts(tails: FloatArray, shift: float, rounding: float) -> Shifts:
    """The PLD of these tails, rounded up: a larger one dominates."""
    # A difference of two floats is exact, or at least half of the larger one: no mass has more than a rounding.
    larger = np.minimum(1.0, tails * (1.0 + rounding + 1e-15 * len(tails)))
    larger[0] = 1.0
    chances = -np.diff(np.append(larger, 0.0))
    return Shifts.of((shift * np.arange(len(tails))).tolist(), chances.tolist())


@implements("calipers:truncated")
def truncated_proof(truncation: Truncation, shift: float, adjacency: str) -> RoundedPair | RoomOrCounted:
    """What dominates one step; `shift` is 1/sigma."""
    shift = POSITIVE.check("shift", shift)
    if adjacency == "add-remove":
        return _drawn(truncation, _together(_cases(truncation)), shift)
    if truncation.unit > 1:
        return RoomOrCounted(truncation, shift, adjacency)
    parts: list[tuple[Pair, float]] = [(_with_room(truncation, shift, adjacency), truncation.plain)]
    if truncation.truncated > 0.0:
        chance = min(1.0, float(truncation.kept[0, 1]) * (1.0 + truncation.rounding))  # a larger rate dominates
        parts.append((fixed_size_proof(chance, shift, adjacency), truncation.truncated))
    return revealed(_name(truncation, adjacency), parts, truncation.rounding)


def _name(truncation: Truncation, adjacency: str) -> str:
    return f"Poisson, q = {truncation.rate:g}, at most {truncation.largest}, {adjacency}"


def _with_room(truncation: Truncation, shift: float, adjacency: str) -> Pair:
    """All that join are there, and nobody is displaced."""
    shifts = _shifts(_beyond(truncation.joining)[:-1], shift, truncation.rounding)
    return drawn_shift(shifts, opposite=adjacency == "substitute")


def _drawn(truncation: Truncation, cases: Sequence[_Case], shift: float) -> RoundedPair:
    # Probabilities that add up to a rounding above one are one.
    parts = [(_shifts(case.tails, shift, truncation.rounding), min(1.0, case.probability)) for case in cases]
    drawn = [(drawn_shift(shifts), chance) for shifts, chance in parts]
    return revealed(_name(truncation, "add-remove"), drawn, truncation.rounding)


@implements("calipers:truncated")
@dataclass(frozen=True)
class RoomOrCounted(DominatingPair):
    """A unit of several records, zeroed out or replaced: there is room for all that join, or each that is kept may
    displace another; UPPER only."""

    truncation: Truncation
    shift: float
    adjacency: str

    @property
    def name(self) -> str:
        """What it is called."""
        return _name(self.truncation, self.adjacency)

    @property
    def symmetric(self) -> bool:
        """Replacing is the same in both orders."""
        return self.adjacency == "substitute"

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.UPPER."""
        return self.upper_for(resolution, log_tail, None)

    def upper_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """Which of the two it is, is revealed; that more join than there is room for, where that is rare."""
        room, counted, chances, more = _room_or_counted(self, _DEPTH * math.floor(log_tail / _DEPTH))
        pmfs = [room.upper_for(resolution, log_tail, tilt)]
        pmfs += [] if counted is None else [counted.upper(resolution, log_tail)]
        total = math.fsum(chances)
        mixed = PrivacyLossPmf.mixture(pmfs, [chance / total for chance in chances])
        return replace(
            mixed,
            mass_error=mixed.mass_error + self.truncation.rounding + abs(total - 1.0),
            p_inf=min(1.0, mixed.p_inf + more),
            q_zero=min(1.0, mixed.q_zero + more),
        )


@lru_cache(maxsize=16)
def _room_or_counted(
    proof: RoomOrCounted, log_tail: float
) -> tuple[Pair, CountedPair | None, tuple[float, ...], float]:
    """With room and without, the chances of both, and what is added for joining in spite of too little room."""
    cut = proof.truncation
    beyond = _beyond(cut.joining)
    # With so many free places more join with at most this probability, and then the datasets count as distinguished.
    enough = int(np.count_nonzero(beyond[1:] > math.exp(log_tail - _SPARE)))
    few = cut.free < enough
    more = 2.0 * float(beyond[enough + 1]) if enough + 1 < len(beyond) and enough <= cut.largest else 0.0
    room = _with_room(cut, proof.shift, proof.adjacency)
    if not np.any(few):
        return room, None, (1.0,), more
    touched = float(np.sum(cut.probabilities[few]))
    with_room = cut.plain + float(np.sum(cut.probabilities[~few]))
    counts = np.max([_beyond(kept) for kept in cut.kept[few]], axis=0)[:-1]
    counted = CountedPair(_shifts(counts, proof.shift, cut.rounding), proof.adjacency)
    return room, counted, (with_room, touched), more


@dataclass(frozen=True)
class TruncatedAttack(AttainedPair):
    """All others v u, v = -1, 0 or 1, the unit's records u, in one step; LOWER only.

    `instead`: the gradient along u that a record of the unit has on the other dataset (0 if it is zeroed out, -1 if it
    is replaced); None if the unit is not there at all.
    """

    truncation: Truncation
    shift: float
    direction: int = 0
    instead: int | None = None

    @property
    def slope(self) -> float:
        """Of one gradient."""
        return self.shift

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.LOWER: what the sum along u shows, revealed by the cell of a grid."""
        return _attack_pmf(self, max(_FINEST, resolution), log_tail)

    def mixtures(self, log_outside: float) -> tuple[Components, Components, bool]:
        """What the other dataset and the one with the unit show along u, and whether all sizes are there."""
        weights, used, displaced, own, complete = self.outcomes(log_outside)
        others = self.direction * (used - displaced)
        absent = self.direction * used if self.instead is None else others + self.instead * own
        return self._components(weights, absent), self._components(weights, others + own), complete

    def outcomes(self, log_outside: float) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, bool]:
        """Probabilities, a row for each number of others used and a column for each number of the unit's records kept;
        both numbers, how many others are displaced, and whether all sizes are there."""
        cut = self.truncation
        window = binomial_window(cut.others, cut.rate, log_outside)
        room = window.values < (cut.largest - cut.free[-1] if len(cut.free) else math.inf)
        own, free = np.arange(float(len(cut.joining))), cut.free[:, None]
        weights = np.vstack((np.outer(window.weights[room], cut.joining), cut.probabilities[:, None] * cut.kept))
        used = np.concatenate((window.values[room], cut.largest - cut.free))[:, None]
        displaced = np.vstack((np.zeros((np.count_nonzero(room), len(own))), np.maximum(own - free, 0.0)))
        return weights, used, displaced, own, bool(window.values[0] == 0.0)

    def _components(self, weights: FloatArray, means: FloatArray) -> Components:
        """Sums are whole numbers of gradients."""
        places = np.rint(np.broadcast_to(means, weights.shape)).astype(np.intp)
        first = int(np.min(places))
        total = np.bincount((places - first).ravel(), weights=weights.ravel()).astype(np.float64)
        return Components(total, self.shift * np.arange(first, first + len(total), dtype=np.float64), 1.0)

    def alone(self) -> Pair:
        """The pair where all others are zero: only how many of the unit's records are kept shows."""
        total = self.truncation.plain * self.truncation.joining + self.truncation.probabilities @ self.truncation.kept
        kept = float(np.sum(total))
        rounding = self.truncation.rounding + abs(kept - 1.0)
        chances = [float(chance) for chance in total / kept]
        shifts = Shifts.of([self.shift * k for k in range(len(chances))], chances, rounding)
        return drawn_shift(shifts, opposite=self.instead == -1)


@lru_cache(maxsize=16)
def _attack_pmf(attack: TruncatedAttack, resolution: float, log_tail: float) -> PrivacyLossPmf:
    return mixture_pmf(attack.mixtures, resolution, log_tail, attack.truncation.rounding)
