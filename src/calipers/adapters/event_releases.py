"""Releases that dp_accounting has events for next to Gaussian and Laplace noise, read by the name of their class.

Some of them exist in newer versions of the library only; a name is all that is needed, so what is installed decides.

| event                                | read as                                                                   |
|--------------------------------------|---------------------------------------------------------------------------|
| MixtureOfGaussiansDpEvent            | the mixture against N(0, 1), both orders: proven and attained             |
| EpsilonDeltaDpEvent                  | randomized response with a mass delta in the clear                        |
| ZCDpEvent                            | what the Renyi bounds imply, and what some zCDP mechanism attains         |
| DiscreteGaussianDpEvent, dimension 1 | the discrete Gaussian, proven and attained                                |
| the same in more dimensions          | above zCDP, below one coordinate                                          |
| ExponentialMechanismDpEvent          | bounded range above, two candidates below                                 |
| PermuteAndFlipDpEvent                | Laplace above, two candidates below                                       |
| SingleEpochTreeAggregationDpEvent    | above a Gaussian for every level of the tree, below the complete nodes    |
| TruncatedSubsampledGaussianDpEvent   | above `calipers.pld.subsampling.truncated`, below the record among zeros
   |

An epsilon, a rho or a sensitivity is taken as the event states it, whatever the neighbors are; a mixture of Gaussians
is about adding or removing a record. Of the datasets of a truncated batch the larger one has `dataset_size` records, as
the library reads its event (a run measures both neighbors of the user's own dataset).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from calipers.domains import NON_NEGATIVE, OPEN_UNIT, POSITIVE, POSITIVE_PROBABILITY, PROBABILITY, Domain
from calipers.errors import InputError, UnsupportedError
from calipers.mechanisms.classic import approximate_dp
from calipers.mechanisms.concentrated import Concentrated
from calipers.mechanisms.discrete_gaussian import DiscreteGaussian
from calipers.mechanisms.gaussian import gaussian, poisson_gaussian
from calipers.mechanisms.sided import Sided, exponential_mechanism, permute_and_flip
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.pair import Pair
from calipers.pld.core.source import TwoSidedPair
from calipers.pld.subsampling.truncated import truncated_attack, truncated_proof
from calipers.pld.subsampling.truncation import Truncation

EventParameters = tuple[float, ...]
STEPS = Domain(1, 2**40, integer=True)
NATURAL = Domain(0, 2**40, integer=True)
POSITIVE_COUNT = Domain(1, 2**53, integer=True)
_NO_NOISE = "Without noise there is no privacy to measure."
_REMEDIES = dict.fromkeys(("noise_multiplier", "noise_parameter"), _NO_NOISE)


def _numbers(**domains: Domain) -> Callable[[Any], EventParameters]:
    """A reader of these numbers of an event, each in its domain."""
    return lambda event: tuple(
        domain.check(name, getattr(event, name), _REMEDIES.get(name, "")) for name, domain in domains.items()
    )


def _read_mixture(event: Any) -> EventParameters:
    """(deviation, shifts..., weights...), shifts that never happen left out."""
    deviation = POSITIVE.check("standard_deviation", event.standard_deviation, _NO_NOISE)
    shifts = [NON_NEGATIVE.check("sensitivity", float(shift)) for shift in event.sensitivities]
    weights = [NON_NEGATIVE.check("sampling_prob", float(weight)) for weight in event.sampling_probs]
    if len(shifts) != len(weights) or not shifts or abs(math.fsum(weights) - 1.0) > 1e-12:
        raise InputError("MixtureOfGaussiansDpEvent needs one probability per sensitivity, with sum 1.")
    kept: dict[float, float] = {}
    for shift, weight in zip(shifts, weights, strict=True):
        if weight > 0.0:
            kept[shift] = kept.get(shift, 0.0) + weight
    ordered = sorted(kept.items())
    return (deviation, *(shift for shift, _ in ordered), *(weight for _, weight in ordered))


def _mixture(parameters: EventParameters) -> TwoSidedPair:
    deviation, rest = parameters[0], parameters[1:]
    shifts, weights = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    if len(shifts) == 1:
        return gaussian(shifts[0] / deviation)
    # Weights with sum 1 up to 1e-12: what is missing is charged to the first one.
    whole = (1.0 - math.fsum(weights[1:]), *weights[1:])
    part = gaussian_mixture_part(whole, tuple(shift / deviation for shift in shifts), (1.0,), (0.0,))
    words = ", ".join(f"{weight:.6g} at {shift:g}" for shift, weight in list(zip(shifts, weights, strict=True))[:4])
    return Pair(f"mixture of Gaussians, sigma = {deviation:g} ({words}{', ...' if len(shifts) > 4 else ''})", (part,))


def _read_approximate(event: Any) -> EventParameters:
    delta = NON_NEGATIVE.check("delta", event.delta)
    if delta > 0.0:
        OPEN_UNIT.check("delta", delta)
    return (NON_NEGATIVE.check("epsilon", event.epsilon), delta)


def _read_discrete_gaussian(event: Any) -> EventParameters:
    sigma = POSITIVE.check("sigma", event.sigma, _NO_NOISE)
    dimension = 0 if event.dimension is None else STEPS.check_int("dimension", event.dimension)
    return (sigma, POSITIVE.check("sensitivity", event.sensitivity), float(dimension))


def _discrete_gaussian(parameters: EventParameters) -> TwoSidedPair:
    sigma, sensitivity, dimension = parameters
    if sensitivity < 1.0:
        raise UnsupportedError(f"A sensitivity of {sensitivity:g} moves no integer: such a release shows nothing.")
    one = DiscreteGaussian(sigma, math.floor(sensitivity))  # integers move by whole steps
    if dimension == 1.0:
        return one
    rho = 0.5 * (sensitivity / sigma) ** 2 * (1.0 + 1e-15)
    return Sided(f"{one.words}, in several dimensions", Concentrated(rho), one)


def _read_tree(event: Any) -> EventParameters:
    counts = event.step_counts if isinstance(event.step_counts, list | tuple | np.ndarray) else [event.step_counts]
    steps = max(STEPS.check_int("step_counts", int(count)) for count in counts)
    return (POSITIVE.check("noise_multiplier", event.noise_multiplier, _NO_NOISE), float(steps))


def _tree(parameters: EventParameters) -> TwoSidedPair:
    """The record is in one leaf and in every node above it; only complete nodes are sure to be released."""
    noise, steps = parameters[0], int(parameters[1])
    levels, complete = (steps - 1).bit_length() + 1, steps.bit_length()
    above, below = gaussian(math.sqrt(levels) / noise), gaussian(math.sqrt(complete) / noise)
    name = f"tree aggregation of {steps} steps, sigma = {noise:g}"
    return above if levels == complete else Sided(name, above, below)


def truncated_release(parameters: EventParameters, adjacency: str) -> TwoSidedPair:
    """One step of Poisson sampling with a largest batch."""
    (noise, rate), (size, largest) = parameters[:2], (int(number) for number in parameters[2:])
    if size <= largest:
        return poisson_gaussian(rate, noise, adjacency)
    truncation = Truncation(size - 1, rate, largest)
    above = truncated_proof(truncation, 1.0 / noise, adjacency)
    return Sided(above.name, above, truncated_attack(truncation, 1.0 / noise, adjacency))


READERS: dict[str, tuple[str, Callable[[Any], EventParameters]]] = {
    "DiscreteGaussianDpEvent": ("discrete Gaussian", _read_discrete_gaussian),
    "DiscreteLaplaceDpEvent": ("discrete Laplace", _numbers(noise_parameter=POSITIVE, sensitivity=POSITIVE_COUNT)),
    "EpsilonDeltaDpEvent": ("epsilon-delta", _read_approximate),
    "ExponentialMechanismDpEvent": ("exponential", _numbers(epsilon=POSITIVE)),
    "GaussianDpEvent": ("Gaussian", _numbers(noise_multiplier=POSITIVE)),
    "LaplaceDpEvent": ("Laplace", _numbers(noise_multiplier=POSITIVE)),
    "MixtureOfGaussiansDpEvent": ("mixture", _read_mixture),
    "PermuteAndFlipDpEvent": ("permute-and-flip", _numbers(epsilon=POSITIVE)),
    "RandomizedResponseDpEvent": (
        "randomized response",
        _numbers(noise_parameter=POSITIVE_PROBABILITY, num_buckets=POSITIVE_COUNT),
    ),
    "SingleEpochTreeAggregationDpEvent": ("tree", _read_tree),
    "TruncatedSubsampledGaussianDpEvent": (
        "truncated",
        _numbers(
            noise_multiplier=POSITIVE,
            sampling_probability=PROBABILITY,
            dataset_size=NATURAL,
            truncated_batch_size=NATURAL,
        ),
    ),
    "ZCDpEvent": ("zCDP", _numbers(rho=POSITIVE, xi=NON_NEGATIVE)),
}
"""Names of events, with the kind of release that they are and what is read of them."""

# What a release is a pair of; that of truncated batches depends on the neighbors too.
PAIRS: dict[str, Callable[[EventParameters], TwoSidedPair]] = {
    "discrete Gaussian": _discrete_gaussian,
    "epsilon-delta": lambda stated: approximate_dp(*stated),
    "exponential": lambda stated: exponential_mechanism(*stated),
    "mixture": _mixture,
    "permute-and-flip": lambda stated: permute_and_flip(*stated),
    "tree": _tree,
    "truncated": lambda stated: truncated_release(stated, "add-remove"),
    "zCDP": lambda stated: Concentrated(*stated),
}


def is_silent(kind: str, parameters: EventParameters) -> bool:
    """Whether such a release shows nothing: a mixture that is N(0, 1) itself, (0, 0)-DP, batches without records."""
    if kind == "mixture":
        return len(parameters) == 3 and parameters[1] == 0.0
    if kind == "truncated":
        return 0.0 in parameters[1:]
    if kind == "randomized response":
        return 1.0 in parameters  # whoever answers at random, or has one answer only, tells nothing
    return kind == "epsilon-delta" and parameters == (0.0, 0.0)
