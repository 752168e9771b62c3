"""Figure 2 and Theorem 4.2: Poisson against deterministic batches.

The theorem says that delta_D > delta_P for every epsilon below some epsilon_0, and delta_D < delta_P beyond some
epsilon_1. Its proof gives both as numbers, far apart; Conjecture 4.3 says that one crossing serves as both.

A crossing is certified from the bracket of delta_P: where its upper end lies below delta_D, Poisson is better; where
its lower end lies above, Poisson is worse. Bisection between two such places ends where the bracket covers delta_D.
The narrower the bracket of delta_P, the shorter that last interval.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from calipers.measure import Measurement, measure
from calipers.numerics.types import FloatArray
from calipers.papers.chua2024 import drawing, published
from calipers.papers.chua2024.settings import deterministic_delta_bracket, epoch
from calipers.papers.items import Data, Interval, Outcome, Picture, Progress, Row
from calipers.run import Run
from calipers.theorems.poisson_halfspace import (
    poisson_better_below,
    poisson_halfspace_best,
    poisson_halfspace_delta,
    poisson_total_variation_upper,
    poisson_worse_beyond,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCH = epoch(published.FIGURE_2_NOISE_MULTIPLIER, published.FIGURE_2_STEPS)
EPSILON: FloatArray = np.linspace(0.0, 50.0, 26)
_NEAR, _FAR = 20.0, 50.0


@cache
def _poisson() -> Measurement:
    run = Run(sample_rate=1.0 / EPOCH.total_steps, epochs=1, noise_multiplier=EPOCH.noise_multiplier)
    return measure(run, tolerance=1e-3)


def poisson_is_better(epsilon: float) -> bool | None:
    """Whether delta_P < delta_D at epsilon; None where the bracket of delta_P does not decide."""
    found, fixed = _poisson().delta(epsilon), deterministic_delta_bracket(EPOCH, epsilon)
    if found.upper < fixed[0]:
        return True
    return False if found.lower > fixed[1] else None


def crossing_bracket(low: float, high: float) -> Interval:
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
    for _ in range(6):
        middle = 0.5 * (certain + undecided)
        if poisson_is_better(middle) is better:
            certain = middle
        else:
            undecided = middle
    return certain


def sign_changes() -> int:
    """How often delta_D - delta_P changes its sign along `EPSILON`; every point must be decided."""
    signs = [poisson_is_better(float(epsilon)) for epsilon in EPSILON]
    assert None not in signs
    return sum(before is not after for before, after in itertools.pairwise(signs))


def _curves() -> dict[str, FloatArray]:
    sigma, steps = EPOCH.noise_multiplier, EPOCH.total_steps
    found = [_poisson().delta(float(epsilon)) for epsilon in EPSILON]
    return {
        "deterministic": np.array([deterministic_delta_bracket(EPOCH, float(e))[1] for e in EPSILON]),
        "poisson_lower": np.array([bracket.lower for bracket in found]),
        "poisson_upper": np.array([bracket.upper for bracket in found]),
        "halfspace_best": np.array([poisson_halfspace_best(float(e), sigma, steps).delta for e in EPSILON]),
        "halfspace_closed": np.array([poisson_halfspace_delta(float(e), sigma, steps) for e in EPSILON]),
    }


def figure_2(progress: Progress) -> Outcome:
    """delta_D and delta_P for sigma = 0.3, T = 10, their crossing, and what the proof of Theorem 4.2 gives."""
    sigma, steps = EPOCH.noise_multiplier, EPOCH.total_steps
    below, beyond = poisson_better_below(sigma, steps), poisson_worse_beyond(sigma, steps)
    progress(1, 4)
    crossing = crossing_bracket(below, beyond)
    progress(2, 4)
    changes = sign_changes()
    curves = _curves()
    progress(3, 4)
    at_zero = _poisson().delta(0.0)
    bound = poisson_total_variation_upper(sigma, steps)
    fixed = deterministic_delta_bracket(EPOCH, 0.0)
    on_grid = f"ε = 0, 2, ..., {EPSILON[-1]:g}, every sign certain"
    rows = (
        Row.of("δ_P(0)", None, at_zero),
        Row.of("δ_P(0) at most, Proposition C.2", None, bound, "closed form"),
        Row.of("δ_D(0)", None, fixed, "closed form"),
        Row.of("δ_D(0) − δ_P(0)", "> 0", (fixed[0] - at_zero.upper, fixed[1] - at_zero.lower)),
        Row.of("an ε0 of Theorem 4.2(a), from the proof", None, below, "closed form"),
        Row.of("an ε1 of Theorem 4.2(b), from the proof", None, beyond, "closed form"),
        Row.of("a crossing of δ_D and δ_P", None, crossing),
        Row.of("sign changes of δ_D − δ_P (Conjecture 4.3)", "1", changes, "exact check", on_grid),
    )
    marks = {"ε0": below, "crossing": crossing[0], "ε1": beyond}

    def draw(figure: Figure) -> None:
        figure.suptitle(f"σ = {sigma:g}, one epoch of T = {steps} batches")
        left, right = figure.subplots(1, 2)
        drawing.draw_crossing(left, EPSILON, curves, marks, _NEAR)
        drawing.draw_crossing(right, EPSILON, curves, marks, _FAR).legend(
            frameon=False, fontsize="x-small", loc="lower left"
        )

    columns = {"epsilon": EPSILON} | curves
    data = Data.of_columns("curves", columns)
    progress(4, 4)
    picture = Picture(draw, (10.4, 4.6))
    return Outcome(rows, data=(data,), picture=picture, facts={"below": below, "beyond": beyond})
