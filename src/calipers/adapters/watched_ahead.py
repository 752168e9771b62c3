"""What a watched run becomes if it goes on: the runs that bound it from above, some steps ahead.

`watched_run` says what was executed. Whoever has to decide whether to take one more step asks another question: a proof
about the run *with* that step. Two facts answer it without waiting for the end.

- A prefix of a run is post-processing of the whole of it, so whatever bounds the whole bounds the prefix. A pass over
  dealt batches therefore counts whole from its first step on, also if the loop breaks it off: k passes that were begun
  are bounded by k epochs.
- Adding noise is post-processing, so a pass in which the noise changed is bounded by one with its least noise.

The **position** of a run is what these bounds count: steps under Poisson sampling, passes where batches are dealt.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_draws import Group
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_run import NeighborReading, poisson_uses
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
        return (tuple(self.seen.reasons), tuple(sorted(self.seen.noises)), self._next_noise(), self._reshuffle())

    def position(self, *, new_pass: bool = False, further: int = 1) -> int:
        """Where the last of `further` steps of one pass falls; `new_pass`: the loop is about to begin another pass."""
        if self.source.by_coins:
            return self.seen.steps + further
        passes = [group for group in self.seen.draws.groups.values() if group.delivered]
        whole = bool(passes) and passes[-1].used() >= self.source.batches
        return len(passes) + 1 if new_pass or whole or not passes else len(passes)

    def runs(self, position: int) -> tuple[Run, ...]:
        """Runs that bound everything up to this position from above; refuses where nothing does."""
        if self.seen.reasons:
            raise UnsupportedError(" ".join(self.seen.reasons))
        if self.seen.crossing and not self.source.by_coins:
            raise UnsupportedError("Several batches were used in one step; what the next one costs is not known.")
        uses, further = self._uses(), position - self.seen.steps
        if self.source.by_coins:
            found = self._steps(uses + Counter({self._next_noise(): further}) if further > 0 else uses)
        else:
            found = self._epochs(position, self._next_noise())
        return (*(run.replace(adjacency=self.reading.adjacency) for run in self.earlier), *found)

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

    def _uses(self) -> Counter[float]:
        """How many batches were used with which noise, each in one step."""
        uses = poisson_uses(self.source, self._groups())
        if any(len(noises) > 1 for noises in uses):
            raise UnsupportedError("Several steps were taken on one batch; what the next one costs is not known.")
        return Counter({noise: count for (noise,), count in uses.items()})

    def _next_noise(self) -> float:
        """The least of the noise that is set and the noise that the last steps had."""
        return min([float(self.optimizer.noise_multiplier), *self.seen.noises])

    def _steps(self, uses: Counter[float]) -> tuple[Run, ...]:
        return tuple(self.reading.run(self.source, self.optimizer, count, noise) for noise, count in uses.items())

    def _epochs(self, passes: int, noise: float) -> tuple[Run, ...]:
        steps = passes * self.source.batches
        return (self.reading.run(self.source, self.optimizer, steps, noise, self._reshuffle()),)

    def _reshuffle(self) -> str:
        """Whether whole passes had an order each, one for all, or something that no run describes."""
        if self.source.by_coins or not self.source.shuffled:
            return "every-epoch"
        orders = [group.order for group in self._groups() if group.used() == self.source.batches]
        if len(set(orders)) == len(orders):
            return "every-epoch"
        return "once" if len(set(orders)) == 1 else "some"
