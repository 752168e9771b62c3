"""A kernel of Triton: normal variates from the blocks of ChaCha20, as `calipers.training.noise_cores` defines them.

This module imports Triton at once; `calipers.training.noise_cores` does so where there is a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _turned(word, by: tl.constexpr):  # type: ignore[no-untyped-def]
    return (word << by) | (word >> (32 - by))


@triton.jit
def _quarter(a, b, c, d):  # type: ignore[no-untyped-def]
    a += b
    d = _turned(d ^ a, 16)
    c += d
    b = _turned(b ^ c, 12)
    a += b
    d = _turned(d ^ a, 8)
    c += d
    b = _turned(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _uniform(low, high):  # type: ignore[no-untyped-def]
    """(k + 1/2) / 2^53 with k of the upper 53 of 64 bits."""
    bits = ((high.to(tl.uint64) << 32) | low.to(tl.uint64)) >> 11
    return (bits.to(tl.int64).to(tl.float64) + 0.5) * 1.1102230246251565e-16


@triton.jit
def _stored(found, first, count, a, b, c, d):  # type: ignore[no-untyped-def]
    """Two variates of four words."""
    radius = tl.sqrt(-2.0 * tl.log(_uniform(a, b)))
    angle = 6.283185307179586 * _uniform(c, d)
    kind = found.dtype.element_ty
    tl.store(found + first, (radius * tl.cos(angle)).to(kind), mask=first < count)
    tl.store(found + first + 1, (radius * tl.sin(angle)).to(kind), mask=first + 1 < count)


@triton.jit
def normals(found, words, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """`words`: the key's eight, then three of the nonce. Eight variates of every block."""
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    none = tl.zeros((BLOCK,), tl.uint32)
    c0, c1, c2, c3 = none + 0x61707865, none + 0x3320646E, none + 0x79622D32, none + 0x6B206574
    k0, k1 = none + tl.load(words), none + tl.load(words + 1)
    k2, k3 = none + tl.load(words + 2), none + tl.load(words + 3)
    k4, k5 = none + tl.load(words + 4), none + tl.load(words + 5)
    k6, k7 = none + tl.load(words + 6), none + tl.load(words + 7)
    n0 = number.to(tl.uint32)
    n1, n2, n3 = none + tl.load(words + 8), none + tl.load(words + 9), none + tl.load(words + 10)
    s0, s1, s2, s3, s4, s5, s6, s7 = c0, c1, c2, c3, k0, k1, k2, k3
    s8, s9, s10, s11, s12, s13, s14, s15 = k4, k5, k6, k7, n0, n1, n2, n3
    for _ in range(10):
        s0, s4, s8, s12 = _quarter(s0, s4, s8, s12)
        s1, s5, s9, s13 = _quarter(s1, s5, s9, s13)
        s2, s6, s10, s14 = _quarter(s2, s6, s10, s14)
        s3, s7, s11, s15 = _quarter(s3, s7, s11, s15)
        s0, s5, s10, s15 = _quarter(s0, s5, s10, s15)
        s1, s6, s11, s12 = _quarter(s1, s6, s11, s12)
        s2, s7, s8, s13 = _quarter(s2, s7, s8, s13)
        s3, s4, s9, s14 = _quarter(s3, s4, s9, s14)
    first = number.to(tl.int64) * 8
    _stored(found, first, count, s0 + c0, s1 + c1, s2 + c2, s3 + c3)
    _stored(found, first + 2, count, s4 + k0, s5 + k1, s6 + k2, s7 + k3)
    _stored(found, first + 4, count, s8 + k4, s9 + k5, s10 + k6, s11 + k7)
    _stored(found, first + 6, count, s12 + n0, s13 + n1, s14 + n2, s15 + n3)
