"""Numbers and constants in the text: Section 4.1, and the constants of Appendices C, D and G.

Constants of an inequality are rounded outward in the paper, so they are compared as inequalities: 4.52 stands for
"at most 4.52" where it is a numerator.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf

from calipers.numerics.elementary import halved
from calipers.papers.items import Outcome, Progress, Row
from calipers.papers.vandijk2026 import published
from calipers.papers.vandijk2026.tables import closed
from calipers.theorems.lognormal_ratio import (
    SHEVTSOVA,
    berry_esseen_distance,
    berry_esseen_distance_high_noise,
    berry_esseen_distance_low_noise,
)
from calipers.theorems.parameters import ratio_variance
from calipers.theorems.shuffle_one_epoch import shuffle_condition_rounds, shuffle_delta, shuffle_rounds_two_terms

_GRID = np.geomspace(0.3, 1000.0, 100)
_FAR_ROUNDS, _FAR_S = 10**60, 3.0
"""sigma = s/sqrt(ln M) at these has e^(-1/sigma^2) = M^(-1/9) = 2e-7: the limit to six digits."""


def largest_delta(noise_multiplier: float) -> float:
    """(2/3)(1/2 - Phi(-(e^(1/sigma^2) - 1)/2)): up to this delta Equation (3) implies Equation (4)."""
    return float(erf(0.5 * ratio_variance(noise_multiplier) / math.sqrt(2.0))) / 3.0


def largest_noise(delta: float) -> float:
    """The sigma up to which `largest_delta` is at least delta, by bisection of a decreasing function."""
    return halved(0.1, 1e3, lambda sigma: largest_delta(sigma) >= delta, 50)[0]


def interpretation(progress: Progress) -> Outcome:
    """Section 4.1: where Equation (3) is enough, and how delta scales when sigma shrinks with M."""
    edge = largest_noise(published.DELTA)
    sigma = _FAR_S / math.sqrt(math.log(_FAR_ROUNDS))
    unit = SHEVTSOVA * float(_FAR_ROUNDS) ** (-0.5 * (1.0 - 3.0 / _FAR_S**2))
    bound = shuffle_delta(sigma, _FAR_ROUNDS)
    progress(1, 1)
    rows = (
        closed("largest σ for δ = 0.01", published.LARGEST_NOISE, edge),
        closed("largest δ for σ = 1", published.LARGEST_DELTA, largest_delta(1.0)),
        closed(
            "Equation (4) over Equation (3) there, δ = 0.01",
            "<= 1",
            shuffle_condition_rounds(edge) / shuffle_rounds_two_terms(published.DELTA, edge),
            "the second bound is implied by the first",
        ),
        closed(
            "δ in units of B M^(−(1 − 3/s²)/2), s = 3, M = 1e60", published.WEAK_ASYMPTOTIC_MULTIPLE, bound.delta / unit
        ),
        closed(
            "δ + ε of condition (1) in the same units",
            published.WEAK_ASYMPTOTIC_MULTIPLE,
            (bound.delta + 0.5 * bound.berry_esseen_term) / unit,
        ),
    )
    return Outcome(rows)


def _least_excess(numerator: str) -> float:
    """The smallest ratio over the grid of a bound of the Berry-Esseen distance to Equation (19)."""
    bounds = {"(20)": berry_esseen_distance_high_noise, "(21)": berry_esseen_distance_low_noise}
    return min(bounds[numerator](float(s), 1) / berry_esseen_distance(float(s), 1) for s in _GRID)


def constants(progress: Progress) -> Outcome:
    """The constants of the proofs: each is what it has to be, or on the safe side of it."""
    numerator, first, second = published.TAIL_CONSTANTS
    low, high = berry_esseen_distance_low_noise(1.7, 1), berry_esseen_distance_high_noise(1.7, 1)
    middle = min(low, high) / berry_esseen_distance(1.7, 1)
    rows = [
        closed(
            "Esseen's constant (√10 + 3)/(6√(2π))", "0.4097", (math.sqrt(10.0) + 3.0) / (6.0 * math.sqrt(2.0 * math.pi))
        ),
        closed("tail, numerator √(2/π) 2^(5/2)", f"<= {numerator}", math.sqrt(2.0 / math.pi) * 2.0**2.5),
        closed("tail, 5/√3", f">= {first}", 5.0 / math.sqrt(3.0)),
        closed("tail, 2√3 ln 2", f"<= {second}", 2.0 * math.sqrt(3.0) * math.log(2.0)),
        closed("16√2/9", published.SMALLEST_S, 16.0 * math.sqrt(2.0) / 9.0),
    ]
    for name in ("(20)", "(21)"):
        least = _least_excess(name)
        rows.append(Row.of(f"{name} over (19), least", ">= 1", least, "estimate", "over a grid of σ from 0.3 to 1000"))
    progress(1, 1)
    rows += [
        closed(
            "(21) over (19) at σ = 0.5", None, berry_esseen_distance_low_noise(0.5, 1) / berry_esseen_distance(0.5, 1)
        ),
        closed(
            "(21) over (19) at σ = 2", None, berry_esseen_distance_low_noise(2.0, 1) / berry_esseen_distance(2.0, 1)
        ),
        closed(
            "(20) over (19) at σ = 100",
            None,
            berry_esseen_distance_high_noise(100.0, 1) / berry_esseen_distance(100.0, 1),
        ),
        closed("the better of (20) and (21) over (19) at σ = 1.7", None, middle),
    ]
    return Outcome(rows, facts={"middle": middle})
