"""One step of a menu as masses on the lattice h Z of log likelihood ratios, rounded to a side.

Both kernels are about an ordered pair (P, Q), L = dP/dQ.

- `upper_kernel`: P-masses of a PLD that dominates the step. Every atom of the step's pessimistic PLD is split onto the
  two lattice points around it so that its P-mass and its Q-mass stay what they are: a mean preserving spread of L,
  hence an upper bound for every convex function of L.
- `lower_kernel`: P- and Q-masses of the integer score round(log L / h) of the step's optimistic PLD. The score is
  something the adversary can compute, so whatever is done with it is an attack.

A block of several steps is the convolution of their kernels, taken on a finer lattice that is doubled as
the deviation grows: an upper kernel is split onto every second point, as above, and a lower score is halved. So a block
of many steps needs a lattice no finer than its own deviation. What lies beyond the
ends of a kernel is moved in the safe direction: in an upper kernel to L = infinity and to the lowest lattice point
kept; in a lower kernel it is an outcome on which the adversary gives up (neither mass counts), or claims P where Q has
no mass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import scipy.fft

from calipers.errors import UnsupportedError
from calipers.numerics.fourier import UNIT_ROUNDOFF, fast_length, fft_relative_error, two_norm
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.composition.lattice import split_pmf, weighted_counts
from calipers.pld.core.pmf import PrivacyLossPmf

MOST_CELLS = 1_000_000
"""A kernel with more lattice points is refused: so little noise, or so fine a lattice, says nothing anybody needs."""

MOST_PRODUCTS = 3e7
"""From here on kernels are convolved by transforms: some 20 ms, and errors of about 1e-13 in all."""

FINE = 8.0
"""Lattice points in one deviation of what was composed so far of a block: each halving adds 0.3 % to the variance."""

MOST_REACH = 600.0
"""Likelihood ratios beyond e^600 leave the range of double precision."""


K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class UpperKernel:
    """P-masses at lattice points `low`, `low` + 1, ... of a PLD that dominates one step.

    `p_inf`: P-mass where Q has none. `shift`: log L may be larger than its lattice point says by at most this much;
    `UpperLevels` adds it to epsilon, once for every step. Errors of the masses are added to them.
    """

    low: int
    masses: FloatArray
    p_inf: float
    shift: float

    @property
    def high(self) -> int:
        """The last lattice point."""
        return self.low + len(self.masses) - 1


@dataclass(frozen=True, eq=False)
class LowerKernel:
    """Masses of the scores `low`, `low` + 1, ... under P (rounded down) and under Q (rounded up)."""

    low: int
    p: FloatArray
    q: FloatArray
    p_inf: float

    @property
    def high(self) -> int:
        """The last score."""
        return self.low + len(self.p) - 1


def _placed(positions: IntArray, weights: FloatArray) -> tuple[int, FloatArray]:
    low = int(positions.min())
    size = int(positions.max()) - low + 1
    if size > MOST_CELLS:
        raise UnsupportedError(
            f"One step of the menu spreads over {size} lattice points, more than {MOST_CELLS}: its noise is too small "
            "compared with that of the other steps. Leave it out, or measure it in a run of its own."
        )
    return low, weighted_counts(positions - low, weights, size)


def upper_kernel(pmf: PrivacyLossPmf, step: float) -> UpperKernel:
    """The P-masses of a pessimistic PLD split onto step Z; at least those of a PLD that dominates it."""
    if pmf.reach > MOST_REACH:
        raise UnsupportedError(
            f"Log likelihood ratios of one step of the menu reach {pmf.reach:.0f}, beyond {MOST_REACH:g}: such a step "
            "hides nothing. Use a larger noise_multiplier."
        )
    measure = split_pmf(pmf, step, 1.0)
    error = pmf.rounding + 64.0 * UNIT_ROUNDOFF * (2.0 + pmf.reach)
    # Where between two lattice points an atom lies is rounded by a share of its log ratio.
    shift = pmf.shift_error + 8.0 * UNIT_ROUNDOFF * (1.0 + pmf.reach)
    low, masses = _placed(measure.positions, measure.weights * (math.exp(measure.log_norm) * (1.0 + error)))
    return UpperKernel(low, masses, min(1.0, pmf.p_inf * (1.0 + error)), shift)


def lower_kernel(pmf: PrivacyLossPmf, step: float) -> LowerKernel:
    """The scores round(log L / step) of an optimistic PLD; P-masses at most, Q-masses at least what the attack has."""
    scores = np.rint(pmf.log_ratio / step).astype(np.int64)
    error = pmf.rounding + 32.0 * UNIT_ROUNDOFF
    low, p = _placed(scores, np.exp(pmf.log_p) * (1.0 - error))
    _, q = _placed(scores, np.exp(pmf.log_q) * (1.0 + error))
    return LowerKernel(low, p, q, pmf.p_inf * (1.0 - error))


def _convolved(a: FloatArray, b: FloatArray) -> tuple[FloatArray, float]:
    """The convolution of non-negative masses, and a bound on the 2-norm of what a transform erred by (0 without one).

    Without a transform sums are rounded relatively, which is left to the caller.
    """
    if float(len(a)) * len(b) <= MOST_PRODUCTS:
        return np.asarray(np.convolve(a, b)), 0.0
    size = len(a) + len(b) - 1
    length = fast_length(size)
    found = scipy.fft.irfft(scipy.fft.rfft(a, length) * scipy.fft.rfft(b, length), length)[:size]
    # Each of the three transforms errs by this much relative to |a|_1 |b|_2, as in `calipers.adaptive.recursion`.
    error = 3.1 * fft_relative_error(length) * float(np.sum(a)) * two_norm(b) * (1.0 + 1e-9)
    return np.asarray(np.maximum(found, 0.0)), error


def _compose_upper(a: UpperKernel, b: UpperKernel, least: float) -> UpperKernel:
    """Both steps, one after the other; tails of P-mass at most `least` are moved in the safe direction."""
    masses, error = _convolved(a.masses, b.masses)
    rounding = 1.0 + 2.0 * UNIT_ROUNDOFF * (min(len(a.masses), len(b.masses)) + 2.0)
    # All of the error of a transform, in the sum of all points, is moved to L = infinity; tails as small are cut.
    error *= math.sqrt(len(masses))
    p_inf = (a.p_inf + b.p_inf + error) * (1.0 + 4.0 * UNIT_ROUNDOFF)
    whole = UpperKernel(a.low + b.low, masses * rounding, min(1.0, p_inf), a.shift + b.shift)
    return trimmed(whole, max(least, error))


def trimmed(kernel: UpperKernel, least: float) -> UpperKernel:
    """Tails of P-mass at most `least` moved to L = infinity and to the lowest point that is kept: it dominates."""
    masses, p_inf = kernel.masses, kernel.p_inf
    above = np.cumsum(masses[::-1])[::-1]
    below = np.cumsum(masses)
    last = max(1, int(np.sum(above > least)))
    first = min(last - 1, int(np.sum(below <= least)))
    if last < len(masses):
        p_inf += float(above[last]) * (1.0 + 1e-12)
    kept = masses[first:last].copy()
    if first > 0:
        kept[0] += float(below[first - 1]) * (1.0 + 1e-12)
    return UpperKernel(kernel.low + first, kept, min(1.0, p_inf), kernel.shift)


def _compose_lower(a: LowerKernel, b: LowerKernel, least: float) -> LowerKernel:
    """Both steps; scores with masses of at most `least` on both datasets are given up."""
    (p, p_error), (q, q_error) = _convolved(a.p, b.p), _convolved(a.q, b.q)
    rounding = 2.0 * UNIT_ROUNDOFF * (min(len(a.p), len(b.p)) + 2.0)
    p, q = np.maximum(p * (1.0 - rounding) - p_error, 0.0), q * (1.0 + rounding) + q_error
    seen = np.flatnonzero(p + q > least + 2.0 * q_error)
    first, last = int(seen[0]), int(seen[-1]) + 1
    p_inf = (a.p_inf + b.p_inf * (1.0 - a.p_inf)) * (1.0 - 4.0 * UNIT_ROUNDOFF)
    return LowerKernel(a.low + b.low + first, p[first:last], q[first:last], p_inf)


def _refined(pmfs: Sequence[tuple[PrivacyLossPmf, int]], step: float) -> tuple[float, list[int]]:
    """The lattice on which a block begins, and how often it is doubled after each doubling of the number of steps.

    It is never coarser than the deviation of what was composed so far over `FINE`, but for the last lattice, `step`.
    """
    doublings = max(n for _, n in pmfs).bit_length() - 1
    if doublings == 0:
        return step, [0]
    deviation = min(math.sqrt(pmf.cumulants(1.0)[2]) for pmf, _ in pmfs)
    halvings = max(0, math.ceil(math.log2(step * FINE / deviation)))
    fine = step / 2**halvings
    reached = [
        min(halvings, max(0, math.floor(math.log2(deviation * 2 ** (j / 2) / FINE / fine)))) for j in range(doublings)
    ]
    return fine, [b - a for a, b in pairwise([0, *reached[1:], halvings])] if doublings > 1 else [halvings]


def _halved_upper(kernel: UpperKernel, step: float) -> UpperKernel:
    """The kernel on every second point: the others are split so that P-mass and Q-mass stay what they are."""
    low, masses = kernel.low // 2, kernel.masses
    places = np.arange(kernel.low, kernel.low + len(masses))
    found = np.zeros((kernel.high + 1) // 2 - low + 1)
    odd = places % 2 == 1
    np.add.at(found, places[~odd] // 2 - low, masses[~odd])
    np.add.at(found, places[odd] // 2 - low, masses[odd] / (1.0 + math.exp(step)))
    np.add.at(found, places[odd] // 2 + 1 - low, masses[odd] / (1.0 + math.exp(-step)))
    return UpperKernel(low, found * (1.0 + 8.0 * UNIT_ROUNDOFF), kernel.p_inf, kernel.shift)


def _halved_lower(kernel: LowerKernel) -> LowerKernel:
    """The kernel of half the score, rounded."""
    scores = np.rint(0.5 * np.arange(kernel.low, kernel.low + len(kernel.p))).astype(np.int64)
    rounding = 4.0 * UNIT_ROUNDOFF
    low, p = _placed(scores, kernel.p * (1.0 - rounding))
    _, q = _placed(scores, kernel.q * (1.0 + rounding))
    return LowerKernel(low, p, q, kernel.p_inf)


def _block(parts: list[tuple[K, int]], plan: list[int], halve: Callable[[K, int], K], join: Callable[[K, K], K]) -> K:
    """So many of each, by doubling; `plan`: how often all are halved after each doubling.

    `halve` is given how often that was done before.
    """
    found: list[K] = []
    halved = 0
    for j in range(max(count for _, count in parts).bit_length()):
        for one, count in parts:
            if count >> j & 1:
                found = [join(found[0], one) if found else one]
        parts = [(join(one, one), count) for one, count in parts if count >> (j + 1)]
        for _ in range(plan[j] if j < len(plan) else 0):
            parts = [(halve(one, halved), count) for one, count in parts]
            found = [halve(one, halved) for one in found]
            halved += 1
    return found[0]


def upper_block(pmfs: Sequence[tuple[PrivacyLossPmf, int]], step: float, least: float) -> UpperKernel:
    """A block of steps, each PLD with how often it is taken, on the lattice `step`.

    Tails of P-mass at most `least` are moved in the safe direction, at each PLD and at each of the convolutions.
    """
    fine, plan = _refined(pmfs, step)
    small = least / max(n for _, n in pmfs)
    parts = [(trimmed(upper_kernel(pmf, fine), small), n) for pmf, n in pmfs]
    return _block(parts, plan, lambda one, k: _halved_upper(one, fine * 2**k), lambda a, b: _compose_upper(a, b, small))


def lower_block(pmfs: Sequence[tuple[PrivacyLossPmf, int]], step: float, least: float) -> LowerKernel:
    """The same for attacks."""
    fine, plan = _refined(pmfs, step)
    parts = [(lower_kernel(pmf, fine), n) for pmf, n in pmfs]
    return _block(parts, plan, lambda one, _: _halved_lower(one), lambda a, b: _compose_lower(a, b, least))
