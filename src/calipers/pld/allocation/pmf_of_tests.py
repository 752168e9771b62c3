"""The PLD that a family of tests proves.

The maximum over tests of P(E) - k Q(E) is convex and piecewise linear in k and lies below the true profile, so it
is the profile of a PLD that the truth dominates. Products of such PLDs are dominated by products of the truth:
with D_k(P1 P2 || Q1 Q2) = E_P2[D_(k q2/p2)(P1||Q1)] one factor after the other can be replaced.

The atoms are the differences between consecutive tests, ordered by likelihood ratio: forward tests from infinity
down to ratio 1, reversed tests from 0 up to 1, and one atom in between. A test that would break the order lies
below the chord of its neighbors and is left out, which only weakens the PLD.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.average_tests import EventFamily
from calipers.pld.core.pmf import PrivacyLossPmf

_CHAIN_ROUNDING = 1e-12
"""Relative slack of a test's probabilities that covers taking differences of tests and adding them up again."""


def pmf_of_tests(
    forward: list[EventFamily], backward: list[EventFamily], log_tail: float, number: int = 320
) -> PrivacyLossPmf:
    """The optimistic PLD of the best tests among the families, at most `number` of each direction.

    Post-condition: in both directions its profile, and that of its products, is at most that of the truth.
    """
    up_alpha, up_power = _chosen(forward, log_tail, number)
    down_alpha, down_power = _chosen(backward, log_tail, number)
    # Atoms (q, p) by decreasing ratio; reversed tests have Q as power, and are walked from 1 down to 0.
    q_up, p_up = np.diff(up_alpha, prepend=0.0), np.diff(up_power, prepend=0.0)
    q_down, p_down = np.diff(down_power, prepend=0.0)[::-1], np.diff(down_alpha, prepend=0.0)[::-1]
    q_mid = 1.0 - (up_alpha[-1] if len(up_alpha) else 0.0) - (down_power[-1] if len(down_power) else 0.0)
    p_mid = 1.0 - (up_power[-1] if len(up_power) else 0.0) - (down_alpha[-1] if len(down_alpha) else 0.0)
    q = np.concatenate((q_up, [q_mid], q_down))
    p = np.concatenate((p_up, [p_mid], p_down))
    p, q = _ordered(p, q)
    log_p, log_q = np.log(p[::-1]), np.log(q[::-1])
    return PrivacyLossPmf(log_p - log_q, log_p, log_q, Side.LOWER, mass_error=4.0 * _CHAIN_ROUNDING)


def curve_of_tests(forward: list[EventFamily], backward: list[EventFamily], log_tail: float) -> TradeoffCurve:
    """What the tests attain with the null Q: those of the swapped pair claim P where they do not claim Q."""
    (alpha, power), (miss, caught) = (_chosen(families, log_tail, 320) for families in (forward, backward))
    return TradeoffCurve.from_tests(
        np.concatenate((alpha, 1.0 - caught)),
        np.concatenate((power, 1.0 - miss)),
        np.concatenate((1.0 - alpha, caught)),
        np.concatenate((1.0 - power, miss)),
        side=Side.LOWER,
    )


def _chosen(families: list[EventFamily], log_tail: float, number: int) -> tuple[FloatArray, FloatArray]:
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
    epsilons = scale * np.sinh(np.linspace(0.0, math.asinh(largest / scale), number))
    picks = {int(np.argmax(power - math.exp(eps) * alpha)) for eps in epsilons}
    index = np.array(sorted(picks, key=lambda i: alpha[i]))
    alpha, power = alpha[index] * (1.0 + _CHAIN_ROUNDING), power[index] * (1.0 - _CHAIN_ROUNDING)
    rising = np.concatenate(([True], np.diff(np.maximum.accumulate(power)) > 0)) & (np.diff(alpha, prepend=0.0) > 0)
    return alpha[rising], power[rising]


def _ordered(p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Neighboring atoms merged until all are positive and p/q strictly decreases (pool adjacent violators)."""
    stack: list[tuple[float, float]] = []
    for atom in zip(p.tolist(), q.tolist(), strict=True):
        current = atom
        while stack and not _below(current, stack[-1]):
            last = stack.pop()
            current = (current[0] + last[0], current[1] + last[1])
        stack.append(current)
    return np.array([a for a, _ in stack]), np.array([b for _, b in stack])


def _below(later: tuple[float, float], earlier: tuple[float, float]) -> bool:
    """Whether both atoms are proper and the later one has the smaller ratio, as their logarithms will say."""
    if min(later) <= 0 or min(earlier) <= 0:
        return False
    return math.log(later[0]) - math.log(later[1]) < math.log(earlier[0]) - math.log(earlier[1])
