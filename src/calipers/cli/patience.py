"""A line that says what is being done and for how long, for those who wait.

It appears on standard error, after two seconds and only if that is a terminal, and leaves nothing behind. What may take
minutes is `logged` elsewhere too: a line of its own every half minute.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_AFTER, _EVERY = 2.0, 30.0
_CLEAR = "\r\x1b[K"

Say = Callable[[str], None]
ShownProgress = Callable[[int, int], None]


@contextmanager
def patience(doing: str, *, logged: bool = False) -> Iterator[Say]:
    """Show what is being done, and for how long, while the block runs; the block may say what it does now."""
    said, seen = [doing], sys.stderr.isatty()
    if not seen and not logged:
        yield lambda text: None
        return
    done = threading.Event()
    shown = threading.Thread(target=_shown if seen else _logged, args=(said, done), daemon=True)
    shown.start()
    try:
        yield lambda text: said.__setitem__(0, text)
    finally:
        done.set()
        shown.join()


@contextmanager
def counting(doing: str, *, shown: bool = True) -> Iterator[ShownProgress]:
    """The same for what is done one by one: the block says how many of how many are done."""
    if not shown:
        yield lambda done, total: None
        return
    with patience(doing) as say:
        begun: dict[int, tuple[float, int]] = {}

        def count(done: int, total: int) -> None:
            """How many are done, and how long the others take at the pace so far; another total is another count."""
            since, first = begun.setdefault(total, (time.monotonic(), done))
            took, new = time.monotonic() - since, done - first
            left = f", about {took * (total - done) / new:,.0f} s left" if new > 0 else ""
            say(f"{doing}: {done:,} of {total:,}{left}")

        yield count


def leave(line: str) -> None:
    """A line that stays, for which what is shown makes room."""
    sys.stderr.write(f"{_CLEAR if sys.stderr.isatty() else ''}{line}\n")
    sys.stderr.flush()


def _shown(said: list[str], done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(_AFTER):
        return
    import shutil

    while True:
        seconds = f" ... {time.monotonic() - began:.0f} s"
        room = max(10, shutil.get_terminal_size().columns - len(seconds) - 1)
        sys.stderr.write(f"{_CLEAR}{said[0][:room]}{seconds}")
        sys.stderr.flush()
        if done.wait(1.0):
            break
    sys.stderr.write(_CLEAR)
    sys.stderr.flush()


def _logged(said: list[str], done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(_EVERY):
        sys.stderr.write(f"{said[0]} ... {time.monotonic() - began:.0f} s\n")
        sys.stderr.flush()
