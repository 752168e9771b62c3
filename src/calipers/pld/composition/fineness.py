"""How fine to compute: cells and lattices for a tolerance, and what may leave a window.

All of it decides only how far apart bounds are and how long they take, never what they say.
"""

from __future__ import annotations

import math

from calipers.pld.composition.saddle import Saddle

COARSEST, FINEST = 0.25, 1e-4
"""Cells and lattices are this coarse and this fine at most, in deviations of one step."""
SIGNED_CELLS = 0.35
"""For the upper bound of epsilon cells are this much finer than the lattice: they are cheaper than its points."""
FACTORS_OWN = 0.05
"""Cells and lattice where no tolerance is given: they cost 2e-4 to 4e-4 of the variance, and PLDs that take long are
made once."""
_SIGNED_STEP, _SIGNED_LENGTH, _FEW_STEPS = 0.9e-4, 200_000.0, 1000
"""The upper bound is split no coarser than this lattice, as long as a lattice of this length can hold it; one of twice
the length, where steps are few."""


def log_escape_for(saddle: Saddle, relative: float) -> float:
    """Log of the mass that may leave the window so that delta moves by at most the share `relative`.

    The tail sum that is delta, in units of the largest weight, is E[g(Y)] for a bell-shaped Y of the
    given deviation: about 0.4 deviations when those are short, 1/(tilt (tilt - 1) 2.5 deviations) when
    the weights fall off first.
    """
    short = 0.4 * saddle.deviation
    steep = 1.0 / (2.5 * saddle.tilt * max(saddle.tilt - 1.0, 1e-9) * saddle.deviation)
    # A total with more than one hump may have little mass near the answer.
    caution = 6.0 if saddle.deviation > saddle.mean else 0.0
    return max(-38.0, math.log(relative * min(0.5, short, steep)) - 1.5 - caution)


def eta_for(saddle: Saddle, tolerance: float) -> float:
    """Cells and lattice in units of a step's deviation so that epsilon's width is about 0.6 tolerance."""
    allowed = 0.6 * tolerance * max(saddle.mean, 0.05 * saddle.deviation)
    return within(math.sqrt(4.0 * allowed / (saddle.variance * saddle.tilt)))


def eta_for_delta(saddle: Saddle, tolerance: float) -> float:
    """The same so that delta's relative width is about 0.6 tolerance.

    Together the bounds move log delta by V theta (theta - 1) eta^2 / 4, and by about eta^2 / 4 however flat the tilt.
    """
    curvature = 1.0 + saddle.variance * saddle.tilt * (saddle.tilt - 1.0)
    return within(math.sqrt(4.0 * 0.6 * tolerance / curvature))


def within(eta: float) -> float:
    """eta between the finest and the coarsest that make sense."""
    return min(COARSEST, max(FINEST, eta))


def finest_eta(steps: int) -> float:
    """The finest eta whose lattice stays within a few hundred thousand points, in one stage or two."""
    return max(FINEST, 13.0 * math.sqrt(min(float(steps), 2.0 * math.sqrt(steps))) / 4e5)


def signed_eta(saddle: Saddle, steps: int, eta: float) -> float:
    """The finer eta of the upper bound: cells and lattice together cost no more than a lattice of _SIGNED_STEP."""
    if steps == 1:
        return min(eta, max(0.1 * eta, 2e-3))
    # A total made of few large steps is not bell-shaped, and errors weigh more than the saddle point says.
    caution = 0.55 if saddle.deviation > saddle.mean else 1.0
    wanted = caution * _SIGNED_STEP * math.sqrt(steps / (1.0 + SIGNED_CELLS**2)) / saddle.deviation
    longest = _SIGNED_LENGTH * (2.0 if steps <= _FEW_STEPS else 1.0)
    affordable = caution**1.5 * 13.0 * math.sqrt(min(float(steps), 2.0 * math.sqrt(steps))) / longest
    return float(min(eta, max(affordable, wanted)))
