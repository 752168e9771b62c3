"""Products of steps that are rarely large, conditioned on how many of them are.

With a small sampling rate nearly every step tells next to nothing, and once in a long while one tells a lot. Tilted by
the saddle point of the epsilon asked for, such a total has two humps, the steps' noise and the far jumps, and the
answer lies in the valley between them, where a transform's rounding error drowns it. So steps are told apart first.
Each is small (measure s: log ratio at most a threshold of about two deviations of the whole) or a jump (measure b):

    (s + b)^T = sum over k of C(T, k) s^(T-k) b^k.

- **Small steps** are bounded by two deviations of their own sum, so every tilted sum has one hump, and tilted
  transforms give its tails with relative accuracy at any depth (`calipers.laws.small_steps`).
- **Jumps** are few: terms with more than K of them have P-mass at most (T beta)^(K+1)/(K+1)!, which is charged. Powers
  of b are sums of products of positive numbers on a few hundred nodes: nothing cancels, however small the mass.

Given jumps with log ratio y and P-mass p the rest is a profile of the small steps,

    D(eps) = sum over k and y of C(T, k) b_P^k(y) D_(T-k)(eps - y),

a sum of positive numbers again. UPPER: jumps are split onto nodes (a mean preserving spread) and D_(T-k) is an upper
bound. LOWER: the observer is told k, a label of the jumps, and the score of the small steps, and uses for each label
the best of the computed tests; labels of sums are a function of the labels, so this is one explicit test. The
likelihood ratio test with threshold eps is at least as good.

**Fewer profiles than k.** Normalized, the small steps are a pair of probability measures of which more copies tell
more. With M_P, M_Q the masses of s, hence, for j <= k (for j >= k the other way round),

    D_(T-k)(e) <= M_P^(j-k) D_(T-j)(e + (j - k) log(M_Q/M_P)).

A few j near 0, and for LOWER j = K, are enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.bracket import Side
from calipers.laws.direction import Direction, Jaws
from calipers.laws.lattice import weighted_counts
from calipers.laws.small_steps import DEVIATIONS, Parts, Profile, size_threshold
from calipers.laws.tails import infinite_mass
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray, IntArray

_CELLS = 0.01
"""Width of the cells of one step, in units of the observation's deviation."""
_MOST_EXPECTED, _MOST_JUMPS, _MOST_LOOKS = 6.0, 48, 8
_NEGLIGIBLE = -14.0
"""What is left out, or not resolved, is this far below delta (natural logarithm)."""
_FEW_EXACT, _MANY_EXACT, _MANY_STEPS = 1, 4, 3000
"""Up to so many jumps the small steps are counted exactly, with many and with few steps."""
_BULK, _FURTHER = 0.1, 1.06
"""Gaps of the places of a curve: in deviations of the small steps, and as a factor beyond."""
_FARTHEST = 600.0
"""Log of an epsilon beyond which nothing is looked for."""
_FAR = 32.0
"""Jumps this far above epsilon (in log ratio) count as certain."""


def _nodes(first: float, epsilon: float, deviation: float, last: float) -> FloatArray:
    """Places for sums of jumps: dense where a jump decides, at epsilon, and ever coarser away from it."""
    finest = max(0.05 * deviation, 0.004 * min(1.0, max(epsilon, first)), 1e-9)

    def width(y: float) -> float:
        return finest + 0.04 * abs(y - epsilon)

    places = [first]
    while places[-1] < last:
        places.append(places[-1] + width(places[-1]))
    return np.array(places)


@dataclass(frozen=True)
class _Sums:
    """Where sums of two places go: index of the place below, shares of P-mass sent there and one further."""

    index: IntArray
    down: FloatArray
    up: FloatArray

    @classmethod
    def of(cls, nodes: FloatArray, values: FloatArray) -> _Sums:
        """Values split onto the nodes, P-mass and Q-mass kept; beyond the last node everything counts as infinite."""
        index = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, len(nodes) - 1)
        beyond = index >= len(nodes) - 1
        a, b = nodes[index], nodes[np.minimum(index + 1, len(nodes) - 1)]
        inner = np.clip(values, a, np.maximum(b, a))
        with np.errstate(invalid="ignore", divide="ignore"):
            width = -np.expm1(a - b)
            up = np.where(beyond, 0.0, -np.expm1(a - inner) / width)
            down = np.where(beyond, 0.0, np.exp(a - inner) * -np.expm1(inner - b) / width)
        return cls(np.where(beyond, len(nodes), index), down, up)

    def place(self, p: FloatArray, size: int) -> tuple[FloatArray, float]:
        """P-masses on the nodes, and what counts as infinite."""
        inside = self.index < size
        where, weights = self.index[inside], p[inside]
        placed = weighted_counts(where, weights * self.down[inside], size)
        placed += weighted_counts(np.minimum(where + 1, size - 1), weights * self.up[inside], size)
        return placed, float(p[~inside].sum())


