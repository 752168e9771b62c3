"""Linear layers on tensor cores: norms of gradients per record by one kernel, and their weighted sum.

`calipers.training.linear_kernel` makes both tables of `calipers.training.layer_products` in registers, so that neither
tables nor gradients nor copies of what was cut to 11 bits are written to memory. What is proven of the norm is what is
proven there, with one table's error of `terms` additions.

The weighted sum is PyTorch's product of what was read, as it is, and of what came back, cut, weighted and rounded to 11
bits (or the other way round: the shorter one is weighted). Tensor cores read 11 bits of what is not cut, whether they
cut or round it: a relative 2^-10 of it at most. With 2^-11 for the rounding of what was weighted, the summand of a
record moves by less than `_MOVED` S, which is added to its norm.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from calipers.training.layer_products import Accuracy, Products
from calipers.training.torch_library import kernels, torch_module

__all__ = ["LinearProducts"]

_MEASURED = 9
"""Compute capability of the GPUs on which the kernel was faster than PyTorch's products (H100, H200)."""
_MOVED = 2.0**-10 + 2.0**-11 + 2.0**-19
_TERMS = 1024
"""Products that are added up before they are added to the others."""
_LONGEST, _GROUPS, _COUNTED = 512, 2**16 - 1, 2**31 - 1
"""Positions beyond which tables cost too much; records that a launch can have, and numbers of one record."""
_WEIGHED = 1024


def kernel() -> Any:
    """The kernels, or None where Triton is not installed."""
    return kernels("linear_kernel")


@cache
def _runs(device: Any) -> bool:
    """Whether the kernels can be built (Triton needs a compiler of C) for this GPU, and are known to be fast on it."""
    torch = torch_module()
    if kernel() is None or torch.cuda.get_device_capability(device)[0] != _MEASURED:
        return False
    try:
        LinearProducts(torch.zeros(1, 2, 16, device=device), torch.zeros(1, 2, 16, device=device), (16, 16)).sums()
    except Exception:  # whatever is missing, there is another way
        return False
    return True


class LinearProducts(Products):
    """`rows` a_t: (records, T, p), and `back` b_t: (records, T, d), in float32 on a GPU."""

    spares = True

    @classmethod
    def suits(cls, rows: Any, back: Any) -> bool:
        """Whether there is a kernel, and tables cost fewer products than gradients."""
        (records, positions, width), depth = rows.shape, int(back.shape[2])
        return bool(
            rows.is_cuda
            and rows.dtype == torch_module().float32
            and 1 < positions <= _LONGEST
            and positions * (width + depth) <= 2 * width * depth
            and records <= _GROUPS
            and positions * max(width, depth) <= _COUNTED
            and _runs(rows.device)
        )

    def sums(self) -> tuple[Any, Any]:
        """||G||^2 of every record, and (records, 3): the sums over positions of |a_t|, |b_t| and |a_t| |b_t|."""
        torch, (records, positions, width), depth = torch_module(), self.rows.shape, int(self.back.shape[2])
        side = 32 if -(-positions // 32) % 2 and positions < 128 else 64
        blocks = -(-positions // side)
        squares = self.rows.new_empty((records, blocks * (blocks + 1) // 2), dtype=torch.float64)
        lengths = self.rows.new_empty((records, 3, blocks), dtype=torch.float64)
        tiny = torch.finfo(torch.float32).tiny * 2.0**22  # squares below it may be lost: added as if they were
        kernel().tables[(squares.shape[1], records)](
            *(self.rows.contiguous(), self.back.contiguous(), squares, lengths),
            *(math.sqrt(width * tiny), math.sqrt(depth * tiny)),
            *(positions, width, depth, _TERMS, side, 64),
            num_warps=4,
            num_stages=3,
        )
        return squares.sum(dim=1), lengths.sum(dim=2)

    def norms(self, accuracy: Accuracy) -> tuple[Any, Any]:
        """(a, b) as of `Products`."""
        torch, (_, positions, width), depth = torch_module(), self.rows.shape, int(self.back.shape[2])
        squares, sums = self.sums()
        terms = sum(min(size, _TERMS) + -(-size // _TERMS) for size in (width, depth)) + 2
        bound = sums[:, 2] * (1.0 + (terms + positions + 8) * accuracy.unit)
        slack = terms * accuracy.unit * (1.0 + terms * accuracy.unit) + (positions * positions + width + depth) * 2**-53
        norm = (squares.clamp(min=0.0) + slack * bound * bound).sqrt() * (1.0 + 2.0**-50)
        weighed, other = (width, sums[:, 1]) if self._weighs_rows else (depth, sums[:, 0])
        small = 2.0 * torch.finfo(torch.float32).tiny * math.sqrt(weighed) * other
        return norm + _MOVED * bound, small

    def _weighted(self, factors: Any) -> tuple[Any, Any]:
        if self._weighs_rows:
            return _weighed(self.rows, factors), self.back
        return self.rows, _weighed(self.back, factors)


def _weighed(numbers: Any, factors: Any) -> Any:
    numbers = numbers.contiguous()
    entries, found = numbers[0].numel(), torch_module().empty_like(numbers)
    grid = (-(-entries // _WEIGHED), len(numbers))
    kernel().weigh[grid](numbers, factors, found, entries, _WEIGHED, num_warps=4)
    return found
