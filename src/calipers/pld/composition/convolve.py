"""Products of PLDs: compose many factors, in one stage or in two.

The lattice must resolve one factor's log ratio, whose spread is about 1/sqrt(T) of the total, so
a single stage needs about sqrt(T) points per unit of accuracy. For many steps we compose a
block on a fine narrow lattice, move the block onto a coarser lattice (splitting again for
UPPER, rounding the score again for LOWER: both stay bounds), and go on. A million steps cost
about two transforms of the size that a thousand steps need.

Rare large steps would make the fine lattice wide. A block of c steps, each small (measure s) or a
jump (measure b of mass beta), is exactly

    (s + b)^c = s^c + c s^(c-1) b + C(c,2) s^(c-2) b^2 + ... ,

so only powers of s live on the fine lattice; jumps are placed on the coarse one, and the terms
with m or more jumps have mass at most (c beta)^m / m!, which is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.errors import CertificationError
from calipers.numerics.fourier import cyclic_product, descending_powers, fast_length
from calipers.pld.composition.factors import Factor, joined, upper_window, window_of, window_of_powers
from calipers.pld.composition.lattice import LatticeMeasure, Window, in_range, rescore, resplit, score_pmf, split_pmf
from calipers.pld.core.pmf import PrivacyLossPmf

TWO_STAGE_COUNT = 300
"""Factors that occur at least this often may be composed in blocks first."""

_JUMPS_PER_BLOCK = 0.06
"""Expected number of large steps in a block, at most: more would be rounded too often."""
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

    `bell_shaped` says that the tilted total has one hump, so that a short window around it will do.
    """

    step: float
    fine_step: float
    tilt: float
    log_escape: float
    bell_shaped: bool = False
    longest: int = _LONGEST

    def in_blocks(self, count: int) -> bool:
        """Whether a factor that occurs `count` times is composed in blocks first."""
        return self.fine_step < self.step and count >= TWO_STAGE_COUNT


def refuse_length(window: Window, longest: int) -> None:
    """Refuse a window of more points than this."""
    length = window.high - window.low + 1
    if length > longest:
        raise LatticeTooLongError(length / longest)


def _convolve(factors: Sequence[Factor], window: Window, plan: LatticePlan) -> LatticeMeasure:
    """The sum of all terms, as a measure on the window; escape and error account for all that is lost."""
    refuse_length(window, plan.longest)
    n = fast_length(window.high - window.low + 1)
    values, error = cyclic_product([f.cyclic(n) for f in factors])
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


def small_range(measure: LatticeMeasure, size: int) -> tuple[int, int]:
    """Positions of small steps: beyond them a block expects few jumps, and its small steps reach no further anyway."""
    mean, _ = measure.moments()
    distance = np.abs(measure.positions - mean)
    order = np.argsort(-distance)
    expected = size * np.cumsum(measure.weights[order])
    rare = float(distance[order[min(int(np.searchsorted(expected, _JUMPS_PER_BLOCK)), len(order) - 1)]])
    _, variance = measure.restricted(distance <= rare).moments()
    radius = max(rare, 4.0 * math.sqrt(size * variance))
    return math.floor(mean - radius), math.ceil(mean + radius)


def separated(measure: LatticeMeasure, small: tuple[int, int]) -> tuple[LatticeMeasure, LatticeMeasure | None]:
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


