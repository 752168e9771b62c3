"""LoRA: a frozen model with small trained matrices next to its linear layers.

    model = with_lora(model, rank=8, layers=("query", "value"))

A linear layer W x becomes W x + (alpha / rank) B (A x), where W stays as it is and A (rank x inputs) and B (outputs x
rank) are trained (Hu et al. 2021). B is 0 at first, so that the model begins as it was. Only A and B are clipped and
get noise: the dimension of the noise is theirs. Whatever the frozen weights were trained on is not covered by the
measurement; if that was private data, it needs one of its own.

Models with adapters of another library (peft) train as they are: what requires a gradient is trained.
"""

from __future__ import annotations

import math
from typing import Any

from calipers.domains import COUNT, POSITIVE
from calipers.errors import InputError
from calipers.training.torch_library import torch_module


def with_lora(model: Any, *, rank: int, layers: tuple[str, ...] = (), alpha: float | None = None) -> Any:
    """The model itself, frozen, with adapters at the linear layers whose names end so; at all if none are named.

    `alpha` (default: the rank) over `rank` scales what the adapters add.
    """
    nn = torch_module("torch.nn")
    COUNT.check_int("rank", rank)
    scale = 1.0 if alpha is None else POSITIVE.check("alpha", alpha) / rank
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    found = [name for name in linear if not layers or {name, name.split(".")[-1]} & {*layers}]
    missing = [wanted for wanted in layers if not any(wanted in (name, name.split(".")[-1]) for name in found)]
    if missing or not found:
        known = sorted({name.split(".")[-1] for name in linear})
        raise InputError(
            f"There is no linear layer called {', '.join(missing) or 'anything'}; "
            f"the model has {', '.join(known) or 'none'}."
        )
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name in found:
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], _adapted(linear[name], rank, scale))
    return model


def _adapted(layer: Any, rank: int, scale: float) -> Any:
    nn = torch_module("torch.nn")
    place = {"device": layer.weight.device, "dtype": layer.weight.dtype}

    class Adapted(nn.Module):  # type: ignore[name-defined]  # PyTorch is imported when it is needed
        """The layer, and the product of two thin matrices next to it."""

        def __init__(self) -> None:
            super().__init__()
            self.base = layer
            self.down = nn.Linear(layer.in_features, rank, bias=False, **place)
            self.up = nn.Linear(rank, layer.out_features, bias=False, **place)
            nn.init.normal_(self.down.weight, std=1.0 / math.sqrt(rank))
            nn.init.zeros_(self.up.weight)

        def forward(self, inputs: Any) -> Any:
            return self.base(inputs) + scale * self.up(self.down(inputs))

    return Adapted()
