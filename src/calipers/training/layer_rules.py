"""Layers whose per-record gradient is a product of what went in and of what came back.

The gradient of the weight of a linear layer, for one record, is G = sum over positions t of b_t a_t', with a_t what the
layer read and b_t the gradient of the loss in what it wrote. A convolution is a linear layer on patches; an embedding
is one on unit vectors. Where G has more entries than a_t and b_t together, it need not be written out:

- its **norm** comes from ||G||^2 = sum over t, s of (a_t . a_s)(b_t . b_s), two T x T tables per record;
- the **weighted sum** over records is one product, as in ordinary training, of the b_t times the record's factor and
  the a_t.

**What is proven of the norm.** Let u be the unit of rounding with which products are accumulated, S = sum over t of
|a_t| |b_t|. An entry of a product of stored matrices with n terms is off by at most n u times the product of their
absolute values, whatever the order of addition; hence ||G||^2 from tables is off by (p + d) u S^2 to first order (p and
d entries in a_t and b_t). The factor times b_t is rounded once more, by a relative r, which moves the record's summand
by r S at most. All of it is added to the norm.

**Tensor cores** cut the factors of a product to 11 bits. So that they change nothing, the a_t and the b_t are cut to 11
bits beforehand: the gradient that is clipped is the one of the numbers that were cut, and r is 2^-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from calipers.errors import InputError
from calipers.training.torch_library import torch_module

__all__ = ["Accuracy", "LayerRule", "refuse_mixing", "rule_for"]

_PASSES = 4
"""How much more often the rule goes over a_t and b_t than clipping goes over gradients that are written out."""


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
        return cls(2.0**-22, 2.0**-10, short=True) if tensor_cores else cls(eps, eps, short=False)

    def cut(self, numbers: Any) -> Any:
        """The numbers as tensor cores read them: 11 bits of mantissa. What is infinite or no number stays so."""
        if not self.short:
            return numbers
        torch = torch_module()
        return (numbers.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


@dataclass(frozen=True)
class LayerRule:
    """How one layer's inputs become rows a_t: (records, T, p) or, for an embedding, token numbers (records, T)."""

    layer: Any
    kind: str

    @property
    def has_bias(self) -> bool:
        """Whether the layer adds a trained bias."""
        bias = getattr(self.layer, "bias", None)
        return bias is not None and bool(bias.requires_grad)

    def rows(self, inputs: Any) -> Any:
        """a_t of every record; `inputs` are what the layer read, stacked over records of one each."""
        if self.kind == "linear":
            return inputs.reshape(len(inputs), -1, inputs.shape[-1])
        if self.kind == "embedding":
            return inputs.reshape(len(inputs), -1)
        patches = _patches(self.layer, inputs.flatten(0, 1))
        return patches.reshape(len(inputs), -1, patches[0, 0, 0].numel())

    def returned(self, gradients: Any, inputs: Any) -> Any:
        """b_t of every record: (records, T, d)."""
        if self.kind == "convolution":
            return gradients.flatten(0, 1).flatten(2).transpose(1, 2).reshape(len(gradients), -1, gradients.shape[2])
        flat = gradients.reshape(len(gradients), -1, gradients.shape[-1])
        if self.kind == "embedding" and self.layer.padding_idx is not None:
            flat = flat * (self.rows(inputs) != self.layer.padding_idx).unsqueeze(-1)
        return flat

    def pays(self, rows: Any, back: Any) -> bool:
        """Whether tables take fewer operations, and less memory, than the gradients of all records."""
        if self.kind == "embedding":
            return True
        positions, width, depth = int(back.shape[1]), int(rows.shape[2]), int(back.shape[2])
        return _PASSES * positions * (width + depth) < width * depth

    def norms(self, rows: Any, back: Any, accuracy: Accuracy) -> tuple[Any, Any]:
        """(a, b) for every record, in double precision: its summand has norm at most a times its factor, plus b.

        b is what products too small for the format may add.
        """
        torch, (positions, depth) = torch_module(), back.shape[1:]
        tiny = torch.finfo(back.dtype).tiny / accuracy.unit  # squares below it may be lost: added as if they were
        products = torch.linalg.vector_norm(back, dim=2).double() + math.sqrt(depth * tiny)
        read: Any = float(positions)
        if self.kind == "embedding":
            width, table = 1, rows.unsqueeze(2) == rows.unsqueeze(1)
        else:
            width, table = rows.shape[2], rows @ rows.transpose(1, 2)
            lengths = torch.linalg.vector_norm(rows, dim=2).double() + math.sqrt(width * tiny)
            products, read = products * lengths, lengths.sum(dim=1)
        terms = width + depth + 2
        bound = products.sum(dim=1) * (1.0 + (terms + positions + 8) * accuracy.unit)
        squares = ((back @ back.transpose(1, 2)).double() * table).sum(dim=(1, 2))
        slack = terms * accuracy.unit * (1.0 + terms * accuracy.unit) + positions * positions * 2.0**-53
        norm = (squares.clamp(min=0.0) + slack * bound * bound).sqrt() * (1.0 + 2.0**-50)
        return norm + accuracy.factor * bound, 2.0 * torch.finfo(back.dtype).tiny * math.sqrt(depth) * read

    def each(self, rows: Any, back: Any) -> Any:
        """The gradients of all records, written out: (records, entries of the weight)."""
        return (back.transpose(1, 2) @ rows).flatten(1)

    def total(self, rows: Any, back: Any) -> Any:
        """The sum over records and positions of b_t a_t', in the shape of the weight."""
        if self.kind == "embedding":
            found = torch_module().zeros_like(self.layer.weight)
            return found.index_add_(0, rows.flatten(), back.flatten(0, 1))
        return (back.flatten(0, 1).T @ rows.flatten(0, 1)).view_as(self.layer.weight)


