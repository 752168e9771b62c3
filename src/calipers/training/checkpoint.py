"""Checkpoints: a place in a training run that survives a crash at any moment, and counts every step once.

**Whole or not at all.** The file is written beside its final place, forced to the disk, then renamed over the old one,
and the folder's entry is forced to the disk too. A reader sees the old checkpoint or the new one, never a mixture;
a half-written file has another name and is overwritten by the next attempt.

**Nothing leaves the process except through this file.** The weights after step t and the number t are written in one
piece, so there are no released weights whose steps were not counted. Steps done after the last checkpoint of a
killed process have been seen by nobody; they are done again, with the same batches and the same noise
(`calipers.samplers.stream`, `calipers.training.noise`), and give what they gave before. So a step is never lost and
never counted twice: a run of T steps releases T noisy sums however often it was killed, and the measurement is that of
T steps.

**Another run is refused.** The file names what it belongs to (plan, model, data); resuming with anything else
would splice two mechanisms that no accounting describes.

The file holds the secrets of the run: seed or noise key, and the state of the sampler. Only its owner may read it.
Delete it when the run has ended.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calipers.errors import InputError
from calipers.training.torch_library import torch_module

__all__ = ["data_digest", "load_checkpoint", "save_checkpoint"]

FORMAT = "calipers training checkpoint 1"


def save_checkpoint(path: Path, *, belongs_to: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Replace the checkpoint at `path`, durably; until the last moment the old one stays."""
    torch = torch_module()
    partial = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"format": FORMAT, "belongs_to": json.dumps(belongs_to, sort_keys=True), **contents}
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        torch.save(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    _sync_folder(path.parent)


def load_checkpoint(path: Path, *, belongs_to: Mapping[str, Any], device: Any) -> dict[str, Any] | None:
    """The contents of the checkpoint, None if there is none, or `InputError` if it belongs to another run."""
    torch = torch_module()
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        if record["format"] != FORMAT:
            raise KeyError(FORMAT)
        begun = json.loads(record["belongs_to"])
    except Exception as error:  # torch reports a foreign file in many ways
        detail = " ".join(str(error).split())[:120]
        raise InputError(
            f"{path} is not a checkpoint of this program ({detail}); move it away to begin anew."
        ) from error
    wanted = json.loads(json.dumps(belongs_to))
    differing = [key for key in sorted({*begun, *wanted}) if begun.get(key) != wanted.get(key)]
    if differing:
        what = "; ".join(f"{key} was {begun.get(key)!r}, now {wanted.get(key)!r}" for key in differing[:3])
        raise InputError(f"{path} belongs to another run: {what}. Resume with what began, or name another file.")
    return record


def data_digest(*arrays: Any) -> str:
    """A fingerprint of the training data, so that a run is not resumed on other records."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(memoryview(array).cast("B") if array.size else b"")
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Force the renaming itself to the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
