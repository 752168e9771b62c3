"""Files that appear whole or not at all: written next to their place, forced to the disk, moved there in one step."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def atomic_write(
    path: Path, parts: Iterable[bytes | memoryview], *, mode: int = 0o666, draft: str | None = None
) -> None:
    """Put the parts at the path, or raise `OSError` and leave what is there as it was.

    A link is followed and the mode of a file that is replaced is kept. `draft` names the file next to the path that is
    written first, for places that one writer has to itself: what a killed process left of it is written over.
    """
    place = Path(os.path.realpath(path))
    partial = place.with_name(draft or f".{place.name[:100]}.{secrets.token_hex(6)}.partial")
    try:
        # Created with the mode the umask leaves, like any other new file.
        kind = os.O_EXCL if draft is None else os.O_TRUNC
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | kind, mode), "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            os.chmod(partial, stat.S_IMODE(place.stat().st_mode))
        os.replace(partial, place)
        _sync_folder(place.parent)
    finally:
        with suppress(OSError):  # half a file only takes the room that is missing
            partial.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where folders can be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
