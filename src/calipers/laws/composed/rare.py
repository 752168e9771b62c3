"""Products of steps that are rarely large, conditioned on how many of them are.

With a small sampling rate nearly every step tells next to nothing, and once in a long while one tells a lot. Tilted by
the saddle point of the epsilon asked for, such a total has two humps, the steps' noise and the far jumps, and the
answer lies in the valley between them, where a transform's rounding error drowns it. So steps are told apart first.
Each is small (measure s: log ratio at most a threshold of about two deviations of the whole) or a jump (measure b):

    (s + b)^T = sum over k of C(T, k) s^(T-k) b^k,

and for phases i with T_i steps each the product of such sums, k being a vector.

- **Small steps** are bounded by two deviations of their own sum, so every tilted sum has one hump, and tilted
  transforms give its tails with relative accuracy at any depth (`calipers.laws.composed.small_steps`).
- **Jumps** are few: terms with more than K of them in all have P-mass at most (sum of T beta)^(K+1)/(K+1)!, which is
  charged. Powers of b are sums of products of positive numbers on a few hundred nodes (`calipers.laws.composed.jumps`).

Given jumps with log ratio y and P-mass p the rest is a profile of the small steps,

    D(eps) = sum over k and y of C(T, k) b_P^k(y) D_(T-k)(eps - y),

a sum of positive numbers again. UPPER: jumps are split onto nodes (a mean preserving spread) and D_(T-k) is an upper
bound. LOWER: the observer is told k, a label of the jumps, and the score of the small steps, and uses for each label
the best of the computed tests; labels of sums are a function of the labels, so this is one explicit test. The
likelihood ratio test with threshold eps is at least as good.

**Fewer profiles than k.** Normalized, the small steps are a pair of probability measures of which more copies tell
more. With M_P, M_Q the masses of s, hence, for j <= k (for j >= k the other way round),

    D_(T-k)(e) <= M_P^(j-k) D_(T-j)(e + (j - k) log(M_Q/M_P)).

So jumps are kept with their masses divided by M_P and M_Q; then k appears in nothing but the choice of j, and all
terms that use the same j are one measure. UPPER takes j = 0, the small steps of all T; LOWER takes j = 0 where there is
no jump, and elsewhere the largest number of jumps that is followed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator

import numpy as np

from calipers.bracket import Side
from calipers.kept import kept
from calipers.laws.composed.direction import Direction, Jaws
from calipers.laws.composed.jumps import (
    DENSE,
    Jumps,
    LabelledSums,
    SplitSums,
    finest_nodes,
    followed,
    nodes_around,
)
from calipers.laws.composed.saddle import Saddle
from calipers.laws.composed.small_steps import DEVIATIONS, Parts, SmallSteps, size_threshold
from calipers.laws.composed.tails import infinite_mass
from calipers.numerics.elementary import log_sums_at
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray

_CELLS = 0.01
"""Width of the cells of one step, in units of the observation's deviation."""
_MOST_EXPECTED, _MOST_JUMPS, _MOST_LOOKS = 6.0, 48, 8
_NEGLIGIBLE, _HARDLY = -14.0, -9.0
"""What is left out, or not resolved, is this far below delta (natural logarithm); and where it is hardly seen."""
_MOST_KINDS = 12
_BULK, _FURTHER, _SHARED, _MOST_SHARED = 0.1, 1.06, 3, 6
"""Gaps of the places of a curve: in deviations of the small steps, and as a factor beyond; and how many share nodes."""
_FARTHEST = 600.0
"""Log of an epsilon beyond which nothing is looked for."""
_FAR, _NEVER = 32.0, -30.0
"""Jumps this far above epsilon (in log ratio) are as good as certain; log of a probability that is as good as none."""


