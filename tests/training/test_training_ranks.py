"""Several processes that train together are one training: weights, noise, checkpoints, refusals, deaths."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import chdtrc

torch = pytest.importorskip("torch")

from calipers.errors import InputError, UnsupportedError  # noqa: E402
from calipers.measure import measure  # noqa: E402
from calipers.run import Run  # noqa: E402
from calipers.training import Ranks, checkpoint  # noqa: E402
from calipers.training.distributed import refuse_wrapped  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")]

SOURCE = Path(checkpoint.__file__).parents[2]
ROOT = Path(__file__).parents[2]

# Reads jobs {"size": ranks, ...} and plays each with so many processes joined by gloo (forked before PyTorch has done
# anything); answers with the list of what the ranks said, None for one that was killed.
PROGRAM = """
import json, os, signal, sys, tempfile, time
import numpy as np, torch, torch._dynamo
from calipers.errors import CalipersError
from calipers.samplers import Poisson
from calipers.training import Plan, joined_ranks, train

Plan(sampler=Poisson(dataset_size=30, batch_size=3, steps=8), noise_multiplier=1.0).run()  # loads what it needs
mine = {}  # what this rank was told; not bound by `prepare`, whose fingerprint all ranks share

def prepare(rows):
    mine["taken"] = mine.get("taken", 0) + 1
    if mine.get("dies_in") == mine["taken"]: os.kill(os.getpid(), signal.SIGKILL)
    if mine.get("sleeps_in") == mine["taken"]: time.sleep(mine["timeout"] + 3)
    if mine.get("drifts_in") == mine["taken"]: mine["model"][0].bias.data.add_(1e-12)
    return rows

def answer(job, rank):
    mine.update({**job, **job.get("on", {}).get(str(rank), {})})
    torch.set_num_threads(1)
    records = np.random.default_rng(mine.get("data", 0)).normal(size=(mine.get("rows", 30), 6))
    labels = np.arange(len(records)) % 3
    torch.manual_seed(mine.get("weights", 0))
    layers = [torch.nn.Linear(6, mine.get("width", 5)), torch.nn.Tanh(), torch.nn.Linear(mine.get("width", 5), 3)]
    model = mine["model"] = torch.nn.Sequential(*layers).double()
    sampler = Poisson(dataset_size=mine.get("claimed", len(records)), sample_rate=mine.get("q", 0.1), steps=8)
    plan = Plan(sampler=sampler, noise_multiplier=mine.get("noise", 1.0), learning_rate=mine.get("rate", 0.5),
                normalization=mine.get("divisor", "realized"), optimizer=mine.get("optimizer", "adam"),
                seed=mine.get("seed", 5))
    begun = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    trained = train(plan, model, records, labels, device="cpu", prepare=prepare, checkpoint=mine.get("path"),
                    checkpoint_every=3)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    return {"weights": weights, "begun": begun, "resumed_at": trained.resumed_at, "run": trained.run().to_dict()}

def child(job, rank, out):
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": job["port"], "RANK": rank, "WORLD_SIZE": job["size"]}
    os.environ.update({name: str(value) for name, value in place.items()})
    try:
        with joined_ranks(device="cpu", timeout=job.get("timeout", 60)):
            said = answer(job, rank)
    except CalipersError as error:
        said = {"error": type(error).__name__, "text": str(error)}
    with open(out, "w") as file:
        json.dump(said, file)

for line in sys.stdin:
    job = json.loads(line)
    with tempfile.TemporaryDirectory() as folder:
        files, children = [], []
        for rank in range(job["size"]):
            files.append(os.path.join(folder, str(rank)))
            pid = os.fork()
            if pid == 0:
                try:
                    child(job, rank, files[-1])
                finally:
                    sys.stderr.flush()
                    os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        print(json.dumps([json.load(open(f)) if os.path.exists(f) else None for f in files]), flush=True)
