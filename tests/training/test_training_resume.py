"""A training killed at any moment and started again is the training that was never killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.measure import measure  # noqa: E402
from calipers.samplers import BallsAndBins, Poisson, Shuffle  # noqa: E402
from calipers.training import Plan, checkpoint, train  # noqa: E402
from calipers.training.checkpoint import data_digest, load_checkpoint, save_checkpoint  # noqa: E402

pytestmark = pytest.mark.torch

# Children use the package that this process uses.
SOURCE = Path(checkpoint.__file__).parents[2]
N = 40
STEPS = 8

# Reads lines "moment number checkpoint" and does each in a process of its own (forked before PyTorch has done
# anything): trains for 8 steps with a checkpoint every 3, and kills itself after a step (not yet written) or in the
# middle of writing a checkpoint, before or after the renaming. Answers with the signal that ended the process, and, if
# there was none, where it began, what was executed and the weights.
PROGRAM = """
import os, signal, sys, traceback
import numpy as np, torch, torch._dynamo  # the latter is what the first optimizer would load
from pathlib import Path
from calipers.samplers import Shuffle
from calipers.training import Plan, train

def job(moment, number, path):
    def die():
        os.kill(os.getpid(), signal.SIGKILL)
    def progress(done, steps):
        if moment == "step" and done == number: die()
    replace, saved = os.replace, [0]
    def dying_replace(source, target):
        saved[0] += 1
        if moment == "before-rename" and saved[0] == number: die()
        replace(source, target)
        if moment == "after-rename" and saved[0] == number: die()
    os.replace = dying_replace
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    records, labels = rng.normal(size=(40, 6)).astype("float32"), rng.integers(3, size=40)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    plan = Plan(sampler=Shuffle(dataset_size=40, batch_size=10, epochs=2), noise_multiplier=1.0, learning_rate=0.5,
                optimizer="adam", schedule="cosine", seed=5)
    trained = train(plan, model, records, labels, device="cpu", checkpoint=path, checkpoint_every=3, progress=progress)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    print(0, trained.resumed_at, trained.run().to_dict(), weights.numpy().tobytes().hex(), flush=True)

for line in sys.stdin:
    moment, number, path = line.split()
    child = os.fork()
    if child == 0:
        try:
            job(moment, int(number), Path(path))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if status:
        print(os.WTERMSIG(status) or "failed", flush=True)
"""


@pytest.fixture(scope="module")
def child():
    """child(moment, number, path): the answer's words of one process."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def ask(moment, number, path):
            server.stdin.write(f"{moment} {number} {path}\n")
            server.stdin.flush()
            return server.stdout.readline().rstrip().split(" ", 2)

        yield ask
        server.stdin.close()


@pytest.fixture(scope="module")
def uninterrupted(child, tmp_path_factory):
    ended, resumed_at, rest = child("never", 0, tmp_path_factory.mktemp("whole") / "run.checkpoint")
    assert (ended, resumed_at) == ("0", "0")
    return rest


@pytest.mark.parametrize(
    ("deaths", "place"),
    [
        ([("step", 1), ("step", 2)], 0),  # before anything was written
        ([("step", 4), ("step", 5), ("step", 7)], 6),  # again and again
        ([("before-rename", 1)], 0),  # while the first checkpoint is being written
        ([("before-rename", 2)], 3),  # while the second one is
        ([("after-rename", 2)], 6),  # when it is in place but nobody knows
        ([("step", 8)], 8),  # when all was done
    ],
    ids=lambda value: "-".join(f"{m}{n}" for m, n in value) if isinstance(value, list) else "",
)
def test_killed_and_resumed_is_the_same_run_and_the_same_weights(tmp_path, child, uninterrupted, deaths, place) -> None:
    """SIGKILL leaves no time to clean up. The weights agree to the last bit, and so does the run that is measured."""
    path = tmp_path / "run.checkpoint"
    for moment, number in deaths:
        assert child(moment, number, path) == [str(int(signal.SIGKILL))]
    assert child("never", 0, path) == ["0", str(place), uninterrupted]


