"""Brackets of runs that people make: what a change of the engine widened, and what it crossed.

Some 130 runs of every sampler and adjacency, each in a process of its own, with epsilon at 1e-5, 1e-8 and 1e-12,
delta at 1 and the advantage. `--write` stores them in ``reference_brackets.json``; without it they are computed anew
and compared with what is stored, and the exit status is 1 where an answer crosses a stored one (the lower bound of one
is above the upper bound of the other), or is wider by more than half a percent of its upper bound::

    PYTHONPATH=src OMP_NUM_THREADS=1 python tests/drivers/reference_brackets.py
    PYTHONPATH=src OMP_NUM_THREADS=1 python tests/drivers/reference_brackets.py --only poisson

Times are of one core, and only printed: they are another machine's. Nothing here is an oracle; a stored bracket is
right by the tests of its proof and of its attack.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from calipers.errors import CalipersError
from calipers.measure import measure
from calipers.run import Run
from drivers import many

TARGET = Path(__file__).with_suffix(".json")
WIDER = 0.005
"""An answer may widen by this share of its upper bound."""
SLOWER = 2.0
"""A run that takes so many times as long is named."""
DELTAS = (1e-5, 1e-8, 1e-12)

MNIST = {"dataset_size": 60_000, "batch_size": 256, "noise_multiplier": 1.1}
CIFAR = {"dataset_size": 50_000, "batch_size": 2048, "noise_multiplier": 1.6}
ADULT = {"dataset_size": 32_561, "batch_size": 256, "noise_multiplier": 0.9}
SMALL = {"dataset_size": 1_000, "batch_size": 50, "noise_multiplier": 2.0}
FEW = {"dataset_size": 40, "batch_size": 8, "noise_multiplier": 2.0, "steps": 6, "dimension": 100}
ADJACENCIES = ("add-remove", "zero-out", "substitute")

Keys = dict[str, Any]


def _poisson() -> list[Keys]:
    """The usual runs, from small data to language models, and rates at which a record is rarely drawn."""
    usual = [
        {**MNIST, "epochs": 60},
        {**MNIST, "epochs": 1, "noise_multiplier": 0.5},
        {**MNIST, "epochs": 15, "noise_multiplier": 0.7},
        {**CIFAR, "epochs": 1},
        {**CIFAR, "epochs": 30},
        {"dataset_size": 50_000, "batch_size": 4096, "noise_multiplier": 3.0, "steps": 2_500},
        {"dataset_size": 50_000, "batch_size": 512, "noise_multiplier": 1.0, "epochs": 90},
        {"dataset_size": 1_281_167, "batch_size": 16_384, "noise_multiplier": 2.5, "steps": 72_000},
        {"dataset_size": 1_281_167, "batch_size": 256, "noise_multiplier": 0.6, "epochs": 10},
        {**ADULT, "epochs": 20},
        {**SMALL, "epochs": 5},
        {**SMALL, "epochs": 100, "noise_multiplier": 8.0},
        {"dataset_size": 67_349, "batch_size": 1024, "noise_multiplier": 0.7, "epochs": 3},
        {"sample_rate": 1.0, "steps": 20, "noise_multiplier": 5.0},
        {"sample_rate": 0.01, "steps": 1, "noise_multiplier": 1.0},
        {"sample_rate": 0.01, "steps": 10_000, "noise_multiplier": 1.0},
        {"sample_rate": 0.01, "steps": 1_000_000, "noise_multiplier": 10.0},
        {"sample_rate": 0.5, "steps": 300, "noise_multiplier": 20.0},
        {"sample_rate": 0.1, "steps": 100, "noise_multiplier": 0.4},
    ]
    rare = [
        {"sample_rate": rate, "steps": steps, "noise_multiplier": noise}
        for rate, steps, noise in (
            (1e-3, 1, 0.7),
            (1e-3, 100, 0.6),
            (1e-3, 1_000, 0.5),
            (1e-3, 10_000, 0.7),
            (1e-3, 100_000, 1.0),
            (1e-4, 10, 0.5),
            (1e-4, 1_000, 1.0),
            (1e-4, 10_000, 0.5),
            (1e-4, 10_000, 1.0),
            (1e-4, 100_000, 0.7),
            (1e-4, 1_000_000, 1.0),
            (1e-5, 1_000, 0.5),
            (1e-5, 30_000, 0.7),
            (1e-5, 100_000, 0.5),
            (1e-5, 1_000_000, 0.7),
            (1e-6, 1_000, 0.3),
            (1e-6, 100_000, 0.4),
            (1e-6, 1_000_000, 0.5),
            (1e-6, 1_000_000, 2.0),
        )
    ]
    others = [
        {**keys, "adjacency": adjacency}
        for adjacency in ADJACENCIES[1:]
        for keys in (
            {**MNIST, "epochs": 10},
            {**CIFAR, "epochs": 30},
            {**SMALL, "epochs": 5},
            {"sample_rate": 1e-4, "steps": 10_000, "noise_multiplier": 0.7},
        )
    ]
    return usual + rare + others


def _other_samplers() -> list[Keys]:
    """All but Poisson and shuffled batches."""
    found: list[Keys] = []
    for adjacency in ADJACENCIES:
        named = {"adjacency": adjacency}
        for keys in ({**MNIST, "steps": 200}, {**CIFAR, "steps": 500}, {**SMALL, "steps": 40}):
            batch = keys["batch_size"]
            found += [
                {**keys, **named, "sampler": "without-replacement"},
                {**keys, **named, "sampler": "with-replacement"},
                {**keys, **named, "sampler": "truncated-poisson", "max_batch_size": batch + batch // 5},
                {**keys, **named, "sampler": "cyclic-poisson", "cycle": 4},
            ]
            allocated = {key: value for key, value in keys.items() if key != "batch_size"}
            found.append({**allocated, **named, "sampler": "random-allocation", "participations": 3})
        found.append({**ADULT, "steps": 2_000, **named, "sampler": "truncated-poisson", "max_batch_size": 300})
    for adjacency in ADJACENCIES[1:]:
        found += [
            {**MNIST, "epochs": 4, "sampler": "deterministic", "adjacency": adjacency},
            {**MNIST, "epochs": 2, "sampler": "balls-and-bins", "adjacency": adjacency},
            {**CIFAR, "epochs": 10, "sampler": "balls-and-bins", "adjacency": adjacency},
            {**SMALL, "epochs": 3, "sampler": "balls-and-bins", "reshuffle": "once", "adjacency": adjacency},
        ]
    found += [
        {**MNIST, "epochs": 4, "sampler": "deterministic", "adjacency": "add-remove", "last_batch": "drop"},
        {**CIFAR, "epochs": 5, "sampler": "balls-and-bins"},
    ]
    return found


def _shuffled() -> list[Keys]:
    """Shuffled batches: one epoch and many, remainder dropped, kept and none, one order for all epochs."""
    found: list[Keys] = []
    for adjacency in ("zero-out", "substitute"):
        named = {"sampler": "shuffle", "adjacency": adjacency}
        found += [
            {**CIFAR, "epochs": 1, **named},
            {**CIFAR, "epochs": 30, **named},
            {**MNIST, "epochs": 10, **named},
            {**SMALL, "epochs": 3, "noise_multiplier": 4.0, **named},
        ]
    named = {"sampler": "shuffle", "adjacency": "add-remove"}
    found += [
        {**MNIST, "epochs": 60, **named, "last_batch": "drop"},
        {**MNIST, "epochs": 10, **named, "last_batch": "keep"},
        {**CIFAR, "epochs": 1, **named, "last_batch": "drop"},
        {
            "dataset_size": 60_001,
            "batch_size": 600,
            "noise_multiplier": 1.5,
            "epochs": 5,
            **named,
            "last_batch": "drop",
        },
        {**SMALL, "dataset_size": 1_001, "epochs": 3, **named, "last_batch": "drop"},
        {**MNIST, "epochs": 3, "sampler": "shuffle", "view": "isolated"},
        {**MNIST, "epochs": 2, "sampler": "shuffle", "reshuffle": "once", "adjacency": "zero-out"},
    ]
    return found


def _divided_and_units() -> list[Keys]:
    """Sums divided by a number that the data decide, and units of several records."""
    return [
        {**FEW, "normalization": "expected"},
        {**FEW, "normalization": "floor"},
        {**FEW, "normalization": "realized", "dimension": 20, "steps": 1},
        {**SMALL, "epochs": 2, "normalization": "expected", "dimension": 10_000},
        {**SMALL, "steps": 1, "normalization": "realized", "dimension": 10_000},
        {**MNIST, "epochs": 5, "normalization": "constant"},
        {**MNIST, "epochs": 2, "unit": "person", "records_per_unit": 3},
        {**SMALL, "epochs": 2, "unit": "person", "records_per_unit": 4, "adjacency": "substitute"},
        {**SMALL, "epochs": 2, "unit": "person", "records_per_unit": 4, "sampler": "without-replacement"},
        {
            **SMALL,
            "epochs": 2,
            "unit": "person",
            "records_per_unit": 3,
            "sampler": "shuffle",
            "adjacency": "zero-out",
            "noise_multiplier": 8.0,
        },
    ]


RUNS: list[Keys] = [*_poisson(), *_other_samplers(), *_shuffled(), *_divided_and_units()]


def name_of(keys: Keys) -> str:
    """One line that names the run."""
    return " ".join([keys.get("sampler", "poisson"), *(f"{k}={v}" for k, v in keys.items() if k != "sampler")])


def answers(keys: Keys) -> many.Record:
    """What is asked of a run: name of the question -> [lower, upper], or the class of what is raised."""
    found: dict[str, object] = {}
    try:
        measured = measure(Run(**keys))
        questions = {f"epsilon({delta:g})": lambda delta=delta: measured.epsilon(delta) for delta in DELTAS}
        questions |= {"delta(1)": lambda: measured.delta(1.0), "advantage": measured.advantage}
        for question, ask in questions.items():
            bracket = ask()
            found[question] = [bracket.lower, bracket.upper]
    except CalipersError as error:
        found["raised"] = type(error).__name__
    return {"outcome": "answered", "answers": found}


def change(before: Any, after: Any) -> str:
    """What is wrong with an answer beside the stored one, or nothing."""
    if before == after:
        return ""
    if isinstance(before, str) or isinstance(after, str) or before is None or after is None:
        return f"was {before}, is {after}"
    if not 0.0 <= after[0] <= after[1]:
        return f"crossed in itself: {after}"
    if after[0] > before[1] or before[0] > after[1]:
        return f"CROSSES: was {before}, is {after}"
    wider = max(after[1] - before[1], before[0] - after[0])
    if wider > WIDER * before[1] and wider > 1e-300:
        return f"wider by {wider / before[1]:.2%}: was {before}, is {after}"
    return ""


def compare(stored: list[Keys], chosen: list[Keys]) -> int:
    """Ask again and print what changed for the worse; how many answers did."""
    known = {name_of(entry["run"]): entry for entry in stored}
    bad, total, earlier = 0, 0.0, 0.0
    for keys in chosen:
        name = name_of(keys)
        if name not in known:
            print(f"{name}: not stored")
            bad += 1
            continue
        found, before = many.alone(answers, keys), known[name]
        total, earlier = total + found["seconds"], earlier + before["seconds"]
        if found["seconds"] > SLOWER * before["seconds"] + 0.1:
            print(f"{name}: {found['seconds']:.2f} s, was {before['seconds']:.2f} s", flush=True)
        now = found.get("answers", {"raised": found["outcome"]})
        for question in dict.fromkeys([*before["answers"], *now]):
            if said := change(before["answers"].get(question), now.get(question)):
                print(f"{name}: {question} {said}", flush=True)
                bad += 1
    print(f"{len(chosen)} runs, {bad} answers for the worse; {total:.0f} s of a core, {earlier:.0f} s when stored")
    return bad


def write(chosen: list[Keys]) -> None:
    """Ask all and store."""
    lines = []
    for keys in chosen:
        found = many.alone(answers, keys)
        said = found.get("answers", {"raised": found["outcome"]})
        lines.append(json.dumps({"run": keys, "answers": said, "seconds": round(found["seconds"], 2)}))
        print(f"{found['seconds']:6.2f} s  {name_of(keys)}", flush=True)
    TARGET.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def main() -> int:
    """Compare with what is stored, or store."""
    options = argparse.ArgumentParser(description="brackets of runs that people make, beside stored ones")
    options.add_argument("--write", action="store_true", help="store instead of comparing")
    options.add_argument("--only", default="", help="runs whose name holds this")
    options.add_argument("--list", action="store_true", help="print the names")
    chosen = options.parse_args()
    listed = [keys for keys in RUNS if chosen.only in name_of(keys)]
    if chosen.list:
        print("\n".join(map(name_of, listed)))
        return 0
    if chosen.write:
        write(RUNS)
        return 0
    return 1 if compare(json.loads(TARGET.read_text("utf-8")), listed) else 0


if __name__ == "__main__":
    sys.exit(main())
