"""`calipers train` with canaries and with shadow models: three numbers, ledgers, what does not go together."""

from __future__ import annotations

import json

import numpy as np
import pytest

N = 60


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(N + 10, 28, 28), dtype=np.uint8), rng.integers(4, size=N + 10)
    np.savez(tmp_path / "mine.npz", x_train=images[:N], y_train=labels[:N], x_test=images[N:], y_test=np.arange(10) % 4)
    return tmp_path


def options(folder, *more):
    run = ("--steps", 2, "--noise-multiplier", 0.6, "--seed", 3)
    own = ("--data", folder / "mine.npz", "--model", "cnn", "--batch-size", 20, "--device", "cpu")
    return ("train", *own, *run, *more)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shadows", 10), "--shadows needs --lira"),
        (("--resume",), "--resume needs --lira"),
        (("--canary-kind", "pairs"), "say how many with --canaries"),
        (("--lira", 3, "--canaries", 20), "--canaries is about one training"),
        (("--lira", 3, "--checkpoint", "c"), "--checkpoint is about one training"),
        (("--lira", N), "mine has 60 records"),
        (("--canaries", 30, "--canary-kind", "pairs"), "mine has 60 records"),
        (("--lira", 3, "--shadows", 3), "Too few fit nothing"),
    ],
)
@pytest.mark.torch
def test_what_does_not_go_together_is_refused(folder, refused, arguments, message) -> None:
    assert message in refused(*options(folder, *arguments))


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "size", "relation"), [("examples", 60, "add-remove"), ("pairs", 40, "substitute")])
def test_mislabeled_canaries_end_with_three_numbers(folder, calipers, kind, size, relation) -> None:
    """The run is drawn from all records, or from one of each pair; certified for what a coin does."""
    arguments = options(folder, "--canaries", 20, "--canary-kind", kind)
    found = json.loads(calipers(*arguments, "--json").stdout)
    assert found["measurement"]["run"]["dataset_size"] == size
    assert found["training"]["records"] == {"examples": 40, "pairs": 20}[kind]
    certified = found["audit"]["certified"]
    run = ("--dataset-size", size, "--batch-size", 20, "--steps", 2, "--noise-multiplier", 0.6)
    divisor = ("--normalization", "constant", "--dimension", found["training"]["parameters"])
    alone = json.loads(calipers("measure", *run, *divisor, "--adjacency", relation, "--json").stdout)["epsilon"][0]
    assert certified["upper"] == pytest.approx(alone["upper"], rel=2e-2)
    assert found["audit"]["observed"]["epsilon"][0]["canaries"] == 20
    assert 0.0 <= found["audit"]["curve"]["mu_lower"] <= found["measurement"]["gdp"]["mu_upper"]
    printed = calipers(*arguments).stdout
    assert f"{kind.replace('pairs', 'pairs of examples')}, black-box" in printed
    assert "Held against whole Gaussian profiles, the guesses rule out " in printed


@pytest.mark.torch
def test_gradients_are_held_against_whole_profiles_too(folder, calipers) -> None:
    """Little noise: the guesses rule out Gaussian profiles, and no more than the certified bracket allows."""
    found = json.loads(calipers(*options(folder, "--canaries", 400, "--batch-size", 230, "--json")).stdout)
    curve = found["audit"]["curve"]
    assert 0.3 < curve["mu_lower"] < found["measurement"]["gdp"]["mu_upper"]
    assert curve["gaussian_epsilon"] >= found["audit"]["observed"]["epsilon"][0]["lower"]


@pytest.mark.torch
def test_pairs_killed_and_resumed_keep_their_coins(folder, calipers, tmp_path) -> None:
    """Without a seed the coins are in the checkpoint, and the finished training is audited again, not tossed again."""
    arguments = [*options(folder, "--canaries", 20, "--canary-kind", "pairs", "--json")]
    place = arguments.index("--seed")
    arguments[place : place + 2] = ["--checkpoint", tmp_path / "run.checkpoint"]
    first, second = (json.loads(calipers(*arguments).stdout) for _ in range(2))
    assert second["training"]["resumed_at"] == 2
    assert first["audit"] == second["audit"]


@pytest.mark.torch
@pytest.mark.slow
def test_lira_goes_on_from_its_ledgers(folder, calipers, tmp_path, monkeypatch) -> None:
    arguments = options(folder, "--lira", 7, "--wrong-label", "--white-box", "--shadows", 10, "--trials", 10)
    arguments = (*arguments, "--ledger", tmp_path / "l.ledger")
    first = calipers(*arguments)
    assert "Record 7 of mine, mislabeled; cnn, 2 steps: epsilon at delta = 1e-5: at most" in first.stdout
    assert "LiRA with 10 shadow models each way saw at least" in first.stdout
    from calipers.training import shadows

    trained, train = [], shadows.train
    monkeypatch.setattr(shadows, "train", lambda *given, **settings: trained.append(1) or train(*given, **settings))
    again = json.loads(calipers(*arguments, "--resume", "--json").stdout)
    assert 0 < len(trained) < 20  # some of the 40 once more, to see that the code is still the same
    assert again["audit"]["shadows"] == again["audit"]["observed"]["trials"] == 10
    assert again["training"] == {"data": "mine", "record": 7, "model": "cnn", "steps": 2, "wrong_label": True}
    assert again["audit"]["observed"]["epsilon"][0]["lower"] <= again["audit"]["certified"]["upper"]
