"""A unit whose records have equal gradients, allocated to the batches of an epoch: what every batch shows, weighed.

Of the g records of the unit batch b holds k_b. All of them have gradient u, and all others 0, or -u where each of the
unit's records has the place of another one (batches of fixed size); so, relative to a batch without the unit, the sums
of an epoch are independent given the allocation, along u and in units of the noise,

    N(present k_b, 1)   against   N(absent k_b, 1).

An allocation has a probability proportional to the product over all batches of c(k_b), C(B, k) in a random order, 1/k!
in bins, and of the same factor for what is not seen (a remainder, batches that did not come). So with

    F_k(outcome) = sum over allocations of k records to some batches, of the weight times the probability of `outcome`,

both datasets' F of two groups of batches together are sums over i + j = k of products F_i F_j, all of them positive.

**Outcomes.** A batch shows the cell of a grid that its sum falls into. A group of batches shows a place on a lattice:
its score, a sum of log ratios of single batches (whose k is taken to be binomial), rounded. Whatever the scores are,
this is something that anybody can compute from what is released: what it shows, it shows in earnest. The two halves of
an epoch are put together as pairs of outcomes, so that two batches are weighed by their exact likelihood ratio. Pairs
of about equal likelihood ratio count as one outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from calipers.numerics.binomial import log_binomial
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair
from calipers.pld.division.collinear import RATIO_ERROR
from calipers.pld.division.folded import log_wide_interval_mass
from calipers.pld.division.realized import merged_cells

_FINEST, _MOST_CELLS = 0.05, 600
"""The width of cells in deviations of the noise, at least, and how many there are at most."""
_PLACES, _LARGE, _RARE = (1024, 512), 8, 1e-6
"""Of a lattice of scores, at most, and for units of so many records; and what, times e^log_tail, a group of batches may
have at an end that is one place."""
_DEEP, _KNOWN = 40.0, 600.0
"""How far below e^log_tail the noise is cut off, and -log of the least probability that is known: products of numbers
far below it are no numbers any more."""
_UNIT_ROUNDOFF, _CELL_ERROR = 2.3e-16, 1e-12
"""Of a number, and of the logarithm of the mass of a cell: a share of the mass."""


@dataclass(frozen=True)
class EqualUnit(AttainedPair):
    """One epoch; LOWER only.

    Args:
        records: g.
        batches: How many batches are seen.
        places: c(k): the size of a batch whose places are drawn, or None for bins.
        unseen: c(k) of what is not seen: its places, or its share of all bins (0 to 1).
        present: By how much a record moves the sum of its batch, in units of the noise, if it is there.
        absent: The same on the other dataset.
    """

    records: int
    batches: int
    places: int | None
    unseen: float
    present: float
    absent: float

    @property
    def slope(self) -> float:
        """Of the record's gradient against what is instead."""
        return self.present - self.absent

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.LOWER: which of some thousand outcomes the pair of both halves of the epoch is."""
        return _pmf(self, max(_FINEST, resolution), log_tail)

    @property
    def total(self) -> float:
        """All places, of those of a batch and of what is not seen; or the share of all bins."""
        return 1.0 if self.places is None else self.places * self.batches + self.unseen

    @property
    def size(self) -> float:
        """Of a batch, in places; or its share of all bins."""
        return (1.0 - self.unseen) / self.batches if self.places is None else self.places

    def log_ways(self, places: float) -> FloatArray:
        """log of c(k), k = 0 ... g, for so many places; each record counts 1/total, which no allocation changes."""
        before = np.arange(float(self.records))
        left = np.full_like(before, places) if self.places is None else np.maximum(places - before, 0.0)
        with np.errstate(divide="ignore"):
            return np.append(0.0, np.cumsum(np.log(left / (self.total * (before + 1.0)))))

    def chances(self, places: float) -> FloatArray:
        """The probability that so many places hold k records, over c(k): c(g - k) of all others, over c(g) of all."""
        return np.asarray(np.exp(self.log_ways(self.total - places)[::-1] - self.log_ways(self.total)[-1]))


class _SumsOfBatches(NamedTuple):
    """Some batches: F_k, a layer for each dataset, a row for each k and a column for each place of a lattice; the first
    place, and the level of the lattice, which is coarser by 2^level than that of one batch."""

    masses: FloatArray
    first: int
    level: int = 0

    def at(self, level: int) -> _SumsOfBatches:
        """On a coarser lattice: pairs of places are one."""
        found = self
        while found.level < level:
            odd = found.first % 2
            padded = np.pad(found.masses, ((0, 0), (0, 0), (odd, (odd + found.masses.shape[2]) % 2)))
            found = _SumsOfBatches(padded[:, :, ::2] + padded[:, :, 1::2], found.first // 2, found.level + 1)
        return found


def _batch(attack: EqualUnit, resolution: float, radius: float) -> tuple[FloatArray, FloatArray, float]:
    """F_k of one batch by the cell of its sum, the score of every cell, and the relative error of F_k."""
    k = np.arange(attack.records + 1.0)
    ends = [0.0, attack.records * attack.present, attack.records * attack.absent]
    count = min(_MOST_CELLS, math.ceil((max(ends) - min(ends) + 2.0 * radius) / resolution))
    edges = np.linspace(min(ends) - radius, max(ends) + radius, count + 1)
    means = np.array([attack.present, attack.absent])[:, None] * k
    logs = log_wide_interval_mass(edges[:-1] - means[:, :, None], np.diff(edges))
    usual = log_binomial(k, attack.records, min(attack.size / attack.total, 0.5))
    weighed = np.logaddexp.reduce(usual[:, None] + logs, axis=1)
    ways = attack.log_ways(attack.size)
    # Ends of cells are rounded, which moves masses as far as 40 deviations out; those beyond are no numbers.
    moved = 4.0 * _UNIT_ROUNDOFF * float(np.max(np.abs(edges))) * (40.0 + count / float(edges[-1] - edges[0]))
    return np.exp(ways[:, None] + logs), weighed[0] - weighed[1], moved + _CELL_ERROR


def _usual(masses: FloatArray, chances: FloatArray, least: float) -> tuple[int, int]:
    """Between which places a group is but for `least` at either end, on both datasets; `chances`: the probability that
    it holds k records, over the weight of allocations of k to it."""
    mass = np.sum(chances[:, None] * masses, axis=(0, 1))
    start = int(np.searchsorted(np.cumsum(mass), least))
    return start, max(start + 1, len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), least)))


def _joined(first: _SumsOfBatches, second: _SumsOfBatches) -> _SumsOfBatches:
    """Two groups as one, their scores added."""
    level = max(first.level, second.level)
    first, second = first.at(level), second.at(level)
    shape = first.masses.shape
    total = np.zeros((*shape[:2], shape[2] + second.masses.shape[2] - 1))
    for dataset in range(2):
        for i in range(shape[1]):
            for j in range(shape[1] - i):
                total[dataset, i + j] += np.convolve(first.masses[dataset, i], second.masses[dataset, j])
    return _SumsOfBatches(total, first.first + second.first, level)


def _cut(group: _SumsOfBatches, start: int, end: int, places: int) -> _SumsOfBatches:
    """On a lattice of about so many places at most, and what is before `start` and from `end` on at its ends."""
    total = group.masses
    kept = total[:, :, start:end]
    kept[:, :, 0] += total[:, :, :start].sum(axis=2)
    kept[:, :, -1] += total[:, :, end:].sum(axis=2)
    return _SumsOfBatches(kept, group.first + start, group.level).at(
        group.level + max(0, math.ceil(math.log2((end - start) / places)))
    )


def _halves(attack: EqualUnit, resolution: float, log_tail: float) -> tuple[FloatArray, FloatArray, float]:
    """F_k of both halves of the epoch, and their relative error."""
    cells, scores, moved = _batch(attack, resolution, math.sqrt(2.0 * (_DEEP - log_tail)))
    if attack.batches <= 2:
        nothing = np.zeros((2, attack.records + 1, 1))
        nothing[:, 0] = 1.0
        return cells, cells if attack.batches == 2 else nothing, 2.0 * moved
    places, least, size = _PLACES[attack.records >= _LARGE], math.exp(log_tail) * _RARE, attack.size
    order = np.argsort(scores, kind="stable")
    start, end = _usual(cells[:, :, order], attack.chances(size), least)
    low, high = float(scores[order[start]]), float(scores[order[end - 1]])
    width = max(high - low, 1e-9) * (1.0 + 1e-9) / places
    place = np.floor((np.clip(scores, low, high) - low) / width).astype(np.intp)
    groups = {1: _SumsOfBatches(cells @ (place[:, None] == np.arange(places)), round(low / width))}

    def group(count: int) -> _SumsOfBatches:
        if count not in groups:
            found = _joined(group(count // 2), group(count - count // 2))
            ends = _usual(found.masses, attack.chances(count * size), least)
            groups[count] = _cut(found, *ends, places)
        return groups[count]

    # Each product of two groups has the error of both, and that of sums over i + j = k and over all places.
    added = (1.0 + attack.records) * (places + _MOST_CELLS) * _UNIT_ROUNDOFF
    halves = group(attack.batches // 2), group(attack.batches - attack.batches // 2)
    return halves[0].masses, halves[1].masses, attack.batches * (moved + added)


@lru_cache(maxsize=16)
def _pmf(attack: EqualUnit, resolution: float, log_tail: float) -> PrivacyLossPmf:
    first, second, error = _halves(attack, resolution, log_tail)
    g, unseen = attack.records, np.exp(attack.log_ways(attack.unseen))
    # The weight of i records in the first half: those of the second half, and of what is not seen, are the others.
    rest = np.array([[[unseen[g - i - j] if i + j <= g else 0.0 for j in range(g + 1)] for i in range(g + 1)]])
    pairs = np.swapaxes(first, 1, 2) @ rest @ second
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(pairs.reshape(2, -1)) - attack.log_ways(attack.total)[-1]
    some = (np.maximum(log_p, log_q) > log_tail) & (np.minimum(log_p, log_q) > -_KNOWN)
    return PrivacyLossPmf.observed(*merged_cells(log_p[some], log_q[some]), error + _CELL_ERROR, RATIO_ERROR)
