"""The PLD of the likelihood ratio of a pair of distributions, as finitely many atoms.

For privacy a pair (P, Q) is one object: the PLD of `L = dP/dQ` under Q, plus the P-mass where
Q = 0 ("L = infinity"). The profile of the pair is a stop-loss transform on L,

    D_k(P||Q) = E_Q[(L - k)+] + P(L = inf),      k = e^eps,

and the profile of the swapped pair is a put. One pair dominates another at every eps exactly
when its L is larger in convex order, so rounding L has a direction. A `PrivacyLossPmf` carries it:

- Side.UPPER: the atoms dominate the truth. Every atom satisfies p = e^x q exactly.
- Side.LOWER: the atoms are the image of the truth under some observation, hence dominated.

What happens to a mechanism is an operation on PLDs: swapping the datasets reverses the PLD,
Poisson subsampling maps L to 1 - r + r L, revealing an index mixes PLDs, composition multiplies
independent ratios (`calipers.pld.composition.product`). All of them respect the convex order, so the side
survives, and mixing sides raises.

Floating point. `mass_error` bounds the relative error of every stored mass, `shift_error` the
absolute error of every stored log ratio. Both are added where a number leaves this room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from calipers.bracket import Side
from calipers.domains import PROBABILITY, REAL
from calipers.errors import InputError
from calipers.numerics.types import FloatArray

ATOM_ROUNDING = 4e-15
"""Relative error of a mass that went through a handful of elementary operations."""


def in_order(log_ratio: FloatArray, log_p: FloatArray, log_q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Atoms by increasing ratio."""
    order = np.argsort(log_ratio, kind="stable")
    return log_ratio[order], log_p[order], log_q[order]


