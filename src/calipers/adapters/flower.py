"""Flower: what a strategy with differential privacy executes, for one client.

    from calipers.adapters.flower import read_strategy
    read_strategy(strategy, clients=1000, rounds=100, equal_weights=True).epsilon(1e-5)

Read from the strategy's own objects: how many clients `FedAvg` draws (`random.sample`: B of the N that are connected,
without replacement), what the mean is divided by, and how much noise the wrapper adds to it. A client that is drawn
displaces another one, so adding or removing it moves the sum by up to 2C.

With adaptive clipping a round releases a noisy count and, with noise that depends on it, the mean. Both are dominated
by one Gaussian release with the least noise that any data can lead to, up to a failure probability that is added to
delta (that a round has less noise is an event of the released counts). No lower bound is claimed.

What is refused, with its reason: adaptive clipping on the client side, aggregation other than the mean, weights that
may differ, a number of drawn clients that changes with one client more or less, clipping on the client side that no mod
performs, and clipping on the server under secure aggregation.

The installed Flower is imported when a function is called. Checked with Flower 1.42.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri

from calipers.adapters.federated import (
    GENERATORS,
    WHOLE_UPDATE,
    FederatedRun,
    drawn_rounds,
    known_rounds,
    scaled_noise,
)
from calipers.domains import COUNT, POSITIVE, choice
from calipers.errors import InputError, UnsupportedError
from calipers.extras import library
from calipers.measure import count_noise, joint_noise
from calipers.run import ADJACENCIES

_MISSING = "Reading Flower needs Flower; install it with: pip install '.[flower]'"
_KNOWN = " Calipers reads Flower 1.42."

EQUAL_WEIGHTS = "Every client reports the same weight (number of examples), with and without the client in question."
REPLIES = "Every client that is drawn replies. Who is connected, and who fails, does not depend on the clients' data."
FINITE = (
    "Every update is finite and not exactly zero: Flower 1.42 does not clip an update with a NaN in it, and fails on "
    "one of norm 0."
)


def flower_module(name: str) -> Any:
    """A module of the installed Flower, or `MissingExtraError` with the line to type."""
    return library(name, _MISSING, _KNOWN)


@dataclass(frozen=True)
class _Interface:
    """How one of Flower's two interfaces calls what both have."""

    module: str
    fraction: str
    least_drawn: str
    least_connected: str
    configure: str
    aggregate: str


MESSAGES = _Interface(
    "flwr.serverapp.strategy", "fraction_train", "min_train_nodes", "min_available_nodes", "configure_train",
    "aggregate_train",
)  # fmt: skip
_LEGACY = _Interface(
    "flwr.server.strategy", "fraction_fit", "min_fit_clients", "min_available_clients", "configure_fit",
    "aggregate_fit",
)  # fmt: skip


@dataclass(frozen=True)
class Wrapper:
    """A strategy wrapper around a strategy that averages."""

    strategy: Any
    interface: _Interface
    client_side: bool
    adaptive: bool = False

    @property
    def noise_multiplier(self) -> float:
        """As configured: the deviation of the noise on a sum over `num_sampled_clients` clients, in clipping norms."""
        return float(self.strategy.noise_multiplier)

    def drawn_of(self, clients: int) -> int:
        """How many clients are drawn when so many are connected."""
        inner = self.strategy.strategy
        share = int(clients * getattr(inner, self.interface.fraction))
        return max(share, int(getattr(inner, self.interface.least_drawn)))

    def needed(self, clients: int) -> int:
        """How many clients must be connected for a round to begin, when the number to draw is that of `clients`."""
        return max(self.drawn_of(clients), int(getattr(self.strategy.strategy, self.interface.least_connected)))

    def moving(self, clients: int) -> str:
        """Why add-remove neighbors of `clients` connected clients cannot be compared, or nothing."""
        drawn, fewer = self.drawn_of(clients), self.drawn_of(clients - 1) if clients > 1 else 0
        names = self.interface
        if drawn != fewer:
            return (
                f"The number of clients drawn tells how many are connected: {drawn} of {clients}, {fewer} of "
                f"{clients - 1}. Set {names.least_drawn}={drawn} and {names.fraction} below {drawn}/{clients}, or "
                "measure adjacency 'zero-out' or 'substitute'."
            )
        if clients - 1 < self.needed(clients - 1):
            return (
                f"Without one of the {clients} clients no round begins: Flower waits for {self.needed(clients - 1)}. "
                f"Lower {names.least_connected} and {names.least_drawn}, or measure adjacency 'zero-out' or "
                "'substitute'."
            )
        return ""

    def noise_of(self, averaged: int) -> float:
        """The noise multiplier of a mean over so many clients: the noise is calibrated for num_sampled_clients."""
        return scaled_noise(self.noise_multiplier, averaged, int(self.strategy.num_sampled_clients))


