"""A simulated training with pfl that is watched: what was executed, not what was configured.

    from calipers.adapters.pfl_watch import watch
    record = watch(backend)                  # before algorithm.run(...)
    algorithm.run(...)
    record.epsilon(1e-5)
    record.why_not()                         # why it is no described run, if it is none
    calipers.write_receipt(record, "training.receipt.json")

Of every training round are seen: the users that fill the places of the cohort, which of them contribute statistics,
the weight of each contribution and whether it is finite, that each was clipped, and how often and with which bound and
noise the mechanism was called. A round that releases nothing costs nothing.

**Absent users.** pfl 0.6 fails in a round in which some of the drawn users return statistics and others none; nothing
is released. A script that goes on has rounds without absent users only: where some users are always absent, the others
fill more places than their share. So once a drawn user has contributed nothing:

- users in turn: the contributions to released rounds are counted, at times that are known anyway;
- `random` cohorts with `failures="any"` (default): nothing is proven;
- `random` cohorts with `failures="by-chance"`: you state that every drawn user is absent with the same probability,
  independently of who it is and of its data. Then k contributions are k of N users drawn with replacement.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from calipers.adapters.federated import (
    BY_CHANCE,
    FAILURES,
    GENERATORS,
    WHOLE_UPDATE,
    FederatedRecord,
    FederatedRun,
    drawn_rounds,
    known_rounds,
)
from calipers.adapters.pfl import (
    FINITE,
    FIXED_ORDER,
    UNBOUNDED_MESSAGES,
    check_backend,
    mechanism_of,
    noise_for,
    noise_of,
    pfl_module,
    pfl_version,
    scaled_down,
    users_of,
)
from calipers.domains import choice
from calipers.errors import InputError, UnsupportedError
from calipers.run import ADJACENCIES

_FORMAT = 1
_INDEPENDENT = "Which of the drawn users contribute does not depend on their data."


@dataclasses.dataclass
class PflRound:
    """What was seen of one training round; `noises` are those of the calls of the mechanism, in clipping bounds."""

    number: int
    asked: int
    drawn: int = 0
    contributed: int = 0
    clipped: int = 0
    released: bool = False
    noises: list[float] = dataclasses.field(default_factory=list)


class PflRecord(FederatedRecord):
    """The record of a training that is watched; see `watch`."""

    def __init__(self, backend: Any, adjacency: str, failures: str, users: int | None) -> None:
        self._adjacency, self._failures = adjacency, failures
        self._postprocessors = backend._postprocessors
        self._mechanism, self._local = mechanism_of(self._postprocessors)
        self._draw, self._users = users_of(backend._training_dataset, users)
        self._complaints: dict[str, None] = {}
        self._bounds: dict[float, None] = {}
        self._current: PflRound | None = None
        self._user: Any = None
        self._took_part: Counter[tuple[float, str]] = Counter()
        self.rounds: list[PflRound] = []
        dataset, aggregator, mechanism = backend._training_dataset, backend._aggregator, self._mechanism
        self._gather, backend.async_gather_results = backend.async_gather_results, self._gathered
        self._sampler, dataset.sampler = dataset.sampler, self._drawn()
        self._accumulate, aggregator.accumulate = aggregator.accumulate, self._accumulated
        self._clip, mechanism.constrain_sensitivity = mechanism.constrain_sensitivity, self._clipped
        self._add_noise, mechanism.add_noise = mechanism.add_noise, self._noised

    async def _gathered(self, model: Any, training_algorithm: Any, *, central_context: Any) -> tuple[Any, Any]:
        train = pfl_module("pfl.common_types").Population.TRAIN
        if central_context.population != train:
            return await self._gather(model, training_algorithm, central_context=central_context)  # type: ignore[no-any-return]
        seen = self._current = PflRound(central_context.current_central_iteration, int(central_context.cohort_size))
        contributors = self._contributors = list[str]()
        self._largest = 0.0
        try:
            statistics, metrics = await self._gather(model, training_algorithm, central_context=central_context)
        finally:
            self._current = None
            self.rounds.append(seen)
        seen.released = statistics is not None
        if seen.released:
            self._look_at(seen)
            noise = min(seen.noises, default=math.inf)
            self._took_part.update((noise, user) for user in contributors)
            if self._draw == "in turn" and len(set(contributors)) < len(contributors):
                self._complain("A user contributed twice to one round, and users come in a fixed order.")
        return statistics, metrics

    def _drawn(self) -> Iterator[tuple[Any, Any]]:
        for user, seed in self._sampler:
            if self._current is not None:
                self._current.drawn += 1
                self._user = user
            yield user, seed

    def _clipped(self, statistics: Any, *arguments: Any, **settings: Any) -> tuple[Any, Any]:
        if self._current is not None:
            self._current.clipped += 1
            bound = self._bound()
            self._bounds[bound], self._largest = None, max(self._largest, bound)
        return self._clip(statistics, *arguments, **settings)  # type: ignore[no-any-return]

    def _noised(self, statistics: Any, *arguments: Any, **settings: Any) -> tuple[Any, Any]:
        if self._current is not None:
            self._current.noises.append(float(self._mechanism.relative_noise_stddev))
            if self._bound() < self._largest:
                self._complain("The clipping bound shrank between clipping and noise, and the noise with it.")
        return self._add_noise(statistics, *arguments, **settings)  # type: ignore[no-any-return]

    def _bound(self) -> float:
        return float(pfl_module("pfl.hyperparam").get_param_value(self._mechanism.clipping_bound))

    def _accumulated(self, *, accumulated: Any, user_stats: Any) -> Any:
        if self._current is not None:
            self._current.contributed += 1
            self._contributors.append(str(self._user))
            ops = pfl_module("pfl.internal.ops.selector").get_default_framework_module()
            _, tensors = user_stats.get_weights()
            if not all(np.isfinite(ops.to_numpy(one)).all() for one in tensors):
                self._complain("A user contributed statistics that are not finite, which pfl does not clip.")
            if float(getattr(user_stats, "weight", 1.0)) != 1.0:
                self._complain(
                    "A contribution had another weight than 1: the exact sum of the weights is released with the sum "
                    "of the statistics. Use WeightByUser."
                )
        return self._accumulate(accumulated=accumulated, user_stats=user_stats)

    def _look_at(self, seen: PflRound) -> None:
        """What a round that released something must have done."""
        if seen.drawn != seen.asked:
            self._complain(
                f"A round asked for a cohort of {seen.asked} and {seen.drawn} users were drawn here; where several "
                "processes share the work, each sees its own users only."
            )
        if seen.clipped != seen.contributed:
            self._complain(f"{seen.contributed} users contributed to a round, and {seen.clipped} were clipped.")
        if len(seen.noises) != (seen.contributed if self._local else 1):
            self._complain(f"The mechanism added noise {len(seen.noises)} times in one round.")

    def _complain(self, sentence: str) -> None:
        self._complaints[sentence] = None

    @property
    def facts(self) -> dict[str, Any]:
        """What was seen, in plain numbers and words."""
        released = [one for one in self.rounds if one.released]
        taken: Counter[str] = Counter()
        for (_, user), times in self._took_part.items():
            taken[user] += times
        return {
            "library": f"pfl {pfl_version()}",
            "mechanism": f"{type(self._mechanism).__name__}, {'local' if self._local else 'central'}",
            "users": self._users,
            "cohorts": "random, with replacement" if self._draw == "random" else "in turn",
            "cohort sizes": sorted({one.drawn for one in self.rounds}),
            "contributions to a round": sorted({one.contributed for one in released}),
            "rounds": len(self.rounds),
            "rounds released": len(released),
            "rounds with absent users": sum(one.contributed < one.drawn for one in self.rounds),
            "different users that contributed": len(taken),
            "most contributions of one user": max(taken.values(), default=0),
            "calls of the mechanism": sum(len(one.noises) for one in self.rounds),
            "noise multipliers realized": sorted({noise for one in released for noise in one.noises}),
            "clipping norms realized": sorted(self._bounds),
            "noise source": "seeds of 32 bits, not a cryptographic generator; floating-point Gaussian noise",
        }

    def described(self, adjacency: str | None = None) -> FederatedRun:
        """The rounds that released something, as a run; no runs where nothing is proven."""
        asked = self._adjacency if adjacency is None else choice("adjacency", adjacency, ADJACENCIES)
        released = [one for one in self.rounds if one.released]
        if not released:
            raise InputError("No round has released anything yet; ask after training.")
        absent = sum(one.drawn - one.contributed for one in self.rounds)
        conditions = [FINITE, *scaled_down(self._mechanism), WHOLE_UPDATE, GENERATORS]
        reasons = list(self._complaints)
        if self._draw == "in turn" and asked == "add-remove":
            reasons.append(FIXED_ORDER)
        if absent and self._draw == "random" and self._failures == "any":
            reasons.append(
                f"{absent} drawn users contributed nothing, and where some never do, the others are drawn more often "
                "than their share: nothing is proven. State failures='by-chance' if that is how they fail."
            )
        if reasons:
            return FederatedRun((), (), False, tuple(reasons))
        if absent:
            conditions.append(_INDEPENDENT if self._draw == "in turn" else BY_CHANCE)
        if self._draw == "in turn":
            return self._in_turn(asked, tuple(conditions))
        assert self._users is not None
        equal = Counter((one.contributed, one.noises[0]) for one in released)
        runs = [
            drawn_rounds("with-replacement", self._users, places, self._noise_for(asked, noise), count, asked)
            for (places, noise), count in equal.items()
        ]
        return FederatedRun(tuple(runs), tuple(conditions))

    def _in_turn(self, adjacency: str, conditions: tuple[str, ...]) -> FederatedRun:
        """Users at known times: of each noise as many rounds as any user contributed to."""
        most: dict[float, int] = {}
        for (noise, _), times in self._took_part.items():
            most[noise] = max(most.get(noise, 0), times)
        users = self._users or len({user for _, user in self._took_part})
        runs = [
            known_rounds(users, self._noise_for(adjacency, noise), times, adjacency) for noise, times in most.items()
        ]
        bounds = ("The noise changed; of each, as many rounds as any user took part in are counted.",)
        return FederatedRun(tuple(runs), conditions, len(runs) == 1, bounds if len(runs) > 1 else ())

    def _noise_for(self, adjacency: str, noise: float) -> float:
        return noise_for(adjacency, noise, self._postprocessors)

    def state_dict(self) -> dict[str, Any]:
        """What was seen, for a checkpoint: plain numbers and strings."""
        return {
            "format": _FORMAT,
            "rounds": [dataclasses.asdict(one) for one in self.rounds],
            "complaints": list(self._complaints),
            "clipping bounds": list(self._bounds),
            "contributions": [[noise, user, times] for (noise, user), times in self._took_part.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, before the next round."""
        if state.get("format") != _FORMAT:
            raise InputError("Expected what record.state_dict() gave; this is something else, or of another release.")
        if self.rounds:
            raise InputError("load_state_dict comes too late: this record has watched rounds already.")
        self.rounds = [PflRound(**one) for one in state["rounds"]]
        self._complaints = dict.fromkeys(state["complaints"])
        self._bounds = dict.fromkeys(state["clipping bounds"])
        self._took_part = Counter({(noise, user): times for noise, user, times in state["contributions"]})


