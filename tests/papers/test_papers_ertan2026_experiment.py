"""The experiment: one durable row per run, none twice, and the noise that the theorem asks for."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from click.testing import CliRunner  # noqa: E402

from calipers.errors import InputError  # noqa: E402
from calipers.papers.ertan2026.experiment import COLUMNS, KEY, Setting, append_row, finished_rows, main  # noqa: E402

pytestmark = pytest.mark.torch

SETTING = Setting(
    dataset="mnist",
    records=64,
    model="cnn",
    epochs=2,
    batch_size=16,
    sampler="shuffle",
    regime="dp",
    learning_rate=0.1,
    max_grad_norm=1.0,
    noise_factor=1.0,
    optimizer="sgd",
    momentum=0.9,
    weight_decay=0.0,
    schedule="cosine",
    vocabulary="hashed",
    seed=0,
)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(72, 28, 28), dtype=np.uint8), rng.integers(10, size=72)
    np.savez(tmp_path / "mnist.npz", x_train=images[:64], y_train=labels[:64], x_test=images[64:], y_test=labels[64:])
    return tmp_path


def experiment(folder, *options):
    arguments = ["--dataset", "mnist", "--data-dir", folder, "--model", "cnn", "--batch-size", 16, "--device", "cpu"]
    result = CliRunner().invoke(main, [str(word) for word in (*arguments, "--out", folder / "rows.csv", *options)])
    if result.exception is not None:
        raise result.exception
    with (folder / "rows.csv").open() as file:
        return list(csv.DictReader(file)), result.stderr


def test_the_plan_is_that_of_the_publication() -> None:
    """M = 4 batches an epoch: sigma = 1/sqrt(2 ln 4) with clipping; clean training has neither; division by B."""
    plan = SETTING.plan(8)
    assert plan.noise_multiplier == pytest.approx(1 / math.sqrt(2 * math.log(4)), rel=1e-12)
    assert (plan.max_grad_norm, plan.steps, plan.divisor(3)) == (1.0, 8, 16.0)
    clean = Setting(**{**SETTING.__dict__, "regime": "clean", "sampler": "poisson"}).plan(8)
    assert (clean.noise_multiplier, clean.max_grad_norm, clean.steps) == (0.0, None, 8)
    assert clean.sampler.rate == 16 / 64
    assert Setting(**{**SETTING.__dict__, "regime": "clip"}).plan(8).max_grad_norm == 1.0


def test_rows_are_written_once_and_measured(folder) -> None:
    """Clean and private, shuffled and Poisson: four rows; started again, nothing is left to do."""
    rows, _ = experiment(folder)
    assert [(row["sampler"], row["regime"]) for row in rows] == [
        ("shuffle", "clean"),
        ("shuffle", "dp"),
        ("poisson", "clean"),
        ("poisson", "dp"),
    ]
    for row in rows:
        assert 0 <= float(row["accuracy"]) <= 1
        assert row["steps"] == "4"
        assert row["dimension"] == "26010"
        measured = row["epsilon_lower"] != ""
        assert measured == (row["regime"] == "dp")
        if measured:
            assert 0 < float(row["epsilon_lower"]) <= float(row["epsilon_upper"])
            assert 0 < float(row["separation_lower"]) <= float(row["separation_upper"])
    again, said = experiment(folder)
    assert again == rows
    assert "0 runs to do" in said


def test_a_row_cut_off_by_a_crash_is_computed_again(folder) -> None:
    """The same numbers come out, since seeds are part of a row's name; other rows stay as they are."""
    options = ("--sampler", "shuffle", "--regime", "clean", "--no-measure", "--seed", 1, "--seed", 2)
    rows, _ = experiment(folder, *options)
    content = (folder / "rows.csv").read_bytes()
    (folder / "rows.csv").write_bytes(content[:-10])
    again, said = experiment(folder, *options)
    assert "1 runs to do, 1 rows" in said
    timing = ("seconds", "examples_per_second")
    assert [{k: v for k, v in row.items() if k not in timing} for row in again] == [
        {k: v for k, v in row.items() if k not in timing} for row in rows
    ]


def test_noise_is_given_in_units_of_the_threshold(folder) -> None:
    """Half and twice 1/sqrt(2 ln 4) are two private runs; the one without noise is not made twice."""
    factors = ("--noise-factor", 0.5, "--noise-factor", 2)
    rows, _ = experiment(folder, "--sampler", "shuffle", "--no-measure", *factors)
    threshold = 1 / math.sqrt(2 * math.log(4))
    found = [(row["regime"], float(row["noise_factor"]), float(row["noise_multiplier"])) for row in rows]
    assert found == [
        ("clean", 0.0, 0.0),
        ("dp", 0.5, pytest.approx(0.5 * threshold)),
        ("dp", 2.0, pytest.approx(2 * threshold)),
    ]


def test_time_runs_out_between_runs(folder) -> None:
    rows, _ = experiment(folder, "--sampler", "shuffle", "--regime", "clean", "--no-measure", "--time-limit", 1e9)
    assert len(rows) == 1
    result = CliRunner().invoke(
        main,
        [
            *("--dataset", "mnist", "--data-dir", str(folder), "--model", "cnn", "--batch-size", "16"),
            *("--device", "cpu", "--out", str(folder / "other.csv"), "--time-limit", "0"),
        ],
    )
    assert "Time is up; 4 runs are left" in result.stderr
    assert not (folder / "other.csv").exists()


def test_files_of_something_else_are_not_appended_to(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="other columns"):
        finished_rows(path)


def test_rows_survive_the_round_trip(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    assert finished_rows(path) == set()
    for seed in (0, 1):
        append_row(path, {name: "" for name in COLUMNS} | SETTING.__dict__ | {"seed": seed, "note": 'a "b", c'})
    assert {row[KEY.index("seed")] for row in finished_rows(path)} == {"0", "1"}
    assert len(path.read_text().splitlines()) == 3


def test_one_batch_an_epoch_is_refused(folder) -> None:
    """ln 1 = 0: the theorem says nothing there."""
    with pytest.raises(InputError, match="batch_size"):
        experiment(folder, "--batch-size", 40)