def block_of(
    parts: tuple[LatticeMeasure, LatticeMeasure | None],
    tilt: float,
    size: int,
    times: int,
    plan: LatticePlan,
    coarsen: Coarsen,
    large: LatticeMeasure | None = None,
) -> Factor:
    """`times` blocks of `size` steps each of a one-step measure on the fine lattice: small steps, jumps, and `large`.

    All parts together have mass 1.
    """
    small, jump = parts
    log_escape = plan.log_escape - math.log(times) - 7.0
    expected = size * math.fsum(float(part.weights.sum()) for part in (jump, large) if part is not None)
    number = _terms_needed(expected, log_escape + 5.0, size)
    window = window_of_powers(small, range(max(1, size - number + 1), size + 1), log_escape)
    refuse_length(window, plan.longest)
    n = fast_length(window.high - window.low + 1)
    # Inside a block all that leaves the window counts as misplaced: missed there, found again elsewhere.
    positions, misplaced = np.arange(window.low, window.low + n), 4.0 * math.exp(log_escape) + 2.0 * window.loose
    moved_jumps = [None if part is None else coarsen(part, plan.fine_step, plan.step, tilt) for part in (jump, large)]
    jump_mass = math.fsum(float(part.weights.sum()) for part in moved_jumps if part is not None)
    in_range(np.array(number * math.log(max(1.0, size * jump_mass))))
    terms: list[LatticeMeasure] = []
    escape, binomial = 0.0, 1.0
    for k, (values, error) in enumerate(descending_powers(small.fold(n), size, number)):
        composed = LatticeMeasure(positions, np.roll(values, -(window.low % n)), 0.0, error, misplaced, dense=True)
        moved = coarsen(composed, plan.fine_step, plan.step, tilt)
        escape += binomial * moved.escape * jump_mass**k
        terms.append(replace(moved, weights=binomial * moved.weights, error=binomial * moved.error, escape=0.0))
        binomial *= (size - k) / (k + 1)
    if expected > 0.0:
        # Moving the small part to the coarse lattice multiplies a tilted mass by at most e^(|tilt| step).
        escape += math.exp(abs(tilt) * plan.step) * (size * jump_mass) ** number / math.factorial(number)
    # Splitting a tilted measure changes its mass; a factor is normalized so that powers stay in range.
    total = math.fsum(float(term.weights.sum()) * jump_mass**k for k, term in enumerate(terms))
    in_range(np.array(0.0 if total > 0.0 else math.inf))
    terms = [replace(term, weights=term.weights / total, error=term.error / total) for term in terms]
    mean, variance = small.moments(jump, large)
    scale = plan.fine_step / plan.step
    log_norm = size * small.log_norm + math.log(total)
    mean, variance = size * mean * scale, size * variance * scale * scale + 0.25
    return Factor(tuple(terms), moved_jumps[0], times, log_norm, mean, variance, escape / total, moved_jumps[1])


def compose_upper(factors: Sequence[tuple[PrivacyLossPmf, int]], plan: LatticePlan) -> LatticeMeasure:
    """The tilted Q-measure of the product of pessimistic PLDs on the final lattice."""
    listed: list[Factor] = []
    for pmf, count in factors:
        rest = count
        if plan.in_blocks(count):
            size = block_size(count)
            times, rest = divmod(count, size)
            fine = split_pmf(pmf, plan.fine_step, plan.tilt)
            parts = separated(fine, small_range(fine, size))
            listed.append(block_of(parts, plan.tilt, size, times, plan, resplit))
        if rest:
            listed.append(Factor.plain(split_pmf(pmf, plan.step, plan.tilt), rest))
    if not plan.bell_shaped:
        return _convolve(listed, window_of(listed, plan.log_escape), plan)
    return _convolve(listed, upper_window(listed, plan.log_escape - 2.0, (plan.tilt - 1.0) * plan.step), plan)


def compose_lower(
    factors: Sequence[tuple[PrivacyLossPmf, int]], plan: LatticePlan
) -> tuple[LatticeMeasure, LatticeMeasure]:
    """The tilted P- and Q-measures of the total score of optimistic PLDs, on one window."""
    sides: tuple[list[Factor], list[Factor]] = ([], [])
    tilts = (plan.tilt - 1.0, plan.tilt)
    for pmf, count in factors:
        rest = count
        if plan.in_blocks(count):
            size = block_size(count)
            times, rest = divmod(count, size)
            scored = score_pmf(pmf, plan.fine_step, plan.tilt)
            # The statistic must be one and the same under P and under Q, so both call the same steps small.
            ranges = [small_range(fine, size) for fine in scored]
            small_steps = min(low for low, _ in ranges), max(high for _, high in ranges)
            for listed, fine, tilt in zip(sides, scored, tilts, strict=True):
                listed.append(block_of(separated(fine, small_steps), tilt, size, times, plan, rescore))
        if rest:
            for listed, measure in zip(sides, score_pmf(pmf, plan.step, plan.tilt), strict=True):
                listed.append(Factor.plain(measure, rest))
    window = joined(window_of(sides[0], plan.log_escape), window_of(sides[1], plan.log_escape))
    return _convolve(sides[0], window, plan), _convolve(sides[1], window, plan)
