"""Calls on one hidden term A - k B for shifts in the plane, by quadrature to about 1e-5."""

from __future__ import annotations

import math

import numpy as np

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
WEIGHTS = WEIGHTS / math.sqrt(2.0 * math.pi)
STRIKES = (-3.0, -1.0, -0.3, -0.05, 0.0, 0.05, 0.3, 1.0, 3.0)


def call_of_shifts(a: np.ndarray, b: np.ndarray, k: float, strike: float) -> float:
    """E[(A - k B - c)+] for shifts in the plane: along a - b the event is a half line, across it a quadrature.

    Written as A - k B = Y(y) (e^(p x - p^2/2) - k e^(q x - q^2/2)) with p - q = |a - b|, the coordinate x along a - b
    and Y = e^(s y - s^2/2) for what a and b share across it.
    """
    gap = a - b
    rho = float(np.hypot(*gap))
    if rho < 1e-9:
        shared = float(np.hypot(*a))
        x = NODES
        return float(WEIGHTS @ np.maximum((1.0 - k) * np.exp(shared * x - 0.5 * shared**2) - strike, 0.0))
    along = gap / rho
    across = np.array([-along[1], along[0]])
    p, q, s = float(a @ along), float(b @ along), float(a @ across)
    grid = np.linspace(-11.0, 11.0, 6_001)
    term = np.exp(p * grid - 0.5 * p * p) - k * np.exp(q * grid - 0.5 * q * q)
    density = np.exp(-0.5 * grid * grid) / math.sqrt(2.0 * math.pi) * (grid[1] - grid[0])
    lead = np.exp(s * NODES[:, None] - 0.5 * s * s) if abs(s) > 1e-12 else np.ones((1, 1))
    weights = WEIGHTS if abs(s) > 1e-12 else np.ones(1)
    inner = np.array([float(np.sum(np.maximum(row * term - strike, 0.0) * density)) for row in lead])
    return float(weights @ inner)