@dataclass(frozen=True)
class _Jumps:
    """k jumps, in any k of the steps: P-mass by log ratio, and P-mass that counts as infinite."""

    ratio: FloatArray
    p: FloatArray
    certain: float = 0.0


def _upper_powers(part: Parts, nodes: FloatArray, count: int, most: int) -> list[_Jumps]:
    """0 .. most jumps, split onto the nodes; one jump is left where it is."""
    none = _Jumps(np.zeros(1), np.ones(1))
    size = len(nodes)
    one, infinite = _Sums.of(nodes, part.ratio).place(part.p, size)
    total = float(one.sum()) + infinite
    table = _Sums.of(nodes, np.add.outer(nodes, nodes).ravel())
    current, certain = count * one, count * infinite
    found = [none, _Jumps(part.ratio, count * part.p)]
    for k in range(2, most + 1):
        placed, beyond = table.place(np.outer(current, one).ravel(), size)
        certain = certain * total + float(current.sum()) * infinite + beyond
        grown = (count - k + 1) / k
        current, certain = grown * placed, grown * certain
        found.append(_Jumps(nodes, current, certain))
    return found[: most + 1]


def _lower_powers(part: Parts, nodes: FloatArray, count: int, most: int) -> list[_Jumps]:
    """0 .. most jumps, told apart by the node below their sum only (the last node stands for all beyond)."""
    none = _Jumps(np.zeros(1), np.ones(1))
    size = len(nodes)
    label = np.clip(np.searchsorted(nodes, part.ratio, side="right") - 1, 0, size - 1)
    one_p, one_q = weighted_counts(label, part.p, size), weighted_counts(label, part.q, size)
    middle = np.append(0.5 * (nodes[1:] + nodes[:-1]), nodes[-1])
    sums = np.add.outer(middle, middle).ravel()
    labels = np.clip(np.searchsorted(nodes, sums, side="right") - 1, 0, size - 1)
    found = [none, _labelled(part.p * count, part.q * count)]
    p, q = count * one_p, count * one_q
    for k in range(2, most + 1):
        grown = (count - k + 1) / k
        p = grown * weighted_counts(labels, np.outer(p, one_p).ravel(), size)
        q = grown * weighted_counts(labels, np.outer(q, one_q).ravel(), size)
        found.append(_labelled(p, q))
    return found[: most + 1]


def _labelled(p: FloatArray, q: FloatArray) -> _Jumps:
    seen = (p > 0.0) & (q > 0.0)
    return _Jumps(np.log(p[seen]) - np.log(q[seen]), p[seen])


