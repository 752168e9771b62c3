"""Masses at consecutive places of one lattice, what the levels of a multi-resolution grid are made of."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calipers.numerics.types import FloatArray

_HALVES = np.array([0.5, 1.0, 0.5])
"""Weights of the trapezoidal rule."""
_BLOCK, _ALONE = 64, 128
"""Rows are convolved in blocks of so many places, but for those of at most so many."""


class LatticeSegment(NamedTuple):
    """Masses at places low, low + 1, ... of one lattice, a row for each PLD; a tuple, as there are very many."""

    low: int
    rows: FloatArray


def places(segment: LatticeSegment) -> FloatArray:
    """The numbers of its places."""
    return np.arange(segment.low, segment.low + segment.rows.shape[1], dtype=np.float64)


def joined(first: LatticeSegment | None, second: LatticeSegment | None) -> LatticeSegment | None:
    """The sum of two segments of one lattice."""
    if first is None or second is None:
        return second if first is None else first
    (size, width), low = first.rows.shape, min(first.low, second.low)
    start, other = first.low - low, second.low - low
    total = np.zeros((size, max(start + width, other + second.rows.shape[1])))
    total[:, start : start + width] = first.rows
    total[:, other : other + second.rows.shape[1]] += second.rows
    return LatticeSegment(low, total)


def coarsened(segment: LatticeSegment) -> LatticeSegment:
    """The segment on the next lattice up: odd places go to both neighbors, half each."""
    low, rows = segment
    odd_first = low % 2
    if rows.shape[0] == 1:
        return LatticeSegment(low // 2, np.correlate(rows[0], _HALVES, "full")[None, 1 - odd_first :: 2])
    size = rows.shape[1]
    # Rows one after the other, with room between them for what moves out of their ends.
    apart = np.zeros((len(rows), size + 2 + (size & 1)))
    apart[:, 1 : size + 1] = rows
    moved = np.correlate(apart.ravel(), _HALVES, "same").reshape(apart.shape)
    return LatticeSegment(low // 2, moved[:, 1 - odd_first : size + 2 : 2])


def shrunk(segment: LatticeSegment) -> LatticeSegment | None:
    """The segment without empty places at its ends."""
    low, rows = segment
    filled = np.asarray(rows.any(axis=0) if rows.shape[0] > 1 else rows[0] != 0.0)
    first = int(filled.argmax())
    if not filled[first]:
        return None
    last = len(filled) - int(filled[::-1].argmax())
    return LatticeSegment(low + first, rows[:, first:last])


def folded(segment: LatticeSegment, unit: float, ends: tuple[float, float]) -> tuple[LatticeSegment, float, int]:
    """What lies beyond the ends is moved to the last places between them, which are multiples of `unit`.

    Returns the segment, what that took from the mean of the first row at the upper end, and how many places became one.
    """
    low, high = math.ceil(ends[0] / unit), math.floor(ends[1] / unit)
    first, rows = segment
    size = rows.shape[1]
    left, right = min(max(low - first, 0), size - 1), max(min(high - first, size - 1), 0)
    above = 0.0
    most = left + size - 1 - right
    if most == 0 and low <= first <= high:
        return segment, above, 0
    if first + size - 1 > high:
        above = unit * float(rows[0] @ np.maximum(places(segment) - high, 0.0))
    kept = rows[:, left : right + 1].copy()
    kept[:, 0] += rows[:, :left].sum(axis=1)
    kept[:, -1] += rows[:, right + 1 :].sum(axis=1)
    return LatticeSegment(min(max(first + left, low), high), kept), above, most


def summed(longest: int) -> int:
    """How many numbers a place of a convolution adds up one after the other; `longest`: of the shorter rows."""
    return max(min(longest, _ALONE), _BLOCK + longest // _BLOCK + 2)


def convolved(many: FloatArray, one: FloatArray) -> FloatArray:
    """Each row convolved with one: entries have a relative error of at most `summed` + 2 units of rounding.

    Long rows are cut into blocks; blocks times a matrix whose rows are the other row, each one place further on, are a
    product of matrices, which is quick.
    """
    (count, n), m = many.shape, len(one)
    if min(n, m) <= _ALONE:
        if count == 1:  # as most are
            return np.convolve(many[0], one)[None]
        return np.stack([np.convolve(row, one) for row in many])
    number = -(-n // _BLOCK)
    cut: FloatArray = np.zeros((count, number * _BLOCK))
    cut[:, :n] = many
    padded: FloatArray = np.zeros(m + 2 * (_BLOCK - 1))
    padded[_BLOCK - 1 : _BLOCK - 1 + m] = one
    last, each = (_BLOCK - 1) * padded.itemsize, padded.itemsize
    shifted = np.ndarray((_BLOCK, m + _BLOCK - 1), np.float64, padded, last, (-each, each)).copy()
    found: FloatArray = np.zeros((count, number * _BLOCK + m - 1))
    parts = cut.reshape(count, number, _BLOCK) @ shifted
    for i in range(number):
        found[:, i * _BLOCK : (i + 1) * _BLOCK + m - 1] += parts[:, i]
    return found[:, : n + m - 1]
