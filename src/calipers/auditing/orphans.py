"""Workers that end with the process that started them.

A process that is killed cannot tell its workers. Waiting for their next task they would stay for minutes, and hold
whatever they have inherited: whoever reads the output of a killed audit through a pipe would wait for them. So each
worker looks at its parent twice a second, from a thread of its own, and ends when that is gone. (The system hands an
orphan to another parent. Linux could also send a signal, but does so when the *thread* that started the worker ends,
which may be long before the process.)
"""

from __future__ import annotations

import os
import signal
import threading
import time

INTERVAL = 0.5

_watched: set[int] = set()


def end_with(parent: int) -> None:
    """From now on, end this process when it is no longer a child of `parent`; at once if it is not. Nothing elsewhere.

    In the process `parent` itself, and on Windows, where a parent's number does not change, nothing is done.
    """
    if os.name != "posix" or os.getpid() == parent or parent in _watched:
        return
    _watched.add(parent)
    if os.getppid() != parent:
        _end()
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="calipers-parent").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(INTERVAL)
    _end()


def _end() -> None:
    """No cleaning up: handlers would write to pipes that nobody reads."""
    os.kill(os.getpid(), signal.SIGKILL)
