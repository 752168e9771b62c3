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

import dataclasses
from collections import Counter
from typing import Any

from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_draws import Group
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_run import NeighborReading
from calipers.errors import UnsupportedError
from calipers.run import Run


@dataclasses.dataclass(frozen=True)
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
    def counts_steps(self) -> bool:
        """Whether the position is a number of steps, not of passes."""
        return self.source.by_coins

    @property
    def terms(self) -> tuple[object, ...]:
        """What an answer about positions ahead rests on; it is void as soon as this changes."""
        return (tuple(self.seen.reasons), tuple(sorted(self.seen.noises)), self._next_noise(), self._reshuffle())

    def position(self, *, new_pass: bool = False, further: int = 1) -> int:
        """Where the last of `further` steps of one pass falls; `new_pass`: the loop is about to begin another pass."""
        if self.counts_steps:
            return self.seen.steps + further
        passes = [group for group in self.seen.draws.groups.values() if group.delivered]
        whole = bool(passes) and passes[-1].used() >= self.source.batches
        return len(passes) + 1 if new_pass or whole or not passes else len(passes)

    def runs(self, position: int) -> tuple[Run, ...]:
        """Runs that bound everything up to this position from above; refuses where nothing does."""
        if self.seen.reasons:
            raise UnsupportedError(" ".join(self.seen.reasons))
        found = self._steps(position) if self.counts_steps else self._passes(position)
        return (*(run.replace(adjacency=self.reading.adjacency) for run in self.earlier), *found)

    def finished(self) -> tuple[Run, ...]:
        """The part that is exactly a described run, so that attacks on it count; nothing where there is none."""
        if self.seen.reasons or not self.seen.steps:
            return ()
        if self.counts_steps:
            return self._steps(self.seen.steps)
        whole = [group for group in self._groups() if group.used() == self.source.batches]
        regular = len(self.seen.noises) == 1 and self._reshuffle() == "every-epoch"
        return self._epochs(len(whole), next(iter(self.seen.noises))) if whole and regular else ()

    def _groups(self) -> list[Group]:
        return [group for group in self.seen.draws.groups.values() if group.uses]

    def _refuse_repeated(self) -> None:
        if any(len(noises) > 1 for group in self._groups() for noises in group.uses):
            raise UnsupportedError("Several steps were taken on one batch; what the next one costs is not known.")

    def _next_noise(self) -> float:
        """The least of the noise that is set and the noise that the last steps had."""
        return min([float(self.optimizer.noise_multiplier), *self.seen.noises])

    def _steps(self, position: int) -> tuple[Run, ...]:
        self._refuse_repeated()
        uses: Counter[float] = Counter()
        for group in self._groups():
            for noises, count in group.uses.items():
                uses[noises[0]] += count
        further = position - self.seen.steps
        if further > 0:
            uses[self._next_noise()] += further
        return tuple(self._run(count, noise) for noise, count in uses.items())

    def _passes(self, position: int) -> tuple[Run, ...]:
        if self.seen.crossing:
            raise UnsupportedError("Several batches were used in one step; what the next one costs is not known.")
        self._refuse_repeated()
        return self._epochs(position, self._next_noise())

    def _epochs(self, passes: int, noise_multiplier: float) -> tuple[Run, ...]:
        return (self._run(passes * self.source.batches, noise_multiplier, self._reshuffle()),)

    def _run(self, steps: int, noise_multiplier: float, reshuffle: str = "every-epoch") -> Run:
        return self.reading.run(self.source, self.optimizer, steps, noise_multiplier, reshuffle)

    def _reshuffle(self) -> str:
        """Whether whole passes had an order each, one for all, or something that no run describes."""
        if self.counts_steps or not self.source.shuffled:
            return "every-epoch"
        orders = [group.order for group in self._groups() if group.used() == self.source.batches]
        if len(set(orders)) == len(orders):
            return "every-epoch"
        return "once" if len(set(orders)) == 1 else "some"
