"""The notebook of a run that is watched: what was drawn, what was released, and what does not fit.

`Participation` adds up, record by record, the squared signal-to-noise ratio of the steps that a record was in. With
batches known, these steps are Gaussian releases at known times, and the record that was in most of them is
mu-GDP with mu the root of its sum (Dong et al. 2022, Corollary 3.3): k steps with noise multiplier sigma
give sqrt(k)/sigma. A record that is m times in one step moves it by m clipping norms and adds (m/sigma)^2.

Everything here goes into a checkpoint and comes back from it; nothing of it names a record's content.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_draws import Draws
from calipers.adapters.watched_queue import Draw, Group
from calipers.adapters.watched_release import WatchedRelease
from calipers.errors import CalipersWarning, InputError
from calipers.numerics.types import IntArray

_FORMAT = 2


class Participation:
    """For every record, the sum of (times in the step / noise multiplier)^2 over the steps it was in."""

    def __init__(self, records: int) -> None:
        # Steps of the noise in force are counted, those of earlier noise added up: one noise stays exact.
        self._counts = np.zeros(records, dtype=np.int64)
        self._noise: float | None = None
        self._earlier = np.zeros(records)
        self._folds = 0

    def add(self, batches: list[tuple[IntArray, int]], noise_multiplier: float) -> None:
        """One step on these batches, each so many times."""
        if noise_multiplier != self._noise:
            self._fold()
            self._noise = noise_multiplier
        all_of_them = np.concatenate([np.repeat(indices, times) for indices, times in batches])
        records, times = np.unique(all_of_them, return_counts=True)
        self._counts[records] += times * times

    def _fold(self) -> None:
        if self._noise is not None and self._counts.any():
            self._earlier += self._counts / self._noise**2
            self._folds += 1
            self._counts[:] = 0

    def largest(self) -> tuple[float, int]:
        """(noise multiplier, count): the record that shows most shows as much as `count` releases with that noise.

        Post-condition: count / noise^2 is at least the largest sum, and equal to it where the noise never changed.
        """
        if self._noise is None:
            return math.inf, 0
        if not self._folds:
            return self._noise, int(self._counts.max(initial=0))
        # Each fold and the last sum round by at most 2^-53 of the result each, the division and the root likewise.
        total = float((self._earlier + self._counts / self._noise**2).max()) * (1.0 + (self._folds + 4) * 2.0**-51)
        return math.nextafter(1.0 / math.sqrt(total), 0.0), 1

    def busiest(self) -> int:
        """The largest number of steps that any record was in, with the noise now in force."""
        return int(self._counts.max(initial=0))

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "counts": self._counts.tolist(),
            "noise": self._noise,
            "earlier": self._earlier.tolist(),
            "folds": self._folds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The opposite of `state_dict`."""
        self._counts = np.asarray(state["counts"], dtype=np.int64)
        self._noise = state["noise"]
        self._earlier = np.asarray(state["earlier"], dtype=np.float64)
        self._folds = int(state["folds"])

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add what another process saw in the same steps."""
        other = Participation(len(self._counts))
        other.load_state_dict(state)
        if other._noise != self._noise or self._folds or other._folds:
            self._fold()
            other._fold()
            self._folds += other._folds + 1
            self._noise = self._noise if self._noise is not None else other._noise
        self._counts = self._counts + other._counts
        self._earlier = self._earlier + other._earlier


class Seen:
    """What was observed of one run; `reasons` maps each sentence that something does not fit to whether it blinds.

    `rows`: for each index of the dataset, the record that it is a row of (None: one each). `releases` counts the
    steps by what acted in them, in the order in which each was first seen. `notes`: conditions that came up on the way.
    """

    def __init__(self, records: int, rows: IntArray | None = None) -> None:
        self.records, self._rows = records, rows
        self.reasons: dict[str, bool] = {}
        self.notes: dict[str, None] = {}
        self.steps = 0
        self.dimension = 0
        self.releases: Counter[WatchedRelease] = Counter()
        self.norms: Counter[float] = Counter()
        self.states: dict[str, None] = {}
        self.seeds: dict[str, None] = {}
        self.crossing = False
        self.participation = Participation(records)
        self.draws = Draws(self.complain)

    def complain(self, reason: str, blind: bool) -> None:
        """Something does not fit; the first time it is a warning too. `blind`: nothing is proven from here on."""
        if reason not in self.reasons:
            self.reasons[reason] = blind
            warnings.warn(f"{reason} Ask record.why_not().", CalipersWarning, stacklevel=3)

    @property
    def noises(self) -> Counter[float]:
        """How many steps had which noise multiplier."""
        found: Counter[float] = Counter()
        for release, count in self.releases.items():
            found[release.noise] += count
        return found

    def release(
        self, draws: list[tuple[Draw, int]], release: WatchedRelease, max_grad_norm: float, dimension: int
    ) -> None:
        """One noisy sum, of these draws so many times each."""
        self.steps += 1
        self.dimension = max(self.dimension, dimension)
        self.releases[release] += 1
        self.norms[max_grad_norm] += 1
        if not draws or not release.noise > 0:
            return
        for draw, _ in draws:
            if not draw.releases:
                self.draws.used(draw)
            draw.use(release)
        self.crossing = self.crossing or len({id(draw.group) for draw, _ in draws}) > 1
        self.crossing = self.crossing or any(times > 1 for _, times in draws)
        batches = [(draw.indices if self._rows is None else self._rows[draw.indices], times) for draw, times in draws]
        self.participation.add(batches, release.noise)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists: any way of saving will do."""
        draws = self.draws
        return {
            "format": _FORMAT,
            "records": self.records,
            "sources": self._sources(),
            "reasons": dict(self.reasons),
            "notes": list(self.notes),
            "steps": self.steps,
            "dimension": self.dimension,
            "releases": [[list(release), count] for release, count in self.releases.items()],
            "norms": [[norm, count] for norm, count in self.norms.items()],
            "crossing": self.crossing,
            "participation": self.participation.state_dict(),
            "passes": [draws.begun, draws.finished, draws.drawn],
            "digests": list(draws.digests),
            "states": list(self.states),
            "seeds": list(self.seeds),
            "drawn from": list(draws.states),
            "groups": [
                [loader, number, group.delivered, group.ended, group.order, _listed(group)]
                for (loader, number), group in draws.groups.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; refused for another loader, and after steps of this record's own."""
        if state.get("format") != _FORMAT:
            raise InputError("Expected what record.state_dict() gave; this is something else, or of another release.")
        if self.steps:
            raise InputError("load_state_dict comes too late: this record has watched steps already.")
        own, saved = self._sources(), state["sources"]
        if saved[: len(own)] != own or any(source["kind"] == "calipers" for source in saved[len(own) :]):
            raise InputError(f"The checkpoint was made with another loader: {saved}, and attached is {own}.")
        # Loaders of the first part that this one has not attached; if it does, they count as new ones.
        self.draws.sources += [LoaderLaw(**source | {"sampler": None}) for source in saved[len(own) :]]
        self.reasons = dict(state["reasons"]) | self.reasons
        self.notes |= dict.fromkeys(state.get("notes", ()))
        self.steps, self.crossing = state["steps"], state["crossing"]
        self.dimension = state["dimension"]
        self.releases = Counter({WatchedRelease(*release): count for release, count in state["releases"]})
        self.norms = Counter({norm: count for norm, count in state["norms"]})
        self.participation.load_state_dict(state["participation"])
        self.states.update(dict.fromkeys(state["states"]))
        self.seeds = dict.fromkeys(state.get("seeds", ()))
        draws = self.draws
        draws.begun, draws.finished, draws.drawn = state["passes"]
        draws.digests = dict.fromkeys(state["digests"])
        draws.states = dict.fromkeys(state["drawn from"])
        for loader, number, delivered, ended, order, uses in state["groups"]:
            counted = Counter({tuple(WatchedRelease(*each) for each in used): count for used, count in uses})
            group = Group(loader, delivered, counted, order, ended)
            draws.groups[(loader, number)] = draws.queue.resumed = group
            draws.iterators = max(draws.iterators, number)

    def _sources(self) -> list[dict[str, Any]]:
        return [asdict(source) | {"sampler": repr(source.sampler)} for source in self.draws.sources]


def _listed(group: Group) -> list[Any]:
    return [[[list(each) for each in used], count] for used, count in group.releases.items() if count]
