"""Where a training takes its records from: arrays that are held, or a dataset of PyTorch that is read as it is needed.

The plan's sampler draws the numbers of a batch's records, and those are read; nothing else decides. Of a `DataLoader`
therefore only its dataset, its workers and its collation are used, not its batches: the run that is measured would be
another.

**A dataset** is map-style: `len(dataset)` records, `dataset[i]` one of them, as (inputs, label), (input, another,
label) or a dictionary with the key `labels`. It need not fit into memory. Records are collated one by one, whatever the
collation does with several: what is done to one may not depend on the others in the batch (padding to the longest is
the ordinary case, and is refused by its shapes).

**Workers** read ahead, from a second stream of the same batches; what they have read and nobody has used is not part of
the run, and a checkpoint knows nothing of it. Random numbers that a dataset draws from PyTorch (augmentation) are
seeded by step and record, so that a resumed run, more workers or more ranks read the same.

A checkpoint is refused on other records: arrays are compared by all their bytes, a dataset by its class, its length and
some of its records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.samplers.stream import BatchStream
from calipers.training.checkpoint import data_digest
from calipers.training.datasets import Dataset
from calipers.training.handling import Handling
from calipers.training.inputs import OverRecords, count, gathered, joined, leaves, mapped
from calipers.training.losses import Loss, own_loss
from calipers.training.torch_library import random_layers, torch_module

_COMPARED = 32
_PREPARING = 0x9E3779B97F4A7C15
"""Apart from the seed of the layers, and more than any number of ranks."""
_LABELS = ("labels", "label")

Batch = tuple[Any, Any]
Share = Callable[[IntArray], IntArray]


class ArrayRecords:
    """Arrays with one row per record, held on the device; `prepare` turns rows into the model's inputs.

    It is called with one row at a time, or mapped over them: standardizing a batch, or blending its images, would let a
    record into the gradients of all others. `Dataset.prepare` is known to do no such thing, and takes all at once.
    """

    def __init__(self, records: Any, labels: Any, prepare: Callable[[Any], Any] | None, device: Any) -> None:
        torch = torch_module()
        # PyTorch wants arrays in order and, although nothing is written, writable.
        arrays = mapped(lambda array: np.require(array, requirements=["C", "W"]), records)
        answers = () if labels is None else np.require(labels, requirements=["C", "W"])
        rows, answered = count(arrays), count(arrays) if labels is None else len(answers)
        if rows != answered:
            raise InputError(f"Expected a label for each record, got {rows} records and {answered} labels.")
        self.size, self.digest = rows, data_digest(*leaves(arrays), *leaves(answers))
        self._held = mapped(lambda array: torch.as_tensor(array).to(device), (arrays, answers))
        self._prepare, self._device = _by_rows(prepare), device
        self._draws = isinstance(self._prepare, OverRecords)

    def begin(self, stream: BatchStream, share: Share, seed_of: Callable[[int], int]) -> None:
        """Nothing is read ahead."""

    def look(self, rows: IntArray) -> Batch:
        """The inputs and labels of these records, outside of any step."""
        return self.take(0, rows, 0)

    def take(self, step: int, rows: IntArray, seed: int) -> Batch:
        """The inputs and labels of these records."""
        if not len(rows):  # no records, of the shape that records have
            return gathered(self.take(step, np.zeros(1, np.int64), seed), slice(0))  # type: ignore[no-any-return]
        places = torch_module().from_numpy(rows)
        if self._device.type == "cuda":  # without waiting for what the GPU is busy with
            places = places.pin_memory().to(self._device, non_blocking=True)
        inputs, labels = gathered(self._held, places)
        if not self._draws:
            return self._prepare(inputs), labels
        with random_layers((seed + _PREPARING) % 2**64, self._device):  # whenever the step's records are read
            return self._prepare(inputs), labels


def _by_rows(prepare: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """The function of every row by itself."""
    if prepare is None:
        return lambda inputs: inputs
    if getattr(prepare, "__func__", None) is Dataset.prepare:
        return prepare
    alone = OverRecords(lambda row: mapped(_only, prepare(mapped(lambda part: part.unsqueeze(0), row))), 0, Exception)
    return alone


def _only(tensor: Any) -> Any:
    """What was made of one row."""
    if len(tensor) != 1:
        raise InputError(f"Expected prepare to make one row of each, got {len(tensor)} of one.")
    return tensor[0]


class DatasetRecords:
    """A map-style dataset, read by the numbers that the sampler draws."""

    def __init__(self, dataset: Any, *, collate: Callable[[list[Any]], Any] | None, workers: int, loss: Loss) -> None:
        data = torch_module("torch.utils.data")
        if isinstance(dataset, data.IterableDataset):
            raise InputError(
                "An IterableDataset has no record number 17, and the sampler draws records by their numbers; give a "
                "dataset with __len__ and __getitem__."
            )
        self._reader = _Reader(dataset, collate or data.default_collate, loss is own_loss)
        self._workers = workers
        self._loader: Any = None
        self._ahead: Iterator[Any] = iter(())
        self.size = len(dataset)
        self.digest = self._compared(dataset)

    def _compared(self, dataset: Any) -> str:
        """Class, length and some records."""
        digest = hashlib.sha256(f"{type(dataset).__qualname__} {self.size}".encode())
        rows = np.unique(np.linspace(0, self.size - 1, min(_COMPARED, self.size)).astype(np.int64))
        for tensor in leaves(self._reader[0, rows][1:]):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
        return digest.hexdigest()

    def begin(self, stream: BatchStream, share: Share, seed_of: Callable[[int], int]) -> None:
        """Go to the place of the stream; batches are read ahead from a second stream that begins there."""
        if not self._workers:
            return
        state = stream.state()

        def ahead() -> Iterator[tuple[int, IntArray]]:
            second = BatchStream.resumed(stream.sampler, state)
            for step, batch in enumerate(second, start=state["position"]):
                yield seed_of(step), share(batch)

        # Workers start with the first batch that is taken, not before a checkpoint has been looked for.
        self._loader = torch_module("torch.utils.data").DataLoader(
            self._reader, batch_size=None, sampler=ahead(), num_workers=self._workers, collate_fn=_as_it_is
        )

    def look(self, rows: IntArray) -> Batch:
        """The inputs and labels of these records, outside of any step; no worker reads them."""
        return self._reader[0, rows][1:]

    def take(self, step: int, rows: IntArray, seed: int) -> Batch:
        """The inputs and labels of these records, where they lie: moved to the device piece by piece."""
        if not self._workers:
            return self._reader[seed, rows][1:]
        if self._loader is not None:
            self._ahead, self._loader = iter(self._loader), None
        found, inputs, labels = next(self._ahead)
        if not np.array_equal(found, rows):
            raise InputError(f"The workers read other records than step {step} draws; begin again from the checkpoint.")
        return inputs, labels


Records = ArrayRecords | DatasetRecords


class _Reader:
    """reader[seed, rows]: (rows, inputs, labels). Picklable, for workers."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any], whole: bool) -> None:
        self._dataset, self._collate, self._whole = dataset, collate, whole
        self._empty: Any = None

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, drawn: tuple[int, IntArray]) -> tuple[IntArray, Any, Any]:
        seed, rows = drawn
        if not len(rows):  # an empty batch is a step like any other, of records that have a shape
            if self._empty is None:
                self._empty = mapped(lambda tensor: tensor[:0], self._record(0, 0))
            return rows, *self._empty
        return rows, *joined([self._record(int(row), seed) for row in rows])

    def _record(self, row: int, seed: int) -> Batch:
        with random_layers((seed + row * 0x9E3779B97F4A7C15) % 2**63, torch_module().device("cpu")):
            found = self._collate([self._dataset[row]])
        inputs, labels = _split(found, self._whole)
        for tensor in leaves((inputs, labels)):
            if not hasattr(tensor, "detach") or tensor.ndim < 1 or len(tensor) != 1:
                raise InputError(
                    f"Record {row}: expected numbers as tensors or arrays, got {type(tensor).__name__}; the dataset "
                    "should return (inputs, label) or a dictionary with the key labels."
                )
        return inputs, labels


