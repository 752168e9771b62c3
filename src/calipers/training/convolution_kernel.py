"""A kernel of Triton: what gradients of convolutions are products of, read as it lies in memory.

Patches are the image once for every pixel of the kernel, and a library's product of matrices needs them written out, or
the image with its padding once for each. This kernel computes where a pixel lies. Images are (records, channels,
height, width) and what came back (records, depth, ...) likewise, in float32; pixels lie side by side, which is what
tensor cores want to add over.

Every program of it makes a tile of the gradient (depth x channels, at one place of the kernel or at three in a row) of
some records. What it does with it is its `MODE`: `SQUARES` writes the sum of its squares, `TILES` the tile.

What came back is cut to 11 bits here, so that tensor cores change nothing; with `WEIGHTED`, it is multiplied with the
factor of its record and rounded to 11 bits. Images go to the tensor cores as they are, without a way through registers;
these read 11 bits of them, every time the same.

This module imports Triton at once; `calipers.training.convolution_cores` does so where there is a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl

SQUARES, TILES = tl.constexpr(0), tl.constexpr(1)


@triton.jit
def _cut(numbers):  # type: ignore[no-untyped-def]
    """11 bits of mantissa; what is infinite or no number stays so."""
    return (numbers.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _rounded(numbers):  # type: ignore[no-untyped-def]
    """11 bits of mantissa, the nearest."""
    return ((numbers.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _added(tile):  # type: ignore[no-untyped-def]
    """The sum of squares: in single precision along a row, then in double precision."""
    return tl.sum(tl.sum(tile * tile, axis=1).to(tl.float64), axis=0)


def _products(  # type: ignore[no-untyped-def]
    images,
    back,
    factors,
    found,
    records,
    CHANNELS: tl.constexpr,
    DEPTH: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    OUT_HIGH: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    KERNEL_ROWS: tl.constexpr,
    KERNEL_COLUMNS: tl.constexpr,
    STRIDE_DOWN: tl.constexpr,
    STRIDE_RIGHT: tl.constexpr,
    PAD_DOWN: tl.constexpr,
    PAD_RIGHT: tl.constexpr,
    SPREAD_DOWN: tl.constexpr,
    SPREAD_RIGHT: tl.constexpr,
    AT_ONCE: tl.constexpr,
    PLACES: tl.constexpr,
    WEIGHTED: tl.constexpr,
    MODE: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Tiles of the sum over AT_ONCE records of the gradients; PLACES: 1, or 3 for the three columns of a kernel."""
    PIXELS: tl.constexpr = OUT_HIGH * OUT_WIDE
    COLUMNS: tl.constexpr = KERNEL_COLUMNS // PLACES
    CHANNEL_BLOCKS: tl.constexpr = (CHANNELS + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS
    DEPTH_BLOCKS: tl.constexpr = (DEPTH + BLOCK_DEPTH - 1) // BLOCK_DEPTH
    tile, group = tl.program_id(0), tl.program_id(1)
    channel = (tile % CHANNEL_BLOCKS) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)
    deep = (tile // CHANNEL_BLOCKS) % DEPTH_BLOCKS * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
    place = tile // (CHANNEL_BLOCKS * DEPTH_BLOCKS)
    kernel_row, kernel_column = place // COLUMNS, place % COLUMNS
    first = tl.zeros((BLOCK_DEPTH, BLOCK_CHANNELS), tl.float32)
    if PLACES == 3:
        second = tl.zeros((BLOCK_DEPTH, BLOCK_CHANNELS), tl.float32)
        third = tl.zeros((BLOCK_DEPTH, BLOCK_CHANNELS), tl.float32)
    start = group * AT_ONCE * PIXELS
    end = tl.minimum(start + AT_ONCE * PIXELS, records * PIXELS)
    for block in range((AT_ONCE * PIXELS + BLOCK_PIXELS - 1) // BLOCK_PIXELS):
        position = start + block * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
        inside = position < end
        record, pixel = position // PIXELS, position % PIXELS
        returned = tl.load(
            back + (record * (DEPTH * PIXELS) + pixel)[None, :] + (deep * PIXELS)[:, None],
            mask=inside[None, :] & (deep < DEPTH)[:, None],
            other=0.0,
        )
        returned = _cut(returned)
        if WEIGHTED:
            returned = _rounded(returned * tl.load(factors + record, mask=inside, other=0.0)[None, :])
        row = pixel // OUT_WIDE * STRIDE_DOWN + kernel_row * SPREAD_DOWN - PAD_DOWN
        column = pixel % OUT_WIDE * STRIDE_RIGHT + kernel_column * SPREAD_RIGHT - PAD_RIGHT
        inside = inside & (row >= 0) & (row < HIGH)
        known = (channel < CHANNELS)[:, None]
        # Pixels last: threads next to one another read pixels next to one another.
        read = images + (record * (CHANNELS * HIGH * WIDE) + row * WIDE + column)[None, :]
        read = read + (channel * (HIGH * WIDE))[:, None]
        seen = inside & (column >= 0) & (column < WIDE)
        first = tl.dot(returned, tl.trans(tl.load(read, mask=seen[None, :] & known, other=0.0)), first)
        if PLACES == 3:
            seen = inside & (column >= -SPREAD_RIGHT) & (column < WIDE - SPREAD_RIGHT)
            following = tl.load(read + SPREAD_RIGHT, mask=seen[None, :] & known, other=0.0)
            second = tl.dot(returned, tl.trans(following), second)
            seen = inside & (column >= -2 * SPREAD_RIGHT) & (column < WIDE - 2 * SPREAD_RIGHT)
            following = tl.load(read + 2 * SPREAD_RIGHT, mask=seen[None, :] & known, other=0.0)
            third = tl.dot(returned, tl.trans(following), third)
    if MODE == SQUARES:
        squares = _added(first)
        if PLACES == 3:
            squares += _added(second) + _added(third)
        tl.store(found + group * tl.num_programs(0) + tile, squares)
    else:
        whole = DEPTH * CHANNELS
        at = group.to(tl.int64) * (KERNEL_ROWS * KERNEL_COLUMNS * whole) + place * PLACES * whole
        to = found + at + (deep * CHANNELS)[:, None] + channel[None, :]
        mask = (deep < DEPTH)[:, None] & (channel < CHANNELS)[None, :]
        tl.store(to, first, mask=mask)
        if PLACES == 3:
            tl.store(to + whole, second, mask=mask)
            tl.store(to + 2 * whole, third, mask=mask)


# What came back is read four numbers at a time where it may be. Triton then divides images among threads in the same
# way, though their pixels, moved by one, cannot be read four at a time: threads side by side no longer read pixels side
# by side. For few rows of what came back it is better to read both one by one.
by_fours = triton.jit(_products)
one_by_one = triton.jit(_products, do_not_specialize_on_alignment=["back"])
