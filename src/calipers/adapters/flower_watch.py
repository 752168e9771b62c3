"""A training with Flower that is watched: what was executed, not what was configured.

    from calipers.adapters.flower_watch import watch
    record = watch(strategy)                 # before strategy.start
    strategy.start(grid, arrays, num_rounds=100)
    record.epsilon(1e-5)
    record.why_not()                         # why it is no described run, if it is none
    calipers.write_receipt(record, "training.receipt.json")

Every round is seen twice: when clients are drawn (how many are connected, who is drawn) and when replies are aggregated
(how many came, how many failed, with which weights, and whether an aggregate was released). A round that releases
nothing costs nothing; one that averages k of B clients has k/B of the noise.

**Failures.** Whether a round fails depends on who was drawn. Where some clients always fail, the others are drawn more
often than B/N says, and a round that succeeds may itself reveal who is there. So once a drawn client has not replied:

- `failures="any"` (default): a client that is connected in all rounds counts as drawn in all of them, for zero-out and
  substitute. For add-remove nothing is proven.
- `failures="by-chance"`: you state that every drawn client fails with the same probability, independently of who it is
  and of its data. Then k replies are k of N clients drawn without replacement.

**Secure aggregation** (SecAgg+, which Flower 1.42 has for strategies of `flwr.server.strategy`): say
`secure_aggregation=workflow`. The rounding of every round is counted with the weight and the dimension that were seen,
as a part of the update. Updates themselves are hidden from the server, and from the record.

**Availability.** Where the number of connected clients changes, all rounds are counted over the smallest number, with
as many drawn as it takes for a client's probability not to be lower than it was; a higher one never shows less.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from calipers.adapters.flower import (
    EQUAL_WEIGHTS,
    FINITE,
    MESSAGES,
    ROUNDED,
    Wrapper,
    check_clipped_by_clients,
    check_secure_aggregation,
    flower_module,
    rounded_noise,
    wrapper_of,
)
from calipers.domains import choice
from calipers.errors import InputError, UnsupportedError
from calipers.run import ADJACENCIES

_FORMAT = 1
_ROUNDING = 1e-3
"""A reply may exceed the clipping norm by this factor: clients clip and add in single precision."""
_STAYED = (
    "Who is connected, and who fails, does not depend on the clients' data; the client in question is connected in all "
    "rounds."
)


@dataclasses.dataclass(frozen=True)
class FlowerRound:
    """What was seen of one round; `noise` is that of the sum over the clients that were averaged, in clipping norms."""

    number: int
    connected: int
    drawn: int
    replied: int
    failed: int
    released: bool
    noise: float


class FlowerRecord(FederatedRecord):
    """The record of a training that is watched; see `watch`."""

    def __init__(self, wrapper: Wrapper, adjacency: str, failures: str) -> None:
        self._wrapper, self._adjacency, self._failures = wrapper, adjacency, failures
        self._complaints: dict[str, None] = {}
        self._drawn: tuple[int, int, Any] | None = None
        self._bounds: tuple[str, ...] = ()
        self.rounds: list[FlowerRound] = []
        self._attach(wrapper.strategy)

    def _attach(self, strategy: Any) -> None:
        self._configure, self._aggregate = strategy.configure_train, strategy.aggregate_train
        strategy.configure_train, strategy.aggregate_train = self._configured, self._aggregated

    def _configured(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        seen = _SeenGrid(grid)
        messages = list(self._configure(server_round, arrays, config, seen))
        drawn = [message.metadata.dst_node_id for message in messages]
        self._check_drawn(drawn, seen.connected)
        self._drawn = len(seen.connected), len(drawn), arrays
        return messages

    def _check_drawn(self, drawn: Sequence[Any], connected: Iterable[Any]) -> None:
        if len(set(drawn)) < len(drawn) or not set(drawn) <= set(connected):
            self._complain("A round drew a client twice, or one that is not connected.")

    def _aggregated(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        came = list(replies)
        if self._drawn is None:
            self._complain("Replies were aggregated in a round that drew no clients.")
        connected, drawn, sent = self._drawn or (len(came), len(came), None)
        self._drawn = None
        usable = [reply for reply in came if not reply.has_error()]
        self._look_at(usable, sent)
        arrays, metrics = self._aggregate(server_round, came)
        self.rounds.append(
            FlowerRound(
                number=server_round, connected=connected, drawn=drawn, replied=len(usable),
                failed=len(came) - len(usable), released=arrays is not None,
                noise=self._wrapper.noise_of(len(usable)) if usable else math.inf,
            )
        )  # fmt: skip
        return arrays, metrics

    def _look_at(self, replies: Sequence[Any], sent: Any) -> None:
        """Weights and norms, before Flower touches the replies."""
        key = self._wrapper.strategy.strategy.weighted_by_key
        records = [one for reply in replies for one in reply.content.metric_records.values()]
        self._check_weights([float(one[key]) for one in records if isinstance(one.get(key), int | float)])
        start = None if sent is None else sent.to_numpy_ndarrays()
        for reply in replies:
            for record in reply.content.array_records.values():
                self._check_update(record.to_numpy_ndarrays(), start)

    def _check_weights(self, weights: Sequence[float]) -> None:
        if weights and max(weights) > min(weights):
            self._complain(
                "Clients were weighted by different numbers of examples, and the noise is calibrated for equal weights:"
                " a client with k times the mean weight has 1/k of the noise. Let every client report the same number."
            )

    def _check_update(self, moved: Sequence[Any], start: Sequence[Any] | None) -> None:
        if not all(np.isfinite(array).all() for array in moved):
            self._complain("A client sent an update that is not finite, which Flower does not clip.")
        elif self._wrapper.client_side and start is not None:
            norm = math.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in zip(moved, start, strict=True)))
            if norm > self._wrapper.strategy.clipping_norm * (1.0 + _ROUNDING):
                self._complain("A client sent an update longer than the clipping norm; it was not clipped.")

    def _complain(self, sentence: str) -> None:
        self._complaints[sentence] = None

    @property
    def facts(self) -> dict[str, Any]:
        """What was seen, in plain numbers and words."""
        released = [one for one in self.rounds if one.released]
        return {
            "library": f"flwr {flower_module('flwr').__version__}",
            "strategy": type(self._wrapper.strategy).__name__,
            "clients connected": sorted({one.connected for one in self.rounds}),
            "clients drawn": sorted({one.drawn for one in self.rounds}),
            "clients averaged": sorted({one.replied for one in released}),
            "rounds": len(self.rounds),
            "rounds released": len(released),
            "rounds with a missing or failed reply": sum(_failed(one) for one in self.rounds),
            "noise multipliers realized": sorted({one.noise for one in released}),
            "clipping norms realized": [float(self._wrapper.strategy.clipping_norm)],
            "noise source": "NumPy's global generator, not a cryptographic one; floating-point Gaussian noise",
        }

    def described(self, adjacency: str | None = None) -> FederatedRun:
        """The rounds that released something, as a run; no runs where nothing is proven."""
        asked = self._adjacency if adjacency is None else choice("adjacency", adjacency, ADJACENCIES)
        released = [one for one in self.rounds if one.released]
        if not released:
            raise InputError("No round has released anything yet; ask after training.")
        failing = any(_failed(one) for one in self.rounds)
        reasons = [*self._complaints, *self._moving(asked, failing)]
        if reasons:
            return FederatedRun((), (), False, tuple(reasons))
        least = min(one.connected for one in released)
        conditions = [EQUAL_WEIGHTS, FINITE, _STAYED, WHOLE_UPDATE, GENERATORS]
        bounds = list(self._bounds)
        if any(one.connected > least for one in released):
            bounds.append(
                f"The number of connected clients changed; all rounds are counted over {least}, the smallest."
            )
        if failing and self._failures == "any":
            bounds.append("Drawn clients did not reply, so a client counts as drawn in every round.")
            noises = Counter(one.noise for one in released)
            runs = [known_rounds(least, noise, count, asked) for noise, count in noises.items()]
        else:
            conditions += [BY_CHANCE] if failing else []
            # So many of the smallest number of clients that a client is drawn at least as often as it was.
            equal = Counter((-(-one.replied * least // one.connected), one.noise) for one in released)
            runs = [
                drawn_rounds("without-replacement", least, drawn, noise, count, asked)
                for (drawn, noise), count in equal.items()
            ]
        return FederatedRun(tuple(runs), tuple(conditions), not bounds, tuple(bounds))

    def _moving(self, adjacency: str, failing: bool) -> Iterable[str]:
        """Why neighbors with one client more or less cannot be compared."""
        if adjacency != "add-remove":
            return
        if failing and self._failures == "any":
            yield (
                "Drawn clients did not reply, and whether a round succeeds may tell who is there: nothing is proven "
                "for adding or removing a client. Ask for 'zero-out' or 'substitute', or state failures='by-chance'."
            )
        for connected in sorted({one.connected for one in self.rounds if one.drawn}):
            if why := self._wrapper.moving(connected):
                yield why
        released = [one for one in self.rounds if one.released]
        least = min(one.connected for one in released)
        if any(-(-one.replied * least // one.connected) >= least for one in released):
            yield (
                f"A round averaged nearly all connected clients, and another had {least} of them: without one client "
                "it might not have begun. Ask for 'zero-out' or 'substitute'."
            )

    def state_dict(self) -> dict[str, Any]:
        """What was seen, for a checkpoint: plain numbers and strings."""
        return {
            "format": _FORMAT,
            "rounds": [dataclasses.asdict(one) for one in self.rounds],
            "complaints": list(self._complaints),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, before the next round."""
        if state.get("format") != _FORMAT:
            raise InputError("Expected what record.state_dict() gave; this is something else, or of another release.")
        if self.rounds:
            raise InputError("load_state_dict comes too late: this record has watched rounds already.")
        self.rounds = [FlowerRound(**one) for one in state["rounds"]]
        self._complaints = dict.fromkeys(state["complaints"])


