"""The sums that an attack runs through when the record changes sides on the way.

Two ways to play a round (`calipers.pld.allocation.adaptive_sign`): the record *opposes* the others or *agrees* with
them. In each the score of a round is X = A - k B with A and B the likelihood ratios of the batch sum, against pure
noise, when the record is there and when it is not; E[X] = 1 - k under noise, whichever way is played.

A *policy* plays blocks of rounds. Before each block it looks at the running sum of the scores: if the sum is above the
block's mark the record agrees in the block, else it opposes. The running sum lives on a multi-resolution grid
(`calipers.pld.allocation.multi_resolution`) with three rows: its PLD under noise, and with one round, at a uniformly
random place, following the PLD it has when the record is there (row 1) or not (row 2). A block is played by cutting
the multi-resolution grid at the mark and adding to each part the multi-resolution grid of a block of the chosen way;
what moves up a level is rounded by coins, so the policy acts on a running sum that is rounded on the way, which is as
much an attack as any other.

Rounding. The erasures of `calipers.pld.allocation.average` go through: after every addition, erase so that the base
PLD of the running sum equals one constant times the computed row, the same constant in both parts (the larger one is
erased further). Constants multiply over blocks, to at least e^(-error) where `error` of two parts is the larger one,
and the marked rows are off by 2 drift, once.

Where marks lie. The best policy on the blocks follows from the last one backward: the value of a running sum is the
larger one of what both ways lead to on average, and the mark is where they cross, at 0 in the last round. Any marks are
an attack; what these lose is what is not looked at within a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.fft import irfft, rfft

from calipers.numerics.fourier import UNIT_ROUNDOFF, fast_length
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.average import cell_error, normal_cells, refined
from calipers.pld.allocation.lattice_segment import LatticeSegment, joined
from calipers.pld.allocation.multi_resolution import MultiResolutionSum, ResolutionPlan, added, placed, plan_between
from calipers.pld.allocation.resolution_plan import resolution_plans, typical

_SCORE_CELL = 0.008
"""Observations in one cell of this width get one score; the loss is quadratic in it, 1e-5 here."""
_SPREADS, _FINE, _MOST_POINTS = 6.0, 0.005, 8192
"""The lattice on which marks are looked for: how far it reaches and how fine it is, in spreads of the epoch's sum."""
_NEGLIGIBLE = 1e-4
"""Of the value at the start: sums that are worth less are not followed any further."""


@dataclass(frozen=True)
class RoundStrategy:
    """One way to play a round: the means of its batch sum, in noise deviations, with the record and without it."""

    present: float
    absent: float

    def score(self, x: FloatArray, k: float, largest: float) -> FloatArray:
        """A - k B at the observations x, cut off at `largest`."""
        log_a, log_b = (m * x - 0.5 * m * m for m in (self.present, self.absent))
        # A common factor first: both may be beyond the range of doubles where their difference decides.
        common = np.minimum(np.maximum(log_a, log_b), 300.0)
        a, b = (np.exp(np.minimum(part - np.maximum(log_a, log_b), 0.0)) for part in (log_a, log_b))
        return np.asarray(np.clip(np.exp(common) * (a - k * b), -largest, largest))


@dataclass(frozen=True)
class PlayedRounds:
    """Sums of 1, 2, 4, ... rounds that are all played one way, and the plans they follow."""

    sums: list[MultiResolutionSum]
    plans: list[ResolutionPlan]

    def of(self, count: int) -> MultiResolutionSum:
        """The sum of `count` rounds, a power of two."""
        return self.sums[count.bit_length() - 1]


def seen(
    means: Iterable[float], farthest: float, rounds: int, log_tail: float
) -> tuple[FloatArray, dict[float, FloatArray], float]:
    """Middles of cells of one observation, their masses where it has each of the means, and the error of these.

    A whole cell gets the score of its middle. What lies beyond the cells, about e^log_tail, never rejects. No mean
    exceeds the `farthest`.
    """
    reach = math.sqrt(-2.0 * (log_tail - math.log(rounds) - 4.0))
    ends = refined(np.array([-reach, reach + farthest]), _SCORE_CELL)
    points, weights = normal_cells(ends)
    scaled = weights / math.sqrt(2.0 * math.pi)
    masses = {mean: np.asarray((np.exp(-0.5 * (points - mean) ** 2) * scaled).sum(axis=1)) for mean in means}
    error = cell_error(float(np.max(np.abs(ends))) + farthest, 0.5 * _SCORE_CELL)
    return 0.5 * (ends[1:] + ends[:-1]), masses, error


