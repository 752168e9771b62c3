"""One shuffled epoch with a remainder: is the finest upper bound within 1 % of an exact evaluation that shares no code?

Noise 0.5 to 5, 50 to 5,000 batches, delta 1e-2 to 1e-10; takes hours for all, so `--count` of them by `--seed`::

    python tests/drivers/shuffled_exact.py --count 40 --seed 1
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from oracles.shuffled_recursion import exact_divergence

from calipers.laws.allocated.shuffled import ShuffledEpoch

NOISES = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
BATCHES = (50, 200, 1000, 5000)
DELTAS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
WIDEST = 1.01


def over_exact(sigma: float, batches: int, delta: float) -> tuple[float, float]:
    """The default epsilon at delta, and what the finest bound on delta there is over the exact value."""
    share = 2 * batches / (2 * batches + 1)
    epsilon = ShuffledEpoch(sigma, batches, share).epsilon(delta)
    exact = exact_divergence(sigma, batches, epsilon, share, shares=(0.0, 1.0))
    return epsilon, ShuffledEpoch(sigma, batches, share, fine=True).delta(epsilon) / exact


def main() -> int:
    """Prints every ratio; fails if one is below 1 or above the widest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    grid = list(itertools.product(NOISES, BATCHES, DELTAS))
    bad = 0
    for setting in random.Random(options.seed).sample(grid, min(options.count, len(grid))):
        epsilon, ratio = over_exact(*setting)
        wrong = epsilon > 0.0 and not 1.0 - 1e-5 <= ratio <= WIDEST
        bad += wrong
        print(*setting, f"epsilon {epsilon:.6g} upper/exact {ratio:.5f}", "WRONG" if wrong else "", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
