"""Every way in which JAX-Privacy selects batches: a run with a bracket, or a refusal with the reason.

The strategies are those of the installed library; those that it does not have yet are skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calipers.adapters.jax_privacy import _REFUSED, batch_keys
from calipers.errors import UnsupportedError
from calipers.measure import measure
from calipers.run import Run

pytest.importorskip("jax_privacy", reason="JAX-Privacy comes with the extra jax-privacy")
selection = pytest.importorskip("jax_privacy.batch_selection")
pytestmark = pytest.mark.jax_privacy


def strategy(name: str, **settings: Any) -> Any:
    if not hasattr(selection, name):
        pytest.skip(f"the installed JAX-Privacy has no {name}")
    return getattr(selection, name)(**settings)


INDEPENDENT = selection.PartitionType.INDEPENDENT
# One entry, or several, for every row of the table in JAX-Privacy's page on batch selection; those of its rows with
# another noise are plans (test_jax_matrices.py), those that no run describes are refused below.
ROWS = [
    ("CyclicPoissonSampling", {"sampling_prob": 0.05, "iterations": 40}, "poisson"),
    (
        "CyclicPoissonSampling",
        {"sampling_prob": 0.2, "iterations": 40, "cycle_length": 4, "partition_type": INDEPENDENT},
        "cyclic-poisson",
    ),
    ("CyclicPoissonSampling", {"sampling_prob": 0.2, "iterations": 40, "cycle_length": 4}, "cyclic-poisson"),
    (
        "CyclicPoissonSampling",
        {"sampling_prob": 0.05, "iterations": 40, "truncated_batch_size": 9},
        "truncated-poisson",
    ),
    # "Fixed order, several epochs" and "shuffling": one split into equal groups that are used whole.
    ("CyclicPoissonSampling", {"sampling_prob": 1.0, "iterations": 40, "cycle_length": 20}, "shuffle"),
    (
        "CyclicPoissonSampling",
        {"sampling_prob": 1.0, "iterations": 40, "cycle_length": 20, "partition_type": INDEPENDENT},
        "balls-and-bins",
    ),
    ("BallsInBinsSampling", {"iterations": 40, "cycle_length": 20}, "balls-and-bins"),
    ("RandomAllocationSampling", {"total_participations": 2, "iterations": 40}, "random-allocation"),
    ("FixedBatchSampling", {"batch_size": 5, "iterations": 40}, "without-replacement"),
    ("FixedBatchSampling", {"batch_size": 5, "iterations": 40, "replace": True}, "with-replacement"),
    ("BMinSepSampling", {"sampling_prob": 0.05, "iterations": 40, "min_sep": 1, "warm_start": False}, "poisson"),
    ("BMinSepSampling", {"sampling_prob": 1.0, "iterations": 40, "min_sep": 20}, "balls-and-bins"),
]


@pytest.mark.parametrize(("name", "settings", "sampler"), ROWS)
def test_a_strategy_is_a_run_with_a_bracket(name: str, settings: dict[str, Any], sampler: str) -> None:
    """And the run draws as many batches of the same mean size as the library's own iterator."""
    selected = strategy(name, **settings)
    run = Run.from_dict({"noise_multiplier": 2.0, "dataset_size": 100, **batch_keys(selected, dataset_size=100)})
    assert run.sampler == sampler
    bracket = measure(run).epsilon(1e-5)
    assert 0.0 < bracket.lower <= bracket.upper < 50.0
    batches = list(selected.batch_iterator(100, rng=np.random.default_rng(1)))
    assert len(batches) == run.total_steps
    # 40 batches of about 5 records: four standard errors are below 1.5.
    assert np.mean([len(batch) for batch in batches]) == pytest.approx(run.expected_batch_size, abs=1.5)


@pytest.mark.parametrize("partition", ["EQUAL_SPLIT", "INDEPENDENT"])
def test_groups_that_are_used_whole_are_drawn_once_and_secret(partition: str) -> None:
    """The library's batches come back every cycle, a new seed gives others; so the groups are not read as known."""
    chosen = selection.PartitionType[partition]
    selected = strategy(
        "CyclicPoissonSampling", sampling_prob=1.0, iterations=40, cycle_length=20, partition_type=chosen
    )
    first, other = (
        [set(batch) for batch in selected.batch_iterator(100, rng=np.random.default_rng(seed))] for seed in (1, 2)
    )
    assert first[:20] == first[20:]
    assert first != other
    assert {len(batch) for batch in first} == {5} or partition == "INDEPENDENT"
    run = Run.from_dict({"noise_multiplier": 2.0, "dataset_size": 100, **batch_keys(selected, dataset_size=100)})
    assert run.reshuffle == "once"
    # Whoever is told the groups sees two Gaussian releases; a secret group shows less, and is attacked for less.
    told = measure(run.replace(sampler="deterministic", reshuffle="every-epoch")).epsilon(1e-5)
    assert measure(run).epsilon(1e-5).lower < told.lower


