"""A record in exactly k of t rounds, uniformly: random allocation with several participations.

Against the run without the record (or with it zeroed out, or replaced) the likelihood ratio is an elementary symmetric
mean of the rounds' ratios Y_i = exp(x_i/sigma - 1/(2 sigma^2)),

    L = e_k(Y_1, ..., Y_t) / C(t, k),

linear in each of them, so by the argument of one participation full and constant gradients are worst, also for
adaptive adversaries: the pair is exact.

**Proof.** Cut the t rounds at random into k groups, of sizes that differ by at most 1, and put the record into one
round of each group. By symmetry this is a uniformly random choice of k rounds. Reveal the groups: k independent
allocations to one of about t/k rounds. Feldman and Shenfeld (2025) use groups of floor(t/k) and leave the rest out, as
we do where groups are so long that it costs less than 1e-4: the mean of s + 1 ratios is an average of means of s of
them, so a group of one round more is dominated.

**Attack.** A score for every round, summed: under the noise alone all t are alike, with the record any k of them are
shifted, so the distribution of the sum is exact, however the rounds were chosen. The score log(1 + c Y_i), summed, is
the logarithm of the sum over j of c^j e_j(Y), in which e_k dominates for c near k/(t - k): nearly the best test of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE
from calipers.errors import InputError
from calipers.numerics.normal import normal_tail_quantile
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.allocation.replaced import ReplacedPair
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair, TwoSidedPair
from calipers.pld.division.folded import cell_width, log_interval_mass

TILTS = (0.3, 0.55, 1.0)
"""Values of c to try, in units of k/(t - k)."""
_LONG = 5000
"""Groups to which one round more or less makes no difference."""
_LINEAR, _SELDOM = 0.3, 1e-7
"""Where c Y is rarely larger, scores log(1 + c Y) are about c Y, and all tilts are about one test."""


@implements("calipers:several-rounds", "feldman2025:several")
def several_rounds_proof(sigma: float, rounds: int, chosen: int, adjacency: str) -> list[tuple[TwoSidedPair, int]]:
    """Factors that dominate the run (docs/theory/sampling.md, section 14).

    Args:
        sigma: The noise multiplier.
        rounds: Steps of the run, t.
        chosen: In how many of them the record takes part, k.
        adjacency: "substitute", or one of those in which the record's place stays empty.

    Returns:
        (pair, count): their product has at least the divergence of the run at every epsilon.

    Raises:
        InputError: If k exceeds t.
    """
    chosen = _checked(rounds, chosen)
    kind: type[AllocationPair] | type[ReplacedPair] = ReplacedPair if adjacency == "substitute" else AllocationPair
    size, longer = divmod(rounds, chosen)
    if longer == 0 or size >= _LONG:
        return [(kind(sigma, size), chosen)]
    return [(kind(sigma, size), chosen - longer), (kind(sigma, size + 1), longer)]


@implements("calipers:several-rounds")
def several_rounds_attack(
    sigma: float, rounds: int, chosen: int, adjacency: str, tilt: float = 1.0
) -> list[tuple[AttainedPair, int]]:
    """Factors of the test that sums scores; arguments as for `several_rounds_proof`.

    Args:
        tilt: c in units of k/(t - k).

    Returns:
        (source, count): their product, from below, has at most the divergence of the run at every epsilon.
    """
    chosen = _checked(rounds, chosen)
    weight = tilt * chosen / max(rounds - chosen, 0.5)
    shift, opposite = 1.0 / POSITIVE.check("sigma", sigma), adjacency == "substitute"
    factors = [
        (ScoredRound(shift, weight, opposite, False), rounds - chosen),
        (ScoredRound(shift, weight, opposite, True), chosen),
    ]
    return [(source, count) for source, count in factors if count]


def tilts_for(sigma: float, rounds: int, chosen: int) -> tuple[float, ...]:
    """The tilts whose tests differ."""
    shift, weight = 1.0 / sigma, chosen / max(rounds - chosen, 0.5)
    largest = shift * (float(normal_tail_quantile(_SELDOM / rounds)) + 0.5 * shift)
    return TILTS[-1:] if weight * math.exp(min(largest, 700.0)) < _LINEAR else TILTS


def _checked(rounds: int, chosen: int) -> int:
    rounds, chosen = COUNT.check_int("steps", rounds), COUNT.check_int("participations", chosen)
    if chosen > rounds:
        raise InputError(f"Expected participations <= steps, got participations={chosen} and steps={rounds}.")
    return chosen


@dataclass(frozen=True)
class ScoredRound(AttainedPair):
    """One round with the score log(1 + c Y), less its value at Y = 1; `taken` if the record is in it. LOWER only.

    Replaced (`opposite`): the score is that of u less that of -u, and the other dataset is shifted the other way.
    """

    shift: float
    weight: float
    opposite: bool
    taken: bool
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0
    interchangeable = True
    """Nobody learns which rounds the record is in."""

    @property
    def symmetric(self) -> bool:
        """Replacing a record is the same in both orders."""
        return self.opposite

    @property
    def slope(self) -> float:
        """Of a round in which the record takes part."""
        return self.shift

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD of the score on Side.LOWER: `log_ratio` holds scores, which need not be log ratios."""
        return _scored(self, max(0.01, resolution), log_tail)


@lru_cache(maxsize=24)
def _scored(one: ScoredRound, resolution: float, log_tail: float) -> PrivacyLossPmf:
    radius = math.sqrt(-2.0 * log_tail) + 1.0
    low, high = -radius - (one.shift if one.opposite else 0.0), radius + one.shift
    step = cell_width(resolution, high + one.shift)
    z: FloatArray = low + step * np.arange(math.ceil((high - low) / step) + 1, dtype=np.float64)
    middle = 0.5 * (z[:-1] + z[1:])
    score = _score(one.weight, one.shift, middle)
    if one.opposite:
        score = score - _score(one.weight, -one.shift, middle)
    width = np.full(len(middle), step)
    with_record = one.shift if one.taken else 0.0
    without = -one.shift if one.taken and one.opposite else 0.0
    log_p, log_q = (log_interval_mass(z[:-1] - mean, width) for mean in (with_record, without))
    # What lies beyond the grid is never rejected: it is left out.
    return PrivacyLossPmf(score, log_p, log_q, Side.LOWER, mass_error=1e-13)


def _score(weight: float, shift: float, z: FloatArray) -> FloatArray:
    exponent = math.log(weight) + shift * (z - 0.5 * shift)
    return np.asarray(np.logaddexp(0.0, exponent) - math.log1p(weight))
