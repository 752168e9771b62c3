"""Two trainings on one checkpoint, other losses, disks that are full: refused in a sentence, nothing lost."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.samplers import Poisson  # noqa: E402
from calipers.training import Plan, checkpoint, train  # noqa: E402
from calipers.training.checkpoint import locked  # noqa: E402
from calipers.training.fingerprint import fingerprint  # noqa: E402
from calipers.training.gradients import cross_entropy  # noqa: E402

pytestmark = pytest.mark.torch

SOURCE = Path(checkpoint.__file__).parents[2]
RECORDS = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")
LABELS = np.random.default_rng(1).integers(3, size=40)
PLAN = Plan(sampler=Poisson(dataset_size=40, batch_size=10, steps=6), noise_multiplier=1.0, seed=3)

# Holds the lock of the checkpoint named on the command line until it is killed.
HOLDER = """
import sys, time
from pathlib import Path
from calipers.training.checkpoint import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def model_of() -> object:
    torch.manual_seed(0)
    return torch.nn.Linear(6, 3)


def begun(path: Path, **settings: object) -> None:
    """Train for four of six steps and stop, with a checkpoint after each second one."""

    def stop(done: int, _: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            PLAN,
            model_of(),
            RECORDS,
            LABELS,
            device="cpu",
            checkpoint=path,
            checkpoint_every=2,
            progress=stop,
            **settings,
        )


def test_a_second_training_on_the_same_checkpoint_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    """Another process holds the lock: refused before a step. It is killed: the lock is gone with it."""
    path = tmp_path / "c"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        steps: list[int] = []
        with pytest.raises(InputError, match="Another training is using"):
            train(PLAN, model_of(), RECORDS, LABELS, checkpoint=path, progress=lambda done, _: steps.append(done))
        assert steps == []
        holder.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            train(PLAN, model_of(), RECORDS, LABELS, device="cpu", checkpoint=path)
            break
        except InputError:
            time.sleep(0.05)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["c"]


def test_the_lock_is_let_go_when_training_ends_or_fails(tmp_path: Path) -> None:
    """Also one process cannot use a checkpoint twice at once; afterwards nothing is left behind."""
    path = tmp_path / "c"
    with locked(path), pytest.raises(InputError, match="Another training"), locked(path):
        pass
    begun(path)
    with locked(path):
        pass
    assert sorted(found.name for found in tmp_path.iterdir()) == ["c"]


def doubled(rows: object) -> object:
    return rows * 2  # type: ignore[operator]


TWICE = functools.partial(torch.mul, other=2)


def scaled(factor: float) -> object:
    return lambda rows: rows * factor


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({"prepare": doubled}, {}, "prepare was doubled"),
        ({"prepare": scaled(2.0)}, {"prepare": scaled(3.0)}, "prepare was"),
        ({"prepare": TWICE}, {"prepare": functools.partial(torch.mul, other=3)}, "prepare was"),
        ({}, {"loss": lambda scores, label: scores.sum() * 0 + label * 0.0}, "loss was cross_entropy"),
    ],
)  # fmt: skip
def test_another_loss_or_preparation_is_refused(tmp_path: Path, before: dict, after: dict, named: str) -> None:
    """What the steps so far were made of is what the others must be made of; the same functions go on."""
    begun(tmp_path / "c", **before)
    with pytest.raises(InputError, match=named):
        train(PLAN, model_of(), RECORDS, LABELS, device="cpu", checkpoint=tmp_path / "c", **after)
    trained = train(PLAN, model_of(), RECORDS, LABELS, device="cpu", checkpoint=tmp_path / "c", **before)
    assert trained.resumed_at == 4


def test_fingerprints_tell_functions_apart_and_are_repeatable() -> None:
    """By text, bound values and settings; the same function made twice has one fingerprint."""
    weights = torch.arange(3.0)
    things = [
        None,
        cross_entropy,
        doubled,
        scaled(2.0),
        scaled(2.5),
        torch.nn.CrossEntropyLoss(),
        torch.nn.CrossEntropyLoss(label_smoothing=0.1),
        functools.partial(cross_entropy, label=1),
        lambda scores, label, weights=weights: scores @ weights,
        lambda scores, label, weights=weights + 1: scores @ weights,
    ]
    assert len({fingerprint(thing) for thing in things[:5]} | {fingerprint(thing) for thing in things[7:]}) == 8
    assert fingerprint(scaled(2.0)) == fingerprint(scaled(2.0))
    assert fingerprint(None) == "none"
    assert fingerprint(doubled).startswith("doubled, ")


FULL = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import numpy as np, torch
from calipers.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = ["calipers", *sys.argv[2:]]
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="limits on files as POSIX has them")
def test_a_full_disk_and_a_place_that_is_none_are_one_sentence(tmp_path: Path) -> None:
    """The checkpoint, then the weights, do not fit; then their folder is a file: status 2, one line, no traceback."""
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.integers(255, size=(40, 28, 28), dtype=np.uint8), "y_train": np.arange(40) % 4}
    np.savez(tmp_path / "mine.npz", **arrays, x_test=arrays["x_train"], y_test=arrays["y_train"])
    (tmp_path / "file").write_text("")
    common = ["train", "--data", str(tmp_path / "mine.npz"), "--model", "cnn", "--batch-size", "10", "--steps", "2"]
    common += ["--noise-multiplier", "1", "--device", "cpu", "--seed", "1", "--checkpoint-every", "1"]
    cases = [
        (20_000, ["--checkpoint", str(tmp_path / "c")], "c cannot be written (File too large)"),
        (20_000, ["--output", str(tmp_path / "w")], "w cannot be written (File too large)"),
        (
            10**9,
            ["--output", str(tmp_path / "file" / "w")],
            "w cannot be written (" + str(tmp_path / "file") + " is not a folder)",
        ),
        (
            10**9,
            ["--checkpoint", str(tmp_path / "file" / "c")],
            "c cannot be written (" + str(tmp_path / "file") + " is not a folder)",
        ),
    ]
    for limit, more, expected in cases:
        done = subprocess.run(
            [sys.executable, "-c", FULL, str(limit), *common, *more],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert expected in done.stderr
        assert "Traceback" not in done.stderr
    assert sorted(found.name for found in tmp_path.iterdir()) == ["file", "mine.npz"]