def wrapper_of(strategy: Any, adaptive: bool = False) -> Wrapper:
    """The wrapper, or `UnsupportedError` saying why nothing is proven for this strategy; `adaptive`: also such ones."""
    for interface in (MESSAGES, _LEGACY):
        module = flower_module(interface.module)
        for side in ("Server", "Client"):
            if type(strategy) is getattr(module, f"DifferentialPrivacy{side}SideFixedClipping"):
                _check_mean(strategy.strategy, interface, module)
                if not strategy.noise_multiplier > 0:
                    raise UnsupportedError("The strategy adds no noise (noise_multiplier=0): nothing is protected.")
                return Wrapper(strategy, interface, side == "Client")
            learns = getattr(module, f"DifferentialPrivacy{side}SideAdaptiveClipping")
            if adaptive and type(strategy) is learns and interface is MESSAGES and side == "Server":
                _check_mean(strategy.strategy, interface, module)
                if not (strategy.noise_multiplier > 0 and strategy.clipped_count_stddev > 0):
                    raise UnsupportedError("The strategy adds no noise (noise_multiplier=0): nothing is protected.")
                return Wrapper(strategy, interface, False, True)
            if isinstance(strategy, learns):
                raise UnsupportedError(_ADAPTIVE_CLIENTS if side == "Client" else _ADAPTIVE)
    name = type(strategy).__name__
    raise UnsupportedError(
        f"{name} is none of Flower's DifferentialPrivacy...FixedClipping wrappers, and a class derived from one may "
        "release anything. Wrap the strategy in one of them."
    )


_ADAPTIVE = (
    "With adaptive clipping Flower scales the noise by the clipping norm *after* its update. How much noise a round "
    "had depends on what was released: it is bounded before the training (read_strategy, with a strategy of "
    "flwr.serverapp.strategy), not counted after it. Use a FixedClipping wrapper."
)
_ADAPTIVE_CLIENTS = (
    "With adaptive clipping on the client side every client reports whether it was clipped, and FedAvg releases the "
    "mean of these bits among the metrics, without noise. Use DifferentialPrivacyServerSideAdaptiveClipping of "
    "flwr.serverapp.strategy, or a FixedClipping wrapper."
)
SHRUNK = (
    "The clipping norm is learned from a noisy count, and noise is relative to the norm after its update: counted is "
    "the least noise that any data can lead to. No attack is claimed."
)
FAILURE = 1e-12
"""Probability, over all rounds, that the noise on a count makes the clipping norm shrink by more than is counted."""


def least_noise(wrapper: Wrapper, averaged: int, rounds: int) -> float:
    """The noise multiplier of an adaptively clipped mean, but for `FAILURE`.

    Updates are clipped to C; then C becomes C exp(-lr (share - quantile)), and the noise is relative to that. The share
    of clipped updates is at most 1, its noise at most z deviations of the count, but for FAILURE / rounds.
    """
    strategy = wrapper.strategy
    deviations = -float(ndtri(FAILURE / rounds))
    largest = 1.0 + deviations * float(strategy.clipped_count_stddev) / averaged
    shrunk = math.exp(-float(strategy.clip_norm_lr) * (largest - float(strategy.target_clipped_quantile)))
    return math.nextafter(wrapper.noise_of(averaged) * shrunk * (1.0 - 2.0**-48), 0.0)


