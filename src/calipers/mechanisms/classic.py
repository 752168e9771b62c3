"""Laplace, randomized response, and an (epsilon, delta) guarantee taken as a mechanism.

All three have closed forms. Laplace with scale b and sensitivity 1: below 0 and above 1 the ratio is
constant, e^(-1/b) and e^(1/b); in between log L = (2z - 1)/b. Randomized response dominates every
epsilon-DP mechanism, and with mass delta where the two datasets are distinguished for certain it
dominates every (epsilon, delta)-DP mechanism (Kairouz, Oh, Viswanath 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.domains import PROBABILITY, Domain
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import between

EPSILON = Domain(0.0, 500.0, low_open=True)
SCALE = Domain(1.0 / 500.0, 1e6)


@dataclass(frozen=True)
class ApproximateDp(Pair):
    """The pair of an (epsilon, delta) guarantee, which it remembers."""

    stated: tuple[float, float] | None = None


def randomized_response(epsilon: float) -> Pair:
    """The binary randomized response with ratio e^epsilon: dominates every epsilon-DP mechanism."""
    return approximate_dp(epsilon, 0.0)


def approximate_dp(epsilon: float, delta: float) -> ApproximateDp:
    """The pair that dominates every (epsilon, delta)-DP mechanism and attains it."""
    epsilon = EPSILON.check("epsilon", epsilon)
    delta = PROBABILITY.check("delta", delta)
    likely = -math.log1p(math.exp(-epsilon)) + math.log1p(-delta) if delta < 1 else -math.inf
    unlikely = likely - epsilon
    name = f"randomized response, epsilon = {epsilon:g}" + (f", delta = {delta:g}" if delta else "")
    return ApproximateDp(
        name,
        atom_log_p=(unlikely, likely),
        atom_log_q=(likely, unlikely),
        p_inf=delta,
        q_zero=delta,
        symmetric=True,
        span=epsilon,
        stated=(epsilon, delta),
    )


def laplace(scale: float) -> Pair:
    """Laplace noise of the given scale on a query of sensitivity 1: exactly 1/scale-DP."""
    scale = SCALE.check("scale", scale)
    log_norm = -math.log(2.0 * scale)
    part = between(  # beyond 0 and 1 lie the atoms
        0.0,
        1.0,
        lambda z: log_norm - (1.0 - z) / scale,
        lambda z: log_norm - z / scale,
        lambda z: np.asarray((2.0 * z - 1.0) / scale),
        slope=2.0 / scale,
        scale=min(1.0, scale),
    )
    half = -math.log(2.0)
    return Pair(
        f"Laplace mechanism, scale = {scale:g}",
        smooth=(part,),
        atom_log_p=(half - 1.0 / scale, half),
        atom_log_q=(half, half - 1.0 / scale),
        symmetric=True,
    )