def _patches(layer: Any, images: Any) -> Any:
    """(images, height, width, channels, rows of the kernel, columns): a view of what every output pixel is made of.

    PyTorch's own `unfold` starts a kernel for every image.
    """
    down, right = layer.padding
    padded = torch_module("torch.nn.functional").pad(images, (right, right, down, down)).contiguous()
    count, channels, *size = padded.shape
    out = [
        (length - spread * (kernel - 1) - 1) // stride + 1
        for length, kernel, spread, stride in zip(size, layer.kernel_size, layer.dilation, layer.stride, strict=True)
    ]
    whole, plane, row, column = padded.stride()
    steps = (row * layer.stride[0], column * layer.stride[1])
    inside = (row * layer.dilation[0], column * layer.dilation[1])
    return padded.as_strided((count, *out, channels, *layer.kernel_size), (whole, *steps, plane, *inside))


def rule_for(layer: Any) -> LayerRule | None:
    """The rule of a layer, or None where its gradients are mapped over records like those of any other."""
    nn = torch_module("torch.nn")
    if type(layer) is nn.Linear:
        return LayerRule(layer, "linear")
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
        return LayerRule(layer, "convolution") if not isinstance(layer.padding, str) else None
    plain = type(layer) is nn.Embedding and layer.max_norm is None and not layer.scale_grad_by_freq
    return LayerRule(layer, "embedding") if plain and not layer.sparse else None


def refuse_mixing(model: Any) -> None:
    """Refuse layers whose output for one record depends on the others in the batch."""
    normalization = torch_module("torch.nn.modules.batchnorm")._BatchNorm
    mixing = [name for name, layer in model.named_modules() if isinstance(layer, normalization)]
    if mixing:
        raise InputError(
            f"Batch normalization ({', '.join(mixing[:3])}) makes a record's gradient depend on the other records, "
            "so that clipping bounds nothing; use GroupNorm instead."
        )