def _check_mean(inner: Any, interface: _Interface, module: Any) -> None:
    own = type(inner)
    mean = module.FedAvg
    same = isinstance(inner, mean) and getattr(own, interface.aggregate) is getattr(mean, interface.aggregate)
    configures = {getattr(mean, interface.configure), getattr(module.FedProx, interface.configure)}
    if not same:
        raise UnsupportedError(
            f"{own.__name__} does not release the mean of the clipped updates: the noise is added to the result of its "
            "aggregate, which one client may move by more than C / num_sampled_clients. Use FedAvg or FedProx."
        )
    if getattr(own, interface.configure) not in configures:
        raise UnsupportedError(f"How {own.__name__} draws clients is not known; use FedAvg or FedProx.")


def read_strategy(
    strategy: Any,
    *,
    clients: int,
    rounds: int,
    adjacency: str = "add-remove",
    equal_weights: bool = False,
    mods: Sequence[Any] = (),
    secure_aggregation: Any = None,
    examples_per_client: int | None = None,
    dimension: int | None = None,
) -> FederatedRun:
    """What a strategy executes in so many rounds, if every client that is drawn replies.

    Args:
        strategy: a DifferentialPrivacy...FixedClipping wrapper of `flwr.serverapp.strategy` or `flwr.server.strategy`,
            or the former's DifferentialPrivacyServerSideAdaptiveClipping.
        clients: how many clients are connected in every round, the one in question included.
        rounds: how many aggregates are released.
        adjacency: add-remove, zero-out (the client's update is zero) or substitute.
        equal_weights: whether every client reports the same number of examples; an accountant of Flower enforces it.
        mods: the mods of the ClientApp, where clipping happens on the client side.
        secure_aggregation: the SecAgg+ workflow, where one is used; its rounding needs the next two.
        examples_per_client: the number of examples every client reports.
        dimension: the number of trained parameters.

    Returns:
        The run, whose certified upper bound holds under its `conditions`.

    Raises:
        UnsupportedError: nothing is proven for this configuration; the message says why and what to change.
    """
    COUNT.check_int("clients", clients)
    COUNT.check_int("rounds", rounds)
    choice("adjacency", adjacency, ADJACENCIES)
    wrapper = wrapper_of(strategy, adaptive=True)
    if getattr(strategy, "accountant", None) is None and not equal_weights:
        raise UnsupportedError(
            "Flower weights clients by their number of examples, and its noise is calibrated for equal weights: a "
            "client with k times the mean weight is protected by 1/k of the noise. If every client reports the same "
            "number, say equal_weights=True; else let every client report 1."
        )
    if wrapper.client_side:
        check_clipped_by_clients(mods)
    drawn = wrapper.drawn_of(clients)
    if drawn > clients:
        raise InputError(f"{drawn} clients are drawn in every round and {clients} are connected; no round begins.")
    if adjacency == "add-remove" and (why := wrapper.moving(clients)):
        raise UnsupportedError(why)
    noise, reasons = wrapper.noise_of(drawn), list[str]()
    if secure_aggregation is not None:
        check_secure_aggregation(wrapper)
        noise = rounded_noise(noise, wrapper, secure_aggregation, drawn, examples_per_client, dimension)
        reasons.append(ROUNDED)
    conditions = (EQUAL_WEIGHTS, REPLIES, FINITE, WHOLE_UPDATE, GENERATORS)
    run = drawn_rounds("without-replacement", clients, drawn, noise, rounds, adjacency)
    if wrapper.adaptive:
        counts = count_noise(float(strategy.clipped_count_stddev), run)
        run = run.replace(noise_multiplier=joint_noise(least_noise(wrapper, drawn, rounds), counts))
        return FederatedRun((run,), conditions, False, (SHRUNK,), FAILURE)
    return FederatedRun((run,), conditions, not reasons, tuple(reasons))


def check_clipped_by_clients(mods: Sequence[Any]) -> None:
    """Refuse mods of which none clips, or that touch the update after it was clipped."""
    module = flower_module("flwr.clientapp.mod")
    legacy = flower_module("flwr.client.mod")
    clipping = {module.fixedclipping_mod, legacy.fixedclipping_mod}
    masking = {legacy.secagg_mod, legacy.secaggplus_mod}
    after = [mod for mod in mods if mod not in masking]
    if not after or after[0] not in clipping:
        found = ", ".join(getattr(mod, "__name__", type(mod).__name__) for mod in mods) or "none"
        raise UnsupportedError(
            "The server clips nothing with this wrapper: every client has to, last of all. Expected fixedclipping_mod "
            f"as the first of the ClientApp's mods (after secaggplus_mod, if that is there), got {found}; say mods=..."
        )


