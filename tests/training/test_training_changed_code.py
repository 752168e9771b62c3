"""A checkpoint is gone on with by the code that began it: helpers behind prepare, loss and forward count too."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.samplers import Poisson  # noqa: E402
from calipers.training import Plan, train  # noqa: E402
from calipers.training.fingerprint import fingerprint, model_fingerprint  # noqa: E402

pytestmark = pytest.mark.torch

SOURCE = Path(__file__).parents[2] / "src"
RECORDS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
LABELS = np.arange(12) % 3
PLAN = Plan(sampler=Poisson(dataset_size=12, batch_size=4, steps=4), noise_multiplier=1.0, seed=3)
PARTS = """\
import helper
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return helper.forward(self.layer(x))


def prepare(rows):
    return helper.prepare(rows)


def loss(scores, label):
    return helper.loss(scores, label)
"""
HELPER = """\
import torch


def forward(scores):
    return scores * {forward}


def prepare(rows):
    return rows * {prepare}


def loss(scores, label):
    return torch.nn.functional.cross_entropy(scores, label) * {loss}
"""


class Stopped(Exception):
    """The training is ended here."""


def stop(done: int, steps: int) -> None:
    if done == 2:
        raise Stopped


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget()


def forget() -> None:
    for name in ("parts", "helper", "aside"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def go(folder: Path, progress=None, **factors: float) -> int:
    """Where a training with these helpers went on, imported as in a new process."""
    (folder / "parts.py").write_text(PARTS)
    (folder / "helper.py").write_text(HELPER.format(**{"forward": 1.0, "prepare": 1.0, "loss": 1.0} | factors))
    forget()
    parts = importlib.import_module("parts")
    torch.manual_seed(0)
    how = {"prepare": parts.prepare, "loss": parts.loss, "progress": progress, "checkpoint_every": 1}
    trained = train(PLAN, parts.Model(), RECORDS, LABELS, device="cpu", checkpoint=folder / "c", **how)
    return trained.resumed_at


@pytest.mark.parametrize("which", ["forward", "prepare", "loss"])
def test_a_changed_helper_is_refused(which: str, folder: Path) -> None:
    """What stands behind prepare, loss and forward in another file; unchanged, the training goes on."""
    with pytest.raises(Stopped):
        go(folder, stop)
    with pytest.raises(InputError, match=r"begun with other code: helper changed since\. Put back what was there"):
        go(folder, **{which: 3.0})
    assert go(folder) == 2


def test_modules_of_one_session_alone_do_not_matter(folder: Path) -> None:
    """A module that was not loaded at the beginning is none of the training's."""
    with pytest.raises(Stopped):
        go(folder, stop)
    (folder / "aside.py").write_text("x = 1\n")
    importlib.import_module("aside")
    assert go(folder) == 2


FACTOR = 2.0
CALLS = 0


def helped(rows):
    return doubled(rows) * FACTOR


def doubled(rows):
    return rows * 2.0


