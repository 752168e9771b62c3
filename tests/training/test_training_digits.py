"""Private training that works: digits drawn here in every run, MNIST itself where its files are."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.measure import measure  # noqa: E402
from calipers.samplers import Poisson  # noqa: E402
from calipers.training import Dataset, Plan, accuracy, build_model, load_dataset, train  # noqa: E402

pytestmark = pytest.mark.torch

# Where to look for mnist.npz or MNIST's IDX files.
FOLDER = Path(os.environ.get("CALIPERS_DATA_DIR", Path(__file__).parents[3] / "shared" / "data"))
with_mnist = pytest.mark.skipif(not FOLDER.is_dir(), reason="CALIPERS_DATA_DIR names no folder with MNIST")


def drawn_digits(count: int, seed: int):
    """Ten fixed 7 x 7 patterns, enlarged to 28 x 28, shifted by up to two pixels, under noise."""
    patterns = np.random.default_rng(99).integers(2, size=(10, 7, 7))
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    large = np.kron(patterns[labels], np.ones((4, 4)))
    moved = np.stack([np.roll(image, tuple(rng.integers(-2, 3, size=2)), axis=(0, 1)) for image in large])
    noisy = 200 * moved + rng.normal(scale=40, size=moved.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)[:, None], labels


def private_accuracy(data: Dataset, **settings):
    model = build_model("cnn", data, seed=0)
    plan = Plan(seed=0, **settings)
    trained = train(plan, model, data.records, data.labels, prepare=data.prepare, device="cpu")
    found = accuracy(model, data.test_records, data.test_labels, prepare=data.prepare, device="cpu")
    return found, trained


def test_drawn_digits_are_learnt_privately() -> None:
    """4,000 records, noise multiplier 1: above 85 %, at an epsilon that is measured; without learning it is 10 %."""
    data = Dataset("drawn", "images", *drawn_digits(4000, 1), *drawn_digits(500, 2))
    sampler = Poisson(dataset_size=4000, batch_size=200, steps=40)
    found, trained = private_accuracy(data, sampler=sampler, noise_multiplier=1.0, learning_rate=1.0)
    assert found > 0.85
    bracket = measure(trained.run()).epsilon(delta=1e-5)
    assert 1 < bracket.lower <= bracket.upper < 5
    untrained = build_model("cnn", data, seed=0)
    assert accuracy(untrained, data.test_records, data.test_labels, prepare=data.prepare, device="cpu") < 0.5


@with_mnist
def test_a_sixth_of_mnist_is_learnt_privately() -> None:
    """10,000 records, one epoch of 39 batches, noise multiplier 1: above 70 %, where guessing gets 10 %."""
    data = load_dataset("mnist", FOLDER).first(10_000)
    sampler = Poisson(dataset_size=10_000, batch_size=256, steps=39)
    found, trained = private_accuracy(data, sampler=sampler, noise_multiplier=1.0, learning_rate=1.0)
    assert found > 0.7
    assert measure(trained.run()).epsilon(delta=1e-5).upper < 2


@pytest.mark.slow
@with_mnist
def test_one_private_epoch_of_mnist_takes_minutes_and_reaches_85_percent() -> None:
    """60,000 records, batches of 256, noise multiplier 1: above 85 % in less than three minutes of a CPU."""
    data = load_dataset("mnist", FOLDER)
    sampler = Poisson(dataset_size=60_000, batch_size=256, steps=234)
    began = time.process_time()
    found, trained = private_accuracy(data, sampler=sampler, noise_multiplier=1.0, learning_rate=0.5)
    assert time.process_time() - began < 180
    assert found > 0.85
    assert measure(trained.run()).epsilon(delta=1e-5).upper < 1
