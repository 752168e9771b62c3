"""Execution plans of JAX-Privacy: described and probed with the real library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calipers.adapters.jax_privacy import run_of
from calipers.adapters.jax_privacy_probe import written_for
from calipers.probing.probe import probe
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

Relation = dp_accounting.NeighboringRelation


def configured(relation: Any = Relation.ADD_OR_REMOVE_ONE, **settings: Any) -> Any:
    from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

    chosen = {
        "iterations": 100,
        "strategy": np.ones(1),
        "epsilon": None,
        "delta": None,
        "noise_multiplier": 1.5,
        "sampling_prob": 0.1,
        "partition_type": library.batch_selection.PartitionType.INDEPENDENT,
        "accountant": dp_accounting.pld.PLDAccountant(relation),
        "noise_seed": 0,
    }
    return BandMFExecutionPlanConfig(**(chosen | settings))


def test_a_plan_is_a_run() -> None:
    """Poisson sampling, Gaussian noise, a public divisor."""
    assert run_of(configured()) == Run(sample_rate=0.1, steps=100, noise_multiplier=1.5)
    assert run_of(configured(normalize_by=64.0), dataset_size=640, dimension=9) == Run(
        dataset_size=640, sample_rate=0.1, steps=100, noise_multiplier=1.5, normalization="constant", dimension=9
    )


def test_a_calibrated_plan_is_measured_below_its_target() -> None:
    """epsilon = 1 at delta = 1e-5 by its own accountant; our attack cannot exceed that."""
    run = run_of(configured(epsilon=1.0, delta=1e-5, noise_multiplier=None))
    bracket = measure(run).epsilon(1e-5)
    assert bracket.lower <= 1.0
    assert bracket.upper == pytest.approx(1.0, abs=5e-3)


def test_replacing_a_record_doubles_the_noise_of_the_plan() -> None:
    """Its sensitivity is twice the clipping norm, against which a Run measures noise."""
    run = run_of(configured(Relation.REPLACE_ONE))
    assert (run.adjacency, run.noise_multiplier) == ("substitute", 3.0)
    assert run_of(configured(Relation.REPLACE_SPECIAL)).adjacency == "zero-out"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": np.array([1.0, 0.5])}, "correlates the noise"),
        (
            {
                "truncated_batch_size": 5,
                "num_examples": 100,
                "partition_type": "EQUAL_SPLIT",
                "relation": Relation.REPLACE_SPECIAL,
            },
            "independent coins",
        ),
    ],
)
def test_plans_that_no_run_describes_are_refused(settings: dict[str, Any], message: str) -> None:
    """Bands tie rounds together; truncation ties records together."""
    if isinstance(settings.get("partition_type"), str):
        settings["partition_type"] = library.batch_selection.PartitionType[settings["partition_type"]]
    with pytest.raises(UnsupportedError, match=message):
        run_of(configured(**settings))


def test_only_plans_are_read() -> None:
    """Anything else is named."""
    with pytest.raises(InputError, match="BandMFExecutionPlanConfig"):
        run_of(object())


def test_the_probe_finds_nothing_wrong() -> None:
    """Rate and divisor are written down once, so nothing moves with the dataset."""
    report = probe(written_for(200, 20, dimension=500), dataset_size=200, batch_size=20)
    assert report.alarms == ()
    assert report.run == Run(
        dataset_size=200, sample_rate=0.1, steps=10, noise_multiplier=1.0, normalization="constant"
    )
