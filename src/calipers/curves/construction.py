"""Three ways to a trade-off curve: from a privacy profile, from the atoms of a pair, from explicit tests.

**Profile.** (eps, delta)-DP in the direction P against Q says: no test has power above delta + k alpha, k = e^eps, so
beta >= 1 - delta - k alpha. A curve is the maximum of such lines (Dong et al., Proposition 2.13; Gomez et al.,
Theorem 2.4). The reverse direction gives alpha >= 1 - delta' - k' beta. A line with k < 1 is a reverse line with
k' = 1/k, and is kept as one, since only then does a tiny beta keep its digits. The true profile is convex in k, so
chords between upper bounds are upper bounds and the lower hull of the nodes loses nothing. The vertices are the
intersections of neighboring lines:

    alpha = (delta_1 - delta_2)/(k_2 - k_1),     1 - beta = delta_1 + k_1 alpha,

both free of cancellation when k_2 - k_1 is formed as k_1 expm1(eps_2 - eps_1).

**Atoms.** By Neyman and Pearson the curve of a finite pair collects its atoms in order of p/q. Both tails are
cumulated from their own end, so alpha = 1e-300 and beta = 1e-300 both survive.

**Tests.** Points (alpha, 1 - power) of tests that someone can run; randomizing between them gives the hull.
"""

from __future__ import annotations

import numpy as np

from calipers.bracket import Side
from calipers.curves.points import (
    TINY,
    UNIT,
    Points,
    convex_chain,
    join,
    lower_hull,
    order_key,
    outward,
    running_sum,
    settle,
)
from calipers.errors import InputError
from calipers.numerics.types import FloatArray, IntArray

LINE_ROUNDING = 32.0 * UNIT
"""Relative rounding of an intersection of two lines, charged to the side of the curve."""

MASS_ALLOWANCE = 1e-9
"""How far the masses of a pair may be from 1 before they are refused; what there is gets charged."""

CORNERS = Points(*(np.array(column) for column in ([0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0])))


def _single(alpha: float, beta: float, alpha_c: float, beta_c: float) -> Points:
    return Points(np.array([alpha]), np.array([beta]), np.array([alpha_c]), np.array([beta_c]))


def _binding_lines(epsilon: FloatArray, delta: FloatArray, side: Side) -> tuple[FloatArray, FloatArray]:
    """The nodes (eps >= 0, increasing) on the lower hull of the profile with delta = 1 at k = 0, steepest line last.

    The node at k = 0 stands for beta >= 0. Fewer lines make a lower curve: in doubt a line is dropped for UPPER and
    kept for LOWER.
    """
    order = np.lexsort((delta, epsilon))
    epsilon, delta = epsilon[order], delta[order]
    before = np.concatenate(([np.inf], np.minimum.accumulate(delta)[:-1]))
    falling = delta < before
    epsilon, delta = epsilon[falling], delta[falling]

    # Chain position 0 is the node at k = 0, position i the node i - 1.
    def steepness(i: IntArray, j: IntArray) -> FloatArray:
        first, second = np.maximum(i - 1, 0), j - 1
        from_zero = (1.0 - delta[second]) * np.exp(-epsilon[second])
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            step = (delta[first] - delta[second]) * np.exp(-epsilon[first]) / np.expm1(epsilon[second] - epsilon[first])
        return np.where(i == 0, from_zero, step)

    kept = convex_chain(epsilon.size + 1, steepness, drop_in_doubt=side is Side.UPPER)[1:] - 1
    return epsilon[kept], delta[kept]


def _line_vertices(epsilon: FloatArray, delta: FloatArray, side: Side) -> Points:
    """Vertices of the forward lines, from alpha = 0 up to the meeting of the two flattest."""
    with np.errstate(over="ignore"):
        lifted = (delta[:-1] - delta[1:]) / np.expm1(np.diff(epsilon))
    alpha = np.exp(-epsilon[:-1]) * lifted
    beta_c = delta[:-1] + lifted
    # delta strictly decreases, so both numbers are positive; a zero here is an underflow and goes the safe way.
    alpha = np.where(alpha < TINY, 0.0 if side is Side.UPPER else TINY, alpha)
    beta_c = np.where(beta_c < TINY, TINY if side is Side.UPPER else 0.0, beta_c)
    beta_c = np.minimum(beta_c, 1.0)
    computed = outward(settle(Points(alpha, 1.0 - beta_c, 1.0 - alpha, beta_c)), LINE_ROUNDING, side)
    # The end at alpha = 0 is the input itself, so it is not moved: f(0) = 1 - delta exactly.
    last = float(delta[-1])
    end = settle(_single(0.0, 1.0 - last, 1.0, last))
    return join(end, computed.take(np.arange(computed.alpha.size)[::-1]))


def _meeting(forward: tuple[float, float], reverse: tuple[float, float], side: Side) -> Points:
    """Where a forward line (epsilon, delta) meets a reverse line; their slopes differ."""
    (epsilon, delta), (eps_r, delta_r) = forward, reverse
    x, y = np.exp(-epsilon), np.exp(-eps_r)
    below = -np.expm1(-(epsilon + eps_r))
    gap = delta_r - delta
    sign = -1.0 if side is Side.UPPER else 1.0

    def numerator(flatness: float, room: float, difference: float) -> float:
        straight, cross = -np.expm1(-flatness) * room, np.exp(-flatness) * difference
        return float(max(straight + cross + sign * 8.0 * UNIT * (straight + abs(cross)), 0.0))

    over_x = numerator(eps_r, 1.0 - delta, gap) / below
    over_y = numerator(epsilon, 1.0 - delta_r, -gap) / below
    alpha, beta = min(x * over_x, 1.0), min(y * over_y, 1.0)
    vertex = _single(alpha, beta, min(delta_r + over_y, 1.0), min(delta + over_x, 1.0))
    return outward(settle(vertex), LINE_ROUNDING, side)


