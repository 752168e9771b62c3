"""Checkpoints: a place in a training run that survives a crash at any moment, and counts every step once.

**Whole or not at all.** The file is written next to its final place, forced to the disk, then renamed over the old one,
and the folder's entry is forced to the disk too. A reader sees the old checkpoint or the new one, never a mixture;
a half-written file has another name and is overwritten by the next attempt. The file begins with the SHA-256 of the
rest: PyTorch reads a file in which a bit has changed without a word, and a changed number of steps would change
what is accounted.

**Nothing leaves the process except through this file.** The weights after step t and the number t are written in one
piece, so there are no released weights whose steps were not counted. Steps done after the last checkpoint of a
killed process have been seen by nobody; they are done again, with the same batches and the same noise
(`calipers.samplers.stream`, `calipers.training.noise`), and give what they gave before. So a step is never lost and
never counted twice: a run of T steps releases T noisy sums however often it was killed, and the measurement is that of
T steps.

**Another run is refused.** The file names what it belongs to (plan, model, data, loss, preparation of the records, and
every module of the user's behind them: `calipers.user_code`) and what its first records gave
(`calipers.training.sampled`); resuming with anything else would splice two mechanisms that no accounting describes.

**One training at a time.** While a training uses a checkpoint, a second one is refused: both would go on from the same
place with the same noise, and one would overwrite the other. The lock belongs to the process, so that it is gone when
the process is, whatever ended it.

**A disk that is full, or cannot be written**, is refused in a sentence: at once where it can be seen at once, else when
a checkpoint fails. The one before is kept.

The file holds the secrets of the run: seed or noise key, and the state of the sampler. Only its owner may read it.
Delete it when the run has ended.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from calipers.atomic_write import atomic_write
from calipers.errors import InputError
from calipers.training.torch_library import torch_module
from calipers.user_code import changed_modules

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

FORMAT = b"calipers training checkpoint 3\n"
MODULES = "modules"


def save_checkpoint(path: Path, *, belongs_to: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Replace the checkpoint at `path`, durably; until the last moment the old one stays."""
    packed = io.BytesIO()
    torch_module().save({"belongs_to": json.dumps(belongs_to, sort_keys=True), **contents}, packed)
    write_whole(path, FORMAT + hashlib.sha256(packed.getbuffer()).digest(), packed.getbuffer())


def write_whole(path: Path, *parts: Any, mode: int = 0o600) -> None:
    """The parts as the file `path`, durably; whole, or `InputError` and the file as it was."""
    with _saying(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, parts, mode=mode, draft=path.name + ".partial")


def check_writable(path: Path) -> None:
    """Refuse now, not after hours, a place where no file can be written."""
    partial = path.with_name(path.name + ".partial")
    with _saying(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600))
        partial.unlink()


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    """Turn what the system says about a file into a sentence."""
    try:
        yield
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{path.parent} is not a folder" if no_folder else error.strerror or str(error)
        kept = "; the one before is kept" if path.is_file() else ""
        raise InputError(f"{path} cannot be written ({reason}){kept}. Make room, or name another place.") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the checkpoint at `path`, or `InputError` if another training holds it."""
    lock_path = path.with_name(path.name + ".lock")
    with _saying(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _taken(path, lock_path)
    try:
        yield
    finally:
        with suppress(OSError):
            lock_path.unlink()
        os.close(descriptor)


def _taken(path: Path, lock_path: Path) -> int:
    """The descriptor that holds the lock. A lock file that its last holder has just removed is no lock: try again."""
    while True:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform == "win32":
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError | PermissionError):
                raise InputError(
                    f"Another training is using {path}; wait for it to end, or name another file."
                ) from error
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock_path.stat()):
                return descriptor
        os.close(descriptor)


def load_checkpoint(path: Path, *, belongs_to: Mapping[str, Any], device: Any) -> dict[str, Any] | None:
    """The contents of the checkpoint, None if there is none, or `InputError` if it is damaged or of another run."""
    if not path.exists():
        return None
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a pipe or a device, not a checkpoint; name another file.")
    try:
        content = memoryview(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); name another file.") from error
    begin = len(FORMAT) + hashlib.sha256().digest_size
    if content[: len(FORMAT)] != FORMAT:
        raise InputError(f"{path} is not a checkpoint of this program; move it away to begin anew.")
    if hashlib.sha256(content[begin:]).digest() != content[len(FORMAT) : begin]:
        raise InputError(f"{path} is damaged: it is not what was written; move it away to begin anew.")
    with fitting(path):
        record: dict[str, Any] = torch_module().load(
            io.BytesIO(content[begin:]), map_location=device, weights_only=True
        )
        if not isinstance(record, dict):
            raise InputError("it is no mapping")
        begun = dict(json.loads(record["belongs_to"]))
    wanted = json.loads(json.dumps(belongs_to))
    modules = begun.pop(MODULES, {})
    if not isinstance(modules, dict):
        raise InputError(
            f"{path} is damaged: it does not say with which code it was begun; move it away to begin anew."
        )
    if changed := changed_modules(modules, wanted.pop(MODULES, {})):
        raise InputError(
            f"{path} was begun with other code: {', '.join(changed[:4])} changed since. Put back what was there, or "
            "name another file."
        )
    differing = [key for key in sorted({*begun, *wanted}) if begun.get(key) != wanted.get(key)]
    if differing:
        what = "; ".join(f"{key} was {begun.get(key)}, now {wanted.get(key)}" for key in differing[:3])
        raise InputError(f"{path} belongs to another run: {what}. Resume with what began, or name another file.")
    return record


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn whatever the contents lead to into a sentence: a seal shows damage, and not who wrote them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of kinds of tensors that no checkpoint of ours holds
            yield
    except Exception as error:  # forged contents raise whatever they happen to ask for
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError(
            f"{path} holds nothing that this training can go on from ({reason}); move it away to begin anew."
        ) from error


def check_like(found: Any, own: Any, where: str) -> None:
    """Raise `InputError` unless what was found is of the same form as what there is: keys, kinds, shapes."""
    torch = torch_module()
    if own is None:
        return
    if isinstance(own, torch.Tensor):
        same = isinstance(found, torch.Tensor) and found.layout == own.layout and found.device.type != "meta"
        if not same or found.shape != own.shape or found.dtype != own.dtype:
            raise InputError(f"{where} is not a tensor of {own.dtype} with the shape {list(own.shape)}")
    elif isinstance(own, Mapping):
        if not isinstance(found, Mapping) or found.keys() != own.keys():
            raise InputError(f"{where} has other keys")
        for key, value in own.items():
            check_like(found[key], value, f"{where}.{key}")
    elif isinstance(own, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(own):
            raise InputError(f"{where} is not a list of {len(own)}")
        for number, value in enumerate(own):
            check_like(found[number], value, f"{where}[{number}]")
    elif not isinstance(found, int | float if isinstance(own, int | float) else type(own)):
        raise InputError(f"{where} is not of the kind {type(own).__name__}")


def data_digest(*arrays: Any) -> str:
    """A fingerprint of the training data, so that a run is not resumed on other records."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(memoryview(array).cast("B") if array.size else b"")
    return digest.hexdigest()