class Scaled(torch.nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.layer, self.factor = torch.nn.Linear(4, 3), factor

    def forward(self, x):
        return self.layer(doubled(x)) * self.factor


class Narrower(Scaled):
    pass


def counted(rows):
    global CALLS
    CALLS += 1
    return rows


def test_what_a_function_takes_from_its_script_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers and constants of its own file, seen through classes and bases; what it sets itself does not."""
    seen = {name: fingerprint(function) for name, function in (("helped", helped), ("counted", counted))}
    models = [model_fingerprint(model) for model in (Scaled(), Narrower())]
    assert models[0] != models[1]
    assert seen["helped"] == fingerprint(helped)
    counted(0)
    assert seen["counted"] == fingerprint(counted)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert seen["helped"] != fingerprint(helped)
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    monkeypatch.setitem(globals(), "doubled", counted)
    assert seen["helped"] != fingerprint(helped)
    assert models != [model_fingerprint(model) for model in (Scaled(), Narrower())]
    assert len({*models, *(model_fingerprint(model) for model in (Scaled(), Narrower()))}) == 4


def multiplied(factor, rows):
    return rows * factor


class Settings:
    def __init__(self, factor: float) -> None:
        self.factor, self.table, self.calls, self.known = factor, {"b": factor}, 0, {}

    def __call__(self, rows):
        self.calls += 1
        self.known[self.calls] = rows
        return rows * self.factor

    def looked_up(self, rows):
        return rows * self.table["b"]


def cached(factor):
    return functools.lru_cache(lambda: factor)


def kind(factor, member):
    return type("Kind", (), {"__module__": __name__, "member": member(factor)})


HELPERS = {
    "a dictionary": (lambda factor: {"a": factor}, lambda rows: rows * HELPER_OF_ALL["a"]),
    "a list": (lambda factor: [factor], lambda rows: rows * HELPER_OF_ALL[0]),
    "an object": (Settings, lambda rows: HELPER_OF_ALL(rows)),
    "a table of an object": (Settings, lambda rows: HELPER_OF_ALL.looked_up(rows)),
    "a partial": (lambda factor: functools.partial(multiplied, factor), lambda rows: HELPER_OF_ALL(rows)),
    "a cached function": (cached, lambda rows: rows * HELPER_OF_ALL()),
    "a constant of a class": (lambda factor: kind(factor, float), lambda rows: rows * HELPER_OF_ALL.member),
    "a static method": (
        lambda factor: kind(factor, lambda own: staticmethod(lambda: own)),
        lambda rows: rows * HELPER_OF_ALL.member(),
    ),
    "a property": (
        lambda factor: kind(factor, lambda own: property(lambda self: own)),
        lambda rows: rows * HELPER_OF_ALL().member,
    ),
    "a namespace": (lambda factor: argparse.Namespace(factor=factor), lambda rows: rows * HELPER_OF_ALL.factor),
}
HELPER_OF_ALL = None
SEEN: dict[int, object] = {}


@pytest.mark.parametrize("case", HELPERS)
def test_helpers_of_any_kind_count(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a function of the script uses may be a table, an object, or a class as well as a function."""
    made, prepare = HELPERS[case]
    seen = []
    for factor in (2.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "HELPER_OF_ALL", made(factor))
        seen.append(fingerprint(prepare))
    assert seen[0] == seen[1] != seen[2]


def test_functions_given_as_objects_and_methods_count() -> None:
    """Their settings too; what they remember of calls does not."""
    for chosen in (lambda it: it, lambda it: it.looked_up):
        one = Settings(2.0)
        before = fingerprint(chosen(one))
        assert before == fingerprint(chosen(Settings(2.0))) != fingerprint(chosen(Settings(3.0)))
        one(1.0)
        assert before == fingerprint(chosen(one))


def remembering(rows):
    SEEN[len(SEEN)] = rows
    return rows


def test_what_is_remembered_or_not_named_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that the function fills itself, and options of the script that it does not name."""
    before = fingerprint(remembering)
    remembering(1.0)
    assert fingerprint(remembering) == before
    prepare, found = HELPERS["a namespace"][1], []
    for more in ({}, {"resume": True}):
        monkeypatch.setitem(globals(), "HELPER_OF_ALL", argparse.Namespace(factor=2.0, **more))
        found.append(fingerprint(prepare))
    assert found[0] == found[1]


def test_another_layer_of_the_same_size_is_refused(tmp_path: Path) -> None:
    """Activations have no parameters, and are code all the same."""
    how = {"device": "cpu", "checkpoint": tmp_path / "c"}
    begun = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    train(PLAN, begun, RECORDS, LABELS, **how)
    with pytest.raises(InputError, match=r"belongs to another run: model's code was Sequential, \w{16}, now"):
        train(PLAN, torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()), RECORDS, LABELS, **how)


def test_what_no_text_shows_is_found_by_gradients(tmp_path: Path) -> None:
    """A setting of the model that it does not print: the first records give other gradients; unchanged, the same."""
    how = {"device": "cpu", "checkpoint": tmp_path / "c", "checkpoint_every": 1}
    torch.manual_seed(0)
    with pytest.raises(Stopped):
        train(PLAN, Scaled(), RECORDS, LABELS, progress=stop, **how)
    with pytest.raises(InputError, match="the first records no longer give the gradients that they gave"):
        train(PLAN, Scaled(-1.0), RECORDS, LABELS, **how)
    assert train(PLAN, Scaled(), RECORDS, LABELS, **how).resumed_at == 2


SCRIPT = """\
import sys
import numpy as np, torch
from calipers.samplers import Poisson
from calipers.training import Plan, train

def scaled(rows):
    return rows * FACTOR

FACTOR = {factor}

def prepare(rows):
    return scaled(rows)

records, labels = np.ones((12, 4), dtype=np.float32), np.arange(12) % 3
plan = Plan(sampler=Poisson(dataset_size=12, batch_size=4, steps=4), noise_multiplier=1.0, seed=3)
def progress(done, steps):
    if done == {ends}: sys.exit(9)
how = dict(device="cpu", checkpoint="c", checkpoint_every=1, prepare=prepare, progress=progress)
print(train(plan, torch.nn.Linear(4, 3), records, labels, **how).resumed_at{more})
"""


@pytest.mark.slow
def test_a_script_may_be_edited_where_it_does_not_matter(tmp_path: Path) -> None:
    """Two processes: what `prepare` uses in the script counts, what the script prints does not."""

    def play(**parts: object) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(SCRIPT.format(**{"factor": 2.0, "ends": 0, "more": ""} | parts))
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        line = [sys.executable, "script.py"]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert play(ends=2).returncode == 9
    refused = play(factor=3.0)
    assert "belongs to another run: prepare was prepare, " in refused.stderr
    assert play(more=", 'done'").stdout.split() == ["2", "done"]
