"""Random runs of truncated Poisson batches beside dp_accounting: is our upper bound ever above theirs?

A run is about datasets of N - 1 and N + 1 records, theirs about one size, so ours is held against the larger of their
values for N and N + 1. Their value is an upper bound too, on a grid of `--interval`: where both libraries bound the
same number it may be the smaller one by no more than their truncation of tails, 1e-9 of epsilon and 1e-12::

    python tests/drivers/truncated_events.py --count 200 --log truncated.jsonl
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import dp_accounting

from calipers.adapters.dp_accounting import RELATIONS
from calipers.measure import measure
from calipers.run import Run
from drivers import many

RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""What theirs may fall short of the number that they bound."""


def drawn(seed: int) -> dict[str, object]:
    """One run."""
    rng = random.Random(seed)
    size = round(10 ** rng.uniform(1.0, 4.5))
    rate = 10 ** rng.uniform(-2.5, -0.2)
    mean = size * rate
    largest = max(1, round(mean + rng.choice([-1.0, 0.0, 1.0, 2.0, 4.0, 8.0]) * mean**0.5))
    return {
        "dataset_size": size,
        "sample_rate": rate,
        "max_batch_size": largest,
        "noise_multiplier": round(10 ** rng.uniform(-0.1, 1.3), 3),
        "steps": round(10 ** rng.uniform(0.0, 3.0)),
        "adjacency": rng.choice(["add-remove", "zero-out", "substitute"]),
        "delta": 10 ** rng.uniform(-9.0, -2.0),
    }


def compared(about: dict[str, object], interval: float) -> many.Record:
    """Both upper bounds."""
    delta = about["delta"]
    run = Run(sampler="truncated-poisson", **{name: value for name, value in about.items() if name != "delta"})
    ours = measure(run).epsilon(delta)
    relation = getattr(dp_accounting.NeighboringRelation, RELATIONS[run.adjacency])
    theirs = []
    for size in (run.dataset_size, run.dataset_size + 1) if run.adjacency == "add-remove" else (run.dataset_size,):
        event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
            size, run.sample_rate, run.max_batch_size, run.noise_multiplier
        )
        accountant = dp_accounting.pld.PLDAccountant(relation, value_discretization_interval=interval)
        accountant.compose(event, run.total_steps)
        theirs.append(float(accountant.get_epsilon(delta)))
    return {"outcome": "compared", "ours": [ours.lower, ours.upper], "theirs": max(theirs)}


def why_bad(found: many.Record) -> str:
    """What is wrong, or nothing."""
    if found["outcome"] != "compared":
        return str(found["outcome"])
    lower, upper = found["ours"]
    if not lower <= upper:
        return "crossed"
    return "above" if upper > found["theirs"] * (1.0 + RELATIVE) + ABSOLUTE else ""


def main() -> int:
    """Compare all."""
    parser = many.parser(__doc__)
    parser.add_argument("--interval", type=float, default=1e-4, help="of their grid; ours is held against it")
    options = parser.parse_args()
    listed = [drawn(options.seed + number) for number in range(options.count or 200)]
    part = many.part_of(listed, options.part)
    return many.drive(lambda about: compared(about, options.interval), part, options.log, why_bad)


if __name__ == "__main__":
    sys.exit(main())
