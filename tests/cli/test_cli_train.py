"""`calipers train`: trains, evaluates, ends with the measurement; refuses what makes no sense before training."""

from __future__ import annotations

import importlib
import json
import re
import sys

import numpy as np
import pytest

N = 80


@pytest.fixture
def folder(tmp_path):
    """Eighty tiny pictures whose class is where the light is."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=N + 40)
    images = rng.integers(60, size=(N + 40, 28, 28), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[14 * (label // 2) : 14 * (label // 2) + 14, 14 * (label % 2) : 14 * (label % 2) + 14] += 150
    arrays = {"x_train": images[:N], "y_train": labels[:N], "x_test": images[N:], "y_test": labels[N:]}
    np.savez(tmp_path / "mine.npz", **arrays)
    np.savez(tmp_path / "mnist.npz", **arrays)
    return tmp_path


def options(folder, *more):
    data = () if "--data" in more else ("--data", "mnist", "--data-dir", folder)
    return ("train", *data, "--model", "cnn", "--batch-size", 20, "--device", "cpu", *more)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epochs", 1), "give --noise-multiplier or --target-epsilon"),
        (
            ("--epochs", 1, "--noise-multiplier", 0, "--target-epsilon", 3),
            "adds no noise and meets no --target-epsilon",
        ),
        (("--epochs", 1, "--noise-multiplier", 1, "--target-epsilon", 3), "contradict each other"),
        (("--epochs", 1, "--noise-multiplier", 1, "--data", "imagenet"), "mnist, fashion-mnist, cifar10, ag-news"),
        (("--epochs", 1, "--noise-multiplier", 1, "--data", "cifar10"), "cifar10_train_0.npz"),
        (("--epochs", 1, "--noise-multiplier", 1, "--data-dir", "/nowhere/at/all"), "no folder /nowhere/at/all"),
        (("--epochs", 1, "--noise-multiplier", 1, "--model", "alexnet"), "'cnn', 'resnet18'"),
        (("--epochs", 1, "--noise-multiplier", 1, "--model", "transformer-tiny"), "reads text"),
        (("--epochs", 1, "--noise-multiplier", 1, "--batch-size", 81), "There are 80 records"),
        (("--epochs", 1, "--noise-multiplier", 1, "--records", 81), "mnist has 80"),
        (("--noise-multiplier", 1), "give --steps or --epochs"),
        (("--steps", 5, "--noise-multiplier", 1, "--sampler", "shuffle"), "whole epochs of 4 steps"),
    ],
)
def test_nonsense_is_refused_before_anything_is_trained(folder, refused, arguments, message) -> None:
    """One sentence on standard error, exit status 2, nothing on standard output; PyTorch is not needed to say no."""
    assert message in refused(*options(folder, *arguments, *(("--data-dir", folder) if "cifar10" in arguments else ())))


def test_a_missing_pytorch_is_named(folder, refused, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install '.[torch]'" in refused(*options(folder, "--epochs", 1, "--noise-multiplier", 1))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--noise-multiplier", -1), "--noise-multiplier"),
        (("--noise-multiplier", "nan"), "--noise-multiplier"),
        (("--noise-multiplier", 1, "--max-grad-norm", 0), "--max-grad-norm"),
        (("--noise-multiplier", 1, "--learning-rate", 0), "--learning-rate"),
        (("--noise-multiplier", 1, "--device", "tpu"), "device"),
        (("--noise-multiplier", 1, "--seed", -1), "seed"),
        (("--noise-multiplier", 1, "--seed", 10**20), "seed"),
        (("--noise-multiplier", 1, "--checkpoint-every", 0), "--checkpoint-every"),
    ],
)
def test_values_outside_their_domain_are_refused(folder, refused, arguments, message) -> None:
    assert message in refused(*options(folder, "--epochs", 1, *arguments))


@pytest.mark.torch
def test_a_device_that_is_not_there_is_refused_before_noise_is_looked_for(folder, refused, monkeypatch) -> None:
    # The facade has a function of this name, so the module is looked up by itself.
    calibration = importlib.import_module("calipers.calibrate")
    monkeypatch.setattr(calibration, "solve", lambda *_, **__: pytest.fail("noise was looked for"))
    assert "--device tpu" in refused(*options(folder, "--epochs", 1, "--target-epsilon", 3, "--device", "tpu"))


@pytest.mark.torch
@pytest.mark.parametrize("noise", [("--noise-multiplier", 1), ("--target-epsilon", 3)])
@pytest.mark.parametrize(
    ("sampler", "normalization", "adjacency"),
    [("poisson", "realized", "zero-out"), ("balls-and-bins", "expected", "add-remove")],
)
def test_what_cannot_be_measured_is_not_trained(
    folder, refused, monkeypatch, noise, sampler, normalization, adjacency
) -> None:
    """No theorem covers these divisors: said before the first step."""
    monkeypatch.setattr("calipers.training.loop.train", lambda *_, **__: pytest.fail("it was trained"))
    chosen = ("--sampler", sampler, "--normalization", normalization, "--adjacency", adjacency)
    assert "public constant" in refused(*options(folder, "--epochs", 1, *noise, *chosen))


@pytest.mark.torch
@pytest.mark.parametrize("sampler", ["poisson", "shuffle", "balls-and-bins", "deterministic"])
def test_training_ends_with_the_measurement_of_what_was_executed(folder, calipers, sampler) -> None:
    """The JSON of the measurement is that of `calipers measure` with the same numbers."""
    result = calipers(
        *options(folder, "--epochs", 2, "--noise-multiplier", 1.5, "--sampler", sampler, "--seed", 1, "--json")
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["training"] | {"seconds": 0, "accuracy": 0} == {
        "data": "mnist",
        "model": "cnn",
        "parameters": 25_812,
        "records": N,
        "steps": 8,
        "noise_multiplier": 1.5,
        "max_grad_norm": 1.0,
        "accuracy": 0,
        "seconds": 0,
        "resumed_at": 0,
        "precision": "float32",
        "processes": 1,
    }
    assert 0 <= found["training"]["accuracy"] <= 1
    length = ("--steps", 8) if sampler == "poisson" else ("--epochs", 2)
    if sampler in ("shuffle", "deterministic"):
        length += ("--last-batch", "drop")  # a sampler that draws says it
    if sampler in ("shuffle", "balls-and-bins"):
        length += ("--reshuffle", "every-epoch")
    measured = calipers(
        *("measure", "--dataset-size", N, "--batch-size", 20, *length, "--noise-multiplier", 1.5, "--sampler", sampler),
        *("--normalization", "constant", "--dimension", 25_812, "--view", "worst-case", "--json"),
    )
    alone = json.loads(measured.stdout)
    assert alone.pop("provenance")["command"].startswith("calipers measure")
    assert {"schema": alone["schema"], **found["measurement"]} == alone


@pytest.mark.torch
def test_a_target_is_met_by_the_run_that_is_trained(folder, calipers) -> None:
    result = calipers(
        *options(folder, "--steps", 4, "--target-epsilon", 2, "--delta", 1e-3, "--seed", 1, "--json", "--records", 60)
    )
    found = json.loads(result.stdout)
    (row,) = found["measurement"]["epsilon"]
    assert row["delta"] == 1e-3
    assert 1.98 < row["upper"] <= 2
    assert found["training"]["noise_multiplier"] == found["measurement"]["run"]["noise_multiplier"] > 0
    assert found["training"]["records"] == 60


@pytest.mark.torch
def test_without_noise_there_is_nothing_to_measure(folder, calipers) -> None:
    """Plain training learns where the light is; the report says that it promises nothing."""
    arguments = ("--data", folder / "mine.npz", "--epochs", 30, "--noise-multiplier", 0, "--learning-rate", 0.1)
    result = calipers(*options(folder, *arguments, "--momentum", 0.9, "--seed", 1))
    assert "there is no privacy to measure" in result.stdout
    accuracy = float(result.stdout.split("accuracy ")[1].split()[0])
    assert accuracy > 0.9
    silent = calipers(*options(folder, "--epochs", 1, "--noise-multiplier", 0, "--json"))
    assert json.loads(silent.stdout)["measurement"] is None


@pytest.mark.torch
def test_a_finished_checkpoint_is_not_trained_again(folder, calipers, refused, tmp_path) -> None:
    """The same command gives the same numbers at once; another noise multiplier is refused; the weights are written."""
    arguments = options(folder, "--epochs", 1, "--seed", 1, "--json", "--checkpoint", tmp_path / "run.checkpoint")
    first = json.loads(calipers(*arguments, "--noise-multiplier", 1, "--output", tmp_path / "new" / "w.pt").stdout)
    second = calipers(*arguments, "--noise-multiplier", 1)
    assert "run.checkpoint after step 4 of 4: nothing is left to train." in second.stderr
    again = json.loads(second.stdout)
    assert again["training"]["resumed_at"] == again["training"]["steps"] == 4
    assert again["training"]["accuracy"] == first["training"]["accuracy"]
    assert again["measurement"] == first["measurement"]
    assert "belongs to another run" in refused(*arguments, "--noise-multiplier", 2)
    assert (tmp_path / "new" / "w.pt").stat().st_size > 4 * 25_812


@pytest.mark.torch
def test_weights_replace_weights_and_nothing_else(folder, calipers, refused, tmp_path) -> None:
    """The file loads as PyTorch's own, is known as ours, and a thesis of the same name is kept."""
    torch = pytest.importorskip("torch")
    weights, thesis = tmp_path / "w.pt", tmp_path / "thesis.pt"
    arguments = options(folder, "--epochs", 1, "--noise-multiplier", 0)
    for _ in range(2):
        assert f"wrote {weights}" in calipers(*arguments, "--output", weights).stderr
    loaded = torch.load(weights, weights_only=True)
    assert sum(part.numel() for part in loaded.values()) == 25_812
    thesis.write_bytes(b"years of work")
    assert "was not written by Calipers" in refused(*arguments, "--output", thesis)
    assert thesis.read_bytes() == b"years of work"
    assert calipers(*arguments, "--output", thesis, "--overwrite").exit_code == 0


