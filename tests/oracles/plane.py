"""Divergences of mixtures of unit Gaussians in the plane, by the trapezoid rule on a fine grid.

Integrands are kinked where the likelihood ratio crosses k, so the error is of the order of the squared step (a few 1e-4
of the value at the step used here); what is compared with it allows for that and for nothing else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STEP = 0.06
REACH = 9.0


def divergence(
    weights_p: Floats, means_p: Floats, weights_q: Floats, means_q: Floats, epsilon: float, step: float = STEP
) -> float:
    """E_Q[(L - e^epsilon)+] for mixtures with the given weights (n) and means (n x 2)."""
    means = np.concatenate((means_p, means_q))
    if not np.any(means[:, 1]):
        return _on_a_line(weights_p, means_p[:, 0], weights_q, means_q[:, 0], epsilon)
    axes = [np.arange(means[:, i].min() - REACH, means[:, i].max() + REACH, step) for i in range(2)]
    x, y = np.meshgrid(*axes, indexing="ij")
    gain = density(weights_p, means_p, x, y) - np.exp(epsilon) * density(weights_q, means_q, x, y)
    return float(np.sum(np.maximum(gain, 0.0)) * step * step)


def _on_a_line(weights_p: Floats, means_p: Floats, weights_q: Floats, means_q: Floats, epsilon: float) -> float:
    """The same where nothing happens along the second axis, with a step that leaves 1e-8."""
    step = 2e-4
    means = np.concatenate((means_p, means_q))
    x = np.arange(means.min() - REACH, means.max() + REACH, step)
    p, q = np.zeros_like(x), np.zeros_like(x)
    for weight, mean in zip(weights_p, means_p, strict=True):
        p += weight * np.exp(-0.5 * (x - mean) ** 2)
    for weight, mean in zip(weights_q, means_q, strict=True):
        q += weight * np.exp(-0.5 * (x - mean) ** 2)
    return float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0)) * step / np.sqrt(2.0 * np.pi))


def density(weights: Floats, means: Floats, x: Floats, y: Floats) -> Floats:
    """The density of a mixture."""
    total = np.zeros_like(x)
    for weight, (a, b) in zip(weights, means, strict=True):
        total += weight * np.exp(-0.5 * ((x - a) ** 2 + (y - b) ** 2))
    return total / (2.0 * np.pi)


def unit_disk(count: int, rng: np.random.Generator) -> Floats:
    """Gradients of norm at most 1, every other one of norm 1."""
    angle = rng.uniform(0.0, 2.0 * np.pi, count)
    length = np.where(rng.random(count) < 0.5, 1.0, np.sqrt(rng.random(count)))
    return np.stack((length * np.cos(angle), length * np.sin(angle)), axis=1)
