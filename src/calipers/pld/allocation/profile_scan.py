"""Looking at a profile from epsilon = 0 outward, at several neighboring epsilons at a time.

What is found at an epsilon must be resolved deeper than its own value, which is known only afterwards: the values
before it say about how deep to look, and whoever looked in vain looks again. Every PLD looks for itself: what
it says does not depend on which were made before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from calipers.numerics.normal import normal_tail_quantile

_FIRST, _SPAN = 8, 7.0
"""How many epsilons are looked at together at most until it is known how fast values fall, and how far apart: sums that
share a multi-resolution grid have to be alike."""
_DEPTH_STEP = 6.0
"""Depths come in steps."""
_BELOW = 18.0
"""How much deeper than the depth of a PLD its last values are resolved at most."""

_GROWTH = 0.58
"""Times the gap: the share of epsilon to which gaps may grow, as long as that is small against one release's shift, the
width of the far tail."""

T = TypeVar("T")


@dataclass
class ProfileScan(Generic[T]):
    """What `query` finds at (epsilons, depth) for one PLD.

    `worth` is the logarithm of the value of what was found at an epsilon, about `first` at the first of them; it is
    resolved if the depth was `cut` below it. `together`: so many are looked at at a time, `deeper` than seems to be
    needed where that costs less than to look again.
    """

    query: Callable[[Sequence[float], float], Sequence[T]]
    worth: Callable[[float, T], float]
    first: float
    cut: float
    together: int = 24
    deeper: float = 6.0
    _known: dict[float, tuple[T, float, float]] = field(default_factory=dict)

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
        at, stride, fall = 0, 1, 0.0
        before, last = (0.0, self.first) if start is None else start
        while at < len(epsilons) and (last > end or (at == 0 and start is None)):
            some = epsilons[at : at + stride * (self.together if at else min(_FIRST, self.together)) : stride]
            # No farther than where it would pass the end at this pace.
            reached = sum(last - fall * (epsilon - before) > end for epsilon in some) + 1
            some = [epsilon for epsilon in some[:reached] if epsilon <= some[0] + _SPAN]
            self._find(some, last - fall * (some[-1] - before), log_tail - _BELOW)
            if at or start is not None:
                fall = max(0.0, last - self._known[some[0]][1]) / (some[0] - before)
            for epsilon in some:
                yield epsilon, self._known[epsilon][0]
                last = self._known[epsilon][1]
                if last <= end:
                    return
            if len(some) > 1:
                fall = max(0.0, self._known[some[0]][1] - last) / (some[-1] - some[0])
            before = some[-1]
            at += stride * len(some) - stride
            stride = 2 if last < far else 1
            at += stride

    def _find(self, epsilons: Sequence[float], expected: float, deepest: float) -> None:
        missing = [epsilon for epsilon in epsilons if not self._resolved(epsilon, deepest)]
        while missing:
            depth = max(deepest, _DEPTH_STEP * math.floor((expected - self.cut - self.deeper) / _DEPTH_STEP))
            for epsilon, found in zip(missing, self.query(missing, depth), strict=True):
                self._known[epsilon] = found, self.worth(epsilon, found), depth
            missing = [epsilon for epsilon in missing if not self._resolved(epsilon, deepest)]
            expected = min([depth, *(self._known[epsilon][1] for epsilon in missing)])

    def _resolved(self, epsilon: float, deepest: float) -> bool:
        if epsilon not in self._known:
            return False
        _, value, depth = self._known[epsilon]
        return depth <= deepest or value > depth + self.cut - _DEPTH_STEP


def deviation_of(start: float) -> float:
    """Of log L, if the divergence at 0 is `start`."""
    return 2.0 * float(normal_tail_quantile(0.5 * max(1.0 - start, 1e-12)))


def scan_epsilons(deviation: float, shift: float, gap: float, last: float, growth: float = _GROWTH) -> list[float]:
    """About where the nodes of a profile are to be, up to the last or one beyond it."""
    epsilons = [0.0]
    while epsilons[-1] < last:
        epsilons.append(epsilons[-1] + gap * max(deviation, min(growth * epsilons[-1], shift)))
    return epsilons
