"""pfl: what a simulated training executes, for one user.

    from calipers.adapters.pfl import read_backend
    read_backend(backend, cohort_size=10, rounds=100).epsilon(1e-5)

Read from the backend's own objects: its dataset (how users are drawn), its postprocessors (weighting, clipping, noise)
and its aggregator. pfl's accountants assume Poisson sampling; none of its user samplers draws so:

- `get_user_sampler("random", ids)` fills every place of a cohort with a uniformly random user: B of N with replacement;
- `get_user_sampler("minimize_reuse", ids)` goes through the users in a fixed order: no amplification at all.

The noise is that of the mechanism, `relative_noise_stddev`: an accountant's `noise_scale` has already reduced it.
The installed pfl is imported when a function is called. Checked with pfl 0.6.
"""

from __future__ import annotations

import inspect
import math
from importlib import metadata
from typing import Any

from calipers.adapters.federated import (
    GENERATORS,
    WHOLE_UPDATE,
    FederatedRun,
    drawn_rounds,
    known_rounds,
    scaled_noise,
)
from calipers.domains import COUNT, choice
from calipers.errors import InputError, UnsupportedError
from calipers.extras import library
from calipers.measure import CorrelatedNoise
from calipers.mechanisms.noise_matrix import NoiseMatrix, Patterns
from calipers.run import ADJACENCIES, Run

_MISSING = "Reading pfl needs pfl; install it with: pip install '.[pfl]'"
_KNOWN = " Calipers reads pfl 0.6."
FIXED_ORDER = (
    "Users come in a fixed order: without one of them all later cohorts hold other users, and nothing is proven for "
    "adding or removing a user. Ask for adjacency 'zero-out' or 'substitute'."
)
UNBOUNDED_MESSAGES = (
    "The noise of a local mechanism is on every message of a user, and with the sampler 'random' nobody bounds how "
    "many messages a user sends. Use get_user_sampler('minimize_reuse', ...)."
)
FINITE = "Every update is finite: pfl 0.6 does not clip one with a NaN in it."


def pfl_module(name: str) -> Any:
    """A module of the installed pfl, or `MissingExtraError` with the line to type."""
    return library(name, _MISSING, _KNOWN)


def pfl_version() -> str:
    """The installed release, which the package itself does not name."""
    pfl_module("pfl")
    return metadata.version("pfl")


def read_backend(
    backend: Any, *, cohort_size: int, rounds: int, adjacency: str = "add-remove", users: int | None = None
) -> FederatedRun:
    """What a `SimulatedBackend` executes in so many training rounds.

    Args:
        backend: the `SimulatedBackend`, with its training dataset and postprocessors.
        cohort_size: users per round (`train_cohort_size`).
        rounds: how many aggregates are released (central iterations with training).
        adjacency: add-remove, zero-out (the user's statistics are zero) or substitute.
        users: how many users there are, where the sampler does not say ("minimize_reuse").

    Returns:
        The run, whose certified upper bound holds under its `conditions`.

    Raises:
        UnsupportedError: nothing is proven for this configuration; the message says why and what to change.
    """
    COUNT.check_int("cohort_size", cohort_size)
    COUNT.check_int("rounds", rounds)
    choice("adjacency", adjacency, ADJACENCIES)
    check_backend(backend)
    mechanism, local = mechanism_of(backend._postprocessors)
    draw, found = users_of(backend._training_dataset, users)
    if found is None:
        raise InputError("The sampler 'minimize_reuse' does not say how many users there are; add users.")
    conditions = (FINITE, *scaled_down(mechanism), WHOLE_UPDATE, GENERATORS)
    banded = pfl_module("pfl.privacy.ftrl_mechanism").BandedMatrixFactorizationMechanism
    noise = noise_for(adjacency, noise_of(mechanism), backend._postprocessors)
    if draw == "random" and not local:
        if isinstance(mechanism, banded):
            raise UnsupportedError(
                "Banded matrix factorization needs rounds between two participations of a user, and the sampler "
                "'random' guarantees none. Use get_user_sampler('minimize_reuse', ...)."
            )
        run = drawn_rounds("with-replacement", found, cohort_size, noise, rounds, adjacency)
        return FederatedRun((run,), conditions)
    if draw == "random":
        raise UnsupportedError(UNBOUNDED_MESSAGES)
    return FederatedRun(_in_turn(mechanism, found, cohort_size, noise, rounds, adjacency, local), conditions)


