"""What `calipers.curves.tradeoff` is given: rates, complements and nodes of profiles, checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calipers.bracket import Side
from calipers.curves.construction import Lines
from calipers.curves.points import UNIT
from calipers.errors import InputError
from calipers.numerics.types import FloatArray


def read_column(name: str, values: ArrayLike) -> FloatArray:
    """A row of numbers in [0, 1], or `InputError` with their name."""
    array = np.array(values, dtype=np.float64, ndmin=1)
    if array.ndim != 1 or not np.all((array >= 0.0) & (array <= 1.0)):
        raise InputError(f"Expected {name} as one row of numbers in [0, 1], got {name}={values!r}.")
    return array


def read_complement(name: str, values: FloatArray, given: ArrayLike | None) -> FloatArray:
    """1 - values: as given, if it is that, or computed."""
    if given is None:
        return 1.0 - values
    complement = read_column(f"{name}_c", given)
    if complement.shape != values.shape or np.any(np.abs(values + complement - 1.0) > 4.0 * UNIT):
        raise InputError(f"Expected {name}_c = 1 - {name}, got {name}={values!r}, {name}_c={complement}.")
    return complement


def read_nodes(prefix: str, epsilon: ArrayLike, delta: ArrayLike, kept: ArrayLike | None = None) -> Lines:
    """Nodes of a profile, with 1 - delta in `kept` where that is known better."""
    epsilons, deltas = np.array(epsilon, dtype=np.float64, ndmin=1), read_column(f"{prefix}delta", delta)
    if epsilons.shape != deltas.shape or not np.all(np.isfinite(epsilons)):
        raise InputError(f"Expected one finite {prefix}epsilon per {prefix}delta, got {prefix}epsilon={epsilon!r}.")
    return Lines(epsilons, deltas, read_complement(f"{prefix}delta", deltas, kept))


def mirrored(nodes: Lines, side: Side) -> Lines:
    """Nodes with epsilon < 0 as nodes of the swapped pair: delta' = (delta - (1 - k))/k at k' = 1/k."""
    negative = nodes.epsilon < 0.0
    epsilon, delta = nodes.epsilon[negative], nodes.delta[negative]
    # Below -700 the rounding exceeds 1 anyway and the node says nothing.
    growth = np.exp(np.minimum(-epsilon, 700.0))
    value = (delta + np.expm1(epsilon)) * growth
    rounding = 4.0 * UNIT * ((delta - np.expm1(epsilon)) * growth + np.abs(value))
    if np.any(value < -rounding):
        raise InputError(
            "Expected delta >= 1 - e^epsilon at negative epsilon: no pair of distributions goes below that."
        )
    charged = value + rounding if side is Side.UPPER else value - rounding
    found = np.minimum(np.maximum(charged, 0.0), 1.0)
    return Lines(-epsilon, found, 1.0 - found)
