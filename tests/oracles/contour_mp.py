"""The contour integral of ``contour`` once more, in mpmath, with nothing adaptive: the slow and plain version.

Two nested trapezoid rules with fixed steps, over the observation x for ``E[L^z]`` and over the line ``Re z = theta``
for delta. Both converge geometrically: halving both steps and watching the digits is the whole error analysis.
Meant for runs of many steps (moments that die off along the line).
"""

from __future__ import annotations

from typing import Any

import mpmath as mp


def poisson_delta(
    q: Any,
    sigma: Any,
    steps: int,
    eps: Any,
    direction: str,
    theta: Any,
    top: Any,
    nodes: int,
    step: Any = 0.1,
    digits: int = 30,
) -> mp.mpf:
    """``D_{e^eps}`` of T Poisson-subsampled Gaussian steps.

    ``theta > 1`` places the line, which runs to height ``top`` in ``nodes`` steps; x runs over [-13, 13 + theta/sigma].
    """
    with mp.workdps(digits):
        q, sigma, eps, theta, step = (mp.mpf(value) for value in (q, sigma, eps, theta, step))
        count = int((26 + theta / sigma) / step)
        xs = [-13 + step * i for i in range(count + 1)]
        weights = [step * mp.npdf(x) for x in xs]
        losses = [mp.log(1 - q + q * mp.exp(x / sigma - 1 / (2 * sigma**2))) for x in xs]
        height = mp.mpf(top) / nodes
        total = mp.mpf(0)
        for node in range(nodes + 1):
            w = mp.mpc(theta, node * height)
            z = w if direction == "PQ" else 1 - w
            moment = mp.fsum(weight * mp.exp(z * loss) for weight, loss in zip(weights, losses, strict=True))
            value = (moment**steps * mp.exp(-(w - 1) * eps) / (w * (w - 1))).real
            total += value / 2 if node == 0 else value
        return total * height / mp.pi