class RareSteps:
    """One direction of `count` equal steps, of which large ones are rare; see the module docstring."""

    def __init__(self, direction: Direction, log_delta: float, log_tail: float, tolerance: float) -> None:
        place = (_CELLS, log_tail, None)
        built = {Side.UPPER: direction.upper_laws(*place), Side.LOWER: direction.lower_laws(*place)}
        laws = {side: factors[0][0] for side, factors in built.items()}
        self.count = direction.steps()
        self.tolerance, self.log_delta, self.reverse = tolerance, log_delta, direction.reverse
        self.threshold = size_threshold(laws[Side.UPPER], self.count)
        self.parts = {side: Parts.of(law, self.threshold) for side, law in laws.items()}
        expected = self.count * max(float(part.p.sum()) for part in self.parts.values())
        self.most = self._most_jumps(expected)
        # Cells of one side may have a last atom above the threshold where those of the other have none.
        some = all(len(part.ratio) > 0 for part in self.parts.values())
        self.useful = some and 0.0 < expected <= _MOST_EXPECTED and self.most <= _MOST_JUMPS
        self._charged = infinite_mass([(laws[Side.UPPER], self.count)])
        finite = float(np.exp(laws[Side.UPPER].log_p).sum())
        # More than `most` jumps: so many of the steps are jumps, the others anything.
        self._more = 0.0
        if expected > 0.0 and self.most < self.count:
            exponent = (self.most + 1) * math.log(expected) - math.lgamma(self.most + 2.0)
            self._more = math.exp(exponent) * max(1.0, finite) ** self.count
        self._rounding = (self.most + 1) * (max(law.rounding for law in laws.values()) + 1e-11)
        self._shift = (self.most + 1) * (
            laws[Side.UPPER].shift_error + 8.0 * UNIT_ROUNDOFF * (_FAR + laws[Side.UPPER].reach)
        )
        self._profiles: dict[int, Profile] = {}
        self._upper_jumps: list[_Jumps] = []
        self._lower_jumps: list[_Jumps] = []

    def _most_jumps(self, expected: float) -> int:
        """How many jumps to follow so that more of them are negligible."""
        log_expected = math.log(max(expected, 1e-300))
        number = 1
        while number < min(self.count, _MOST_JUMPS + 1):
            if (number + 1) * log_expected - math.lgamma(number + 2.0) <= self.log_delta + _NEGLIGIBLE:
                break
            number += 1
        return number

    def _fewer(self, side: Side, jumps: int) -> int:
        """How many small steps fewer than `count` a profile is made of: at most `jumps` (UPPER), at least (LOWER)."""
        if self.most <= 0.1 * self.tolerance * self.count:  # then it hardly matters, and one profile a side is enough
            return 0 if side is Side.UPPER else self.most
        exact = _FEW_EXACT if self.count > _MANY_STEPS else _MANY_EXACT
        return min(jumps, exact) if side is Side.UPPER or jumps <= exact else self.most

    def _profile(self, fewer: int) -> Profile:
        """The small steps alone, `fewer` of them."""
        if fewer not in self._profiles:
            deepest = self.log_delta + _NEGLIGIBLE
            self._profiles[fewer] = Profile(self.parts, self.count - fewer, deepest, self.tolerance)
        return self._profiles[fewer]

    def look_at(self, epsilon: float) -> None:
        """Place the nodes for questions about this epsilon."""
        deviation = self.threshold / DEVIATIONS
        part = self.parts[Side.UPPER]
        nodes = _nodes(float(part.ratio[0]), epsilon, deviation, epsilon + _FAR)
        self._upper_jumps = _upper_powers(part, nodes, self.count, self.most)
        self._lower_jumps = _lower_powers(self.parts[Side.LOWER], nodes, self.count, self.most)

    def _total(self, jumps: Sequence[_Jumps], side: Side, epsilon: float) -> float:
        """sum over k and y of the P-mass of the jumps times D_(T-k)(epsilon - y), bounded on the side."""
        log_p, log_q = self.parts[side].log_masses
        terms = []
        for k, jump in enumerate(jumps):
            used = self._fewer(side, k)
            profile = self._profile(used)
            at = epsilon - jump.ratio + (used - k) * (log_q - log_p)
            values = profile.upper(at) if side is Side.UPPER else profile.lower(at)
            terms.append(math.exp((used - k) * log_p) * float(np.sum(jump.p * values)))
            if side is Side.UPPER:
                terms.append(jump.certain * math.exp((self.count - k) * log_p))
        return math.fsum(terms)

    def upper(self, epsilon: float) -> float:
        """At least D at epsilon."""
        total = self._total(self._upper_jumps, Side.UPPER, epsilon - self._shift)
        return (total * math.exp(self._shift) + self._more) * math.exp(self._rounding) + self._charged

    def lower(self, epsilon: float) -> float:
        """At most D at epsilon."""
        return self._total(self._lower_jumps, Side.LOWER, epsilon) * math.exp(-self._rounding)

    def test(self, epsilon: float) -> tuple[float, float]:
        """(power, false positive rate) of the test behind `lower`, rounded to the unfavorable side."""
        log_p, log_q = self.parts[Side.LOWER].log_masses
        powers, alphas = [], []
        for k, jump in enumerate(self._lower_jumps):
            used = self._fewer(Side.LOWER, k)
            left_out = used - k
            power, alpha = self._profile(used).best_tests(epsilon - jump.ratio + left_out * (log_q - log_p))
            powers.append(math.exp(left_out * log_p) * float(np.sum(jump.p * power)))
            alphas.append(math.exp(left_out * log_q) * float(np.sum(jump.p * np.exp(-jump.ratio) * alpha)))
        return math.fsum(powers) * math.exp(-self._rounding), math.fsum(alphas) * math.exp(self._rounding)

    def places(self) -> list[float]:
        """Where to look for a whole curve: dense within four deviations of the small steps, then ever further apart."""
        deviation, reach = self.threshold / DEVIATIONS, float(self.parts[Side.UPPER].ratio[-1])
        found = [_BULK * deviation * i for i in range(round(4.0 / _BULK))]
        while found[-1] < reach:
            found.append(_FURTHER * found[-1])
        return found

    def epsilon(self, delta: float, guess: float) -> Jaws:
        """Jaws of the smallest epsilon >= 0 with D at most delta."""
        guess = max(guess, float(self.parts[Side.UPPER].ratio[0]), 1e-12)
        for _ in range(_MOST_LOOKS):  # nodes are dense around the guess only, so a far one is found in steps
            self.look_at(guess)
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
        self.look_at(guess)
        _, upper = _crossing(self.upper, delta, guess, width)
        lower, _ = _crossing(self.lower, delta, upper, width) if upper > 0.0 else (0.0, 0.0)
        return Jaws(lower, upper, lower, self.reverse)

    def delta(self, epsilon: float) -> Jaws:
        """Jaws of D at epsilon."""
        self.look_at(epsilon)
        return Jaws(self.lower(epsilon), min(1.0, self.upper(epsilon)), epsilon, self.reverse)


def rare_steps(direction: Direction, log_delta: float, log_tail: float, tolerance: float) -> RareSteps | None:
    """The product conditioned on its large steps, where these are rare."""
    if len(direction.counts) > 1 or direction.steps() == 1:
        return None
    found = RareSteps(direction, log_delta, log_tail, tolerance)
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
