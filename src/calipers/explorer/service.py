"""Which answers are remembered, shared and given up.

Equal requests get one computation: a finished one is remembered, a running one is joined. A computation is given up
when the last one who waits for it has gone, after a moment of grace, since a measurement about to finish is worth more
in the cache than the process that would have to be started anew.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from calipers.explorer import jobs
from calipers.explorer.jobs import Job, Refusal, Reply, Written
from calipers.explorer.requests import Asked, AskedNoise, AskedTogether
from calipers.explorer.workers import Limits, WorkerPool

ANSWERS_KEPT = 64
GRACE = 0.5
# A refusal about the run itself is as good the second time; the others may depend on the moment.
LASTING = ("input", "unsupported", "not certified")


@dataclass
class Running:
    """A computation and how many wait for it."""

    task: asyncio.Task[Reply]
    waiting: int = 0


class Service:
    """Answers requests with the help of worker processes."""

    def __init__(self, limits: Limits) -> None:
        self.pool = WorkerPool(limits)
        self._kept: OrderedDict[Hashable, Reply] = OrderedDict()
        self._running: dict[Hashable, Running] = {}

    def stop(self) -> None:
        """End the workers and everything they were doing."""
        for running in self._running.values():
            running.task.cancel()
        self.pool.stop()

    async def answered(self, job: Callable[..., Written], asked: Asked | AskedNoise, *form: str) -> Reply:
        """What the job makes of the request, or why it makes nothing."""
        return await self._reply((job, asked, *form), asked, partial(job, asked, *form))

    async def compared(self, together: AskedTogether) -> Reply:
        """What `calipers compare --json` prints, or why one of the runs has no measurement."""
        replies = await asyncio.gather(*(self.answered(jobs.measured, asked) for asked in together.each))
        found = []
        for name, one in zip(together.names, replies, strict=True):
            if isinstance(one, Refusal):
                return Refusal(one.kind, f"{name}: {one.reason}")
            assert one.judged is not None
            found.append(one.judged)
        return await self._reply(together, None, partial(jobs.compared, together.names, found))

    async def comparison_report(self, together: AskedTogether, form: str) -> Reply:
        """The report of a comparison, or why one of the runs has no measurement."""
        # Compared first: that is quick where the runs are on the page already, and a refusal names the run.
        compared = await self.compared(together)
        if isinstance(compared, Refusal):
            return compared
        job = partial(jobs.comparison_report, together, form)
        return await self._reply((form, together), together.each[-1], job)

    async def _reply(self, key: Hashable, run: Hashable, job: Job) -> Reply:
        """The reply remembered under `key`, or computed by a worker, best by one that knows `run` already."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._running:
            task = asyncio.get_running_loop().create_task(self._compute(key, run, job))
            self._running[key] = Running(task)
        running = self._running[key]
        running.waiting += 1
        try:
            # Shielded: the one who leaves must not end what others wait for.
            return await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                asyncio.get_running_loop().call_later(GRACE, self._give_up, key, running)

    async def _compute(self, key: Hashable, run: Hashable, job: Job) -> Reply:
        try:
            reply = await self.pool.answer(run, job)
        finally:
            self._forget(key, asyncio.current_task())
        if not isinstance(reply, Refusal) or reply.kind in LASTING:
            self._kept[key] = reply
            while len(self._kept) > ANSWERS_KEPT:
                self._kept.popitem(last=False)
        return reply

    def _give_up(self, key: Hashable, running: Running) -> None:
        """Cancel a computation that nobody has come back to."""
        if not running.waiting:
            # Forgotten at once: whoever asks next must not join a computation that is being ended.
            self._forget(key, running.task)
            running.task.cancel()

    def _forget(self, key: Hashable, task: asyncio.Task[Reply] | None) -> None:
        if key in self._running and self._running[key].task is task:
            del self._running[key]
