"""Images from the files people have: numpy archives, IDX files, CIFAR-10's pickled batches.

Every reader returns (records, labels): unsigned bytes, (records, channels, height, width), and integer labels.
"""

from __future__ import annotations

import gzip
import pickle
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.numerics.types import IntArray

Images = tuple[NDArray[np.uint8], IntArray]

_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_CIFAR_PARTS = [f"data_batch_{part}" for part in range(1, 6)], ["test_batch"]


def read_digits(folder: Path, name: str) -> tuple[Images, Images]:
    """MNIST or Fashion-MNIST: `name`.npz, or the four IDX files, each with or without .gz.

    The files are in the folder itself or where torchvision keeps them, MNIST/raw and FashionMNIST/raw.
    """
    archive = folder / f"{name}.npz"
    if archive.is_file():
        return read_npz(archive)
    cached = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}[name]
    for place in (folder, folder / cached / "raw", folder / "raw", folder / name):
        files = [_either(place / part) for part in _IDX]
        if all(file is not None for file in files):
            images, labels, test_images, test_labels = (_read_idx(file) for file in files if file is not None)
            return images_of(images, labels, place), images_of(test_images, test_labels, place)
    raise InputError(
        f"{name}: {folder} holds neither {name}.npz nor the files {', '.join(_IDX)} (each with or without .gz), there "
        f"or in {cached}/raw; put them there or name another folder."
    )


def read_cifar10(folder: Path) -> tuple[Images, Images]:
    """CIFAR-10: cifar10_train_0.npz, ... and cifar10_test.npz (all parts that are there), or cifar-10-batches-py."""
    parts = sorted(folder.glob("cifar10_train_*.npz"), key=lambda path: (len(path.name), path.name))
    if parts and (folder / "cifar10_test.npz").is_file():
        return _joined(map(_read_part, parts)), _read_part(folder / "cifar10_test.npz")
    for place in (folder, folder / "cifar-10-batches-py"):
        if all((place / name).is_file() for names in _CIFAR_PARTS for name in names):
            train, test = (_joined(_read_batch(place / name) for name in names) for names in _CIFAR_PARTS)
            return train, test
    raise InputError(
        f"cifar10: {folder} holds neither cifar10_train_0.npz (and further parts) with cifar10_test.npz, nor the files "
        "data_batch_1 to data_batch_5 and test_batch, there or in cifar-10-batches-py; put them there or name another "
        "folder."
    )


def _joined(parts: Iterable[Images]) -> Images:
    images, labels = zip(*parts, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def read_npz(path: Path) -> tuple[Images, Images]:
    """An archive with x_train, y_train, x_test, y_test: bytes, (records, height, width) or with channels last."""
    arrays = _arrays(path, ("x_train", "y_train", "x_test", "y_test"))
    return images_of(arrays[0], arrays[1], path), images_of(arrays[2], arrays[3], path)


def images_of(records: Any, labels: Any, path: Path) -> Images:
    """Checked bytes with the channels in front, and labels."""
    if records.dtype != np.uint8 or records.ndim not in (3, 4):
        raise InputError(
            f"{path}: expected images as bytes, (records, height, width) or (records, height, width, channels), got "
            f"{records.dtype} of shape {records.shape}."
        )
    if labels.shape != (len(records),) or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"{path}: expected one whole label per image, got {labels.dtype} of shape {labels.shape}.")
    planes = records[:, None] if records.ndim == 3 else records.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(planes), labels.astype(np.int64)


def _read_part(path: Path) -> Images:
    records, labels = _arrays(path, ("x", "y"))
    return images_of(records, labels, path)


def _arrays(path: Path, names: tuple[str, ...]) -> list[Any]:
    try:
        # Names are looked for below: a file with a single array is no archive, whatever it is called.
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive]
            if missing:
                raise InputError(f"{path}: expected the arrays {', '.join(names)}, not found: {', '.join(missing)}.")
            return [archive[name] for name in names]
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a numpy archive: {error}.") from error


def _either(path: Path) -> Path | None:
    """The file, or the same one packed."""
    return next((file for file in (path, path.with_name(path.name + ".gz")) if file.is_file()), None)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """The IDX format: two zero bytes, 8 for bytes, the number of sizes, the sizes as big-endian words, the data."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise InputError(f"{path} is not an IDX file of bytes.")
    header = 4 + 4 * content[3]
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], dtype=">u4"))
    data = np.frombuffer(content, dtype=np.uint8, offset=header)
    if data.size != int(np.prod(shape)):
        raise InputError(f"{path} is cut short: expected {shape}, got {data.size} bytes.")
    return data.reshape(shape).copy()  # of its own: what `frombuffer` gives cannot be written to


def _read_batch(path: Path) -> Images:
    """One of CIFAR-10's own files: a pickled dictionary of bytes and labels."""
    try:
        with path.open("rb") as file:
            record = _PlainUnpickler(file, encoding="bytes").load()
        records = np.asarray(record[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        return records, np.asarray(record[b"labels"], dtype=np.int64)
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to ask for
        raise InputError(f"{path} is not a batch of CIFAR-10: {error}.") from error


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays and plain containers only: a pickle from elsewhere must not run code."""

    def find_class(self, module: str, name: str) -> Any:
        """The constructors that numpy arrays need, and nothing else."""
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return super().find_class(module, name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
