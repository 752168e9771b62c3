"""The models of the experiments, by name.

| name | parameters on its usual data | for |
|---|---|---|
| cnn | 26,010 (28 x 28, gray) | images |
| resnet18, resnet34 | 11.2 million, 21.3 million | images |
| wideresnet-16-4, wideresnet-28-10 | 2.7 million, 36.5 million | images |
| vit-tiny, vit-small, vit-base | 5.4, 21.3, 85.2 million | images |
| transformer-tiny, transformer-small, transformer-base | 11.9, 40.6, 136.4 million | text |

Sizes follow Ertan and van Dijk (2026), Appendix B; see `calipers.training.convolutional` and
`calipers.training.transformers`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from calipers.domains import choice
from calipers.errors import InputError
from calipers.training.datasets import Dataset
from calipers.training.gradients import GradientSum
from calipers.training.torch_library import torch_module

__all__ = ["CONVOLUTIONS", "MODELS", "build_model", "faster_convolution", "parameter_count", "suitable_micro_batch"]

_RESIDUAL = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
_WIDE = {"wideresnet-16-4": (16, 4), "wideresnet-28-10": (28, 10)}
_VISION = {
    "vit-tiny": {"width": 192, "depth": 12, "heads": 3},
    "vit-small": {"width": 384, "depth": 12, "heads": 6},
    "vit-base": {"width": 768, "depth": 12, "heads": 12},
}
_TEXT = {
    "transformer-tiny": {"width": 256, "depth": 4, "heads": 4, "inner": 1024},
    "transformer-small": {"width": 512, "depth": 6, "heads": 8, "inner": 2048},
    "transformer-base": {"width": 768, "depth": 12, "heads": 12, "inner": 3072},
}
MODELS = ("cnn", *_RESIDUAL, *_WIDE, *_VISION, *_TEXT)
CONVOLUTIONS = ("native", "unfolded")


def build_model(name: str, data: Dataset, *, seed: int | None = None, convolution: str = "native") -> Any:
    """The model called `name` for this data, with random weights; the same for the same seed."""
    choice("model", name, MODELS)
    choice("convolution", convolution, CONVOLUTIONS)
    wanted = "text" if name in _TEXT else "images"
    if data.kind != wanted:
        raise InputError(f"model={name!r} reads {wanted}, but {data.name} holds {data.kind}; choose another model.")
    torch = torch_module()
    with torch.random.fork_rng(devices=[]):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        return _builder(name, data, convolution)()


def _builder(name: str, data: Dataset, convolution: str) -> Callable[[], Any]:
    if name in _TEXT or name in _VISION:
        from calipers.training import transformers

        if name in _TEXT:
            length = data.records.shape[1]
            return lambda: transformers.TextTransformer(data.vocabulary_size, length, data.classes, **_TEXT[name])
        channels, size = data.records.shape[1:3]
        if size % 4:
            raise InputError(f"model={name!r} cuts images into 4 x 4 patches, got images of {size} x {size}.")
        return lambda: transformers.VisionTransformer(channels, size, data.classes, **_VISION[name])
    from calipers.training import convolutional

    channels, size = data.records.shape[1:3]
    layer = {"native": torch_module("torch.nn").Conv2d, "unfolded": convolutional.UnfoldedConv2d}[convolution]
    if name in _RESIDUAL:
        widths = (64, 128, 256, 512)
        return lambda: convolutional.residual_network(channels, data.classes, 64, widths, _RESIDUAL[name], layer)
    if name in _WIDE:
        return lambda: convolutional.wide_residual_network(channels, data.classes, *_WIDE[name], layer)
    return lambda: convolutional.small_cnn(channels, size, data.classes, layer)


def parameter_count(model: Any) -> int:
    """The number of trained parameters: the dimension of the noise."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def suitable_micro_batch(dimension: int, device: Any) -> int:
    """Records at a time, a power of two up to 512, whose gradients fill 8 GiB on CUDA or half a GiB on a CPU."""
    budget = 2**33 if device.type == "cuda" else 2**29
    records = max(1, budget // (4 * dimension))
    return min(512, 1 << (records.bit_length() - 1))


def faster_convolution(name: str, data: Dataset, device: Any, *, records: int = 64) -> str:
    """Which way to write convolutions gives per-record gradients sooner on this device, by trying both."""
    if name in _VISION or name in _TEXT:
        return "native"
    torch = torch_module()
    count = min(records, data.size)
    inputs = data.prepare(torch.as_tensor(data.records[:count]).to(device))
    labels = torch.as_tensor(data.labels[:count]).to(device)
    seconds: dict[str, float] = {}
    for way in CONVOLUTIONS:
        total = GradientSum(
            build_model(name, data, seed=0, convolution=way).to(device), max_grad_norm=1.0, micro_batch=count
        )
        for _ in range(3):  # the first call also chooses kernels
            began = time.perf_counter()
            float(total(inputs, labels)[0])
            seconds[way] = time.perf_counter() - began
    return min(seconds, key=lambda way: seconds[way])
