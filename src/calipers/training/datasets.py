"""The datasets of the experiments, read from local files; nothing is downloaded.

Pixels are scaled to [-1, 1] by fixed numbers. Means and deviations computed from the training set would be functions
of it that no noise protects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calipers.domains import Domain
from calipers.errors import InputError
from calipers.training.image_files import Images, read_cifar10, read_digits, read_npz
from calipers.training.text_files import numbered, read_ag_news

DATASETS = ("mnist", "fashion-mnist", "cifar10", "ag-news")
# Beyond this a label is no class but a mistake, and the model's last layer would not fit the memory.
_MOST_CLASSES = 100_000
# Where Debian's package dataset-fashion-mnist puts its files.
_SYSTEM = {"fashion-mnist": Path("/usr/share/datasets/fashion-mnist")}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test records with labels 0 .. classes-1; `kind` is "images" (bytes) or "text" (token numbers)."""

    name: str
    kind: str
    records: Any
    labels: Any
    test_records: Any
    test_labels: Any
    vocabulary_size: int = 0

    def __post_init__(self) -> None:
        for records, labels in ((self.records, self.labels), (self.test_records, self.test_labels)):
            if len(records) != len(labels):
                raise InputError(f"{self.name}: {len(records)} records have {len(labels)} labels.")
            if len(labels) == 0 or labels.min() < 0 or labels.max() >= _MOST_CLASSES:
                raise InputError(
                    f"{self.name}: expected classes counted from 0, below {_MOST_CLASSES}, and at least one record."
                )
        if self.records.shape[1:] != self.test_records.shape[1:]:
            raise InputError(
                f"{self.name}: training records have shape {self.records.shape[1:]}, test records "
                f"{self.test_records.shape[1:]}."
            )

    @property
    def size(self) -> int:
        """The number of training records."""
        return len(self.records)

    @property
    def classes(self) -> int:
        """One more than the largest label; that a class exists is taken to be public."""
        return int(max(self.labels.max(), self.test_labels.max())) + 1

    def prepare(self, rows: Any) -> Any:
        """Rows on the device as a model's inputs: bytes to numbers in [-1, 1]; token numbers stay."""
        return rows if self.kind == "text" else rows.float().div(127.5).sub(1.0)

    def first(self, count: int, test_count: int | None = None) -> Dataset:
        """The first `count` training records (and test records), for a quick look."""
        kept = Domain(1, self.size, integer=True).check_int("records", count, f"{self.name} has {self.size}.")
        tests = len(self.test_labels) if test_count is None else test_count
        return replace(
            self,
            records=self.records[:kept],
            labels=self.labels[:kept],
            test_records=self.test_records[:tests],
            test_labels=self.test_labels[:tests],
        )


def load_dataset(
    name: str, folder: str | Path | None = None, *, vocabulary: str = "hashed", length: int = 128, words: int = 30_000
) -> Dataset:
    """The dataset called `name` from the files in `folder`, or from an archive NAME.npz of one's own.

    `InputError` names the files that are looked for. `vocabulary`, `length` and `words` are for text.
    """
    if name.endswith(".npz"):
        path = Path(name) if folder is None else Path(folder) / name
        if not path.is_file():
            raise InputError(f"There is no file {path}; it should hold x_train, y_train, x_test, y_test.")
        return _images(path.stem, *read_npz(path))
    if name not in DATASETS:
        raise InputError(f"Expected data to be one of {', '.join(DATASETS)} or a file ending in .npz, got {name!r}.")
    place = _folder(name, folder)
    if name == "ag-news":
        (texts, labels), (test_texts, test_labels) = read_ag_news(place)
        records, tests = numbered(texts, test_texts, vocabulary=vocabulary, size=words, length=length)
        return Dataset(name, "text", records, labels, tests, test_labels, vocabulary_size=words + 3)
    return _images(name, *(read_cifar10(place) if name == "cifar10" else read_digits(place, name)))


def _folder(name: str, folder: str | Path | None) -> Path:
    if folder is None:
        if name in _SYSTEM and _SYSTEM[name].is_dir():
            return _SYSTEM[name]
        raise InputError(f"{name} is read from local files; name their folder (--data-dir).")
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise InputError(f"There is no folder {place}; name the one that holds the files of {name}.")
    if name in _SYSTEM and _SYSTEM[name].is_dir() and not any(place.iterdir()):
        return _SYSTEM[name]
    return place


def _images(name: str, train: Images, test: Images) -> Dataset:
    square = train[0].shape[2] == train[0].shape[3]
    if not square:
        raise InputError(f"{name}: expected square images, got {train[0].shape[2]} x {train[0].shape[3]}.")
    return Dataset(name, "images", train[0], np.asarray(train[1]), test[0], np.asarray(test[1]))
