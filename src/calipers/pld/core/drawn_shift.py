"""A Gaussian release whose shift is drawn in secret: sum over j of w_j N(s_j, I) against N(0, I).

A unit with several records, a record that a batch may hold more than once, a record that displaces others: each time
the release is shifted by a vector v drawn from a known PLD, of which only the largest length |v| <= s is known.

**The worst case is one line.** The densities relative to pure noise z are sums of w_v exp(<v, z> - |v|^2/2), Gaussian
exponentials with covariance <v, v'>. For convex F the expectation E F(sum of w_v e^(G_v - Var G_v / 2)) grows with
every entry of the covariance matrix of G (Kahane 1985), and all of them are largest together when every v points the
same way and has its full length. With F(x) = (x - k)+ this holds for every k > 0, that is in both orders:

    sum over j of w_j N(s_j, 1)   against   N(0, 1)

dominates the release, and is attained by gradients on one line. Larger shifts, and more weight on larger ones,
dominate smaller ones for the same reason.

**Replaced.** If the same draw shifts one dataset by u and the other by v, the densities are sums of positive terms with
opposite signs, F(sum of w e^G - k sum of w' e^H): now the expectation grows with the covariances among the G and
among the H and falls with those between them (the same Gaussian interpolation), so opposite directions are worst:

    sum over j of w_j N(s_j, 1)   against   sum over j of w_j N(-s_j, 1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.errors import InputError, UnsupportedError
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import RoundedPair
from calipers.pld.core.pmf import PrivacyLossPmf

_RAREST = 1e-70
"""Larger shifts, of less probability than this together, count as telling the datasets apart."""
_MOST = 256
"""More shifts than this are grouped: those of a group count as its largest from above, as its smallest from below."""


@dataclass(frozen=True)
class Shifts:
    """The distribution of a shift: increasing lengths >= 0, the first 0, and their probabilities, of relative error
    `rounding`.

    `beyond` is the probability of shifts larger than the last, which are left out.
    """

    lengths: tuple[float, ...]
    weights: tuple[float, ...]
    rounding: float = 1e-15
    beyond: float = 0.0

    @classmethod
    def of(cls, lengths: Sequence[float], weights: Sequence[float], rounding: float = 1e-15) -> Shifts:
        """Equal lengths are put together, lengths of probability 0 left out, and 0 counted in."""
        given, chances = np.append(0.0, lengths), np.append(0.0, weights)
        if float(np.min(given)) < 0.0 or float(np.min(chances)) < 0.0:
            raise InputError(
                f"Expected lengths and weights >= 0, got {float(np.min(given)):g} and {float(np.min(chances)):g}."
            )
        kept, places = np.unique(given, return_inverse=True)
        masses = np.bincount(places, chances)
        total = math.fsum(masses.tolist())
        if abs(total - 1.0) > 1e-9:
            raise InputError(f"Expected weights with sum 1, got {total:.15g}.")
        tail = np.cumsum(masses[::-1])[::-1]
        last = max(1, int(np.count_nonzero(tail > _RAREST)))
        beyond = float(tail[last]) if last < len(kept) else 0.0
        kept, masses = kept[:last], masses[:last]
        return cls(tuple(kept[masses > 0.0].tolist()), tuple(masses[masses > 0.0].tolist()), rounding, beyond)

    def without(self, rarest: float) -> Shifts:
        """The largest lengths left out, as many as have at most this probability together."""
        tail = np.cumsum(self.weights[::-1])[::-1] + self.beyond
        last = max(1, int(np.count_nonzero(tail > rarest)))
        if last == len(self.lengths):
            return self
        beyond = float(tail[last]) * (1.0 + 1e-14 * len(self.lengths))
        return replace(self, lengths=self.lengths[:last], weights=self.weights[:last], beyond=beyond)

    def grouped(self, side: Side) -> Shifts:
        """At most a few groups of neighboring lengths, each moved to its largest (UPPER) or its smallest (LOWER)."""
        count = len(self.lengths)
        if count <= _MOST:
            return self
        starts = np.unique(np.linspace(0, count, _MOST + 1).astype(np.intp))
        groups = list(itertools.pairwise(starts))
        pick = -1 if side is Side.UPPER else 0
        lengths = [self.lengths[low:high][pick] for low, high in groups]
        weights = [math.fsum(self.weights[low:high]) for low, high in groups]
        return replace(self, lengths=tuple(lengths), weights=tuple(weights))

    @property
    def exact(self) -> bool:
        """Whether nothing is left out or grouped."""
        return self.beyond == 0.0 and len(self.lengths) <= _MOST


@dataclass(frozen=True)
class ManyShiftsPair(RoundedPair):
    """More shifts than can be distinguished: the pair is that of larger ones, `under` that of smaller ones."""

    under: Pair | None = None

    def lower_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """Shifts left out count as the largest that is kept."""
        assert self.under is not None
        return self._with_rounding(self.under.lower_for(resolution, log_tail, tilt))

    def log_moment_bound(self, order: float, reverse: bool) -> float | None:
        """None: see `calipers.pld.composition.renyi`."""
        raise UnsupportedError(
            f"With so many possible shifts the Renyi divergence of order {order:g} is decided by the rarest of them; "
            "ask for epsilon at delta instead."
        )


def _gaussians(shifts: Shifts, opposite: bool) -> Pair:
    name = f"Gaussian shifted by one of {len(shifts.lengths)} lengths"
    if shifts.lengths == (0.0,):
        raise InputError("A release that is never shifted leaks nothing; there is no pair.")
    against = tuple(-length for length in shifts.lengths) if opposite else (0.0,)
    weights = shifts.weights if opposite else (1.0,)
    return Pair(
        name,
        smooth=(gaussian_mixture_part(shifts.weights, shifts.lengths, weights, against),),
        symmetric=opposite or len(shifts.lengths) == 1,
    )


@implements("calipers:drawn-shift", "kahane1985:convexity")
def drawn_shift(shifts: Shifts, *, opposite: bool = False) -> RoundedPair:
    """A Gaussian release whose shift is drawn in secret.

    Args:
        shifts: The distribution of the largest length of the shift.
        opposite: Whether the other dataset is shifted as far in the opposite direction, instead of not at all.

    Returns:
        sum over j of w_j N(s_j) against N(0), or against sum over j of w_j N(-s_j). It dominates the release in every
        dimension, in both orders, and gradients on one line attain it.

    Raises:
        InputError: No shift is above 0.
    """
    if shifts.exact:
        pair = _gaussians(shifts, opposite)
        return RoundedPair(pair.name, smooth=pair.smooth, symmetric=pair.symmetric, rounding=shifts.rounding)
    upper = _gaussians(shifts.grouped(Side.UPPER), opposite)
    return ManyShiftsPair(
        upper.name,
        smooth=upper.smooth,
        symmetric=opposite,
        rounding=shifts.rounding,
        under=_gaussians(_under(shifts), opposite),
        beyond=shifts.beyond,
    )


def _under(shifts: Shifts) -> Shifts:
    """Shifts that are left out counted as the largest that is kept, then grouped from below."""
    weights = (*shifts.weights[:-1], shifts.weights[-1] + shifts.beyond)
    return replace(shifts, weights=weights, beyond=0.0).grouped(Side.LOWER)