def _in_turn(
    mechanism: Any, users: int, cohort_size: int, noise: float, rounds: int, adjacency: str, local: bool
) -> tuple[Run, ...] | CorrelatedNoise:
    """Users in a fixed order: each takes part at known times, at most this often."""
    if adjacency == "add-remove":
        raise UnsupportedError(FIXED_ORDER)
    if cohort_size > users:
        raise UnsupportedError(f"A cohort of {cohort_size} holds some of the {users} users twice; use smaller cohorts.")
    times = -(-rounds * cohort_size // users)
    if not isinstance(mechanism, pfl_module("pfl.privacy.ftrl_mechanism").BandedMatrixFactorizationMechanism):
        return (known_rounds(users, noise, times, adjacency),)
    if local:
        raise UnsupportedError("Banded matrix factorization correlates noise on the server; apply it centrally.")
    matrix = NoiseMatrix.of(mechanism.query_matrix, "pfl's banded query matrix")
    if rounds > matrix.steps:
        raise InputError(f"The mechanism was made for {matrix.steps} rounds, got {rounds}.")
    return CorrelatedNoise(matrix, noise, Patterns(users // cohort_size, times), adjacency=adjacency)


def check_backend(backend: Any) -> None:
    """`UnsupportedError` for a backend that may combine users otherwise than by the sum over a cohort."""
    base = pfl_module("pfl.aggregate.base")
    if type(backend) is not pfl_module("pfl.aggregate.simulate").SimulatedBackend:
        raise UnsupportedError(f"Expected pfl's SimulatedBackend, got {type(backend).__name__}; no other is known.")
    if type(backend._aggregator) is not base.SumAggregator:
        raise UnsupportedError(
            f"{type(backend._aggregator).__name__} may combine users otherwise than by a sum; use SumAggregator."
        )
    if backend._max_overshoot_fraction:
        raise UnsupportedError(
            "With max_overshoot_fraction cohorts have a random size and the noise stays the same; measure without it."
        )


def mechanism_of(postprocessors: list[Any]) -> tuple[Any, bool]:
    """The Gaussian mechanism, and whether it is applied to every user's statistics by itself."""
    privacy = pfl_module("pfl.privacy.privacy_mechanism")
    weighting = pfl_module("pfl.aggregate.weighting")
    found: list[tuple[Any, bool]] = []
    for one in postprocessors:
        if type(one) is weighting.WeightByDatapoints:
            raise UnsupportedError(
                "WeightByDatapoints divides the sum by the exact number of data points of the cohort, which no noise "
                "protects. Use WeightByUser."
            )
        if type(one) is weighting.WeightByUser and any(made is not None for made, _ in found):
            raise UnsupportedError(
                "WeightByUser after the mechanism divides a clipped contribution by the weight it had, which may make "
                "it longer again. Put it before the mechanism."
            )
        if isinstance(one, privacy.CentralPrivacyMechanism):
            found.append((_gaussian(_underlying(one)), False))
        elif isinstance(one, privacy.LocalPrivacyMechanism) and type(one) is not privacy.NoPrivacy:
            found.append((_gaussian(one), True))
        elif type(one) not in (weighting.WeightByUser, privacy.NoPrivacy):
            raise UnsupportedError(f"What {type(one).__name__} does to a user's statistics is not known; leave it out.")
    found = [(mechanism, local) for mechanism, local in found if mechanism is not None]
    if len(found) != 1:
        raise UnsupportedError(f"Expected one Gaussian mechanism among the postprocessors, found {len(found)}.")
    return found[0]


def _underlying(central: Any) -> Any:
    privacy = pfl_module("pfl.privacy.privacy_mechanism")
    adaptive = pfl_module("pfl.privacy.adaptive_clipping").AdaptiveClippingGaussianMechanism
    if type(central) not in (privacy.CentrallyAppliedPrivacyMechanism, adaptive):
        raise UnsupportedError(
            f"{type(central).__name__} approximates or combines mechanisms; its noise is not that of one Gaussian "
            "mechanism, and nothing is proven for it."
        )
    # Adaptive clipping: indicator and update are one vector, and the noise is relative to the norm of both together.
    return central.underlying_mechanism


def _gaussian(mechanism: Any) -> Any:
    """The mechanism if it is Gaussian; None if it protects nothing by design."""
    gaussian = pfl_module("pfl.privacy.gaussian_mechanism").GaussianMechanism
    banded = pfl_module("pfl.privacy.ftrl_mechanism").BandedMatrixFactorizationMechanism
    if type(mechanism) is pfl_module("pfl.privacy.privacy_mechanism").NoPrivacy:
        return None
    if type(mechanism) not in (gaussian, banded):
        raise UnsupportedError(
            f"{type(mechanism).__name__} is not the Gaussian mechanism; nothing is proven for its noise here."
        )
    return mechanism


def users_of(dataset: Any, users: int | None) -> tuple[str, int | None]:
    """How users are drawn, "random" or "in turn", and how many there are (None: neither sampler nor `users` says)."""
    data, sampling = pfl_module("pfl.data.federated_dataset"), pfl_module("pfl.data.sampling")
    if isinstance(dataset, data.ArtificialFederatedDataset):
        raise UnsupportedError(
            "ArtificialFederatedDataset makes up a new user for every place of a cohort from all data points: there is "
            "no user whose data one could add or remove. Use FederatedDataset with users that stay the same."
        )
    if not isinstance(dataset, data.FederatedDataset) or not type(dataset).__module__.startswith("pfl.data."):
        raise UnsupportedError(f"How {type(dataset).__name__} draws users is not known; use FederatedDataset.")
    sampler = dataset.user_sampler
    if type(sampler) is sampling.MinimizeReuseUserSampler:
        return "in turn", None if users is None else COUNT.check_int("users", users)
    if getattr(sampler, "__qualname__", "") == "get_user_sampler.<locals>.<lambda>":
        ids = list(inspect.getclosurevars(sampler).nonlocals["user_ids"])
        if len(set(ids)) < len(ids) or users not in (None, len(ids)):
            raise InputError(f"Expected {users or 'different'} users, the sampler has {len(ids)} entries.")
        return "random", len(ids)
    name = getattr(sampler, "__name__", type(sampler).__name__)
    raise UnsupportedError(
        f"How {name} draws users is not known; use get_user_sampler('random', ids) or ('minimize_reuse', ids), without "
        "silos."
    )


def noise_of(mechanism: Any) -> float:
    """The deviation of the noise on the sum, in clipping bounds; `UnsupportedError` where there is none."""
    noise = float(mechanism.relative_noise_stddev)
    if not noise > 0:
        raise UnsupportedError("The mechanism adds no noise (relative_noise_stddev=0): nothing is protected.")
    return noise


def noise_for(adjacency: str, noise: float, postprocessors: list[Any]) -> float:
    """The noise multiplier for these neighbors: with adaptive clipping a zeroed-out user also turns its indicator.

    The indicator is +s or -s, and noise is relative to the length L of update and indicator together: L^2 = C^2 + s^2.
    An update of norm C whose indicator is -s becomes 0 with indicator +s and moves the sum by C^2 + 4 s^2, squared.
    """
    adaptive = pfl_module("pfl.privacy.adaptive_clipping").AdaptiveClippingGaussianMechanism
    found = [one for one in postprocessors if type(one) is adaptive]
    if adjacency != "zero-out" or not found:
        return noise
    share = noise / float(found[0]._clipping_indicator_noise_stddev)  # s / L
    return scaled_noise(noise, 1.0, math.sqrt(1.0 + 3.0 * share * share))


def scaled_down(mechanism: Any) -> tuple[str, ...]:
    """A sentence if the accountant's `noise_scale` has reduced the noise."""
    accountant = getattr(mechanism, "_privacy_accountant", None)
    if accountant is None or accountant.noise_scale == 1.0:
        return ()
    return (
        f"The noise is {accountant.noise_scale:g} of what pfl's accountant was asked for (noise_scale): its epsilon is "
        "about a larger cohort that was not simulated, this one about the rounds that were.",
    )
