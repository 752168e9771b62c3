"""Looking at a profile from epsilon = 0 outward.

What is found at an epsilon must be resolved deeper than its own value, which is known only afterwards: the values
before it say about how deep to look, and whoever looked in vain looks again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from calipers.numerics.normal import normal_tail_quantile

_DEPTH_STEP, _DEEPER = 6.0, 4.0
"""Depths come in steps, and are so much larger than seems to be needed."""
_BELOW = 18.0
"""How much deeper than the depth of a PLD its last values are resolved at most."""

_GROWTH = 0.85
"""Times the gap: the share of epsilon to which gaps may grow, as long as that is small against one release's shift, the
width of the far tail."""

T = TypeVar("T")


@dataclass(frozen=True)
class ProfileScan(Generic[T]):
    """What `query` finds at (epsilon, depth) for one PLD.

    `worth` is the logarithm of the value of what was found at an epsilon, about `first` at the first of them; it is
    resolved if the depth was `cut` below it.
    """

    query: Callable[[float, float], T]
    worth: Callable[[float, T], float]
    first: float
    cut: float

    def along(
        self,
        epsilons: Sequence[float],
        log_tail: float,
        end: float,
        far: float = -math.inf,
        start: tuple[float, float] | None = None,
    ) -> Iterator[tuple[float, T]]:
        """(epsilon, found) for each, or for every other one where values are below e^far; up to one below e^end.

        `start`: an epsilon before them, and the logarithm of its value, where that is known.
        """
        at, fall = 0, 0.0
        before, last = (0.0, self.first) if start is None else start
        while at < len(epsilons) and (last > end or (at == 0 and start is None)):
            epsilon = epsilons[at]
            found, value = self._find(epsilon, last - fall * (epsilon - before), log_tail - _BELOW)
            if at or start is not None:
                fall = max(0.0, last - value) / (epsilon - before)
            before, last = epsilon, value
            yield epsilon, found
            at += 2 if last < far else 1

    def _find(self, epsilon: float, expected: float, deepest: float) -> tuple[T, float]:
        while True:
            depth = max(deepest, _DEPTH_STEP * math.floor((expected - self.cut - _DEEPER) / _DEPTH_STEP))
            found = self.query(epsilon, depth)
            value = self.worth(epsilon, found)
            if depth <= deepest or value > depth + self.cut - _DEPTH_STEP:
                return found, value
            expected = min(depth, value)


def deviation_of(start: float) -> float:
    """Of log L, if the divergence at 0 is `start`."""
    return 2.0 * float(normal_tail_quantile(0.5 * max(1.0 - start, 1e-12)))


def scan_epsilons(deviation: float, shift: float, gap: float, last: float, growth: float = _GROWTH) -> list[float]:
    """About where the nodes of a profile are to be, up to the last or one beyond it."""
    epsilons = [0.0]
    while epsilons[-1] < last:
        epsilons.append(epsilons[-1] + gap * max(deviation, min(growth * epsilons[-1], shift)))
    return epsilons
