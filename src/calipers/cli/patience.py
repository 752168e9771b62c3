"""A line that says how long a computation has been running, for those who wait at a terminal.

It appears after two seconds on standard error, only if that is a terminal, and leaves nothing behind.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_AFTER = 2.0


@contextmanager
def patience(doing: str) -> Iterator[None]:
    """Show what is being done, and for how long, while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    shown = threading.Thread(target=_shown, args=(doing, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _shown(doing: str, done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(_AFTER):
        return
    while True:
        sys.stderr.write(f"\r{doing} ... {time.monotonic() - began:.0f} s")
        sys.stderr.flush()
        if done.wait(1.0):
            break
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
