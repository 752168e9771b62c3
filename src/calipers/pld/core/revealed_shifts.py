"""Drawn shifts with a revealed index: many mixtures of Gaussians against the same noise, cut together.

Of parts i with probabilities p_i, each a pair sum over t of w_it N(t s, 1) against N(0, 1), an index that is revealed
makes one pair (`calipers.pld.core.part_algebra`). All parts are seen through the same z with the same PLD under Q, and
differ by weights alone: with the same cells for all of them their sums are one product of matrices at each place
(`calipers.pld.core.progression`), and the Q-masses of the points are the same.

**One table for all tilts.** The atoms of all parts, in cells that suit several tilts, are computed once for a depth;
every PLD with wide cells is that table with fewer nodes (`calipers.pld.core.thinning`), placed for its tilt. Where
cells have to be finer than the table's, the parts that matter at that tilt are cut anew, and the rare ones stay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from calipers.bracket import Side
from calipers.domains import POSITIVE_PROBABILITY
from calipers.errors import CertificationError
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.core.discretize import CELL_ERROR, Cells, cells_between, widest_cells
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.pair import Ends, scaled, with_tails
from calipers.pld.core.part_algebra import RoundedPair, revealed
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf
from calipers.pld.core.progression import log_sums_together, splits_together, together_error
from calipers.pld.core.thinning import chosen_nodes, spaced_nodes, thinned

_ATOMS, _POINTS = 40_000, 6_000_000
"""Of a table, and of parts that are cut anew."""
_FINE, _TILTS = 0.01, (0.0, 0.25, 0.5, 0.75, 1.0, 1.02)
"""Cells of a table, where it may have so many: in deviations of log L, under these tilts."""
_RULES = (4, 6, 12, 24)
_ENOUGH, _RARE, _NEW, _THIN = 0.6, 0.2, 0.6, 0.1
"""Shares of the mean square width that is asked for: of a table that is fine enough, or of the rare parts in it and of
the parts cut anew; and of nodes."""
_FINEST = 1e-3
"""Of widths that are asked for: such cells add no more than some 1e-4 of it to an epsilon of any size."""
_NARROWER, _USUAL = 0.65, 20
"""Of the mean square width that is asked for, with as many parts as is usual: cells that masses want narrower than that
would be finer too."""
_COARSEST, _FEWEST = 0.08, 6000
"""Cells of a table and nodes of a PLD, whatever the tilt: curves are read in other places too."""
_DEPTH = 30.0
"""Tables are as deep as multiples of this."""
_PILOT = 3000
"""Nodes of PLDs that are not placed for a tilt, by which saddle points are found."""
_FINELY, _EVEN = 0.01, 60_000
"""Cells of equal width that are as narrow as this are cut as they are asked for, up to so many."""
_ROUGH = 0.25
"""Places at which it is seen where cells are needed."""


@dataclass(frozen=True, eq=False)
class RevealedShifts(RoundedPair):
    """A revealed mixture of drawn shifts of one noise, whose parts are `smooth` too."""

    shifts: tuple[Shifts, ...] = ()
    chances: tuple[float, ...] = ()
    unit: float = 1.0

    @cached_property
    def lengths(self) -> FloatArray:
        """All multiples of the unit, 0 first."""
        return self.unit * np.arange(1.0 + max(round(shifts.lengths[-1] / self.unit) for shifts in self.shifts))

    @cached_property
    def log_weights(self) -> FloatArray:
        """Logs of the weights of all lengths, a row for each part."""
        found = np.zeros((len(self.shifts), len(self.lengths)))
        for row, shifts in zip(found, self.shifts, strict=True):
            row[np.rint(np.array(shifts.lengths) / self.unit).astype(np.intp)] = shifts.weights
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(found))

    @cached_property
    def log_chances(self) -> FloatArray:
        """Logs of the probabilities of the parts."""
        return np.asarray(np.log(np.array(self.chances)))

    def log_ratios(self, rows: IntArray, z: FloatArray) -> FloatArray:
        """log L of these parts at increasing places."""
        return log_sums_together(self.log_weights[rows], self.unit, z)

    def growth(self, low: float, high: float, reach: FloatArray) -> FloatArray:
        """Of the densities of all parts, as for one (`calipers.pld.core.gaussian_part`)."""
        slope = max(abs(high), abs(low - float(self.lengths[-1])))
        return slope * reach + reach * reach

    def steepest(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """At least |d log density/dz| of all parts between these places: E[m | z] - z, and the mean grows with z."""
        first, last = (np.min(self._means(low), axis=0), np.max(self._means(high), axis=0))
        steep = np.maximum(np.abs(first - high), np.abs(last - low))
        return np.asarray(np.maximum(steep, np.maximum(np.abs(low), np.abs(high))) * (1.0 + 1e-9) + 1e-9)

    def _means(self, z: FloatArray) -> FloatArray:
        """The mean of the lengths in every part, weighted by what each contributes at z."""
        logs = self.log_weights[:, None, :] + self.lengths * (z[:, None] - 0.5 * self.lengths)
        shares = np.exp(logs - logs.max(axis=2, keepdims=True))
        return np.asarray((shares @ self.lengths) / shares.sum(axis=2))

    def upper_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """The table of this depth with fewer nodes, or with finer cells where they matter."""
        POSITIVE_PROBABILITY.check("resolution", resolution)
        # What is asked for one after the other is of about one depth, and a deeper table serves as well.
        log_tail = log_tail if log_tail > -_DEPTH else _DEPTH * math.floor(log_tail / _DEPTH)
        table = _table(self, log_tail)
        if tilt is None:
            return self._with_rounding(table.even(self, resolution))
        # The fewer parts there are, the less finer cells cost.
        target = _NARROWER * min(1.0, len(self.shifts) / _USUAL) * max(_FINEST, resolution) ** 2
        atoms = table.atoms
        weights = atoms.tilted(tilt)
        own = np.bincount(atoms.parts, weights * table.squares, minlength=len(self.shifts))
        if float(np.sum(own)) > _ENOUGH * target:
            order = np.argsort(own)
            finer = np.sort(order[np.cumsum(own[order]) > _RARE * target])
            density = table.rough.density(finer, _NEW * target, tilt)
            atoms = atoms.replaced(finer, _cut(self, finer, table.rough.cells(density, _POINTS / len(finer)), log_tail))
            weights = atoms.tilted(tilt)
        return self._with_rounding(table.pmf(atoms, chosen_nodes(atoms.ratio, weights, _THIN * target, _FEWEST)))


class _Atoms(NamedTuple):
    """Log ratios, increasing, with the logs of Q-masses and the part of each; and what each part has beyond them."""

    ratio: FloatArray
    log_q: FloatArray
    parts: IntArray
    p_inf: FloatArray
    q_zero: FloatArray

    @classmethod
    def of(cls, pmfs: Sequence[PrivacyLossPmf]) -> _Atoms:
        """Of one PLD for every part."""
        none = np.zeros(0)
        empty = cls(none, none, np.zeros(0, dtype=np.intp), np.zeros(len(pmfs)), np.zeros(len(pmfs)))
        return empty.replaced(np.arange(len(pmfs)), pmfs)

    def replaced(self, rows: IntArray, pmfs: Sequence[PrivacyLossPmf]) -> _Atoms:
        """With other PLDs for some parts."""
        rest = np.isin(self.parts, rows, invert=True)
        ratio = np.concatenate((self.ratio[rest], *(pmf.log_ratio for pmf in pmfs)))
        log_q = np.concatenate((self.log_q[rest], *(pmf.log_q for pmf in pmfs)))
        parts = np.concatenate((self.parts[rest], np.repeat(rows, [pmf.size for pmf in pmfs])))
        p_inf, q_zero = self.p_inf.copy(), self.q_zero.copy()
        p_inf[rows], q_zero[rows] = [pmf.p_inf for pmf in pmfs], [pmf.q_zero for pmf in pmfs]
        order = np.argsort(ratio, kind="stable")
        return _Atoms(ratio[order], log_q[order], parts[order], p_inf, q_zero)

    def tilted(self, tilt: float) -> FloatArray:
        """Weights of atoms tilted by L^tilt, over the variance of log L in their part."""
        logs = self.log_q + tilt * self.ratio
        weights = np.exp(logs - float(logs.max()))
        weights /= float(weights.sum())
        shares = np.maximum(np.bincount(self.parts, weights), 1e-300)
        means = np.bincount(self.parts, weights * self.ratio) / shares
        variances = np.bincount(self.parts, weights * (self.ratio - means[self.parts]) ** 2) / shares
        return np.asarray(weights / np.maximum(variances, 1e-300)[self.parts])


class _PartTable(NamedTuple):
    """Atoms of all parts, the mean square width of the cells next to each, and how to make finer ones."""

    atoms: _Atoms
    squares: FloatArray
    rough: _Rough
    lengths: int
    beyond: float

    def pmf(self, atoms: _Atoms, index: IntArray) -> PrivacyLossPmf:
        """Atoms thinned to nodes, with all charges but those of the weights."""
        nodes, masses, error = thinned(atoms.ratio, atoms.log_q, index)
        biggest, deepest = (float(np.max(np.abs(array))) for array in (atoms.ratio, atoms.log_q))
        share = 3.0 * together_error(self.lengths)  # of the powers, of what is lost of them, and of their sums
        return PrivacyLossPmf.dominating(
            nodes,
            masses,
            p_inf=min(1.0, self.beyond + math.fsum(atoms.p_inf)),
            q_zero=min(1.0, math.fsum(atoms.q_zero)),
            # As of a `Pair`.
            mass_error=ATOM_ROUNDING + CELL_ERROR + 4.5e-16 * (deepest + biggest) + share + error,
            shift_error=8e-16 * (30.0 + biggest) + share,
        )

    def even(self, pair: RevealedShifts, resolution: float) -> PrivacyLossPmf:
        """Cells of equal width where that is asked for finely and does not take long; else as the table has them."""
        length, atoms = float(np.ptp(self.rough.grid)), self.atoms
        if resolution <= _FINELY and len(pair.shifts) * length / resolution <= _EVEN:
            every, density = np.arange(len(pair.shifts)), np.full(len(self.rough.grid) - 1, 1.0 / resolution)
            atoms = _Atoms.of(_cut(pair, every, self.rough.cells(density, math.inf), self.rough.log_tail))
            return self.pmf(atoms, np.arange(len(atoms.ratio)))
        return self.pmf(atoms, spaced_nodes(atoms.ratio, _PILOT))


class _Rough(NamedTuple):
    """Log ratios and logs of Q-masses of all parts on a rough grid, and the least number of cells by rule."""

    grid: FloatArray
    ratio: FloatArray
    log_q: FloatArray
    least: dict[int, FloatArray]
    log_tail: float

    def density(self, rows: IntArray | slice, share: float, tilt: float) -> FloatArray:
        """Cells per unit length for which the mean square width of log L in these parts, each in units of its variance
        there, is this share.

        Tilted by L^tilt; as for one part, in `calipers.pld.core.discretize`: the cost is the sum of w (dx/dz)^2 / n^2.
        """
        spacing = float(self.grid[1] - self.grid[0])
        middle, wide = 0.5 * (self.ratio[:, 1:] + self.ratio[:, :-1]), np.diff(self.ratio, axis=1)
        logs = self.log_q + tilt * middle
        weights = np.exp(logs - float(logs.max()))
        weights /= float(weights.sum())
        total = np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        mean = np.sum(weights * middle, axis=1, keepdims=True) / total
        variance = np.sum(weights * ((middle - mean) ** 2 + wide * wide / 12.0), axis=1, keepdims=True) / total
        shape = np.cbrt(np.sum((weights / np.maximum(variance, 1e-300) * wide * wide)[rows], axis=0) / spacing**3)
        return np.asarray(math.sqrt(spacing * float(shape.sum()) / share) * shape)

    def cells(self, density: FloatArray, most: float) -> list[Cells]:
        """Cells of this density and as narrow as a rule allows, at each place by the rule with the fewest points."""
        spacing, rules = float(self.grid[1] - self.grid[0]), np.array(list(self.least))
        every = np.array([np.maximum(density, fewest) for fewest in self.least.values()])
        points = float(np.min(rules[:, None] * every, axis=0).sum()) * spacing
        if points > most:  # fewer cells are wider ones: still a bound, only less tight
            every = np.array([np.maximum(density * (most / points), fewest) for fewest in self.least.values()])
        best = np.argmin(rules[:, None] * every, axis=0)
        starts = np.flatnonzero(np.diff(best, prepend=-1))
        found = []
        for start, end in itertools.pairwise([*starts, len(best)]):
            total = np.concatenate(([0.0], np.cumsum(every[best[start], start:end]) * spacing))
            places = np.linspace(0.0, total[-1], math.ceil(total[-1]) + 1)
            ends = np.interp(places, total, self.grid[start : end + 1])
            ends[0], ends[-1] = self.grid[start], self.grid[end]
            found.append(cells_between(ends, int(rules[best[start]])))
        return found


def _rough(pair: RevealedShifts, log_tail: float) -> _Rough:
    ranges = [part.range_for(log_tail) for part in pair.smooth]
    low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
    grid = np.linspace(low, high, max(64, math.ceil((high - low) / _ROUGH)) + 1)
    middle = 0.5 * (grid[1:] + grid[:-1])
    known: dict[int, FloatArray] = {}

    def steepest(start: FloatArray, end: FloatArray) -> FloatArray:
        # Every rule asks about the same segments.
        if len(start) not in known:
            known[len(start)] = pair.steepest(start, end)
        return known[len(start)]

    least, every = {}, replace(pair.smooth[0], growth=pair.growth, steepest=steepest)
    for rule in _RULES:
        try:
            least[rule] = 1.0 / widest_cells(every, low, high, rule).at(middle)
        except CertificationError:  # too few nodes for densities as steep as these
            if rule == _RULES[-1]:
                raise
    log_q = pair.log_chances[:, None] - 0.5 * middle * middle
    return _Rough(grid, pair.log_ratios(np.arange(len(pair.shifts)), grid), log_q, least, log_tail)


def _cut(pair: RevealedShifts, rows: IntArray, cells: Sequence[Cells], log_tail: float) -> list[PrivacyLossPmf]:
    """These parts in the same cells, one PLD each, which ends where its own tail does."""
    ends = np.concatenate([cells[0].ends[:1], *(block.ends[1:] for block in cells)])
    ranges = np.array([pair.smooth[row].range_for(log_tail) for row in rows])
    firsts = np.maximum(np.searchsorted(ends, ranges[:, 0], side="right") - 1, 0)
    lasts = np.minimum(np.searchsorted(ends, ranges[:, 1]), len(ends) - 1)
    pieces = []
    for block in cells:
        log_noise = -0.5 * block.points * block.points - 0.5 * math.log(2.0 * math.pi)
        peak, mass = scaled(log_noise + block.log_weights)
        splits = splits_together(pair.log_weights[rows], pair.unit, block.ends, block.points, mass)
        pieces.append((peak, mass.sum(axis=1), *splits))
    peak, total, rise, fall = (np.concatenate(column, axis=-1) for column in zip(*pieces, strict=True))
    found, ratios = [], pair.log_ratios(rows, ends)
    for place, (row, first, last) in enumerate(zip(rows, firsts, lasts, strict=True)):
        some, own = slice(first, last), Ends.of(ratios[place, first : last + 1])
        up, down = own.shared(rise[place, some], fall[place, some], total[some])
        log_q = own.log_q(peak[some], up, down) + pair.log_chances[row]
        found.append(with_tails(pair.smooth[row], ends[first : last + 1], own.nodes, log_q))
    return found


@lru_cache(maxsize=6)
def _table(pair: RevealedShifts, log_tail: float) -> _PartTable:
    rough, every = _rough(pair, log_tail), np.arange(len(pair.shifts))
    density = np.max([rough.density(slice(None), _FINE * _FINE, tilt) for tilt in _TILTS], axis=0)
    spacing = float(rough.grid[1] - rough.grid[0])
    density = np.maximum(density * min(1.0, _ATOMS / (len(every) * spacing * float(density.sum()))), 1.0 / _COARSEST)
    pmfs = _cut(pair, every, rough.cells(density, math.inf), log_tail)
    atoms = _Atoms.of(pmfs)
    wide = [np.diff(pmf.log_ratio) ** 2 for pmf in pmfs]
    squares = np.concatenate([0.5 * (np.append(each, 0.0) + np.append(0.0, each)) for each in wide])
    order = np.argsort(np.concatenate([pmf.log_ratio for pmf in pmfs]), kind="stable")
    beyond = math.fsum(chance * each.beyond for chance, each in zip(pair.chances, pair.shifts, strict=True))
    return _PartTable(atoms, squares[order], rough, len(pair.lengths), beyond)


def revealed_shifts(name: str, parts: Sequence[tuple[Shifts, float]], unit: float, rounding: float) -> RevealedShifts:
    """The mixture of these shifts with their probabilities, the index revealed; lengths are multiples of `unit`."""
    parts = [(shifts.grouped(Side.UPPER), chance) for shifts, chance in parts if chance > 0.0]
    whole = revealed(name, [(drawn_shift(shifts), chance) for shifts, chance in parts], rounding)
    shifts, chances = zip(*parts, strict=True)
    return RevealedShifts(
        name,
        smooth=whole.smooth,
        symmetric=whole.symmetric,
        beyond=whole.beyond,
        rounding=whole.rounding,
        shifts=shifts,
        chances=chances,
        unit=unit,
    )
