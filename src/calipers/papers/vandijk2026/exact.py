"""What the paper bounds, itself: the advantage of the isolated view, from both sides.

One epoch of M rounds shows the mean of M independent likelihood ratios (`calipers.pld.allocation.average`), E epochs
the product of E such pairs. The paper's delta, the largest distance of the trade-off curve below 1 - a, is the
advantage (total variation, delta at epsilon = 0) of that pair: f(a) >= 1 - a - delta for all a exactly when the
advantage is at most delta. The bounds below are a bracket of it.

**Rounds.** The mean of M + 1 independent copies is the average, over which copy is left out, of means of M. By Jensen
it is below them in convex order, and products keep that order: the advantage never grows with M. So there is a fewest
M for a given delta, and it lies above every M whose lower bound exceeds delta and at or below every M whose upper bound
does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from scipy.special import erf, erfinv

from calipers.citations import implements
from calipers.errors import CertificationError
from calipers.papers.items import NumberPair, bounds_of
from calipers.pld.allocation.average import FINEST_RESOLUTION, AllocationPair
from calipers.pld.composition.product import Product

TOLERANCE = 4e-5
QUICK_TOLERANCE = 1e-3
"""Relative width aimed for where many advantages are needed: rounds come out to about 0.1 percent."""


@cache
def profile(noise_multiplier: float, rounds: int, epochs: int, epsilon: float, tolerance: float) -> NumberPair:
    """(lower, upper) of delta(epsilon) of `epochs` epochs in the isolated view, the larger of both directions."""
    return bounds_of(Product([(AllocationPair(noise_multiplier, rounds), epochs)]).delta(epsilon, tolerance))


@cache
def advantage(noise_multiplier: float, rounds: int, epochs: int = 1, tolerance: float = TOLERANCE) -> NumberPair:
    """(lower, upper) of the advantage: the smallest delta with f(a) >= 1 - a - delta for all a.

    `tolerance` is the relative width aimed for. One epoch is read off its two distributions: at epsilon = 0 both
    directions are the total variation, so one of them is enough.
    """
    if epochs > 1:
        return profile(noise_multiplier, rounds, epochs, 0.0, tolerance)
    pair = AllocationPair(noise_multiplier, rounds)
    # The bracket closes like the square of the resolution, with a factor of about a tenth.
    resolution = min(0.2, max(FINEST_RESOLUTION, math.sqrt(10.0 * tolerance)))
    return pair.lower(resolution).delta(0.0), pair.upper(resolution).delta(0.0)


def limit_mu(noise_multiplier: float, rounds: int, epochs: int) -> float:
    """sqrt(E (e^(1/sigma^2) - 1) / M), the mu of Theorem 5.2 for E epochs: a limit, no bound."""
    return math.sqrt(epochs * math.expm1(noise_multiplier**-2) / rounds)


def limit_advantage(noise_multiplier: float, rounds: int, epochs: int = 1) -> float:
    """2 Phi(mu/2) - 1 for the mu of Theorem 5.2: what the advantage tends to, no bound."""
    return float(erf(limit_mu(noise_multiplier, rounds, epochs) / math.sqrt(8.0)))


def limit_rounds(delta: float, noise_multiplier: float, epochs: int = 1) -> float:
    """The M at which `limit_advantage` equals delta: about E (e^(1/sigma^2) - 1) / (2 pi delta^2), no bound."""
    mu = math.sqrt(8.0) * float(erfinv(delta))
    return epochs * math.expm1(noise_multiplier**-2) / mu**2


@cache
@implements("calipers:advantage-falls-with-rounds")
def fewest_rounds(
    delta: float, noise_multiplier: float, epochs: int = 1, tolerance: float = TOLERANCE
) -> tuple[int, int]:
    """(low, high) with low <= M <= high for the fewest rounds M whose advantage after `epochs` is at most delta."""
    guess = max(2, round(limit_rounds(delta, noise_multiplier, epochs)))
    for _ in range(6):
        lower, upper = advantage(noise_multiplier, guess, epochs, tolerance)
        # The advantage falls like 1/sqrt(M) in the limit, so this is nearly a Newton step.
        better = max(2, round(guess * (0.5 * (lower + upper) / delta) ** 2))
        if abs(better - guess) <= (upper - lower) / upper * guess:
            break
        guess = better
    step = max(1, math.ceil((upper - lower) / upper * guess))
    too_few = _walk(guess, -step, lambda rounds: advantage(noise_multiplier, rounds, epochs, tolerance)[0] > delta)
    enough = _walk(guess, step, lambda rounds: advantage(noise_multiplier, rounds, epochs, tolerance)[1] <= delta)
    return too_few + 1, enough


def _walk(start: int, step: int, arrived: Callable[[int], bool]) -> int:
    """The first of start, start + step, start + 2 step, ... at which `arrived` holds."""
    for count in range(40):
        if start + count * step < 1:
            break
        if arrived(start + count * step):
            return start + count * step
    raise CertificationError(f"No number of rounds near {start} decides the question; ask for a smaller tolerance.")
