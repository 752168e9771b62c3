"""Forged checkpoints, correctly sealed, with contents that no training wrote; and the training that should go on."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import json
import random
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from calipers.errors import CalipersError
from calipers.samplers import Shuffle
from drivers import fuzz_files

HAS_TORCH = importlib.util.find_spec("torch") is not None
_TEXTS = ("batches", "noise", "evaluations", "canaries", "belongs_to")


def _train(path: Path, stop: int | None = None) -> None:
    import numpy as np
    import torch

    from calipers.training import Plan, train

    class Stop(Exception):
        pass

    def progress(done: int, _steps: int) -> None:
        if done == stop:
            raise Stop

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    records, labels = rng.normal(size=(20, 3)).astype("float32"), rng.integers(2, size=20)
    model = torch.nn.Linear(3, 2)
    sampler = Shuffle(dataset_size=20, batch_size=5, epochs=2)
    plan = Plan(sampler=sampler, noise_multiplier=1.0, learning_rate=0.5, optimizer="adam", schedule="cosine", seed=5)
    with suppress(Stop):
        train(plan, model, records, labels, device="cpu", checkpoint=path, checkpoint_every=3, progress=progress)


@functools.cache
def _honest() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.checkpoint"
        _train(path, stop=3)
        return path.read_bytes()


def forged(rng: random.Random, folder: Path) -> Path:
    """A checkpoint of the training above, changed in a few places and sealed anew."""
    import torch

    from calipers.training.checkpoint import FORMAT

    begin = len(FORMAT) + hashlib.sha256().digest_size
    record: dict[str, Any] = torch.load(io.BytesIO(_honest()[begin:]), weights_only=True)
    way = rng.randrange(10)
    if way < 5:  # what is written as JSON
        key = rng.choice(_TEXTS)
        record[key] = json.dumps(fuzz_files.changed(json.loads(record[key]) or {"a": 1}, rng))
    elif way < 8:  # everything else
        tensors = (torch.zeros(0), torch.full((2, 3), torch.nan), torch.zeros(2, 3, dtype=torch.complex64))
        tensors += (torch.zeros(2, 3).to_sparse(), torch.zeros(1).expand(10**6, 10**3), torch.ones(2, 3, device="meta"))
        places = [place for place in fuzz_files.places(record) if place[0] not in _TEXTS]
        *outer, key = rng.choice(places)
        holder: Any = record
        for step in outer:
            holder = holder[step]
        holder[key] = rng.choice((*tensors, *fuzz_files.VALUES))
    elif way == 8:
        del record[rng.choice(sorted(record))]
    packed = io.BytesIO()
    torch.save(record if way < 9 else rng.choice(([], {}, 1, "x", torch.zeros(3))), packed)
    content = packed.getvalue()
    if rng.random() < 0.15:
        content = fuzz_files.torn(content, rng)
    path = folder / "run.checkpoint"
    path.write_bytes(FORMAT + hashlib.sha256(content).digest() + content)
    return path


def resumed(path: Path) -> int:
    """Go on from it, as a command would end: 0, 2 with a sentence, or 70 with a traceback."""
    try:
        _train(path)
    except CalipersError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()
        return 70
    return 0
