"""The attack that changes sides, on a circle: what `calipers.laws.allocated.switching_rounds` does on ladders, quicker.

The policy looks at the residue of its running sum (`calipers.laws.allocated.circle`), which is as much an attack as any
other. A block of m rounds of one way multiplies the transform of the running sum's law by that of the block,

    f_0^m  under noise,      f_0^(m - 1) f_i  with one of its rounds following f_i;

the law is cut at the mark before it, each part is multiplied by the block of its own way, and both are added.

Errors. Cutting and adding a block of either way is a sub-stochastic map, so an error of the running law does not grow
in the 1-norm. What a block adds to it is the rounding of a few transforms, and that of the block's own: with e = c u
log2(n), each coefficient of f is off by e at most, hence those of the block by m e, and both parts together have a
2-norm of at most sqrt(2) times that of the law; sqrt(n) times a 2-norm is a 1-norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.fft

from calipers.laws.allocated.circle import Circle
from calipers.numerics.fourier import UNIT_ROUNDOFF, fft_relative_error, two_norm
from calipers.numerics.types import FloatArray

Spectra = list[np.ndarray]


def ended_on_circle(
    circle: Circle, laws: Sequence[Sequence[FloatArray]], sizes: Sequence[int], marks: Sequence[float]
) -> tuple[list[FloatArray], float]:
    """Laws of the sum's residue (noise, present, absent) after all blocks, and at least the 1-norm of their errors.

    `laws`: of one score, of both ways to play. `marks`: the running sums above which a block is played the second way.
    """
    n, values = circle.size, circle.values
    per = 1.01 * fft_relative_error(n) + 4.0 * UNIT_ROUNDOFF
    single = [[scipy.fft.rfft(law) for law in rows] for rows in laws]
    # Sums of 1, 2, 4, ... rounds, one of them of its own kind.
    played: list[dict[int, Spectra]] = [{1: rows} for rows in single]
    for rounds in played:
        for j in range(1, max(sizes).bit_length()):
            half = rounds[1 << (j - 1)]
            rounds[1 << j] = [half[0] * one for one in half]
    state, terms = played[0][sizes[0]], sizes[0]
    # Of the first block the error of every coefficient counts times what the other rounds leave of it.
    left = (np.abs(single[0][0]) + per) ** max(sizes[0] - 2, 0)
    lost = sizes[0] * per * math.sqrt(2.0 * float(np.sum(left * left)) / n)
    for size, mark in zip(sizes[1:], marks, strict=True):
        rows = [scipy.fft.irfft(each, n) for each in state]
        below = values <= mark
        under = [scipy.fft.rfft(np.where(below, row, 0.0)) for row in rows]
        over = [each - part for each, part in zip(state, under, strict=True)]
        share = terms / (terms + size)
        opposed, agreed = played[0][size], played[1][size]
        later = [first * opposed[0] + second * agreed[0] for first, second in zip(under, over, strict=True)]
        for i in (1, 2):
            later[i] = share * later[i] + (1.0 - share) * (under[0] * opposed[i] + over[0] * agreed[i])
        lost += (1.5 * size + 6.0) * per * max(two_norm(row) for row in rows)
        state, terms = later, terms + size
    rows = [scipy.fft.irfft(each, n) for each in state]
    lost += 2.0 * per * max(two_norm(row) for row in rows)
    return rows, 1.02 * math.sqrt(n) * lost
