"""A limit on the time that runs of a target may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from calipers.auditing.targets import TargetError

T = TypeVar("T")


def within(limit: float | None, call: Callable[[], T]) -> T:
    """The result of the call, or `TargetError` after `limit` seconds; None is no limit.

    The call gets a thread of its own, which works in any process and on any cluster. A thread cannot be stopped, so a
    target that hangs goes on hanging until its process ends.
    """
    if limit is None:
        return call()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name="calipers-chunk")
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        raise TargetError(f"did not finish the chunk within {limit:g} seconds")
    if errors:
        raise errors[0]
    return results[0]
