"""Which batches a loop was given: every draw of a loader, in the order it was delivered, by the distribution then in
force.

The sampler of batches and the loader keep their classes' behavior and gain an ear: both are given a subclass of
their own class that reports, when an iteration begins, each batch of indices that is drawn, and each batch that the
loop receives. With workers a loader draws ahead, so drawing and receiving differ; PyTorch delivers in order.

What decides the distribution of a draw (the sample rate, the batch size, the rows that are selected) is read when the
batch is drawn. A distribution that changed is a source of its own from then on; rows that changed are another dataset.

`BatchMemoryManager` makes a loader of its own from the same sampler. Its pieces are not delivered through the loader
that is watched, but for each of them it tells the optimizer whether to hold back its step, and that is heard.

A **group** is what a record comes at most once in, if its loader deals records out: a pass over the loader, or an
epoch of `TorchBatches`, which may take several passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from calipers.adapters.loader_settings import loader_behind, members_of, selection_digests, settings_of
from calipers.adapters.opacus_library import generator_digest, torch_module
from calipers.adapters.opacus_loaders import LoaderLaw, source_of
from calipers.adapters.torch_sampler import TorchBatches
from calipers.adapters.watched_queue import STALE, Draw, Group, LoaderPass, Queue
from calipers.errors import CalipersError, UnsupportedError
from calipers.numerics.types import IntArray

REPEATED = (
    "A batch was drawn twice, all of its records equal. Under Poisson sampling that does not happen: a random "
    "generator was set back (torch.manual_seed inside the loop?), and the noise may repeat with it."
)
RECORDS = (
    "The loader draws from other rows than when it was attached (the indices of its sampler were replaced, or the "
    "dataset grew). Which rows were chosen may depend on the records, and nothing is proven; observed=True states "
    "that it does not."
)
RENAMED = (
    "The indices of the loader's Subset were replaced during training: an index is not the record that it was, and "
    "nothing is proven. Make a loader for each selection and attach them all."
)
TWICE = (
    "A record came several times in one pass over a loader that deals every record once; no Run describes that, and "
    "whether it depends on the records is not known. observed=True states that it does not."
)
MID_PASS = "The loader's settings changed inside a pass over shuffled or ordered batches; no Run describes that."


class Listener:
    """One watched loader: its distribution in force, and the rows it may draw."""

    def __init__(self, data_loader: Any, source: int, observed: bool) -> None:
        self.loader, self.sampler = data_loader, data_loader.batch_sampler
        self.number = self.source = source
        self.observed = observed
        self.settings = settings_of(self.sampler)
        self.selected = selection_digests(data_loader.dataset, self.sampler)
        self.allowed: IntArray | None = None
        members = members_of(self.sampler)
        if members is not None:
            self.allowed = np.unique(members)
        self.drawn = np.zeros(len(data_loader.dataset), dtype=bool)


class Draws:
    """The draws of all watched loaders; see the module."""

    def __init__(self, complain: Callable[[str, bool], None]) -> None:
        self._complain = complain
        self.sources: list[LoaderLaw] = []
        self.groups: dict[tuple[int, int], Group] = {}
        self.begun = self.finished = self.drawn = self.iterators = 0
        self.latest: LoaderPass | None = None
        self.last: Draw | None = None
        self.digests: dict[str, None] = {}
        self.states: dict[str, None] = {}
        self.queue = Queue(complain)
        self.began: Callable[[], None] = lambda: None
        """Called when a pass over a loader begins."""
        self.changed: Callable[[LoaderLaw], None] = lambda law: None
        """Called when a loader draws by another distribution for the first time."""

    def watch(self, data_loader: Any, source: LoaderLaw, observed: bool = False) -> None:
        """Listen to this loader from now on."""
        data_loader = loader_behind(data_loader)
        listener = Listener(data_loader, len(self.sources), observed)
        draw_all, deliver_all = type(listener.sampler).__iter__, type(data_loader).__iter__

        def drawing(own: Any) -> Iterator[Any]:
            if self.queue.interrupted():
                self._complain(STALE, True)
            self.iterators += 1
            batches, self.latest = iter(draw_all(own)), LoaderPass(listener.number)
            return self._drawn(self.latest, listener, self.iterators, batches)

        def delivering(own: Any) -> Iterator[Any]:
            return _Delivered(self, deliver_all(own))

        try:
            _overhear(listener.sampler, drawing)
            _overhear(data_loader, delivering)
        except (TypeError, AttributeError) as error:
            raise UnsupportedError(f"{type(listener.sampler).__name__} cannot be watched: {error}.") from error
        self.sources.append(source)

    def _drawn(self, current: LoaderPass, listener: Listener, number: int, batches: Iterator[Any]) -> Iterator[Any]:
        """The indices that a batch sampler yields, unchanged."""
        self.begun += 1  # here and not before: a loader with workers makes two iterators and draws from the second
        self.began()
        self._begin(listener)
        sampler, opened = listener.sampler, listener.source
        self.remember(opened, sampler)
        for batch in batches:
            if settings_of(sampler) != listener.settings:
                self._law_changed(listener)
                if listener.source != opened and not self.sources[listener.source].by_coins:
                    self._complain(MID_PASS, True)
            if isinstance(sampler, TorchBatches):  # which goes on with an epoch that an earlier pass left
                number = (sampler.position - 1) // len(sampler)
            group = self.groups.setdefault((listener.source, number), Group(listener.source))
            indices = self._checked(listener, np.asarray(batch, dtype=np.int64))
            self.last, self.latest = Draw(group, current, indices), current
            current.waiting.append(self.last)
            self.drawn += 1
            yield batch
            self.remember(listener.source, sampler)
        self.finished += 1

    def _begin(self, listener: Listener) -> None:
        """What is read when a pass begins: the distribution, and which rows are selected."""
        listener.drawn[:] = False
        if settings_of(listener.sampler) != listener.settings:
            self._law_changed(listener)
        subset, sampler = selection_digests(listener.loader.dataset, listener.sampler)
        if subset != listener.selected[0]:
            self._complain(RENAMED, True)
        if sampler != listener.selected[1]:
            self._complain(RECORDS, not listener.observed)

    def _law_changed(self, listener: Listener) -> None:
        """Settings differ from those of the last draw: another source from here on."""
        listener.settings = settings_of(listener.sampler)
        old = self.sources[listener.source]
        try:
            found = source_of(listener.loader, observed=listener.observed)
        except CalipersError as error:
            self._complain(str(error), True)
            return
        if (found.dataset_size, found.indices) != (old.dataset_size, old.indices):
            self._complain(RECORDS, not listener.observed)
        if found not in self.sources:
            self.sources.append(found)
            self.changed(found)
        listener.source = self.sources.index(found)

    def _checked(self, listener: Listener, indices: IntArray) -> IntArray:
        """The indices that belong to the dataset; says so where they are others, or come twice in a pass."""
        source, known = self.sources[listener.source], indices
        if indices.size and (int(indices.max()) >= listener.drawn.size or int(indices.min()) < 0):
            self._complain(RECORDS, True)
            known = indices[(indices >= 0) & (indices < listener.drawn.size)]
        elif listener.allowed is not None and not bool(np.isin(known, listener.allowed).all()):
            self._complain(RECORDS, not listener.observed)
        if source.kind == "dealt" and source.once:
            if bool(listener.drawn[known].any()) or np.unique(known).size != known.size:
                self._complain(TWICE, not listener.observed)
            listener.drawn[known] = True
        return known

    def remember(self, loader: int, sampler: Any) -> None:
        """Where processes draw side by side, what the next draw's random numbers come from."""
        if self.sources[loader].ranks > 1:
            digest = generator_digest(sampler.generator, torch_module().device("cpu"))
            self.states[digest or ""] = None

    def deliver(self, origin: LoaderPass) -> Draw:
        """The loop receives the oldest batch that waits."""
        draw = origin.waiting.popleft()
        self._received(draw)
        self.queue.receive(draw)
        return draw

    def end(self, origin: LoaderPass, last: Draw | None) -> None:
        """The loop went through to the end of a pass."""
        if last is not None:
            last.group.ended = True
        self.queue.end(origin)

    def _received(self, draw: Draw) -> None:
        group = draw.group
        group.delivered += 1
        group.releases[()] += 1
        draw.digest = hashlib.blake2b(draw.indices.tobytes(), digest_size=8).hexdigest()
        group.order = hashlib.blake2b(f"{group.order}{draw.digest}".encode(), digest_size=8).hexdigest()
        earlier = self.queue.resumed
        if earlier is not None and group.delivered == earlier.delivered:
            self.queue.same_order = group.order == earlier.order and self.sources[group.loader].kind == "dealt"

    def used(self, draw: Draw) -> None:
        """A step is about to use this draw for the first time."""
        source = self.sources[draw.group.loader]
        if source.sample_rate is not None and draw.indices.size:
            if draw.digest in self.digests and self._tells(source):
                self._complain(REPEATED, True)
            self.digests[draw.digest] = None

    def _tells(self, source: LoaderLaw) -> bool:
        """Whether equal draws are no accident: two of so many agree with probability below 1e-9."""
        rate = source.sample_rate or 0.0
        size = source.dataset_size // source.ranks
        return len(self.digests) ** 2 * (rate * rate + (1 - rate) ** 2) ** size < 1e-9

    def signal(self) -> None:
        """The optimizer is given whether to hold back a step: a piece of the last batch was made."""
        if self.latest is not None and not self.latest.followed and self.last is not None:
            if self.latest.waiting:
                # The first piece: nobody will deliver this batch as a whole.
                self.latest.waiting.clear()
                self._received(self.last)
            self.queue.signal(self.last)


class _Delivered:
    """An iterator of a loader that reports what the loop receives."""

    def __init__(self, draws: Draws, batches: Any) -> None:
        assert draws.latest is not None  # iterating a loader begins a pass over its sampler
        self._draws, self._batches, self._pass = draws, batches, draws.latest
        self._last: Draw | None = None
        self._pass.followed = True

    def __iter__(self) -> _Delivered:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._draws.end(self._pass, self._last)
            raise
        self._last = self._draws.deliver(self._pass)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def _overhear(thing: Any, iterate: Callable[[Any], Any]) -> None:
    """Give one object a class of its own that iterates by `iterate` and is otherwise the class it had."""
    kind = type(thing)
    body = {"__iter__": iterate, "__module__": kind.__module__, "overheard": True}
    thing.__class__ = type(kind.__name__, (kind,), body)
