"""Sums of hidden terms whose adversary has one control for every strike: between the sum of worst terms and the truth.

With the cells of `calipers.laws.allocated.controls` the largest expected payoff after n more rounds obeys

    V_0(s) = s+,      V_n(s) <= max over cells of E[V_(n-1)(s + X_cell)],

for running sums s: within a cell the adversary still chooses for every strike, between cells no longer. All V_n are
convex, increasing, with slope at most one, so a lattice may be connected by chords, continued by a constant on the left
and with slope one on the right, and everything that is cut is charged at most its first moment.

Blocks. c -> V_m(-c) is at least the call at c of whatever an adversary makes of m rounds. It is the call function of a
variable Y_m, so sums of M rounds lie below sums of independent Y_m, one for each of the blocks that they are divided
into, as in the consequence of the lemma ("one lemma for hidden records"). These are added by transforms. The adversary
may choose a policy for every strike of a block, no longer one for every strike of a round: the longer the blocks, the
less that is worth.

Rounding. A round sums `taps` products of non-negative numbers, so V_m is within a share m (taps + 8) u. The values,
raised by that, lie above a convex function; slopes that are no larger than the next ones make them convex, and larger,
and give the masses of Y_m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from calipers.laws.allocated.controls import SPARSE, Placed, cell, controls
from calipers.laws.allocated.hidden_sum import HiddenSum
from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.laws.allocated.waves import Terms, payoff_by_waves
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray, IntArray

_CELLS = 4
_BLOCK, _BLOCKS = 32, 5.0
"""Rounds of a block, or some more where there are few blocks."""
_FINE, _USUAL, _COARSEST = 0.2, 0.3, 1.0
"""Lattices in deviations of one term: 0.2 adds a share of 0.6 % to the variance, 0.3 one of 1.5 %."""
_LONG, _LONGEST = 1_200, 4_800
"""How many places may be fine, and how many there may be at all."""
_NEAR, _SPREADS = 7.0, 6.5
"""How far the dense part of a term, and the sums of a block, reach in their deviations."""
_CORE = 0.7
"""How far every sum of a block is looked at, of that."""
_SKIP, _WIDE = SPARSE, 32
_CHORD = np.stack((1.0 - np.arange(_SKIP) / _SKIP, np.arange(_SKIP) / _SKIP))
_LARGEST_SHIFT, _FARTHEST = 2.0, 6.0
_RESOLUTION, _LOG_TAIL = 0.05, -40.0


@dataclass(frozen=True)
class Payoff:
    """Upper values of a convex payoff of slope at most one at places low, low + 1, ... of a lattice.

    `bends`: the numbers of the values between which it is made of chords.
    """

    low: int
    step: float
    values: FloatArray
    bends: IntArray

    @property
    def places(self) -> FloatArray:
        """Where the values stand."""
        return np.asarray(np.arange(self.low, self.low + len(self.values)) * self.step, dtype=np.float64)

    @classmethod
    def at_the_end(cls, wide: tuple[int, int], core: slice, step: float) -> Payoff:
        """s+ on so many times `_WIDE` places to the left and to the right of 0."""
        low, high = -wide[0] * _WIDE, wide[1] * _WIDE
        bends = np.concatenate(
            (
                np.arange(0, core.start * _WIDE, _SKIP),
                np.arange(core.start * _WIDE, core.stop * _WIDE),
                np.arange(core.stop * _WIDE, high - low + 1, _SKIP),
            )
        )
        return cls(low, step, np.maximum(np.arange(low, high + 1), 0) * step, bends)

    def __call__(self, sums: FloatArray) -> FloatArray:
        """At least the payoff anywhere."""
        places = self.places
        return np.asarray(np.interp(sums, places, self.values) + np.maximum(sums - places[-1], 0.0))


class Earlier:
    """One round before a payoff on so many places, for the best of the cells at every sum; all use the same places.

    Every sum of the `core`, blocks of `_WIDE` places, is looked at. Elsewhere a payoff hardly bends, and everywhere
    what far places add to it: chords between every few sums will do, as both are convex.
    """

    def __init__(self, rounds: Sequence[Placed], size: int, core: slice, step: float) -> None:
        near, far = -rounds[0].low, rounds[0].places
        masses, self._far = (np.stack(rows) for rows in zip(*((one.masses, one.far) for one in rounds), strict=True))
        self._charges = np.array([[one.charge] for one in rounds])
        self._left = max(near, -int(far.min(initial=0)))
        self._rise = step * np.arange(1, max(near + _WIDE, int(far.max(initial=0))) + 1)
        self._core, self._cells = core, len(rounds)
        self._row: FloatArray = np.empty(self._left + size + len(self._rise))
        # A block of places times a matrix whose columns are the masses, each one place further on.
        ahead = self._row[self._left - near :][: size + _WIDE - 1 + 2 * near]
        self._ahead = sliding_window_view(ahead, _WIDE + 2 * near)[::_WIDE]
        self._near = np.empty(self._ahead.shape)
        moved = np.zeros((_WIDE + 2 * near, self._cells, _WIDE))
        for i in range(_WIDE):
            moved[i : i + 2 * near + 1, :, i] = masses.T
        self._fine = moved.reshape(len(moved), -1)
        self._some = np.ascontiguousarray(moved[:, :, ::_SKIP].transpose(0, 2, 1)).reshape(len(moved), -1)
        self._sparse: FloatArray = np.empty(-(-len(self._row) // _SKIP))
        self._windows = sliding_window_view(self._sparse, (size - 1) // _SKIP + 1)
        self._places = (far + self._left) // _SKIP

    def __call__(self, payoff: Payoff) -> Payoff:
        """The payoff one round earlier."""
        values, (left, size) = payoff.values, (self._left, len(payoff.values))
        self._row[:left] = values[0]
        self._row[left : left + size] = values
        np.add(values[-1], self._rise, out=self._row[left + size :])
        np.copyto(self._sparse, self._row[::_SKIP])
        far = self._far @ self._windows[self._places] + self._charges
        np.copyto(self._near, self._ahead)  # side by side, where a product of matrices is quick
        some = (self._near @ self._some).reshape(-1, self._cells)[: far.shape[1]]
        sparse = (some.T + far).max(axis=0)
        found = np.empty(size)
        found[:-1] = _filled(sparse).ravel()
        found[-1] = sparse[-1]
        core, each = self._core, _WIDE // _SKIP
        fine = (self._near[core] @ self._fine).reshape(-1, self._cells, _WIDE)
        chords = _filled(far[:, core.start * each : core.stop * each + 1]).reshape(self._cells, -1, _WIDE)
        found[core.start * _WIDE : core.stop * _WIDE] = (fine + chords.transpose(1, 0, 2)).max(axis=1).ravel()
        return replace(payoff, values=found)


def _filled(rows: FloatArray) -> FloatArray:
    """The chords between every two neighbors of each row, at the places where they begin and those between them."""
    return np.asarray(np.stack((rows[..., :-1], rows[..., 1:]), axis=-1) @ _CHORD)


def _cut(term: HiddenTerm, rounds: int, strike: float) -> tuple[float, float]:
    """Where terms are clipped: as for sums of worst terms, but no farther than gains go."""
    low, high = HiddenSum.deep(term, rounds, _LOG_TAIL).ended(strike).clipped
    farthest = float(term.value(np.array([term.farthest_shift + _FARTHEST]))[0])
    high = min(high, max(farthest, term.crossing))
    return max(low, -4.0 * high), high


def controlled_divergence(term: HiddenTerm, rounds: int, participation: float) -> float | None:
    """At least r/M times the largest expected payoff of M rounds at the strike, or None where it would take long."""
    k = math.exp(term.epsilon)
    strike = rounds * (1.0 - participation) * math.expm1(term.epsilon) / participation
    blocks = max(rounds // _BLOCK, 1)
    block = -(-rounds // blocks)
    deviation = term.width * math.sqrt(k)
    drift, spread = block * (k - 1.0), _SPREADS * deviation
    cut = _cut(term, rounds, strike)
    # Beyond what a block, and one loss where they are heavy, may take back, a payoff has a slope of nearly one.
    losses = -cut[0] if term.left[1] > term.right[0] else 0.0
    left = cut[1] + drift + spread * math.sqrt(block)
    right = drift + min(spread * math.sqrt(rounds), spread * math.sqrt(_BLOCKS * block) + losses)
    length = left + right
    step = max(_FINE * deviation, min(_USUAL * deviation, length / _LONG), length / _LONGEST)
    if term.farthest_shift > _LARGEST_SHIFT or step > _COARSEST * deviation:
        return None
    wide = math.ceil(left / (_WIDE * step)), math.ceil(right / (_WIDE * step))
    inner = math.ceil((drift + _CORE * spread * math.sqrt(block)) / (_WIDE * step)) if blocks > 1 else sum(wide)
    core = slice(max(wide[0] - inner, 0), min(wide[0] + inner, sum(wide)))
    cells = [cell(term, a, b, step, _NEAR * deviation, cut) for a, b in pairwise(controls(term, _CELLS).tolist())]
    payoffs = [Payoff.at_the_end(wide, core, step)]
    earlier = Earlier(cells, len(payoffs[0].values), core, step)
    for _ in range(block):
        payoffs.append(earlier(payoffs[-1]))
    taps = len(cells[0].masses) + len(cells[0].far)
    rounding = 1.0 + 2.0 * block * (taps + 8.0) * UNIT_ROUNDOFF
    # The strike is rounded, and so is the participation it is made of.
    slack = 8.0 * UNIT_ROUNDOFF * (strike + rounds * (k - 1.0) / participation)
    if blocks == 1:
        found = float(payoffs[-1](np.array([slack - strike]))[0]) * rounding
    else:
        found = _of_blocks(payoffs, rounds, blocks, strike - slack, rounding)
    return min(1.0, participation * found / rounds)


def _of_blocks(payoffs: list[Payoff], rounds: int, blocks: int, strike: float, rounding: float) -> float:
    """At least the expected payoff of all rounds, in blocks of nearly equal size, infinite where none was found."""
    block, more = divmod(rounds, blocks)
    parts, charged = [], 0.0
    for payoff, count in ((payoffs[block], blocks - more), (payoffs[-1], more)):
        if count > 0:
            places, masses, charge = block_law(payoff, rounding)
            parts.append(Terms(places, masses, payoff.step, 4.0 * UNIT_ROUNDOFF, count))
            charged += count * charge
    gain = payoff_by_waves(parts, lambda sums: np.maximum(sums - strike, 0.0), strike, _RESOLUTION)
    return math.inf if gain is None else gain + charged


def block_law(payoff: Payoff, rounding: float) -> tuple[IntArray, FloatArray, float]:
    """Places of the lattice and masses of a variable whose call at c, plus a charge, is at least the payoff at -c."""
    bends = payoff.bends[::-1]
    raised = payoff.values[bends] * rounding  # as a function of c = -s, which falls
    places = -(payoff.low + bends)
    slopes = np.diff(raised) / (payoff.step * np.diff(places))
    # Left of the lattice the slope is -1, right of it the payoff is charged as a constant. Where rounding has dented
    # it, slopes that are no larger than the next ones make it convex, and larger.
    slopes = np.minimum.accumulate(np.concatenate(([-1.0], np.maximum(slopes, -1.0), [0.0]))[::-1])[::-1]
    masses = np.diff(slopes)
    some = masses > 0.0
    return places[some], masses[some], float(raised[-1])
