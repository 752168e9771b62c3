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

Where marks lie. In the last round the best way changes where the running sum does, at 0. With n rounds left, compare
the final gain of playing all of them one way or the other: E[(s + sum of n scores)+] for both ways, and let the mark be
the s where they cross. Any marks are an attack; these lose less than a thousandth of what the best marks gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.average import cell_error, normal_cells, refined
from calipers.pld.allocation.lattice_segment import LatticeSegment, joined
from calipers.pld.allocation.multi_resolution import MultiResolutionSum, ResolutionPlan, added, placed, plan_between
from calipers.pld.allocation.resolution_plan import resolution_plans

_SCORE_CELL = 0.008
"""Observations in one cell of this width get one score; the loss is quadratic in it, 1e-5 here."""
_MARK_DIGITS = 6
_HALVINGS = 48


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
    marked: bool = True,
) -> tuple[PlayedRounds, PlayedRounds]:
    """Sums of up to `longest` rounds of both ways on one lattice, for an epoch of `rounds`.

    Scores are cut off at `far` times rounds times k; masses up to about e^log_tail may get lost, which rejects nothing.
    Where marks are looked for, the PLD under noise is all that is asked: rows that are not `marked`.
    """
    means = [(0.0, one.present, one.absent) if marked else (0.0,) for one in strategies]
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


def marks(opposing: PlayedRounds, agreeing: PlayedRounds, k: float) -> tuple[FloatArray, FloatArray]:
    """Numbers of rounds left, 1, 2, 4, ..., and the running sums above which agreeing gains more than opposing."""
    counts, found = [], []
    for one, other in zip(opposing.sums, agreeing.sums, strict=True):
        (values, rows), (other_values, other_rows) = one.flat(), other.flat()
        mean = one.terms * (1.0 - k)
        width = 10.0 * abs(mean) + 10.0 * float(np.sqrt(np.sum(rows[0] * (values - mean) ** 2)))
        low, high = -mean - width, -mean + width
        for _ in range(_HALVINGS):
            s = 0.5 * (low + high)
            # Above the mean puts decide, which differ from stop-loss transforms by the same amount on both sides.
            sign = 1.0 if s + mean <= 0.0 else -1.0
            gain = float(np.sum(other_rows[0] * np.maximum(sign * (other_values + s), 0.0)))
            loss = float(np.sum(rows[0] * np.maximum(sign * (values + s), 0.0)))
            low, high = (low, s) if gain > loss or (sign < 0.0 and gain == loss) else (s, high)
        counts.append(one.terms)
        found.append(0.5 * (low + high) if one.terms > 1 else 0.0)
    return np.array(counts, dtype=float), np.array(found)


def blocks(rounds: int, number: int) -> list[int]:
    """Sizes of about `number` consecutive blocks, powers of two that become shorter toward the end."""
    sizes, left = [], rounds
    while left > 0:
        wanted = max(1, int(2.0 * math.sqrt(left * rounds) / number))
        sizes.append(min(1 << (wanted.bit_length() - 1), 1 << (left.bit_length() - 1)))
        left -= sizes[-1]
    return sizes


def levels(sizes: list[int], left: FloatArray, where: FloatArray, threshold: float) -> list[float]:
    """The mark before each block but the first, between the given ones; `threshold` is what the final sum must pass."""
    remaining = sum(sizes) - np.cumsum(sizes)[:-1]
    slope = (where[-1] - where[-2]) / (left[-1] - left[-2]) if len(left) > 1 else 0.0
    beyond = np.maximum(remaining - left[-1], 0.0)
    found = np.interp(remaining, left, where) + slope * beyond + threshold
    return [float(f"{level:.{_MARK_DIGITS}g}") for level in found]  # as printed, so that what is printed was measured


def ended(
    opposing: PlayedRounds, agreeing: PlayedRounds, sizes: Sequence[int], at: Sequence[float]
) -> MultiResolutionSum:
    """The distribution of the sum of all rounds under the policy that plays blocks of these sizes with these marks."""
    rounds = sum(sizes)
    state = opposing.of(sizes[0])
    for size, level in zip(sizes[1:], at, strict=True):
        terms = state.terms + size
        plan = plan_between(opposing.plans, terms)
        below, above = _cut(state, level)
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
