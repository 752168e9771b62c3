"""The installed Flower as an audit target: all rounds of a training, with and without one client.

**What is real.** `DifferentialPrivacyServerSideFixedClipping` around `FedAvg`: its own draw of the clients
(`configure_train`), clipping, weighted mean and noise (`aggregate_train`), on messages as a grid delivers them. Not
real is the transport, and what clients compute: each answers with an update that was fixed beforehand.

**The pair.** The client in question moves by +5C along one coordinate, all others by -5C, so that clipping is needed
and every clipped update has norm C. A round with the client in it has the mean (2 - B)/B in clipping norms, one without
it -1. The adversary sees the released mean of every round. The model does not change between the rounds, which leaves
the adversary nothing to adapt.

**Memoized rounds.** What clipping and averaging make of a cohort depends only on whether the client is in it. With
`memoized=True` Flower computes these two means once, from all messages of a round and without noise; the draw
(`sample_nodes`, which `FedAvg.configure_train` calls) and the noise (the wrapper's own method) are Flower's in every
round. A round over 990 clients takes a millisecond instead of half a second.

**The score** is the exact log likelihood ratio: with B of N clients drawn, y the released sum in clipping norms and
z = y + B, a round counts log(1 - q + q exp((2 z - 2) / sigma^2)), q = B/N.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from calipers.adapters.federated import UNIT
from calipers.adapters.flower import flower_module
from calipers.domains import COUNT, POSITIVE
from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.run import Run

_LONG = 5.0
"""How many clipping norms every update has before it is clipped."""


@dataclass(frozen=True, kw_only=True)
class FlowerTarget:
    """Rounds of Flower's server-side fixed clipping over `clients` clients (present) or one less (absent)."""

    chunk: ClassVar[int] = 50
    clients: int = 10
    drawn: int = 9
    rounds: int = 10
    noise_multiplier: float = 2.0
    clipping_norm: float = 0.1
    memoized: bool = False

    def __post_init__(self) -> None:
        for name in ("clients", "drawn", "rounds"):
            COUNT.check_int(name, getattr(self, name))
        for name in ("noise_multiplier", "clipping_norm"):
            POSITIVE.check(name, getattr(self, name))
        if self.drawn >= self.clients:
            raise InputError(
                f"Expected drawn < clients, got {self.drawn} of {self.clients}: without the client Flower would wait."
            )

    @property
    def name(self) -> str:
        """What is audited."""
        return (
            f"Flower {flower_module('flwr').__version__}, server-side fixed clipping, {self.drawn} of {self.clients} "
            f"clients in {self.rounds} rounds, noise multiplier {self.noise_multiplier:g}"
        )

    @property
    def run(self) -> Run:
        """What Calipers says is executed."""
        return Run(
            sampler="without-replacement", dataset_size=self.clients, batch_size=self.drawn, steps=self.rounds,
            noise_multiplier=self.noise_multiplier, unit=UNIT, records_per_unit=1,
        )  # fmt: skip

    def identity(self) -> dict[str, object]:
        """Everything that changes the distribution of the outputs."""
        return {"target": "flower", "flwr": str(flower_module("flwr").__version__), **asdict(self)}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """The released means of `count` independent trainings: shape (count, rounds, 1), in clipping norms."""
        connected = list(range(1, self.clients + present))
        found = np.empty((count, self.rounds, 1))
        means = self._means() if self.memoized else None
        with seeded_generators(rng), _ready():
            for row in found:
                # A strategy of its own for every training, as a script has.
                strategy = self._strategy(self.noise_multiplier)
                for number in range(self.rounds):
                    if means is None:
                        row[number] = _value(self._round(strategy, number + 1, connected))
                    else:
                        row[number] = _value(self._redrawn(strategy, connected, means))
        return found / self.clipping_norm

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The exact log likelihood ratio of present against absent, up to floating-point rounding in Flower."""
        rate, variance = self.drawn / self.clients, self.noise_multiplier**2
        moved = self.drawn * (outputs[..., 0] + 1.0)
        with np.errstate(divide="ignore"):
            ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + (2.0 * moved - 2.0) / variance)
        return np.asarray(ratio.sum(axis=1), dtype=np.float64)

    def _strategy(self, noise_multiplier: float) -> Any:
        module = flower_module("flwr.serverapp.strategy")
        inner = module.FedAvg(
            fraction_train=self.drawn / self.clients / 2.0, min_train_nodes=self.drawn, min_available_nodes=self.drawn
        )
        return module.DifferentialPrivacyServerSideFixedClipping(
            inner, noise_multiplier, self.clipping_norm, self.drawn
        )

    def _round(self, strategy: Any, number: int, connected: list[int]) -> Any:
        """What a round over the connected clients releases."""
        app = flower_module("flwr.app")
        length = _LONG * self.clipping_norm
        model, member, other = (app.ArrayRecord([np.array([value])]) for value in (0.0, length, -length))
        replies = []
        for message in strategy.configure_train(number, model, app.ConfigRecord(), _Grid(connected)):
            sent = member if message.metadata.dst_node_id == self.clients else other
            content = app.RecordDict({"arrays": sent, "metrics": app.MetricRecord({"num-examples": 1})})
            replies.append(app.Message(content, reply_to=message))
        released, _ = strategy.aggregate_train(number, replies)
        return released

    def _means(self) -> tuple[Any, Any]:
        """The means of cohorts without and with the client, from rounds without noise in which all are drawn."""
        others = list(range(1, self.drawn + 1))
        without, included = others, [*others[1:], self.clients]
        with seeded_generators(np.random.default_rng(0)), _ready():
            return self._round(self._strategy(0.0), 1, without), self._round(self._strategy(0.0), 1, included)

    def _redrawn(self, strategy: Any, connected: list[int], means: tuple[Any, Any]) -> Any:
        """What a round releases: Flower draws and adds noise, the mean is known."""
        sample = flower_module("flwr.serverapp.strategy.strategy_utils").sample_nodes
        drawn, _ = sample(_Grid(connected), strategy.strategy.min_available_nodes, strategy.strategy.min_train_nodes)
        return strategy._add_noise_to_aggregated_arrays(means[self.clients in drawn])


def _value(released: Any) -> float:
    return float(released.to_numpy_ndarrays()[0][0])


class _Grid:
    """Who is connected; nothing is sent."""

    def __init__(self, connected: list[int]) -> None:
        self._connected = connected

    def get_node_ids(self) -> list[int]:
        """The connected clients."""
        return self._connected


@contextmanager
def seeded_generators(rng: np.random.Generator) -> Iterator[None]:
    """Both global generators that Flower and pfl draw from, seeded from `rng`; as they were, afterwards."""
    drawn, noise = random.getstate(), np.random.get_state()  # noqa: NPY002  # Flower draws from this one
    random.seed(int(rng.integers(2**63)))
    np.random.seed(rng.integers(2**32, size=8, dtype=np.uint64).astype(np.uint32))  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(drawn)
        np.random.set_state(noise)  # noqa: NPY002


@contextmanager
def _ready() -> Iterator[None]:
    """Flower without its log lines, and with the identity that messages outside of a simulation need."""
    identity = flower_module("flwr.supercore.task_identity").TaskIdentity
    logger = logging.getLogger("flwr")
    level, saved = logger.level, (identity._run_id, identity._task_id, identity._node_id)
    logger.setLevel(logging.ERROR)
    identity.run_id = identity.task_id = identity.node_id = 1
    try:
        yield
    finally:
        logger.setLevel(level)
        identity._run_id, identity._task_id, identity._node_id = saved
