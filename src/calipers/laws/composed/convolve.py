"""Products of laws: compose many factors, in one stage or in two.

The lattice must resolve one factor's log ratio, whose spread is about 1/sqrt(T) of the total, so
a single stage needs about sqrt(T) points per unit of accuracy. For many steps we compose a
block on a fine narrow lattice, move the block onto a coarser lattice (splitting again for
UPPER, rounding the score again for LOWER: both stay bounds), and go on. A million steps cost
about two transforms of the size that a thousand steps need.

Rare large steps would make the fine lattice wide. A block of c steps, each small (measure s) or a
jump (measure b of mass beta), is exactly

    (s + b)^c = s^c + c s^(c-1) b + C(c,2) s^(c-2) b^2 + ... ,

so only powers of s live on the fine lattice; jumps are placed on the coarse one, and the terms
with m or more jumps have mass at most (c beta)^m / m!, which is charged.

Window. The lattice is a circle of n points that covers an interval which the sum rarely leaves, by
Chernoff's bound: P(S > m) <= exp(log E e^(sS) - s m) for every s > 0. Single steps that are too
large for any useful s, and too rare to matter, are left out of the bound and their mass is charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.errors import CertificationError
from calipers.laws.composed.lattice import LatticeMeasure, Window, in_range, rescore, resplit, score_law, split_law
from calipers.laws.core.law import Law
from calipers.numerics.elementary import log_sums_at
from calipers.numerics.fourier import CyclicFactor, cyclic_product, descending_powers, fast_length
from calipers.numerics.types import FloatArray

TWO_STAGE_COUNT = 300
"""Factors that occur at least this often may be composed in blocks first."""

_CHERNOFF_STEPS = np.array([0.5, 1.2, 2.2, 3.5, 5.0, 6.5])
_JUMPS_PER_BLOCK = 0.06
_FURTHER = 20.0
"""Where single steps reach so many deviations of the sum, a window is as long as they are."""
_LONGEST = 1 << 20
"""No convolution is longer than this; a coarser lattice gives a bound as well."""


class LatticeTooLongError(CertificationError):
    """The window of a plan holds too many lattice points; `excess` says by what factor."""

    def __init__(self, excess: float) -> None:
        super().__init__(f"The lattice is {excess:.2g} times too long. Ask for a larger tolerance.")
        self.excess = excess


@dataclass(frozen=True)
class LatticePlan:
    """Steps of the final and of the block lattice, the tilt, and the mass allowed to escape the window.

    `bell_shaped` says that the tilted total has one hump, so that a short window around it will do; `faint` that
    LOWER laws of faint steps are charged as such (`calipers.laws.composed.lattice`); `loud` that the error of a
    transform is nothing beside what is read off the total, so that no coefficient is summed directly.
    """

    step: float
    fine_step: float
    tilt: float
    log_escape: float
    bell_shaped: bool = False
    faint: bool = False
    loud: bool = False
    longest: int = _LONGEST

    def in_blocks(self, count: int) -> bool:
        """Whether a factor that occurs `count` times is composed in blocks first."""
        return self.fine_step < self.step and count >= TWO_STAGE_COUNT


@dataclass(frozen=True)
class Factor:
    """`count` independent terms, each distributed as `sum over k of terms[k] * jump^(*k)`, of mass about 1."""

    terms: tuple[LatticeMeasure, ...]
    jump: LatticeMeasure | None
    count: int
    log_norm: float
    mean: float
    variance: float
    escape: float = 0.0

    @classmethod
    def plain(cls, measure: LatticeMeasure, count: int) -> Factor:
        """A factor without jumps."""
        mean, variance = measure.moments()
        return cls((measure,), None, count, measure.log_norm, mean, variance, measure.escape)

    def cyclic(self, n: int) -> CyclicFactor:
        """The factor on the circle Z/n."""
        jump = None if self.jump is None else self.jump.fold(n)
        mass = 0.0 if jump is None else float(jump.sum())
        # Folding w wraps of the circle onto each other can raise the 2-norm of an error by sqrt(w).
        wraps = [math.sqrt(math.ceil(len(term.positions) / n)) for term in self.terms]
        error = math.fsum(term.error * w * mass**k for k, (term, w) in enumerate(zip(self.terms, wraps, strict=True)))
        return CyclicFactor(tuple(term.fold(n) for term in self.terms), self.count, error, jump)

    def trimmed(self, log_loose: float) -> tuple[Factor, float]:
        """The factor without its most distant positions, and their mass times count (at most e^log_loose)."""
        measure = self.terms[0]
        if self.jump is not None or measure.error > 0:
            return self, 0.0
        distance, weights = np.abs(measure.positions - self.mean), self.count * measure.weights
        allowed = math.exp(log_loose)
        # Nothing is dropped up to the farthest position that is too heavy by itself: few are left to be sorted.
        far = np.flatnonzero(distance > np.max(distance, where=weights > allowed, initial=-1.0))
        order = far[np.argsort(-distance[far])]
        mass = np.cumsum(weights[order])
        dropped = int(np.searchsorted(mass, allowed))
        if dropped == 0:
            return self, 0.0
        kept = np.ones(len(distance), dtype=bool)
        kept[order[:dropped]] = False
        return replace(self, terms=(measure.restricted(kept),)), float(mass[dropped - 1])

    def log_mgf(self, rates: FloatArray) -> FloatArray:
        """At least log E exp(s (X - mean)) for one term, at every s of `rates`."""
        total = _log_mgf(self.terms[0], self.mean, rates)
        if self.jump is not None:
            jump = _log_mgf(self.jump, 0.0, rates)
            for k, term in enumerate(self.terms[1:], start=1):
                total = np.logaddexp(total, _log_mgf(term, self.mean, rates) + k * jump)
        return total


def _log_mgf(measure: LatticeMeasure, mean: float, rates: FloatArray) -> FloatArray:
    """At least the log of the sum of w e^(s (x - mean)), the error of the weights included."""
    positive = measure.weights > 0  # what is not positive is FFT noise, and covered by the error
    values = np.full(len(rates), -math.inf)  # of no mass at all: that of jumps may be too small for a float
    if np.any(positive):
        values = log_sums_at(rates, measure.positions[positive] - mean, np.log(measure.weights[positive]))
    if measure.error > 0:  # Cauchy-Schwarz: sum |error_i| e^(s x_i) <= error times the 2-norm of e^(s x_i)
        if measure.dense:  # a geometric series
            ends, growth = measure.positions[[0, -1]] - mean, 2.0 * np.abs(rates)
            everywhere = np.max(2.0 * np.multiply.outer(rates, ends), axis=1)
            everywhere += np.log(np.expm1(-growth * len(measure.positions)) / np.expm1(-growth)) + 1e-12
        else:
            everywhere = log_sums_at(2.0 * rates, measure.positions - mean, 0.0)
        values = np.logaddexp(values, math.log(measure.error) + 0.5 * everywhere)
    return values


@dataclass(frozen=True)
class _Outlook:
    """Log moment functions of a sum around its center, at a few rates, without its rarest terms."""

    center: float
    variance: float
    rates: FloatArray
    below: FloatArray
    above: FloatArray
    loose: float

    @classmethod
    def of(cls, factors: Sequence[Factor], log_escape: float) -> _Outlook:
        """Terms of total mass up to e^(log_escape - 6) are left out, as `loose`."""
        kept, loose = [], 0.0
        for factor in factors:
            small, mass = factor.trimmed(log_escape - 6.0 - math.log(len(factors)))
            kept.append(small)
            loose += mass
        variance = math.fsum(f.count * f.variance for f in kept)
        # Where single steps reach far beyond the deviation of the sum, the useful rates are smaller.
        furthest = max(float(np.max(np.abs(f.terms[0].positions - f.mean))) for f in kept)
        usual, far = _rates(variance), furthest > _FURTHER * math.sqrt(variance)
        rates = np.append(usual, np.array([2.0, 6.0, 14.0, 24.0][: 4 if far else 2]) / (furthest + 1.0))
        both = np.sum([f.count * f.log_mgf(np.append(-rates, rates)) for f in kept], axis=0)
        below, above = np.split(both, 2)
        return cls(math.fsum(f.count * f.mean for f in kept), variance, rates, below, above, loose)

    def window(self, log_escape: float) -> Window:
        """Where the sum lives."""
        return _chernoff(self.center, self.rates, self.below, self.above, log_escape, self.loose)


def _window(factors: Sequence[Factor], log_escape: float) -> Window:
    """Where the sum of all terms lives."""
    return _Outlook.of(factors, log_escape).window(log_escape)


def _upper_window(factors: Sequence[Factor], log_escape: float, decay: float) -> Window:
    """A shorter window for an UPPER measure whose tail sums have weights e^(-decay distance).

    Mass that goes around the circle only adds to an upper bound, so nothing is charged for it; the circle
    is just made long enough that it adds little. Mass beyond the right end is charged, but with the
    weight it has there. We look from a point `ahead` of the center, where the answer may lie:

    - beyond the right end at distance d: P(S > d) e^(-decay (d - ahead)) <= e^log_escape;
    - from below, a circle of n points lets in e^(-decay n) E[e^(-decay (S - ahead))];
    - from above, at most P(S > n).
    """
    outlook = _Outlook.of(factors, log_escape)
    plain = outlook.window(log_escape)
    if decay <= 0.0 or decay * decay * outlook.variance > 400.0:
        return plain
    spread, center = math.sqrt(outlook.variance), outlook.center
    ahead = 1.2 * spread
    rates, above = outlook.rates, outlook.above
    below = math.fsum(f.count * float(f.log_mgf(np.array([-decay]))[0]) for f in factors)
    distances = (above - log_escape + decay * ahead) / (rates + decay)
    j = int(np.argmin(distances))
    distance = max(float(distances[j]), 2.5 * spread)
    length = max((below + decay * ahead - log_escape) / decay, plain.high - center) + ahead
    low, high = math.floor(center + distance - length), math.ceil(center + distance) + 1
    low = max(plain.low, min(low, math.floor(center - 2.0 * spread)))
    if high >= plain.high:
        return plain
    # P(S > high + m) <= e^(above - rate (high - center + m)).
    beyond = float(above[j]) - float(rates[j]) * (high - center)
    return Window(low, high, beyond, plain.rate_below, float(rates[j]), outlook.loose)


def _rates(variance: float) -> FloatArray:
    """A few Chernoff parameters around the useful one."""
    return np.asarray(_CHERNOFF_STEPS / max(math.sqrt(variance), 1e-3))


def _chernoff(
    center: float, rates: FloatArray, below: FloatArray, above: FloatArray, log_escape: float, loose: float
) -> Window:
    """The window that the best rate on either side gives, from log moment functions around `center`."""
    lows, highs = (below - log_escape) / rates, (above - log_escape) / rates
    i, j = int(np.argmin(lows)), int(np.argmin(highs))
    low, high = math.floor(center - float(lows[i])) - 1, math.ceil(center + float(highs[j])) + 1
    return Window(low, high, log_escape, float(rates[i]), float(rates[j]), loose)


def _window_of_powers(measure: LatticeMeasure, powers: range, log_escape: float) -> Window:
    """One window for sums of `power` terms of the same measure, for every power listed."""
    mean, variance = measure.moments()
    one, loose = Factor((measure,), None, powers[-1], 0.0, mean, variance).trimmed(log_escape - 6.0)
    rates = _rates(powers[-1] * variance)
    above, below = one.log_mgf(rates), one.log_mgf(-rates)
    found = _chernoff(powers[0] * mean, rates, powers[0] * below, powers[0] * above, log_escape, loose)
    for power in powers[1:]:
        found = _joined(found, _chernoff(power * mean, rates, power * below, power * above, log_escape, loose))
    return found


def _joined(first: Window, second: Window) -> Window:
    """A window that serves two sums (P and Q of a LOWER law): the weaker statement of both."""
    return Window(
        min(first.low, second.low),
        max(first.high, second.high),
        max(first.log_escape, second.log_escape),
        min(first.rate_below, second.rate_below),
        min(first.rate_above, second.rate_above),
        max(first.loose, second.loose),
    )


def _refuse_length(window: Window, longest: int) -> None:
    length = window.high - window.low + 1
    if length > longest:
        raise LatticeTooLongError(length / longest)


def _convolve(factors: Sequence[Factor], window: Window, plan: LatticePlan) -> LatticeMeasure:
    """The sum of all terms, as a measure on the window; escape and error account for all that is lost."""
    _refuse_length(window, plan.longest)
    n = fast_length(window.high - window.low + 1)
    values, error = cyclic_product([f.cyclic(n) for f in factors], directly=not plan.loud)
    escape = 2.0 * window.loose + 1.01 * math.fsum(f.count * f.escape for f in factors)
    log_norm = math.fsum(f.count * f.log_norm for f in factors)
    positions = np.arange(window.low, window.low + n)
    return LatticeMeasure(positions, np.roll(values, -(window.low % n)), log_norm, error, escape, window)


def block_size(count: int) -> int:
    """Steps per block when a factor is composed in two stages: near sqrt(count), with a small remainder.

    The remaining steps go onto the coarse lattice one by one, which costs accuracy in proportion to
    their number, so the size with the smallest remainder relative to the number of blocks wins.
    """
    root = math.isqrt(count)
    sizes = np.arange(max(2, (3 * root) // 4), (4 * root) // 3 + 1, dtype=np.int64)
    return int(sizes[np.argmin((count % sizes) * sizes + np.abs(sizes - root) * 1e-6 * count)])


Coarsen = Callable[[LatticeMeasure, float, float, float], LatticeMeasure]


def _small_steps(measure: LatticeMeasure, size: int) -> tuple[int, int]:
    """Positions of small steps: beyond them a block expects few jumps, and its small steps reach no further anyway."""
    mean, _ = measure.moments()
    distance = np.abs(measure.positions - mean)
    order = np.argsort(-distance)
    expected = size * np.cumsum(measure.weights[order])
    rare = float(distance[order[min(int(np.searchsorted(expected, _JUMPS_PER_BLOCK)), len(order) - 1)]])
    _, variance = measure.restricted(distance <= rare).moments()
    radius = max(rare, 4.0 * math.sqrt(size * variance))
    return math.floor(mean - radius), math.ceil(mean + radius)


def _separate(measure: LatticeMeasure, small: tuple[int, int]) -> tuple[LatticeMeasure, LatticeMeasure | None]:
    """The parts of a measure on small steps and on jumps."""
    inside = (measure.positions >= small[0]) & (measure.positions <= small[1])
    return measure.restricted(inside), None if bool(inside.all()) else measure.restricted(~inside)


def _terms_needed(expected: float, log_escape: float, size: int) -> int:
    """How many jump counts 0, 1, ... to keep so that the rest has mass below e^log_escape."""
    number = 1
    while number <= min(size, 12) and expected > 0:
        if number * math.log(expected) - math.lgamma(number + 1.0) <= log_escape:
            break
        number += 1
    return number


def _block(
    measure: LatticeMeasure,
    small_steps: tuple[int, int],
    tilt: float,
    size: int,
    times: int,
    plan: LatticePlan,
    coarsen: Coarsen,
) -> Factor:
    """`times` blocks of `size` steps each of a normalized one-step measure on the fine lattice."""
    small, jump = _separate(measure, small_steps)
    log_escape = plan.log_escape - math.log(times) - 7.0
    expected = 0.0 if jump is None else size * float(jump.weights.sum())
    number = _terms_needed(expected, log_escape + 5.0, size)
    window = _window_of_powers(small, range(max(1, size - number + 1), size + 1), log_escape)
    _refuse_length(window, plan.longest)
    n = fast_length(window.high - window.low + 1)
    # Inside a block all that leaves the window counts as misplaced: missed there, found again elsewhere.
    positions, misplaced = np.arange(window.low, window.low + n), 4.0 * math.exp(log_escape) + 2.0 * window.loose
    moved_jump = None if jump is None else coarsen(jump, plan.fine_step, plan.step, tilt)
    jump_mass = 0.0 if moved_jump is None else float(moved_jump.weights.sum())
    in_range(np.array(number * math.log(max(1.0, size * jump_mass))))
    terms: list[LatticeMeasure] = []
    escape, binomial = 0.0, 1.0
    for k, (values, error) in enumerate(descending_powers(small.fold(n), size, number)):
        composed = LatticeMeasure(positions, np.roll(values, -(window.low % n)), 0.0, error, misplaced, dense=True)
        moved = coarsen(composed, plan.fine_step, plan.step, tilt)
        escape += binomial * moved.escape * jump_mass**k
        terms.append(replace(moved, weights=binomial * moved.weights, error=binomial * moved.error, escape=0.0))
        binomial *= (size - k) / (k + 1)
    if jump is not None:
        # Moving the small part to the coarse lattice multiplies a tilted mass by at most e^(|tilt| step).
        escape += math.exp(abs(tilt) * plan.step) * (size * jump_mass) ** number / math.factorial(number)
    # Splitting a tilted measure changes its mass; a factor is normalized so that powers stay in range.
    total = math.fsum(float(term.weights.sum()) * jump_mass**k for k, term in enumerate(terms))
    in_range(np.array(0.0 if total > 0.0 else math.inf))
    terms = [replace(term, weights=term.weights / total, error=term.error / total) for term in terms]
    mean, variance = measure.moments()
    scale = plan.fine_step / plan.step
    log_norm = size * measure.log_norm + math.log(total)
    mean, variance = size * mean * scale, size * variance * scale * scale + 0.25
    return Factor(tuple(terms), moved_jump, times, log_norm, mean, variance, escape / total)


def compose_upper(factors: Sequence[tuple[Law, int]], plan: LatticePlan) -> LatticeMeasure:
    """The tilted Q-measure of the product of UPPER laws on the final lattice."""
    listed: list[Factor] = []
    for law, count in factors:
        rest = count
        if plan.in_blocks(count):
            size = block_size(count)
            times, rest = divmod(count, size)
            fine = split_law(law, plan.fine_step, plan.tilt)
            listed.append(_block(fine, _small_steps(fine, size), plan.tilt, size, times, plan, resplit))
        if rest:
            listed.append(Factor.plain(split_law(law, plan.step, plan.tilt), rest))
    if not plan.bell_shaped:
        return _convolve(listed, _window(listed, plan.log_escape), plan)
    return _convolve(listed, _upper_window(listed, plan.log_escape - 2.0, (plan.tilt - 1.0) * plan.step), plan)


def compose_lower(factors: Sequence[tuple[Law, int]], plan: LatticePlan) -> tuple[LatticeMeasure, LatticeMeasure]:
    """The tilted P- and Q-measures of the total score of LOWER laws, on one window."""
    sides: tuple[list[Factor], list[Factor]] = ([], [])
    tilts = (plan.tilt - 1.0, plan.tilt)
    for law, count in factors:
        rest = count
        if plan.in_blocks(count):
            size = block_size(count)
            times, rest = divmod(count, size)
            scored = score_law(law, plan.fine_step, plan.tilt)
            # The statistic must be one and the same under P and under Q, so both call the same steps small.
            ranges = [_small_steps(fine, size) for fine in scored]
            small_steps = min(low for low, _ in ranges), max(high for _, high in ranges)
            for listed, fine, tilt in zip(sides, scored, tilts, strict=True):
                listed.append(_block(fine, small_steps, tilt, size, times, plan, rescore))
        if rest:
            for listed, measure in zip(sides, score_law(law, plan.step, plan.tilt, plan.faint), strict=True):
                listed.append(Factor.plain(measure, rest))
    window = _joined(_window(sides[0], plan.log_escape), _window(sides[1], plan.log_escape))
    return _convolve(sides[0], window, plan), _convolve(sides[1], window, plan)
