"""Gradients that are products of what a layer read and of what came back, and what is known of their norms.

The gradient of the weight of a linear layer, for one record, is G = sum over positions t of b_t a_t', with a_t what the
layer read and b_t the gradient of the loss in what it wrote. A convolution is a linear layer on patches; an embedding
is one on unit vectors. Where G has more entries than a_t and b_t together, it need not be written out:

- its **norm** comes from ||G||^2 = sum over t, s of (a_t . a_s)(b_t . b_s), two T x T tables per record;
- the **weighted sum** over records is one product, as in ordinary training, of the b_t and the a_t, the shorter of the
  two times the record's factor.

**What is proven of the norm.** Let u be the unit of rounding with which products are accumulated, S = sum over t of
|a_t| |b_t|. An entry of a product of stored matrices with n terms is off by at most n u times the product of their
absolute values, whatever the order of addition. Tables are made of pieces with n terms at most, n and n' for a_t and
b_t, which are added up in double precision; hence ||G||^2 is off by (n + n') u S^2 to first order. The lengths |a_t|
and |b_t| are roots of the tables' diagonals, sums of positive terms, and so known to a relative n u. The factor times
a_t or b_t is rounded, by a relative r in all, which moves the record's summand by r S at most. All of it is added to
the norm.

**Tensor cores** cut the factors of a product to 11 bits. So that they change nothing, the a_t and the b_t are cut to 11
bits beforehand: the gradient that is clipped is the one of the numbers that were cut. What is weighted is cut once
more, by the tensor cores themselves, which is a relative 2^-10 whether they cut or round; r covers it.

**A convolution of stride 1 needs no patches** to write its gradients out. Let the image lie in memory with its padding,
row after row, W' pixels in each. What an output pixel reads at the place (y, x) of the kernel is then the pixel
y W' + x further on, the same distance for all: b and a come from the same two lists, shifted against each other. Where
a line of the padded image is longer than one of the output, b is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from calipers.training.torch_library import torch_module

__all__ = ["Accuracy", "EmbeddingProducts", "Products", "ShiftedProducts", "tables_pay"]


@dataclass(frozen=True)
class Accuracy:
    """`unit`: relative error of one addition in a product. `factor`: of a factor of one. `short`: cut to 11 bits.

    Additions inside tensor cores are not all rounded to nearest; a relative 2^-22 covers what is known of them.
    """

    unit: float
    factor: float
    short: bool

    @classmethod
    def of(cls, dtype: Any, tensor_cores: bool) -> Accuracy:
        """For tensors of a dtype, with or without tensor cores."""
        eps = float(torch_module().finfo(dtype).eps)
        return cls(2.0**-22, 2.0**-10 + 2.0**-22, short=True) if tensor_cores else cls(eps, eps, short=False)

    def cut(self, numbers: Any) -> Any:
        """The numbers as tensor cores read them: 11 bits of mantissa. What is infinite or no number stays so."""
        if not self.short or not numbers.dtype.is_floating_point:
            return numbers
        torch = torch_module()
        return (numbers.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def tables_pay(positions: int, width: int, depth: int) -> bool:
    """Whether tables move fewer numbers than gradients that are written, read for the norm and read for the sum.

    Tables: a_t and b_t are written and read once more and the shorter is weighted; the tables are read and written some
    times. Half of the gradients' numbers is forgiven them: their norms are the closer ones.
    """
    moved = 2 * positions * (width + depth + min(width, depth)) + 9 * positions**2
    return moved < 1.5 * width * depth


_TERMS = 1024
_PIECES = 8
"""Terms of a product before it is added up in double precision; but no more pieces than that."""


class Products:
    """`rows` a_t: (records, T, p), and `back` b_t: (records, T, d), for a weight of the given shape."""

    def __init__(self, rows: Any, back: Any, shape: Any) -> None:
        self.rows, self.back, self.shape = rows, back, tuple(shape)

    @property
    def held(self) -> int:
        """Numbers that are kept."""
        return int(self.rows.numel() + self.back.numel())

    @property
    def _weighs_rows(self) -> bool:
        return int(self.rows.shape[2]) < int(self.back.shape[2])

    def table(self) -> tuple[Any, int]:
        """(a_t . a_s of every record, in double precision; terms that were added before)."""
        return _table(self.rows)

    def norms(self, accuracy: Accuracy) -> tuple[Any, Any]:
        """(a, b) for every record, in double precision: its summand has norm at most a times its factor, plus b.

        b is what products too small for the format may add.
        """
        torch, back = torch_module(), self.back
        positions, width, depth = int(back.shape[1]), math.prod(self.shape[1:]), int(back.shape[2])
        tiny = torch.finfo(back.dtype).tiny / accuracy.unit  # squares below it may be lost: added as if they were
        (read, few), (came, others) = self.table(), _table(back)
        lengths = read.diagonal(dim1=1, dim2=2).sqrt() + math.sqrt(width * tiny)
        returned = came.diagonal(dim1=1, dim2=2).sqrt() + math.sqrt(depth * tiny)
        terms = few + others + 2
        bound = (lengths * returned).sum(dim=1) * (1.0 + (terms + positions + 8) * accuracy.unit)
        squares = (came * read).sum(dim=(1, 2))
        slack = terms * accuracy.unit * (1.0 + terms * accuracy.unit) + (positions * positions + width + depth) * 2**-53
        norm = (squares.clamp(min=0.0) + slack * bound * bound).sqrt() * (1.0 + 2.0**-50)
        weighed, other = (width, returned) if self._weighs_rows else (depth, lengths)
        small = 2.0 * torch.finfo(back.dtype).tiny * math.sqrt(weighed) * other.sum(dim=1)
        return norm + accuracy.factor * bound, small

    def each(self) -> Any:
        """The gradients of all records, written out: (records, entries), in an order of its own (`arranged`)."""
        return (self.back.transpose(1, 2) @ self.rows).flatten(1)

    def arranged(self, gradient: Any) -> Any:
        """One gradient in the order of `each`, in the order of the weight."""
        return gradient

    def total(self, factors: Any) -> Any:
        """The sum over records and positions of factor b_t a_t', as a flat vector in the order of the weight."""
        rows, back = self._weighted(factors)
        return (back.flatten(0, 1).T @ rows.flatten(0, 1)).reshape(-1)

    def _weighted(self, factors: Any) -> tuple[Any, Any]:
        factors = factors[:, None, None]
        return (self.rows * factors, self.back) if self._weighs_rows else (self.rows, self.back * factors)


