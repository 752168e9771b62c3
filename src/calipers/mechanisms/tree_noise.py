"""Tree aggregation (DP-FTRL): its noise matrix without the matrix, for any number of steps.

Row v of C is the indicator of a node v of the binary tree over the steps, one for every node that becomes complete. A
record that takes part with the same gradient in the steps of a pattern S moves node v by c_v = |S and v|, so the
squared length is the sum over complete nodes of c_v^2: the matrix itself is never needed.

**Above.** Level by level: the sum over the nodes of one level (stretches of L steps) is largest, over all patterns with
at least b steps between, for some pattern that is as early as possible in every stretch. Going through the stretches,
all that counts is the offset o of the first step that is free again; c participations leave max(0, o + c b - L).
With at most k participations a level is also at most k times the most of one stretch. The levels are added, each at its
own best pattern, which is no less than any pattern gives.

**Below.** Patterns that take part every b steps, from every first step: anybody can play them. If the order is fixed
they are all there are.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from calipers.mechanisms.noise_matrix import STEPS, NoiseMatrix, Patterns, Sensitivity, best_pattern
from calipers.numerics.types import FloatArray, IntArray

_MOST_PLACES = 4_000_000
"""Patterns are looked at together as long as they have no more places than this."""
_MOST_NODES = 8_192
"""With more nodes of one length than this the most of one node is counted in all of them."""


class TreeNoise(NoiseMatrix):
    """Tree aggregation over a number of steps: one row for every complete node, in the order of their completion."""

    def __init__(self, steps: int) -> None:
        steps = STEPS.check_int("steps", steps)
        super().__init__(name=f"tree aggregation over {steps} steps", tree=True)
        self._steps = steps

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self._steps

    @cached_property
    def _levels(self) -> list[tuple[int, int]]:
        """(length, number) of the complete nodes of each level."""
        return [(2**level, self._steps // 2**level) for level in range(self._steps.bit_length())]

    def column_norms(self) -> FloatArray:
        """How many complete nodes hold each step, as a length."""
        held = np.zeros(self._steps)
        for length, number in self._levels:
            held[: length * number] += 1.0
        return np.sqrt(held)

    def bands(self) -> int:
        """The largest node."""
        return self._levels[-1][0]

    def materialized(self) -> NoiseMatrix:
        """The same matrix, dense: one row for every complete node, in the order in which they become complete."""
        rows = []
        for end in range(1, self._steps + 1):
            for length, _ in self._levels:
                if end % length == 0:
                    rows.append(np.zeros(self._steps))
                    rows[-1][end - length : end] = 1.0
        return NoiseMatrix.of(np.array(rows), self.name, tree=True)

    _slack = 8.0 * 2.0**-53

    def _searched(self, patterns: Patterns, count: int) -> Sensitivity:
        """Where columns of a pattern share rows, which hold whole numbers."""
        shown, pattern = self._every(patterns.min_separation, count, patterns.fixed)
        if patterns.fixed:
            return Sensitivity.of(math.sqrt(shown), pattern, "every pattern of a fixed order", self._slack)
        if self._steps * count <= _MOST_PLACES:  # long columns, and those that share many rows, may show a little more
            for values in (self.column_norms() ** 2, self._row_sums(patterns.min_separation, count)):
                other = best_pattern(values, patterns.min_separation, count)[1]
                squares = int(self._squares(np.array([other]), patterns.min_separation)[0])
                shown, pattern = max((shown, pattern), (squares, other))
        most = sum(_level(length, number, patterns.min_separation, count) for length, number in self._levels)
        reason = "the best pattern of every level of the tree"
        return Sensitivity.of(math.sqrt(shown), pattern, reason, self._slack, math.sqrt(most))

    def _row_sums(self, separation: int, count: int) -> FloatArray:
        """The most that the nodes of a step can hold, added up, for every step."""
        held = np.zeros(self._steps)
        for length, number in self._levels:
            held[: length * number] += min(count, -(-length // separation))
        return held

    def _every(self, separation: int, count: int, fixed: bool) -> tuple[int, tuple[int, ...]]:
        """The most that a pattern with exactly this separation shows, and such a pattern."""
        steps = self._steps
        whole = count >= -(-steps // separation)  # then a later start only leaves the first ones out
        starts = np.arange(min(separation, steps) if whole else steps)
        if not fixed and len(starts) * count > _MOST_PLACES:  # some of them will do for what is shown
            starts = starts[:: -(-len(starts) * count // _MOST_PLACES)]
        at_once = max(1, _MOST_PLACES // max(count, steps // separation + 1))
        best = (0, 0)
        for first in range(0, len(starts), at_once):
            some = starts[first : first + at_once]
            places = some[:, None] + separation * np.arange(count, dtype=np.int64)
            shown = self._squares(places, separation)
            top = int(np.argmax(shown))
            best = max(best, (int(shown[top]), -int(some[top])))
        return best[0], tuple(range(-best[1], steps, separation))[:count]

    def _squares(self, places: IntArray, separation: int) -> IntArray:
        """The sum over complete nodes of c_v^2, of every row of increasing places; those beyond the last step go."""
        total = np.zeros(len(places), dtype=np.int64)
        rows = np.arange(len(places), dtype=np.int64)[:, None]
        for length, number in self._levels:
            node = np.minimum(places // length, number)
            if length <= separation:
                total += (node < number).sum(axis=1)
                continue
            inside = (rows * (number + 1) + node).ravel()
            held = np.bincount(inside.astype(np.intp), minlength=len(places) * (number + 1)).astype(np.int64)
            total += (held.reshape(-1, number + 1)[:, :number] ** 2).sum(axis=1)
        return total


def _level(length: int, number: int, separation: int, count: int) -> int:
    """At least the sum of c_v^2 over the `number` nodes of one level, over all patterns."""
    in_one = min(count, -(-length // separation))
    full, rest = divmod(min(count, -(-length * number // separation)), in_one)
    most = min(full, number) * in_one**2 + (rest**2 if full < number else 0)
    if length < separation or length % separation == 0 or number > _MOST_NODES:
        return most
    offsets, best = np.arange(separation, dtype=np.int64), np.zeros(separation, dtype=np.int64)
    room = (length - 1 - offsets) // separation + 1
    after = np.clip(offsets + room * separation - length, 0, separation - 1)
    for _ in range(number):
        # One fewer than there is room for leaves the next node free from its first step on, and so do even fewer.
        best = np.maximum(room**2 + best[after], (room - 1) ** 2 + best[0])
    return min(int(best[0]), most)
