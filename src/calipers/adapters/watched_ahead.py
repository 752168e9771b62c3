"""What a watched run becomes if it goes on: the runs that bound it from above, some steps ahead.

`watched_run` says what was executed. Whoever has to decide whether to take one more step asks another question: a proof
about the run *with* that step. Two facts answer it without waiting for the end.

- A prefix of a run is post-processing of the whole of it, so whatever bounds the whole bounds the prefix. A pass over
  allocated batches therefore counts whole from its first step on, also if the loop breaks it off: k passes that were
  begun are bounded by k epochs.
- Adding noise is post-processing, so a pass in which the noise changed is bounded by one with its least noise.

The **position** of a run is what these bounds count: steps under Poisson sampling, passes where batches are allocated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_queue import Group
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_release import Divided, WatchedRelease, divided_now
from calipers.adapters.watched_run import NeighborReading, divided_by, poisson_uses
from calipers.errors import UnsupportedError
from calipers.run import Run


@dataclass(frozen=True)
class Ahead:
    """A watched run at one moment; `earlier` are the phases before it that somebody described."""

    seen: Seen
    optimizer: Any
    reading: NeighborReading
    earlier: tuple[Run, ...] = ()

    @property
    def source(self) -> LoaderLaw:
        """The one loader; `UnsupportedError` for several, of which nobody knows the next."""
        sources = self.seen.draws.sources
        if len(sources) != 1 or sources[0].ranks > 1:
            raise UnsupportedError(
                "What one more step costs is known for one loader on one process; ask the record after training."
            )
        return sources[0]

    @property
    def terms(self) -> tuple[object, ...]:
        """What an answer about positions ahead rests on; it is void as soon as this changes."""
        laws = tuple(self.seen.draws.sources)
        return (tuple(self.seen.reasons), tuple(self.seen.releases), self._next(), self._reshuffle(), laws)

    def position(self, *, new_pass: bool = False, further: int = 1) -> int:
        """Where the last of `further` steps of one pass falls; `new_pass`: the loop is about to begin another pass."""
        if self.source.by_coins:
            return self.seen.steps + further
        passes = [group for group in self.seen.draws.groups.values() if group.delivered]
        whole = bool(passes) and passes[-1].used() >= self.source.batches
        return len(passes) + 1 if new_pass or whole or not passes else len(passes)

    def position_of(self, steps: int) -> int:
        """Where the last of so many steps in all falls, in whole passes, and never before where the run has come to."""
        if self.source.by_coins:
            return max(steps, self.seen.steps)
        passes = sum(bool(group.delivered) for group in self.seen.draws.groups.values())
        return max(-(-steps // self.source.batches), passes)

    def runs(self, position: int) -> tuple[Run, ...]:
        """Runs that bound everything up to this position from above; refuses where nothing does."""
        if self.seen.reasons:
            raise UnsupportedError(" ".join(self.seen.reasons))
        if self.seen.crossing and not self.source.by_coins:
            raise UnsupportedError("Several batches were used in one step; what the next one costs is not known.")
        uses, further = self._uses(), position - self.seen.steps
        if self.source.by_coins:
            found = self._steps(uses + Counter({self._next(): further}) if further > 0 else uses)
        else:
            found = self._epochs(position, self._next().noise)
        return (*(run.replace(adjacency=found[0].adjacency) for run in self.earlier), *found)

    def finished(self) -> tuple[Run, ...]:
        """The part that is exactly a described run, so that attacks on it count; nothing where there is none."""
        if self.seen.reasons or not self.seen.steps:
            return ()
        if self.source.by_coins:
            return self._steps(self._uses())
        whole = [group for group in self._groups() if group.used() == self.source.batches]
        regular = len(self.seen.noises) == 1 and self._reshuffle() == "every-epoch"
        return self._epochs(len(whole), next(iter(self.seen.noises))) if whole and regular else ()

    def _groups(self) -> list[Group]:
        return [group for group in self.seen.draws.groups.values() if group.uses]

    def _uses(self) -> Counter[WatchedRelease]:
        """How many batches were used in which release, each in one."""
        uses = poisson_uses(self.source, self._groups())
        if any(len(used) > 1 for used in uses):
            raise UnsupportedError("Several steps were taken on one batch; what the next one costs is not known.")
        return Counter({release: count for (release,), count in uses.items()})

    def _next(self) -> WatchedRelease:
        """The next release: the least of the noise that is set and the noise that the last steps had."""
        now = divided_now(self.optimizer)
        noise = min([float(self.optimizer.noise_multiplier), *self.seen.noises])
        return WatchedRelease(noise, now.reduction, now.divisor)

    def _steps(self, uses: Counter[WatchedRelease]) -> tuple[Run, ...]:
        divided, merged = divided_by(uses), Counter[tuple[Divided, float]]()
        for release, count in uses.items():
            merged[(divided[release], release.noise)] += count
        return tuple(self._run(by, count, noise) for (by, noise), count in merged.items())

    def _epochs(self, passes: int, noise: float) -> tuple[Run, ...]:
        divided_by(self.seen.releases)
        return (self._run(divided_now(self.optimizer), passes * self.source.batches, noise),)

    def _run(self, divided: Divided, steps: int, noise: float) -> Run:
        """For adding or removing a record where the run has such neighbors, or as was asked."""
        dimension = sum(parameter.numel() for parameter in self.optimizer.params)
        settings = (self.source, divided, steps, noise, max(dimension, self.seen.dimension), self._reshuffle())
        try:
            return self.reading.run(*settings)
        except UnsupportedError:
            if self.reading.adjacency is not None:
                raise
            return self.reading.zeroed.run(*settings)

    def _reshuffle(self) -> str:
        """Whether whole passes had an order each, one for all, or something that no run describes."""
        if self.source.by_coins or not self.source.shuffled:
            return "every-epoch"
        orders = [group.order for group in self._groups() if group.used() == self.source.batches]
        if len(set(orders)) == len(orders):
            return "every-epoch"
        return "once" if len(set(orders)) == 1 else "some"