class EmbeddingProducts(Products):
    """`rows` are token numbers: (records, T)."""

    @property
    def _weighs_rows(self) -> bool:
        return False

    def table(self) -> tuple[Any, int]:
        """1 where two tokens are the same."""
        return (self.rows.unsqueeze(2) == self.rows.unsqueeze(1)).double(), 0

    def total(self, factors: Any) -> Any:
        """The sum over records and positions, at the rows of the tokens."""
        back = self.back * factors[:, None, None]
        return back.new_zeros(self.shape).index_add_(0, self.rows.flatten(), back.flatten(0, 1)).reshape(-1)


class ShiftedProducts(Products):
    """A convolution of stride 1, for `each`: padded images (records, L, channels), and L positions that came back."""

    def __init__(self, layer: Any, images: Any, returned: Any) -> None:
        down, right = layer.padding
        high, wide = (int(size) for size in images.shape[-2:])
        line, lines = wide + 2 * right, high + 2 * down
        self._shifts = [
            y * layer.dilation[0] * line + x * layer.dilation[1]
            for y in range(layer.kernel_size[0])
            for x in range(layer.kernel_size[1])
        ]
        used = int(returned.shape[-2]) * line
        rows = _laid_out(images, (lines, line), (down, right), used + self._shifts[-1])
        back = _laid_out(returned, (int(returned.shape[-2]), line), (0, 0), used)
        super().__init__(rows, back, layer.weight.shape)

    def each(self) -> Any:
        """(records, places, depth, channels), flat."""
        torch, back, places = torch_module(), self.back.mT, len(self._shifts)
        found = back.new_empty((len(back), places, *self.shape[:2]))
        for place, shift in enumerate(self._shifts):
            torch.bmm(back, self.rows[:, shift : shift + back.shape[2]], out=found[:, place])
        return found.flatten(1)

    def arranged(self, gradient: Any) -> Any:
        """(places, depth, channels) to (depth, channels, places)."""
        return gradient.view(len(self._shifts), *self.shape[:2]).permute(1, 2, 0).reshape(-1)


def _table(rows: Any) -> tuple[Any, int]:
    """(products of the vectors of every record, in double precision; how many terms were added before)."""
    width = int(rows.shape[2])
    terms = min(width, max(_TERMS, -(-width // _PIECES)))
    pieces = rows.split(terms, dim=2)
    found = (pieces[0] @ pieces[0].mT).double()
    for piece in pieces[1:]:
        found += piece @ piece.mT
    return found, terms


def _laid_out(images: Any, size: tuple[int, int], begin: tuple[int, int], length: int) -> Any:
    """(records, length, channels): pixels of images (records, channels, height, width) in lines, zeros elsewhere."""
    records, channels, high, wide = images.shape
    found = images.new_zeros((records, length, channels))
    inner = found[:, : size[0] * size[1]].unflatten(1, size)
    inner[:, begin[0] : begin[0] + high, begin[1] : begin[1] + wide] = images.permute(0, 2, 3, 1)
    return found