def _failed(one: FlowerRound) -> bool:
    return one.failed > 0 or one.replied < one.drawn


class _SeenGrid:
    """A grid that remembers the clients it named last, from which Flower draws."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self.connected: list[int] = []

    def get_node_ids(self) -> list[int]:
        """The connected clients."""
        self.connected = list(self._grid.get_node_ids())
        return self.connected

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


class _LegacyRecord(FlowerRecord):
    """The record of a strategy of `flwr.server.strategy`, the only ones that secure aggregation knows."""

    def __init__(self, wrapper: Wrapper, adjacency: str, failures: str, workflow: Any) -> None:
        super().__init__(wrapper, adjacency, failures)
        self._workflow = workflow
        self._bounds = () if workflow is None else (ROUNDED,)

    def _attach(self, strategy: Any) -> None:
        self._configure, self._aggregate = strategy.configure_fit, strategy.aggregate_fit
        strategy.configure_fit, strategy.aggregate_fit = self._configured_fit, self._aggregated_fit

    def _configured_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        before = len(client_manager.all())
        chosen: list[Any] = self._configure(server_round, parameters, client_manager)
        after = client_manager.all()
        drawn = [proxy.cid for proxy, _ in chosen]
        self._check_drawn(drawn, after)
        # Clients may connect while Flower waits for enough of them, or right after the draw: the smaller number.
        connected = min(len(after), max(before, self._wrapper.needed(before)))
        self._drawn = connected, len(drawn), parameters
        return chosen

    def _aggregated_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> tuple[Any, Any]:
        if self._drawn is None:
            self._complain("Replies were aggregated in a round that drew no clients.")
        connected, drawn, sent = self._drawn or (len(results), len(results), None)
        self._drawn = None
        weights = [float(reply.num_examples) for _, reply in results]
        self._check_weights(weights)
        arrays_of = flower_module("flwr.common").parameters_to_ndarrays
        start = None if sent is None else arrays_of(sent)
        if self._workflow is None:
            for _, reply in results:
                self._check_update(arrays_of(reply.parameters), start)
        released, metrics = self._aggregate(server_round, results, failures)
        self.rounds.append(
            FlowerRound(
                number=server_round, connected=connected, drawn=drawn, replied=len(results), failed=len(failures),
                released=released is not None, noise=self._noise(weights, start),
            )
        )  # fmt: skip
        return released, metrics

    def _noise(self, weights: Sequence[float], start: Sequence[Any] | None) -> float:
        if not weights:
            return math.inf
        noise = self._wrapper.noise_of(len(weights))
        if self._workflow is None:
            return noise
        dimension = None if start is None else sum(int(np.size(array)) for array in start)
        try:
            return rounded_noise(noise, self._wrapper, self._workflow, len(weights), int(min(weights)), dimension)
        except (InputError, UnsupportedError) as error:
            self._complain(str(error))
            return noise


def watch(
    strategy: Any,
    *,
    adjacency: str = "add-remove",
    failures: str = "any",
    mods: Sequence[Any] = (),
    secure_aggregation: Any = None,
) -> FlowerRecord:
    """Watch a strategy of Flower from now on; call it before the training starts.

    Args:
        strategy: a DifferentialPrivacy...FixedClipping wrapper of `flwr.serverapp.strategy` or `flwr.server.strategy`.
        adjacency: what neighbors are: add-remove, zero-out or substitute; can be asked anew of the record.
        failures: "any", or "by-chance" (see the module's text).
        mods: the mods of the ClientApp, where clipping happens on the client side.
        secure_aggregation: the SecAgg+ workflow, where one is used; its rounding counts as a part of the update.

    Returns:
        The record.

    Raises:
        UnsupportedError: nothing is proven for this strategy; the message says why and what to change.
    """
    choice("adjacency", adjacency, ADJACENCIES)
    choice("failures", failures, FAILURES)
    wrapper = wrapper_of(strategy)
    if wrapper.client_side:
        check_clipped_by_clients(mods)
    if secure_aggregation is not None:
        if wrapper.interface is MESSAGES:
            raise UnsupportedError(
                "Flower 1.42 aggregates securely with strategies of flwr.server.strategy only; this one would see every"
                " update. Wrap flwr.server.strategy.FedAvg, or leave secure_aggregation out."
            )
        check_secure_aggregation(wrapper)
    if wrapper.interface.configure in vars(strategy):
        raise InputError(
            f"This strategy is watched already, or its {wrapper.interface.configure} was replaced; make a new one."
        )
    if wrapper.interface is MESSAGES:
        return FlowerRecord(wrapper, adjacency, failures)
    return _LegacyRecord(wrapper, adjacency, failures, secure_aggregation)
