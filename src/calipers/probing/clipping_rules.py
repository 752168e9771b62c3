"""Rules by which a loop might clip: the right ones, and those that people write by mistake.

A rule turns the gradients of a batch, one row a record, into the sum that is released (times the divisor, without
noise). A rule is right if one record then moves the sum by at most the clipping norm C, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from calipers.numerics.types import FloatArray

Layers = tuple[slice, ...]
PARTS = "clips parts of a gradient, not its whole norm"
OWN = "computed from the batch's own gradients, without noise"


@dataclass(frozen=True)
class ClippingRule:
    """What might be done to gradients; `right` if one record then moves the sum by at most C."""

    verdict: str
    right: bool
    applied: Callable[[FloatArray], FloatArray]


def clip(gradients: FloatArray, bound: float, lengths: FloatArray | None = None) -> FloatArray:
    """Every row scaled down to the norm `bound` where it is longer (`lengths`: numbers to go by instead of norms)."""
    norms = np.linalg.norm(gradients, axis=-1, keepdims=True) if lengths is None else lengths
    scaled: FloatArray = gradients * (bound / np.maximum(np.maximum(norms, bound), np.finfo(np.float64).tiny))
    return scaled


def _total(rows: FloatArray) -> FloatArray:
    total: FloatArray = rows.sum(axis=0)
    return total


def rules(bound: float, layers: Layers, found: float, divisor: float) -> list[ClippingRule]:
    """All of them, the right ones first; `found` is the norm at which a huge gradient arrives."""
    several = layers if len(layers) > 1 else ()
    return [
        *_of_records(bound, layers, found),
        *_of_batches(bound, divisor),
        *_of_layers(bound, several),
        *_by_lengths(bound),
    ]


def _of_records(bound: float, layers: Layers, found: float) -> Iterator[ClippingRule]:
    """Each record by its whole norm, or not at all."""
    share = bound / len(layers) ** 0.5
    yield ClippingRule(f"each record's gradient to norm {bound:g}", True, lambda g: clip(g, bound).sum(axis=0))
    yield ClippingRule(
        f"each record's layers to norm {share:.6g} each, together at most {bound:g}",
        True,
        lambda g: np.concatenate([clip(g[:, part], share) for part in layers], axis=1).sum(axis=0),
    )
    yield ClippingRule("does not clip", False, lambda g: g.sum(axis=0))
    yield ClippingRule(f"clips to {found:.6g}, not {bound:g}", False, lambda g: clip(g, found).sum(axis=0))


def _of_batches(bound: float, divisor: float) -> Iterator[ClippingRule]:
    """Sums and averages instead of records."""
    averaged = "clips the averaged gradient of the batch"
    yield ClippingRule("clips the sum of the batch, not each record", False, lambda g: clip(g.sum(axis=0), bound))
    yield ClippingRule(f"{averaged}, not each record", False, lambda g: len(g) * clip(g.mean(axis=0), bound))
    yield ClippingRule(
        f"{averaged} (divided by a constant), not each record",
        False,
        lambda g: divisor * clip(g.sum(axis=0) / divisor, bound),
    )
    for size in (2, 4):
        yield ClippingRule(
            f"clips sums of {size} records, not each record", False, partial(_groups, bound, size, False)
        )
        yield ClippingRule(
            f"clips averages of {size} records, not each record", False, partial(_groups, bound, size, True)
        )
    yield ClippingRule(
        "clips gradients of the mean loss: each is divided by the batch that came out before it is clipped",
        False,
        lambda g: len(g) * clip(g / len(g), bound).sum(axis=0),
    )
    for word, statistic in (("median", np.median), ("mean", np.mean), ("greatest", np.max)):
        yield ClippingRule(f"clips to the {word} norm, {OWN}", False, partial(_own_norm, statistic))


def _groups(bound: float, size: int, averaged: bool, gradients: FloatArray) -> FloatArray:
    total = np.zeros(gradients.shape[1])
    for start in range(0, len(gradients), size):
        part = gradients[start : start + size]
        weight = len(part) if averaged else 1.0
        total += weight * clip(part.sum(axis=0) / weight, bound)
    return total


def _own_norm(statistic: Callable[[FloatArray], float], gradients: FloatArray) -> FloatArray:
    return _total(clip(gradients, float(statistic(np.linalg.norm(gradients, axis=1)))))


def _of_layers(bound: float, layers: Layers) -> Iterator[ClippingRule]:
    """Layers instead of the whole gradient, or all but one of them; none where there is one layer."""
    if not layers:
        return
    yield ClippingRule(
        f"{PARTS}: each layer to {bound:g}",
        False,
        lambda g: np.concatenate([clip(g[:, part], bound) for part in layers], axis=1).sum(axis=0),
    )
    for number, part in enumerate(layers):
        forgotten = f"{PARTS}: layer {number + 1} is not clipped"
        yield ClippingRule(forgotten, False, partial(_but_layer, bound, part, False))
        yield ClippingRule(forgotten, False, partial(_but_layer, bound, part, True))
        yield ClippingRule(f"clips by the norm of layer {number + 1} alone", False, partial(_by_layer, bound, part))


def _but_layer(bound: float, part: slice, counted: bool, gradients: FloatArray) -> FloatArray:
    """All layers but one are scaled; `counted` says whether that one is part of the norm."""
    rest = gradients.copy()
    if not counted:
        rest[:, part] = 0.0
    clipped = clip(gradients, bound, np.linalg.norm(rest, axis=1, keepdims=True))
    clipped[:, part] = gradients[:, part]
    return _total(clipped)


def _by_layer(bound: float, part: slice, gradients: FloatArray) -> FloatArray:
    return _total(clip(gradients, bound, np.linalg.norm(gradients[:, part], axis=1, keepdims=True)))


def _by_lengths(bound: float) -> Iterator[ClippingRule]:
    """Other numbers than the Euclidean norm."""
    yield ClippingRule(f"{PARTS}: each coordinate by itself", False, lambda g: np.clip(g, -bound, bound).sum(axis=0))
    for verdict, right, length in (
        ("clips by the largest coordinate, not by the norm", False, lambda g: np.abs(g).max(axis=1, keepdims=True)),
        (
            "clips by the sum of the coordinates' sizes: at most to the norm",
            True,
            lambda g: np.abs(g).sum(axis=1, keepdims=True),
        ),
        ("clips by the square of the norm", False, lambda g: np.square(g).sum(axis=1, keepdims=True)),
    ):
        yield ClippingRule(verdict, right, partial(_by_length, bound, length))


def _by_length(bound: float, length: Callable[[FloatArray], FloatArray], gradients: FloatArray) -> FloatArray:
    return _total(clip(gradients, bound, length(gradients)))