def played(
    strategies: tuple[RoundStrategy, RoundStrategy],
    k: float,
    rounds: int,
    longest: int,
    far: float,
    resolution: float,
    log_tail: float,
) -> tuple[PlayedRounds, PlayedRounds]:
    """Sums of up to `longest` rounds of both ways on one lattice, for an epoch of `rounds`.

    Scores are cut off at `far` times rounds times k; masses up to about e^log_tail may get lost, which rejects nothing.
    """
    means = [(0.0, one.present, one.absent) for one in strategies]
    shift = max(max(one.present, one.absent) for one in strategies)
    middle, masses, error = seen({mean for some in means for mean in some}, shift, rounds, log_tail)
    found: list[PlayedRounds] = []
    for strategy, some in zip(strategies, means, strict=True):
        rows = np.stack([masses[mean] for mean in some])
        scores = strategy.score(middle, k, far * rounds * max(k, 1.0))
        order = np.argsort(scores, kind="stable")
        plans = resolution_plans(scores[order], rows[0][order], rounds, resolution, shift, log_tail)
        if found:
            plans = [_on_lattice(plan, found[0].plans[0]) for plan in plans]
        sums = [placed(scores, rows, plans[0], error, float(rounds))]
        while 2 * sums[-1].terms <= longest:
            terms = 2 * sums[-1].terms
            sums.append(added(sums[-1], sums[-1], plans[len(sums)], rounds / terms))
        found.append(PlayedRounds(sums, plans))
    return found[0], found[1]


def _on_lattice(plan: ResolutionPlan, model: ResolutionPlan) -> ResolutionPlan:
    """About as fine as `plan`, on the lattices of `model`."""
    unit = math.ldexp(plan.step, plan.lowest)
    return replace(plan, step=model.step, grain=model.grain, lowest=max(0, math.floor(math.log2(unit / model.step))))


def blocks(rounds: int, number: float) -> list[int]:
    """Sizes of about `number` consecutive blocks, powers of two that become shorter toward the end."""
    sizes, left = [], rounds
    while left > 0:
        wanted = max(1, int(4.0 * (rounds / number) * (left / rounds) ** 0.75))
        sizes.append(min(1 << (wanted.bit_length() - 1), 1 << (left.bit_length() - 1)))
        left -= sizes[-1]
    return sizes


def looks(
    strategies: tuple[RoundStrategy, RoundStrategy], k: float, sizes: Sequence[int], start: float, log_tail: float
) -> list[tuple[float, float]]:
    """The best mark before each block but the first, and the sum below which it is worth nothing to go on.

    `start` is the first sum, from which a positive one is to be reached. Backwards from the last block, the value is
    the larger one of both ways on a lattice of floating-point numbers. Nothing is certified: any marks are an attack.
    """
    rounds = sum(sizes)
    middle, masses, _ = seen({0.0}, max(strategies[0].present, strategies[1].absent), rounds, log_tail)
    scores = [strategy.score(middle, k, math.inf) for strategy in strategies]
    order = np.argsort(scores[0], kind="stable")
    spread = float(typical(scores[0][order], masses[0.0][order], np.array([float(rounds)]))[1][0])
    reach = rounds * (k - 1.0) - start + _SPREADS * spread
    step = max(_FINE * spread, reach / _MOST_POINTS)
    edge = math.ceil(reach / step)
    places, size = np.arange(-2 * edge, 2 * edge + 1), fast_length(4 * edge + 1)
    ways = [_jumps(score / step, masses[0.0], edge, max(sizes)) for score in scores]
    values, left, found = np.maximum(step * places, 0.0), 0, []
    for block in reversed(sizes):
        left += block
        ahead, moves = rfft(values, size), [way[block.bit_length() - 1] for way in ways]
        opposed, agreed = (irfft(ahead * jumps, size)[: 2 * edge + 1] + step * more for jumps, more in moves)
        last = int(np.argmax(np.cumsum(opposed - agreed)[:-1]))
        lost, gained = opposed[last] - agreed[last], agreed[last + 1] - opposed[last + 1]
        between = lost / (lost + gained) if left > 1 and min(lost, gained) > 0.0 else 0.0
        # Farther out the value is known.
        values = np.maximum(step * places - left * (k - 1.0), 0.0)
        values[edge : 3 * edge + 1] = np.maximum(opposed, agreed)
        found.append((step * float(last - edge + between), values))
    least = _NEGLIGIBLE * float(np.interp(start, step * places, values))
    firsts = [(mark, int(np.argmax(after[edge:] > least))) for mark, after in found]
    return [(mark, step * (first - edge) if first > 0 else -math.inf) for mark, first in firsts[-2::-1]]


