"""Files that are read whole, and no further than a document can reach: no device that never ends, no silent pipe."""

from __future__ import annotations

import errno
import os
import stat

RUN_FILE_BYTES = 1_000_000
"""Of run files, and of what is piped in their place."""


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """All bytes of an ordinary file.

    Args:
        path: The file.
        most: The most bytes it may have.

    Raises:
        OSError: It cannot be read, has more bytes, or is a pipe or a device, which may never end.
    """
    name = os.fspath(path)
    # Opening a pipe would wait for somebody who writes.
    with open(os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        kind = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", name)
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", name)
    return content
