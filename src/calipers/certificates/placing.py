"""Where a PLD has its nodes, and how finely it is composed. Nothing here can make a certificate wrong, only loose.

Splitting over cells of width h moves epsilon by about T theta h^2 / 12 with theta the saddle point, about 2
log(1/delta) / epsilon. Cells may be wider where one step's log ratio is large and rare: a constant share of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from calipers_verify.stop_loss import ball, rounded_up

GROWTH = 0.01
"""Width of a cell as a share of its distance from 0."""

StopLoss = Callable[[Fraction], arb]


def saddle(epsilon: float, delta: float) -> float:
    """About the theta at which E[L^theta] decides delta."""
    return max(1.0, 2.0 * math.log(1.0 / delta) / max(epsilon, 1e-3))


def spacing_for(epsilon: float, delta: float, steps: int, share: float) -> Fraction:
    """A power of two for which splitting moves epsilon by about `share` of it."""
    width = math.sqrt(12.0 * share * max(epsilon, 1e-3) / (steps * saddle(epsilon, delta)))
    return Fraction(2) ** math.floor(math.log2(min(width, 0.25)))


def places_between(low: int, high: int, growth: float = GROWTH, widest: int = 1 << 60) -> list[int]:
    """Places from `low` to `high`: all of them near 0, and then gaps of `growth` times the distance up to `widest`."""

    def side(end: int) -> list[int]:
        found, at = [], 0
        while at < end:
            at = min(end, at + max(1, min(widest, int(growth * at))))
            found.append(at)
        return found

    below = [-place for place in reversed(side(max(0, -low)))]
    middle = [0] if low <= 0 <= high else []
    return [place for place in (*below, *middle, *side(max(0, high))) if low <= place <= high]


def reach(stop_loss: StopLoss, spacing: Fraction, small: Fraction) -> tuple[int, int]:
    """Places between which a step has all but `small` of its mass: the stop-loss transform above, the put below."""
    bound = ball(small)

    def far(put: bool) -> int:
        def beyond(place: int) -> bool:
            x = (-place if put else place) * spacing
            excess = stop_loss(x) - (1 - ball(x).exp() if put else 0)
            return bool(excess <= bound)

        high = 1
        while not beyond(high):
            high *= 2
        low = high // 2
        while high - low > max(1, low // 64):
            middle = (low + high) // 2
            low, high = (low, middle) if beyond(middle) else (middle, high)
        return high

    return -far(True), far(False)


def pmf_record(stop_loss: StopLoss, places: list[int], spacing: Fraction) -> dict[str, object]:
    """The PLD that connects the stop-loss transforms at the places: P-masses, rounded up."""
    ratios = [ball(place * spacing).exp() for place in places]
    heights = [stop_loss(place * spacing) for place in places]
    falls = [(1 - heights[0]) / ratios[0]]
    for i in range(len(places) - 1):
        falls.append((heights[i] - heights[i + 1]) / (ratios[i + 1] - ratios[i]))
    falls.append(arb(0))
    masses = [max(0, rounded_up(k * (a - b))) + 1 for k, a, b in zip(ratios, falls[:-1], falls[1:], strict=True)]
    return {"places": places, "masses": masses, "infinity": max(0, rounded_up(heights[-1])) + 1}
