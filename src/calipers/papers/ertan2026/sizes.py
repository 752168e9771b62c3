"""The sizes of the models in the captions of Tables 2 to 7 and 9, from the architectures of Appendix B.

A caption says "≈ 136M parameters"; Appendix B gives widths, depths and vocabulary, and a count follows. Biases and the
weights of normalization layers are not all stated, so each count is a bracket: the weight matrices alone, and those
with every bias and scale that such a layer can have. "≈" is read as within five percent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calipers.papers.ertan2026 import published
from calipers.papers.items import ItemProgress, Published, watched
from calipers.papers.sheets import Computed, Sheet

_NEAR = 0.05
_CLASSES_OF_IMAGES, _CLASSES_OF_NEWS = 10, 4
_VOCABULARY, _SPECIAL_TOKENS = 30_000, 3
_WIDE_STAGES = (160, 320, 640)
_WIDE_BLOCKS = 4


Parameters = NDArray[np.int64]
"""At least and at most so many parameters."""


def _dense(inputs: int, outputs: int) -> Parameters:
    """A matrix, with or without bias; a convolution is one with inputs × kernel area."""
    return np.array((inputs * outputs, (inputs + 1) * outputs))


def _norm(width: int) -> Parameters:
    """Nothing, or a scale and a shift."""
    return np.array((0, 2 * width))


def vision_transformer(width: int) -> Parameters:
    """32×32 images in 4×4 patches, 12 layers, MLP ratio 4 (Appendix B.4)."""
    block = _dense(width, 3 * width) + _dense(width, width) + _dense(width, 4 * width) + _dense(4 * width, width)
    block += _norm(width) * 2
    return _dense(3 * 16, width) + _dense(65, width) + block * 12 + _norm(width) + _dense(width, _CLASSES_OF_IMAGES)


def text_transformer(width: int, layers: int, hidden: int, length: int) -> Parameters:
    """Token and position embeddings, attention, and a feed-forward layer of three matrices (SwiGLU, Appendix B.5)."""
    tokens: Parameters = np.array((_VOCABULARY * width, (_VOCABULARY + _SPECIAL_TOKENS) * width))
    block = _dense(width, 3 * width) + _dense(width, width) + _dense(width, hidden) * 2 + _dense(hidden, width)
    block += _norm(width) * 2
    return tokens + length * width + block * layers + _norm(width) + _dense(width, _CLASSES_OF_NEWS)


def wide_residual_network() -> Parameters:
    """28 layers, widening factor 10: three stages of four blocks of two 3×3 convolutions (Appendix B.6.2)."""
    total, width = _dense(3 * 9, 16) + _norm(16), 16
    for outputs in _WIDE_STAGES:
        total += _dense(width, outputs)  # the projection shortcut of the stage's first block
        for _ in range(_WIDE_BLOCKS):
            total += _dense(9 * width, outputs) + _dense(9 * outputs, outputs) + _norm(width) + _norm(outputs)
            width = outputs
    return total + _norm(width) + _dense(width, _CLASSES_OF_IMAGES)


MODELS = {
    "Transformer-Base": text_transformer(768, 12, 3072, 256),
    "Transformer-Tiny": text_transformer(256, 4, 1024, 128),
    "Transformer-Small": text_transformer(512, 6, 2048, 128),
    "ViT-Tiny": vision_transformer(192),
    "ViT-Small": vision_transformer(384),
    "ViT-Base": vision_transformer(768),
    "WideResNet-28x10": wide_residual_network(),
}


def model_sizes(progress: ItemProgress) -> Computed:
    """Millions of parameters of every model whose size a caption states."""
    table = Sheet("sizes", listed=False)
    for name, millions in watched(published.MODEL_SIZES.items(), progress):
        stated = Published(f"≈ {millions}", millions * (1.0 - _NEAR), millions * (1.0 + _NEAR), float(millions))
        table.add(name=name, millions=tuple((MODELS[name] / 1e6).tolist())).unlisted(stated=stated)
    return Computed([table])
