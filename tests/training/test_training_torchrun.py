"""`calipers train` under the real launcher: one training, one voice; a rank that dies, ranks that differ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.training import checkpoint  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the ranks are found in /proc"),
]

SOURCE = Path(checkpoint.__file__).parents[2]
OPTIONS = ("--model", "cnn", "--batch-size", "8", "--noise-multiplier", "1", "--seed", "3", "--device", "cpu", "--json")
# As `python -m calipers`, with a folder of data for every rank.
PROGRAM = "import os, sys; from calipers.cli import main; main([*sys.argv[1:], '--data-dir', os.environ['RANK']])"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(60, 28, 28), dtype=np.uint8), rng.integers(4, size=60)
    tests = {"x_test": images[40:], "y_test": labels[40:]}
    for place, size in ((tmp_path, 40), (tmp_path / "0", 40), (tmp_path / "1", 39)):
        place.mkdir(exist_ok=True)
        np.savez(place / "mine.npz", x_train=images[:size], y_train=labels[:size], **tests)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def started(folder, *words, program=("-m", "calipers")):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", *program)
    return subprocess.Popen(
        [sys.executable, *launcher, "train", "--data", "mine.npz", *OPTIONS, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rank_of(launcher, rank):
    """The process with this rank among the launcher's children."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (place / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            continue
        if parent == launcher.pid and f"RANK={rank}".encode() in environment:
            return int(place.name)
    raise AssertionError("there is no such rank")


def test_a_rank_is_killed_and_the_same_command_goes_on_to_the_same_weights(folder, tmp_path) -> None:
    """Rank 1 is killed at some moment after the first checkpoint; a sentence, nothing printed; then one document."""
    path = tmp_path / "run.checkpoint"
    words = ("--steps", 30, "--checkpoint", path, "--checkpoint-every", 2, "--output")
    with started(folder, *words, tmp_path / "killed.pt") as broken:
        until = time.monotonic() + 120
        while not path.exists():
            assert time.monotonic() < until
            assert broken.poll() is None, broken.stderr.read()
            time.sleep(0.01)
        os.kill(rank_of(broken, 1), signal.SIGKILL)
        said, complained = broken.communicate(timeout=120)
    assert broken.returncode != 0
    assert said == ""
    assert "Another process of this training has ended" in complained
    assert "a training goes on from its checkpoint" in " ".join(complained.split())
    assert not (tmp_path / "killed.pt").exists()
    with started(folder, *words, tmp_path / "resumed.pt") as again:
        said, complained = again.communicate(timeout=120)
    assert again.returncode == 0, complained
    document = json.loads(said)  # one rank printed, once
    assert document["training"]["processes"] == 2
    assert 2 <= document["training"]["resumed_at"] < 30
    assert document["measurement"]["run"]["steps"] == 30
    assert complained.count("Resuming") == 1
    with started(folder, "--steps", 30, "--output", tmp_path / "whole.pt") as whole:
        said, complained = whole.communicate(timeout=120)
    assert whole.returncode == 0, complained
    assert json.loads(said)["measurement"]["epsilon"] == document["measurement"]["epsilon"]
    weights = [torch.load(tmp_path / name, weights_only=True) for name in ("resumed.pt", "whole.pt")]
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name])


def test_sizes_that_differ_are_refused_by_one_sentence(folder) -> None:
    with started(folder, "--steps", 4, program=(str(folder / "program.py"),)) as differing:
        said, complained = differing.communicate(timeout=120)
    assert differing.returncode != 0
    assert said == ""
    assert "The ranks are not one training" in complained
    assert "dataset_size=40" in complained
    assert "dataset_size=39" in complained
    assert complained.count("The ranks are not one training") == 1
