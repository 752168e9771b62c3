"""How many steps of each kind a budget holds, and costs that treat the kinds of a menu evenly.

Equal shares of epsilon at the target: with n_m steps of kind m alone meeting (epsilon, delta), the cost of a step is
proportional to 1 / n_m, rounded to whole units. Where thousands of steps fit, a step is paid in blocks: the first of
g_m pays for all of them. Nothing here is certified, and nothing depends on it but how much a
menu allows: whatever the costs are, the budget is found by the certified recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.fft

from calipers.adaptive.kernel import upper_block
from calipers.adaptive.solver import PRECISION, Menu
from calipers.adaptive.steps import StepPairs
from calipers.numerics.fourier import fast_length

MOST_UNITS = 12
MOST_LEVELS = 5_200
"""Units of the cheapest step, and of all its steps together, at most: more round costs less, and take longer."""
CLOSE = 0.05
"""Units are enough when costs are proportional to 1 / n_m but for this share."""
MOST_STEPS = 10**9
MANY_STEPS, BLOCKS = 4_000, 1_000
"""Where more steps of a kind than this meet a target, about so many blocks of that kind do: the last block of each kind
may be paid in vain, a thousandth of the budget."""


def steps_alone(pairs: StepPairs, epsilon: float, delta: float) -> int:
    """About how many steps of one kind meet the target, if their number is fixed in advance; 0 if not even one does."""
    menu = Menu((pairs,), (1,))
    return min(_alone(menu, epsilon, delta, reverse) for reverse in menu.directions)


def _alone(menu: Menu, epsilon: float, delta: float, reverse: bool) -> int:
    loss = menu.losses(reverse)[0]
    step = loss.deviation / PRECISION.finest
    pmfs = [(menu.upper_pmf(s, reverse), n) for s, n in menu.steps[0].dominating[0]]
    kernel = upper_block(pmfs, step, math.exp(PRECISION.log_tail))
    # Sums of losses beyond half of this window on either side wrap around; they are rarer than delta by far.
    back = min(-kernel.low * step, 4.0 + epsilon)
    window = 4.0 * epsilon + 2.0 * loss.far + 40.0 * math.sqrt(loss.variance) + 2.0 * back
    length = fast_length(math.ceil(window / step))
    around = np.zeros(length)
    places = np.maximum(np.arange(kernel.low, kernel.high + 1), -(length // 8))  # further left they would wrap around
    np.add.at(around, places % length, kernel.masses)
    spectrum = scipy.fft.rfft(around)
    loss_at = step * ((np.arange(length) + length // 2) % length - length // 2)
    weight = np.maximum(-np.expm1(epsilon - np.maximum(loss_at, epsilon)), 0.0)

    def met(steps: int) -> bool:
        found = float(np.sum(scipy.fft.irfft(spectrum**steps, length) * weight))
        return found + steps * kernel.p_inf <= delta

    return _largest(met)


def _largest(met: Callable[[int], bool]) -> int:
    """The largest number that is met, found by doubling and halving."""
    if not met(1):
        return 0
    high = 2
    while high < MOST_STEPS and met(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if met(middle) else (low, middle)
    return low


def block_sizes(alone: Sequence[int]) -> tuple[int, ...]:
    """How many steps of each kind are paid at once: 1 unless thousands of some kind meet the target."""
    if max(alone) <= MANY_STEPS:
        return (1,) * len(alone)
    return tuple(max(1, number // BLOCKS) for number in alone)


def equal_shares(alone: Sequence[int]) -> tuple[int, ...]:
    """Whole costs about proportional to 1 / n_m: of the units allowed the fewest that round evenly to `CLOSE`.

    Costs are rounded to the nearest whole number; the recursion finds the budget for the costs as they are.
    """
    ratios = [max(1, *alone) / max(1, number) for number in alone]

    def costs(units: int) -> list[int]:
        return [max(1, round(units * ratio)) for ratio in ratios]

    def uneven(units: int) -> float:
        shares = [cost / ratio for cost, ratio in zip(costs(units), ratios, strict=True)]
        return max(shares) / min(shares) - 1.0

    allowed = range(1, max(1, min(MOST_UNITS, MOST_LEVELS // max(1, *alone))) + 1)
    units = next((u for u in allowed if uneven(u) <= CLOSE), None) or min(allowed, key=uneven)
    return tuple(costs(units))