def watch(backend: Any, *, adjacency: str = "add-remove", failures: str = "any", users: int | None = None) -> PflRecord:
    """Watch a backend of pfl from now on; call it before the algorithm runs.

    Args:
        backend: the `SimulatedBackend`, with its training dataset and postprocessors.
        adjacency: what neighbors are: add-remove, zero-out or substitute; can be asked anew of the record.
        failures: "any", or "by-chance" (see the module's text).
        users: how many users there are, where the sampler does not say ("minimize_reuse").

    Returns:
        The record.

    Raises:
        UnsupportedError: nothing is proven for this backend; the message says why and what to change.
    """
    choice("adjacency", adjacency, ADJACENCIES)
    choice("failures", failures, FAILURES)
    check_backend(backend)
    mechanism, local = mechanism_of(backend._postprocessors)
    noise_of(mechanism)
    draw, _ = users_of(backend._training_dataset, users)
    if type(mechanism) is pfl_module("pfl.privacy.ftrl_mechanism").BandedMatrixFactorizationMechanism:
        raise UnsupportedError("Correlated noise cannot be watched round by round; describe it with read_backend.")
    if local and draw == "random":
        raise UnsupportedError(UNBOUNDED_MESSAGES)
    if "async_gather_results" in vars(backend):
        raise InputError("This backend is watched already, or its async_gather_results was replaced; make a new one.")
    return PflRecord(backend, adjacency, failures, users)
