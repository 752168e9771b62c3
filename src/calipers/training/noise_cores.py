"""Secure noise on a GPU: normal variates from ChaCha20 (RFC 8439), millions of them in a fraction of a millisecond.

The words of step t are the blocks 0, 1, 2, ... of ChaCha20 under the source's key with the nonce (label, t). Sixteen
words are eight variates: every four make two numbers of 53 bits, and those two variates by Box and Muller, in double
precision, rounded once (`calipers.training.noise`). Drawn on the CPU, the noise of a large model would take longer than
everything else in a step.

Where Triton is missing the same variates are computed by numpy, slowly.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.training.torch_library import kernels, torch_module

__all__ = ["chacha_blocks", "chacha_normals"]

Words = NDArray[np.uint32]

_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")
_LABEL = int.from_bytes(b"nois", "little")
_PER_BLOCK = 8
_LANES = 128
_MOST = _PER_BLOCK * 2**31


def kernel() -> Any:
    """The kernel, or None where Triton is not installed."""
    return kernels("noise_kernel")


def chacha_normals(key: bytes, step: int, like: Any) -> Any:
    """N(0, 1) entries of the shape, type and device of `like`, a function of key and step alone."""
    count = int(like.numel())
    if count > _MOST:
        raise InputError(f"Expected at most {_MOST} numbers of noise in a step, got {count}.")
    torch, nonce = torch_module(), np.array([_LABEL, step & 0xFFFFFFFF, step >> 32], dtype=np.uint32)
    if kernel() is None or not (like.is_cuda or "TRITON_INTERPRET" in os.environ):
        return torch.from_numpy(_normals(key, nonce, count)).reshape(like.shape).to(like)
    words = np.concatenate((np.frombuffer(key, dtype="<u4"), nonce)).view(np.int32)
    found = torch.empty(count, dtype=like.dtype, device=like.device)
    given = torch.from_numpy(words)
    if like.is_cuda:  # without waiting for what the GPU is busy with
        given = given.pin_memory().to(like.device, non_blocking=True)
    blocks = -(-count // _PER_BLOCK)
    kernel().normals[(-(-blocks // _LANES),)](found, given.view(torch.uint32), count, _LANES, num_warps=4)
    return found.reshape(like.shape)


def chacha_blocks(key: bytes, nonce: Words, blocks: NDArray[np.uint32]) -> Words:
    """(blocks, 16): the words of these blocks of ChaCha20."""
    start = np.empty((16, len(blocks)), dtype=np.uint32)
    start[:4], start[4:12] = _CONSTANTS[:, None], np.frombuffer(key, dtype="<u4")[:, None]
    start[12], start[13:] = blocks, nonce[:, None]
    state = start.copy()
    for _ in range(10):
        for places in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            _quarter(state, *places)
        for places in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            _quarter(state, *places)
    return (state + start).T


def _quarter(state: Words, a: int, b: int, c: int, d: int) -> None:
    for first, second, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[first] += state[second]
        mixed = state[third] ^ state[first]
        state[third] = (mixed << np.uint32(by)) | (mixed >> np.uint32(32 - by))


def _normals(key: bytes, nonce: Words, count: int) -> FloatArray:
    blocks = np.arange(-(-count // _PER_BLOCK), dtype=np.uint32)
    words = chacha_blocks(key, nonce, blocks).astype(np.uint64).reshape(-1, 2, 2)
    uniforms = (((words[..., 1] << np.uint64(32)) | words[..., 0]) >> np.uint64(11)).astype(np.float64)
    uniforms = (uniforms + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2.0 * np.log(uniforms[:, 0])), 2.0 * math.pi * uniforms[:, 1]
    found: FloatArray = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)[:count]
    return found
