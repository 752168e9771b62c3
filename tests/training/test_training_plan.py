"""Plans and the runs they amount to; no PyTorch is needed to describe a training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calipers.errors import InputError, MissingExtraError, UnsupportedError
from calipers.run import Run
from calipers.samplers import BallsAndBins, Deterministic, Poisson, Shuffle
from calipers.training import Plan, run_of
from calipers.training.plan import sampler_of
from calipers.training.torch_library import torch_module

N, B = 1000, 32


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (Poisson(dataset_size=N, batch_size=B, steps=7), ("poisson", {"batch_size": B, "steps": 7})),
        (Poisson(dataset_size=N, sample_rate=0.07, steps=7), ("poisson", {"sample_rate": 0.07, "steps": 7})),
        (Poisson(dataset_size=N, batch_size=2.5, steps=7), ("poisson", {"sample_rate": 0.0025, "steps": 7})),
        (Shuffle(dataset_size=N, batch_size=B, epochs=3), ("shuffle", {"batch_size": B, "epochs": 3})),
        (BallsAndBins(dataset_size=N, batch_size=B, epochs=3), ("balls-and-bins", {"batch_size": B, "epochs": 3})),
        (BallsAndBins(dataset_size=N, rounds=8, epochs=3), ("balls-and-bins", {"sample_rate": 1 / 8, "epochs": 3})),
        (Deterministic(dataset_size=N, batch_size=B, epochs=3), ("deterministic", {"batch_size": B, "epochs": 3})),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else "",
)
def test_the_run_is_the_one_whose_batches_the_sampler_draws(sampler, expected) -> None:
    """Sizes, length and name are the sampler's own, and the steps agree with the law it states."""
    name, sizes = expected
    run = run_of(sampler, noise_multiplier=0.9, normalization="constant", dimension=5, adjacency="zero-out")
    assert run == Run(
        noise_multiplier=0.9,
        dataset_size=N,
        normalization="constant",
        dimension=5,
        adjacency="zero-out",
        sampler=name,
        **sizes,
    )
    assert run.total_steps == sampler.law().steps


@pytest.mark.parametrize("sampler", [Shuffle(dataset_size=10, batch_size=2, epochs=1, rounds=4)])
def test_batches_that_no_run_describes_are_refused(sampler) -> None:
    """Four batches of two out of ten records: a Run of these sizes would have five."""
    with pytest.raises(UnsupportedError, match="4 batches an epoch"):
        run_of(sampler, noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("normalization", "batch", "divisor"),
    [
        ("none", 40, 1.0),
        ("constant", 40, 32.0),
        ("expected", 40, 32.25),
        ("floor", 40, 32.0),
        ("realized", 40, 40.0),
        ("realized", 0, 1.0),
    ],
)
def test_divisors(normalization, batch, divisor) -> None:
    """1000 records in 31 bins hold 1000/31 = 32.258... on average; asked for were 32; the batch drawn holds 40."""
    sampler = BallsAndBins(dataset_size=N, batch_size=B, epochs=1)
    plan = Plan(sampler=sampler, noise_multiplier=1.0, normalization=normalization)
    assert plan.divisor(batch) == pytest.approx(divisor, abs=0.01)
    assert plan.run().normalization == normalization


def test_a_constant_must_be_public() -> None:
    """A sampler described by its rate alone has no batch size of its own: N q would depend on the data."""
    sampler = Poisson(dataset_size=N, sample_rate=0.1, steps=3)
    with pytest.raises(InputError, match="add constant"):
        Plan(sampler=sampler, noise_multiplier=1.0)
    assert Plan(sampler=sampler, noise_multiplier=1.0, constant=77).divisor(3) == 77
    with pytest.raises(InputError, match="contradicts"):
        Plan(sampler=sampler, noise_multiplier=1.0, constant=77, normalization="none")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_grad_norm": None}, "Noise without clipping"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"normalization": "mean"}, "normalization"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"schedule": "linear"}, "schedule"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"sampler": "poisson"}, "Expected a sampler of calipers.samplers, got 'poisson'"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**60}, "seed"),
    ],
)
def test_bad_plans_are_refused(changes, message) -> None:
    settings = {"sampler": Poisson(dataset_size=N, batch_size=B, steps=3), "noise_multiplier": 1.0} | changes
    with pytest.raises(InputError, match=message):
        Plan(**settings)


def test_the_cosine_schedule_falls_from_the_full_rate_to_zero() -> None:
    plan = Plan(
        sampler=Poisson(dataset_size=N, batch_size=B, steps=100),
        noise_multiplier=1.0,
        learning_rate=0.5,
        schedule="cosine",
    )
    rates = [plan.rate_at(step) for step in range(100)]
    assert rates[0] == 0.5
    assert rates[50] == pytest.approx(0.25)
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.001


@pytest.mark.parametrize("name", ["poisson", "shuffle", "balls-and-bins", "deterministic"])
def test_samplers_by_name_take_floor_of_n_over_b_steps_an_epoch(name) -> None:
    sampler = sampler_of(name, dataset_size=N, batch_size=B, epochs=2)
    assert sampler.law().steps == 2 * (N // B)
    assert sampler.law().sampler == name
    assert sampler_of(name, dataset_size=N, batch_size=B, steps=62) == sampler


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": N + 1}, "There are 1000 records"),
        ({"batch_size": 0}, "batch_size"),
        ({"steps": 5}, "steps and epochs contradict each other"),
        ({"epochs": None}, "give steps or epochs"),
        ({"epochs": None, "steps": 40}, "whole epochs of 31 steps"),
        ({"name": "random"}, "sampler"),
    ],
)
def test_bad_samplers_are_refused(changes, message) -> None:
    settings = {"name": "shuffle", "dataset_size": N, "batch_size": B, "epochs": 1} | changes
    with pytest.raises(InputError, match=message):
        sampler_of(settings.pop("name"), **settings)


def test_a_missing_pytorch_is_named_with_the_line_to_type(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[torch\]'"):
        torch_module()


def test_describing_a_training_loads_no_pytorch() -> None:
    """The room, the plan and the data files need numpy alone."""
    program = (
        "import sys, calipers.training, calipers.adapters.torch_sampler\n"
        "import calipers.adapters.jax_batches\n"
        "print([name for name in ('torch', 'jax', 'opacus', 'matplotlib') if name in sys.modules])"
    )
    source = str(Path(__file__).parents[2] / "src")
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.strip() == "[]"
