"""Calipers as a privacy accountant of Flower.

    from calipers.adapters.flower_accountant import CalipersAccountant
    config = PrivacyConfig(target_delta=1e-5, population_size=1000, max_epsilon=8.0,
                           neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
                           sampling_method=SamplingMethod.NO_AMPLIFICATION)
    accountant = CalipersAccountant(config)
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(...), 1.0, 0.1, 10, accountant=accountant)
    ...
    strategy.privacy_spent().epsilon       # certified upper bound
    accountant.bracket(1e-5)               # with the lower bound of an explicit attack

Flower 1.42 accepts no sampling method but NO_AMPLIFICATION together with fixed clipping, and its own accountant then
composes plain Gaussian releases in which one client moves the sum by C. What the strategy executes is another thing:
`random.sample` draws B of the N connected clients, and a client that is drawn displaces another one. This accountant
reads NO_AMPLIFICATION and WITHOUT_REPLACEMENT as exactly that, and POISSON as a coin for each client.

Flower describes a round by its noise multiplier, the number of drawn clients and the size of the population, and
nothing else. The numbers hold under `conditions`; `calipers.adapters.flower_watch.watch` sees whether they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calipers.adapters.federated import GENERATORS, WHOLE_UPDATE, FederatedRun, drawn_rounds
from calipers.adapters.flower import EQUAL_WEIGHTS, FINITE, REPLIES, flower_module
from calipers.bracket import Bracket
from calipers.domains import COUNT, OPEN_UNIT, POSITIVE, choice
from calipers.errors import InputError
from calipers.measure import Measurement
from calipers.run import ADJACENCIES, Run

METHOD = "calipers"
_SCHEMA = 1
_RELATIONS = {"add-or-remove-one": "add-remove", "replace-one": "substitute"}
_SAMPLERS = {
    "poisson": "poisson",
    "without-replacement": "without-replacement",
    "no-amplification": "without-replacement",
}
CONDITIONS = (
    "As many clients as population_size are connected in every round, the one in question among them.",
    EQUAL_WEIGHTS,
    REPLIES,
    FINITE,
    WHOLE_UPDATE,
    GENERATORS,
)


class CalipersAccountant:
    """A privacy accountant of Flower whose epsilon is a certified upper bound.

    Args:
        config: Flower's own `PrivacyConfig`.
        adjacency: the neighboring relation, with any sampling method; by default the one that `config` names.
        tolerance: how far apart the bounds may be, relative to epsilon.
    """

    def __init__(self, config: Any, *, adjacency: str | None = None, tolerance: float = 1e-3) -> None:
        relation = _RELATIONS[config.neighboring_relation.value]
        self._config = config
        self.adjacency = relation if adjacency is None else choice("adjacency", adjacency, ADJACENCIES)
        self._sampler = _SAMPLERS[config.sampling_method.value]
        self._tolerance = tolerance
        self._composed: list[tuple[Any, int]] = []
        self._measured: tuple[tuple[Run, ...], Measurement] | None = None

    @property
    def config(self) -> Any:
        """Flower's privacy configuration."""
        return self._config

    @property
    def conditions(self) -> tuple[str, ...]:
        """What has to hold for the numbers to hold, and an accountant cannot see."""
        return CONDITIONS

    @property
    def num_releases(self) -> int:
        """How many rounds were released."""
        return sum(count for _, count in self._composed)

    def compose(self, event: Any, count: int = 1) -> None:
        """Count one or more equal rounds; `InputError` where nothing is proven for them."""
        self._run(event, count)
        if self._composed and self._composed[-1][0] == event:
            self._composed[-1] = (event, self._composed[-1][1] + count)
        else:
            self._composed.append((event, count))

    def runs(self) -> tuple[Run, ...]:
        """The rounds so far, one run for each stretch of equal ones."""
        return tuple(self._run(event, count) for event, count in self._composed)

    def measure(self) -> Measurement:
        """The measurement of all rounds so far."""
        return self._measurement(self.runs())

    def bracket(self, delta: float) -> Bracket:
        """epsilon(delta) of all rounds so far: lower <= truth <= upper under `conditions`."""
        return self.measure().epsilon(delta)

    def get_epsilon(self, delta: float) -> float:
        """The certified upper bound on epsilon; 0 before the first round."""
        OPEN_UNIT.check("delta", delta)
        return self.bracket(delta).upper if self._composed else 0.0

    def get_delta(self, epsilon: float) -> float:
        """The certified upper bound on delta; 0 before the first round."""
        return self.measure().delta(epsilon).upper if self._composed else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> Any:
        """Flower's `PrivacySpent`, with the certified upper bound."""
        asked = self._config.target_delta if delta is None else delta
        spent = flower_module("flwr.supercore.privacy_accounting").PrivacySpent
        return spent(
            epsilon=self.get_epsilon(asked), delta=asked, num_releases=self.num_releases, accounting_method=METHOD
        )

    def would_exceed(self, event: Any, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether the certified upper bound at `target_delta` would exceed a limit after `count` more rounds."""
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise InputError("would_exceed needs a limit: give max_epsilon here or in PrivacyConfig.")
        POSITIVE.check("max_epsilon", limit)
        projected = (*self.runs(), self._run(event, count))
        return self._measurement(_merged(projected)).epsilon(self._config.target_delta).upper > limit

    def state_dict(self) -> dict[str, object]:
        """What was composed, as plain numbers and strings."""
        return {
            "schema_version": _SCHEMA,
            "backend": METHOD,
            "config": self._settings(),
            "compositions": [
                {
                    "event": {
                        "noise_multiplier": event.noise_multiplier,
                        "sample_size": event.sample_size,
                        "population_size": event.population_size,
                    },
                    "count": count,
                }
                for event, count in self._composed
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; `InputError` for another backend or configuration."""
        if state.get("schema_version") != _SCHEMA or state.get("backend") != METHOD:
            raise InputError(
                "Expected what state_dict() of this accountant gave; how another backend read its rounds is not known."
            )
        if state.get("config") != self._settings():
            raise InputError(
                f"The state was saved with another configuration: {state.get('config')}, and here it is "
                f"{self._settings()}."
            )
        made = flower_module("flwr.supercore.privacy_accounting").GaussianPrivacyEvent
        restored = [(made(**one["event"]), int(one["count"])) for one in state["compositions"]]
        for event, count in restored:
            self._run(event, count)
        self._composed = restored

    def _settings(self) -> dict[str, object]:
        config = self._config
        return {
            "target_delta": config.target_delta,
            "population_size": config.population_size,
            "neighboring_relation": config.neighboring_relation.value,
            "sampling_method": config.sampling_method.value,
            "max_epsilon": config.max_epsilon,
            "adjacency": self.adjacency,
        }

    def _run(self, event: Any, count: int) -> Run:
        if event.population_size != self._config.population_size:
            raise InputError(
                f"Expected rounds over population_size={self._config.population_size} clients, got "
                f"{event.population_size}."
            )
        COUNT.check_int("count", count)
        return drawn_rounds(
            self._sampler, event.population_size, event.sample_size, event.noise_multiplier, count, self.adjacency
        )

    def _measurement(self, runs: tuple[Run, ...]) -> Measurement:
        if self._measured is None or self._measured[0] != runs:
            self._measured = runs, FederatedRun(runs, CONDITIONS).measure(tolerance=self._tolerance)
        return self._measured[1]


def _merged(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Equal rounds at the end counted together, as `compose` counts them."""
    *before, last = runs
    if not before or before[-1].replace(steps=1) != last.replace(steps=1):
        return runs
    return (*before[:-1], last.replace(steps=before[-1].total_steps + last.total_steps))