@dataclass(frozen=True, eq=False)
class PrivacyLossPmf:
    """Atoms of a likelihood ratio: log masses under P and under Q, sorted by log ratio."""

    log_ratio: FloatArray
    log_p: FloatArray
    log_q: FloatArray
    side: Side
    p_inf: float = 0.0
    q_zero: float = 0.0
    mass_error: float = ATOM_ROUNDING
    shift_error: float = 0.0

    def __post_init__(self) -> None:
        sizes = {len(self.log_ratio), len(self.log_p), len(self.log_q)}
        if len(sizes) != 1:
            raise InputError(
                f"A privacy loss distribution needs equally many ratios and masses, got sizes {sorted(sizes)}."
            )
        for name, array in (("log_ratio", self.log_ratio), ("log_p", self.log_p), ("log_q", self.log_q)):
            if not np.all(np.isfinite(array)):
                raise InputError(f"{name} must be finite; put mass at L = 0 or infinity into q_zero and p_inf.")
        if np.any(np.diff(self.log_ratio) < 0):
            raise InputError("Atoms must be sorted by log_ratio.")
        if self.side is Side.UPPER:
            off = np.abs(self.log_p - self.log_q - self.log_ratio)
            if np.any(off > 1e-9 * (1.0 + np.abs(self.log_p))):
                raise InputError("An UPPER privacy loss distribution needs log_p = log_q + log_ratio at every atom.")
        PROBABILITY.check("p_inf", float(self.p_inf))
        PROBABILITY.check("q_zero", float(self.q_zero))

    @classmethod
    def dominating(
        cls,
        log_ratio: FloatArray,
        log_q: FloatArray,
        *,
        p_inf: float,
        q_zero: float,
        mass_error: float = ATOM_ROUNDING,
        shift_error: float = 0.0,
    ) -> PrivacyLossPmf:
        """The pessimistic PLD with these ratios and Q-masses: its P-masses are their products."""
        return cls(log_ratio, log_q + log_ratio, log_q, Side.UPPER, p_inf, q_zero, mass_error, shift_error)

    @classmethod
    def observed(
        cls, log_p: FloatArray, log_q: FloatArray, mass_error: float, shift_error: float = 0.0
    ) -> PrivacyLossPmf:
        """The optimistic PLD of an observation whose values have these masses; what only one of both shows is left
        out.
        """
        both = np.isfinite(log_p) & np.isfinite(log_q)
        atoms = in_order(log_p[both] - log_q[both], log_p[both], log_q[both])
        return cls(*atoms, Side.LOWER, mass_error=mass_error, shift_error=shift_error)

    @property
    def rounding(self) -> float:
        """At least the relative error of exp(log mass): that of the mass, and what the exponential loses."""
        largest = max(float(np.max(np.abs(self.log_p), initial=0.0)), float(np.max(np.abs(self.log_q), initial=0.0)))
        return self.mass_error + 3e-16 * largest

    @property
    def reach(self) -> float:
        """The largest |log ratio|."""
        return float(np.max(np.abs(self.log_ratio), initial=0.0))

    @property
    def size(self) -> int:
        """Number of atoms with a finite, positive ratio."""
        return len(self.log_ratio)

    def reverse(self) -> PrivacyLossPmf:
        """The PLD of the swapped pair (Q, P): L becomes 1/L under P.

        Returns:
            A distribution on the same side: `reverse().delta(epsilon)` bounds D(Q||P) at e^epsilon as this one does
            D(P||Q).
        """
        turned = -self.log_ratio[::-1], self.log_q[::-1], self.log_p[::-1]
        return PrivacyLossPmf(*turned, self.side, self.q_zero, self.p_inf, self.mass_error, self.shift_error)

    def subsample(self, rate: float) -> PrivacyLossPmf:
        """Poisson subsampling: L becomes 1 - rate + rate L (add/remove and zero-out adjacency).

        Mass at infinity keeps its P-mass times rate; the Q-only mass at L = 0 moves to 1 - rate.

        Args:
            rate: The probability in (0, 1] with which the record is in the batch.

        Returns:
            The distribution of (1 - rate) Q + rate P against Q, on the same side.

        Raises:
            InputError: The rate is 0 or no probability.
        """
        rate = PROBABILITY.check("rate", rate)
        if rate == 1.0:
            return self
        if rate == 0.0:
            raise InputError("Expected rate in (0, 1], got rate=0: a record that is never sampled leaks nothing.")
        log_p = np.logaddexp(math.log1p(-rate) + self.log_q, math.log(rate) + self.log_p)
        log_q = self.log_q
        ratio = log_p - log_q
        if self.q_zero > 0:
            zero_q = math.log(self.q_zero)
            ratio = np.concatenate(([math.log1p(-rate)], ratio))
            log_p = np.concatenate(([math.log1p(-rate) + zero_q], log_p))
            log_q = np.concatenate(([zero_q], log_q))
        return PrivacyLossPmf(
            *in_order(ratio, log_p, log_q),
            self.side,
            p_inf=rate * self.p_inf,
            mass_error=self.mass_error + ATOM_ROUNDING,
            # 1 - r + r L moves in log by at most the shift of log L, plus the rounding of the difference.
            shift_error=self.shift_error + 4e-16 * (1.0 + float(np.max(np.abs(log_q), initial=0.0))),
        )

    @staticmethod
    def mixture(pmfs: Sequence[PrivacyLossPmf], weights: Sequence[float]) -> PrivacyLossPmf:
        """The PLD of a pair whose index is drawn by `weights` and revealed.

        Args:
            pmfs: One distribution for each index, all on the same side.
            weights: Their probabilities, with sum 1.

        Returns:
            The mixture, on that side.

        Raises:
            InputError: There are not as many weights as distributions, or they do not add up to 1.
        """
        if len(pmfs) != len(weights) or not pmfs:
            raise InputError(f"Expected one weight per distribution, got {len(pmfs)} and {len(weights)} weights.")
        checked = [PROBABILITY.check("weight", w) for w in weights]
        if abs(sum(checked) - 1.0) > 1e-12:
            raise InputError(f"Expected mixture weights with sum 1, got {sum(checked):.15g}.")
        side = reduce(Side.same, (pmf.side for pmf in pmfs))
        pairs = [(pmf, w) for pmf, w in zip(pmfs, checked, strict=True) if w > 0]
        atoms = [(pmf.log_ratio, pmf.log_p + math.log(w), pmf.log_q + math.log(w)) for pmf, w in pairs]
        return PrivacyLossPmf(
            *in_order(*(np.concatenate(column) for column in zip(*atoms, strict=True))),
            side,
            p_inf=math.fsum(w * pmf.p_inf for pmf, w in pairs),
            q_zero=math.fsum(w * pmf.q_zero for pmf, w in pairs),
            mass_error=max(pmf.mass_error for pmf, _ in pairs) + ATOM_ROUNDING + abs(math.fsum(checked) - 1.0),
            shift_error=max(pmf.shift_error for pmf, _ in pairs),
        )

    def cumulants(self, order: float) -> tuple[float, float, float]:
        """K, K', K'' of K(t) = log E_Q[L^t; 0 < L < inf] at t = order.

        K' and K'' are mean and variance of log L under the tilted PLD q e^(t x).
        """
        tilted = self.log_q + order * self.log_ratio
        peak = float(tilted.max())
        weights = np.exp(tilted - peak)
        total = float(weights.sum())
        mean = float(np.sum(weights * self.log_ratio)) / total
        spread = self.log_ratio - mean
        return peak + math.log(total), mean, float(np.sum(weights * spread * spread)) / total

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence D(P||Q) at e^epsilon, all rounding added on the side.

        Args:
            epsilon: Any real number.

        Returns:
            delta with D <= delta for a pessimistic PLD (Side.UPPER), delta <= D for an optimistic one (Side.LOWER).
        """
        REAL.check("epsilon", epsilon)
        sign = 1.0 if self.side is Side.UPPER else -1.0
        epsilon = epsilon - sign * self.shift_error
        above = self.log_ratio > epsilon
        p, q = np.exp(self.log_p[above]), np.exp(epsilon + self.log_q[above])
        gain = float(np.sum(p - q))
        blur = 4e-16 * (len(p) + 4) * float(np.sum(p)) + self.rounding * float(np.sum(p + q))
        # If log L is low by s, D(eps) = E[(L - k)+] <= e^s D'(eps - s).
        stretch = math.exp(self.shift_error) if self.side is Side.UPPER else 1.0
        value = (gain + sign * blur) * stretch + self.p_inf * (1.0 + sign * self.rounding)
        # The truth lies in [0, 1], so these two bounds are free of charge.
        return max(0.0, value) if self.side is Side.LOWER else min(1.0, value)