ROUNDED = (
    "Secure aggregation rounds every client's parameters at random to a grid; the bound counts the rounding of all "
    "parameters as if the client had chosen it. No attack is claimed."
)


def check_secure_aggregation(wrapper: Wrapper) -> None:
    """Refuse clipping on the server, which sees no single update."""
    if not wrapper.client_side:
        raise UnsupportedError(
            "With secure aggregation the server sees the mean alone and clips that: no update is clipped, and one "
            "client may move the mean by up to 2C. Use DifferentialPrivacyClientSideFixedClipping."
        )


def rounded_noise(
    noise: float, wrapper: Wrapper, workflow: Any, drawn: int, examples: int | None, dimension: int | None
) -> float:
    """The noise multiplier where secure aggregation's rounding counts as a part of the update."""
    norm = float(wrapper.strategy.clipping_norm)
    return scaled_noise(noise, norm, norm + _rounding(workflow, drawn, examples, dimension))


def _rounding(workflow: Any, drawn: int, examples: int | None, dimension: int | None) -> float:
    """By how much stochastic rounding can lengthen what one client changes in the sum."""
    if examples is None or dimension is None:
        raise InputError("The rounding of secure aggregation needs examples_per_client and dimension.")
    COUNT.check_int("examples_per_client", examples)
    COUNT.check_int("dimension", dimension)
    levels, modulus = int(workflow.quantization_range), int(workflow.modulus_range)
    weight = round(examples / float(workflow.max_weight) * levels)
    if not 0 < weight <= levels:
        raise UnsupportedError(
            f"Secure aggregation multiplies updates by {examples}/{float(workflow.max_weight):g}, which it needs to be "
            "above 0 and at most 1; raise max_weight."
        )
    if drawn * (levels + 1) >= modulus:
        raise UnsupportedError(
            f"The sum of {drawn} clients can exceed modulus_range={modulus} and wrap around; raise modulus_range or "
            "lower quantization_range."
        )
    grid = 2.0 * float(workflow.clipping_range) / levels
    # What a client sends with its data and what it would send without are both rounded, by less than one level each.
    return 2.0 * math.sqrt(dimension) * grid * (levels / weight)


def read_local(mod: Any, *, rounds: int, adjacency: str = "substitute") -> FederatedRun:
    """What `LocalDpMod` makes of a client's messages, for whoever sees all of them and knows whose they are.

    The mod states an (epsilon, delta) for one message, from the noise of the classic Gaussian mechanism for its own
    `sensitivity`. Measured is the noise it adds against the norm it clips to, over all messages.

    Args:
        mod: a `LocalDpMod`.
        rounds: in how many rounds the client takes part, at most.
        adjacency: substitute (two updates of norm C differ by up to 2C) or zero-out.

    Returns:
        The run, one Gaussian release a round at known times.
    """
    COUNT.check_int("rounds", rounds)
    module = flower_module("flwr.clientapp.mod")
    legacy = flower_module("flwr.client.mod")
    if type(mod) not in (module.LocalDpMod, legacy.LocalDpMod):
        raise InputError(f"Expected a LocalDpMod of Flower, got {type(mod).__name__}.")
    if choice("adjacency", adjacency, ADJACENCIES) == "add-remove":
        raise UnsupportedError(
            "Whoever sees a client's messages sees that it is there; local differential privacy compares what a client "
            "sends. Use adjacency 'substitute' or 'zero-out'."
        )
    for name in ("epsilon", "delta", "sensitivity"):
        POSITIVE.check(name, getattr(mod, name), "LocalDpMod divides by it or scales its noise with it.")
    if mod.delta >= 1.25:
        raise UnsupportedError(f"delta={mod.delta} leaves no noise at all.")
    deviation = mod.sensitivity * math.sqrt(2.0 * math.log(1.25 / mod.delta)) / mod.epsilon
    noise = scaled_noise(deviation, 1.0, float(mod.clipping_norm))
    return FederatedRun((known_rounds(1, noise, rounds, adjacency),), (FINITE, WHOLE_UPDATE, GENERATORS))
