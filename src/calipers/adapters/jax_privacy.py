"""Execution plans of JAX-Privacy as runs.

A `BandMFConfig` (called `BandMFExecutionPlanConfig` before 2.3) states everything a `Run` needs: how batches are
selected, for how many iterations, the clipping norm, what the clipped sum is divided by, and the noise::

    from calipers.adapters.jax_privacy import run_of
    bracket = measure(run_of(config, dataset_size=60_000)).epsilon(delta=1e-5)

What is read:

- **batches**: every strategy of `jax_privacy.batch_selection` that a `Run` can describe: `batch_keys`. Those whose
  rounds depend on each other (b-min-sep) are refused with the reason; so is noise that is correlated across rounds.
- **noise**: the plan scales it to noise_multiplier x sensitivity, and the sensitivity of replacing a record is
  twice the clipping norm. A `Run` measures noise against the clipping norm, so under REPLACE_ONE its noise
  multiplier is twice the plan's.
- **division**: `normalize_by` is a number in the configuration, the same for both neighbors: "constant". Whoever
  computes it from the size of the dataset makes it depend on the data, and that cannot be seen here; the
  configuration's own advice is not to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from calipers.adapters.dp_accounting import RELATIONS
from calipers.errors import InputError, UnsupportedError
from calipers.extras import library
from calipers.run import Run

# Where plans have lived, the newest place first: top level since 2.2, experimental before.
_PLANS = ("jax_privacy.execution_plan", "jax_privacy.experimental.execution_plan")
# What their configuration has been called, the newest name first: since 2.3, before.
_CONFIGURATIONS = ("BandMFConfig", "BandMFExecutionPlanConfig")


def library_module(name: str = "jax_privacy") -> Any:
    """The module called `name` of JAX-Privacy or of what comes with it (see `calipers.extras.library`)."""
    missing = f"This needs the library {name.partition('.')[0]} (JAX-Privacy 2.0 or newer)"
    return library(name, f"{missing}: pip install '.[jax-privacy]'.")


def _plan_names() -> tuple[Any, type[Any]]:
    """The module of execution plans and the class of their configuration, in the installed version."""
    version = library_module().__version__
    for place in _PLANS:
        try:
            plans = library_module(place)
        except UnsupportedError as error:
            absent = getattr(error.__cause__, "name", None)
            if isinstance(error.__cause__, ModuleNotFoundError) and absent is not None and place.startswith(absent):
                continue
            raise
        for name in _CONFIGURATIONS:
            if hasattr(plans, name):
                return plans, getattr(plans, name)
    raise UnsupportedError(
        f"JAX-Privacy {version} is installed, and has no execution plans where 2.0 to 2.3 have them "
        f"({' or '.join(_PLANS)}); describe the run by calipers.Run instead."
    )


def run_of(config: Any, *, dataset_size: int | None = None, dimension: int | None = None) -> Run:
    """The run that a configuration of JAX-Privacy executes, under its accountant's adjacency.

    A configuration is a `BandMFConfig` (a `BandMFExecutionPlanConfig` before 2.3) or a `DPTrainer` that holds one.
    One of 2.0 that gives (epsilon, delta) is calibrated by the plan itself.
    """
    config = configuration_of(config)
    if len(config.strategy) != 1:
        raise UnsupportedError(
            f"A strategy of {len(config.strategy)} bands correlates the noise of different rounds, which no Run "
            f"describes (JAX-Privacy {library_module().__version__}); "
            "calipers.adapters.jax_matrices.correlated_of reads it, and measure takes what it gives."
        )
    plan, adjacency = plan_and_adjacency(config)
    selected = batch_keys(plan.batch_selection_strategy, dataset_size=dataset_size)
    reach = 2.0 if adjacency == "substitute" else 1.0
    return Run.from_dict(
        {
            **selected,
            "noise_multiplier": reach * noise_of(plan.dp_event),
            "dataset_size": dataset_size,
            "normalization": "none" if config.normalize_by == 1.0 else "constant",
            "adjacency": adjacency,
            "dimension": dimension,
        }
    )


def configuration_of(config: Any) -> Any:
    """The configuration itself, or the one that a trainer holds; `InputError` for anything else."""
    _, kind = _plan_names()
    inner = getattr(config, "config", None)
    config = inner if isinstance(inner, kind) else config
    if not isinstance(config, kind):
        raise InputError(_no_configuration(config, kind, library_module().__version__))
    return config


def plan_and_adjacency(config: Any) -> tuple[Any, str]:
    """The plan of a configuration, and the adjacency that its noise was scaled for."""
    plan = _plan_of(config)
    relation = _relation(config, plan)
    adjacency = next((word for word, name in RELATIONS.items() if name == relation), None)
    if adjacency is None:
        version = library_module().__version__
        raise UnsupportedError(
            f"The neighboring relation {relation} of JAX-Privacy {version} is not known to Calipers."
        )
    _check_partition(plan.batch_selection_strategy, adjacency)
    return plan, adjacency


def _no_configuration(config: Any, kind: type[Any], version: str) -> str:
    name = type(config).__name__
    reasons = {
        "NonPrivateConfig": " It clips and adds nothing, so there is no privacy to measure.",
        "DPKerasConfig": (
            " What Keras trains with depends on the data that fit() is given: with poisson_sampling_in_fit the run is "
            "Poisson at batch_size / train_size, otherwise batches are yours to describe by calipers.Run."
        ),
    }
    return f"Expected a {kind.__name__} of JAX-Privacy {version}, got {name}.{reasons.get(name, '')}"


def _plan_of(config: Any) -> Any:
    """The plan: `make()` since 2.1, the property `plan` before."""
    if not hasattr(config, "make"):
        return config.plan
    try:
        return config.make()
    except ValueError as error:
        raise InputError(f"JAX-Privacy makes no plan of this configuration: {error}") from error


def _relation(config: Any, plan: Any) -> str:
    """The neighboring relation that the noise was scaled for."""
    accountant = getattr(config, "accountant", None)
    relation = plan.neighboring_relation if accountant is None else accountant.neighboring_relation
    return str(relation.name)


def dp_sgd_plan(
    *,
    iterations: int,
    noise_multiplier: float,
    sample_rate: float,
    normalize_by: float,
    max_grad_norm: float = 1.0,
) -> Any:
    """The execution plan of DP-SGD with these numbers, add-remove adjacency: what is probed and audited."""
    plans, kind = _plan_names()
    fields = {field.name for field in dataclasses.fields(kind)}
    chosen: dict[str, Any] = {
        "iterations": iterations,
        "strategy": np.ones(1),
        "noise_multiplier": noise_multiplier,
        "l2_clip_norm": max_grad_norm,
        "rescale_to_unit_norm": False,
        "normalize_by": float(normalize_by),
    }
    if "expected_participations" in fields:  # since 2.3
        chosen["expected_participations"] = sample_rate * iterations
    else:
        chosen["sampling_prob"] = sample_rate
    if "accountant" in fields:  # 2.0
        accounting = library_module("dp_accounting")
        chosen |= {
            "epsilon": None,
            "delta": None,
            "partition_type": library_module("jax_privacy.batch_selection").PartitionType.INDEPENDENT,
            "accountant": accounting.pld.PLDAccountant(accounting.NeighboringRelation.ADD_OR_REMOVE_ONE),
            "noise_seed": 0,
        }
        return kind(**chosen).plan
    return kind(**chosen).make(plans.PerformanceFlags(noise_seed=0))


SEEDS = 2**31 - 1
# Batches are padded to a multiple of this, so that few shapes are compiled.
_PADDED = 8


def padded_rows(count: int) -> int:
    """How many rows a batch of so many records gets; one without records has some, all of them padding."""
    return _PADDED * max(1, math.ceil(count / _PADDED))


def compiled_steps(plan: Any, loss: Any, dimension: int) -> Any:
    """The steps of a plan at weights zero: (seed, records, padding), (steps, rows, ...) each, to what is released."""
    jax = library_module("jax")
    clipped, noise = plan.clipped_grad(loss), plan.noise_addition_transform
    weights = jax.numpy.zeros(dimension)

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        records, padding = batch
        released, state = noise.update(clipped(weights, records, is_padding_example=padding), state)
        return state, released

    def run(seed: Any, records: Any, padding: Any) -> Any:
        # The plan's own state, with the key of this run in place of the configuration's.
        _, inner = noise.init(weights)
        return jax.lax.scan(step, (jax.random.key(seed), inner), (records, padding))[1]

    return jax.jit(run)


_REFUSED = {
    "BMinSepSampling": (
        "a record that took part sits out the next rounds, so its rounds depend on each other, for which only "
        "simulation is known. CyclicPoissonSampling keeps the same distance and is measured"
    ),
    "MultiOwnerMinSepSampling": "its rounds depend on each other, and records have several owners",
}


def batch_keys(strategy: Any, *, dataset_size: int | None = None) -> dict[str, object]:
    """The keys of a run whose batches a strategy of `jax_privacy.batch_selection` selects.

    | strategy | sampler |
    |---|---|
    | `CyclicPoissonSampling` | poisson; cyclic-poisson with several groups; truncated-poisson with a largest batch |
    | the same, everybody of a group | shuffle in one order (EQUAL_SPLIT), or balls-and-bins thrown once (INDEPENDENT) |
    | `BallsInBinsSampling` | balls-and-bins, thrown once and kept |
    | `BMinSepSampling` | poisson at separation 1; balls-and-bins thrown once if it starts warm and takes everybody |
    | `FixedBatchSampling` | without-replacement, or with-replacement |
    | `RandomAllocationSampling` | random-allocation |
    | `UserSelectionStrategy` | that of its base strategy, users, each clipped as a whole, in place of records |

    Groups of equal size move other records when one is added, so the keys say zero-out: the same number of records.
    `dataset_size` is needed where groups of equal size are used whole. Anything else is an `UnsupportedError` that says
    why.
    """
    kinds = library_module("jax_privacy.batch_selection")
    name = type(strategy).__name__

    def is_a(kind: str) -> bool:
        return hasattr(kinds, kind) and isinstance(strategy, getattr(kinds, kind))

    if is_a("UserSelectionStrategy"):
        return {**batch_keys(strategy.base_strategy, dataset_size=dataset_size), "unit": "user", "records_per_unit": 1}
    if is_a("CyclicPoissonSampling"):
        return _coins(strategy, dataset_size)
    if is_a("BallsInBinsSampling"):
        return _bins(name, int(strategy.cycle_length), int(strategy.iterations))
    if is_a("BMinSepSampling") and strategy.truncated_batch_size is None:
        if strategy.min_sep == 1:
            rate, steps = float(strategy.sampling_prob), int(strategy.iterations)
            return {"sampler": "poisson", "sample_rate": rate, "steps": steps}
        if strategy.sampling_prob == 1.0 and strategy.warm_start:
            return _bins(name, int(strategy.min_sep), int(strategy.iterations))
    if is_a("FixedBatchSampling"):
        drawn = "with-replacement" if strategy.replace else "without-replacement"
        return {"sampler": drawn, "batch_size": int(strategy.batch_size), "steps": int(strategy.iterations)}
    if is_a("RandomAllocationSampling"):
        if not hasattr(strategy, "total_participations"):
            raise UnsupportedError(
                "RandomAllocationSampling of this release of JAX-Privacy does not say total_participations, how often "
                "a record takes part; describe the run by hand."
            )
        often = int(strategy.total_participations)
        return {"sampler": "random-allocation", "participations": often, "steps": int(strategy.iterations)}
    reason = _REFUSED.get(name, "it is not known")
    raise UnsupportedError(f"{name} cannot be described as a Run: {reason}.")


def _coins(strategy: Any, dataset_size: int | None) -> dict[str, object]:
    keys: dict[str, object] = {"sample_rate": float(strategy.sampling_prob), "steps": int(strategy.iterations)}
    groups, largest = int(strategy.cycle_length), strategy.truncated_batch_size
    if groups > 1 and largest is not None:
        raise UnsupportedError(
            f"CyclicPoissonSampling with cycle_length={groups} and truncated_batch_size={largest} both draws from "
            "groups and truncates, which no Run describes; leave one of them out."
        )
    equal = _split_equally(strategy)
    if groups > 1 and strategy.sampling_prob == 1.0:
        # The split is drawn and kept secret, and there are no coins: the split is all that hides a record.
        steps, name = int(strategy.iterations), type(strategy).__name__
        return _order_kept(name, groups, steps, dataset_size) if equal else _bins(name, groups, steps)
    if groups > 1:
        return {"sampler": "cyclic-poisson", "cycle": groups, **keys, **({"adjacency": "zero-out"} if equal else {})}
    if largest is not None:
        return {"sampler": "truncated-poisson", "max_batch_size": int(largest), **keys}
    return {"sampler": "poisson", **keys}


def _whole_cycles(name: str, rounds: int, steps: int) -> None:
    if steps % rounds:
        raise UnsupportedError(
            f"{name} with {steps} iterations in cycles of {rounds} stops inside a cycle, so some bins are "
            f"used once more than others; use {steps - steps % rounds} or {steps - steps % rounds + rounds} iterations."
        )


def _bins(name: str, rounds: int, steps: int) -> dict[str, object]:
    _whole_cycles(name, rounds, steps)
    return {"sampler": "balls-and-bins", "sample_rate": 1.0 / rounds, "steps": steps, "reshuffle": "once"}


def _order_kept(name: str, groups: int, steps: int, dataset_size: int | None) -> dict[str, object]:
    """Groups of equal size that are used whole: an order that is drawn once, cut, and kept for all epochs."""
    _whole_cycles(name, groups, steps)
    if dataset_size is None:
        raise UnsupportedError(f"{name} cuts one random order into {groups} equal groups; say dataset_size.")
    size = dataset_size // groups
    if size == 0 or dataset_size // size != groups:
        raise UnsupportedError(
            f"{name} cuts {dataset_size} records into {groups} groups of {size} and never uses the other "
            f"{dataset_size - groups * size}, enough for another group, which no Run describes; use "
            f"{max(size, 1) * groups} records."
        )
    once = {"reshuffle": "once", "adjacency": "zero-out"}
    return {"sampler": "shuffle", "batch_size": size, "steps": steps, **once}


def _split_equally(strategy: Any) -> bool:
    return getattr(getattr(strategy, "partition_type", None), "name", "") == "EQUAL_SPLIT"


def _check_partition(strategy: Any, adjacency: str) -> None:
    """Groups of equal size move other records when one is added; the library says so itself."""
    groups = int(getattr(strategy, "cycle_length", 1))
    if groups > 1 and _split_equally(strategy) and adjacency == "add-remove":
        raise UnsupportedError(
            "PartitionType.EQUAL_SPLIT puts other records into other groups when one is added or removed; under "
            "add-remove use PartitionType.INDEPENDENT."
        )


def noise_of(event: Any) -> float:
    """The noise multiplier of the one Gaussian inside an event."""
    found = {float(part.noise_multiplier) for part in inside(event) if hasattr(part, "noise_multiplier")}
    if len(found) != 1:
        raise UnsupportedError(f"Expected one Gaussian inside {event}, found {len(found)}.")
    return found.pop()


def inside(event: Any) -> Iterator[Any]:
    """The event, and all events inside it, from outside in."""
    yield event
    for part in (*([event.event] if hasattr(event, "event") else ()), *getattr(event, "events", ())):
        yield from inside(part)
