"""What a loader's next draw depends on, read again at every draw, and which rows of a dataset are one record."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from calipers.adapters.opacus_library import torch_module
from calipers.numerics.types import IntArray


def loader_behind(data_loader: Any) -> Any:
    """The loader that draws: accelerate's prepared loaders hold it and hand its batches on, one batch later."""
    return getattr(data_loader, "base_dataloader", data_loader)


def own_type(thing: Any) -> type:
    """The class an object had before it was watched."""
    kind = type(thing)
    return kind.__bases__[0] if "overheard" in vars(kind) else kind


_SETTINGS = ("sample_rate", "num_samples", "total_size", "batch_size", "drop_last", "replacement")


def settings_of(batches: Any) -> tuple[object, ...]:
    """What decides the distribution of a batch sampler's next draw, cheap enough to be read at every draw."""
    order = getattr(batches, "sampler", None)
    found = [getattr(thing, name, None) for thing in (batches, order) for name in _SETTINGS]
    records: Any = getattr(order, "data_source", getattr(order, "indices", ()))
    return (*found, id(order), len(records))


def rows_behind(dataset: Any) -> IntArray | None:
    """For each index of a dataset a number that is the same for rows of the same record; None where all differ.

    Read through PyTorch's `Subset` and `ConcatDataset`; what another class does with an index is not known.
    """
    data = torch_module("torch.utils.data")
    bases: dict[int, int] = {}

    def rows(part: Any) -> IntArray:
        if isinstance(part, data.Subset):
            return rows(part.dataset)[np.asarray(part.indices, dtype=np.int64)]
        if isinstance(part, data.ConcatDataset):
            return np.concatenate([rows(piece) for piece in part.datasets])
        base = part.tensors[0] if isinstance(part, data.TensorDataset) else part
        return (bases.setdefault(id(base), len(bases)) << 40) + np.arange(len(part), dtype=np.int64)

    if not isinstance(dataset, data.Subset | data.ConcatDataset):
        return None
    found, numbers = np.unique(rows(dataset), return_inverse=True)
    return None if len(found) == len(dataset) else numbers.astype(np.int64)


def members_of(batches: Any) -> IntArray | None:
    """The indices that a `SubsetRandomSampler` may draw; None for other orders."""
    order: Any = getattr(batches, "sampler", None)
    if not hasattr(order, "indices"):
        return None
    return np.asarray([int(index) for index in order.indices], dtype=np.int64)


def selection_digests(dataset: Any, batches: Any) -> tuple[str, str]:
    """Short names for the rows that a `Subset` selects and for those that a `SubsetRandomSampler` may draw."""
    parts = []
    while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        parts.append(np.asarray(dataset.indices, dtype=np.int64).tobytes())
        dataset = dataset.dataset
    members = members_of(batches)
    drawn = b"" if members is None else np.sort(members).tobytes()
    subset, sampler = (hashlib.blake2b(text, digest_size=8).hexdigest() for text in (b"|".join(parts), drawn))
    return subset, sampler
