"""Random runs certified, checked, and compared with `measure`: no bound may be on the wrong side of the other's.

    python tests/drivers/certified_runs.py --count 300 --log certified.jsonl

Where rounds hide the record, or a sum is divided, cells are wide, so that a run takes seconds: such certificates are as
true as others, their upper bounds some percent higher. Refusals must be about what cannot be certified.
"""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from calipers.certificates import certify, claims, lower, placing, rounds
from calipers.errors import UnsupportedError
from calipers.measure import measure
from calipers.run import Run
from calipers_verify import verify
from drivers import many

ADJACENCIES = ("add-remove", "zero-out", "substitute")
KINDS = ("poisson",) * 4 + ("deterministic", "balls-and-bins", "balls-and-bins", "shuffle", "divided")
ORDERS = ("every-epoch", "every-epoch", "every-epoch", "once")
LAST = ("drop", "keep")
DIVIDED = ({"normalization": "realized", "dimension": 100}, {"derived_rate": "moving"})


@contextlib.contextmanager
def wide_cells() -> Iterator[None]:
    """Certificates as true as any, quick to check, and looser by some percent."""
    coarse = {"_RESOLUTION": 0.2, "_TAIL": 16, "_RESOLUTION_OF_MANY": 0.3, "_TAIL_OF_MANY": 12}
    with (
        patch.object(claims, "_SHARE", 0.05),
        patch.object(placing.places_between, "__defaults__", (0.2, 1 << 60)),
        patch.object(lower, "_MESH", 2001),
        patch.object(lower._snapped, "__defaults__", (0.2,)),
        patch.multiple(rounds, **coarse),
    ):
        yield


def drawn(number: int) -> tuple[dict[str, Any], float]:
    """The keys of random run `number`, and delta."""
    rng = random.Random(number)
    kind, delta, adjacency = rng.choice(KINDS), 10.0 ** -rng.randint(3, 12), rng.choice(ADJACENCIES)
    sigma = round(math.exp(rng.uniform(math.log(0.5), math.log(6.0))), 3)
    keys: dict[str, Any] = {"noise_multiplier": sigma, "sampler": kind, "adjacency": adjacency}
    if kind == "poisson":
        rate, steps = round(math.exp(rng.uniform(math.log(1e-3), 0.0)), 4), rng.choice([1, 2, 7, 30, 200])
        return keys | {"sample_rate": rate, "steps": steps}, delta
    if kind == "divided":
        size, steps, how = rng.choice([50, 300, 2000]), rng.choice([1, 5, 40]), rng.choice(DIVIDED)
        keys |= {"dataset_size": size, "batch_size": rng.choice([3, size // 20 + 1, size // 5]), "steps": steps}
        return keys | {"sampler": "poisson", "adjacency": "add-remove", **how}, delta
    keys |= {"epochs": rng.choice([1, 1, 2, 5]), "noise_multiplier": max(sigma, 1.0)}
    if kind == "shuffle":  # nodes take a sum each: little noise makes them wide, and many
        keys |= {"epochs": rng.choice([1, 1, 2]), "noise_multiplier": max(sigma, 2.0)}
        batch, batches, view = rng.choice([4, 20, 50]), rng.choice([2, 5, 18]), rng.choice(["worst-case", "isolated"])
        keys |= {"batch_size": batch, "dataset_size": batch * batches + rng.choice([0, 1, batch // 2]), "view": view}
        return keys | {"last_batch": rng.choice(LAST), "reshuffle": rng.choice(ORDERS)}, delta
    if kind == "deterministic":
        batch = rng.choice([2, 5, 20])
        return keys | {"batch_size": batch, "dataset_size": 5 * batch + 1, "last_batch": rng.choice(LAST)}, delta
    keys["reshuffle"] = rng.choice(ORDERS)
    return keys | {"sample_rate": 1 / rng.choice([2, 5, 20])}, delta


def asked(number: int) -> many.Record:
    """Both brackets of run `number`, or the refusal."""
    keys, delta = drawn(number)
    run, about = Run(**keys), {"keys": keys, "delta": delta}
    try:
        measured = measure(run, tolerance=1e-2).epsilon(delta)
        with wide_cells() if run.epochs or run.dataset_size else contextlib.nullcontext():
            certificate = certify(run, delta=delta)
    except UnsupportedError as error:
        return about | {"outcome": "refused", "said": str(error)}
    verify(certificate.to_json().encode())
    low, high = (None if end is None else float(end) for end in certificate.epsilon)
    about |= {"certified": [low, high], "measured": [measured.lower, measured.upper]}
    assert high is not None
    crossed = high < measured.lower or (low is not None and low > min(high, measured.upper))
    return about | {"outcome": "crossed" if crossed else "in order"}


def why_bad(found: many.Record) -> str:
    """What is wrong, or nothing."""
    return "" if found["outcome"] in ("in order", "refused") else str(found["outcome"])


def main() -> int:
    """Three hundred, or a part of them."""
    chosen = many.parser(__doc__).parse_args()
    numbers = range(chosen.seed, chosen.seed + (chosen.count or 300))
    return many.drive(asked, many.part_of(list(numbers), chosen.part), chosen.log, why_bad)


if __name__ == "__main__":
    sys.exit(main())
