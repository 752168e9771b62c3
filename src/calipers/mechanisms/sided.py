"""Mechanisms whose proof and attack are different objects, as one source of PLDs.

Where no single pair is both proven and attained, the pessimistic PLD comes from what dominates and the optimistic PLD
from what somebody can do. A product of such sources has an honest bracket that does not close.

**Selection by score.** The exponential mechanism with parameter epsilon picks candidate i with probability
proportional to exp(epsilon s_i / 2) for scores s_i that one record moves by at most 1. Its log odds between any event
and the complement move by at most epsilon along the way (epsilon-bounded range: all ratios lie in an interval of length
epsilon), so an event of probability a becomes at most one of probability a e^epsilon / (1 - a + a e^epsilon). With two
candidates the probability of the first is a logistic function of the score gap, which moves the log odds by exactly
epsilon: every point of that curve is attained, each by its own scores.

**Permute-and-flip** is epsilon-DP, and t epsilon-DP where scores move by a share t of what one record may do; the walk
of `calipers.adapters.event_pairs` then gives the Laplace curve of scale 1/epsilon. With two candidates and a score gap
g the worse one wins with probability exp(-epsilon |g| / 2) / 2, the tail of that Laplace distribution, so every point
of the curve is attained, each by its own gap.

Composed, one gap has to serve all releases: the optimistic PLD is that of the symmetric gap, a coin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.citations import implements
from calipers.mechanisms.classic import EPSILON, laplace
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import between
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair, DominatingPair, TwoSidedPair


@dataclass(frozen=True)
class Sided(TwoSidedPair):
    """pessimistic PLDs from `above`, optimistic PLDs from `below`, which `above` dominates.

    `alone`: a pair that dominates, every single point of which is attained by some instance of the mechanism, so that a
    single release has a bracket that closes; and by which.
    """

    name: str
    above: DominatingPair
    below: AttainedPair
    alone: tuple[TwoSidedPair, str] | None = None
    exact: ClassVar[bool] = False
    """Proof and attack are two statements."""

    @property
    def words(self) -> str:
        """Its name."""
        return self.name

    @property
    def symmetric(self) -> bool:
        """Whether both are."""
        return self.above.symmetric and self.below.symmetric

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD of what dominates."""
        return self.above.upper(resolution, log_tail)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD of what is attained."""
        return self.below.lower(resolution, log_tail)


@implements("dong2020:br")
def exponential_mechanism(epsilon: float) -> Sided:
    """The exponential mechanism: P(i) proportional to exp(epsilon score / 2), scores moved by 1."""
    epsilon = EPSILON.check("epsilon", epsilon)
    coin = _symmetric_coin(-math.log1p(math.exp(0.5 * epsilon)), epsilon)
    name = f"exponential mechanism, epsilon = {epsilon:g}"
    pair = _bounded_range(epsilon, name)
    return Sided(name, pair, coin, (pair, _TWO.format("log odds epsilon/2 on either side")))


@implements("calipers:permute-and-flip")
def permute_and_flip(epsilon: float) -> Sided:
    """Permute-and-flip of parameter epsilon: flips heads with probability exp(epsilon (score - best) / 2)."""
    epsilon = EPSILON.check("epsilon", epsilon)
    coin = _symmetric_coin(-0.5 * epsilon - math.log(2.0), epsilon)
    name = f"permute-and-flip, epsilon = {epsilon:g}"
    pair = laplace(1.0 / epsilon)
    return Sided(name, pair, coin, (pair, _TWO.format("score gaps of 1 on either side")))


_TWO = "Two candidates whose scores the record moves by 1 each, one up and one down ({}); claim the record if one wins."


def _symmetric_coin(log_wrong: float, epsilon: float) -> Pair:
    """Heads with probability e^log_wrong on one dataset and tails with that probability on the other."""
    log_right = math.log1p(-math.exp(log_wrong))
    return Pair(
        f"coin of a selection, epsilon = {epsilon:g}",
        atom_log_p=(log_wrong, log_right),
        atom_log_q=(log_right, log_wrong),
        symmetric=True,
        span=log_right - log_wrong,
    )


def _bounded_range(epsilon: float, name: str) -> Pair:
    """The pair of the curve a -> a e^epsilon / (1 - a + a e^epsilon).

    Its ratio at a is e^epsilon / (1 + a (e^epsilon - 1))^2, a uniform; in terms of z = log ratio the densities are
    e^((epsilon - z)/2) and e^((epsilon + z)/2), over 2 (e^epsilon - 1), on [-epsilon, epsilon].
    """
    log_norm = -math.log(2.0) - epsilon - math.log(-math.expm1(-epsilon))
    part = between(
        -epsilon,
        epsilon,
        lambda z: log_norm + 0.5 * (epsilon + z),
        lambda z: log_norm + 0.5 * (epsilon - z),
        lambda z: np.asarray(z, dtype=np.float64),
        slope=1.0,
        scale=min(1.0, epsilon),
    )
    return Pair(name, smooth=(part,), symmetric=True)
