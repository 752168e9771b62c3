"""Exact random draws that never hold the whole dataset.

Three primitives, from which every sampler is built. "Exact" means: if the generator's words are
uniform and independent, the result has the stated distribution, in integer arithmetic throughout
(`permuted`, `throw`) or up to the stated floating-point error (`bernoulli_indices`).

**Bernoulli indices by gaps.** Toss an independent q-coin for each index. The number of failures
before the next success is geometric, P(G = g) = (1-q)^g q, and successive ones are independent.
With lambda = -log(1-q) and E standard exponential, P(floor(E/lambda) >= g) = e^(-lambda g) =
(1-q)^g: so G = floor(E/lambda) *is* that gap. The successes are found in order, at a cost
proportional to their number. (Drawing a binomial count first looks simpler, but released versions
of NumPy's `Generator.binomial` have not been exactly binomial: some evaluate log(1-p) without log1p,
and in some the rejection step for large means adds two Stirling corrections that ought to be
subtracted; numpy pull requests 29522 and 31238.)

**A permutation as a stream.** Draw independent uniform indices and ignore every value seen
before: the first k distinct values form a uniformly random k-sequence without repetition, because
the procedure treats all labels alike. So a permutation can be produced piece by piece. The
values seen are kept as one bit each. Once only an eighth of the records is left (by then 1/8 of the
draws are fresh), the rest is listed and shuffled outright. Memory: N/8 bytes for the bits, then
8 * N/8 bytes for the list, so 9/8 N bytes at the peak, against 8 N for a permutation array; about
ln(8)/(7/8) = 2.4 draws for each index of the first phase. `DENSE_LIMIT` records or fewer are listed
at once: below that size memory is no concern and one shuffle is fastest.

**Throwing anonymous balls.** N independent uniform labels in {0..M-1}, counted and forgotten, have
the multinomial size vector exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from calipers.numerics.types import IntArray

# Random words are drawn in blocks of this many: large enough to hide numpy's call overhead, small
# enough to stay in cache.
BLOCK = 2**16

# A permutation of this many records (32 MiB of int64) is simply shuffled in memory.
DENSE_LIMIT = 2**22


def bernoulli_indices(size: int, rate: float, rng: np.random.Generator, *, block: int = BLOCK) -> IntArray:
    """Each index of range(size) independently with probability `rate`, in increasing order.

    Post-condition: the distribution is that of `size` independent Bernoulli(rate) tosses; an index's
    probability, given the previous success, is off by a relative error of at most about 2e-15/rate,
    because exponential variates are spaced up to 8.5e-16 apart and the quotient is rounded.
    Memory: O(number of successes + block).
    """
    if rate == 1.0:
        return np.arange(size, dtype=np.int64)
    hazard = -math.log1p(-rate)
    # A gap beyond the end is as good as any other gap beyond the end. Cutting at 2 * size keeps
    # index arithmetic inside int64 and changes no outcome: such a gap still jumps past the end.
    longest = 2.0 * hazard * size
    pieces: list[IntArray] = []
    last = -1
    while last < size:
        expected = (size - last) * rate
        count = min(int(expected + 4.0 * math.sqrt(expected)) + 8, block)
        failures = np.minimum(rng.standard_exponential(count), longest) / hazard
        indices = last + np.cumsum(failures.astype(np.int64) + 1)
        last = int(indices[-1])
        pieces.append(indices)
    pieces[-1] = pieces[-1][: np.searchsorted(pieces[-1], size)]
    return np.concatenate(pieces)


def permuted(
    size: int, rng: np.random.Generator, *, dense_limit: int = DENSE_LIMIT, block: int = BLOCK
) -> Iterator[IntArray]:
    """The entries of a uniformly random permutation of range(size), in order, piece by piece.

    Post-condition: the concatenation of the pieces is each of the size! permutations with equal
    probability, and it is drawn no further than it is consumed. Proof: a piece of the first phase
    is a uniformly random set of unseen records (its construction commutes with relabelling them)
    in independent uniformly random order, hence a uniform sequence without repetition given the
    past; then comes a uniform permutation of what is left. Chain the conditionals.
    """
    left = size
    switch = max(dense_limit, size // 8)
    seen = _BitSet(size) if left > switch else None
    while seen is not None and left > switch:
        count = min(block, left - switch)
        yield rng.permutation(_fresh(seen, size, count, rng))
        left -= count
    rest = np.arange(size, dtype=np.int64) if seen is None else seen.absent(left)
    rng.shuffle(rest)
    for start in range(0, left, block):
        yield rest[start : start + block]


def _fresh(seen: _BitSet, size: int, count: int, rng: np.random.Generator) -> IntArray:
    """A uniformly random set of `count` indices outside `seen`, which then holds them too.

    Each pass draws as many candidates as are missing, so it can never find too many, and no
    choice among the found ones is needed.
    """
    found: list[IntArray] = []
    missing = count
    while missing:
        candidates = rng.integers(size, size=missing)
        candidates = np.sort(candidates[~seen.holds(candidates)])
        repeats = candidates[1:] == candidates[:-1]
        fresh = candidates[np.concatenate(([True], ~repeats))] if candidates.size else candidates
        seen.add_sorted(fresh)
        found.append(fresh)
        missing -= fresh.size
    return np.concatenate(found)


def distinct(size: int, count: int, rng: np.random.Generator) -> IntArray:
    """`count` distinct indices of range(size), every set equally likely, in increasing order.

    Draw as many as are missing and ignore what is there already: the procedure treats all labels alike. From a quarter
    of all on, the head of a permutation is cheaper.
    """
    if 4 * count >= size:
        return np.sort(rng.permutation(size)[:count])
    found = np.unique(rng.integers(size, size=count))
    while found.size < count:
        more = rng.integers(size, size=count - found.size)
        found = np.unique(np.concatenate((found, more)))
    return found


class _BitSet:
    """A set of indices below `size`, one bit each."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes: NDArray[np.uint8] = np.zeros((size + 7) // 8, dtype=np.uint8)

    def holds(self, indices: IntArray) -> NDArray[np.bool_]:
        """Which of the indices are in the set."""
        masked: NDArray[np.uint8] = self._bytes[indices >> 3] & _bit(indices)
        return masked.astype(np.bool_)

    def add_sorted(self, indices: IntArray) -> None:
        """Add strictly increasing indices. Those that share a byte are joined before the write."""
        if indices.size == 0:
            return
        places = indices >> 3
        starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
        self._bytes[places[starts]] |= np.bitwise_or.reduceat(_bit(indices), starts.astype(np.intp))

    def absent(self, count: int) -> IntArray:
        """The `count` indices below `size` that are not in the set, listed chunk by chunk."""
        listed = np.empty(count, dtype=np.int64)
        filled = 0
        for start in range(0, self._size, BLOCK):
            width = min(BLOCK, self._size - start)
            bits = np.unpackbits(self._bytes[start // 8 : (start + BLOCK) // 8], count=width, bitorder="little")
            missing = np.flatnonzero(bits == 0) + start
            listed[filled : filled + missing.size] = missing
            filled += missing.size
        return listed


def _bit(indices: IntArray) -> NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (indices & 7).astype(np.uint8))


def sliced(pieces: Iterator[IntArray], sizes: Iterator[int]) -> Iterator[IntArray]:
    """Cut the concatenation of `pieces` into consecutive arrays of the given sizes.

    Pieces are asked for only when needed. Every array owns its memory.
    """
    buffer = np.empty(0, dtype=np.int64)
    for wanted in sizes:
        if buffer.size < wanted:
            parts = [buffer]
            have = buffer.size
            while have < wanted:
                parts.append(next(pieces))
                have += parts[-1].size
            buffer = np.concatenate(parts)
        yield buffer[:wanted].copy()
        buffer = buffer[wanted:]


def throw(balls: int, bins: int, rng: np.random.Generator) -> IntArray:
    """How many of `balls` independent uniform throws land in each of `bins` bins.

    Post-condition: the counts are exactly multinomial(balls; 1/bins, ..., 1/bins) and add up to
    `balls`. Memory: O(bins + BLOCK), time O(balls + bins).
    """
    counts = np.zeros(bins, dtype=np.int64)
    block = max(BLOCK, bins)
    for start in range(0, balls, block):
        thrown = rng.integers(bins, size=min(block, balls - start), dtype=np.int64)
        counts += np.bincount(thrown.astype(np.intp), minlength=bins)
    return counts