class RareSteps:
    """One direction of steps of which large ones are rare; see the module docstring."""

    def __init__(
        self,
        direction: Direction,
        log_delta: float,
        log_tail: float,
        tolerance: float,
        sides: Collection[Side] = tuple(Side),
    ) -> None:
        place = (_CELLS, log_tail, None)
        laws = {Side.UPPER: direction.upper_laws(*place)}
        if Side.LOWER in sides:
            laws[Side.LOWER] = direction.lower_laws(*place)
        self.counts = tuple(count for _, count in laws[Side.UPPER])
        self.tolerance, self.log_delta, self.reverse = tolerance, log_delta, direction.reverse
        self.threshold = size_threshold(laws[Side.UPPER])
        self.parts = {side: [Parts.of(law, self.threshold) for law, _ in laws[side]] for side in laws}
        expected = max(
            math.fsum(count * float(part.p.sum()) for part, count in zip(parts, self.counts, strict=True))
            for parts in self.parts.values()
        )
        self.most = self._most_jumps(expected)
        # Cells of one side may have a last atom above the threshold where those of the other have none.
        some = all(any(len(part.ratio) > 0 for part in parts) for parts in self.parts.values())
        # Two or three steps with hardly any noise have a threshold below zero: nearly all that is not a jump is alike.
        seldom = self.threshold > 0.0 and 0.0 < expected <= _MOST_EXPECTED
        self.useful = some and seldom and self.most <= _MOST_JUMPS
        self._charged = infinite_mass(laws[Side.UPPER])
        finite = [float(np.exp(law.log_p).sum()) for law, _ in laws[Side.UPPER]]
        # More than `most` jumps: so many of the steps are jumps, the others anything.
        self._more = 0.0
        if expected > 0.0 and self.most < sum(self.counts):
            exponent = (self.most + 1) * math.log(expected) - math.lgamma(self.most + 2.0)
            whole = math.fsum(n * math.log(max(1.0, mass)) for n, mass in zip(self.counts, finite, strict=True))
            self._more = math.exp(exponent + whole)
        every = [law for side in laws for law, _ in laws[side]]
        followed_steps = self.most + len(self.counts)
        self._rounding = followed_steps * (max(law.rounding for law in every) + 1e-10)
        reach, moved = (max(getattr(law, name) for law, _ in laws[Side.UPPER]) for name in ("reach", "shift_error"))
        self._shift = followed_steps * (moved + 8.0 * UNIT_ROUNDOFF * (_FAR + reach))
        self._jumps: dict[Side, list[Jumps]] = {}

    def _most_jumps(self, expected: float) -> int:
        """How many jumps to follow so that more of them are negligible."""
        log_expected = math.log(max(expected, 1e-300))
        number = 1
        while number < min(sum(self.counts), _MOST_JUMPS + 1):
            if (number + 1) * log_expected - math.lgamma(number + 2.0) <= self.log_delta + _NEGLIGIBLE:
                break
            number += 1
        return number

    @kept
    def _profile(self, fewer: int) -> SmallSteps:
        """The small steps alone, so many `fewer` of each kind."""
        counts = [max(0, count - fewer) for count in self.counts]
        return SmallSteps(self.parts, counts, self.log_delta + _NEGLIGIBLE, self.tolerance, self._negligible)

    def _negligible(self, saddle: Saddle) -> float:
        """Log of a delta of small steps around a saddle point that is negligible beside the jumps.

        Above 0 that is one beside all jumps which exceed it by themselves. Below, small steps are seen beside jumps
        only, each of which meets any part of a profile that falls with the tilt: few meet its end.
        """
        if saddle.mean < 0.0:
            return min(_NEGLIGIBLE + math.log(saddle.tilt), _HARDLY)
        beyond = math.fsum(
            count * float(part.p[part.ratio > saddle.mean].sum())
            for part, count in zip(self.parts[Side.UPPER], self.counts, strict=True)
        )
        return math.log(beyond) + _NEGLIGIBLE if beyond > 0.0 else -math.inf

    @functools.cached_property
    def _taken_back(self) -> float:
        """Small steps take back as much as this with a probability of at most about e^_NEVER, by Chernoff's bound."""
        rates = np.geomspace(1e-3, 30.0, 24) * (DEVIATIONS / self.threshold)
        logs = np.zeros(len(rates))
        for part, count in zip(self.parts[Side.UPPER], self.counts, strict=True):
            logs += count * (log_sums_at(-rates, part.small.log_ratio, part.small.log_q) - part.log_masses[1])
        return 1.2 * float(np.min((logs - _NEVER) / rates))

    def look_at(self, *epsilon: float, sides: Collection[Side] = tuple(Side), near: bool = False) -> None:
        """Place the nodes for questions about these, in increasing order, or about any that is `near` the only one."""
        kinds = {
            side: [part.jump(count) for part, count in zip(parts, self.counts, strict=True)]
            for side, parts in self.parts.items()
        }
        first = min(float(kind.ratio[0]) for kind in kinds[Side.UPPER] if len(kind.ratio))
        farthest = self.most * max(float(kind.ratio[-1]) for kind in kinds[Side.UPPER] if len(kind.ratio))
        # What small steps hardly ever take back to epsilon shows its P-mass less e^epsilon times its Q-mass, and these
        # are kept wherever it is put: no nodes are needed there, where it is known what is asked about.
        last = min(epsilon[-1] + (_FAR if near else min(self._taken_back, _FAR)), _FURTHER * farthest)
        nodes = nodes_around(first, epsilon, self.threshold / DEVIATIONS, last)
        for side in (side for side in self.parts if side in sides):
            sums = SplitSums(nodes) if side is Side.UPPER else LabelledSums(nodes)
            self._jumps[side] = followed(sums, kinds[side], self.most)

    def _terms(self, side: Side) -> Iterator[tuple[Jumps, SmallSteps, float, float]]:
        """Jumps, the profile of the small steps beside them, and the logs of the masses M_P and M_Q that go with it."""
        for number, jumps in enumerate(self._jumps[side]):
            fewer = self.most if number > 0 and side is Side.LOWER else 0
            taken = [min(fewer, count) for count in self.counts]
            log_p, log_q = (
                math.fsum(n * part.log_masses[i] for n, part in zip(taken, self.parts[side], strict=True))
                for i in (0, 1)
            )
            yield jumps, self._profile(fewer), log_p, log_q

    def _totals(self, side: Side, epsilon: FloatArray) -> FloatArray:
        """sum over k and y of the P-mass of the jumps times D_(T-k)(epsilon - y), bounded on the side."""
        total, away = np.zeros(len(epsilon)), 1.0 if side is Side.UPPER else -1.0
        for jumps, profile, log_p, log_q in self._terms(side):
            at = np.subtract.outer(epsilon, jumps.ratio) + (log_q - log_p)
            values = (profile.upper if side is Side.UPPER else profile.lower)(at.ravel()).reshape(at.shape)
            total += math.exp(log_p) * np.sum(jumps.p * values, axis=1)
            total += jumps.certain * math.exp(log_p + profile.log_p[side] + away * profile.rounding)
        return total

    def uppers(self, epsilon: FloatArray) -> FloatArray:
        """At least D at every epsilon."""
        total = self._totals(Side.UPPER, epsilon - self._shift)
        return (total * math.exp(self._shift) + self._more) * math.exp(self._rounding) + self._charged

    def upper(self, epsilon: float) -> float:
        """At least D at epsilon."""
        return float(self.uppers(np.array([epsilon]))[0])

    def lower(self, epsilon: float) -> float:
        """At most D at epsilon.

        With masses off by a factor e^r at most, D >= e^-r D'(epsilon + 2 r), D' that of the masses at hand.
        """
        at = np.array([epsilon + 2.0 * self._rounding])
        return float(self._totals(Side.LOWER, at)[0]) * math.exp(-self._rounding)

    def tests(self, epsilon: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(powers, false positive rates) of the tests behind `lower`, rounded to the unfavorable side."""
        powers, alphas = np.zeros(len(epsilon)), np.zeros(len(epsilon))
        for jumps, profile, log_p, log_q in self._terms(Side.LOWER):
            at = np.subtract.outer(epsilon, jumps.ratio) + (log_q - log_p)
            power, alpha = (found.reshape(at.shape) for found in profile.best_tests(at.ravel()))
            powers += math.exp(log_p) * np.sum(jumps.p * power, axis=1)
            alphas += math.exp(log_q) * np.sum(jumps.p * np.exp(-jumps.ratio) * alpha, axis=1)
        return powers * math.exp(-self._rounding), alphas * math.exp(self._rounding)

    def places(self) -> Iterator[FloatArray]:
        """Where to look for a whole curve: dense within four deviations of the small steps, then ever further apart.

        Neighboring places share their nodes, as long as these are not too many.
        """
        deviation, reach = self.threshold / DEVIATIONS, self._ends()[1]
        found = [_BULK * deviation * i for i in range(round(4.0 / _BULK))]
        while found[-1] < reach:
            found.append(_FURTHER * found[-1])
        start = 0
        while start < len(found):
            some = np.array(found[start : start + _MOST_SHARED])
            many = some[-1] - some[0] > DENSE * finest_nodes(self._ends()[0], some[0], deviation)
            some = some[:_SHARED] if many else some
            start += len(some)
            yield some

    def _ends(self) -> tuple[float, float]:
        """The smallest and the largest log ratio of a jump."""
        ratios = [part.ratio for part in self.parts[Side.UPPER] if len(part.ratio)]
        return min(float(ratio[0]) for ratio in ratios), max(float(ratio[-1]) for ratio in ratios)

    def epsilon(self, delta: float, guess: float) -> Jaws:
        """Jaws of the smallest epsilon >= 0 with D at most delta."""
        guess = max(guess, self._ends()[0], 1e-12)
        for _ in range(_MOST_LOOKS):  # nodes are dense around the guess only, so a far one is found in steps
            self.look_at(guess, near=True)
            _, upper = _crossing(self.upper, delta, guess, 0.05)
            near = 0.7 < upper / guess < 1.4
            if upper == 0.0 or math.isinf(upper):
                break
            guess = upper
            if near:
                break
        if math.isinf(upper):
            return Jaws(0.0, math.inf, math.inf, self.reverse)
        width = 0.02 * self.tolerance
        self.look_at(guess, near=True)
        _, upper = _crossing(self.upper, delta, guess, width)
        lower, _ = _crossing(self.lower, delta, upper, width) if upper > 0.0 else (0.0, 0.0)
        return Jaws(lower, upper, lower, self.reverse)

    def delta(self, epsilon: float) -> Jaws:
        """Jaws of D at epsilon."""
        self.look_at(epsilon)
        return Jaws(self.lower(epsilon), min(1.0, self.upper(epsilon)), epsilon, self.reverse)


def rare_steps(
    direction: Direction, log_delta: float, log_tail: float, tolerance: float, sides: Collection[Side] = tuple(Side)
) -> RareSteps | None:
    """The product conditioned on its large steps, where these are rare; UPPER is always among the sides."""
    if len(direction.counts) > _MOST_KINDS or direction.steps() == 1:
        return None
    found = RareSteps(direction, log_delta, log_tail, tolerance, sides)
    return found if found.useful else None


def _crossing(bound: Callable[[float], float], delta: float, guess: float, width: float) -> tuple[float, float]:
    """(low, high) with bound(low) > delta >= bound(high), high at most 1 + width times low.

    (0, 0) if bound(0) <= delta; where no such high is found it is infinite.
    """
    if bound(0.0) <= delta:
        return 0.0, 0.0

    def excess(place: float) -> float:
        value = bound(math.exp(place))
        return math.log(value / delta) if value > 0.0 else -50.0

    place = math.log(guess)
    value = excess(place)
    low = high = (place, value)
    step = 0.02 if abs(value) < 0.1 else 0.2
    for _ in range(40):  # outward until the crossing is enclosed
        if low[1] > 0.0 >= high[1]:
            break
        if high[1] > 0.0 and high[0] + step > _FARTHEST:
            return math.exp(high[0]), math.inf
        if low[1] <= 0.0:
            low = (low[0] - step, excess(low[0] - step))
        else:
            low, high = high if high[1] > 0.0 else low, (high[0] + step, excess(high[0] + step))
        step *= 1.7
    else:
        return (math.exp(low[0]) if low[1] > 0.0 else 0.0), (math.exp(high[0]) if high[1] <= 0.0 else math.inf)
    for turn in range(60):
        gap = high[0] - low[0]
        if gap <= width:
            break
        share = low[1] / (low[1] - high[1]) if turn % 3 < 2 else 0.5
        # Aim a little beyond the line on alternating sides, so that both ends move in.
        aim = low[0] + gap * min(max(share + (0.3 if turn % 2 else -0.3) * width / gap, 0.02), 0.98)
        found = (aim, excess(aim))
        low, high = (found, high) if found[1] > 0.0 else (low, found)
    return math.exp(low[0]), math.exp(high[0])