def _split(record: Any, whole: bool) -> Batch:
    """(inputs, label) of a collated record; with the model's own loss, all of a dictionary is its input."""
    if isinstance(record, Mapping):
        label = [name for name in _LABELS if name in record]
        if whole:
            return dict(record), ()
        if not label:
            raise InputError(f"Expected records with the key labels, got {', '.join(map(str, record))}.")
        return {name: part for name, part in record.items() if name != label[0]}, record[label[0]]
    if isinstance(record, list | tuple) and len(record) >= 2:
        return (record[0] if len(record) == 2 else tuple(record[:-1])), record[-1]
    if isinstance(record, list | tuple):
        record = record[0]
    return record, ()


def _as_it_is(batch: Any) -> Any:
    return batch


def records_of(records: Any, labels: Any, how: Handling, device: Any) -> Records:
    """The records of arrays with labels, of a dataset, or of a loader's dataset."""
    loader = torch_module("torch.utils.data").DataLoader
    collate, workers = None, how.workers
    if isinstance(records, loader):
        if labels is not None:
            raise InputError("A DataLoader brings its labels; leave labels out.")
        collate = records.collate_fn if records.batch_size is not None else None
        workers, records = workers or records.num_workers, records.dataset
    arrays = isinstance(records, list | tuple | Mapping) or hasattr(records, "dtype")
    if arrays:
        if workers:
            raise InputError("Arrays are held in memory and need no workers; leave workers out, or give a dataset.")
        return ArrayRecords(records, labels, how.prepare, device)
    if labels is not None or how.prepare is not None:
        raise InputError("A dataset brings its labels and prepares its records; leave labels and prepare out.")
    if not hasattr(records, "__getitem__") or not hasattr(records, "__len__"):
        raise InputError(
            f"Expected arrays, or a dataset with __len__ and __getitem__, got {type(records).__name__}: the sampler "
            "draws records by their numbers."
        )
    return DatasetRecords(records, collate=collate, workers=workers, loss=how.loss)
