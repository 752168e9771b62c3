"""The PLD that a family of tests proves.

The maximum over tests of P(E) - k Q(E) is convex and piecewise linear in k and lies below the true profile, so it
is the profile of a PLD that the truth dominates. Products of such PLDs are dominated by products of the truth:
with D_k(P1 P2 || Q1 Q2) = E_P2[D_(k q2/p2)(P1||Q1)] one factor after the other can be replaced.

The atoms are the differences between consecutive tests on the hull of all, ordered by likelihood ratio: forward tests
from infinity down to ratio 1, reversed tests from 0 up to 1, and one atom in between.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.average_tests import EventFamily
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.profile_pmf import pmf_of_curve

_MOST_TESTS = 320
"""Of either direction."""
_CHAIN_ROUNDING = 1e-12
"""Relative slack of a test's probabilities that covers taking differences of tests and adding them up again."""


def pmf_of_tests(forward: list[EventFamily], backward: list[EventFamily], log_tail: float) -> PrivacyLossPmf:
    """The optimistic PLD of the best tests among the families.

    Post-condition: in both directions its profile, and that of its products, is at most that of the truth.
    """
    pmf = pmf_of_curve(curve_of_tests(forward, backward, log_tail))
    # Every test has both errors, so a segment that rounding made singular claims nothing.
    return replace(pmf, p_inf=0.0, q_zero=0.0, mass_error=pmf.mass_error + 4.0 * _CHAIN_ROUNDING)


def curve_of_tests(forward: list[EventFamily], backward: list[EventFamily], log_tail: float) -> TradeoffCurve:
    """What the tests attain with the null Q: those of the swapped pair claim P where they do not claim Q."""
    (alpha, power), (miss, caught) = (_chosen(families, log_tail) for families in (forward, backward))
    return TradeoffCurve.from_tests(
        np.concatenate((alpha, 1.0 - caught)),
        np.concatenate((power, 1.0 - miss)),
        np.concatenate((1.0 - alpha, caught)),
        np.concatenate((1.0 - power, miss)),
        side=Side.LOWER,
    )


def _chosen(families: list[EventFamily], log_tail: float) -> tuple[FloatArray, FloatArray]:
    """False positive rates and powers, both increasing, of the tests that are best at some epsilon >= 0."""
    alpha = np.concatenate([f.alpha for f in families])
    power = np.concatenate([f.power for f in families])
    keep = (np.log(power) > log_tail) & (power > alpha)
    alpha, power = alpha[keep], power[keep]
    if len(alpha) == 0:
        return alpha, power
    advantage = float(np.max(power - alpha))
    largest = float(np.max(np.log(power) - np.log(alpha)))
    # Dense on the scale of the spread of log L, which is about the advantage, and geometric beyond it.
    scale = min(advantage, largest)
    epsilons = scale * np.sinh(np.linspace(0.0, math.asinh(largest / scale), _MOST_TESTS))
    picks = {int(np.argmax(power - math.exp(eps) * alpha)) for eps in epsilons}
    index = np.array(sorted(picks, key=lambda i: alpha[i]))
    alpha, power = alpha[index] * (1.0 + _CHAIN_ROUNDING), power[index] * (1.0 - _CHAIN_ROUNDING)
    rising = np.concatenate(([True], np.diff(np.maximum.accumulate(power)) > 0)) & (np.diff(alpha, prepend=0.0) > 0)
    return alpha[rising], power[rising]
