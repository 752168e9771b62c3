"""Every choice an adversary has in one round, and terms that dominate a whole cell of choices.

The worst term of `calipers.laws.allocated.hidden_term` lets the adversary choose the shifts anew for every strike. A
sum of such terms leaks more than any adversary: one who has chosen shifts a, b lives with both halves of their term
X = A - k B. docs/mathematics ("one control for every strike") shows that in convex order every term lies below one on a
*frontier* with a single parameter tau = |a|^2 - |b|^2, the *control*:

    |a - b| = rho,      |a|^2 = min(a_max^2, b_max^2 + tau),      |b|^2 = |a|^2 - tau,

and that along it calls with strikes c >= 0 grow with tau, those with c <= 0 fall. So a cell of controls
[tau_1, tau_2] is dominated by the variable that is distributed as the term at tau_2 on (0, inf), as that at tau_1 on
(-inf, 0), and is 0 else. With one cell this is the worst term again; with many it is hardly more than each of them.

In coordinates along a - b and across it a term is a product of independent factors,

    X = Y W,      W = e^(p x - p^2/2) - k e^(q x - q^2/2),      Y = e^(s y - s^2/2),

p = (tau + rho^2) / (2 rho), q = p - rho, s^2 = |a|^2 - p^2. `cell` places it on a lattice from above and without
quadrature: between two points at which its ends are known each factor is split onto these points, mean preserved, and
masses and means are differences of normal distribution functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.numerics.types import FloatArray

_REACH = 9.0
"""Observations beyond it are charged: with shifts of at most 2 they hold a first moment below 1e-11."""
_ALONG, _ACROSS = 240, 48
_APART, SPARSE = 1.1, 4
"""Ratio of neighboring places far out, and what divides them."""
_ROUNDING = 1e-11
"""Of one term's first moment: more than a few thousand operations on differences of distribution functions lose."""


@dataclass(frozen=True)
class Placed:
    """Masses at low, low + 1, ... steps of a lattice and at a few `places` far out.

    `charge`: what every use of them adds to an increasing payoff of slope at most one.
    """

    low: int
    masses: FloatArray
    places: NDArray[np.int64]
    far: FloatArray
    charge: float


def controls(term: HiddenTerm, cells: int) -> FloatArray:
    """The ends of equal cells of controls, from the one that is worst for strikes below 0 to that for those above."""
    (right_a, right_b), (left_a, left_b) = term.right, term.left
    return np.linspace(left_a**2 - left_b**2, right_a**2 - right_b**2, cells + 1)


def cell(term: HiddenTerm, first: float, last: float, step: float, reach: float, ends: tuple[float, float]) -> Placed:
    """A variable above all terms with controls from `first` to `last`, clipped at `ends` and split onto a lattice.

    Every place up to `reach` from 0 is used, and a few beyond, whose numbers are multiples of `SPARSE`. Raising a term
    below the lower end raises the payoff; what exceeds the upper end is charged, as the slope is at most one.
    """
    losses, loss_masses, _ = _atoms(term, first, -1.0)
    gains, gain_masses, beyond = _atoms(term, last, 1.0)
    others = max(0.0, 1.0 - float(loss_masses.sum()) - float(gain_masses.sum()))
    values = np.concatenate((losses, gains, [0.0])) / step
    masses = np.concatenate((loss_masses, gain_masses, [others]))
    near = SPARSE * math.ceil(reach / (SPARSE * step))
    left, right = (_far(near, math.ceil(abs(end) / step)) for end in ends)
    places = np.concatenate((-left[::-1], np.arange(-near, near + 1), right))
    above = step * float(masses @ np.maximum(values - places[-1], 0.0))
    scaled = np.clip(values, places[0], places[-1])
    # Places are whole numbers: the number of the one before a value is that of its floor.
    numbers = np.repeat(np.arange(len(places) - 1), np.diff(places))
    index = numbers[np.minimum((scaled - places[0]).astype(np.int64), len(numbers) - 1)]
    up = masses * (scaled - places[index]) / (places[index + 1] - places[index])
    out: FloatArray = np.asarray(np.bincount(index, masses - up, len(places)), dtype=np.float64)
    out += np.bincount(index + 1, up, len(places))
    out /= math.fsum(out)
    charge = above + beyond + _ROUNDING * (1.0 + math.exp(term.epsilon))
    dense = slice(len(left), len(left) + 2 * near + 1)
    return Placed(-near, out[dense], np.concatenate((-left[::-1], right)), np.delete(out, dense), charge)


