"""Layers that run for all records at once and need no gradient per record mapped: what they do and what they leave.

A rule says how a layer of PyTorch runs for many records, (records, ...) to (records, ...), without mixing any two, and
how its gradients per record come from what it read and what came back:

- linear layers, convolutions and embeddings: products (`calipers.training.layer_products`), and a sum for the bias;
- layer and root-mean-square normalization: the scale's gradient is what came back times what was normalized, summed
  over positions;
- group normalization: records are taken for further channels, with a copy of scale and shift for each. The gradients
  of the copies are those of the records, and PyTorch computes them on the way.

Any other layer, and any layer that is used in a way its rule does not know, has its gradients mapped over records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calipers.errors import InputError
from calipers.training.convolution_cores import CoreProducts
from calipers.training.convolution_products import PatchProducts, PixelProducts
from calipers.training.layer_products import EmbeddingProducts, Products, sparing, tables_pay
from calipers.training.linear_cores import LinearProducts
from calipers.training.torch_library import torch_module

__all__ = ["Calls", "Convolution", "Embedding", "Groups", "LayerRule", "Scale", "padded", "refuse_mixing", "rule_for"]

Calls = list[tuple[Any, Any]]
"""What the layer read and what came back, (records, ...) each, call by call."""


@dataclass(frozen=True)
class LayerRule:
    """Of a linear layer; and what all rules have."""

    layer: Any

    @property
    def has_bias(self) -> bool:
        """Whether the layer adds a trained bias."""
        bias = getattr(self.layer, "bias", None)
        return bias is not None and bool(bias.requires_grad)

    def run(self, inputs: Any) -> Any:
        """The layer, for all records: `inputs` and what is returned are (records, ...)."""
        return torch_module("torch.nn.functional").linear(inputs, self.layer.weight, self.layer.bias)

    def pays(self, calls: Calls) -> bool:
        """Whether the norms of the weight's gradients come from tables."""
        depth, entries = len(self.layer.weight), self.layer.weight.numel()
        positions = sum(back.numel() // (len(back) * depth) for _, back in calls)
        return tables_pay(positions, entries // depth, depth)

    def spares(self, calls: Calls) -> bool:
        """Whether gradients that are written for their norms are not kept."""
        held = sum(read.numel() // len(read) + back.numel() // len(back) for read, back in calls)
        return sparing(held, self.layer.weight.numel())

    def products(self, calls: Calls) -> Products | None:
        """What the weight's gradients are products of; None where they are written out by `gradients`."""
        return Products(*self._joined(calls), self.layer.weight.shape)

    def on_cores(self, calls: Calls) -> Products | None:
        """The same by a kernel of its own, on tensor cores; None where there is none."""
        rows, back = self._joined(calls)
        return LinearProducts(rows, back, self.layer.weight.shape) if LinearProducts.suits(rows, back) else None

    def gradients(self, calls: Calls) -> dict[str, Any]:
        """Gradients per record of what is no product: (records, ...) by the name of the layer's parameter."""
        if not self.has_bias:
            return {}
        return {"bias": sum(self._back(inputs, back).sum(dim=1) for inputs, back in calls)}

    def _joined(self, calls: Calls) -> tuple[Any, Any]:
        """All positions of all calls, as one sequence of rows and one of what came back."""
        rows = [self._rows(inputs) for inputs, _ in calls]
        back = [self._back(inputs, gradient) for inputs, gradient in calls]
        cat = torch_module().cat
        return (rows[0], back[0]) if len(calls) == 1 else (cat(rows, dim=1), cat(back, dim=1))

    def _rows(self, inputs: Any) -> Any:
        return inputs.reshape(len(inputs), -1, inputs.shape[-1])

    def _back(self, inputs: Any, back: Any) -> Any:
        return back.reshape(len(back), -1, back.shape[-1])


class Embedding(LayerRule):
    """Token numbers in, rows of the table out; padding has no gradient."""

    def run(self, inputs: Any) -> Any:
        """The rows of the tokens."""
        function = torch_module("torch.nn.functional").embedding
        return function(inputs, self.layer.weight, self.layer.padding_idx)

    def pays(self, calls: Calls) -> bool:
        """Always: a gradient has a row for every token there is."""
        return True

    def products(self, calls: Calls) -> Products:
        """Of unit vectors."""
        return EmbeddingProducts(*self._joined(calls), self.layer.weight.shape)

    def on_cores(self, calls: Calls) -> None:
        """Nothing is multiplied."""

    def _rows(self, inputs: Any) -> Any:
        return inputs.reshape(len(inputs), -1)

    def _back(self, inputs: Any, back: Any) -> Any:
        flat = back.reshape(len(back), -1, back.shape[-1])
        padding = self.layer.padding_idx
        return flat if padding is None else flat * (self._rows(inputs) != padding).unsqueeze(-1)


class Convolution(LayerRule):
    """Images (records, some, channels, height, width); patches where shifting will not do."""

    def run(self, inputs: Any) -> Any:
        """The convolution of all images."""
        layer, function = self.layer, torch_module("torch.nn.functional").conv2d
        images = inputs.flatten(0, -4)
        found = function(images, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation)
        return found.unflatten(0, tuple(inputs.shape[:-3]))

    def products(self, calls: Calls) -> Products:
        """Pixels of one image per record where the stride is 1; else patches."""
        one = len(calls) == 1 and PixelProducts.suits(self.layer, *calls[0])
        return (PixelProducts if one else PatchProducts)(self.layer, _several(calls))

    def on_cores(self, calls: Calls) -> Products | None:
        """Of one image per record, but not where tables are cheap and every other pixel would be read."""
        (inputs, back), layer = calls[0], self.layer
        skips = tuple(layer.stride) != (1, 1) and tuple(layer.kernel_size) != (1, 1) and self.pays(calls)
        if len(calls) > 1 or skips or not CoreProducts.suits(layer, inputs, back):
            return None
        return CoreProducts(layer, _several([(inputs.contiguous(), back.contiguous())]))

    def _back(self, inputs: Any, back: Any) -> Any:
        pixels = back.flatten(0, -4).flatten(2).transpose(1, 2)
        return pixels.reshape(len(back), -1, pixels.shape[-1])


def _several(calls: Calls) -> Calls:
    """(records, ..., channels, height, width) with one number of images per record."""
    found = ([part.reshape(len(part), -1, *part.shape[-3:]) for part in call] for call in calls)
    return [(read, back) for read, back in found]


class Scale(LayerRule):
    """Layer or root-mean-square normalization with a trained scale."""

    def run(self, inputs: Any) -> Any:
        """The normalization of every position."""
        return self._normalized(inputs, self.layer.weight, getattr(self.layer, "bias", None))

    def _normalized(self, inputs: Any, weight: Any, bias: Any) -> Any:
        functional, layer = torch_module("torch.nn.functional"), self.layer
        if type(layer) is torch_module("torch.nn").LayerNorm:
            return functional.layer_norm(inputs, layer.normalized_shape, weight, bias, layer.eps)
        return functional.rms_norm(inputs, layer.normalized_shape, weight, layer.eps)

    def pays(self, calls: Calls) -> bool:
        """Never."""
        return False

    def products(self, calls: Calls) -> None:
        """The gradients are as small as what came back summed up; none is a product."""

    def on_cores(self, calls: Calls) -> None:
        """None is a product."""

    def gradients(self, calls: Calls) -> dict[str, Any]:
        """Of the scale, and of the shift if there is one."""
        found = {"weight": sum(self._summed(self._normalized(read, None, None) * back) for read, back in calls)}
        return found | ({"bias": sum(self._summed(back) for _, back in calls)} if self.has_bias else {})

    def _summed(self, numbers: Any) -> Any:
        """Over the positions of every record."""
        return numbers.reshape(len(numbers), -1, self.layer.weight.numel()).sum(dim=1)


class Groups(LayerRule):
    """Group normalization: the gradients are those of the copies, and nothing has to be read or returned."""

    def run_with(self, inputs: Any, copies: dict[str, Any]) -> Any:
        """The normalization of (records, some, channels, ...) with (records, channels) copies of scale and shift."""
        records = len(inputs)
        pieces = -(-records * self.layer.num_groups // _LAUNCHED)
        if pieces == 1:
            return self._wide(inputs, copies)
        size = -(-records // pieces)
        some = [slice(start, start + size) for start in range(0, records, size)]
        found = [self._wide(inputs[i], {name: own[i] for name, own in copies.items()}) for i in some]
        return torch_module().cat(found)

    def _wide(self, inputs: Any, copies: dict[str, Any]) -> Any:
        function, records = torch_module("torch.nn.functional").group_norm, len(inputs)
        wide = inputs.transpose(0, 1).flatten(1, 2)
        shift = copies.get("bias")
        if shift is None and self.layer.bias is not None:
            shift = self.layer.bias.detach().repeat(records)
        scale, shift = copies["weight"].flatten(), None if shift is None else shift.flatten()
        found = function(wide, records * self.layer.num_groups, scale, shift, self.layer.eps)
        return found.unflatten(1, (records, -1)).transpose(0, 1)


_LAUNCHED = 2**16 - 1
"""Groups for which PyTorch can launch the way back of group normalization on CUDA."""


def padded(layer: Any, tokens: Any) -> Any:
    """An embedding without its rule, for one record: `vmap` forgets that the padding has no gradient."""
    torch = torch_module()
    found = torch.nn.functional.embedding(tokens, layer.weight)
    return torch.where((tokens == layer.padding_idx).unsqueeze(-1), found.detach(), found)


def rule_for(layer: Any) -> LayerRule | None:
    """The rule of a layer, or None where its gradients are mapped over records like those of any other."""
    nn = torch_module("torch.nn")
    if "forward" in vars(layer):  # somebody put another function in its place
        return None
    if type(layer) is nn.Linear:
        return LayerRule(layer)
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
        return Convolution(layer) if not isinstance(layer.padding, str) else None
    if type(layer) in (nn.LayerNorm, getattr(nn, "RMSNorm", nn.LayerNorm)):
        return Scale(layer)
    if type(layer) is nn.GroupNorm:
        return Groups(layer)
    plain = type(layer) is nn.Embedding and layer.max_norm is None and not layer.scale_grad_by_freq
    return Embedding(layer) if plain and not layer.sparse else None


def refuse_mixing(model: Any) -> None:
    """Refuse layers whose output for one record depends on the others in the batch."""
    normalization = torch_module("torch.nn.modules.batchnorm")._BatchNorm
    mixing = [name for name, layer in model.named_modules() if isinstance(layer, normalization)]
    if mixing:
        raise InputError(
            f"Batch normalization ({', '.join(mixing[:3])}) makes a record's gradient depend on the other records, "
            "so that clipping bounds nothing; use GroupNorm instead."
        )
