"""Figure 2 and Theorem 4.2: Poisson against deterministic batches.

The theorem says that delta_D > delta_P for every epsilon below some epsilon_0, and delta_D < delta_P beyond some
epsilon_1. Its proof gives both as numbers, far apart; Conjecture 4.3 says that one crossing serves as both.

A crossing is certified from the bracket of delta_P: where its upper end lies below delta_D, Poisson is better; where
its lower end lies above, Poisson is worse. Bisection between two such places ends where the bracket covers delta_D.
The narrower the bracket of delta_P, the shorter that last interval.
"""

from __future__ import annotations

import itertools

import numpy as np

from calipers.bracket import Bracket
from calipers.numerics.elementary import bisect
from calipers.numerics.types import FloatArray
from calipers.papers.chua2024 import published
from calipers.papers.chua2024.settings import deterministic, epoch, poisson
from calipers.papers.items import ItemProgress, NumberPair, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.theorems import poisson_halfspace as theorem

EPOCH = epoch(published.FIGURE_2_NOISE_MULTIPLIER, published.FIGURE_2_STEPS)
EPSILON: FloatArray = np.linspace(0.0, 50.0, 26)


def _poisson(epsilon: float) -> Bracket:
    return poisson(EPOCH, "add-remove").delta(epsilon)


def poisson_is_better(epsilon: float) -> bool | None:
    """Whether delta_P < delta_D at epsilon; None where the bracket of delta_P does not decide."""
    found, fixed = _poisson(epsilon), deterministic(EPOCH, "delta", epsilon)
    if found.upper < fixed[0]:
        return True
    return False if found.lower > fixed[1] else None


def crossing_bracket(low: float, high: float) -> NumberPair:
    """Between these delta_D - delta_P changes its sign from + to -; at both ends the sign is certain.

    `low` and `high` must have certain signs, + and -. Halving stops at the first undecided middle, around which the
    ends then close in by halves.
    """
    while True:
        middle = 0.5 * (low + high)
        better = poisson_is_better(middle)
        if better is None:
            return _shrunk(low, middle, True), _shrunk(high, middle, False)
        low, high = (middle, high) if better else (low, middle)


def _shrunk(certain: float, undecided: float, better: bool) -> float:
    """A place close to the undecided one whose sign is still certain."""
    return bisect(certain, undecided, lambda at: poisson_is_better(at) is better, 6)[0]


def sign_changes() -> int:
    """How often delta_D - delta_P changes its sign along `EPSILON`; every point must be decided."""
    signs = [poisson_is_better(float(epsilon)) for epsilon in EPSILON]
    assert None not in signs
    return sum(before is not after for before, after in itertools.pairwise(signs))


def figure_2(progress: ItemProgress) -> Computed:
    """delta_D and delta_P for sigma = 0.3, T = 10, their crossing, and what the proof of Theorem 4.2 gives."""
    sigma, steps = EPOCH.noise_multiplier, EPOCH.total_steps
    below, beyond = theorem.poisson_better_below(sigma, steps), theorem.poisson_worse_beyond(sigma, steps)
    crossing = crossing_bracket(below, beyond)
    table, at_zero, fixed = Sheet("curves"), _poisson(0.0), deterministic(EPOCH, "delta", 0.0)
    for epsilon in watched(EPSILON.tolist(), progress):
        table.add(
            epsilon=epsilon,
            deterministic=deterministic(EPOCH, "delta", epsilon)[1],
            poisson=_poisson(epsilon),
            halfspace_best=theorem.poisson_halfspace_best(epsilon, sigma, steps).delta,
            halfspace_closed=theorem.poisson_halfspace_delta(epsilon, sigma, steps),
        )
    values = Sheet().unlisted(at_zero=at_zero, bound=theorem.poisson_total_variation_upper(sigma, steps), fixed=fixed)
    values.unlisted(gap=(fixed[0] - at_zero.upper, fixed[1] - at_zero.lower), below=below, beyond=beyond)
    values.unlisted(crossing=crossing, changes=sign_changes())
    marks = Sheet("marks", listed=False)
    for name, place in (("ε0", below), ("crossing", crossing[0]), ("ε1", beyond)):
        marks.add(name=name, place=place)
    floors = {f"floor_{last}": 0.3 * table.where(epsilon=float(last))[0]["deterministic"] for last in (20, 50)}
    return Computed([table, values, marks], {"below": below, "beyond": beyond, **floors})
