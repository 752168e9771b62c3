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

**A convolution of stride 1 needs no patches** to write its gradients out. Let the image lie in memory once for every
column of the kernel, shifted by it and cut to the width W of the output. What an output pixel reads in row y of the
kernel is then the pixel y W further on, the same distance for all: one product for every row of the kernel, of what
came back as it is and of a list that begins y W later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from calipers.training.torch_library import torch_module

__all__ = ["Accuracy", "EmbeddingProducts", "PatchProducts", "Products", "ShiftedProducts", "tables_pay"]


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


class PatchProducts(Products):
    """A convolution: patches are (rows of the kernel, columns, channels), as they lie in memory."""

    def __init__(self, rows: Any, back: Any, layer: Any) -> None:
        super().__init__(rows, back, layer.weight.shape)

    def arranged(self, gradient: Any) -> Any:
        """(depth, rows, columns, channels) to (depth, channels, rows, columns)."""
        depth, channels, *kernel = self.shape
        return gradient.view(depth, *kernel, channels).movedim(-1, 1).reshape(-1)

    def total(self, factors: Any) -> Any:
        """As for a linear layer, in the order of the weight."""
        return self.arranged(super().total(factors))


class ShiftedProducts(Products):
    """A convolution of stride 1, for `each`: images (records, columns of the kernel, channels, H' W), and what came
    back: (records, depth, H W)."""

    def __init__(self, layer: Any, images: Any, returned: Any) -> None:
        down, right = layer.padding
        padded = torch_module("torch.nn.functional").pad(images, (right, right, down, down)).contiguous()
        self._line, columns = int(returned.shape[-1]), layer.kernel_size[1]
        count, channels, high, _ = padded.shape
        whole, plane, row, _ = padded.stride()
        shifted = padded.as_strided(
            (count, columns, channels, high, self._line), (whole, layer.dilation[1], plane, row, 1)
        )
        self._step = layer.dilation[0] * self._line
        super().__init__(shifted.reshape(count, columns * channels, -1), returned.flatten(2), layer.weight.shape)

    def each(self) -> Any:
        """(records, rows of the kernel, depth, columns, channels), flat."""
        torch, (records, depth, used), high = torch_module(), self.back.shape, self.shape[2]
        found = self.back.new_empty((records, high, depth, self.rows.shape[1]))
        for row in range(high):
            start = row * self._step
            torch.bmm(self.back, self.rows[:, :, start : start + used].mT, out=found[:, row])
        return found.flatten(1)

    def arranged(self, gradient: Any) -> Any:
        """(rows, depth, columns, channels) to (depth, channels, rows, columns)."""
        depth, channels, high, wide = self.shape
        return gradient.view(high, depth, wide, channels).permute(1, 3, 0, 2).reshape(-1)


def _table(rows: Any) -> tuple[Any, int]:
    """(products of the vectors of every record, in double precision; how many terms were added before)."""
    width = int(rows.shape[2])
    terms = min(width, max(_TERMS, -(-width // _PIECES)))
    pieces = rows.split(terms, dim=2)
    found = (pieces[0] @ pieces[0].mT).double()
    for piece in pieces[1:]:
        found += piece @ piece.mT
    return found, terms
