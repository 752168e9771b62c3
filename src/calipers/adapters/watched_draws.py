"""Which batches a loop was given: every draw of a loader, in the order it was delivered.

The sampler of batches and the loader keep their classes' behavior and gain an ear: both are given a subclass of
their own class that reports, when an iteration begins, each batch of indices that is drawn, and each batch that the
loop receives. With workers a loader draws ahead, so drawing and receiving differ; PyTorch delivers in order.

`BatchMemoryManager` makes a loader of its own from the same sampler. Its pieces are not delivered through the loader
that is watched, but for each of them it tells the optimizer whether to hold back its step, and that is heard.

A **group** is what a record comes at most once in, if its loader deals records out: a pass over the loader, or an
epoch of `TorchBatches`, which may take several passes.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calipers.adapters.opacus_library import generator_digest, torch_module
from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.torch_sampler import TorchBatches
from calipers.errors import UnsupportedError
from calipers.numerics.types import IntArray

UNSEEN = (
    "A step used a batch that no watched loader delivered: the loop iterates another loader than the one that was "
    "attached. Iterate the loader that make_private returned, or attach the other one too, before its first batch."
)
STALE = (
    "The loop left a batch of BatchMemoryManager unfinished: the flags by which Opacus holds steps back are out of "
    "order from here on, and steps mix pieces of several batches. Let the loop run to the end, or call "
    "optimizer.step() for every piece."
)
SKIPPED = (
    "The loop passed over a batch that was not empty and went on. If that depends on what is in the batch (a loss that "
    "is not finite, a gradient scaler), the step that is missing tells on it, and nothing is proven. Train on every "
    "batch, or draw fewer."
)
SKIPPED_EMPTY = (
    "The loop passes over empty batches. Poisson sampling releases noise alone for them: skipping tells that no record "
    "was drawn, and no Run describes that."
)
REPEATED = (
    "A batch was drawn twice, all of its records equal. Under Poisson sampling that does not happen: a random "
    "generator was set back (torch.manual_seed inside the loop?), and the noise may repeat with it."
)


@dataclass(eq=False)
class Group:
    """The draws among which a record comes at most once, if its loader deals; `noises` counts the uses of draws."""

    loader: int
    delivered: int = 0
    noises: Counter[tuple[float, ...]] = field(default_factory=Counter)
    order: str = ""

    @property
    def uses(self) -> dict[tuple[float, ...], int]:
        """How many of its batches were used with which noises, one step after the other."""
        return {noises: count for noises, count in self.noises.items() if noises and count}

    def used(self) -> int:
        """Draws that at least one step used."""
        return sum(self.uses.values())


@dataclass(eq=False)
class Draw:
    """One batch, and the noise multipliers of the steps that used it."""

    group: Group
    indices: IntArray
    noises: tuple[float, ...] = ()

    def use(self, noise_multiplier: float) -> None:
        """One more step with this batch."""
        counts = self.group.noises
        counts[self.noises] -= 1
        self.noises = (*self.noises, noise_multiplier)
        counts[self.noises] += 1


@dataclass(eq=False)
class _Pass:
    """One iteration over a batch sampler: draws that wait for delivery, and whether a loader delivers them."""

    waiting: deque[Draw] = field(default_factory=deque)
    followed: bool = False


class Draws:
    """The draws of all watched loaders; see the module."""

    def __init__(self, complain: Callable[[str, bool], None]) -> None:
        self._complain = complain
        self.sources: list[LoaderLaw] = []
        self.groups: dict[tuple[int, int], Group] = {}
        self.begun = self.finished = self.drawn = self.iterators = 0
        self.latest: _Pass | None = None
        self.last: Draw | None = None
        self.digests: dict[str, None] = {}
        self.states: dict[str, None] = {}
        self._current: Draw | None = None
        self._fresh: list[Draw] = []
        self._signalled: deque[Draw] = deque()

    def watch(self, data_loader: Any, source: LoaderLaw) -> None:
        """Listen to this loader from now on."""
        number, sampler = len(self.sources), data_loader.batch_sampler
        draw_all, deliver_all = type(sampler).__iter__, type(data_loader).__iter__

        def drawing(own: Any) -> Iterator[Any]:
            if self._signalled:
                self._complain(STALE, True)
                self._signalled.clear()
            self.iterators += 1
            batches, self.latest = iter(draw_all(own)), _Pass()
            return self._drawn(self.latest, number, self.iterators, own, batches)

        def delivering(own: Any) -> Iterator[Any]:
            return _Delivered(self, deliver_all(own))

        try:
            _overhear(sampler, drawing)
            _overhear(data_loader, delivering)
        except TypeError as error:
            raise UnsupportedError(f"{type(sampler).__name__} cannot be watched: {error}.") from error
        self.sources.append(source)

    def _drawn(self, current: _Pass, loader: int, number: int, sampler: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """The indices that a batch sampler yields, unchanged."""
        self.begun += 1  # here and not before: a loader with workers makes two iterators and draws from the second
        self.remember(loader, sampler)
        for batch in batches:
            if isinstance(sampler, TorchBatches):  # which goes on with an epoch that an earlier pass left
                number = (sampler.position - 1) // len(sampler)
            group = self.groups.setdefault((loader, number), Group(loader))
            self.last, self.latest = Draw(group, np.asarray(batch, dtype=np.int64)), current
            current.waiting.append(self.last)
            self.drawn += 1
            yield batch
            self.remember(loader, sampler)
        self.finished += 1

    def remember(self, loader: int, sampler: Any) -> None:
        """Where processes draw side by side, what the next draw's random numbers come from."""
        if self.sources[loader].ranks > 1:
            digest = generator_digest(sampler.generator, torch_module().device("cpu"))
            self.states[digest or ""] = None

    def deliver(self, origin: _Pass) -> None:
        """The loop receives the oldest batch that waits."""
        draw = origin.waiting.popleft()
        self._fresh.append(draw)
        self._current = draw
        self._received(draw)

    def exhausted(self) -> None:
        """The loop went through to the end of a pass, past the batches that it did not use."""
        self._pass_over(self._fresh, set())
        self._fresh = []

    def _pass_over(self, draws: list[Draw], training: set[Group]) -> None:
        """Batches without a step. In a pass without any the loop looked at the data and released nothing."""
        for draw in draws:
            if draw.group in training or draw.group.used():
                self._complain(SKIPPED if draw.indices.size else SKIPPED_EMPTY, bool(draw.indices.size))

    def _received(self, draw: Draw) -> None:
        group, source = draw.group, self.sources[draw.group.loader]
        group.delivered += 1
        group.noises[()] += 1
        digest = hashlib.blake2b(draw.indices.tobytes(), digest_size=8).hexdigest()
        group.order = hashlib.blake2b(f"{group.order}{digest}".encode(), digest_size=8).hexdigest()
        if source.sample_rate is not None and draw.indices.size:
            if digest in self.digests and self._tells(source):
                self._complain(REPEATED, True)
            self.digests[digest] = None

    def _tells(self, source: LoaderLaw) -> bool:
        """Whether equal draws are no accident: two of so many agree with probability below 1e-9."""
        rate = source.sample_rate or 0.0
        size = source.dataset_size // source.ranks
        return len(self.digests) ** 2 * (rate * rate + (1 - rate) ** 2) ** size < 1e-9

    def signal(self) -> None:
        """The optimizer is told whether to hold back a step: a piece of the last batch was made."""
        if self.latest is not None and not self.latest.followed and self.last is not None:
            if self.latest.waiting:
                # The first piece: nobody will deliver this batch as a whole.
                self.latest.waiting.clear()
                self._received(self.last)
            self._signalled.append(self.last)

    def taken(self, rows: list[int]) -> list[tuple[Draw, int]]:
        """The draws behind the gradients of some backward passes, with the rows of each; [] if they cannot be known."""
        fresh, self._fresh = self._fresh, []
        if self._signalled:
            return [(self._signalled.popleft(), count) for count in rows]
        if not fresh or len(fresh) < len(rows):
            # Again the same batch, or several passes over it.
            if self._current is None or len(fresh) > 1:
                self._complain(UNSEEN, True)
                return []
            return [(self._current, count) for count in rows]
        left, used = fresh[: len(fresh) - len(rows)], fresh[-len(rows) :]
        # The last batch before a break was never released; one that the same pass goes on from was chosen not to be.
        passed = [draw for draw, following in zip(left, fresh[1:], strict=False) if draw.group is following.group]
        self._pass_over(passed, {draw.group for draw in used})
        return list(zip(used, rows, strict=True))


class _Delivered:
    """An iterator of a loader that reports what the loop receives."""

    def __init__(self, draws: Draws, batches: Any) -> None:
        assert draws.latest is not None  # iterating a loader begins a pass over its sampler
        self._draws, self._batches, self._pass = draws, batches, draws.latest
        self._pass.followed = True

    def __iter__(self) -> _Delivered:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._draws.exhausted()
            raise
        self._draws.deliver(self._pass)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def _overhear(thing: Any, iterate: Callable[[Any], Any]) -> None:
    """Give one object a class of its own that iterates by `iterate` and is otherwise the class it had."""
    kind = type(thing)
    thing.__class__ = type(kind.__name__, (kind,), {"__iter__": iterate, "__module__": kind.__module__})