def _far(near: int, last: int) -> NDArray[np.int64]:
    """Places beyond the near ones, ever wider apart, up to the last or one beyond it."""
    if last <= near:
        return np.zeros(0, dtype=np.int64)
    number = math.ceil(math.log(last / near) / math.log(_APART)) + 1
    return SPARSE * np.unique(np.ceil(np.geomspace(near, last, number) / SPARSE - 1e-9).astype(np.int64))[1:]


def _atoms(term: HiddenTerm, tau: float, sign: float) -> tuple[FloatArray, FloatArray, float]:
    """Atoms above the positive (sign 1) or negative part of the term at a control, and the moment left out of it."""
    rho, a_max, b_max = term.width, max(term.right[0], term.left[0]), max(term.right[1], term.left[1])
    p = (tau + rho * rho) / (2.0 * rho)
    s = math.sqrt(max(0.0, min(a_max**2, b_max**2 + tau) - p * p))
    along, along_masses = _along(p, p - rho, term.epsilon, sign)
    across, across_masses = _across(s)
    beyond = float(ndtr(p - _REACH)) + float(ndtr(s - _REACH))  # E[A] beyond either reach, as the other factor's is 1
    return np.outer(along, across).ravel(), np.outer(along_masses, across_masses).ravel(), beyond


def _along(p: float, q: float, epsilon: float, sign: float) -> tuple[FloatArray, FloatArray]:
    """W where it has this sign: between points where it is monotone, split onto its values there."""
    root = (epsilon + 0.5 * (p * p - q * q)) / (p - q)
    marks = [root] if p * q <= 0.0 else [root, root + math.log(q / p) / (p - q)]
    marks = [mark for mark in marks if abs(mark) < _REACH]
    x = np.unique(np.concatenate((np.linspace(-_REACH, _REACH, _ALONG + 1), marks)))
    x = x[x >= root] if sign > 0 else x[x <= root]
    if len(x) < 2:
        return np.zeros(1), np.zeros(1)
    with_a, with_b = np.exp(p * x - 0.5 * p * p), np.exp(q * x - 0.5 * q * q + epsilon)
    values = np.where(x == root, 0.0, with_a - with_b)
    moments = _between(x - p) - math.exp(epsilon) * _between(x - q)
    return values, _split(values, _between(x), moments)


def _across(s: float) -> tuple[FloatArray, FloatArray]:
    """Y, split onto points from 0 to where it is cut."""
    if s < 1e-6:
        s = 0.0
    if s == 0.0:
        return np.ones(1), np.ones(1)
    y = np.concatenate(([-np.inf], np.linspace(-_REACH, _REACH, _ACROSS + 1)))
    values = np.concatenate(([0.0], np.exp(s * y[1:] - 0.5 * s * s)))
    masses = _split(values, _between(y), _between(y - s))
    masses[-1] += float(ndtr(-_REACH))
    return values, masses


def _between(points: FloatArray) -> FloatArray:
    """Normal probabilities between consecutive points, taken in the tail that is small."""
    low, high = points[:-1], points[1:]
    return np.asarray(np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


def _split(values: FloatArray, masses: FloatArray, moments: FloatArray) -> FloatArray:
    """Masses at the points, for which each interval keeps its mass and its mean."""
    gaps = np.diff(values)
    up = np.where(gaps == 0.0, 0.0, (moments - values[:-1] * masses) / np.where(gaps == 0.0, 1.0, gaps))
    up = np.clip(up, 0.0, masses)  # within rounding, which is charged
    found = np.zeros(len(values))
    found[1:] += up
    found[:-1] += masses - up
    return found