def test_groups_of_equal_size_are_about_a_fixed_number_of_records() -> None:
    """One record more moves others, as the library says itself: zero-out; and what they leave over must be less than a
    group, as a loader's would be.
    """
    whole = strategy("CyclicPoissonSampling", sampling_prob=1.0, iterations=40, cycle_length=20)
    assert batch_keys(whole, dataset_size=101)["adjacency"] == "zero-out"
    assert batch_keys(whole, dataset_size=101)["batch_size"] == 5
    some = strategy("CyclicPoissonSampling", sampling_prob=0.5, iterations=40, cycle_length=20)
    assert batch_keys(some)["adjacency"] == "zero-out"
    with pytest.raises(UnsupportedError, match="say dataset_size"):
        batch_keys(whole)
    with pytest.raises(UnsupportedError, match=r"enough for another group.*use 100 records"):
        batch_keys(whole, dataset_size=107)
    used = {record for batch in whole.batch_iterator(107, rng=np.random.default_rng(3)) for record in batch.tolist()}
    assert len(used) == 100


def test_users_take_the_place_of_records() -> None:
    base = strategy("FixedBatchSampling", batch_size=5, iterations=40)
    keys = batch_keys(strategy("UserSelectionStrategy", base_strategy=base))
    run = Run.from_dict({"noise_multiplier": 2.0, "dataset_size": 100, **keys})
    assert (run.sampler, run.unit, run.records_per_unit) == ("without-replacement", "user", 1)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("BMinSepSampling", {"sampling_prob": 0.1, "iterations": 40, "min_sep": 4}, "depend on each other"),
        ("BMinSepSampling", {"sampling_prob": 1.0, "iterations": 40, "min_sep": 4, "warm_start": False}, "depend on"),
        ("BallsInBinsSampling", {"iterations": 41, "cycle_length": 20}, "stops inside a cycle"),
        ("CyclicPoissonSampling", {"sampling_prob": 1.0, "iterations": 41, "cycle_length": 20}, "stops inside a cycle"),
        (
            "CyclicPoissonSampling",
            {"sampling_prob": 0.1, "iterations": 40, "cycle_length": 4, "truncated_batch_size": 9},
            "leave one of them out",
        ),
    ],
)
def test_what_no_run_describes_is_refused_with_the_reason(name: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        batch_keys(strategy(name, **settings))
    with pytest.raises(UnsupportedError, match="not known"):
        batch_keys(object())


def test_every_strategy_of_the_installed_library_is_answered() -> None:
    """A row, users in the place of records, or a refusal with the reason: all that the page on batches lists."""
    listed = {
        name
        for name, kind in vars(selection).items()
        if isinstance(kind, type) and issubclass(kind, selection.BatchSelectionStrategy)
    } - {"BatchSelectionStrategy", "UserSelectionStrategy"}
    assert listed <= {name for name, _, _ in ROWS} | set(_REFUSED)


def test_a_split_that_is_drawn_in_secret_is_said_to_show_less() -> None:
    """Groups are read as known: the upper bound holds for a secret split, the lower one is about whoever knows it."""
    split = strategy("CyclicPoissonSampling", sampling_prob=0.5, iterations=40, cycle_length=20)
    run = Run.from_dict({"noise_multiplier": 2.0, "dataset_size": 100, **batch_keys(split)})
    assert run.adjacency == "zero-out"
    assert any("a split that is drawn and kept secret" in note for note in measure(run).notes)


def test_records_of_several_owners_are_refused_with_the_reason() -> None:
    """The last row of the page, which releases before 2.3 do not have."""
    owned = type("MultiOwnerMinSepSampling", (), {"iterations": 40})()
    with pytest.raises(UnsupportedError, match="several owners"):
        batch_keys(owned)


def test_several_participations_are_never_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """k of t as JAX-Privacy names it from release 2.3 on; where k is not said there is no silent 1."""

    class RandomAllocationSampling:
        iterations = 40

    monkeypatch.setattr(selection, "RandomAllocationSampling", RandomAllocationSampling, raising=False)
    several = RandomAllocationSampling()
    with pytest.raises(UnsupportedError, match="total_participations"):
        batch_keys(several)
    several.total_participations = 3
    assert batch_keys(several) == {"sampler": "random-allocation", "participations": 3, "steps": 40}