def _jumps(scores: FloatArray, masses: FloatArray, edge: int, longest: int) -> list[tuple[FloatArray, float]]:
    """For 1, 2, 4, ... rounds, the spectrum of their sum from -edge to edge, and the mean of what is beyond."""
    kept, farther = scores >= -edge, float(masses @ np.maximum(scores - edge, 0.0))
    at, masses = np.minimum(scores[kept], edge - 1e-9) + edge, masses[kept]
    low, size = np.floor(at).astype(np.intp), fast_length(4 * edge + 1)
    row: FloatArray = np.zeros(2 * edge + 1)
    np.add.at(row, low, masses * (low + 1.0 - at))
    np.add.at(row, low + 1, masses * (at - low))
    found = [(np.conj(rfft(row, size)), farther)]
    while 1 << len(found) <= longest:
        # What falls beyond the edge is worth nothing and left out.
        twice = irfft(rfft(row, size) ** 2, size)[edge : 4 * edge + 1]
        row, over = twice[: 2 * edge + 1].copy(), twice[2 * edge + 1 :]
        row[-1] += over.sum()
        farther = 2.0 * farther + float(over @ np.arange(1.0, len(over) + 1.0))
        found.append((np.conj(rfft(row, size)), farther))
    return found


def ended(
    opposing: PlayedRounds, agreeing: PlayedRounds, sizes: Sequence[int], at: Iterable[tuple[float, float]]
) -> MultiResolutionSum:
    """The distribution of the sum of all rounds under the policy that plays blocks of these sizes.

    `at`: the mark before each block but the first, and the floor, below which sums are erased: they reject nothing.
    """
    rounds = sum(sizes)
    state = opposing.of(sizes[0])
    # Every block is rounded by coins, so the lattice is as fine for the whole sum as for a quarter of it.
    lowest = opposing.plans[max(len(opposing.plans) - 3, 0)].lowest
    for size, (level, floor) in zip(sizes[1:], at, strict=True):
        terms = state.terms + size
        plan = plan_between(opposing.plans, terms)
        plan = replace(plan, lowest=min(plan.lowest, lowest))
        followed = _cut(state, floor)[1] if floor > -math.inf else state
        below, above = _cut(followed if followed.levels else state, level)
        parts = [
            added(part, strategy.of(size), plan, rounds / terms)
            for part, strategy in ((below, opposing), (above, agreeing))
            if part.levels
        ]
        state = parts[0] if len(parts) == 1 else _together(parts[0], parts[1])
    return state


def _cut(ladder: MultiResolutionSum, level: float) -> tuple[MultiResolutionSum, MultiResolutionSum]:
    """The places up to `level`, and those above it."""
    below: dict[int, LatticeSegment] = {}
    above: dict[int, LatticeSegment] = {}
    for e, (low, rows) in ladder.levels.items():
        size = rows.shape[1]
        first = min(max(math.floor(level / math.ldexp(ladder.step, e)) - low + 1, 0), size)
        if first > 0:
            below[e] = LatticeSegment(low, rows[:, :first])
        if first < size:
            above[e] = LatticeSegment(low + first, rows[:, first:])
    return replace(ladder, levels=below), replace(ladder, levels=above)


def _together(first: MultiResolutionSum, second: MultiResolutionSum) -> MultiResolutionSum:
    """One PLD of two parts."""
    levels = dict(first.levels)
    for e, segment in second.levels.items():
        both = joined(levels.get(e), segment)
        assert both is not None
        levels[e] = both
    return replace(
        first,
        levels=levels,
        error=max(first.error, second.error) + 2.0 * UNIT_ROUNDOFF,
        drift=max(first.drift, second.drift) + 2.0 * UNIT_ROUNDOFF,
        lost=first.lost + second.lost,
        lost_moment=first.lost_moment + second.lost_moment,
    )
