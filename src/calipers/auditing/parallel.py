"""Chunks in parallel, through joblib: the only place that knows about processes and clusters.

One chunk is one task: joblib would otherwise bundle short ones, and an interruption would lose the bundle. Results
arrive in any order; whoever consumes them sorts them. joblib is imported when there is something to share out.

Local workers end with this process, however it ends. A process that is killed cannot tell its workers. Waiting for
their next task they would stay for minutes, and hold whatever they have inherited: whoever reads the output of a killed
audit through a pipe would wait for them. So each worker looks at its parent twice a second, from a thread of its own,
and ends when that is gone. (The system hands an orphan to another parent. Linux could also send a signal, but does so
when the *thread* that started the worker ends, which may be long before the process.)

Some backends (Ray's) hand over results only when a whole call is done. There the chunks are played in waves, one chunk
for each worker, so that an interruption loses what is in flight and no more.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from calipers.errors import InputError, MissingExtraError
from calipers.extras import hint, library

PROCESSES = ("loky", "multiprocessing")
LOCAL = (*PROCESSES, "threading", "sequential")
CLUSTERS = {"dask": "distributed", "ray": "ray"}

Played = TypeVar("Played")
Work = Callable[[int], Played]
Lost = Callable[[Sequence[int], str], Exception]
"""The error when one of these chunks was lost, and why."""


def each_played(
    work: Work[Played], lost: Lost, numbers: Sequence[int], jobs: int, backend: str | None
) -> Iterator[tuple[int, Played]]:
    """(number, `work(number)`) for each number, in the order in which they finish.

    Errors of `work` come through as they are. A worker that dies takes its chunk along: the error of `lost`.
    """
    workers = checked_jobs(jobs)
    if backend is None and workers == 1:
        return ((number, work(number)) for number in numbers)
    return _shared(work, lost, numbers, workers, "loky" if backend is None else checked_backend(backend))


def checked_jobs(jobs: object) -> int:
    """A positive number of processes, or a negative one: -1 is all processors, -2 all but one."""
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs == 0:
        raise InputError(f"Expected jobs to be a positive integer, or -1 for all processors, got jobs={jobs!r}.")
    return jobs


def checked_backend(name: str) -> str:
    """A joblib backend that can be used here, with the cluster's library at hand."""
    if name in CLUSTERS:
        if importlib.util.find_spec(CLUSTERS[name]) is None:
            extra = "pip install '.[dask]' in a clone of Calipers" if name == "dask" else "install ray"
            raise MissingExtraError(hint(f"joblib_backend={name!r} needs the library {CLUSTERS[name]}; {extra}."))
        if name == "ray":
            importlib.import_module("ray.util.joblib").register_ray()
    elif name not in LOCAL:
        allowed = ", ".join(repr(known) for known in (*LOCAL, *CLUSTERS))
        raise InputError(f"Expected joblib_backend to be one of {allowed}, got joblib_backend={name!r}.")
    return name


def _shared(
    work: Work[Played], lost: Lost, numbers: Sequence[int], workers: int, backend: str
) -> Iterator[tuple[int, Played]]:
    library("joblib", "Several processes need joblib: pip install '.[parallel]' in the clone; or play with jobs=1.")
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    flying: list[int] = []
    # A cluster says itself how many workers it has.
    count = -1 if backend in CLUSTERS and workers == 1 else workers
    try:
        for found in _finished(work, numbers, backend, count, flying):
            flying.remove(found[0])
            yield found
    except TerminatedWorkerError as error:
        said = "a worker process died, of a crash or for lack of memory; play with jobs=1 to see where"
        raise lost(sorted(set(flying)), said) from error
    except ValueError as error:
        if backend == "dask" and "Client" in str(error):
            raise InputError(
                "joblib_backend='dask' needs a cluster; create a dask.distributed.Client in this process first."
            ) from error
        raise


def _as_child(work: Work[Played], number: int, parent: int | None) -> tuple[int, Played]:
    """The work, in a worker that ends with its parent."""
    if parent is not None:
        end_with(parent)
    return number, work(number)


def _finished(
    work: Work[Played], numbers: Sequence[int], backend: str, count: int, flying: list[int]
) -> Iterator[tuple[int, Played]]:
    """The chunks as joblib returns them; `flying` lists the numbers that were handed out."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.parallel import get_active_backend

    parent = os.getpid() if backend in PROCESSES else None

    def tasks(part: Sequence[int]) -> Iterator[object]:
        for number in part:
            flying.append(number)
            yield delayed(_as_child)(work, number, parent)

    # Workers that wait for their first task watch as well.
    settings = {"initializer": end_with, "initargs": (parent,)} if backend == "loky" else {}
    # Named by the configuration, joblib also finds backends that other libraries bring along.
    with parallel_config(backend=backend, n_jobs=count, **settings):
        active = get_active_backend()[0]
        streams = getattr(active, "supports_return_generator", False)
        returned = "generator_unordered" if streams else "list"
        parallel = Parallel(batch_size=1, pre_dispatch="2*n_jobs", return_as=returned)
    if streams:
        yield from parallel(tasks(numbers))
        return
    wave = max(1, int(active.effective_n_jobs(count)))
    with parallel:
        for start in range(0, len(numbers), wave):
            yield from parallel(tasks(numbers[start : start + wave]))


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
