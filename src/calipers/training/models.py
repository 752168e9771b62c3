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

from typing import Any

from calipers.domains import SEED, choice
from calipers.errors import InputError
from calipers.training.datasets import Dataset
from calipers.training.torch_library import torch_module

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
# What the small network's convolutions and poolings leave a pixel of.
_SMALLEST = 14
MODELS = ("cnn", *_RESIDUAL, *_WIDE, *_VISION, *_TEXT)


def build_model(name: str, data: Dataset, *, seed: int | None = None) -> Any:
    """The model called `name` for this data, with random weights; the same for the same seed."""
    choice("model", name, MODELS)
    wanted = "text" if name in _TEXT else "images"
    if data.kind != wanted:
        raise InputError(f"model={name!r} reads {wanted}, but {data.name} holds {data.kind}; choose another model.")
    if seed is not None:
        SEED.check_int("seed", seed)
    torch = torch_module()
    with torch.random.fork_rng(devices=[]):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        return _built(name, data)


def _built(name: str, data: Dataset) -> Any:
    if name in _TEXT:
        from calipers.training.transformers import TextTransformer

        return TextTransformer(data.vocabulary_size, data.records.shape[1], data.classes, **_TEXT[name])
    channels, size = data.records.shape[1:3]
    if name in _VISION:
        from calipers.training.transformers import VisionTransformer

        if size % 4:
            raise InputError(f"model={name!r} cuts images into 4 x 4 patches, got images of {size} x {size}.")
        return VisionTransformer(channels, size, data.classes, **_VISION[name])
    from calipers.training import convolutional

    if name in _RESIDUAL:
        return convolutional.residual_network(channels, data.classes, 64, (64, 128, 256, 512), _RESIDUAL[name])
    if name in _WIDE:
        return convolutional.wide_residual_network(channels, data.classes, *_WIDE[name])
    if size < _SMALLEST:
        raise InputError(f"model='cnn' needs images of {_SMALLEST} x {_SMALLEST} at least, got {size} x {size}.")
    return convolutional.small_cnn(channels, size, data.classes)


def parameter_count(model: Any) -> int:
    """The number of trained parameters: the dimension of the noise."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
