"""A training killed at random moments, again and again, is the training that was never killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.measure import measure  # noqa: E402
from calipers.run import Run  # noqa: E402
from calipers.training import checkpoint  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.skipif(not hasattr(os, "fork"), reason="the trainings are forked")]

SOURCE = Path(checkpoint.__file__).parents[2]

# Reads lines {"path", "seconds"}: trains in a process of its own (forked before PyTorch has done anything), which is
# killed after so many seconds since its first step, None for never. Answers with what it said, None if it was killed.
PROGRAM = """
import json, os, signal, sys, time
import numpy as np, torch, torch._dynamo
from calipers.samplers import Shuffle
from calipers.training import Plan, train

Plan(sampler=Shuffle(dataset_size=40, batch_size=8, epochs=8), noise_multiplier=1.0).run()  # loads what it needs

def job(path, tell):
    torch.set_num_threads(1)
    records = np.random.default_rng(0).normal(size=(40, 6))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Dropout(0.3), torch.nn.Linear(9, 3)).double()
    sampler = Shuffle(dataset_size=40, batch_size=8, epochs=8)
    plan = Plan(sampler=sampler, noise_multiplier=1.0, optimizer="adam", seed=7)
    steps = []
    def progress(done, steps_in_all):
        if not steps: os.write(tell, b"begun\\n")
        steps.append(done)
    trained = train(plan, model, records, np.arange(40) % 3, device="cpu", checkpoint=path, checkpoint_every=3,
                    progress=progress)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    said = {"weights": weights, "run": trained.run().to_dict(), "resumed_at": trained.resumed_at}
    os.write(tell, json.dumps(said).encode() + b"\\n")

for line in sys.stdin:
    order = json.loads(line)
    ear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            job(order["path"], tell)
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(ear) as heard:
        heard.readline()  # the first step is taken
        if order["seconds"] is not None:
            time.sleep(order["seconds"])
            os.kill(child, signal.SIGKILL)
        said = heard.read().strip()
    os.waitpid(child, 0)
    print(said if said else "null", flush=True)
"""


@pytest.fixture
def play():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def ask(path, seconds=None):
            server.stdin.write(json.dumps({"path": str(path), "seconds": seconds}) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield ask
        server.stdin.close()


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_same_weights_and_measurement(play, tmp_path, kills) -> None:
    """SIGKILL between 0 and 30 ms after the first step of each process; a step or a checkpoint takes a few.

    Every death but those after the end leaves a checkpoint of a multiple of 3 steps or none; the last process goes on
    from there, and says the weights to the bit, and the run, of the one that was never killed.
    """
    whole = play(tmp_path / "whole")
    path = tmp_path / "killed"
    rng = np.random.default_rng(kills)
    died = 0
    while died < kills:
        said = play(path, float(rng.uniform(0.0, 0.03)))
        died += said is None
        if said is not None:  # it was faster than its death: begin another
            assert said["weights"] == whole["weights"]
            path.unlink()
    said = play(path)
    assert said["resumed_at"] % 3 == 0 or said["resumed_at"] == 40
    assert said["weights"] == whole["weights"]
    assert said["run"] == whole["run"]
    found, expected = (measure(Run.from_dict(answer["run"])).epsilon(delta=1e-5) for answer in (said, whole))
    assert (found.lower, found.upper) == (expected.lower, expected.upper)
    assert not list(tmp_path.glob("*.partial"))
