"""Execution plans of JAX-Privacy: described and probed with the real library."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest

from calipers.adapters.jax_matrices import correlated_of
from calipers.adapters.jax_privacy import run_of
from calipers.adapters.jax_privacy_probe import written_for
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.probing.probe import probe
from calipers.run import Run

library = pytest.importorskip("jax_privacy", reason="JAX-Privacy comes with the extra jax-privacy")
dp_accounting = pytest.importorskip("dp_accounting")
pytestmark = [
    pytest.mark.jax_privacy,
    # JAX-Privacy calls a function of optax by its old name.
    pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning"),
]

Relation = dp_accounting.NeighboringRelation


def configuration_class() -> Any:
    for place in ("jax_privacy.execution_plan", "jax_privacy.experimental.execution_plan"):
        try:
            plans = importlib.import_module(place)
        except ModuleNotFoundError:
            continue
        for name in ("BandMFConfig", "BandMFExecutionPlanConfig"):
            if hasattr(plans, name):
                return getattr(plans, name)
    raise AssertionError("no configuration of plans")


OLD = not hasattr(configuration_class(), "make")


def configured(relation: Any = Relation.ADD_OR_REMOVE_ONE, **settings: Any) -> Any:
    """A configuration in the shape of the installed version: 2.0, 2.1 and 2.2, or 2.3 and newer."""
    kind = configuration_class()
    fields = {field.name for field in dataclasses.fields(kind)}
    chosen: dict[str, Any] = {"iterations": 100, "strategy": np.ones(1), "noise_multiplier": 1.5, "sampling_prob": 0.1}
    chosen |= settings
    if "accountant" in fields:
        chosen = {
            "epsilon": None,
            "delta": None,
            "partition_type": library.batch_selection.PartitionType.INDEPENDENT,
            "accountant": dp_accounting.pld.PLDAccountant(relation),
            "noise_seed": 0,
        } | chosen
        if isinstance(chosen["partition_type"], str):
            chosen["partition_type"] = library.batch_selection.PartitionType[chosen["partition_type"]]
        return kind(**chosen)
    chosen.pop("partition_type", None)
    budget = {name: chosen.pop(name) for name in ("epsilon", "delta") if name in chosen}
    if relation is Relation.REPLACE_SPECIAL:
        chosen["num_examples"] = 100
    if "expected_participations" in fields:
        chosen["expected_participations"] = chosen.pop("sampling_prob") * 100 / len(chosen["strategy"])
    made = kind(**chosen)
    return made.calibrate(**budget) if budget else made


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
    if OLD:  # newer configurations know add-remove and zero-out
        run = run_of(configured(Relation.REPLACE_ONE))
        assert (run.adjacency, run.noise_multiplier) == ("substitute", 3.0)
    assert run_of(configured(Relation.REPLACE_SPECIAL)).adjacency == "zero-out"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": np.array([1.0, 0.5])}, "correlates the noise"),
    ],
)
def test_plans_that_no_run_describes_are_refused(settings: dict[str, Any], message: str) -> None:
    """Bands tie rounds together; truncation ties records together."""
    with pytest.raises(UnsupportedError, match=message):
        run_of(configured(**settings))


def test_only_plans_are_read() -> None:
    """Anything else is named, with the version that is installed."""
    with pytest.raises(InputError, match=f"{configuration_class().__name__} of JAX-Privacy {library.__version__}, got"):
        run_of(object())


@pytest.mark.skipif(OLD, reason="configurations of JAX-Privacy 2.0 calibrate themselves")
def test_a_configuration_without_noise_is_refused() -> None:
    """Since 2.1 one calls calibrate()."""
    with pytest.raises(InputError, match="noise_multiplier is not set"):
        run_of(configured(noise_multiplier=None))


def test_a_trainer_is_read_by_its_configuration() -> None:
    """`DPTrainer` of 2.3 holds the configuration under this name."""

    class Trainer:
        config = configured()

    assert run_of(Trainer()) == run_of(configured())


@pytest.mark.parametrize(
    ("bands", "message"),
    [(4, "A strategy of 4 bands"), (1, None)],
    ids=["dp_logistic_regression.py", "dp_sgd_transformer.py"],
)
def test_the_example_scripts_are_right_or_refused(bands: int, message: str | None) -> None:
    """The library's examples that build a plan, with their numbers: banded noise is refused, DP-SGD is measured."""
    users = 9000
    settings = {"iterations": 100, "strategy": np.ones(bands) / np.sqrt(bands), "normalize_by": 1000.0,
                "sampling_prob": bands * 1000 / users, "noise_multiplier": 3.0}  # fmt: skip
    if message is not None:
        with pytest.raises(UnsupportedError, match=message):
            run_of(configured(**settings), dataset_size=users)
        return
    run = run_of(configured(**settings), dataset_size=users)
    assert run.sample_rate == pytest.approx(1 / 9, rel=1e-12)
    assert (run.steps, run.normalization, run.noise_multiplier) == (100, "constant", 3.0)


def test_the_probe_finds_nothing_wrong() -> None:
    """Rate and divisor are written down once, so nothing moves with the dataset."""
    report = probe(written_for(200, 20, dimension=500), dataset_size=200, batch_size=20)
    assert report.alarms == ()
    assert report.run == Run(
        dataset_size=200, sample_rate=0.1, steps=10, noise_multiplier=1.0, normalization="constant"
    )


BANDS = np.array([1.0, 0.5, 0.25, 0.1])


@pytest.mark.parametrize(
    ("settings", "closes"),
    [
        ({"sampling_prob": 0.1}, True),
        ({"sampling_prob": 0.1, "truncated_batch_size": 15, "num_examples": 100}, False),
        ({"sampling_prob": 0.1, "strategy": BANDS}, True),
        ({"sampling_prob": 1.0, "strategy": BANDS}, True),
    ],
    ids=["Poisson", "truncated Poisson", "cyclic Poisson", "fixed order, several epochs"],
)
def test_the_rows_of_the_page_on_batches_that_plans_have(settings: dict[str, Any], closes: bool) -> None:
    """Every plan of the table is answered, from above never worse than by the library's own accountant."""
    config = configured(Relation.REPLACE_SPECIAL, noise_multiplier=2.0, partition_type="EQUAL_SPLIT", **settings)
    several = len(config.strategy) > 1
    found = measure(correlated_of(config) if several else run_of(config, dataset_size=100)).epsilon(1e-5)
    plan = config.plan if OLD else config.make()
    accountant = dp_accounting.pld.PLDAccountant(Relation.REPLACE_SPECIAL)
    theirs = accountant.compose(plan.dp_event).get_epsilon(1e-5)
    assert 0.0 < found.lower <= found.upper <= theirs * (1.0 + 1e-6)
    assert (found.upper < found.lower * 1.002) is closes


def test_truncated_groups_with_correlated_noise_are_refused_with_the_reason() -> None:
    """The one combination of the table that the library accounts for and Calipers does not."""
    config = configured(
        Relation.REPLACE_SPECIAL,
        strategy=BANDS,
        truncated_batch_size=15,
        num_examples=100,
        partition_type="EQUAL_SPLIT",
    )
    with pytest.raises(UnsupportedError, match="truncated_batch_size"):
        correlated_of(config)
