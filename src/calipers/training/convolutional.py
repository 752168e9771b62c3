"""Convolutional models: a small network for digits, residual networks with group normalization.

The shapes are those of Ertan and van Dijk (2026), Appendix B.6: a 3 x 3 convolution without pooling at the start,
residual blocks of two 3 x 3 convolutions, global average pooling, a linear layer. Group normalization, with the
largest number of groups up to 32 that divides the channels, stands where batch normalization would: batch
normalization mixes records, and then no clipping bounds what one of them does. ReLU, no dropout.

This module imports PyTorch at once; reach it through `calipers.training.models`, which does so when asked for a model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def group_norm(channels: int) -> Any:
    """Group normalization with the largest number of groups up to 32 that divides the channels."""
    groups = max(count for count in range(1, 33) if channels % count == 0)
    return nn.GroupNorm(groups, channels)


def small_cnn(channels: int, size: int, classes: int) -> Any:
    """Two convolutions and two linear layers; 26,010 parameters for 28 x 28 gray images of 10 classes."""
    features = nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = features(torch.zeros(1, channels, size, size)).shape[1]
    return nn.Sequential(*features, nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, classes))


class ResidualBlock(nn.Module):
    """norm(conv(relu(norm(conv(x))))) + shortcut(x), then ReLU."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.first_norm = group_norm(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = group_norm(after)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and before == after
            else nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), group_norm(after))
        )

    def forward(self, images: Any) -> Any:
        """Two convolutions around the shortcut."""
        inner = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(inner)) + self.shortcut(images))


class GlobalAverage(nn.Module):
    """The mean over all pixels of every channel."""

    def forward(self, images: Any) -> Any:
        """(records, channels, height, width) -> (records, channels)."""
        return images.mean(dim=(-2, -1))


def residual_network(channels: int, classes: int, stem: int, widths: tuple[int, ...], blocks: tuple[int, ...]) -> Any:
    """Stages of residual blocks; every stage but the first halves the image."""
    layers: list[Any] = [nn.Conv2d(channels, stem, 3, padding=1, bias=False), group_norm(stem), nn.ReLU()]
    before = stem
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        for position in range(count):
            stride = 2 if stage and not position else 1
            layers.append(ResidualBlock(before, width, stride))
            before = width
    return nn.Sequential(*layers, GlobalAverage(), nn.Linear(before, classes))


def wide_residual_network(channels: int, classes: int, depth: int, factor: int) -> Any:
    """Depth 6 n + 4: three stages of n blocks, 16, 32 and 64 channels times the factor."""
    count = (depth - 4) // 6
    widths = (16 * factor, 32 * factor, 64 * factor)
    return residual_network(channels, classes, 16, widths, (count, count, count))
