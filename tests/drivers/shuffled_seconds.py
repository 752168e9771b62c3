"""What each second buys: epsilon at 1e-5 of shuffled batches, by default and with a finer tolerance.

Prints the rows of the table in docs/theory/shuffling.md (section 8): CPU seconds, peak memory and the width of the
bracket as a share of its upper bound, each of both bounds in a process of its own; all of it takes about five minutes.
Seconds are this machine's::

    PYTHONPATH=src OMP_NUM_THREADS=1 python tests/drivers/shuffled_seconds.py
    PYTHONPATH=src OMP_NUM_THREADS=1 python tests/drivers/shuffled_seconds.py --quick
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from calipers.measure import measure
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.run import Run
from drivers import many

SIZE, DELTA = 60_000, 1e-5
BATCHES = {256: "dropped", 250: "none"}
"""Batch sizes, and what becomes of a remainder."""
NOISES, EPOCHS, TOLERANCES = (1.1, 2.0, 4.0), (1, 60), (1e-3, 1e-4)
LONGEST = 900
"""Seconds of a core for one question."""

Setting = tuple[int, int, float, float]


def bracket(setting: Setting) -> many.Record:
    """Epsilon of batch size, epochs, noise and tolerance."""
    batch, epochs, noise, tolerance = setting
    run = Run(
        dataset_size=SIZE,
        batch_size=batch,
        epochs=epochs,
        noise_multiplier=noise,
        sampler="shuffle",
        adjacency="zero-out",
        last_batch="drop",
    )
    found = measure(run, tolerance=tolerance).epsilon(DELTA)
    return {"lower": found.lower, "upper": found.upper}


def main() -> int:
    """A row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the default tolerance only")
    tolerances = TOLERANCES[:1] if parser.parse_args().quick else TOLERANCES
    many.limit(LONGEST, 3 << 30)
    for batch, epochs, noise, tolerance in itertools.product(BATCHES, EPOCHS, NOISES, tolerances):
        if batch == 250 and tolerance < TOLERANCES[0]:
            continue  # a finer tolerance asks the recursion with a remainder only
        found = many.alone(bracket, (batch, epochs, noise, tolerance))
        if "lower" not in found:
            print(found)
            return 1
        width = 100.0 * (1.0 - found["lower"] / found["upper"])
        ends = f"[{floor_digits(found['lower'])}, {ceil_digits(found['upper'])}]"
        row = f"| {BATCHES[batch]} | {epochs} | {noise:g} | {tolerance:g} | {ends} | {width:.2f} |"
        print(f"{row} {found['seconds']:.1f} | {found['megabytes']:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
