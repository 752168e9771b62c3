"""One step of a menu as masses on the lattice h Z of log likelihood ratios, rounded to a side.

Both kernels are about an ordered pair (P, Q), L = dP/dQ.

- `upper_kernel`: P-masses of a law that dominates the step. Every atom of the step's UPPER law is split onto the two
  lattice points around it so that its P-mass and its Q-mass stay what they are: a mean preserving spread of L, hence
  an upper bound for every convex function of L.
- `lower_kernel`: P- and Q-masses of the integer score round(log L / h) of the step's LOWER law. The score is something
  the adversary can compute, so whatever is done with it is an attack.

A block of several steps is the convolution of their kernels. What lies beyond the ends of a kernel is moved in the
safe direction: in an upper kernel to L = infinity and to the lowest lattice point kept; in a lower kernel it is an
outcome on which the adversary gives up (neither mass counts), or claims P where Q has no mass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.errors import UnsupportedError
from calipers.laws.composed.lattice import split_law, weighted_counts
from calipers.laws.core.law import Law
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray, IntArray

MOST_CELLS = 200_000
"""A kernel with more lattice points is refused: so little noise, or so fine a lattice, says nothing anybody needs."""

MOST_REACH = 600.0
"""Likelihood ratios beyond e^600 leave the range of double precision."""


@dataclass(frozen=True, eq=False)
class UpperKernel:
    """P-masses at lattice points `low`, `low` + 1, ... of a law that dominates one step.

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


def upper_kernel(law: Law, step: float) -> UpperKernel:
    """The P-masses of an UPPER law split onto step Z; at least those of a law that dominates it."""
    if law.reach > MOST_REACH:
        raise UnsupportedError(
            f"Log likelihood ratios of one step of the menu reach {law.reach:.0f}, beyond {MOST_REACH:g}: such a step "
            "hides nothing. Use a larger noise_multiplier."
        )
    measure = split_law(law, step, 1.0)
    error = law.rounding + 64.0 * UNIT_ROUNDOFF * (2.0 + law.reach)
    # Where between two lattice points an atom lies is rounded by a share of its log ratio.
    shift = law.shift_error + 8.0 * UNIT_ROUNDOFF * (1.0 + law.reach)
    low, masses = _placed(measure.positions, measure.weights * (math.exp(measure.log_norm) * (1.0 + error)))
    return UpperKernel(low, masses, min(1.0, law.p_inf * (1.0 + error)), shift)


def lower_kernel(law: Law, step: float) -> LowerKernel:
    """The scores round(log L / step) of a LOWER law; P-masses at most, Q-masses at least what the attack has."""
    scores = np.rint(law.log_ratio / step).astype(np.int64)
    error = law.rounding + 32.0 * UNIT_ROUNDOFF
    low, p = _placed(scores, np.exp(law.log_p) * (1.0 - error))
    _, q = _placed(scores, np.exp(law.log_q) * (1.0 + error))
    return LowerKernel(low, p, q, law.p_inf * (1.0 - error))


def _convolved(a: FloatArray, b: FloatArray, sign: float) -> FloatArray:
    """The convolution of non-negative masses, its rounding added (sign 1) or taken off (sign -1)."""
    terms = min(len(a), len(b))
    return np.asarray(np.convolve(a, b) * (1.0 + sign * 2.0 * UNIT_ROUNDOFF * (terms + 2.0)))


def _compose_upper(a: UpperKernel, b: UpperKernel, least: float) -> UpperKernel:
    """Both steps, one after the other; tails of P-mass at most `least` are moved in the safe direction."""
    p_inf = (a.p_inf + b.p_inf) * (1.0 + 4.0 * UNIT_ROUNDOFF)
    whole = UpperKernel(a.low + b.low, _convolved(a.masses, b.masses, 1.0), min(1.0, p_inf), a.shift + b.shift)
    return trimmed(whole, least)


def trimmed(kernel: UpperKernel, least: float) -> UpperKernel:
    """Tails of P-mass at most `least` moved to L = infinity and to the lowest point that is kept: it dominates."""
    masses, p_inf = kernel.masses, kernel.p_inf
    above = np.cumsum(masses[::-1])[::-1]
    below = np.cumsum(masses)
    last, first = int(np.sum(above > least)), int(np.sum(below <= least))
    if last < len(masses):
        p_inf += float(above[last]) * (1.0 + 1e-12)
    kept = masses[first:last].copy()
    if first > 0:
        kept[0] += float(below[first - 1]) * (1.0 + 1e-12)
    return UpperKernel(kernel.low + first, kept, min(1.0, p_inf), kernel.shift)


def _compose_lower(a: LowerKernel, b: LowerKernel, least: float) -> LowerKernel:
    """Both steps; scores with masses of at most `least` on both datasets are given up."""
    p, q = _convolved(a.p, b.p, -1.0), _convolved(a.q, b.q, 1.0)
    seen = np.flatnonzero(p + q > least)
    first, last = int(seen[0]), int(seen[-1]) + 1
    p_inf = (a.p_inf + b.p_inf * (1.0 - a.p_inf)) * (1.0 - 4.0 * UNIT_ROUNDOFF)
    return LowerKernel(a.low + b.low + first, p[first:last], q[first:last], p_inf)


def upper_block(kernels: Sequence[tuple[UpperKernel, int]], least: float) -> UpperKernel:
    """A block of steps, each with how often it is taken."""
    found: UpperKernel | None = None
    for kernel, count in kernels:
        power = kernel
        while count:
            if count & 1:
                found = power if found is None else _compose_upper(found, power, least)
            count >>= 1
            power = _compose_upper(power, power, least) if count else power
    assert found is not None
    return found


def lower_block(kernels: Sequence[tuple[LowerKernel, int]], least: float) -> LowerKernel:
    """The same for attacks."""
    found: LowerKernel | None = None
    for kernel, count in kernels:
        power = kernel
        while count:
            if count & 1:
                found = power if found is None else _compose_lower(found, power, least)
            count >>= 1
            power = _compose_lower(power, power, least) if count else power
    assert found is not None
    return found
