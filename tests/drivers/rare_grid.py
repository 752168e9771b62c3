"""Poisson runs of large datasets: is epsilon within 2e-3 at the default tolerance, in a second of processor time?

Within 4e-3 where delta is below 1e-12, and within 3e-7 of epsilon in any case.

1,680 settings: q 1e-6 to 0.1, noise 0.5 to 10, one step or 1000 to 1e6, delta 1e-5 to 1e-15. With `--phases` half of
the steps have 1.3 times the noise. Of 10 to 100 rare steps epsilon is below 0.002, and known to about a tenth::

    python tests/drivers/rare_grid.py --part 1/16 --log rare.1.jsonl
    python tests/drivers/rare_grid.py --phases --part 1/16 --log phases.1.jsonl

`--seed` shuffles the grid, and with `--count` only so many are measured.
"""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from calipers.measure import measure
from calipers.run import Run
from drivers import many

RATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
NOISES = (0.5, 0.7, 1.0, 1.5, 2.0, 5.0, 10.0)
STEPS = (1, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
DELTAS = (1e-5, 1e-7, 1e-9, 1e-12, 1e-15)
WIDEST, MOST_SECONDS = 2e-3, 1.0
USUAL, BELOW_USUAL = 1e-12, 4e-3
"""Deltas that people ask for; where they are smaller epsilon may be so wide (q 1e-6, noise 1 and 1.3, 10,000 steps,
delta 1e-15: 2.8e-3)."""
NO_READER = 3e-7
"""Nobody reads a difference of epsilons that is smaller: where epsilon is below 1e-4 the rounding of a million masses
is some parts in a thousand of it (q 1e-6, noise 10, a million steps: 2.4e-3)."""

Setting = dict[str, Any]


def settings(phases: bool = False) -> list[Setting]:
    """All of them: q, sigma, T, delta and, with `phases`, the factor of the noise in a second phase."""
    names = ("sample_rate", "noise_multiplier", "steps", "delta")
    found = [dict(zip(names, each, strict=True)) for each in itertools.product(RATES, NOISES, STEPS, DELTAS)]
    return [each | {"then": 1.3} for each in found if each["steps"] > 1] if phases else found


def runs(setting: Setting) -> list[Run]:
    """One phase, or two."""
    rate, noise, steps = (setting[name] for name in ("sample_rate", "noise_multiplier", "steps"))
    if "then" not in setting:
        return [Run(sample_rate=rate, noise_multiplier=noise, steps=steps)]
    half = steps // 2
    first = Run(sample_rate=rate, noise_multiplier=noise, steps=steps - half)
    return [first, Run(sample_rate=rate, noise_multiplier=setting["then"] * noise, steps=half)]


def asked(setting: Setting) -> many.Record:
    """epsilon at delta as `calipers measure` prints it."""
    bracket = measure(runs(setting)).epsilon(setting["delta"])
    return {"outcome": "answered", "delta": setting["delta"], "epsilon": [bracket.lower, bracket.upper]}


def widest(delta: float, epsilon: float) -> float:
    """How far apart the bounds of an epsilon may be."""
    return max((WIDEST if delta >= USUAL else BELOW_USUAL) * epsilon, NO_READER)


def why_bad(found: many.Record) -> str:
    """What is wrong, or nothing."""
    if found["outcome"] != "answered":
        return str(found["outcome"])
    lower, upper = found["epsilon"]
    if not 0.0 <= lower <= upper:
        return "crossed"
    found["width"] = (upper - lower) / upper if upper > 0.0 else 0.0
    wide = ["wide"] if not upper - lower <= widest(found["delta"], upper) else []
    return ", ".join(wide + (["slow"] if found["seconds"] > MOST_SECONDS else []))


def main() -> int:
    """The grid, or a part of it."""
    options = many.parser(__doc__)
    options.add_argument("--phases", action="store_true", help="two phases each")
    chosen = options.parse_args()
    listed = settings(chosen.phases)
    random.Random(chosen.seed).shuffle(listed)
    return many.drive(asked, many.part_of(listed[: chosen.count], chosen.part), chosen.log, why_bad)


if __name__ == "__main__":
    sys.exit(main())
