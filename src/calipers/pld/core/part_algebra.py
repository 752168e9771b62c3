"""Pairs made of pieces of other pairs: an index that is revealed, and two pairs joined where their ratio is 1.

**Revealed index.** Whoever learns which of several pairs was used sees their mixture: the smooth parts and atoms of
all of them, each times the probability of its index. So a mixture of exact pairs is an exact pair.

**Joined at one.** Often one adversary is the worst for every e^epsilon >= 1 in one order of the datasets and another
one in the other order. The larger of two convex profiles is convex, hence the profile of a PLD: on L > 1 it is that of
the first pair, on L < 1 that of the second, and what is left of the mass sits at L = 1. It dominates both adversaries
and every mixture of them, step by step, so its products dominate whatever an adaptive adversary does. For one step it
is attained at every epsilon; for several steps no single adversary need attain it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.domains import PROBABILITY
from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.pld.core.pair import Pair
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.smooth_part import Density, SmoothPart

_SHALLOWEST = -12.0
"""Rare parts are cut no nearer to their middle than at this log tail."""


def _nowhere(_: float) -> FloatArray:
    return np.full(2, -math.inf)


def _never(_rate: float, _z: float) -> float:
    return -math.inf


def between(
    low: float, high: float, log_p: Density, log_q: Density, log_ratio: Density, *, slope: float, scale: float
) -> SmoothPart:
    """A part that ends at `low` and `high`, of two exponentials whose ratio has the given slope of log L."""
    return SmoothPart(
        log_p=log_p,
        log_q=log_q,
        log_ratio=log_ratio,
        range_for=lambda _: (low, high),
        log_above=_nowhere,
        log_below=_nowhere,
        growth=lambda _low, _high, reach: 0.5 * slope * reach,
        slope=slope,
        log_growth_above=_never,
        log_growth_below=_never,
        scale=scale,
    )


def above(part: SmoothPart, start: float) -> SmoothPart:
    """The part of a pair where the observation is at least `start`."""
    return replace(
        part,
        range_for=lambda log_tail: (start, max(part.range_for(log_tail)[1], start + part.scale)),
        log_below=_nowhere,
        log_growth_below=_never,
    )


def below(part: SmoothPart, end: float) -> SmoothPart:
    """The part of a pair where the observation is at most `end`."""
    return replace(
        part,
        range_for=lambda log_tail: (min(part.range_for(log_tail)[0], end - part.scale), end),
        log_above=_nowhere,
        log_growth_above=_never,
    )


def weighted(part: SmoothPart, weight: float, among: int = 1) -> SmoothPart:
    """The part, met with probability `weight` > 0; one of so many, it ends where its share of the tail is left."""
    log_weight = math.log(weight)
    nearer = min(0.0, log_weight + math.log(among))
    return replace(
        part,
        range_for=lambda log_tail: part.range_for(min(log_tail - nearer, _SHALLOWEST)),
        log_p=lambda z: part.log_p(z) + log_weight,
        log_q=lambda z: part.log_q(z) + log_weight,
        log_above=lambda z: part.log_above(z) + log_weight,
        log_below=lambda z: part.log_below(z) + log_weight,
        log_growth_above=lambda rate, z: part.log_growth_above(rate, z) + log_weight,
        log_growth_below=lambda rate, z: part.log_growth_below(rate, z) + log_weight,
    )


def joined_at_one(name: str, more: SmoothPart, less: SmoothPart, log_even: float, *, symmetric: bool = False) -> Pair:
    """`more` where L > 1, `less` where L < 1 (both already restricted), and mass e^log_even at L = 1."""
    even = (log_even,) if log_even > -math.inf else ()
    return Pair(name, smooth=(more, less), atom_log_p=even, atom_log_q=even, symmetric=symmetric)


@dataclass(frozen=True)
class RoundedPair(Pair):
    """A pair some of whose probabilities are computed; `rounding` bounds their relative error."""

    rounding: float = 0.0

    def upper_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """As of a `Pair`, that rounding added to the masses."""
        return self._with_rounding(super().upper_for(resolution, log_tail, tilt))

    def lower_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """As of a `Pair`, that rounding added to the masses."""
        return self._with_rounding(super().lower_for(resolution, log_tail, tilt))

    def _with_rounding(self, pmf: PrivacyLossPmf) -> PrivacyLossPmf:
        return replace(pmf, mass_error=pmf.mass_error + self.rounding)


def revealed(name: str, pairs: Sequence[tuple[Pair, float]], rounding: float = 1e-15) -> RoundedPair:
    """The mixture of pairs, the index being revealed.

    Args:
        name: What the mixture is called in reports.
        pairs: Exact pairs with the probabilities of their indices, which add up to 1.
        rounding: At least the relative error of these probabilities; added to all masses.

    Returns:
        An exact pair: its profile is the mean of theirs, up to the rounding that is added on either side.

    Raises:
        InputError: The probabilities do not add up to 1.
    """
    kept = [(pair, PROBABILITY.check("weight", weight)) for pair, weight in pairs if weight > 0.0]
    total, among = math.fsum(weight for _, weight in kept), sum(len(pair.smooth) for pair, _ in kept)
    if abs(total - 1.0) > 1e-9 + rounding:
        raise InputError(f"Expected weights with sum 1, got {total:.15g}.")
    return RoundedPair(
        name,
        smooth=tuple(weighted(part, weight, among) for pair, weight in kept for part in pair.smooth),
        atom_log_p=tuple(log + math.log(weight) for pair, weight in kept for log in pair.atom_log_p),
        atom_log_q=tuple(log + math.log(weight) for pair, weight in kept for log in pair.atom_log_q),
        p_inf=math.fsum(weight * pair.p_inf for pair, weight in kept),
        q_zero=math.fsum(weight * pair.q_zero for pair, weight in kept),
        symmetric=all(pair.symmetric for pair, _ in kept),
        beyond=math.fsum(weight * pair.beyond for pair, weight in kept),
        rounding=rounding + abs(total - 1.0),
    )