def model_of(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


RNG = np.random.default_rng(0)
RECORDS, LABELS = RNG.normal(size=(N, 6)).astype(np.float32), RNG.integers(3, size=N)


class Interrupted(Exception):
    pass


def stopping_at(step):
    def progress(done, _):
        if done == step:
            raise Interrupted

    return progress


SAMPLERS = {
    "poisson": Poisson(dataset_size=N, batch_size=10, steps=STEPS),
    "shuffle": Shuffle(dataset_size=N, batch_size=10, epochs=2),
    "balls-and-bins": BallsAndBins(dataset_size=N, batch_size=10, epochs=2),
}


@pytest.mark.parametrize("name", list(SAMPLERS))
@pytest.mark.parametrize("step", range(1, STEPS))
def test_any_step_will_do(tmp_path, name, step) -> None:
    """Interrupted after each step in turn, with a checkpoint after every one; also across the end of an epoch."""
    plan = Plan(sampler=SAMPLERS[name], noise_multiplier=1.0, momentum=0.9, seed=3)
    whole, parts = model_of(), model_of()
    train(plan, whole, RECORDS, LABELS, device="cpu")
    settings = {"device": "cpu", "checkpoint": tmp_path / "c", "checkpoint_every": 1}
    with pytest.raises(Interrupted):
        train(plan, parts, RECORDS, LABELS, progress=stopping_at(step), **settings)
    other = model_of(seed=9)  # its weights come from the checkpoint
    trained = train(plan, other, RECORDS, LABELS, **settings)
    assert trained.resumed_at == step
    for one, two in zip(whole.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert trained.run().total_steps == STEPS


def test_without_a_seed_the_secrets_are_in_the_checkpoint(tmp_path) -> None:
    """Two resumptions of one interrupted run agree; two runs do not. The owner alone may read the file."""
    plan = Plan(sampler=SAMPLERS["poisson"], noise_multiplier=1.0)
    path = tmp_path / "c"
    with pytest.raises(Interrupted):
        train(
            plan,
            model_of(),
            RECORDS,
            LABELS,
            device="cpu",
            checkpoint=path,
            checkpoint_every=1,
            progress=stopping_at(4),
        )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    finished = []
    for _ in range(2):
        path.write_bytes(content)
        model = model_of()
        train(plan, model, RECORDS, LABELS, device="cpu", checkpoint=path)
        finished.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(finished[0], finished[1])
    fresh = model_of()
    train(plan, fresh, RECORDS, LABELS, device="cpu")
    assert not torch.equal(finished[0], torch.cat([p.detach().flatten() for p in fresh.parameters()]))


@pytest.mark.parametrize(
    ("changes", "records", "message"),
    [
        ({"noise_multiplier": 0.5}, RECORDS, r"noise_multiplier was 1\.0, now 0\.5\. Resume"),
        ({"seed": 4}, RECORDS, r"seed was 3, now 4\. Resume"),
        ({"sampler": Poisson(dataset_size=N, batch_size=11, steps=STEPS)}, RECORDS, r"sampler was Poisson\("),
        ({}, RECORDS + 1, "data was"),
    ],
)
def test_another_run_is_not_resumed(tmp_path, changes, records, message) -> None:
    settings = {"sampler": SAMPLERS["poisson"], "noise_multiplier": 1.0, "seed": 3}
    path = tmp_path / "c"
    train(Plan(**settings), model_of(), RECORDS, LABELS, device="cpu", checkpoint=path)
    with pytest.raises(InputError, match=f"belongs to another run: {message}"):
        train(Plan(**settings | changes), model_of(), records, LABELS, device="cpu", checkpoint=path)


def test_another_model_is_not_resumed_and_no_identity_hides_the_plan(tmp_path) -> None:
    plan, path = Plan(sampler=SAMPLERS["poisson"], noise_multiplier=1.0, seed=3), tmp_path / "c"
    settings = {"device": "cpu", "checkpoint": path, "identity": {"model": "mine", "seed": "0"}}
    train(plan, model_of(), RECORDS, LABELS, **settings)
    with pytest.raises(InputError, match=r"; parameters was \d+, \w{16}, now \d+, \w{16}\. Resume"):
        train(plan, torch.nn.Linear(6, 3), RECORDS, LABELS, **settings)
    with pytest.raises(InputError, match="model was mine, now None"):
        train(plan, model_of(), RECORDS, LABELS, **settings | {"identity": {}})
    with pytest.raises(InputError, match="seed was 3, now 5"):
        train(dataclasses.replace(plan, seed=5), model_of(), RECORDS, LABELS, **settings)


def test_the_folder_of_the_checkpoint_is_made_before_the_first_step(tmp_path) -> None:
    """A place that cannot be written to is found out when nothing is lost yet; the place may be a string."""
    (tmp_path / "file").write_text("")
    plan, steps = Plan(sampler=SAMPLERS["poisson"], noise_multiplier=1.0), []
    with pytest.raises(InputError, match="cannot be written"):
        train(plan, model_of(), RECORDS, LABELS, checkpoint=str(tmp_path / "file" / "c"), progress=steps.append)
    assert steps == []
    train(plan, model_of(), RECORDS, LABELS, device="cpu", checkpoint=str(tmp_path / "new" / "c"))
    assert (tmp_path / "new" / "c").is_file()


def test_progress_begins_where_the_run_is_taken_up_again(tmp_path) -> None:
    plan, heard = Plan(sampler=SAMPLERS["poisson"], noise_multiplier=1.0, seed=3), []
    settings = {"device": "cpu", "checkpoint": tmp_path / "c", "checkpoint_every": 3}
    with pytest.raises(Interrupted):
        train(plan, model_of(), RECORDS, LABELS, progress=stopping_at(7), **settings)
    for expected in ([6, 7, 8], [8]):
        heard.clear()
        train(plan, model_of(), RECORDS, LABELS, progress=lambda done, _: heard.append(done), **settings)
        assert heard == expected


def test_a_foreign_file_is_not_taken_for_a_checkpoint(tmp_path) -> None:
    path = tmp_path / "c"
    for content in (b"", b"nonsense", b"PK\x03\x04 nonsense"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a checkpoint"):
            load_checkpoint(path, belongs_to={}, device="cpu")
    torch.save({"belongs_to": "{}"}, path)
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(path, belongs_to={}, device="cpu")
    assert load_checkpoint(tmp_path / "absent", belongs_to={}, device="cpu") is None
    with pytest.raises(InputError, match="cannot be read"):
        load_checkpoint(tmp_path, belongs_to={}, device="cpu")


def test_a_changed_bit_anywhere_is_noticed(tmp_path) -> None:
    """PyTorch itself reads many of these files without complaint, with other weights or another number of steps."""
    path = tmp_path / "c"
    save_checkpoint(path, belongs_to={"a": 1}, contents={"value": torch.arange(20.0), "batches": "position 17"})
    whole = path.read_bytes()
    assert load_checkpoint(path, belongs_to={"a": 1}, device="cpu")["batches"] == "position 17"
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(InputError, match=r"is damaged|not a checkpoint"):
            load_checkpoint(path, belongs_to={"a": 1}, device="cpu")
    for length in (1, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"is damaged|not a checkpoint"):
            load_checkpoint(path, belongs_to={"a": 1}, device="cpu")


@pytest.mark.parametrize("seed", [3, None])
def test_layers_that_draw_random_numbers_draw_the_same_ones_again(tmp_path, seed) -> None:
    """Dropout, while others use PyTorch's own generator: two resumptions agree, and with a seed the whole run does."""

    def finished(plan, **settings):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 30), torch.nn.Dropout(0.5), torch.nn.Linear(30, 3))
        torch.seed()
        outside = torch.random.get_rng_state()
        train(plan, model, RECORDS, LABELS, device="cpu", **settings)
        assert torch.equal(torch.random.get_rng_state(), outside)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    plan = Plan(sampler=SAMPLERS["poisson"], noise_multiplier=1.0, seed=seed)
    path = tmp_path / "c"
    with pytest.raises(Interrupted):
        finished(plan, checkpoint=path, checkpoint_every=3, progress=stopping_at(5))
    content = path.read_bytes()
    resumed = finished(plan, checkpoint=path)
    path.write_bytes(content)
    assert torch.equal(finished(plan, checkpoint=path), resumed)
    assert torch.equal(finished(plan), resumed) == (seed is not None)


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch) -> None:
    """The disk is full: the old file is still there, whole."""
    path = tmp_path / "c"
    save_checkpoint(path, belongs_to={"a": 1}, contents={"value": 1})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"No space left on device.; the one before is kept"):
            save_checkpoint(path, belongs_to={"a": 1}, contents={"value": 2})
    assert [found.name for found in tmp_path.iterdir()] == ["c"]
    assert load_checkpoint(path, belongs_to={"a": 1}, device="cpu")["value"] == 1
    save_checkpoint(path, belongs_to={"a": 1}, contents={"value": 3})
    assert load_checkpoint(path, belongs_to={"a": 1}, device="cpu")["value"] == 3


