"""Products of laws: compose many factors, in one stage or in two.

The lattice must resolve one factor's log ratio, whose spread is about 1/sqrt(T) of the total, so
a single stage needs about sqrt(T) points per unit of accuracy. For many steps we compose a
block on a fine narrow lattice, move the block onto a coarser lattice (splitting again for
UPPER, rounding the score again for LOWER: both stay bounds), and go on. A million steps cost
about two transforms of the size that a thousand steps need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.laws.lattice import (
    LatticeMeasure,
    chernoff_window,
    rescore,
    resplit,
    score_law,
    split_law,
)
from calipers.laws.law import Law
from calipers.numerics.fourier import CyclicFactor, cyclic_product, fast_length

TWO_STAGE_COUNT = 3000
"""Factors that occur at least this often are composed in blocks first."""


@dataclass(frozen=True)
class LatticePlan:
    """Steps of the final and of the block lattice, the tilt, and the mass allowed to escape the window."""

    step: float
    fine_step: float
    tilt: float
    log_escape: float


def _window(measures: Sequence[Sequence[LatticeMeasure]], log_escape: float) -> tuple[int, int]:
    """One window that serves several lists of measures (P and Q of a LOWER law)."""
    windows = [chernoff_window(listed, log_escape) for listed in measures]
    return min(low for low, _ in windows), max(high for _, high in windows)


def _convolve(measures: Sequence[LatticeMeasure], window: tuple[int, int], log_escape: float) -> LatticeMeasure:
    """The sum of all terms, as a measure on the window; escape and error account for all that is lost."""
    low, high = window
    n = fast_length(high - low + 1)
    factors = [CyclicFactor(m.fold(n), m.count, m.error) for m in measures]
    values, error = cyclic_product(factors)
    # Mass beyond either end is missed there and reappears inside: at most e^log_escape each way, each end.
    escape = 4.0 * math.exp(log_escape) + 1.01 * math.fsum(m.count * m.escape for m in measures)
    return LatticeMeasure(
        np.arange(low, low + n),
        np.roll(values, -(low % n)),
        math.fsum(m.count * m.log_norm for m in measures),
        1,
        error=error,
        escape=escape,
    )


def _blocks(count: int) -> list[tuple[int, int]]:
    """count = sum of size * times, with sizes near sqrt(count)."""
    size = 1 << round(math.log2(count) / 2)
    times, rest = divmod(count, size)
    return [(size, times)] + ([(rest, 1)] if rest else [])


Coarsen = Callable[[LatticeMeasure, float, float, float, int], LatticeMeasure]


def _staged(
    sides: Sequence[LatticeMeasure], tilts: Sequence[float], count: int, plan: LatticePlan, coarsen: Coarsen
) -> list[list[LatticeMeasure]]:
    """Blocks of one factor (given once per side on the fine lattice), moved to the final lattice."""
    result: list[list[LatticeMeasure]] = [[] for _ in sides]
    for size, times in _blocks(count):
        log_escape = plan.log_escape - math.log(times) - 4.0
        terms = [[replace(side, count=size)] for side in sides]
        window = _window(terms, log_escape)
        for index, (term, tilt) in enumerate(zip(terms, tilts, strict=True)):
            block = _convolve(term, window, log_escape)
            result[index].append(coarsen(block, plan.fine_step, plan.step, tilt, times))
    return result


def compose_upper(factors: Sequence[tuple[Law, int]], plan: LatticePlan) -> LatticeMeasure:
    """The tilted Q-measure of the product of UPPER laws on the final lattice."""
    measures: list[LatticeMeasure] = []
    for law, count in factors:
        if count < TWO_STAGE_COUNT:
            measures.append(split_law(law, plan.step, plan.tilt, count))
        else:
            fine = split_law(law, plan.fine_step, plan.tilt, 1)
            measures.extend(_staged([fine], [plan.tilt], count, plan, resplit)[0])
    return _convolve(measures, _window([measures], plan.log_escape), plan.log_escape)


def compose_lower(factors: Sequence[tuple[Law, int]], plan: LatticePlan) -> tuple[LatticeMeasure, LatticeMeasure]:
    """The tilted P- and Q-measures of the total score of LOWER laws, on one window."""
    sides: tuple[list[LatticeMeasure], list[LatticeMeasure]] = ([], [])
    for law, count in factors:
        if count < TWO_STAGE_COUNT:
            for listed, measure in zip(sides, score_law(law, plan.step, plan.tilt, count), strict=True):
                listed.append(measure)
        else:
            fine = score_law(law, plan.fine_step, plan.tilt, 1)
            staged = _staged(fine, [plan.tilt - 1.0, plan.tilt], count, plan, rescore)
            for listed, blocks in zip(sides, staged, strict=True):
                listed.extend(blocks)
    window = _window(sides, plan.log_escape)
    under_p, under_q = (_convolve(listed, window, plan.log_escape) for listed in sides)
    return under_p, under_q
