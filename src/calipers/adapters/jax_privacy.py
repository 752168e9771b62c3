"""Execution plans of JAX-Privacy as runs.

A `BandMFExecutionPlanConfig` states everything a `Run` needs: how batches are selected, for how many iterations, the
clipping norm, what the clipped sum is divided by, and the noise, given or calibrated by the plan itself::

    from calipers.adapters.jax_privacy import run_of
    bracket = measure(run_of(config, dataset_size=60_000)).epsilon(delta=1e-5)

What is read:

- **batches**: `CyclicPoissonSampling` with one group is Poisson sampling. With several groups (banded noise) the
  rounds of a record are tied together and the noise is correlated across rounds; truncated batches are no
  independent coins. Neither is a `Run`, and both are refused.
- **noise**: the plan scales it to noise_multiplier x sensitivity, and the sensitivity of replacing a record is
  twice the clipping norm. A `Run` measures noise against the clipping norm, so under REPLACE_ONE its noise
  multiplier is twice the plan's.
- **division**: `normalize_by` is a number in the configuration, the same for both neighbors: "constant". Whoever
  computes it from the size of the dataset makes it depend on the data, and that cannot be seen here; the
  configuration's own advice is not to.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from calipers.adapters.dp_accounting import RELATIONS
from calipers.errors import InputError, MissingExtraError, UnsupportedError
from calipers.run import Run

__all__ = ["dp_sgd_plan", "jax_privacy_module", "run_of"]


def jax_privacy_module(name: str = "jax_privacy") -> Any:
    """The module of JAX-Privacy (or of what comes with it) called `name`, or `MissingExtraError`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            "This needs the library jax-privacy (2.0 or newer): pip install 'calipers[jax-privacy]'."
        ) from error


def run_of(config: Any, *, dataset_size: int | None = None, dimension: int | None = None) -> Run:
    """The run that a `BandMFExecutionPlanConfig` of JAX-Privacy executes, under its accountant's adjacency.

    Calibrates the noise if the configuration gives (epsilon, delta); that is the plan's own computation.
    """
    plans = jax_privacy_module("jax_privacy.experimental.execution_plan")
    if not isinstance(config, plans.BandMFExecutionPlanConfig):
        raise InputError(f"Expected a BandMFExecutionPlanConfig, got {type(config).__name__}.")
    if len(config.strategy) != 1:
        raise UnsupportedError(
            f"A strategy of {len(config.strategy)} bands correlates the noise of different rounds, which no Run "
            "describes; DP-SGD has a strategy of one number."
        )
    plan = config.plan
    rate = poisson_rate(plan.batch_selection_strategy)
    relation = config.accountant.neighboring_relation.name
    adjacency = next((word for word, name in RELATIONS.items() if name == relation), None)
    if adjacency is None:
        raise UnsupportedError(f"The neighboring relation {relation} is not known to Calipers.")
    reach = 2.0 if adjacency == "substitute" else 1.0
    return Run(
        noise_multiplier=reach * noise_of(plan.dp_event),
        dataset_size=dataset_size,
        sample_rate=rate,
        steps=int(config.iterations),
        normalization="none" if config.normalize_by == 1.0 else "constant",
        adjacency=adjacency,
        dimension=dimension,
    )


def dp_sgd_plan(
    *,
    iterations: int,
    noise_multiplier: float,
    sample_rate: float,
    normalize_by: float,
    max_grad_norm: float = 1.0,
) -> Any:
    """The execution plan of DP-SGD with these numbers, add-remove adjacency: what is probed and audited."""
    plans = jax_privacy_module("jax_privacy.experimental.execution_plan")
    accounting = jax_privacy_module("dp_accounting")
    return plans.BandMFExecutionPlanConfig(
        iterations=iterations,
        strategy=np.ones(1),
        epsilon=None,
        delta=None,
        noise_multiplier=noise_multiplier,
        l2_clip_norm=max_grad_norm,
        rescale_to_unit_norm=False,
        normalize_by=float(normalize_by),
        sampling_prob=sample_rate,
        partition_type=jax_privacy_module("jax_privacy.batch_selection").PartitionType.INDEPENDENT,
        accountant=accounting.pld.PLDAccountant(accounting.NeighboringRelation.ADD_OR_REMOVE_ONE),
        noise_seed=0,
    ).plan


def poisson_rate(strategy: Any) -> float:
    """The rate of a strategy that is Poisson sampling, or `UnsupportedError` that says what else it is."""
    selection = jax_privacy_module("jax_privacy.batch_selection")
    name = type(strategy).__name__
    if not isinstance(strategy, selection.CyclicPoissonSampling):
        reasons = {
            "BallsInBinsSampling": "its bins are thrown once and reused in every epoch, while a Run throws anew",
            "FixedBatchSampling": "no dominating pair is proven for batches of fixed size drawn afresh",
            "BMinSepSampling": "its rounds depend on each other",
        }
        raise UnsupportedError(f"{name} cannot be described as a Run: {reasons.get(name, 'it is not known')}.")
    if strategy.cycle_length != 1:
        raise UnsupportedError(
            f"CyclicPoissonSampling with cycle_length={strategy.cycle_length} ties the rounds of a record together; "
            "Poisson sampling has cycle_length=1."
        )
    if strategy.truncated_batch_size is not None:
        raise UnsupportedError(
            "Truncated batches are not drawn by independent coins; leave truncated_batch_size out to get a Run."
        )
    return float(strategy.sampling_prob)


def noise_of(event: Any) -> float:
    """The noise multiplier of the one Gaussian inside an event."""
    found = list(_gaussians(event))
    if len(set(found)) != 1:
        raise UnsupportedError(f"Expected one Gaussian inside {event}, found {len(set(found))}.")
    return float(found[0])


def _gaussians(event: Any) -> Iterable[float]:
    if hasattr(event, "noise_multiplier"):
        yield float(event.noise_multiplier)
    inner = getattr(event, "event", None)
    if inner is not None:
        yield from _gaussians(inner)
    for part in getattr(event, "events", ()):
        yield from _gaussians(part)
