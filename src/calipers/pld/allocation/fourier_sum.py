"""Expected payoffs of sums of many terms by Fourier transforms, where they are not too small.

The recursion over rounds (`calipers.pld.allocation.recursion`) ends in sums of blocks. A transform has an absolute
error, but a *tilted* one has it where it is looked at: with W the PLD of a sum of M terms, w that of one on a lattice,
m(theta) = E[e^(theta X)] and V the M-fold product of w e^(theta x) / m,

    W(s) = m^M e^(-theta s) V(s),

so a sum of W with weights g errs by m^M |e^(-theta s) g|_2 times the error of V in the 2-norm, which
`calipers.numerics.fourier` bounds. Terms of two kinds are as good as terms of one.

The circle. V lives on a circle of n places, the *window* [A, R): what the sum does beyond appears inside. An expected
payoff, increasing and of slope at most one, lacks no more than payoff(A) P(S < A) and

    E[payoff(S); S > R] <= max(payoff(R), 1/t) e^(-t R) E[e^(t S)]       for every t > 0,

as payoff(R) + s - R <= max(payoff(R), 1/t) e^(t (s - R)) beyond R; what comes in only adds to it. Chernoff's bound
says where the window may end so that little comes in, and how much to tilt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.numerics.fourier import UNIT_ROUNDOFF, CyclicFactor, cyclic_product, fast_length, two_norm
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.allocation.multi_resolution import MultiResolutionSum

Payoff = Callable[[FloatArray], FloatArray]
LONGEST = 1 << 18
"""Places of a window at most."""
_RATES = 40
"""Rates at which Chernoff bounds are tried."""
_LARGEST_EXPONENT, _NO_BOUND = 400.0, 1e100
"""The largest exponent of a Chernoff bound that is tried, and what stands for a bound that no double holds."""
_MOST_ADDED = 8.1e-5
"""The share of an answer that may be added to it; where more would be, there is none."""
_DEEPER, _ASIDE, _DIGITS = 18.0, 26.0, 6.0
"""Logarithms: how much less than Chernoff's bound of the answer may lie beyond the window, how little of the tilted PLD
may come in, and how much more than the least Chernoff's bound at the tilt may be."""


@dataclass(frozen=True)
class RepeatedTerms:
    """`count` terms with masses at some places of a lattice, each known up to a relative `error`."""

    places: IntArray
    masses: FloatArray
    step: float
    error: float
    count: int

    @classmethod
    def of(cls, one: MultiResolutionSum, step: float, count: int) -> RepeatedTerms:
        """All levels of one term's multi-resolution grid on its finest lattice, whose places are to be `step` apart."""
        places = [(s.low + np.arange(s.rows.shape[1], dtype=np.int64)) << e for e, s in one.levels.items()]
        masses = np.concatenate([strip.rows[0] for strip in one.levels.values()])
        return cls(np.concatenate(places), masses, step, one.error, count)

    @property
    def values(self) -> FloatArray:
        """Where the masses stand."""
        return np.asarray(self.places * self.step, dtype=np.float64)


@dataclass(frozen=True)
class Outlook:
    """At least log E[e^(-t S)] and log E[e^(t S)] at some rates t > 0."""

    rates: FloatArray
    below: FloatArray
    above: FloatArray

    @classmethod
    def of(cls, parts: Sequence[RepeatedTerms]) -> Outlook:
        """Rates from those of the whole sum to those of one term."""
        values = [part.values for part in parts]
        spreads = (p.count * float(p.masses @ (v - p.masses @ v) ** 2) for p, v in zip(parts, values, strict=True))
        variance = math.fsum(spreads)
        # One side may reach much farther than the other: rates suit the shorter, and moments of the longer overflow.
        left, right = -min(float(v.min()) for v in values), max(float(v.max()) for v in values)
        first = min(0.05 / math.sqrt(max(variance, 1e-300)), 0.1 / max(left, right))
        rates = np.geomspace(first, _LARGEST_EXPONENT / max(min(left, right), parts[0].step), _RATES)
        sides = np.zeros((2, _RATES))
        for part, value in zip(parts, values, strict=True):
            exponents = np.outer(rates, value)
            for side, signed in zip(sides, (-exponents, exponents), strict=True):
                logs = np.log(np.maximum(np.exp(np.minimum(signed, 700.0)) @ part.masses, 1e-300))
                side += part.count * (np.where(signed.max(axis=1) > 700.0, _NO_BOUND, logs) + part.error + 2e-13)
        return cls(rates, sides[0], sides[1])

    def beyond(self, end: float, worth: float) -> float:
        """At least E[payoff(S); S > end] for a payoff of `worth` at the end and of slope at most one."""
        exponents = self.above - self.rates * end + np.log(np.maximum(worth, 1.0 / self.rates))
        return math.exp(min(float(exponents.min()), 600.0))

    def before(self, end: float) -> float:
        """At least P(S < end)."""
        return math.exp(min(float((self.below + self.rates * end).min()), 0.0))


@dataclass(frozen=True)
class CyclicWindow:
    """Places first, first + 1, ... of the circle, and the tilt."""

    first: int
    size: int
    tilt: float


