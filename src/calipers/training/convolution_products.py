"""Gradients of convolutions, which are products of patches and of what came back, some records at a time.

Patches are the image once for every pixel of the kernel. What is kept until all norms are known is the image, as in
ordinary training; patches are made of it when they are needed, for some records at a time, and let go.

**A convolution of stride 1 needs no patches** to write its gradients out. Let the image lie in memory once for every
column of the kernel, shifted by it and cut to the width W of the output. What an output pixel reads in row y of the
kernel is then the pixel y W further on, the same distance for all: one product for every row of the kernel, of what
came back as it is and of a list that begins y W later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from calipers.training.layer_products import Accuracy, Products, slices
from calipers.training.torch_library import torch_module

__all__ = ["PatchProducts", "ShiftedProducts"]


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
        return PatchProducts(self._layer, [(images[records], back[records]) for images, back in self._calls])

    def norms(self, accuracy: Accuracy) -> tuple[Any, Any]:
        """As of a linear layer on patches."""
        norms, small = zip(*(self._made(some).norms(accuracy) for some in self._pieces()), strict=True)
        return torch_module().cat(norms), torch_module().cat(small)

    def each(self) -> Any:
        """The gradients of all records, (records, entries)."""
        back = self._calls[0][1]
        found = back.new_empty((self.records, self.shape[0], math.prod(self.shape[1:])))
        for some in self._pieces():
            self._write(found[some], self._made(some))
        return found.flatten(1)

    def _write(self, found: Any, made: Products) -> None:
        torch_module().bmm(made.back.mT, made.rows, out=found)

    def arranged(self, gradient: Any) -> Any:
        """(depth, rows, columns, channels) to (depth, channels, rows, columns)."""
        depth, channels, *kernel = self.shape
        return gradient.view(depth, *kernel, channels).movedim(-1, 1).reshape(-1)

    def total(self, factors: Any) -> Any:
        """As of a linear layer on patches, in the order of the weight."""
        return self.arranged(sum(self._made(some).total(factors[some]) for some in self._pieces()))


class ShiftedProducts(Products):
    """A convolution of stride 1 whose gradients are written out: images, and what came back, one for every record."""

    def __init__(self, layer: Any, images: Any, returned: Any) -> None:
        super().__init__(images, returned, layer.weight.shape)
        self._layer = layer

    @classmethod
    def suits(cls, layer: Any, images: Any) -> bool:
        """Whether the convolution is of stride 1, on one image (records, some, channels, height, width) each."""
        return tuple(layer.stride) == (1, 1) and math.prod(images.shape[1:-3]) == 1

    def each(self) -> Any:
        """(records, rows of the kernel, depth, columns, channels), flat."""
        (depth, channels, high, wide), back = self.shape, self.back.flatten(2)
        found = back.new_empty((self.records, high, depth, wide * channels))
        for some in slices(self.records, self.made):
            self._write(found[some], self._shifted(self.rows[some]), back[some])
        return found.flatten(1)

    def _write(self, found: Any, shifted: Any, came: Any) -> None:
        step = self._layer.dilation[0] * self.back.shape[-1]
        for row in range(self.shape[2]):
            read = shifted[:, :, row * step : row * step + came.shape[2]]
            torch_module().bmm(came, read.mT, out=found[:, row])

    def lengths(self) -> tuple[Any, Any]:
        """|a_t| and |b_t|."""
        return _lengths(self._layer, self.rows.unsqueeze(1), self.back.unsqueeze(1))

    @property
    def made(self) -> int:
        """The image once for every column, and with its padding."""
        return int((self.shape[3] + 1) * self.rows[0].numel())

    def some(self, records: slice) -> ShiftedProducts:
        """Of some records."""
        return ShiftedProducts(self._layer, self.rows[records], self.back[records])

    def _shifted(self, images: Any) -> Any:
        """(records, columns of the kernel times channels, padded height times width of the output)."""
        layer, line = self._layer, self.back.shape[-1]
        down, right = layer.padding
        padded = torch_module("torch.nn.functional").pad(images, (right, right, down, down)).contiguous()
        count, channels, high, _ = padded.shape
        whole, plane, row, _ = padded.stride()
        size, places = (count, self.shape[3], channels, high, line), (whole, layer.dilation[1], plane, row, 1)
        return padded.as_strided(size, places).reshape(count, self.shape[3] * channels, -1)

    def arranged(self, gradient: Any) -> Any:
        """(rows, depth, columns, channels) to (depth, channels, rows, columns)."""
        depth, channels, high, wide = self.shape
        return gradient.view(high, depth, wide, channels).permute(1, 3, 0, 2).reshape(-1)


def _lengths(layer: Any, images: Any, back: Any) -> tuple[Any, Any]:
    """(records, positions): the lengths of patches, of which each is that of its pixels' lengths; and of what came
    back."""
    norm, double = torch_module("torch.linalg").vector_norm, torch_module().float64
    pixels = norm(images, dim=2, keepdim=True, dtype=double)
    read, came = norm(_patches(layer, pixels).flatten(3), dim=3), norm(back, dim=2, dtype=double)
    return read.reshape(len(images), -1), came.flatten(1)


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
