"""The pessimistic PLD that a few proven values of a profile give.

The true divergence is convex in k = e^epsilon, so between two nodes it lies below the chord of any upper bounds at the
nodes, and beyond the last node below its value there. What connects the dots is the profile of a PLD, one that
dominates the truth at every k.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CertificationError
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf

ProfileNodes = Sequence[tuple[float, float]]
"""(epsilon, delta): the divergence at epsilon >= 0 is at most delta."""


def curve_of_profile(forward: ProfileNodes, backward: ProfileNodes | None = None) -> TradeoffCurve:
    """The guarantee of proven nodes; without `backward` the forward nodes hold in both directions."""
    epsilons, deltas = np.array(forward).T
    swapped = None if backward is None else tuple(np.array(backward).T)
    return TradeoffCurve.from_profile(epsilons, deltas, side=Side.UPPER, symmetric=backward is None, reverse=swapped)


def pmf_of_profile(forward: ProfileNodes, backward: ProfileNodes | None = None) -> PrivacyLossPmf:
    """The pessimistic PLD of proven nodes.

    Args:
        forward: (epsilon, delta) with D(P||Q) at e^epsilon at most delta.
        backward: The same of D(Q||P); without it the forward nodes hold in both directions.

    Returns:
        A PLD whose profile is at least the true one at every epsilon, in both directions.
    """
    return pmf_of_curve(curve_of_profile(forward, backward))


def pmf_of_curve(curve: TradeoffCurve) -> PrivacyLossPmf:
    """The PLD of a trade-off curve: its segments are the atoms.

    Args:
        curve: Piecewise linear, a guarantee (Side.UPPER) or what tests attain (Side.LOWER).

    Returns:
        The PLD on the curve's side, with the curve as its trade-off function.

    Raises:
        CertificationError: No segment has a finite, positive slope.
    """
    p, q, p_inf, q_zero = curve.atoms
    proper = (p > 0) & (q > 0)
    if not np.any(proper):
        raise CertificationError(
            "Nothing finite is left of the privacy loss of a step: so little noise hides nothing. Use a larger "
            "noise_multiplier."
        )
    log_p, log_q = np.log(p[proper])[::-1], np.log(q[proper])[::-1]
    ratio = np.maximum.accumulate(log_p - log_q)
    rounding = 1e-15 * (4.0 + float(np.max(np.abs(log_p))) + float(np.max(np.abs(log_q))))
    return PrivacyLossPmf(
        ratio,
        log_q + ratio,
        log_q,
        curve.side,
        p_inf=min(1.0, p_inf + float(p[q <= 0].sum())),
        q_zero=min(1.0, q_zero + float(q[p <= 0].sum())),
        mass_error=ATOM_ROUNDING + rounding,
        shift_error=rounding,
    )
