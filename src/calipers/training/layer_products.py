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

**Where tables are large** (many positions) and the gradients too, these are written for some records at a time, their
norms taken, and let go, and written once more for the sum. Both times what is written is off by T u S at most for T
positions, by the same argument; twice that is added to the norm.

**Tensor cores** cut the factors of a product to 11 bits. So that they change nothing, the a_t and the b_t are cut to 11
bits beforehand: the gradient that is clipped is the one of the numbers that were cut. What is weighted is cut once
more, by the tensor cores themselves, which is a relative 2^-10 whether they cut or round; r covers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calipers.training.torch_library import tensor_cores as cores
from calipers.training.torch_library import torch_module

__all__ = ["Accuracy", "EmbeddingProducts", "Products", "Rewritten", "norms_of", "slices", "sparing", "tables_pay"]


@dataclass(frozen=True)
class Accuracy:
    """`unit`: relative error of one addition in a product. `factor`: of a factor of one. `short`: cut to 11 bits.

    Additions inside tensor cores are not all rounded to nearest; a relative 2^-22 covers what is known of them.
    """

    unit: float
    factor: float
    short: bool
    tiny: float = 2.0**-126
    """The smallest normal number."""

    @classmethod
    def of(cls, dtype: Any, tensor_cores: bool) -> Accuracy:
        """For tensors of a dtype, with or without tensor cores."""
        if tensor_cores:
            return cls(2.0**-22, 2.0**-10 + 2.0**-22, short=True)
        limits = torch_module().finfo(dtype)
        return cls(float(limits.eps), float(limits.eps), False, float(limits.tiny))

    def cut(self, numbers: Any) -> Any:
        """The numbers as tensor cores read them: 11 bits of mantissa. What is infinite or no number stays so."""
        if not self.short or not numbers.dtype.is_floating_point:
            return numbers
        torch = torch_module()
        return (numbers.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)

    def written(self, lengths: Any, returned: Any, entries: int, longer: float = 1.0) -> tuple[Any, Any]:
        """(S, how far a gradient that is written is off), no less; what was read may be `longer` than it is known."""
        positions = int(lengths.shape[1])
        bound = (lengths * returned).sum(dim=1) * longer * (1.0 + (positions + entries) * 2.0**-52)
        terms = (positions + 1) * self.unit
        # Products too small for the format may be lost, one at every position.
        return bound, terms * (1.0 + terms) * bound + 2.0 * positions * self.tiny * math.sqrt(entries)


def tables_pay(positions: int, width: int, depth: int) -> bool:
    """Whether tables move fewer numbers than gradients that are written, read for the norm and read for the sum.

    Tables: a_t and b_t are written and read once more and the shorter is weighted; the tables are read and written some
    times. Half of the gradients' numbers is forgiven them: their norms are the closer ones.
    """
    moved = 2 * positions * (width + depth + min(width, depth)) + 9 * positions**2
    return moved < 1.5 * width * depth


def sparing(held: int, entries: int) -> bool:
    """Whether what was read and came back is kept in place of gradients, which are then written twice."""
    return 2 * held <= entries


_BLOCK = 64
_AT_ONCE = 2**25
"""Numbers that are made of what is kept and let go again at a time, if one record does not have more."""
_TERMS = 1024
_PIECES = 8
"""Terms of a product before it is added up in double precision; but no more pieces than that."""


class Products:
    """`rows` a_t: (records, T, p), and `back` b_t: (records, T, d), for a weight of the given shape."""

    spares = False
    """Whether gradients are never written."""

    def __init__(self, rows: Any, back: Any, shape: Any) -> None:
        self.rows, self.back, self.shape = rows, back, tuple(shape)

    @property
    def held(self) -> int:
        """Numbers that are kept."""
        return int(self.rows.numel() + self.back.numel())

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self.back)

    def let_go(self) -> None:
        """Keep nothing but the shape, which is all that `arranged` needs."""
        self.rows = self.back = None

    @property
    def _weighs_rows(self) -> bool:
        return bool(math.prod(self.shape[1:]) < self.shape[0])

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

    def lengths(self) -> tuple[Any, Any]:
        """|a_t| and |b_t| of every record, in double precision."""
        norm, torch = torch_module("torch.linalg").vector_norm, torch_module()
        return norm(self.rows, dim=2, dtype=torch.float64), norm(self.back, dim=2, dtype=torch.float64)

    @property
    def made(self) -> int:
        """Numbers per record that are made of what is kept to write its gradient."""
        return 0

    def some(self, records: slice) -> Products:
        """Of some records."""
        return Products(self.rows[records], self.back[records], self.shape)

    def each(self) -> Any:
        """The gradients of all records, written out: (records, entries), in an order of its own (`arranged`)."""
        return (self.back.transpose(1, 2) @ self.rows).flatten(1)

    def write(self, found: Any) -> None:
        """The same, written to a place that is there."""
        torch_module().bmm(self.back.mT, self.rows, out=found)

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


