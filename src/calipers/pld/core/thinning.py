"""Fewer atoms for a PLD that dominates: those between two nodes are split onto them.

An atom at x with a <= x <= b is moved to a and b so that its Q-mass and its P-mass stay what they are, a mean
preserving spread of L as the split of a cell is (`calipers.pld.core.pair`):

    mass at b = (e^x - e^a) / (e^b - e^a),   mass at a = (e^b - e^x) / (e^b - e^a).

So one PLD with very many atoms, computed once, serves every tilt: only the nodes are chosen anew. Nodes are atoms
themselves, the first and the last among them.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.numerics.types import FloatArray, IntArray

_BLOCK, _APART = 48, 1000
"""Neighboring atoms whose density is counted together, and stretches of which each has a node at its end."""


def chosen_nodes(x: FloatArray, weights: FloatArray, mean_square: float, fewest: int) -> IntArray:
    """Increasing atoms between which those with these weights have about this mean square width; at least `fewest`.

    With n(x) nodes per unit length the cost is the integral of w / n^2, w the density of the weights; for a given
    number of nodes it is least when n is proportional to w^(1/3). The fewest are equally many atoms apart.
    """
    edges = np.append(np.arange(0, len(x) - 1, _BLOCK), len(x) - 1)
    lengths = np.maximum(np.diff(x[edges]), 1e-300)
    masses = np.add.reduceat(weights, edges[:-1])
    shape = np.cbrt(masses / lengths)
    amount = math.sqrt(float(lengths @ shape) / mean_square)
    total = np.concatenate(([0.0], np.cumsum(amount * shape * lengths)))
    # Between edges nodes are spread evenly over the line, and each is the atom that comes next.
    wanted = np.interp(np.linspace(0.0, total[-1], min(math.ceil(total[-1]) + 1, len(x))), total, x[edges])
    return _any_of(len(x), np.searchsorted(x, wanted), spaced_nodes(x, fewest))


def spaced_nodes(x: FloatArray, count: int) -> IntArray:
    """About so many nodes, equally many atoms apart; and as many as it takes that none are far apart."""
    even = np.linspace(0.0, len(x) - 1.0, min(count, len(x))).astype(np.intp)
    near = np.searchsorted(x, np.linspace(x[0], x[-1], _APART + 1))
    return _any_of(len(x), even, np.minimum(near, len(x) - 1))


def _any_of(count: int, *indices: IntArray) -> IntArray:
    """Indices below `count` that are in any of these, in order."""
    there = np.zeros(count, dtype=np.bool_)
    for index in indices:
        there[index] = True
    return np.flatnonzero(there)


def thinned(x: FloatArray, log_q: FloatArray, index: IntArray) -> tuple[FloatArray, FloatArray, float]:
    """The nodes, the logs of their Q-masses, and at least the relative error that those have more than the atoms'.

    `index`: increasing atoms, the first and the last of all among them.
    """
    nodes = x[index]
    nodes = nodes[np.append(True, np.diff(nodes) > 0.0)]
    starts = np.searchsorted(x, nodes[:-1])
    counts = np.diff(np.append(starts, len(x)))
    a, b = np.repeat(nodes[:-1], counts), np.repeat(nodes[1:], counts)
    log_width = np.log(-np.expm1(nodes[:-1] - nodes[1:]))
    found, log_mass = np.full(len(nodes), -np.inf), log_q - np.repeat(log_width, counts)
    with np.errstate(divide="ignore"):
        up, down = log_mass + (x - b) + np.log(-np.expm1(a - x)), log_mass + np.log(-np.expm1(x - b))
        found[1:] = _log_sums(up, starts, counts)
        found[:-1] = np.logaddexp(found[:-1], _log_sums(down, starts, counts))
    some = np.isfinite(found)
    # Differences, exponentials and products round a dozen times, a sum once a term, exponents and logs by their size.
    deepest, widest = float(np.max(np.abs(log_q))), float(np.max(np.diff(nodes)))
    error = 1.2e-16 * (16.0 + float(np.max(counts)) + 4.0 * widest + 4.0 * deepest)
    return nodes[some], found[some], error


def _log_sums(logs: FloatArray, starts: IntArray, counts: IntArray) -> FloatArray:
    """Of every group, each next to its own largest term: nodes far apart share an atom in parts that are no numbers."""
    peak = np.maximum.reduceat(logs, starts)
    terms = np.exp(logs - np.repeat(np.maximum(peak, -1e300), counts))
    return np.asarray(peak + np.log(np.add.reduceat(terms, starts)))
