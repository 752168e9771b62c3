"""Vertices of trade-off curves: from a privacy profile, from the atoms of a pair, or from explicit tests.

**Profile.** (eps, delta)-DP in the direction P against Q says: no test has power above delta + k alpha, k = e^eps, so
beta >= 1 - delta - k alpha. A curve is the maximum of such lines (Dong et al., Proposition 2.13; Gomez et al.,
Theorem 2.4). The reverse direction gives alpha >= 1 - delta' - k' beta. A line with k < 1 is a reverse line with
k' = 1/k, and is kept as one, since only then does a tiny beta keep its digits. The true profile is convex in k, so
chords between upper bounds are upper bounds and the lower hull of the nodes loses nothing. The vertices are the
intersections of neighboring lines:

    alpha = (delta_1 - delta_2)/(k_2 - k_1),     1 - beta = delta_1 + k_1 alpha,

both free of cancellation when k_2 - k_1 is formed as k_1 expm1(eps_2 - eps_1). Where hardly anything is hidden delta is
almost 1 and the digits are in 1 - delta, which is therefore held next to it.

**Atoms.** By Neyman and Pearson the curve of a finite pair collects its atoms in order of p/q. Both tails are
cumulated from their own end, so alpha = 1e-300 and beta = 1e-300 both survive.

**Tests.** Points (alpha, 1 - power) of tests that someone can run, guessing among them (`CORNERS`); randomizing between
them gives the hull, which is `Points.hull`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calipers.bracket import Side
from calipers.curves.points import TINY, UNIT, Points, convex_chain, order_key, rise, running_sum, settled
from calipers.errors import InputError
from calipers.numerics.types import FloatArray, IntArray

LINE_ROUNDING = 32.0 * UNIT
"""Relative rounding of an intersection of two lines, added to the side of the curve."""

MASS_ALLOWANCE = 1e-9
"""How far the masses of a pair may be from 1 before they are refused; what there is gets added."""

CORNERS = Points(*(np.array(column) for column in ([0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0])))


def _single(alpha: float, beta: float, alpha_c: float, beta_c: float) -> Points:
    return Points(np.array([alpha]), np.array([beta]), np.array([alpha_c]), np.array([beta_c])).settled()


class Lines(NamedTuple):
    """Nodes of a profile: eps, delta and what is kept, 1 - delta; of the last two the smaller is exact."""

    epsilon: FloatArray
    delta: FloatArray
    kept: FloatArray

    def take(self, index: IntArray) -> Lines:
        """The nodes at `index`."""
        return Lines(self.epsilon[index], self.delta[index], self.kept[index])


def _falls(lines: Lines, first: IntArray, second: IntArray) -> FloatArray:
    """delta[first] - delta[second] where it is positive, relative error at most 2 UNIT."""
    return rise(lines.delta[second], lines.kept[second], lines.delta[first], lines.kept[first])


def _binding_lines(lines: Lines, side: Side) -> Lines:
    """The nodes (eps >= 0, increasing) on the lower hull of the profile with delta = 1 at k = 0, steepest line last.

    The node at k = 0 stands for beta >= 0. Fewer lines make a lower curve: in doubt a line is dropped for UPPER and
    kept for LOWER.
    """
    lines = Lines(lines.epsilon, *settled(lines.delta, lines.kept))
    key = order_key(lines.delta, lines.kept)
    order = np.lexsort((key, lines.epsilon))
    before = np.concatenate(([np.iinfo(np.int64).max], np.minimum.accumulate(key[order])[:-1]))
    lines = lines.take(order[key[order] < before])

    # Chain position 0 is the node at k = 0, position i the node i - 1.
    def steepness(i: IntArray, j: IntArray) -> FloatArray:
        first, second = np.maximum(i - 1, 0), j - 1
        from_zero = lines.kept[second] * np.exp(-lines.epsilon[second])
        gap = lines.epsilon[second] - lines.epsilon[first]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            step = _falls(lines, first, second) * np.exp(-lines.epsilon[first]) / np.expm1(gap)
        return np.where(i == 0, from_zero, step)

    kept = convex_chain(lines.epsilon.size + 1, steepness, drop_in_doubt=side is Side.UPPER)[1:] - 1
    return lines.take(kept)


def _line_vertices(lines: Lines, side: Side) -> Points:
    """Vertices of the forward lines, from alpha = 0 up to the meeting of the two flattest."""
    index = np.arange(lines.epsilon.size)
    epsilon, delta, kept = lines.epsilon[:-1], lines.delta[:-1], lines.kept[:-1]
    with np.errstate(over="ignore"):
        lifted = _falls(lines, index[:-1], index[1:]) / np.expm1(np.diff(lines.epsilon))
    alpha = np.exp(-epsilon) * lifted
    beta_c = delta + lifted
    sign = -1.0 if side is Side.UPPER else 1.0
    beta = np.maximum(kept - lifted + sign * 8.0 * UNIT * (kept + lifted), 0.0)
    # delta strictly decreases, so alpha and 1 - beta are positive; a zero is an underflow and goes the safe way.
    alpha = np.where(alpha < TINY, 0.0 if side is Side.UPPER else TINY, alpha)
    beta_c = np.where(beta_c < TINY, TINY if side is Side.UPPER else 0.0, beta_c)
    beta_c = np.minimum(beta_c, 1.0)
    computed = Points(alpha, np.minimum(beta, 1.0), 1.0 - alpha, beta_c).settled().outward(LINE_ROUNDING, side)
    # The end at alpha = 0 is the input itself, so it is not moved: f(0) = 1 - delta exactly.
    end = _single(0.0, float(lines.kept[-1]), 1.0, float(lines.delta[-1]))
    return Points.joined(end, computed.take(index[:-1][::-1]))


def _meeting(forward: Lines, reverse: Lines, side: Side) -> Points:
    """Where the flattest forward line meets the flattest reverse line; their slopes differ."""
    epsilon, delta, kept = (float(column[0]) for column in forward)
    eps_r, delta_r, kept_r = (float(column[0]) for column in reverse)
    x, y = np.exp(-epsilon), np.exp(-eps_r)
    below = -np.expm1(-(epsilon + eps_r))
    gap = kept - kept_r if min(delta, delta_r) > 0.5 else delta_r - delta
    sign = -1.0 if side is Side.UPPER else 1.0

    def numerator(flatness: float, room: float, difference: float) -> float:
        straight, cross = -np.expm1(-flatness) * room, np.exp(-flatness) * difference
        return float(max(straight + cross + sign * 8.0 * UNIT * (straight + abs(cross)), 0.0))

    over_x = numerator(eps_r, kept, gap) / below
    over_y = numerator(epsilon, kept_r, -gap) / below
    alpha, beta = min(x * over_x, 1.0), min(y * over_y, 1.0)
    vertex = _single(alpha, beta, min(delta_r + over_y, 1.0), min(delta + over_x, 1.0))
    return vertex.outward(LINE_ROUNDING, side)


def _axis_meeting(lines: Lines, side: Side) -> Points:
    """Where the flattest line reaches beta = 0."""
    epsilon, delta, kept = (float(column[0]) for column in lines)
    if epsilon == 0.0:
        return _single(kept, 0.0, delta, 1.0)
    alpha = float(np.exp(-epsilon)) * kept
    return _single(alpha, 0.0, 1.0 - alpha, 1.0).outward(LINE_ROUNDING, side)


def _sharing_zero(forward: Lines, reverse: Lines, side: Side) -> tuple[Lines, Lines]:
    """Total variation is the same in both directions, so a line with epsilon = 0 serves both."""
    zero = [lines.take(np.array([0])) for lines in (forward, reverse) if lines.epsilon.size and lines.epsilon[0] == 0.0]
    if not zero:
        return forward, reverse
    least = max(zero, key=lambda line: (float(line.kept[0]), -float(line.delta[0])))
    joined = (Lines(*(np.concatenate(two) for two in zip(least, one, strict=True))) for one in (forward, reverse))
    first, second = (_binding_lines(one, side) for one in joined)
    return first, second


def profile_points(forward: Lines, reverse: Lines, side: Side) -> Points:
    """Vertices of the maximum of forward and reverse lines, every epsilon >= 0; either set may be empty."""
    forward, reverse = _sharing_zero(_binding_lines(forward, side), _binding_lines(reverse, side), side)
    while True:
        left = _line_vertices(forward, side) if forward.epsilon.size else None
        right = _line_vertices(reverse, side).swapped() if reverse.epsilon.size else None
        if left is None and right is None:
            raise InputError(
                "Expected at least one node of the profile, got none. Pass epsilon and delta of equal length."
            )
        if left is None:
            middle = _axis_meeting(reverse, side).swapped()
        elif right is None:
            middle = _axis_meeting(forward, side)
        elif forward.epsilon[0] == 0.0 and reverse.epsilon[0] == 0.0:
            crossed = order_key(left.alpha, left.alpha_c)[-1] > order_key(right.alpha, right.alpha_c)[0]
            if not crossed or min(forward.epsilon.size, reverse.epsilon.size) == 1:
                return Points.joined(left, right).hull(side)
            forward, reverse = Lines(*(c[1:] for c in forward)), Lines(*(c[1:] for c in reverse))
            continue
        else:
            middle = _meeting(forward, reverse, side)
        # A flattest line that meets its partner before it meets its neighbor binds nowhere.
        if left is not None and forward.epsilon.size > 1 and middle.alpha[0] < left.alpha[-1]:
            forward = Lines(*(column[1:] for column in forward))
        elif right is not None and reverse.epsilon.size > 1 and middle.beta[0] < right.beta[0]:
            reverse = Lines(*(column[1:] for column in reverse))
        else:
            parts = [part for part in (left, middle, right) if part is not None]
            return Points.joined(*parts).hull(side)


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
    points = Points(alpha, *(np.minimum(column, 1.0) for column in (beta, alpha_c, beta_c))).settled()
    # Order errors of p/q act like a relative change of p by 2 UNIT; they and the sums' errors move both coordinates.
    relative = error + 8.0 * UNIT + 2.0 * mismatch + rounding
    return points.outward(relative, side).hull(side)
