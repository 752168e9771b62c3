"""Random divided runs: every question of a report answered in order, within 5 s of processor time and 500 MB.

N 2 to 1e6, q 1e-4 to 1, n 1 to 1e8, T 1 to 1e5, sigma 0.5 to 50, all on a logarithmic scale::

    python tests/drivers/divided_runs.py --part 1/16 --log divided.1.jsonl

measures runs number 0 to 2999, a sixteenth of them; `--seed` is the first, `--count` how many. Refusals must be about
the user's numbers.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np

from calipers.errors import CalipersError
from calipers.measure import measure
from calipers.reports.answers import Questions, answer
from calipers.run import Run
from drivers import many

MOST_SECONDS, MOST_MEGABYTES = 5.0, 500.0
DIVIDED = ("expected", "floor", "realized")


def drawn(number: int) -> dict[str, Any]:
    """The keys of random run `number`."""
    rng = np.random.default_rng(number)
    size = round(10.0 ** rng.uniform(math.log10(2.0), 6.0))
    rate = float(10.0 ** rng.uniform(-4.0, 0.0))
    dimension, steps = round(10.0 ** rng.uniform(0.0, 8.0)), round(10.0 ** rng.uniform(0.0, 5.0))
    sigma = float(10.0 ** rng.uniform(math.log10(0.5), math.log10(50.0)))
    keys = {"dataset_size": size, "sample_rate": rate, "steps": steps, "noise_multiplier": sigma}
    return keys | {"normalization": DIVIDED[number % 3], "dimension": dimension}


def asked(keys: dict[str, Any]) -> many.Record:
    """Every question of a report; the answers, or the refusal."""
    try:
        found = answer(measure(Run(**keys)), Questions())
    except CalipersError as error:
        return {"outcome": "refused", "said": str(error)}
    readings = [(f"{r.quantity} {r.at}", r.bracket.lower, r.bracket.upper) for r in found.readings]
    crossed = [name for name, lower, upper in readings if not lower <= upper]
    return {"outcome": "crossed" if crossed else "in order", "said": "; ".join(crossed), "readings": readings}


def why_bad(found: many.Record) -> str:
    """What is wrong, or nothing."""
    wrong = [] if found["outcome"] in ("in order", "refused") else [str(found["outcome"])]
    if found["outcome"] == "refused" and "floor(" not in found["said"]:
        wrong.append("refused for another reason")
    if found["seconds"] > MOST_SECONDS:
        wrong.append("slow")
    return ", ".join(wrong + (["memory"] if found["megabytes"] > MOST_MEGABYTES else []))


def main() -> int:
    """Three thousand, or a part of them."""
    chosen = many.parser(__doc__).parse_args()
    numbers = range(chosen.seed, chosen.seed + (chosen.count or 3000))
    return many.drive(
        lambda number: {"keys": drawn(number)} | asked(drawn(number)),
        many.part_of(list(numbers), chosen.part),
        chosen.log,
        why_bad,
    )


if __name__ == "__main__":
    sys.exit(main())
