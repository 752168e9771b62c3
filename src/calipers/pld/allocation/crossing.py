"""Where a profile passes delta: the smallest epsilon at which proven values are at most delta.

Values take long to compute, rough ones less than fine ones. With u = sqrt(log(value at 0) - log(value)), which is
nearly linear in epsilon where noise is what hides a record, a few rough values say about where to look. Fine values are
then asked for at both ends of a *cell*, a fixed interval of epsilons. The true divergence is convex in e^epsilon, so in
between it lies below their chord, and where that passes delta is an answer. Cells do not depend on where the search
began, so neither does the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

CELL = 0.002
"""Width of a cell, as a share of epsilon: the chord is less than 2e-5 of epsilon beyond the profile."""
_NEAR, _VERY_NEAR = 0.15, 0.02
"""Of epsilon: so near to two values, or to one of them, nobody need look again."""
_LOOKS, _ENDS = 12, 16
"""Steps of the search for a crossing, and ends of cells that are evaluated, at most: more only cost time."""


class Crossing:
    """A search for where a profile that begins at e^log_start > delta passes delta, no later than at `most`."""

    def __init__(self, log_start: float, delta: float, most: float) -> None:
        self._log_start, self._delta, self._most = log_start, delta, most
        self._known, self._slope = {0.0: 0.0}, math.inf

    def _bent(self, log_value: float) -> float:
        return math.sqrt(max(self._log_start - log_value, 0.0))

    def passed(self, rough: Callable[[float], float], guess: float) -> float:
        """About where it passes delta, after as many looks at its logarithm as are needed, the first at the guess."""
        found, near = guess, False
        for _ in range(_LOOKS):
            if near:
                break
            self._known[found] = self._bent(rough(found))
            found, near = self._on_line()
        return found

    def _on_line(self) -> tuple[float, bool]:
        """Where a line through the two epsilons that say most passes delta, and whether they are near to that."""
        target = self._bent(math.log(self._delta))
        before = sorted(epsilon for epsilon, u in self._known.items() if u < target)
        after = [epsilon for epsilon, u in self._known.items() if u >= target and epsilon > before[-1]]
        first, last = (before[-1], min(after)) if after else (before[-2], before[-1])
        farthest = last if after else self._most
        slope = (self._known[last] - self._known[first]) / (last - first)
        self._slope = slope if slope > 0.0 else target / self._most
        found = last + (target - self._known[last]) / self._slope
        found = found if found < farthest else 0.5 * (last + farthest)
        distances = abs(first - found), abs(last - found)
        return found, max(distances) <= _NEAR * found or min(distances) <= _VERY_NEAR * found

    def moved(self, epsilon: float, value: float) -> float:
        """About where a profile with another value there passes delta."""
        away = self._bent(math.log(self._delta)) - self._bent(math.log(max(value, 1e-300)))
        return min(max(epsilon + away / self._slope, 0.5 * epsilon), self._most)

    def proven(self, fine: Callable[[float], tuple[float, float]], guess: float) -> float:
        """At least the smallest epsilon with divergence at most delta, by proven nodes of neighboring epsilons."""
        delta, end = self._delta, round(math.log(guess) / CELL)
        low, high = -math.inf, math.inf  # ends of cells: the last one above delta, and the first one that is not
        known: dict[float, tuple[float, float]] = {}
        while high - low > 1 and len(known) < _ENDS:
            node, value = known[end] = fine(math.exp(CELL * end))
            low, high = (low, end) if value <= delta else (end, high)
            if len(known) > 1:  # two values say more about the slope than what was known
                (first, above), (last, below) = min(known.values()), max(known.values())
                rise = self._bent(math.log(max(below, 1e-300))) - self._bent(math.log(max(above, 1e-300)))
                self._slope = rise / (last - first) if rise > 0.0 else self._slope
            following = math.log(max(self.moved(node, value), 1e-300)) / CELL
            end = max(math.floor(following), end + 1) if value > delta else min(math.ceil(following), end - 1)
            end = int(min(max(end, low + 1), high - 1))
        if high - low > 1:
            return min([self._most, *(node for node, value in known.values() if value <= delta)])
        return min(self._most, _on_chord(known[low], known[high], delta))


def _on_chord(first: tuple[float, float], last: tuple[float, float], delta: float) -> float:
    """Where the chord in e^epsilon between two nodes, above delta and not, is delta; rounded up."""
    share = (delta - last[1]) / (first[1] - last[1])
    far, near = math.expm1(last[0]), math.expm1(first[0])
    return min(last[0], math.log1p(far - share * (far - near)) * (1.0 + 1e-12))