"""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def play():
    """play(size, **job): what every rank said."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def ask(size, **job):
            server.stdin.write(json.dumps({"size": size, "port": free_port(), **job}, default=str) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield ask
        server.stdin.close()


@pytest.fixture(scope="module")
def one(play):
    return play(1)[0]


def test_shares_are_the_batch() -> None:
    """Every record of the batch is in exactly one share, also where there are fewer records than ranks."""
    for size in (1, 2, 3, 7):
        for count in range(12):
            shares = [Ranks(rank, size).share(np.arange(count)) for rank in range(size)]
            assert np.concatenate(shares).tolist() == list(range(count))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("size", [2, 3])
def test_weights_run_and_bracket_are_those_of_one_process(play, one, size) -> None:
    """Ranks agree to the bit; with one process up to the order of addition in double precision, over 8 steps of Adam.

    The noise (sigma = C) is in the weights: left out on all ranks, or added by two, they would be off by tenths.
    The divisor is the realized size of the whole batch; that of a share would show as well.
    """
    said = play(size)
    assert all(rank["weights"] == said[0]["weights"] for rank in said)
    assert said[0]["weights"] == pytest.approx(one["weights"], rel=0, abs=1e-11)
    assert max(abs(a - b) for a, b in zip(one["weights"], one["begun"], strict=True)) > 0.1
    assert all(rank["run"] == one["run"] for rank in said)
    executed = Run.from_dict(said[-1]["run"])
    assert executed.total_steps == 8
    assert measure(executed).epsilon(delta=1e-3).upper == measure(Run.from_dict(one["run"])).epsilon(delta=1e-3).upper


def test_the_noise_is_added_once_also_without_a_seed_and_on_empty_batches(play) -> None:
    """Empty batches, plain SGD with rate 1: the weights move by 8 sums of noise. Chi-square at 1e-6, both sides.

    Noise from two ranks would have twice the variance, which the test would reject (also checked). Initial weights
    that differ are rank 0's.
    """
    job = {"q": 1e-12, "width": 60, "rate": 1.0, "optimizer": "sgd", "divisor": "none", "seed": None}
    said = play(2, **job, on={"1": {"weights": 1}})
    assert said[0]["begun"] != said[1]["begun"]
    assert said[0]["weights"] == said[1]["weights"]
    moved = np.subtract(said[0]["weights"], said[0]["begun"])
    square, freedom = float(moved @ moved) / 8, len(moved)
    assert 1e-6 < chdtrc(freedom, square) < 1 - 1e-6
    assert chdtrc(freedom, 2 * square) < 1e-6
    assert 1 - chdtrc(freedom, square / 2) < 1e-6
    assert play(2, **job)[0]["weights"] != said[0]["weights"]  # the key is fresh


def test_killed_and_resumed_with_another_number_of_ranks(play, one, tmp_path) -> None:
    """A rank is killed in the fifth step; the others end with a sentence; two go on from the third step."""
    path = tmp_path / "run.checkpoint"
    said = play(3, path=path, on={"1": {"dies_in": 5}})
    assert said[1] is None
    for rank in (said[0], said[2]):
        assert rank["error"] == "RankError"
        assert "has ended or did not answer" in rank["text"]
        assert "a training goes on from its checkpoint" in rank["text"]
    assert path.stat().st_mode & 0o077 == 0
    # Only rank 0 reads the file: the other's path is on a disk of its own, and empty.
    said = play(2, path=path, on={"1": {"path": tmp_path / "nothing"}})
    assert [rank["resumed_at"] for rank in said] == [3, 3]
    assert said[0]["weights"] == said[1]["weights"] == pytest.approx(one["weights"], rel=0, abs=1e-11)
    assert said[0]["run"] == one["run"]
    assert not (tmp_path / "nothing").exists()
    # One process takes up what several have finished.
    assert play(1, path=path)[0]["weights"] == said[0]["weights"]


def test_killed_again_and_again_goes_on_to_the_same_bits(play, tmp_path) -> None:
    """Any rank, rank 0 too, in any step after the last checkpoint."""
    path = tmp_path / "run.checkpoint"
    whole = play(2)
    # Checkpoints come after 3, 6 and 8 steps: deaths in steps 1, 5, 5, 7, 7 and 8.
    for dying, step in ((0, 1), (1, 5), (0, 2), (1, 4), (0, 1), (1, 2)):
        said = play(2, path=path, on={str(dying): {"dies_in": step}})
        assert said[dying] is None
        assert said[1 - dying]["error"] == "RankError"
    said = play(2, path=path)
    assert said[0]["weights"] == said[1]["weights"] == whole[0]["weights"]


def test_ranks_that_drift_apart_release_nothing(play, tmp_path) -> None:
    """A weight of rank 1 is off by 1e-12 in the second step: all refuse before the first checkpoint, or at the end."""
    for path in (tmp_path / "run.checkpoint", None):
        said = play(2, path=path, on={"1": {"drifts_in": 2}})
        assert [rank["error"] for rank in said] == ["InputError", "InputError"]
        assert "weights is" in said[0]["text"]
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_does_not_answer_counts_as_gone(play) -> None:
    said = play(2, timeout=2, on={"1": {"sleeps_in": 2}})
    assert said[0]["error"] == "RankError"
    assert "did not answer" in said[0]["text"]


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ({"rows": 29}, "sampler is"),
        ({"claimed": 31}, "draws from 31 records, but there are 30"),
        ({"data": 1}, "data is"),
        ({"noise": 0.5}, "noise_multiplier is 1.0 on rank 0, 0.5 on rank 1"),
        ({"seed": 6}, "seed is 5 on rank 0, 6 on rank 1"),
        ({"width": 4}, "model is"),
        ({"path": None}, "checkpoint is every 3 steps on rank 0, none on rank 1"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_ranks_that_differ_are_refused_on_all(play, tmp_path, difference, words) -> None:
    path = tmp_path / "run.checkpoint"
    said = play(2, path=path, on={"1": difference})
    assert [rank["error"] for rank in said] == ["InputError", "InputError"]
    assert words in said[0]["text"]
    assert words in said[1]["text"]
    assert not path.exists()


def test_what_rank_0_refuses_all_refuse(play, tmp_path) -> None:
    """A damaged checkpoint, and a place that cannot be written."""
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"something")
    for path, words in ((damaged, "not a checkpoint"), (damaged / "below", "cannot be written")):
        said = play(2, path=path)
        assert [rank["error"] for rank in said] == ["InputError", "InputError"]
        assert words in said[0]["text"]
        assert said[1]["text"] == f"Rank 0 of 2 refused: {said[0]['text']}"


def test_torchrun_without_a_group_is_refused(monkeypatch) -> None:
    """Each process would release a model of its own."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="torchrun started 2 processes"):
        Ranks.found()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Ranks.found().size == 1


def test_wrapped_and_sharded_models_are_refused() -> None:
    wrapper = torch.nn.parallel.DistributedDataParallel
    with pytest.raises(InputError, match="give the model within it"):
        refuse_wrapped(wrapper.__new__(wrapper))

    class Sharded(torch.nn.Parameter):
        def full_tensor(self):
            return self

    model = torch.nn.Linear(2, 1)
    refuse_wrapped(model)
    model.weight = Sharded(model.weight.detach())
    with pytest.raises(UnsupportedError, match="FSDP"):
        refuse_wrapped(model)


def test_the_example_under_torchrun(tmp_path) -> None:
    """Two processes of the real launcher; rank 0 alone prints, and what it prints is the bracket of one process."""
    words = [str(ROOT / "examples" / "several_processes.py"), "--checkpoint", str(tmp_path / "run.checkpoint")]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    done = subprocess.run(
        [sys.executable, *launcher, *words],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("2 processes, 50 steps, epsilon at delta = 1e-05: [")
    low, high = (float(word) for word in line.split("[")[1].rstrip("]").split(", "))
    assert 0 < low <= high < math.inf
