"""The value of one shuffled epoch with a remainder by quadrature of non-negative numbers; shares no code.

V_0(s) = max(s, 0), V_n(s) = max of E[V_(n-1)(s + A - k B)] over both ends of the adversary's choices, divergence
(r/M) V_M(-M (1 - r)(k - 1)/r): an adversary's value, and six digits of the supremum. `shuffled_recursion` has one step
for all sums and subtracts what it does not resolve; with little noise or few rounds it has no digits. Here

- sums are dense next to 0 and spread out in proportion beyond, so that V is resolved where it falls by powers of ten;
- normal integrals are Gaussian rules on intervals that end where the next sum is 0 and halve towards it: as
  functions of y = e^(z/sigma) all terms are c0 + c1 y + c2 y^2, so these places are roots of a quadratic equation;
- between sums V is cubic, on either side of 0 by itself, where V_0 and V_1 have corners.

All but the cubic weights is non-negative, so small values keep their digits.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse

_REACH = 10.0
"""Of the normal variable."""
_HALVINGS = 18


def terms_by_power(radius: float, k: float, reverse: bool) -> list[tuple[float, float, float]]:
    """Coefficients of 1, y and y^2 in A - k B, y = e^(radius z), for x = y_t (no shift) and x = -y_t (twice)."""
    once, twice = math.exp(-0.5 * radius**2), math.exp(-2.0 * radius**2)
    if reverse:
        return [(-k, once, 0.0), (0.0, once, -k * twice)]
    return [(1.0, -k * once, 0.0), (0.0, -k * once, twice)]


def _sums(radius: float, k: float, rounds: int, start: float, density: float) -> np.ndarray:
    """Places, 0 among them."""
    deviation = k * math.sqrt(math.expm1(radius**2))
    usual = -start + rounds * (k - 1.0) + 9.0 * deviation * math.sqrt(rounds)
    finest, widest = min(0.2, deviation), deviation / (1.5 * density)
    places = [0.0]
    while places[-1] < 1e3 * usual + 1e5 * k * k * math.exp(2.0 * radius**2):
        gap = min(math.hypot(finest, places[-1]) / density, widest)
        places.append(places[-1] + gap + max(places[-1] - usual, 0.0) / density)
    return np.concatenate((-np.array(places[:0:-1]), places))


def _observations(term: tuple[float, float, float], here: float, radius: float, rule: int) -> tuple[np.ndarray, ...]:
    """Nodes z and weights of the normal distribution, dense where here + term is 0."""
    c0, c1, c2 = term
    ends = np.arange(-_REACH, _REACH + 2.0 * radius + 0.5, 0.5)
    roots = [-(c0 + here) / c1]
    if c2 != 0.0:
        inside = c1 * c1 - 4.0 * c2 * here
        larger = -0.5 * (c1 + math.copysign(math.sqrt(max(inside, 0.0)), c1))
        roots = [larger / c2, here / larger] if inside > 0.0 else []
    halved = 0.5 ** np.arange(1, _HALVINGS)
    near = [math.log(root) / radius + np.concatenate((-halved, [0.0], halved)) for root in roots if root > 0.0]
    ends = np.unique(np.concatenate((ends, *near)))
    ends = ends[(ends >= -_REACH) & (ends <= _REACH + 2.0 * radius)]
    nodes, weights = np.polynomial.legendre.leggauss(rule)
    half = 0.5 * np.diff(ends)[:, None]
    z = (ends[:-1, None] + half * (1.0 + nodes)).ravel()
    return z, (half * weights).ravel() * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def _cubic(sums: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """First of four places, and their weights; all on one side of 0."""
    zero = len(sums) // 2
    low, high = np.where(at > 0.0, zero, 0), np.where(at > 0.0, len(sums) - 4, zero - 3)
    first = np.clip(np.searchsorted(sums, at) - 2, low, high)
    around = [sums[first + number] for number in range(4)]
    weights = []
    for mine in around:
        others = [other for other in around if other is not mine]
        weights.append(np.prod([(at - other) / (mine - other) for other in others], axis=0))
    return first, weights


def _round(term: tuple[float, float, float], sums: np.ndarray, radius: float, rule: int) -> tuple[object, np.ndarray]:
    """V -> E[V(s + term)] for all sums as a matrix, and what V's slope of one beyond the last place adds."""
    starts, columns, masses, beyond = [0], [], [], []
    for here in sums:
        z, weights = _observations(term, here, radius, rule)
        y = np.exp(radius * z)
        at = here + term[0] + term[1] * y + term[2] * y * y
        weights = weights * (at >= sums[0])
        beyond.append(weights @ np.maximum(at - sums[-1], 0.0))
        first, shares = _cubic(sums, np.clip(at, sums[0], sums[-1]))
        row = sum(np.bincount(first + number, weights * share, len(sums)) for number, share in enumerate(shares))
        some = np.flatnonzero(row)
        columns.append(some)
        masses.append(row[some])
        starts.append(starts[-1] + len(some))
    matrix = scipy.sparse.csr_matrix((np.concatenate(masses), np.concatenate(columns), starts), (len(sums), len(sums)))
    return matrix, np.array(beyond)


def divergence_by_quadrature(
    sigma: float,
    rounds: int,
    epsilon: float,
    participation: float = 1.0,
    reverse: bool = False,
    density: float = 6.0,
    rule: int = 6,
) -> float:
    """The divergence at epsilon of the best adversary who changes sides; `density`: of the sums in proportion."""
    radius, k = 1.0 / sigma, math.exp(epsilon)
    start = -rounds * (1.0 - participation) / participation * (k - 1.0)
    sums = _sums(radius, k, rounds, start, density)
    choices = [_round(term, sums, radius, rule) for term in terms_by_power(radius, k, reverse)]
    values = np.maximum(sums, 0.0)
    for _ in range(rounds):
        values = np.max([matrix @ values + beyond for matrix, beyond in choices], axis=0)
    first, weights = _cubic(sums, np.array([start]))
    return participation / rounds * float(sum(w[0] * values[first[0] + n] for n, w in enumerate(weights)))
