"""Sizes of the steps of a composition: which are large, which are too rare to matter, what one of them would show.

The size of a step is the modulus of its log likelihood ratio. Which steps are called large decides only how
`calipers.pld.composition.large_steps` computes its bounds, never what they say.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from calipers.bracket import Side
from calipers.numerics.elementary import bisect
from calipers.numerics.types import BoolArray
from calipers.pld.composition.direction import CountedPmfs
from calipers.pld.core.pmf import PrivacyLossPmf

_DEVIATIONS, _EXPECTED = 2.0, 0.25
"""A step beyond so many deviations of the sum of smaller ones is large, unless more than so many would be expected."""


def size_beyond(pmfs: CountedPmfs, expected: float) -> float:
    """The size beyond which less than so many steps are expected.

    Args:
        pmfs: PLDs of the kinds of steps, and how many of each there are.
        expected: a number of steps, under P.

    Returns:
        A size, at most the largest of all.
    """
    size = np.concatenate([np.abs(pmf.log_ratio) for pmf, _ in pmfs])
    order = np.argsort(size, kind="stable")
    mass = np.concatenate([count * np.exp(pmf.log_p) for pmf, count in pmfs])[order]
    often = np.flatnonzero(np.cumsum(mass[::-1])[::-1] >= expected)
    return float(size[order[often[-1] if len(often) else -1]])


def size_threshold(pmfs: CountedPmfs) -> tuple[float, float]:
    """How large a step has to be to count as large, and the deviation of the sum of all smaller ones.

    The threshold is `_DEVIATIONS` of that sum. Of few heavy-tailed steps this would call ever more of them large; it
    ends where `_EXPECTED` are expected.

    Args:
        pmfs: PLDs of the kinds of steps, and how many of each there are.

    Returns:
        (threshold, deviation).
    """
    lowest, found, deviation = size_beyond(pmfs, _EXPECTED), math.inf, 0.0
    for _ in range(60):
        variance = 0.0
        for pmf, count in pmfs:
            inside = np.abs(pmf.log_ratio) <= found
            if np.any(inside):
                weights, small = np.exp(pmf.log_p[inside]), pmf.log_ratio[inside]
                center = float(np.average(small, weights=weights))
                variance += count * float(np.average((small - center) ** 2, weights=weights))
        deviation = math.sqrt(variance)
        following = max(lowest, _DEVIATIONS * deviation)
        if following >= found - 1e-3 * deviation:
            break
        found = following
    return found, deviation


def epsilon_of_one_step(pmfs: CountedPmfs, delta: float) -> float:
    """About the epsilon at delta, were all steps but one to show nothing: an estimate, no bound.

    Args:
        pmfs: PLDs of the kinds of steps, and how many of each there are.
        delta: in (0, 1).

    Returns:
        The epsilon >= 0 at which the divergences of all single steps sum to delta; 0 where they never exceed it.
    """

    def divergence(epsilon: float) -> float:
        return math.fsum(
            count * float(np.sum(np.exp(pmf.log_p) * -np.expm1(np.minimum(epsilon - pmf.log_ratio, 0.0))))
            for pmf, count in pmfs
        )

    largest = max(float(pmf.log_ratio[-1]) for pmf, _ in pmfs)
    return bisect(0.0, largest, lambda epsilon: divergence(epsilon) > delta, 60, share=1e-3)[0]


def _taken(pmf: PrivacyLossPmf, chosen: BoolArray, p_inf: float = 0.0) -> PrivacyLossPmf:
    """Some of its atoms, and this P-mass at infinity."""
    ratio, log_p, log_q = (values[chosen] for values in (pmf.log_ratio, pmf.log_p, pmf.log_q))
    return replace(pmf, log_ratio=ratio, log_p=log_p, log_q=log_q, p_inf=p_inf, q_zero=0.0)


def restricted(pmf: PrivacyLossPmf, large: bool, threshold: float) -> PrivacyLossPmf:
    """The atoms of one size; what is at infinity is left to whoever charges it.

    Args:
        pmf: the PLD of one step.
        large: whether to take the atoms beyond the threshold or the others.
        threshold: a size.

    Returns:
        A PLD of less mass than 1.
    """
    return _taken(pmf, (np.abs(pmf.log_ratio) > threshold) == large)


def without_largest(pmfs: CountedPmfs, expected: float) -> CountedPmfs:
    """Without the largest steps, of which less than so many are expected.

    Args:
        pmfs: PLDs of the kinds of steps, and how many of each there are, all on one side.
        expected: a number of steps, under P.

    Returns:
        PLDs whose product bounds that of the given ones on their side. UPPER: such steps are counted as infinite.
        LOWER: tests reject nowhere where there is one.
    """
    far, found = size_beyond(pmfs, expected), []
    for pmf, count in pmfs:
        inside = np.abs(pmf.log_ratio) <= far
        beyond = float(np.exp(pmf.log_p[~inside]).sum()) * math.exp(2.0 * pmf.rounding + pmf.shift_error)
        found.append((_taken(pmf, inside, pmf.p_inf + beyond if pmf.side is Side.UPPER else pmf.p_inf), count))
    return found
