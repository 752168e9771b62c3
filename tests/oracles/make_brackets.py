"""Writes ``brackets.json``: what `measure` says of runs of every kind, for `tests/measure/test_reference_table.py`.

From the repository root::

    PYTHONPATH=src python -m tests.oracles.make_brackets

These are no oracles: each jaw is right by the tests of its proof or attack. The table is there to see that a change
keeps the brackets as they are, or narrows them. Write it again only after a change that narrows one, and say so under
**Numbers** in CHANGELOG.md.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from calipers.measure import measure
from calipers.run import Run

TARGET = Path(__file__).with_name("brackets.json")
DELTA, EPSILON = 1e-5, 1.0
MNIST = {"dataset_size": 60_000, "batch_size": 256, "noise_multiplier": 1.1}
FEW = {"dataset_size": 40, "batch_size": 8, "noise_multiplier": 2.0, "steps": 6}

RUNS: list[dict[str, Any]] = [
    {**MNIST, "epochs": 60},
    {**MNIST, "epochs": 1, "noise_multiplier": 0.5},
    {**MNIST, "epochs": 10, "adjacency": "zero-out"},
    {**MNIST, "epochs": 10, "adjacency": "substitute"},
    {"sample_rate": 1e-6, "steps": 100_000, "noise_multiplier": 0.4},
    {"sample_rate": 1.0, "steps": 20, "noise_multiplier": 5.0},
    {**MNIST, "epochs": 4, "sampler": "deterministic", "adjacency": "zero-out"},
    {**MNIST, "epochs": 2, "sampler": "balls-and-bins"},
    {**MNIST, "epochs": 1, "sampler": "balls-and-bins", "adjacency": "substitute"},
    {**MNIST, "epochs": 1, "sampler": "shuffle", "adjacency": "zero-out"},
    {**MNIST, "epochs": 3, "sampler": "shuffle", "view": "isolated"},
    {**MNIST, "epochs": 2, "sampler": "shuffle", "reshuffle": "once", "adjacency": "zero-out"},
    {**MNIST, "epochs": 60, "sampler": "shuffle", "adjacency": "add-remove", "last_batch": "drop"},
    {**MNIST, "epochs": 60, "sampler": "shuffle", "adjacency": "add-remove", "last_batch": "keep"},
    {**MNIST, "epochs": 4, "sampler": "deterministic", "adjacency": "add-remove", "last_batch": "drop"},
    {**MNIST, "steps": 200, "sampler": "without-replacement"},
    {**MNIST, "steps": 200, "sampler": "with-replacement"},
    {**MNIST, "steps": 200, "sampler": "truncated-poisson", "max_batch_size": 300},
    {**MNIST, "steps": 200, "sampler": "cyclic-poisson", "cycle": 4},
    {
        "dataset_size": 60_000,
        "noise_multiplier": 1.1,
        "steps": 234,
        "sampler": "random-allocation",
        "participations": 2,
    },
    {**FEW, "normalization": "expected", "dimension": 100},
    {**FEW, "normalization": "floor", "dimension": 100},
    {**FEW, "normalization": "realized", "dimension": 20, "steps": 1},
    {**MNIST, "epochs": 5, "normalization": "constant"},
    {**MNIST, "epochs": 2, "unit": "person", "records_per_unit": 3},
]


def line(keys: dict[str, Any]) -> dict[str, Any]:
    """Both bounds of epsilon(1e-5) and of delta(1) of one run."""
    found = measure(Run(**keys))
    epsilon, delta = found.epsilon(DELTA), found.delta(EPSILON)
    return {"run": keys, "epsilon": [epsilon.lower, epsilon.upper], "delta": [delta.lower, delta.upper]}


def main() -> None:
    """One line for each run."""
    lines = []
    for keys in RUNS:
        began = time.process_time()
        lines.append(json.dumps(line(keys)))
        print(f"{time.process_time() - began:6.1f} s  {lines[-1]}", flush=True)
    TARGET.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
