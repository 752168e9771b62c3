"""A checkpoint with a correct seal and contents that no training wrote is refused in a sentence."""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.samplers import Shuffle  # noqa: E402
from calipers.training import Plan, train  # noqa: E402
from calipers.training.checkpoint import FORMAT  # noqa: E402

pytestmark = pytest.mark.torch
BEGIN = len(FORMAT) + 32


def _train(path: Path, seed: int | None = 5, steps: int = 8) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    records, labels = rng.normal(size=(20, 3)).astype("float32"), rng.integers(2, size=20)
    plan = Plan(
        sampler=Shuffle(dataset_size=20, batch_size=5, epochs=2), noise_multiplier=1.0, learning_rate=0.5,
        optimizer="adam", schedule="cosine", seed=seed,
    )  # fmt: skip

    def progress(done: int, _steps: int) -> None:
        if done == steps:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        train(plan, torch.nn.Linear(3, 2), records, labels, device="cpu", checkpoint=path, checkpoint_every=2,
              progress=progress)  # fmt: skip


def _forge(path: Path, change: Any) -> None:
    record = torch.load(io.BytesIO(path.read_bytes()[BEGIN:]), weights_only=True)
    changed = change(record)
    record = record if changed is None else changed
    packed = io.BytesIO()
    torch.save(record, packed)
    path.write_bytes(FORMAT + hashlib.sha256(packed.getvalue()).digest() + packed.getvalue())


def _set(key: str, value: Any) -> Any:
    return lambda record: record.__setitem__(key, value)


def _json(key: str, name: str, value: Any) -> Any:
    return lambda record: record.__setitem__(key, json.dumps({**json.loads(record[key]), name: value}))


FORGED = {
    "no mapping": lambda record: [1],
    "a tensor": lambda record: torch.zeros(3),
    "without a model": lambda record: record.pop("model") and None,
    "another shape": lambda record: record["model"].__setitem__("weight", torch.zeros(3, 3)),
    "another kind": lambda record: record["model"].__setitem__("weight", torch.zeros(2, 3, dtype=torch.complex64)),
    "a sparse tensor": lambda record: record["model"].__setitem__("weight", torch.zeros(2, 3).to_sparse()),
    "a word for an optimizer": _set("optimizer", "adam"),
    "a number for a moment": lambda record: record["optimizer"]["state"][0].__setitem__("exp_avg", 1.0),
    "no moment": lambda record: record["optimizer"]["state"][0].__setitem__("exp_avg", None),
    "a rate of words": lambda record: record["optimizer"]["param_groups"][0].__setitem__("lr", "fast"),
    "an option of the optimizer": lambda record: record["optimizer"]["param_groups"][0].__setitem__("amsgrad", True),
    "a sign turned around": lambda record: record["optimizer"]["param_groups"][0].__setitem__("maximize", True),
    "a schedule without a place": lambda record: record.get("schedule", record).clear(),
    "no JSON": _set("batches", "{"),
    "a number for batches": _set("batches", "3"),
    "a generator's words": _json("batches", "generator", {"bit_generator": "PCG64", "state": []}),
    "a place beyond the words": _json(
        "batches", "generator", {"bit_generator": "MT19937", "state": {"key": [1] * 624, "pos": 10**6}}
    ),
    "evaluations that are none": _set("evaluations", "[1]"),
    "another noise": _json("noise", "secret", "6"),
    "noise of another kind": _set("noise", json.dumps({"source": "secure", "secret": "00" * 32})),
    "canaries": _set("canaries", '{"included": [true]}'),
    "belongs to nobody": _set("belongs_to", "[]"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_contents_are_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    _train(path, steps=2)
    _forge(path, FORGED[name])
    with pytest.raises(InputError) as refused:
        _train(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_honest_contents_sealed_anew_are_taken(tmp_path: Path) -> None:
    """So the refusals above are about what was changed."""
    path = tmp_path / "run.checkpoint"
    for seed in (5, None):
        path.unlink(missing_ok=True)
        _train(path, seed, steps=2)
        _forge(path, lambda record: None)
        _train(path, seed)