class Rewritten:
    """Gradients that are written twice, for their norms and for their sum, some records at a time."""

    def __init__(self, products: Products) -> None:
        self._products, self.held, self.records = products, products.held, products.records

    def _slices(self) -> Iterator[slice]:
        return slices(self.records, math.prod(self._products.shape) + self._products.made)

    def norms(self, accuracy: Accuracy) -> tuple[Any, Any]:
        """(a, b) as of `Products`, of what is written the second time; b is 0."""
        torch, (lengths, returned), shape = torch_module(), self._products.lengths(), self._products.shape
        entries, found = math.prod(shape), []
        for records in self._slices():
            norms, error = norms_of([self._products.some(records).each()], blocks=lengths.is_cuda)
            found.append(norms * (1.0 + 2.0 * error))
        bound, lost = accuracy.written(lengths, returned, entries)
        return (torch.cat(found) + 2.0 * lost) * (1.0 + 2.0**-50), torch.zeros_like(bound)

    def total(self, factors: Any) -> Any:
        """The sum over records of factor times gradient, as a flat vector in the order of the weight."""
        found: Any = 0
        for records in self._slices():
            gradients = self._products.some(records).each()
            with cores(False):  # which would cut the factors
                found = found + factors[records] @ gradients
        return self._products.arranged(found)


def _table(rows: Any) -> tuple[Any, int]:
    """(products of the vectors of every record, in double precision; how many terms were added before)."""
    width = int(rows.shape[2])
    terms = min(width, max(_TERMS, -(-width // _PIECES)))
    pieces = rows.split(terms, dim=2)
    found = (pieces[0] @ pieces[0].mT).double()
    for piece in pieces[1:]:
        found += piece @ piece.mT
    return found, terms


def slices(records: int, numbers: int) -> Iterator[slice]:
    """All records in pieces of nearly equal size, for `numbers` numbers each."""
    pieces = min(max(-(-records * numbers // _AT_ONCE), 1), records)
    size = -(-records // pieces)
    return (slice(start, min(start + size, records)) for start in range(0, records, size))


def norms_of(flat: list[Any], *, blocks: bool) -> tuple[Any, float]:
    """(norms, e): for every record (1 - e) ||g|| <= norm, norms in double precision; `flat` has (records, n) each.

    `blocks`: squares are added in single precision, 64 at a time (`calipers.training.gradients`).
    """
    torch = torch_module()
    dimension = sum(gradient.shape[1] for gradient in flat)
    error = dimension * 2.0**-53
    roots = [root for gradient in flat for root in _roots(gradient)] if blocks else flat
    parts = [torch.linalg.vector_norm(root, dim=1, dtype=torch.float64) for root in roots]
    norms = torch.stack(parts, dim=1).norm(dim=1)
    if not blocks:
        return norms, error
    limits = torch.finfo(flat[0].dtype)
    return norms + math.sqrt(dimension * limits.tiny), error + _BLOCK / 2 * limits.eps


def _roots(gradient: Any) -> Iterator[Any]:
    """Norms of 64 entries each, and what is left over."""
    columns = gradient.shape[1] // _BLOCK
    if columns:
        # Entries a row apart are added: neighbors are then read by neighboring threads.
        whole = gradient[:, : columns * _BLOCK].unflatten(1, (_BLOCK, columns))
        yield torch_module("torch.linalg").vector_norm(whole, dim=1)
    if gradient.shape[1] > columns * _BLOCK:
        yield gradient[:, columns * _BLOCK :].abs()
