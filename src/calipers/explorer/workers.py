"""Worker processes that can be ended.

A computation in a thread cannot be stopped; one in a process can be killed at any moment, and the memory it took goes
back at once. So every measurement is made by one of a few processes that were started beforehand. A process is killed
when its job runs past the time limit or when nobody waits for it any more, retired when it has grown too large, and
replaced in the background either way.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from calipers.explorer.jobs import READY, Job, Refusal, Reply, work

GIBIBYTE = 2**30
START_LIMIT, JOIN_LIMIT = 60.0, 5.0


@dataclass(frozen=True)
class Limits:
    """What a job may take: seconds, bytes of address space, and how many jobs may wait."""

    seconds: float = 120.0
    memory: int = 4 * GIBIBYTE
    retire_above: int = GIBIBYTE
    workers: int = max(2, min(4, os.cpu_count() or 2))
    waiting: int = 64


class TooBusyError(Exception):
    """More jobs are waiting than the limits allow."""


def _context() -> Any:
    """A way to start processes that shares no state with this one; the quick one where there is one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The libraries are loaded once; a worker is then a fork of a process that does nothing but fork.
    context.set_forkserver_preload(["calipers.explorer.jobs"])
    return context


def _exchange(connection: Connection, job: Job) -> tuple[Reply, int]:
    """Send a job and wait for the reply and the worker's peak memory; ends when the worker does."""
    connection.send(job)
    found: tuple[Reply, int] = connection.recv()
    return found


class WorkerProcess:
    """One process and the pipe to it. Used by one job at a time."""

    def __init__(self, context: Any, limits: Limits, threads: ThreadPoolExecutor) -> None:
        self._context, self._limits, self._threads = context, limits, threads
        self._process: Any = None
        self._connection: Connection | None = None
        self._starting: asyncio.Task[None] | None = None
        self.last_run: Hashable = None

    def begin(self) -> asyncio.Task[None]:
        """Start the process in the background."""
        self._starting = asyncio.get_running_loop().create_task(self._start())
        return self._starting

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs, self._limits.memory), daemon=True)
        await loop.run_in_executor(self._threads, process.start)
        # With our copy of its end closed, a worker that dies is seen as an end of file.
        theirs.close()
        self._process, self._connection = process, ours
        async with asyncio.timeout(START_LIMIT):
            said = await loop.run_in_executor(self._threads, ours.recv)
        assert said == READY

    async def _started(self) -> bool:
        """Whether the process is there; one that could not be started is tried again for the next job."""
        starting = self._starting or self.begin()
        try:
            # Shielded: a start that nobody waits for any more is still good for the next job.
            await asyncio.shield(starting)
        except (OSError, EOFError):
            self.kill()
            self._starting = None
            return False
        return True

    async def answer(self, run: Hashable, job: Job) -> Reply:
        """The reply to a job. Whoever cancels this ends the process, and a new one is started."""
        if not await self._started():
            return Refusal("defect", "A worker process could not be started; try again.")
        assert self._connection is not None
        loop = asyncio.get_running_loop()
        self.last_run = run
        peak = math.inf
        try:
            async with asyncio.timeout(self._limits.seconds):
                reply, peak = await loop.run_in_executor(self._threads, _exchange, self._connection, job)
        except TimeoutError:
            return Refusal("too slow", f"Stopped after {self._limits.seconds:g} s without an answer.")
        except (EOFError, OSError):
            return await self._ended()
        finally:
            # One that was left without an answer, or has grown too large, gets no other job.
            if peak > self._limits.retire_above:
                self.kill()
                self.begin()
        return reply

    async def _ended(self) -> Refusal:
        """Why a process that is gone left no answer; one that runs into its limit of memory says so itself."""
        process = self._process
        if process is not None:
            await asyncio.get_running_loop().run_in_executor(self._threads, process.join, JOIN_LIMIT)
        status = None if process is None else process.exitcode
        how = f"with status {status}"
        if status is not None and status < 0:
            how = f"by the signal {signal.Signals(-status).name}"
        return Refusal(
            "ended",
            f"The worker process was ended {how} and left no answer: somebody ended it, or the system did, as where "
            "memory runs out. Ask again.",
        )

    def kill(self) -> None:
        """End the process."""
        self.last_run = None
        process, self._process, self._connection = self._process, None, None
        if process is not None:
            process.kill()
            # Collects the exit status; a killed process takes no time to end. The pipe is closed by its reader.
            self._threads.submit(process.join)


class WorkerPool:
    """A few processes and the jobs that wait for them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # One thread per process reads its pipe; starts and joins need a few more.
        self._threads = ThreadPoolExecutor(max_workers=3 * limits.workers + 2, thread_name_prefix="calipers-worker")
        self._free = asyncio.Semaphore(limits.workers)
        self._idle: list[WorkerProcess] = []
        self._all: list[WorkerProcess] = []
        self._waiting = 0

    async def start(self) -> None:
        """Start every process and wait until all are ready."""
        context = _context()
        self._all = [WorkerProcess(context, self.limits, self._threads) for _ in range(self.limits.workers)]
        self._idle = list(self._all)
        await asyncio.gather(*(worker.begin() for worker in self._all))

    def stop(self) -> None:
        """End every process."""
        for worker in self._all:
            worker.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, run: Hashable, job: Job) -> Reply:
        """The reply to a job, as soon as a process is free; a process that knows the run already is preferred."""
        if self._waiting >= self.limits.waiting:
            raise TooBusyError(f"{self._waiting} requests are waiting already; try again in a moment.")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        worker = next((idle for idle in self._idle if idle.last_run == run), self._idle[0])
        self._idle.remove(worker)
        try:
            return await worker.answer(run, job)
        finally:
            self._idle.append(worker)
            self._free.release()
