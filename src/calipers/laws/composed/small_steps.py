"""Steps told apart by size, and profiles of the small ones.

A step is small or a jump (`calipers.laws.composed.rare` says why). Small steps are bounded by two deviations of their
own sum, so every tilted sum of them has one hump, and a few tilted compositions give its profile from both sides at
any depth.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.bracket import Side
from calipers.curves.points import Points
from calipers.kept import kept
from calipers.laws.composed.direction import Direction, Look, eta_for, log_escape_for
from calipers.laws.composed.jumps import JumpKind
from calipers.laws.composed.saddle import Saddle, saddle_at, saddles_outward
from calipers.laws.composed.tails import LowerTail, TailFocus, UpperTail
from calipers.laws.core.law import Law
from calipers.laws.core.source import KnownLaws
from calipers.numerics.elementary import distinct
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray

DEVIATIONS = 2.0
"""A step larger than so many deviations of the sum of the small ones is a jump."""
_EXPECTED = 0.25
_SPACING, _MOST_SADDLES = 2.2, 14
_COARSEST = 0.05
"""The widest lattice, in deviations of a step."""


@dataclass(frozen=True)
class Parts:
    """One factor on one side: small steps, jumps as (log ratio, P-mass, Q-mass), total masses of the small steps."""

    small: Law
    ratio: FloatArray
    p: FloatArray
    q: FloatArray
    log_masses: tuple[float, float]

    @classmethod
    def of(cls, law: Law, threshold: float) -> Parts:
        """Atoms above the threshold are jumps."""
        big = law.log_ratio > threshold
        ratio, log_p, log_q = (values[~big] for values in (law.log_ratio, law.log_p, law.log_q))
        masses = tuple(math.log(math.fsum(np.exp(values))) for values in (log_p, log_q))
        small = replace(law, log_ratio=ratio, log_p=log_p, log_q=log_q, p_inf=0.0, q_zero=0.0, whole=False)
        return cls(small, law.log_ratio[big], np.exp(law.log_p[big]), np.exp(law.log_q[big]), (masses[0], masses[1]))

    def jump(self, count: int) -> JumpKind:
        """One jump among `count` steps, its masses divided by those of a small step."""
        log_p, log_q = self.log_masses
        return JumpKind(self.ratio + (log_q - log_p), self.p * math.exp(-log_p), self.q * math.exp(-log_q), count)


def size_threshold(factors: Sequence[tuple[Law, int]]) -> float:
    """Above which log ratio a step is a jump: `DEVIATIONS` of the sum of all steps that are no larger.

    Of few heavy-tailed steps that would call ever more of them jumps; it ends where `_EXPECTED` jumps are expected.
    """
    masses = [np.exp(law.log_p) for law, _ in factors]
    ratio = np.concatenate([law.log_ratio for law, _ in factors])
    expected = np.concatenate([count * p for p, (_, count) in zip(masses, factors, strict=True)])
    order = np.argsort(ratio, kind="stable")
    often = np.flatnonzero(np.cumsum(expected[order][::-1])[::-1] >= _EXPECTED)
    lowest = float(ratio[order[often[-1]]]) if len(often) else float(ratio[order[-1]])
    found = math.inf
    for _ in range(60):
        means, variance = [], 0.0
        for p, (law, count) in zip(masses, factors, strict=True):
            inside = law.log_ratio <= found
            if np.any(inside):
                weights, small = p[inside], law.log_ratio[inside]
                means.append(float(np.average(small, weights=weights)))
                variance += count * float(np.average((small - means[-1]) ** 2, weights=weights))
        reach = DEVIATIONS * math.sqrt(variance)
        following = max(lowest, max(means) + reach)
        if following >= found - 1e-3 * reach:
            break
        found = following
    return found


class SmallSteps:
    """Bounds of D of a sum of small steps at any log threshold, from both sides, out of a few tilted compositions."""

    def __init__(
        self,
        parts: dict[Side, list[Parts]],
        counts: Sequence[int],
        log_deepest: float,
        tolerance: float,
        negligible: Callable[[Saddle], float],
    ) -> None:
        """As deep as e^log_deepest, or as is not `negligible` (its log) around a saddle point."""
        self.count, self._negligible = sum(counts), negligible

        def log_mass(side: Side, which: int) -> float:
            return math.fsum(n * part.log_masses[which] for n, part in zip(counts, parts[side], strict=True))

        self.log_p, self.log_q = ({side: log_mass(side, which) for side in parts} for which in (0, 1))
        roundings = [max(parts[side][i].small.rounding for side in parts) for i in range(len(counts))]
        self.rounding = math.fsum(n * (lost + 1e-15) for n, lost in zip(counts, roundings, strict=True))
        self._log_deepest, self._tolerance = log_deepest, tolerance
        kinds = [(KnownLaws({side: parts[side][i].small for side in parts}), n) for i, n in enumerate(counts) if n > 0]
        self._direction, _ = Direction.of(kinds)

    @functools.cached_property
    def _saddles(self) -> tuple[list[Saddle], list[Saddle]]:
        """Those to compose around, and those further out where what is left is negligible."""
        pilot, most = self._direction.pilot(self._log_deepest), _MOST_SADDLES if self._direction.steps() > 1 else 1
        found = saddles_outward(pilot, saddle_at(pilot, 1.0), _SPACING, self._log_deepest, most)
        enough = (i for i, saddle in enumerate(found, 1) if saddle.log_delta < self._negligible(saddle))
        last = next(enough, len(found))
        return found[:last], found[last:]

    @functools.cached_property
    def _looks(self) -> list[Look]:
        """The compositions around each saddle."""
        looks = []
        for saddle in self._saddles[0]:
            eta = min(_COARSEST, max(1e-3, eta_for(saddle, 0.3 * self._tolerance)))
            if saddle.mean + _SPACING * saddle.deviation < 0.0:  # seen beside jumps only, which blur it
                eta = _COARSEST
            escape = min(log_escape_for(saddle, 0.02 * self._tolerance), -20.0)
            # Of few steps most sums are next to nothing: the profile may have its sharpest bend at 0.
            looks.append(Look(saddle, eta, self._log_deepest, escape, TailFocus(epsilon=0.0)))
        return looks

    def _reach(self, epsilon: FloatArray) -> int:
        """How many of the compositions are looked at for these: no further than the first one beyond the largest."""
        last = float(np.max(epsilon, initial=-math.inf))
        return 1 + sum(saddle.mean < last for saddle in self._saddles[0][:-1])

    @kept
    def _upper(self, number: int) -> UpperTail:
        return self._direction.upper(self._looks[number])

    @kept
    def _lower(self, number: int) -> LowerTail:
        return self._direction.lower(self._looks[number])

    def _uppers(self, reach: int) -> list[UpperTail]:
        found = [self._upper(number) for number in range(reach)]
        # One moment bounds what is negligible.
        for saddle in self._saddles[1] if reach == len(self._saddles[0]) else []:
            bound = self._direction.moment_bound(saddle.mean, saddle, self._log_deepest)
            found.append(UpperTail(np.array([saddle.mean]), np.array([math.log(bound)])))
        return found

    def _lowers(self, reach: int) -> list[LowerTail]:
        found = [self._lower(number) for number in range(reach)]
        return [tests for tests in found if len(tests.thresholds)]  # a window may hold no test worth keeping

    @kept
    def _above(self, reach: int) -> UpperTail:
        """All nodes of so many compositions, each with the least that any of them says there.

        Between two neighbors every one of them is a chord, and the chord of the least values lies below all of these.
        """
        mass, tails = self._mass_above, self._uppers(reach)
        nodes = distinct(np.concatenate([tail.epsilon_nodes for tail in tails]))
        best = np.full(len(nodes), mass)
        for tail in tails:
            first, value = float(tail.epsilon_nodes[0]), math.exp(min(0.0, float(tail.log_delta_nodes[0])))
            best = np.minimum(best, np.where(nodes < first, _chord(mass, first, value, nodes), tail.deltas(nodes)))
        with np.errstate(divide="ignore"):
            return UpperTail(nodes, np.log(best) + 1e-13)

    @property
    def _mass_above(self) -> float:
        return math.exp(self.log_p[Side.UPPER] + self.rounding)

    def upper(self, epsilon: FloatArray) -> FloatArray:
        """At least D at every epsilon."""
        if self.count == 0:
            return np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))
        tail, mass = self._above(self._reach(epsilon)), self._mass_above
        first, value = float(tail.epsilon_nodes[0]), math.exp(min(0.0, float(tail.log_delta_nodes[0])))
        found = np.where(epsilon < first, _chord(mass, first, value, epsilon), tail.deltas(epsilon))
        return np.asarray(np.minimum(found, mass) * (1.0 + 1e-13), dtype=np.float64)

    def lower(self, epsilon: FloatArray) -> FloatArray:
        """At most D at every epsilon: what the best test shows, or always rejecting."""
        power, alpha = self.best_tests(epsilon)
        with np.errstate(divide="ignore"):
            falsely = np.exp(np.minimum(epsilon + np.log(alpha), 1.0)) * (1.0 + 1e-13)
        return np.maximum(power - falsely - 4.0 * UNIT_ROUNDOFF * (power + falsely), 0.0)

    def best_tests(self, epsilon: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(power, false positive rate) of the tests that show most, power rounded down and the rate up."""
        power = np.full(len(epsilon), math.exp(self.log_p[Side.LOWER] - self.rounding))
        alpha = np.full(len(epsilon), math.exp(self.log_q[Side.LOWER] + self.rounding))
        weights = np.exp(np.minimum(epsilon, 700.0))
        power, alpha = np.where(power > weights * alpha, (power, alpha), 0.0)
        below = self._below(self._reach(epsilon)) if self.count > 0 else None
        if below is not None:
            hull, log_slopes = below
            index = np.searchsorted(log_slopes, -epsilon)
            sure, falsely = hull.beta_c[index], hull.alpha[index]
            better = sure - weights * falsely > power - weights * alpha
            power, alpha = np.where(better, sure, power), np.where(better, falsely, alpha)
        return power * (1.0 - 1e-13), alpha * (1.0 + 1e-13)

    @kept
    def _below(self, reach: int) -> tuple[Points, FloatArray] | None:
        """The tests that are the best for some threshold, by false positive rate, and minus the log slopes between.

        Rounding moves the score of every step a little the same way, so a test's threshold is not its likelihood ratio.
        """
        lowers = self._lowers(reach)
        if not lowers:
            return None
        # A rate too small for a double is rounded up.
        log_alpha = np.concatenate([tests.log_alpha for tests in lowers])
        alpha = np.exp(np.clip(log_alpha, -690.0, 0.0))
        power = np.minimum(1.0, np.exp(np.concatenate([tests.log_power for tests in lowers])))
        useful = log_alpha <= 0.0
        alpha, power = alpha[useful], power[useful]
        if len(alpha) == 0:
            return None
        hull = Points(alpha, 1.0 - power, 1.0 - alpha, power).settled().hull(Side.LOWER)
        places = np.arange(len(hull.alpha))
        return hull, -np.log(hull.steepness(places[:-1], places[1:]))


def _chord(mass: float, first: float, value: float, epsilon: FloatArray) -> FloatArray | float:
    """D is convex in e^eps, and the P-mass at minus infinity: left of the first node the chord holds."""
    return mass - (mass - value) * np.exp(np.minimum(epsilon - first, 0.0)) if value < mass else mass
