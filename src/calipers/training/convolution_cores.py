"""Convolutions on tensor cores: gradients per record, their norms and their weighted sum, by one kernel.

`calipers.training.convolution_kernel` reads images and what came back as they lie in memory, so that neither patches
nor copies of what was cut to 11 bits are made, and norms need no gradient in memory. What is proven of them is what
`calipers.training.layer_products` says of gradients that are written for their norms: off by T u S at most. Of the
images tensor cores read 11 bits, the same for norms and for sums, and so 1 + 2^-10 of a number at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from calipers.training.convolution_products import PixelProducts
from calipers.training.layer_products import Accuracy
from calipers.training.torch_library import kernels, torch_module

__all__ = ["CoreProducts"]

_SUITS, _GROUPS = 2**31 - 1, 2**16 - 1
"""Numbers of a tensor that whole numbers of the kernel can count, and records that a launch can."""
_PROGRAMS = 264
"""Programs that keep a large GPU busy: two for each of its processors."""
_FEW = 16
_MEASURED = 9
"""Compute capability of the GPUs on which the kernel was faster than PyTorch's products (H100, H200)."""
_LARGEST = 4
"""Of the kernels of convolutions for which it was."""
_WEIGHED = 2.0**-11 + 2.0**-22
"""Relative error of factor times number, which is rounded to 11 bits."""


def kernel() -> Any:
    """The kernel, or None where Triton is not installed."""
    return kernels("convolution_kernel")


@cache
def _runs(device: Any) -> bool:
    """Whether the kernel can be built (Triton needs a compiler of C) for this GPU, and is known to be fast on it."""
    torch = torch_module()
    if kernel() is None or torch.cuda.get_device_capability(device)[0] != _MEASURED:
        return False
    layer, images = torch.nn.Conv2d(_FEW, _FEW, 3), torch.zeros((1, 1, _FEW, 6, 6), device=device)
    try:
        CoreProducts(layer, [(images, images[..., :4, :4].contiguous())]).each()
    except Exception:  # whatever is missing, there is another way
        return False
    return True


class CoreProducts(PixelProducts):
    """A convolution of any stride that was called once, with one image for every record."""

    @classmethod
    def suits(cls, layer: Any, images: Any, returned: Any) -> bool:
        """Whether there is a kernel, and one image (records, some, channels, height, width) for each record."""
        one = math.prod(images.shape[1:-3]) == 1 and images.dtype == torch_module().float32
        few = min(layer.in_channels, layer.out_channels) < _FEW and layer.kernel_size[1] != 3  # zeros are multiplied
        return (
            one
            and not few
            and max(layer.kernel_size) <= _LARGEST
            and images.is_cuda
            and len(images) <= _GROUPS
            and max(images.numel(), returned.numel()) <= _SUITS
            and _runs(images.device)
        )

    def norms(self, accuracy: Accuracy) -> tuple[Any, Any]:
        """(a, b) as of `Products`."""
        torch, (lengths, returned), entries = torch_module(), self.lengths(), math.prod(self.shape)
        tiny = torch.finfo(torch.float32).tiny
        found = self._play(1, squares=True)
        norm = found.sum(dim=1).sqrt() * (1.0 + plan(self.shape).broad * 2.0**-24) + math.sqrt(entries * tiny)
        bound, lost = accuracy.written(lengths, returned, entries, 1.0 + 2.0**-10)
        small = 2.0 * tiny * math.sqrt(self.shape[0]) * lengths.sum(dim=1)
        return (norm + lost + _WEIGHED * bound) * (1.0 + 2.0**-50), small

    def each(self) -> Any:
        """(records, rows of the kernel, columns, depth, channels), flat."""
        return self._play(1)

    def total(self, factors: Any) -> Any:
        """The sum over records of factor times gradient, as a flat vector in the order of the weight."""
        groups = min(self.records, -(-_PROGRAMS // plan(self.shape).tiles(self.shape)))
        at_once = self.records // groups
        # A power of two: the kernel is compiled for every number, and batches have many sizes.
        return self.arranged(self._play(1 << (at_once.bit_length() - 1), factors).sum(dim=0))

    def _play(self, at_once: int, factors: Any = None, squares: bool = False) -> Any:
        """(groups of records, ...): sums of squares by tile, or gradients."""
        module, (depth, channels, rows, columns) = kernel(), self.shape
        images, back = (part.flatten(0, 1) for part in self._calls[0])
        (high, wide), (out_high, out_wide), layer = images.shape[2:], back.shape[2:], self._layer
        chosen = plan(self.shape)
        tiles, groups = chosen.tiles(self.shape), -(-self.records // at_once)
        entries, dtype = (tiles, torch_module().float64) if squares else (math.prod(self.shape), back.dtype)
        found = back.new_empty((groups, entries), dtype=dtype)
        play = module.by_fours if chosen.by_fours else module.one_by_one
        sizes = (channels, depth, high, wide, out_high, out_wide, rows, columns)
        moves = (*layer.stride, *layer.padding, *layer.dilation)
        mode = module.SQUARES if squares else module.TILES
        tile = (chosen.deep, chosen.broad, min(chosen.pixels, _power(out_high * out_wide)))
        play[(tiles, groups)](
            *(images, back, back if factors is None else factors, found, self.records),
            *(*sizes, *moves, at_once, chosen.places, factors is not None, mode, *tile),
            num_warps=chosen.warps,
            num_stages=chosen.stages,
        )
        return found


@dataclass(frozen=True)
class KernelPlan:
    """What a program makes: depth, channels and places of the kernel of its tile, pixels that are read at a time."""

    deep: int
    broad: int
    places: int
    pixels: int
    warps: int
    stages: int
    by_fours: bool

    def tiles(self, shape: tuple[int, ...]) -> int:
        """How many tiles a gradient has."""
        depth, channels, rows, columns = shape
        return -(-depth // self.deep) * -(-channels // self.broad) * rows * columns // self.places


def plan(shape: tuple[int, ...]) -> KernelPlan:
    """How a gradient is divided: what was fastest on an H200, or near it, for the layers of ResNet-18."""
    depth, channels, _, columns = shape
    deep = 128 if depth >= 128 else min(64, _power(depth))
    return KernelPlan(
        deep, min(64, _power(channels)), 3 if columns == 3 else 1, 32, 8 if deep == 128 else 4, 3, deep == 128
    )


def _power(number: int) -> int:
    """The power of two from 16 on that is not less."""
    return max(16, 1 << (number - 1).bit_length())
