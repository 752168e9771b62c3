"""How the benchmarks measure: CPU time of cold calls, peak memory of a fresh process.

Cold means that nothing computed by one call is left for the next: every call builds its objects anew, and the
``functools`` caches of the measured libraries are emptied before it. Imports are not part of a call.
CPU time of the process, the best of a few calls, is the figure least disturbed by other work on the machine.
"""

from __future__ import annotations

import functools
import gc
import json
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_MEASURED = ("calipers", "dp_accounting", "prv_accountant", "opacus", "gdpnum", "riskcal")
_CACHED = type(functools.lru_cache(lambda: None))


@dataclass(frozen=True)
class Timed(Generic[T]):
    """The result of the fastest call and its CPU seconds, or the reason why there is none."""

    value: T | None
    seconds: float
    problem: str | None = None


class _OutOfTime(BaseException):
    """Not an Exception: libraries that catch those must not swallow it."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise inside the block after so many seconds of the processor: other work on the machine stops nobody."""

    def stop(*_: object) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def empty_caches() -> None:
    """Clear every ``functools`` cache that belongs to a measured library."""
    gc.collect()
    for thing in gc.get_objects():
        if type(thing) is _CACHED and (thing.__module__ or "").split(".")[0] in _MEASURED:
            thing.cache_clear()


def best_of(call: Callable[[], T], repeats: int, limit: int) -> Timed[T]:
    """The fastest of ``repeats`` cold calls; fewer where calls are slow (a fifth of ``limit`` seconds each)."""
    best: Timed[T] | None = None
    for _ in range(repeats):
        empty_caches()
        try:
            with warnings.catch_warnings(), time_limit(limit):
                warnings.simplefilter("ignore")
                began = time.process_time()
                value = call()
                seconds = time.process_time() - began
        except _OutOfTime:
            return best or Timed(None, float("nan"), f"stopped after {limit} s")
        except Exception as problem:
            return best or Timed(None, float("nan"), f"{type(problem).__name__}: {problem}"[:90])
        if best is None or seconds < best.seconds:
            best = Timed(value, seconds)
        if seconds > limit / 5:
            break
    assert best is not None
    return best


_CHILD = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
from benchmarks import peers
def peak():
    # Not getrusage: its ru_maxrss still holds the size of the process that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
name, q, sigma, steps, delta, cap = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
peer = next(p for p in [peers.OURS, *peers.PEERS] if p.name == name)
assert peer.load() is None
before = peak()
answer = peer.epsilon(peers.Setting(q, sigma, steps), delta)
print(json.dumps([before, peak(), answer.lower, answer.value]))
"""


def peak_memory(
    name: str, setting: tuple[float, float, int], delta: float, cap_gib: int, limit: int
) -> tuple[float, float, float | None, float] | str:
    """MiB resident after the imports, MiB at the peak, and the answer, of one call in a fresh process."""
    request = json.dumps([name, *setting, delta, cap_gib * 2**30])
    try:
        done = subprocess.run([sys.executable, "-c", _CHILD, request], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"stopped after {limit} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return (lines[-1] if lines else f"ended with status {done.returncode}")[:90]
    before, after, lower, value = json.loads(done.stdout.strip().splitlines()[-1])
    # Linux counts in KiB.
    return before / 1024, after / 1024, lower, value
