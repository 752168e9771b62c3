"""Kernels of Triton for linear layers: norms of gradients per record without tables in memory, and weighted rows.

||G||^2 = sum over t, s of (a_t . a_s)(b_t . b_s) needs two T x T tables per record, as
`calipers.training.layer_products` says. A program of `tables` makes one tile of both in registers, multiplies them
entry by entry and writes the sum: a tile off the diagonal stands for its mirror image too and counts twice. Tiles on
the diagonal hold |a_t|^2 and |b_t|^2; of their roots they write the sums, and the sum of the products of both.

Numbers are cut to 11 bits here, so that tensor cores change nothing. At most `TERMS` products are added at a time.

This module imports Triton at once; `calipers.training.linear_cores` does so where there is a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _cut(numbers):  # type: ignore[no-untyped-def]
    """11 bits of mantissa; what is infinite or no number stays so."""
    return (numbers.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _tile(  # type: ignore[no-untyped-def]
    rows,
    first,
    second,
    POSITIONS: tl.constexpr,
    WIDTH: tl.constexpr,
    TERMS: tl.constexpr,
    BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Products of the rows `first` with the rows `second` of one record."""
    PIECES: tl.constexpr = (WIDTH + TERMS - 1) // TERMS
    SIZE: tl.constexpr = ((WIDTH + PIECES - 1) // PIECES + AT_ONCE - 1) // AT_ONCE * AT_ONCE
    whole = tl.zeros((BLOCK, BLOCK), tl.float32)
    for piece in tl.static_range(PIECES):
        part = tl.zeros((BLOCK, BLOCK), tl.float32)
        for start in range(piece * SIZE, (piece + 1) * SIZE, AT_ONCE):
            column = start + tl.arange(0, AT_ONCE)
            inside = (column < WIDTH)[None, :]
            left = tl.load(
                rows + first[:, None] * WIDTH + column[None, :], mask=(first < POSITIONS)[:, None] & inside, other=0.0
            )
            right = tl.load(
                rows + second[:, None] * WIDTH + column[None, :], mask=(second < POSITIONS)[:, None] & inside, other=0.0
            )
            part = tl.dot(_cut(left), tl.trans(_cut(right)), part)
        whole += part
    return whole


@triton.jit
def tables(  # type: ignore[no-untyped-def]
    rows,
    back,
    squares,
    lengths,
    read_tiny,
    back_tiny,
    POSITIONS: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    TERMS: tl.constexpr,
    BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Write (records, tiles) sums of squares; (records, 3, blocks): of |a_t|, |b_t| and their products."""
    BLOCKS: tl.constexpr = (POSITIONS + BLOCK - 1) // BLOCK
    tile, record = tl.program_id(0), tl.program_id(1).to(tl.int64)
    # Tiles on and above the diagonal, row by row.
    above = 0
    remaining = tile
    for row in tl.static_range(BLOCKS):
        begins = row * BLOCKS - row * (row - 1) // 2
        above = tl.where(tile >= begins, row, above)
        remaining = tl.where(tile >= begins, tile - begins, remaining)
    first = above * BLOCK + tl.arange(0, BLOCK)
    second = (above + remaining) * BLOCK + tl.arange(0, BLOCK)
    read = _tile(rows + record * POSITIONS * WIDTH, first, second, POSITIONS, WIDTH, TERMS, BLOCK, AT_ONCE)
    came = _tile(back + record * POSITIONS * DEPTH, first, second, POSITIONS, DEPTH, TERMS, BLOCK, AT_ONCE)
    found = tl.sum(tl.sum(read.to(tl.float64) * came.to(tl.float64), axis=1), axis=0)
    tl.store(squares + record * tl.num_programs(0) + tile, tl.where(remaining == 0, found, 2.0 * found))
    if remaining == 0:
        own = (tl.arange(0, BLOCK)[:, None] == tl.arange(0, BLOCK)[None, :]) & (first < POSITIONS)[:, None]
        seen = (first < POSITIONS).to(tl.float64)
        far = tl.sqrt(tl.sum(tl.where(own, read, 0.0), axis=1).to(tl.float64)) + read_tiny
        near = tl.sqrt(tl.sum(tl.where(own, came, 0.0), axis=1).to(tl.float64)) + back_tiny
        place = lengths + record * 3 * BLOCKS + above
        tl.store(place, tl.sum(far * seen, axis=0))
        tl.store(place + BLOCKS, tl.sum(near * seen, axis=0))
        tl.store(place + 2 * BLOCKS, tl.sum(far * near * seen, axis=0))


@triton.jit
def weigh(numbers, factors, found, entries, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Numbers cut to 11 bits times the factor of their record, rounded to 11 bits."""
    record = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    read = _cut(tl.load(numbers + record * entries + place, mask=place < entries, other=0.0))
    product = read * tl.load(factors + record)
    rounded = ((product.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
    tl.store(found + record * entries + place, rounded, mask=place < entries)
