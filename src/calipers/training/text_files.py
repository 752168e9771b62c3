"""AG News from CSV files, and text as token numbers.

Text is lower-cased and split at white space; [CLS] comes first, [PAD] fills up. Which tokens have a number of their
own is a decision about the vocabulary:

- "hashed": a token's number is its CRC-32 modulo the vocabulary's size. It looks at no data, so the guarantee of the
  training covers everything that leaves the program. Rare collisions are its price. The default;
- "frequent": the most frequent tokens of the training texts, all others [UNK], as in Ertan and van Dijk (2026),
  Appendix B.5.1. The list is computed from the private texts without noise: whether a word is on it may
  depend on one record, and no measurement of the training speaks about that.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from calipers.domains import COUNT, choice
from calipers.errors import InputError
from calipers.numerics.types import IntArray

PAD, UNK, CLS = 0, 1, 2
_SPECIAL = 3
VOCABULARIES = ("hashed", "frequent")

_TRAIN = ("train.csv", "train.csv.gz", "ag_news_train.csv", "ag_news_train.csv.gz")
_TRAIN_PARTS = ("ag_news_train_*.csv", "ag_news_train_*.csv.gz")
_TEST = ("test.csv", "test.csv.gz", "ag_news_test.csv", "ag_news_test.csv.gz")

Texts = tuple[list[str], IntArray]


def read_ag_news(folder: Path) -> tuple[Texts, Texts]:
    """(texts, labels 0-3) of training and test; `InputError` names the files if they are not there.

    The training texts are in one file, or in parts, of which all that are there are read, in the order of their names.
    """
    parts = [_read_csv(path) for path in _found(folder, _TRAIN, _TRAIN_PARTS)]
    training = [text for texts, _ in parts for text in texts], np.concatenate([labels for _, labels in parts])
    return training, _read_csv(_found(folder, _TEST)[0])


def _found(folder: Path, names: tuple[str, ...], parts: tuple[str, ...] = ()) -> list[Path]:
    """The first of the files called `names`, or else all that match one of `parts`."""
    for name in names:
        if (folder / name).is_file():
            return [folder / name]
    # By the name without .gz: a part that lies there packed and unpacked is read once.
    found = {path.name.removesuffix(".gz"): path for pattern in parts for path in folder.glob(pattern)}
    if found:
        return [found[name] for name in sorted(found)]
    wanted = ", ".join((*names, *parts))
    raise InputError(f"AG News: none of {wanted} is in {folder}; put one there or name another folder.")


def _read_csv(path: Path) -> Texts:
    """Rows label (1-4), title, description; a header row is recognized by its first field."""
    opened = gzip.open if path.suffix == ".gz" else open
    texts: list[str] = []
    labels: list[int] = []
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if number == 1 and row and row[0].strip().lower() in ("label", "class", "class index"):
                    continue
                if len(row) < 3 or row[0] not in ("1", "2", "3", "4"):
                    raise InputError(f"{path}, row {number}: expected label (1-4), title, description.")
                labels.append(int(row[0]) - 1)
                texts.append(row[2])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InputError(f"{path} cannot be read as CSV in UTF-8: {error}.") from error
    if not texts:
        raise InputError(f"{path} holds no records.")
    return texts, np.asarray(labels, dtype=np.int64)


def numbered(
    training: list[str], others: list[str], *, vocabulary: str = "hashed", size: int = 30_000, length: int = 128
) -> tuple[IntArray, IntArray]:
    """Token numbers of the training texts and of other texts, (records, length) each; numbers below size + 3."""
    choice("vocabulary", vocabulary, VOCABULARIES)
    COUNT.check_int("size", size)
    COUNT.check_int("length", length)
    number = _hashed(size) if vocabulary == "hashed" else _frequent(training, size)
    return _rows(training, number, length), _rows(others, number, length)


def _tokens(text: str) -> list[str]:
    return text.lower().split()


def _hashed(size: int) -> Callable[[str], int]:
    return lambda token: _SPECIAL + zlib.crc32(token.encode()) % size


def _frequent(training: list[str], size: int) -> Callable[[str], int]:
    counts = Counter(token for text in training for token in _tokens(text))
    # Ties by the token itself, so that the order of the records does not matter.
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:size]
    places = {token: _SPECIAL + place for place, (token, _) in enumerate(ranked)}
    return lambda token: places.get(token, UNK)


def _rows(texts: list[str], number: Callable[[str], int], length: int) -> IntArray:
    rows = np.full((len(texts), length), PAD, dtype=np.int64)
    for row, text in zip(rows, texts, strict=True):
        numbers = [CLS, *map(number, _tokens(text)[: length - 1])]
        row[: len(numbers)] = numbers
    return rows