def _axis_meeting(epsilon: float, delta: float, side: Side) -> Points:
    """Where the line of (epsilon, delta) reaches beta = 0."""
    if epsilon == 0.0:
        return settle(_single(1.0 - delta, 0.0, delta, 1.0))
    alpha = float(np.exp(-epsilon)) * (1.0 - delta)
    return outward(settle(_single(alpha, 0.0, 1.0 - alpha, 1.0)), LINE_ROUNDING, side)


def profile_points(
    forward: tuple[FloatArray, FloatArray], reverse: tuple[FloatArray, FloatArray], side: Side
) -> Points:
    """Vertices of the maximum of forward and reverse lines, every epsilon >= 0; either set may be empty."""
    f_eps, f_delta = _binding_lines(*forward, side)
    r_eps, r_delta = _binding_lines(*reverse, side)
    # Total variation is the same in both directions, so a line with epsilon = 0 serves both.
    zero = [delta[0] for epsilon, delta in ((f_eps, f_delta), (r_eps, r_delta)) if epsilon.size and epsilon[0] == 0.0]
    if zero:
        node = (np.array([0.0]), np.array([min(zero)]))
        f_eps, f_delta = _binding_lines(np.concatenate((node[0], f_eps)), np.concatenate((node[1], f_delta)), side)
        r_eps, r_delta = _binding_lines(np.concatenate((node[0], r_eps)), np.concatenate((node[1], r_delta)), side)
    while True:
        left = _line_vertices(f_eps, f_delta, side) if f_eps.size else None
        right = _line_vertices(r_eps, r_delta, side).swapped() if r_eps.size else None
        if left is None and right is None:
            raise InputError(
                "Expected at least one node of the profile, got none. Pass epsilon and delta of equal length."
            )
        if left is None:
            middle = _axis_meeting(float(r_eps[0]), float(r_delta[0]), side).swapped()
        elif right is None:
            middle = _axis_meeting(float(f_eps[0]), float(f_delta[0]), side)
        elif f_eps[0] == 0.0 and r_eps[0] == 0.0:
            crossed = order_key(left.alpha, left.alpha_c)[-1] > order_key(right.alpha, right.alpha_c)[0]
            if not crossed or min(f_eps.size, r_eps.size) == 1:
                return lower_hull(join(left, right), side)
            f_eps, f_delta, r_eps, r_delta = f_eps[1:], f_delta[1:], r_eps[1:], r_delta[1:]
            continue
        else:
            middle = _meeting((float(f_eps[0]), float(f_delta[0])), (float(r_eps[0]), float(r_delta[0])), side)
        # A flattest line that meets its partner before it meets its neighbor binds nowhere.
        if left is not None and f_eps.size > 1 and middle.alpha[0] < left.alpha[-1]:
            f_eps, f_delta = f_eps[1:], f_delta[1:]
        elif right is not None and r_eps.size > 1 and middle.beta[0] < right.beta[0]:
            r_eps, r_delta = r_eps[1:], r_delta[1:]
        else:
            parts = [part for part in (left, middle, right) if part is not None]
            return lower_hull(join(*parts), side)


def atom_points(p: FloatArray, q: FloatArray, p_inf: float, q_zero: float, side: Side, rounding: float) -> Points:
    """Vertices of the Neyman-Pearson curve of atoms (p, q); `rounding` is what the atoms already carry."""
    infinite, dead = (q == 0.0) & (p > 0.0), (p == 0.0) & (q > 0.0)
    p_inf, q_zero = p_inf + float(p[infinite].sum()), q_zero + float(q[dead].sum())
    live = (p > 0.0) & (q > 0.0)
    p, q = p[live], q[live]
    mismatch = max(abs(1.0 - p_inf - float(p.sum())), abs(1.0 - q_zero - float(q.sum())))
    if not mismatch <= MASS_ALLOWANCE:
        raise InputError(
            f"Expected masses that sum to 1, got p: {p_inf + p.sum()!r}, q: {q_zero + q.sum()!r}. "
            "Pass lost mass as p_inf and q_zero (it then counts as leaked) instead of leaving it out."
        )
    order = np.argsort(-(p / q), kind="stable")
    p, q = p[order], q[order]
    front, error = running_sum(np.concatenate(([p_inf], p)))
    beta_c = front
    alpha = np.concatenate(([0.0], running_sum(q)[0]))
    beta = np.concatenate((running_sum(p[::-1])[0][::-1], [0.0]))
    alpha_c = running_sum(np.concatenate(([q_zero], q[::-1])))[0][::-1]
    points = settle(Points(alpha, np.minimum(beta, 1.0), np.minimum(alpha_c, 1.0), np.minimum(beta_c, 1.0)))
    # Order errors of p/q act like a relative change of p by 2 UNIT; they and the sums' errors move both coordinates.
    relative = error + 8.0 * UNIT + 2.0 * mismatch + rounding
    return lower_hull(outward(points, relative, side), side)


def tested_points(points: Points, side: Side) -> Points:
    """Vertices of the hull of the points of tests and the two trivial tests."""
    return lower_hull(join(settle(points), CORNERS), side)
