"""Sums of hidden terms whose adversary has one control for every strike: between the sum of worst terms and the truth.

With the cells of `calipers.laws.allocated.controls` the largest expected payoff after n more rounds obeys

    V_0(s) = s+,      V_n(s) <= max over cells of E[V_(n-1)(s + X_cell)],

for running sums s: within a cell the adversary still chooses for every strike, between cells no longer. All V_n are
convex, increasing, with slope at most one, so a lattice may be connected by chords, continued by a constant on the left
and with slope one on the right, and everything that is cut is charged at most its first moment.

Blocks. c -> V_m(-c) is at least the call at c of whatever an adversary makes of m rounds. It is the call function of a
variable Y, so sums of M = q m + n rounds lie below q copies of Y followed by V_n, as in the consequence of the lemma
("one lemma for hidden records"). Copies are added on a ladder. The adversary may choose a policy for every strike of a
block, no longer one for every strike of a round: the longer the blocks, the less that is worth.

Rounding. A round sums `taps` products of non-negative numbers, so V_m is within a share m (taps + 4) u. The values,
raised by that, lie above a convex function, hence so does their convex minorant, whose slopes give the masses of Y.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from calipers.laws.allocated.average_ladder import multiplied, placed
from calipers.laws.allocated.average_plan import ladder_plans
from calipers.laws.allocated.controls import Placed, cell, controls
from calipers.laws.allocated.hidden_sum import HiddenSum
from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray

_CELLS = 4
_BLOCK, _BLOCKS = 32, 5.0
_FINE, _USUAL, _COARSEST = 0.2, 0.3, 1.0
"""Lattices in deviations of one term: 0.2 adds a share of 0.6 % to the variance, 0.3 one of 1.5 %."""
_LONG, _LONGEST = 1_200, 4_000
"""How many places may be fine, and how many there may be at all."""
_NEAR, _SPREADS = 6.0, 6.5
"""How far the dense part of a term, and the sums of a block, reach in their deviations."""
_SKIP = 4
_CHORD = np.stack((1.0 - np.arange(_SKIP) / _SKIP, np.arange(_SKIP) / _SKIP))
_LARGEST_SHIFT, _FARTHEST = 2.0, 6.0
_LADDER, _LOG_TAIL = 0.1, -40.0


@dataclass(frozen=True)
class Payoff:
    """Upper values of a convex payoff of slope at most one at places low, low + 1, ... of a lattice."""

    low: int
    step: float
    values: FloatArray

    @property
    def places(self) -> FloatArray:
        """Where the values stand."""
        return np.asarray(np.arange(self.low, self.low + len(self.values)) * self.step, dtype=np.float64)

    def __call__(self, sums: FloatArray) -> FloatArray:
        """At least the payoff anywhere."""
        places = self.places
        return np.asarray(np.interp(sums, places, self.values) + np.maximum(sums - places[-1], 0.0))


class Earlier:
    """One round before a payoff on so many places, for the best of the cells at every sum; all use the same places."""

    def __init__(self, rounds: Sequence[Placed], size: int, step: float) -> None:
        self._low, far = rounds[0].low, rounds[0].places
        self._left = -int(far.min(initial=self._low))
        self._masses, self._far = (
            np.stack(rows) for rows in zip(*((one.masses, one.far) for one in rounds), strict=True)
        )
        self._charges = np.array([[one.charge] for one in rounds])
        # What far places add is convex too, and varies slowly: chords between every few sums will do.
        self._chosen = (far + self._left)[:, None] + np.arange(0, size, _SKIP)
        self._rise = step * np.arange(1, int(far.max(initial=-self._low)) + 1)
        self._row: FloatArray = np.empty(self._left + size + len(self._rise))
        self._near = sliding_window_view(self._row[self._left + self._low :][: size - 2 * self._low], size)
        self._windows = np.empty(self._near.shape)

    def __call__(self, payoff: Payoff) -> Payoff:
        """The payoff one round earlier."""
        values, (left, size) = payoff.values, (self._left, len(payoff.values))
        self._row[:left] = values[0]
        self._row[left : left + size] = values
        np.add(values[-1], self._rise, out=self._row[left + size :])
        totals = self._far @ self._row.take(self._chosen) + self._charges
        np.copyto(self._windows, self._near)  # side by side, where a product of matrices is quick
        found = self._masses @ self._windows
        found[:, :-1] += (np.stack((totals[:, :-1], totals[:, 1:]), axis=2) @ _CHORD).reshape(len(found), size - 1)
        found[:, -1] += totals[:, -1]
        return Payoff(payoff.low, payoff.step, found.max(axis=0))


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
    block = rounds if rounds < 2 * _BLOCK else _BLOCK
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
    low = -math.ceil(left / step)
    high = low + _SKIP * math.ceil((right - low * step) / (_SKIP * step))
    ends = controls(term, _CELLS)
    near = math.ceil(_NEAR * deviation / step)
    cells = [cell(term, float(a), float(b), step, near, cut) for a, b in pairwise(ends)]
    payoffs = [Payoff(low, step, np.maximum(np.arange(low, high + 1), 0) * step)]
    earlier = Earlier(cells, len(payoffs[0].values), step)
    for _ in range(block):
        payoffs.append(earlier(payoffs[-1]))
    taps = len(cells[0].masses) + len(cells[0].far)
    rounding = 1.0 + 2.0 * block * (taps + 4.0) * UNIT_ROUNDOFF
    # The strike is rounded, and so is the participation it is made of.
    slack = 8.0 * UNIT_ROUNDOFF * (strike + rounds * (k - 1.0) / participation)
    if block == rounds:
        found = float(payoffs[-1](np.array([slack - strike]))[0]) * rounding
    else:
        found = _of_blocks(payoffs, rounds, strike - slack, rounding, term.width)
    return min(1.0, participation * found / rounds)


def _of_blocks(payoffs: list[Payoff], rounds: int, strike: float, rounding: float, width: float) -> float:
    """At least the expected payoff of all rounds, blocks first, what is left of them at the end."""
    block = len(payoffs) - 1
    count, rest = divmod(rounds, block)
    values, masses, charge = block_law(payoffs[-1], rounding)
    plans = ladder_plans(values, masses, count, _LADDER, width, _LOG_TAIL)
    total = multiplied(placed(values, masses[None], plans[0], 4.0 * UNIT_ROUNDOFF, float(count)), count, plans)
    sums, (noise,) = total.flat()
    gain = float(noise @ payoffs[rest](sums - strike)) * rounding
    gain *= (1.0 + 4.0 * len(sums) * UNIT_ROUNDOFF) / (1.0 - total.error)
    # V_n(s) <= V_n(0) + |s|: of sums that were left out, their mass and their first moment count.
    lost = 2.0 * total.lost * float(payoffs[rest](np.zeros(1))[0])
    moment = 1.0 + float(masses @ np.abs(values))
    return gain + lost + count * (charge + 2.0 * moment * total.lost_moment)


def block_law(payoff: Payoff, rounding: float) -> tuple[FloatArray, FloatArray, float]:
    """A variable whose call at c, plus a charge, is at least the payoff at -c, for every c."""
    raised = payoff.values[::-1] * rounding  # as a function of c = -s, which falls
    places = -payoff.places[::-1]
    slopes = _rising(np.diff(raised) / payoff.step)
    slopes = np.minimum(np.concatenate(([-1.0], slopes, [0.0])), 0.0)
    # Left of the lattice the slope is -1, right of it the payoff is charged as a constant.
    return places, np.diff(np.maximum(slopes, -1.0)), float(raised[-1])


def _rising(slopes: FloatArray) -> FloatArray:
    """Slopes of the convex minorant of values at equal distances: pooled where they fall."""
    if np.all(np.diff(slopes) >= 0.0):
        return slopes
    means: list[float] = []
    counts: list[int] = []
    for slope in slopes.tolist():
        mean, count = slope, 1
        while means and means[-1] > mean:
            count += counts[-1]
            mean += (means[-1] - mean) * counts[-1] / count
            means.pop()
            counts.pop()
        means.append(mean)
        counts.append(count)
    return np.repeat(means, counts)
