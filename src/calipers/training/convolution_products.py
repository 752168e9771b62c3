"""Gradients of convolutions, which are products of patches and of what came back, some records at a time.

Patches are the image once for every pixel of the kernel. What is kept until all norms are known is the image, as in
ordinary training; patches are made of it when they are needed, for some records at a time, and let go.

**A convolution of stride 1 needs no patches.** Let the pixels of an image and its padding lie in one line. What an
output pixel reads at one place of the kernel is a pixel a certain distance further on, the same for all output pixels.
With zeros between the lines of what came back, the gradient at that place is one product. The table a_t . a_s is that
of pixels, moved by the distances and added up: by the inequality of Cauchy and Schwarz its rounding is at most that of
patches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from calipers.training.layer_products import Accuracy, Products, slices
from calipers.training.torch_library import torch_module

__all__ = ["PatchProducts", "PixelProducts"]


class PatchProducts(Products):
    """`calls`: images (records, some, channels, height, width) and what came back, of every call of `layer`.

    Patches are (rows of the kernel, columns, channels), as they lie in memory.
    """

    def __init__(self, layer: Any, calls: list[tuple[Any, Any]]) -> None:
        self._layer, self._calls, self.shape = layer, calls, tuple(layer.weight.shape)

    @property
    def held(self) -> int:
        """Numbers that are kept."""
        return sum(int(images.numel() + back.numel()) for images, back in self._calls)

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self._calls[0][1])

    def let_go(self) -> None:
        """Keep nothing but the shape."""
        self._calls = []

    def _pieces(self) -> Iterator[slice]:
        return slices(self.records, self.made)

    def _made(self, some: slice) -> Products:
        """What the gradients of some records are products of."""
        found = [self._joined(images[some], back[some]) for images, back in self._calls]
        rows, came = found[0] if len(found) == 1 else map(partial(torch_module().cat, dim=1), zip(*found, strict=True))
        return Products(rows, came, self.shape)

    def _joined(self, images: Any, back: Any) -> tuple[Any, Any]:
        """(records, positions, ...) of both."""
        patches, pixels = _patches(self._layer, images), back.flatten(0, 1).flatten(2).mT
        return patches.reshape(len(images), -1, math.prod(self.shape[1:])), pixels.reshape(len(back), -1, self.shape[0])

    def lengths(self) -> tuple[Any, Any]:
        """|a_t| and |b_t| of all calls."""
        found = [_lengths(self._layer, images, back) for images, back in self._calls]
        read, came = (torch_module().cat(parts, dim=1) for parts in zip(*found, strict=True))
        return read, came

    @property
    def made(self) -> int:
        """Patches, and the image with its padding."""
        pixels = sum(back[0].numel() for _, back in self._calls) // self.shape[0]
        images = sum(images[0].numel() for images, _ in self._calls)
        return int(pixels * math.prod(self.shape[1:]) + images)

    def some(self, records: slice) -> PatchProducts:
        """Of some records."""
        return type(self)(self._layer, [(images[records], back[records]) for images, back in self._calls])

    def norms(self, accuracy: Accuracy) -> tuple[Any, Any]:
        """As of a linear layer on patches."""
        norms, small = zip(*(self._made(some).norms(accuracy) for some in self._pieces()), strict=True)
        return torch_module().cat(norms), torch_module().cat(small)

    @property
    def _order(self) -> tuple[int, ...]:
        """How `each` arranges the gradient of a record."""
        return self.shape[0], math.prod(self.shape[1:])

    def each(self) -> Any:
        """The gradients of all records, (records, entries)."""
        found = self._calls[0][1].new_empty((self.records, *self._order))
        for some in self._pieces():
            self._made(some).write(found[some])
        return found.flatten(1)

    def arranged(self, gradient: Any) -> Any:
        """(depth, rows, columns, channels) to (depth, channels, rows, columns)."""
        depth, channels, *kernel = self.shape
        return gradient.view(depth, *kernel, channels).movedim(-1, 1).reshape(-1)

    def total(self, factors: Any) -> Any:
        """As of a linear layer on patches, in the order of the weight."""
        return self.arranged(sum(self._made(some).total(factors[some]) for some in self._pieces()))


class PixelProducts(PatchProducts):
    """A convolution of stride 1 that was called once, with one image for every record."""

    @classmethod
    def suits(cls, layer: Any, images: Any, returned: Any) -> bool:
        """Whether the convolution is of stride 1, on one image (records, some, channels, height, width) each."""
        return tuple(layer.stride) == (1, 1) and math.prod(images.shape[1:-3]) == 1

    @property
    def made(self) -> int:
        """Both, with padding, pixel by pixel."""
        ((images, back),) = self._calls
        high, wide = (images.shape[i] + 2 * self._layer.padding[i] for i in (-2, -1))
        return int(high * wide * (images.shape[2] + back.shape[2]))

    def _made(self, some: slice) -> Products:
        return _Pixels(self._layer, *(part[some].flatten(0, 1) for part in self._calls[0]))

    @property
    def _order(self) -> tuple[int, ...]:
        return math.prod(self.shape[2:]), *self.shape[:2]

    def arranged(self, gradient: Any) -> Any:
        """(rows, columns, depth, channels) to (depth, channels, rows, columns)."""
        depth, channels, high, wide = self.shape
        return gradient.view(high, wide, depth, channels).permute(2, 3, 0, 1).reshape(-1)


class _Pixels(Products):
    """Pixels in a line, (records, pixels, channels), the padding among them; what came back stands where its output
    pixel has its first one, and 0 elsewhere. What an output pixel reads at one place of the kernel is then the pixel
    `shift` further on, the same distance for all."""

    def __init__(self, layer: Any, images: Any, returned: Any) -> None:
        (count, channels, high, wide), (down, right) = images.shape, layer.padding
        line, (height, width) = wide + 2 * right, returned.shape[-2:]
        rows = images.new_zeros((count, high + 2 * down, line, channels))
        rows[:, down : down + high, right : right + wide] = images.movedim(1, -1)
        whole = returned.new_zeros((count, high + 2 * down, line, returned.shape[1]))
        whole[:, :height, :width] = returned.movedim(1, -1)
        self._whole, self._used = whole.flatten(1, 2), (height - 1) * line + width
        super().__init__(rows.flatten(1, 2), self._whole[:, : self._used], layer.weight.shape)
        (first, second), kernel = layer.dilation, self.shape[2:]
        self._shifts = [y * first * line + x * second for y in range(kernel[0]) for x in range(kernel[1])]

    @property
    def _weighs_rows(self) -> bool:
        return False

    def table(self) -> tuple[Any, int]:
        """a_t . a_s: of pixels, added up over the kernel in double precision."""
        (pixels, terms), used = super().table(), self._used
        return sum(pixels[:, i : i + used, i : i + used] for i in self._shifts), terms

    def write(self, found: Any) -> None:
        """The gradients of all records: (records, places of the kernel, depth, channels)."""
        for place, shift in enumerate(self._shifts):
            read = self.rows[:, shift : shift + self._used]
            torch_module().bmm(self.back.mT, read, out=found[:, place])

    def total(self, factors: Any) -> Any:
        """(places of the kernel, depth, channels): products over the pixels of all records, flat."""
        weighted, rows = (self._whole * factors[:, None, None]).flatten(0, 1), self.rows.flatten(0, 1)
        return torch_module().stack([weighted[: len(rows) - i].T @ rows[i:] for i in self._shifts]).reshape(-1)


def _lengths(layer: Any, images: Any, back: Any) -> tuple[Any, Any]:
    """(records, positions): no less than the lengths of patches, of which each is that of its pixels' lengths, and of
    what came back; in double precision."""
    norm = torch_module("torch.linalg").vector_norm
    read = norm(_patches(layer, _pixel_lengths(images).unsqueeze(2)).flatten(3), dim=3)
    return read.reshape(len(images), -1), _pixel_lengths(back).flatten(1)


def _pixel_lengths(images: Any) -> Any:
    """The lengths of pixels, no less: n squares are off by n u, and those that are too small are lost."""
    limits, channels = torch_module().finfo(images.dtype), images.shape[2]
    found = torch_module("torch.linalg").vector_norm(images, dim=2).double()
    return found * (1.0 + channels * limits.eps) + math.sqrt(channels * limits.tiny)


def _patches(layer: Any, images: Any) -> Any:
    """(images, height, width, rows of the kernel, columns, channels): a view of what every output pixel is made of.

    PyTorch's own `unfold` starts a kernel for every image. Channels come last, so that what is copied lies together.
    """
    (down, right), (high, wide) = layer.padding, images.shape[-2:]
    last = images.flatten(0, 1).movedim(1, -1)
    padded = last.new_zeros((len(last), high + 2 * down, wide + 2 * right, last.shape[-1]))
    padded[:, down : down + high, right : right + wide] = last
    count, *size, channels = padded.shape
    out = [
        (length - spread * (kernel - 1) - 1) // stride + 1
        for length, kernel, spread, stride in zip(size, layer.kernel_size, layer.dilation, layer.stride, strict=True)
    ]
    whole, row, column, _ = padded.stride()
    steps = (row * layer.stride[0], column * layer.stride[1])
    inside = (row * layer.dilation[0], column * layer.dilation[1])
    return padded.as_strided((count, *out, *layer.kernel_size, channels), (whole, *steps, *inside, 1))
