"""Masses at consecutive places of one lattice, what the levels of a multi-resolution grid are made of."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calipers.numerics.types import FloatArray

_HALVES = np.array([0.5, 1.0, 0.5])
_BLOCK, _ALONE = 20, 128
"""Rows are convolved in blocks of so many places, but for a single one of at most so many."""
_MOST_BLOCKS, _SMALL = 16, 2**18 // _BLOCK
"""So many blocks at a time: small products stay in a cache, and BLAS starts no threads for them, which cost more than
they save (OpenBLAS does for more than 2^18 multiplications)."""


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


def folded(
    segment: LatticeSegment, unit: float, ends: tuple[float, float], pmfs: int
) -> tuple[LatticeSegment, FloatArray, int]:
    """What lies beyond the ends is moved to the last places between them, which are multiples of `unit`.

    Returns the segment, what that took from the mean of each of the first `pmfs` rows at the upper end, and how many
    places became one.
    """
    low, high = math.ceil(ends[0] / unit), math.floor(ends[1] / unit)
    first, rows = segment
    size = rows.shape[1]
    left, right = min(max(low - first, 0), size - 1), max(min(high - first, size - 1), 0)
    above: FloatArray = np.zeros(pmfs)
    most = left + size - 1 - right
    if most == 0 and low <= first <= high:
        return segment, above, 0
    if first + size - 1 > high:
        above = unit * (rows[:pmfs] @ np.maximum(places(segment) - high, 0.0))
    kept = rows[:, left : right + 1].copy()
    kept[:, 0] += rows[:, :left].sum(axis=1)
    kept[:, -1] += rows[:, right + 1 :].sum(axis=1)
    return LatticeSegment(min(max(first + left, low), high), kept), above, most


def summed(longest: int) -> int:
    """How many numbers a place of a convolution adds up one after the other; `longest`: of the shorter rows."""
    return max(min(longest, _ALONE), _BLOCK + longest // _BLOCK + 2)


def convolved(many: FloatArray, one: FloatArray) -> FloatArray:
    """Rows convolved with those of `one`, of which there are as many, or one to every few: in turn.

    Entries have a relative error of at most `summed` + 2 units of rounding. A block of places of a row times a matrix
    whose rows are the other row, each one place further on, is a product of matrices, which is quick; blocks are added
    where they belong.
    """
    (count, n), (pmfs, m) = many.shape, one.shape
    if count == 1 and min(n, m) <= _ALONE:
        first, second = (many[0], one[0]) if n <= m else (one[0], many[0])
        return np.correlate(second, first[::-1], "full")[None]  # np.convolve, without what it checks
    kinds, blocks, width = count // pmfs, -(-n // _BLOCK), m + _BLOCK - 1
    parts = -(-blocks // min(_MOST_BLOCKS, max(2, _SMALL // width)))
    each = -(-blocks // parts)
    cut: FloatArray = np.zeros((kinds, pmfs, parts * each * _BLOCK))
    cut[:, :, :n] = many.reshape(kinds, pmfs, n)
    cut = cut.reshape(kinds, pmfs, parts, each, _BLOCK)
    shifted: FloatArray = np.zeros((pmfs, _BLOCK, m + _BLOCK))
    shifted[:, :, :m] = one[:, None]
    # Read with rows that are shorter by one, each begins one place further on.
    shifted = shifted.reshape(pmfs, -1)[:, : _BLOCK * width].reshape(pmfs, _BLOCK, width)
    size, begin = each * _BLOCK + m - 1, each * _BLOCK
    apart: FloatArray = np.zeros((kinds, pmfs, each, size + _BLOCK))
    read = apart.reshape(kinds, pmfs, -1)[:, :, : each * size].reshape(kinds, pmfs, each, size)
    if parts == 1:
        np.matmul(cut[:, :, 0], shifted, out=apart[..., :width])
        return np.asarray(read.sum(axis=2).reshape(count, size)[:, : n + m - 1])
    together: FloatArray = np.zeros((kinds, pmfs, (parts - 1) * begin + size))
    for i in range(parts):
        np.matmul(cut[:, :, i], shifted, out=apart[..., :width])
        together[:, :, i * begin : i * begin + size] += read.sum(axis=2)
    return together.reshape(count, -1)[:, : n + m - 1]
