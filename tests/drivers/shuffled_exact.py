"""One shuffled epoch with a remainder: is the finest upper bound within 1 % of an exact evaluation that shares no code?

Noise 0.5 to 5, 50 to 5,000 batches, delta 1e-2 to 1e-10: 140 settings, the largest first, which take an hour or two of
a core; parts of them run side by side::

    seq 140 | xargs -P 16 -I{} python tests/drivers/shuffled_exact.py --part {}/140
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
from oracles.shuffled_quadrature import divergence_by_quadrature
from oracles.shuffled_recursion import exact_divergence

from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from drivers.many import part_of

NOISES = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
BATCHES = (5000, 1000, 200, 50)
DELTAS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
WIDEST, ESTIMATED = 1.01, 5e-5
"""Largest ratio, and what the exact evaluation may be off by."""
COARSE, FINE, LITTLE_NOISE, RARE = 0.1, 0.05, 1.0, 1e-7
"""Steps of the exact evaluation, the second one with less noise than this, where small values take more digits."""
LARGEST_EPSILON = 13.0
"""Beyond it (noise 0.5, delta 1e-10) the exact evaluation by transforms has no digits, and quadrature takes over."""


def over_exact(sigma: float, batches: int, delta: float) -> tuple[float, float]:
    """The default epsilon at delta, and what the finest bound on delta there is over the exact value."""
    share = 2 * batches / (2 * batches + 1)
    epsilon = ShuffledEpoch(sigma, batches, share).epsilon(delta)
    step = FINE if sigma < LITTLE_NOISE else COARSE
    digits = np.longdouble if sigma < LITTLE_NOISE and delta < RARE else np.float64
    if epsilon < LARGEST_EPSILON:
        exact = exact_divergence(sigma, batches, epsilon, share, step=step, shares=(0.0, 1.0), digits=digits)
    else:
        exact = divergence_by_quadrature(sigma, batches, epsilon, share)
    return epsilon, ShuffledEpoch(sigma, batches, share, fine=True).delta(epsilon) / exact


def main() -> int:
    """Prints every ratio; fails if one is below 1 or above the widest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="1/1", help="i/n: every n-th setting, from the i-th on")
    bad = 0
    for batches, sigma, delta in part_of(list(itertools.product(BATCHES, NOISES, DELTAS)), parser.parse_args().part):
        setting = sigma, batches, delta
        epsilon, ratio = over_exact(*setting)
        wrong = epsilon > 0.0 and not 1.0 - ESTIMATED <= ratio <= WIDEST
        bad += wrong
        print(*setting, f"epsilon {epsilon:.6g} upper/exact {ratio:.5f}", "WRONG" if wrong else "", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
