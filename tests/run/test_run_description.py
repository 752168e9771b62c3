"""A Run is one thing to measure, or it is refused with a sentence that says what to change."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.phases import as_phases
from calipers.run import NORMALIZATIONS, Run

MNIST = {"dataset_size": 60_000, "batch_size": 256, "epochs": 60, "noise_multiplier": 1.1}


def test_the_reference_run_has_14040_steps():
    """60 epochs of floor(60000/256) = 234 steps, at rate 256/60000."""
    run = Run(**MNIST)
    assert (run.steps_per_epoch, run.total_steps, run.total_epochs) == (234, 14_040, 60)
    assert run.rate == 256 / 60_000


def test_defaults_are_those_of_plain_dp_sgd():
    run = Run(sample_rate=0.01, steps=1000, noise_multiplier=1)
    assert (run.sampler, run.normalization, run.adjacency, run.view) == ("poisson", "none", "add-remove", "worst-case")
    assert isinstance(run.noise_multiplier, float)


def test_one_over_m_means_m_steps_per_epoch():
    """The double nearest to 1/M gives M steps, also where int(1/(1/M)) is not M."""
    batches = range(1, 2000)
    assert any(int(1 / (1 / m)) != m for m in batches)
    runs = {m: Run(sample_rate=1 / m, epochs=2, noise_multiplier=1.0) for m in batches}
    assert all((run.steps_per_epoch, run.total_steps) == (m, 2 * m) for m, run in runs.items())


def test_a_rate_that_is_not_one_over_a_whole_number_drops_the_remainder():
    assert Run(sample_rate=0.3, epochs=2, noise_multiplier=1.0).total_steps == 6


def test_fractions_of_an_epoch_are_accepted_where_the_steps_come_out_whole():
    run = Run(dataset_size=1000, batch_size=100, epochs=0.3, noise_multiplier=1.0)
    assert (run.total_steps, run.total_epochs) == (3, None)
    with pytest.raises(InputError, match="not a whole number of steps; give steps"):
        Run(dataset_size=1000, batch_size=100, epochs=0.35, noise_multiplier=1.0)


@pytest.mark.parametrize("sampler", ["shuffle", "balls-and-bins", "deterministic"])
def test_a_run_may_end_inside_an_epoch(sampler):
    """Whole epochs, and the steps of the one that was begun."""
    full = Run(dataset_size=1000, batch_size=100, steps=20, noise_multiplier=1.0, sampler=sampler)
    assert (full.total_epochs, full.epoch_parts) == (2, ((10, 2),))
    ended = full.replace(steps=25)
    assert (ended.total_epochs, ended.begun_epochs, ended.epoch_parts) == (None, 3, ((10, 2), (5, 1)))
    assert full.replace(epochs=0.5).epoch_parts == ((5, 1),)


@pytest.mark.parametrize("sampler", ["shuffle", "balls-and-bins"])
def test_one_order_for_all_epochs_needs_whole_ones(sampler):
    """Records of the first batches would take part once more than others."""
    full = Run(dataset_size=1000, batch_size=100, steps=20, noise_multiplier=1.0, sampler=sampler, reshuffle="once")
    with pytest.raises(InputError, match="use 20 or 30 steps"):
        full.replace(steps=25)
    with pytest.raises(InputError, match="use 10 steps"):
        full.replace(epochs=0.5)


def test_what_nobody_named_is_settled_and_listed():
    """And named ones are not."""
    run = Run(dataset_size=1001, batch_size=100, epochs=2, noise_multiplier=1.0, sampler="shuffle")
    assert (run.adjacency, run.last_batch) == ("add-remove", "drop")
    assert run.assumed == ("normalization", "adjacency", "view", "last_batch", "reshuffle", "derived_rate")
    assert run.replace(dataset_size=1000).adjacency == "zero-out"
    assert run.replace(view="worst-case").assumed == tuple(name for name in run.assumed if name != "view")
    named = Run(**run.to_dict())
    assert named == run
    assert named.assumed == ("derived_rate",)
    assert named.replace(dataset_size=1000).adjacency == "add-remove"
    said = run.replace(sampler="poisson", derived_rate="public")
    assert "derived_rate" not in said.assumed
    assert "derived_rate" not in said.replace(adjacency="add-remove").assumed
    assert "derived_rate" not in Run.from_dict(said.to_dict()).assumed


def test_phases_that_name_no_neighbors_have_common_ones():
    """A fixed order is zero-out by itself, Poisson sampling add-remove; one that names its own decides."""
    fixed = Run(dataset_size=1000, batch_size=100, epochs=1, noise_multiplier=1.0, sampler="deterministic")
    drawn = fixed.replace(sampler="poisson")
    assert [run.adjacency for run in (fixed, drawn)] == ["zero-out", "add-remove"]
    assert {run.adjacency for run in as_phases([fixed, drawn])} == {"zero-out"}
    assert {run.adjacency for run in as_phases([fixed, drawn.replace(adjacency="substitute")])} == {"substitute"}


def test_equal_batches_need_a_rate_of_one_over_a_whole_number():
    assert Run(sample_rate=1 / 49, epochs=3, noise_multiplier=1.0, sampler="shuffle").total_steps == 147
    with pytest.raises(InputError, match="sample_rate = 1/M"):
        Run(sample_rate=0.3, epochs=3, noise_multiplier=1.0, sampler="shuffle")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_rate": 0.1}, "batch_size and sample_rate contradict"),
        ({"steps": 5}, "steps and epochs contradict"),
        ({"batch_size": None}, "give batch_size or sample_rate"),
        ({"epochs": None}, "give steps or epochs"),
        ({"dataset_size": None}, "batch_size needs dataset_size"),
        ({"batch_size": 60_001}, "batch_size <= dataset_size"),
        ({"batch_size": None, "sample_rate": 1.5}, "sample_rate in"),
        ({"batch_size": None, "sample_rate": 0.0}, "sample_rate in"),
        ({"batch_size": None, "sample_rate": 5e-324}, "sample_rate in"),
        ({"batch_size": 25.5}, "batch_size in the whole numbers from 1 to"),
        ({"noise_multiplier": 0}, "noise_multiplier in"),
        ({"noise_multiplier": 10**400}, "noise_multiplier in"),
        ({"dataset_size": 10**400}, "dataset_size in"),
        ({"dataset_size": 2**53 + 2}, "dataset_size in"),
        ({"epochs": 1e300}, "epochs in"),
        ({"epochs": 2**53}, r"epochs \* steps_per_epoch in"),
        ({"epochs": -1}, "epochs in"),
        ({"dimension": 0}, "dimension in"),
        ({"sampler": "Poisson"}, "sampler to be one of"),
        ({"sampler": None}, "sampler to be one of"),
        ({"normalization": "mean"}, "normalization to be one of"),
        ({"adjacency": "replaces"}, "adjacency to be one of"),
        ({"view": 3}, "view to be one of"),
    ],
)
def test_contradictions_and_bad_values_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        Run(**(MNIST | changes))


@pytest.mark.parametrize("name", ["noise_multiplier", "dataset_size", "batch_size", "epochs", "dimension"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 0, "3", True, b"1", [1], 1j])
def test_nothing_that_is_not_a_positive_number_gets_in(name, value):
    with pytest.raises(InputError, match=f"Expected {name} "):
        Run(**(MNIST | {name: value}))


def test_data_dependent_divisors_need_the_dataset_size():
    with pytest.raises(InputError, match="add dataset_size"):
        Run(sample_rate=0.1, steps=1, noise_multiplier=1.0, normalization="expected")
    with pytest.raises(InputError, match=r"floor\(0\.5\) = 0"):
        Run(sample_rate=0.1, dataset_size=5, steps=1, noise_multiplier=1.0, normalization="floor")
    run = Run(sample_rate=0.1, dataset_size=50, steps=1, noise_multiplier=1.0, normalization="floor")
    assert run.expected_batch_size == 5.0


def test_a_dropped_remainder_is_noted_and_an_exact_division_is_not():
    assert "234" in Run(**MNIST).notes[0]
    assert "96 records" in Run(**MNIST, sampler="shuffle").notes[0]
    assert "one of which" in Run(**MNIST, sampler="balls-and-bins").notes[0]
    assert Run(**(MNIST | {"batch_size": 250})).notes == ()
    assert Run(**MNIST).replace(steps=14_100).notes == ()


def test_replacing_one_alternative_drops_the_other_and_naming_both_is_refused():
    run = Run(**MNIST).replace(steps=7)
    assert (run.steps, run.epochs) == (7, None)
    assert run.replace(sample_rate=0.5).batch_size is None
    with pytest.raises(InputError, match="contradict"):
        run.replace(steps=7, epochs=7)
    with pytest.raises(InputError, match="did you mean 'noise_multiplier'"):
        run.replace(noise_multiplyer=2.0)


def test_a_run_is_frozen_and_takes_keywords_only():
    run = Run(**MNIST)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.steps = 3
    with pytest.raises(TypeError):
        Run(1.0)


def test_numpy_scalars_become_plain_numbers():
    run = Run(dataset_size=np.int64(100), batch_size=np.int32(10), epochs=np.float64(2), noise_multiplier=np.float32(1))
    assert run == Run(dataset_size=100, batch_size=10, epochs=2, noise_multiplier=1.0)
    assert {type(value) for value in run.to_dict().values()} == {int, float, str}


def test_phases_of_one_run_are_about_the_same_neighbors():
    first = Run(**MNIST, adjacency="add-remove")
    assert as_phases(first) == (first,)
    assert as_phases([first, first.replace(noise_multiplier=2.0)])[1].noise_multiplier == 2.0
    for change in ({"adjacency": "substitute"}, {"view": "isolated"}, {"dataset_size": 60_001}):
        with pytest.raises(InputError, match="share " + next(iter(change))):
            as_phases([first, first.replace(**change)])
    with pytest.raises(InputError, match="at least one"):
        as_phases([])
    with pytest.raises(InputError, match="phase 2 to be a Run"):
        as_phases([first, "run.toml"])
    for description in ("run.toml", Path("run.toml"), first.to_dict()):
        with pytest.raises(InputError, match="load_runs"):
            as_phases(description)


@given(
    dataset_size=st.integers(1, 10**9),
    share=st.floats(0, 1),
    epochs=st.integers(1, 1000),
    noise=st.floats(1e-3, 1e3),
    sampler=st.sampled_from(("poisson", "shuffle", "balls-and-bins", "deterministic")),
    normalization=st.sampled_from(NORMALIZATIONS),
)
def test_steps_fill_the_epochs_and_never_more_records_than_there_are(
    dataset_size, share, epochs, noise, sampler, normalization
):
    """T = E floor(N/B): a further full batch per epoch would need more than N records."""
    batch_size = max(1, int(share * dataset_size))
    run = Run(
        dataset_size=dataset_size,
        batch_size=batch_size,
        epochs=epochs,
        noise_multiplier=noise,
        sampler=sampler,
        normalization=normalization,
    )
    per_epoch = run.steps_per_epoch
    assert per_epoch * batch_size <= dataset_size < (per_epoch + 1) * batch_size
    assert run.total_steps == epochs * per_epoch
    assert run.total_epochs == epochs
    assert Run.from_dict(run.to_dict()) == run
