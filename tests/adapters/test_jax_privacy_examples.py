"""JAX-Privacy's example scripts, one loop of the shape of each: measured, or refused with the reason.

The scripts were read and their configurations built beside the newest release; these tests build them in the shape of
the release that is installed, with fewer iterations.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest

from calipers.adapters.jax_matrices import correlated_of
from calipers.adapters.jax_privacy import batch_keys, run_of
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run

library = pytest.importorskip("jax_privacy", reason="JAX-Privacy comes with the extra jax-privacy")
dp_accounting = pytest.importorskip("dp_accounting")
pytestmark = [
    pytest.mark.jax_privacy,
    # JAX-Privacy calls a function of optax by its old name.
    pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning"),
]

RECORDS, BATCH, ITERATIONS, EPSILON, DELTA = 9000, 1000, 100, 1.0, 1e-5


def _kind() -> Any:
    for place in ("jax_privacy.execution_plan", "jax_privacy.experimental.execution_plan"):
        try:
            plans = importlib.import_module(place)
        except ModuleNotFoundError:
            continue
        return getattr(plans, "BandMFConfig", None) or plans.BandMFExecutionPlanConfig
    raise AssertionError("no configuration of plans")


def calibrated(bands: int, **settings: Any) -> Any:
    """What the scripts write: `default(...)` with so many bands, calibrated for (EPSILON, DELTA)."""
    kind = _kind()
    fields = {field.name for field in dataclasses.fields(kind)}
    coefficients = np.cumprod([1.0] + [(2 * k - 1) / (2 * k) for k in range(1, bands)])
    chosen: dict[str, Any] = {
        "iterations": ITERATIONS, "strategy": coefficients, "l2_clip_norm": 1.0, "normalize_by": float(BATCH),
    } | settings  # fmt: skip
    if "expected_participations" in fields:
        chosen["expected_participations"] = BATCH * ITERATIONS / RECORDS
    else:
        chosen["sampling_prob"] = bands * BATCH / RECORDS
    if "accountant" in fields:  # 2.0 calibrates itself
        return kind(
            epsilon=EPSILON, delta=DELTA, noise_multiplier=None, noise_seed=0,
            partition_type=library.batch_selection.PartitionType.INDEPENDENT,
            accountant=dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE), **chosen,
        )  # fmt: skip
    return kind(**chosen).calibrate(epsilon=EPSILON, delta=DELTA)


def test_dp_sgd_transformer() -> None:
    """One band, gradients rescaled to norm 1: Poisson at 1000 of 9000, and the budget it was calibrated for."""
    run = run_of(calibrated(1, rescale_to_unit_norm=True), dataset_size=RECORDS)
    assert (run.sampler, run.steps, run.normalization) == ("poisson", ITERATIONS, "constant")
    assert run.sample_rate == pytest.approx(BATCH / RECORDS, rel=1e-12)
    bracket = measure(run).epsilon(DELTA)
    assert bracket.lower <= EPSILON
    assert bracket.upper == pytest.approx(EPSILON, abs=5e-3)


def test_dp_logistic_regression() -> None:
    """Four bands are no `Run`; as correlated noise with groups that take turns they have the budget they were made for.

    Its accountant counts 25 rounds at rate 4/9; ours goes through the matrix.
    """
    config = calibrated(4)
    with pytest.raises(UnsupportedError, match=r"A strategy of 4 bands .*correlated_of reads it"):
        run_of(config, dataset_size=RECORDS)
    found = correlated_of(config)
    assert (found.patterns.min_separation, found.matrix.bands()) == (4, 4)
    bracket = measure(found).epsilon(DELTA)
    assert bracket.lower <= EPSILON
    assert bracket.upper == pytest.approx(EPSILON, abs=5e-3)
    quieter = measure(dataclasses.replace(found, noise_multiplier=0.9 * found.noise_multiplier)).epsilon(DELTA)
    assert quieter.lower > EPSILON


def test_columns_that_the_library_normalizes_are_refused() -> None:
    """Their lengths are not those of the strategy that the noise is scaled to."""
    with pytest.raises(UnsupportedError, match="column_normalize"):
        correlated_of(calibrated(4, column_normalize=True))


def test_secure_noise_example() -> None:
    """Its batches are read; the rest is no configuration, and discrete noise no `Run`."""
    strategy = library.batch_selection.CyclicPoissonSampling(sampling_prob=BATCH / RECORDS, iterations=ITERATIONS)
    assert batch_keys(strategy) == {"sampler": "poisson", "sample_rate": BATCH / RECORDS, "steps": ITERATIONS}
    with pytest.raises(InputError, match=f"of JAX-Privacy {library.__version__}, got CyclicPoissonSampling"):
        run_of(strategy)


def test_jax_api_example() -> None:
    """It calibrates for Poisson sampling an event of its own; only a `Run` that says how it drew can be measured.

    Shuffled batches whose last one is dropped show more than the script's budget, whatever its buffer does.
    """
    accounting = importlib.import_module("calipers.adapters.dp_accounting")
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(256 / 10_000, dp_accounting.GaussianDpEvent(3.0)), 100
    )
    accounted = accounting.measurement_of(event).epsilon(DELTA)
    shuffled = Run(
        dataset_size=10_000, batch_size=256, epochs=3, noise_multiplier=3.0, sampler="shuffle", adjacency="zero-out"
    )
    assert measure(shuffled).epsilon(DELTA).upper > accounted.upper


def test_keras_api_example() -> None:
    """What Keras trains with depends on what `fit` is given, so its configuration is no run."""
    keras_api = _keras_api()
    config = keras_api.DPKerasConfig(
        epsilon=1.1, delta=DELTA, clipping_norm=1.0, batch_size=512, gradient_accumulation_steps=1, train_steps=585,
        train_size=59_904, seed=0,
    )  # fmt: skip
    with pytest.raises(InputError, match=r"got DPKerasConfig\. What Keras trains with depends on the data"):
        run_of(config)


def _keras_api() -> Any:
    pytest.importorskip("keras", reason="Keras is no part of the extra jax-privacy")
    return importlib.import_module("jax_privacy.keras_api")
