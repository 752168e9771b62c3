"""Transformers for small images and for text, as in Ertan and van Dijk (2026), Appendices B.4 and B.5.

Both read a sequence that begins with a [CLS] token, run it through blocks with normalization before each part, and
classify what became of [CLS]. Images: 4 x 4 patches, LayerNorm, an MLP with GELU. Text: RMSNorm, a SwiGLU
feed-forward part, padding masked out of the attention. No dropout.

Attention is written out, softmax(Q K' / sqrt(d)) V, because the fused kernels have no rule for being mapped over
records.

This module imports PyTorch at once; reach it through `calipers.training.models`, which does so when asked for a model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from calipers.training.text_files import PAD


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Any, hidden: Any = None) -> Any:
        """(records, length, width) -> the same; `hidden` (records, length) marks tokens nobody attends to."""
        split = self.project(tokens).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None, :], float("-inf"))
        mixed = scores.softmax(dim=-1) @ values
        return self.output(mixed.transpose(1, 2).flatten(-2))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, tokens: Any) -> Any:
        """(records, length, width) -> the same."""
        return self.down(functional.silu(self.gate(tokens)) * self.up(tokens))


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, attention: Any, feed_forward: Any, norms: tuple[Any, Any]) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.first_norm, self.second_norm = norms

    def forward(self, tokens: Any, hidden: Any = None) -> Any:
        """(records, length, width) -> the same."""
        tokens = tokens + self.attention(self.first_norm(tokens), hidden)
        return tokens + self.feed_forward(self.second_norm(tokens))


class VisionTransformer(nn.Module):
    """An image cut into `patch` x `patch` squares, each a token."""

    def __init__(
        self, channels: int, size: int, classes: int, *, width: int, depth: int, heads: int, patch: int = 4
    ) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.ModuleList(
            Block(
                Attention(width, heads),
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                (nn.LayerNorm(width), nn.LayerNorm(width)),
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Any) -> Any:
        """(records, channels, size, size) -> (records, classes)."""
        patches = self.embed(images).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.cls.expand(len(patches), -1, -1), patches), dim=1) + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(self.norm(tokens)[:, 0])


class TextTransformer(nn.Module):
    """Token numbers, the first of them [CLS]; `PAD` fills the end."""

    def __init__(
        self, vocabulary: int, length: int, classes: int, *, width: int, depth: int, heads: int, inner: int
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(1, length, width))
        nn.init.normal_(self.embed.weight, std=0.02)
        self.blocks = nn.ModuleList(
            Block(Attention(width, heads), SwiGLU(width, inner), (nn.RMSNorm(width), nn.RMSNorm(width)))
            for _ in range(depth)
        )
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, numbers: Any) -> Any:
        """(records, length) token numbers -> (records, classes)."""
        hidden = numbers == PAD
        tokens = self.embed(numbers) + self.positions[:, : numbers.shape[1]]
        for block in self.blocks:
            tokens = block(tokens, hidden)
        return self.head(self.norm(tokens)[:, 0])