def test_the_digest_sees_every_entry_and_the_shape() -> None:
    base = np.arange(6, dtype=np.uint8)
    changed = base.copy()
    changed[5] = 0
    digests = {data_digest(a) for a in (base, changed, base.reshape(2, 3), base.astype(np.int16), base[:0])}
    assert len(digests) == 5
    assert data_digest(base) == data_digest(base.copy())


def test_the_measurement_of_a_resumed_run_is_that_of_the_whole(tmp_path) -> None:
    """Neither the steps before the interruption nor those after it are forgotten or counted twice."""
    plan = Plan(sampler=SAMPLERS["balls-and-bins"], noise_multiplier=1.0, seed=3)
    path = tmp_path / "c"
    with pytest.raises(Interrupted):
        train(
            plan,
            model_of(),
            RECORDS,
            LABELS,
            device="cpu",
            checkpoint=path,
            checkpoint_every=2,
            progress=stopping_at(5),
        )
    resumed = train(plan, model_of(), RECORDS, LABELS, device="cpu", checkpoint=path)
    whole = train(plan, model_of(), RECORDS, LABELS, device="cpu")
    assert resumed.resumed_at == 4
    found, expected = (measure(trained.run()).epsilon(delta=1e-5) for trained in (resumed, whole))
    assert (found.lower, found.upper) == (expected.lower, expected.upper)