@pytest.mark.torch
def test_the_report_is_for_people(folder, calipers) -> None:
    shown = calipers(*options(folder, "--epochs", 1, "--noise-multiplier", 1)).stdout
    assert re.match(r"cnn \(25,812 parameters\) on mnist: accuracy [01]\.\d{4} on ", shown)
    for words in (
        "40 test records after 4 steps",
        "epsilon at delta = 1e-5",
        "divided by a constant that neighboring datasets share",
    ):
        assert words in " ".join(shown.split())


@pytest.mark.torch
@pytest.mark.parametrize("vocabulary", ["hashed", "frequent"])
def test_a_vocabulary_taken_from_the_texts_is_declared(tmp_path, calipers, vocabulary) -> None:
    """The frequent words depend on the records without noise: terminal, JSON and report say that it is not measured."""
    rows = "".join(f'{1 + row % 4},"","word{row} and others"\n' for row in range(12))
    (tmp_path / "train.csv").write_text(rows)
    (tmp_path / "test.csv").write_text(rows)
    arguments = (
        *("train", "--data", "ag-news", "--data-dir", tmp_path, "--model", "transformer-tiny", "--batch-size", 4),
        *("--steps", 1, "--noise-multiplier", 1, "--device", "cpu", "--vocabulary", vocabulary),
    )
    shown = calipers(*arguments, "--report", tmp_path / "report.md").stdout
    for text in (shown, (tmp_path / "report.md").read_text()):
        assert ("no number here covers that choice" in text) == (vocabulary == "frequent")
    if vocabulary == "frequent":
        assert json.loads(calipers(*arguments, "--json").stdout)["training"]["vocabulary"] == "frequent"


@pytest.mark.torch
def test_canaries_are_drawn_beside_the_records_and_reported(folder, calipers) -> None:
    """The run has N + M records; the audit has its three numbers, and says so in words too."""
    words = options(folder, "--epochs", 2, "--noise-multiplier", 0.5, "--canaries", 200, "--seed", 4)
    document = json.loads(calipers(*words, "--json").stdout)
    assert document["measurement"]["run"]["dataset_size"] == N + 200
    assert document["training"]["records"] == N
    audit = document["audit"]
    assert audit["observed"]["epsilon"][0]["canaries"] == 200
    assert 0 <= audit["observed"]["epsilon"][0]["lower"] <= audit["certified"]["upper"]
    assert "this run was seen to leak at least" in calipers(*words).stdout
