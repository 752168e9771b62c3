"""The frontier of one round's terms, and cells above it on a grid."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp
from oracles.hidden_calls import STRIKES, call_of_shifts
from scipy.optimize import brentq
from scipy.special import ndtr

from calipers.pld.allocation.frontier import GridTerm, cell_on_grid, control_range
from calipers.pld.allocation.worst_case_term import WorstCaseTerm, zeroed_out

TERMS = {
    "zeroed": lambda sigma, epsilon: zeroed_out(sigma, epsilon, False),
    "reverse": lambda sigma, epsilon: zeroed_out(sigma, epsilon, True),
}


def shifts(term: WorstCaseTerm, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """The shifts of a control, drawn in the plane from the three lengths that the docs give."""
    rho = term.right[0] - term.right[1]
    a_max, b_max = max(term.right[0], term.left[0]), max(term.right[1], term.left[1])
    a = math.sqrt(min(a_max**2, b_max**2 + tau))
    b = math.sqrt(a * a - tau)
    if b < 1e-9:
        return np.array([a, 0.0]), np.zeros(2)
    if a < 1e-9:
        return np.zeros(2), np.array([b, 0.0])
    cosine = min(1.0, max(-1.0, (a * a + b * b - rho * rho) / (2.0 * a * b)))
    return a * np.array([cosine, math.sqrt(1.0 - cosine * cosine)]), np.array([b, 0.0])


def call_of_placed(found: GridTerm, step: float, threshold: float) -> float:
    """E[(X - c)+] of what stands on the grid and of what exceeds it, and the charge."""
    assert found.masses.min() >= 0.0
    values = (found.low + np.arange(len(found.masses))) * step
    return float(found.masses @ np.maximum(values - threshold, 0.0)) + found.excess + found.error_term


@pytest.mark.parametrize("epsilon", [0.0, 0.6])
@pytest.mark.parametrize("kind", list(TERMS))
def test_every_choice_lies_below_one_control(kind: str, epsilon: float) -> None:
    """25 random admissible shifts: the control with the same |a|^2 - |b|^2 has no smaller call, at any threshold.

    Shifts with |a - b| < rho and |a| + |b| < rho are first stretched, which changes tau; those are left out here.
    """
    rng = np.random.default_rng(5)
    sigma, k = 1.4, math.exp(epsilon)
    term = TERMS[kind](sigma, epsilon)
    a_max, b_max = max(term.right[0], term.left[0]), max(term.right[1], term.left[1])
    tried, closest = 0, 0.0
    while tried < 25:
        a, b = (rng.uniform(-2.0, 2.0, 2) / sigma for _ in range(2))
        far, near = np.hypot(*a), np.hypot(*b)
        if np.hypot(*(a - b)) > term.width or far > a_max or near > b_max or far + near < term.width:
            continue
        tried += 1
        best = shifts(term, far**2 - near**2)
        for threshold in (-1.0, -0.2, 0.2, 1.0):
            chosen, bound = call_of_shifts(a, b, k, threshold), call_of_shifts(*best, k, threshold)
            assert chosen <= bound + 1e-5
            closest = max(closest, chosen / bound)
    assert closest > 0.9


@pytest.mark.parametrize("epsilon", [0.0, 0.6])
@pytest.mark.parametrize("kind", list(TERMS))
def test_a_cell_lies_above_its_controls_and_below_the_worst_case_term(kind: str, epsilon: float) -> None:
    """At every threshold, for controls at the ends and inside; one cell of all controls is the worst-case term."""
    sigma, k, step = 1.4, math.exp(epsilon), 0.02
    term = TERMS[kind](sigma, epsilon)
    ends = np.linspace(*control_range(term), 4).tolist()
    whole = cell_on_grid(term, (ends[0], ends[-1]), 0.0, step, (-3_000, 3_000), 400)
    for cell in pairwise(ends):
        found = cell_on_grid(term, cell, 0.0, step, (-3_000, 3_000), 400)
        for threshold in STRIKES:
            bound = call_of_placed(found, step, threshold)
            for tau in (cell[0], 0.5 * (cell[0] + cell[1]), cell[1]):
                assert call_of_shifts(*shifts(term, tau), k, threshold) <= bound + 1e-5
            assert bound <= call_of_placed(whole, step, threshold) * 1.003 + 1e-5


@pytest.mark.parametrize("end", [40, 150])
def test_what_exceeds_the_grid_is_added(end: int) -> None:
    """Gains of up to e^20 on a grid that ends at 2 or 7.5: calls stay above, and close up to the end."""
    term, step = zeroed_out(1.0, 0.5, False), 0.05
    cell = (control_range(term)[1],) * 2
    found = cell_on_grid(term, cell, 0.0, step, (-4_000, end), 800)
    k = math.exp(0.5)
    for threshold in (0.01, 0.3, 1.0, 1.9):
        z = brentq(lambda z, c=threshold: math.exp(2.0 * z - 2.0) - k * math.exp(z - 0.5) - c, -5.0, 9.0)
        true = float(ndtr(2.0 - z) - k * ndtr(1.0 - z) - threshold * ndtr(-z))
        assert true <= call_of_placed(found, step, threshold) <= 1.001 * true + 1e-4


def test_an_offset_moves_the_mean_and_nothing_else() -> None:
    """E[X] = 1 - k of every control, plus the offset, within the charge."""
    term = zeroed_out(1.3, 0.4, False)
    for tau in np.linspace(*control_range(term), 5).tolist():
        found = cell_on_grid(term, (tau, tau), 0.3, 0.04, (-60_000, 60_000), 400)
        mean = 0.04 * float(found.masses @ (found.low + np.arange(len(found.masses))))
        assert abs(mean + found.excess - 0.3 + math.expm1(0.4)) <= found.error_term


def test_normal_distribution_functions_err_by_what_cells_are_charged_for() -> None:
    """In the tail that is small, by less than 3e-16."""
    for z in np.linspace(-12.0, 0.0, 301).tolist():
        assert abs(mp.ncdf(mp.mpf(z)) - mp.mpf(float(ndtr(z)))) <= 3e-16