def chosen_window(outlook: Outlook, step: float, threshold: float, everywhere: bool) -> CyclicWindow | None:
    """Where the sum is to be known for a stop-loss transform at the threshold, the shorter of two; None where both are
    too long.

    The tilt with the least bound keeps most digits; the least tilt that costs few of them makes what is heavy beyond
    the window no heavier than it must. `everywhere`: the payoff is not 0 below the threshold.
    """
    stop_losses = outlook.above - outlook.rates * threshold - np.log(outlook.rates) - 1.0
    least, little = int(np.argmin(stop_losses)), int(np.flatnonzero(stop_losses <= stop_losses.min() + _DIGITS)[0])
    allowed = float(stop_losses[least]) - _DEEPER
    found = [_window(outlook, step, threshold, best, allowed, everywhere) for best in sorted({least, little})]
    window = min(found, key=lambda each: each.size)
    return None if window.size > LONGEST else window


def _window(
    outlook: Outlook, step: float, threshold: float, best: int, allowed: float, everywhere: bool
) -> CyclicWindow:
    """With the tilt of this number."""
    rates, above, below = outlook.rates, outlook.above, outlook.below
    tilt, norm = float(rates[best]), float(above[best])
    right = threshold + 1.0 / tilt
    for _ in range(2):
        right = float(np.min((above + math.log(max(right - threshold, step)) - allowed) / rates))
        right = max(right, threshold + 1.0 / tilt + 4.0 * step)
    moved = rates - tilt
    before = np.where(moved < 0.0, np.interp(-moved, rates, above), np.interp(moved, rates, below))
    left = min(float(np.max((norm - before - _ASIDE) / rates)), threshold - 4.0 * step)
    # Sums beyond the right end come back on the left, with larger weights: they had better not pass the threshold.
    farthest = float(np.min((above[best + 1 :] - norm + _ASIDE) / moved[best + 1 :], initial=math.inf))
    if everywhere:
        left = min(left, float(np.max((allowed - below) / rates)))
        size = (max(right, farthest) - left) / step
    else:
        size = max(right - left, farthest - threshold) / step
    if size > LONGEST:
        return CyclicWindow(0, LONGEST + 1, tilt)
    return CyclicWindow(math.floor(left / step), fast_length(math.ceil(size) + 2), tilt)


def tilted_pmf(parts: Sequence[RepeatedTerms], window: CyclicWindow) -> tuple[FloatArray, float, float]:
    """V on the window, the 2-norm of its error, and log of the moments m^M."""
    factors, log_moment = [], 0.0
    for part in parts:
        exponents = window.tilt * part.values
        peak = float(exponents.max())
        tilted = part.masses * np.exp(exponents - peak)
        mass = float(tilted.sum())
        folded = np.asarray(
            np.bincount((part.places % window.size).astype(np.intp), tilted / mass, window.size), dtype=np.float64
        )
        factors.append(CyclicFactor((folded,), part.count))
        log_moment += part.count * (math.log(mass) + peak)
    product, error = cyclic_product(factors)
    # Place 0 of the circle is place 0 of the lattice: turn it to begin at the first place of the window.
    return np.roll(product, -(window.first % window.size)), error, log_moment


def payoff_by_fourier(
    parts: Sequence[RepeatedTerms], payoff: Payoff, threshold: float, everywhere: bool = False
) -> float | None:
    """At least E[payoff(S)] for an increasing payoff of slope at most one that bends about the threshold.

    S is the sum of all terms, on one lattice. None where too much would be added, or the window is too long.
    `everywhere`: the payoff is not 0 below the threshold.
    """
    outlook, step = Outlook.of(parts), parts[0].step
    window = chosen_window(outlook, step, threshold, everywhere)
    if window is None:
        return None
    pmf, error, log_moment = tilted_pmf(parts, window)
    sums = np.asarray((window.first + np.arange(window.size)) * step, dtype=np.float64)
    worth = payoff(sums)
    exponents = log_moment - window.tilt * sums
    if float(exponents.max()) > 300.0:
        return None
    weights = worth * np.exp(exponents)
    found = float(pmf @ weights)
    noise = (error + 8.0 * UNIT_ROUNDOFF * two_norm(pmf)) * two_norm(weights)
    right = outlook.beyond(float(sums[-1]), float(worth[-1]))
    left = float(worth[0]) * outlook.before(float(sums[0]))
    polluted = 2.0 * math.exp(-_ASIDE) * float(weights.max())  # about what comes in from beyond: no charge, but a loss
    if not noise + right + left + polluted <= _MOST_ADDED * found:
        return None
    # Masses, moments and exponents: a few units in the last place of numbers of this size, once for every term. What
    # underflows on the circle is far below the error of a transform.
    rounding = math.fsum(
        p.count * (p.error + 1e-15 * (16.0 + window.tilt * float(np.max(np.abs(p.values))))) for p in parts
    )
    rounding += 4e-16 * (float(np.max(np.abs(exponents))) + window.tilt * float(np.max(np.abs(sums))) + window.size)
    return (found + noise + right + left) * math.exp(rounding)
