"""The divergence that a sum of worst-case terms bounds, for several epsilons at once.

A multi-resolution grid (`calipers.pld.allocation.multi_resolution`) spends most of its time on moving levels about,
whatever stands on them. Sums for neighboring epsilons have nearly the same shape, and share one: each is a row of its
own. Their sizes and centers differ by more than their shapes, so the terms of each are divided by a scale, and a
constant is taken off: with X' = X/s - c,

    (X_1 + ... + X_M - threshold)+ = s (X'_1 + ... + X'_M - (threshold/s - M c))+ .

What is added for lost mass and moments (`calipers.pld.allocation.worst_case_sum`) grows with E|X'| <= (1 + k)/s + |c|,
and the threshold moves by the rounding of M c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.fourier_sum import Payoff
from calipers.pld.allocation.lattice_segment import LatticeSegment
from calipers.pld.allocation.multi_resolution import MultiResolutionSum, ResolutionPlan, added, multiplied
from calipers.pld.allocation.worst_case_sum import LARGEST_ERROR, WorstCaseSum, threshold_of
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

Nodes = list[tuple[float, float]]


def divergence(
    term: WorstCaseTerm, rounds: int, participation: float, resolution: float, log_tail: float
) -> tuple[float, float]:
    """The divergence that a sum of worst-case terms bounds, at one epsilon (docs/theory/shuffling.md, section 7).

    Args:
        term: The worst-case term at epsilon >= 0.
        rounds: How many independent copies there are, M.
        participation: The probability r in (0, 1] that the record takes part.
        resolution: Of the multi-resolution grid; a smaller one gives a smaller delta.
        log_tail: About the logarithm of the mass that may be cut, and is added.

    Returns:
        (node, delta) with r/M E[(X_1 + ... + X_M - threshold)+] at the node at most delta <= 1; the node is the term's
        epsilon up to rounding, and no less.
    """
    return divergences([term], rounds, participation, resolution, log_tail)[0]


def divergences(
    terms: Sequence[WorstCaseTerm], rounds: int, participation: float, resolution: float, log_tail: float
) -> Nodes:
    """As `divergence` for every term; their epsilons increase and are near to each other."""
    sums = [WorstCaseSum.deep(term, rounds, log_tail) for term in terms]
    return _by_grids(sums, participation, resolution)


def rough_stop_losses(
    term: WorstCaseTerm, rounds: int, resolution: float, log_tail: float
) -> tuple[FloatArray, FloatArray]:
    """m = 1, 2, 4, ... up to `rounds`, and about E[(X_1 + ... + X_m)+] / m: for choices, as nothing is added."""
    total = WorstCaseSum.deep(term, rounds, log_tail).ended(0.0)
    plans = total.plans(resolution)[0]
    power, stop_losses = total.one(plans[0]), []
    for plan in plans:
        power = power if plan is plans[0] else added(power, power, plan, 1.0)
        values, masses = power.flat()
        stop_losses.append(max(float(masses[0] @ np.maximum(values, 0.0)) / power.terms, 1e-300))
    return np.ldexp(1.0, np.arange(len(plans))), np.array(stop_losses)


def _node(total: WorstCaseSum, participation: float, rounds: int, gain: float) -> tuple[float, float]:
    return total.node, min(1.0, participation * gain / rounds * (1.0 + 2.0 * total.rounding))


def _by_grids(sums: Sequence[WorstCaseSum], participation: float, resolution: float) -> Nodes:
    rounds = sums[0].rounds
    asked = [threshold_of(one.term, rounds, participation) for one in sums]
    sums = [one.ended(threshold) for one, (threshold, _) in zip(sums, asked, strict=True)]
    gains = np.full(len(sums), math.inf)
    for plans, centered in alike(sums, [threshold for threshold, _ in asked], resolution):
        found = _expected(shared_grid(centered, plans), centered, [_stop_loss(*each) for each in asked])
        gains = np.minimum(gains, np.ravel(found))
    return [_node(one, participation, rounds, float(gain)) for one, gain in zip(sums, gains, strict=True)]


def _stop_loss(threshold: float, rounded: float) -> Payoff:
    return lambda sums: np.maximum(sums - threshold + rounded, 0.0)


def expected_payoffs(
    sums: Sequence[WorstCaseSum],
    payoffs: Sequence[Payoff],
    resolution: float,
    bend: float,
    plannings: int | None = None,
) -> list[FloatArray]:
    """At least E[payoff(X_1 + ... + X_M)] of every sum, or of each row of its payoffs.

    Payoffs are convex and increasing with slope at most one, and `bend` at this sum. `plannings`: at most so many ways
    to keep the sums are tried, of which the best counts.
    """
    found: list[list[FloatArray]] = []
    for plans, moved in alike(sums, [bend] * len(sums), resolution)[:plannings]:
        found.append(_expected(shared_grid(moved, plans), moved, payoffs))
    return [np.min(each, axis=0) for each in zip(*found, strict=True)]


def _expected(total: MultiResolutionSum, sums: Sequence[WorstCaseSum], payoffs: Sequence[Payoff]) -> list[FloatArray]:
    """At least the expected payoffs of sums whose PLDs are the rows of a multi-resolution grid, infinite if it has
    no digits left.
    """
    if total.error > LARGEST_ERROR:  # masses without digits bound nothing
        return [np.full(np.shape(payoff(np.zeros(1))[..., 0]), math.inf) for payoff in payoffs]
    values, masses = total.flat()
    found = []
    aboves = np.broadcast_to(total.above, len(sums))
    for one, pmf, above, payoff in zip(sums, masses, aboves, payoffs, strict=True):
        moved = total.terms * one.offset
        # c is taken off every term, and M c added to the sum, each with a rounding of its own.
        there = one.scale * (values + moved) + one.scale * 8.0 * UNIT_ROUNDOFF * (np.abs(values) + abs(moved))
        at_zero = payoff(np.array([one.scale * moved * (1.0 + math.copysign(8.0 * UNIT_ROUNDOFF, moved))]))[..., 0]
        with_error = payoff(there) @ pmf * ((1.0 + 4.0 * len(values) * UNIT_ROUNDOFF) / (1.0 - total.error))
        lost = replace(one, rounds=total.terms).left_out(total.lost_moment)
        found.append(with_error + one.scale * float(above) + lost + 2.0 * at_zero * total.lost)
    return found


def alike(
    sums: Sequence[WorstCaseSum], thresholds: Sequence[float], resolution: float
) -> list[tuple[list[ResolutionPlan], list[WorstCaseSum]]]:
    """Plans that serve all sums, with the sums scaled and moved to the center of the first."""
    sizes = [math.hypot(1.0, math.exp(one.term.epsilon)) for one in sums]
    sums = [replace(one, scale=max(1.0, size / sizes[0])) for one, size in zip(sums, sizes, strict=True)]
    far = max(one.clipped[1] / one.scale for one in sums)
    plannings = [one.plans(resolution) for one in sums]
    found = []
    for number, usual in enumerate(plannings[0]):
        others = [
            (planning[number], one.scale)
            for planning, one in zip(plannings, sums, strict=True)
            if number < len(planning)
        ]
        plans = [replace(plan, ends=(-far, far)) for plan in _finest(usual, others)]
        moved = []
        for one, threshold in zip(sums, thresholds, strict=True):
            offset = _offset(plans[-1], threshold / one.scale, one.center / one.scale - sums[0].center)
            moved.append(replace(one, offset=offset / one.rounds))
        found.append((plans, moved))
    return found


def _finest(
    usual: Sequence[ResolutionPlan], others: Sequence[tuple[Sequence[ResolutionPlan], float]]
) -> list[ResolutionPlan]:
    """The usual plans, as fine at every size as any of the others, divided by its scale, and as deep."""
    units = np.array([[math.ldexp(plan.step, plan.lowest) / scale for plan in plans] for plans, scale in others])
    least = units.min(axis=0)
    base, grain = float(least.min()), min(plans[0].grain for plans, _ in others)
    lowest, loss = np.floor(np.log2(least / base)).astype(int), min(plans[0].log_loss for plans, _ in others)
    return [
        replace(plan, step=base, grain=grain, lowest=int(e), log_loss=loss)
        for plan, e in zip(usual, lowest, strict=True)
    ]


def _offset(plan: ResolutionPlan, threshold: float, offset: float) -> float:
    """About `offset`, such that the threshold lies on a place of the multi-resolution grid, where the bend of a
    stop-loss transform costs nothing.
    """
    if plan.center == 0.0:
        return 0.0  # most sums are about 0, which is a place: they stay there
    distance = abs(threshold - offset - plan.center)
    level = plan.lowest
    while plan.radius(level) < distance:
        level += 1
    unit = math.ldexp(plan.step, level)
    return threshold - unit * round((threshold - offset) / unit)


def shared_grid(
    sums: Sequence[WorstCaseSum], plans: Sequence[ResolutionPlan], shifts: tuple[float, ...] = ()
) -> MultiResolutionSum:
    """The distributions of all sums, under noise and with one round shifted by each of `shifts`, on one
    multi-resolution grid.
    """
    return multiplied(_joint([one.one(plans[0], shifts) for one in sums]), sums[0].rounds, plans)


def _joint(parts: Sequence[MultiResolutionSum]) -> MultiResolutionSum:
    """PLDs on the same lattices, each of as many rows, on one multi-resolution grid."""
    levels = {}
    for e in sorted({e for part in parts for e in part.levels}):
        strips = [(i, part.levels[e]) for i, part in enumerate(parts) if e in part.levels]
        low = min(strip.low for _, strip in strips)
        size = max(strip.low + strip.rows.shape[1] for _, strip in strips) - low
        rows: FloatArray = np.zeros((len(strips[0][1].rows), len(parts), size))
        for i, strip in strips:
            rows[:, i, strip.low - low : strip.low - low + strip.rows.shape[1]] = strip.rows
        levels[e] = LatticeSegment(low, rows.reshape(-1, size))
    first = parts[0]
    error, drift = max(part.error for part in parts), max(part.drift for part in parts)
    lost, moment = max(part.lost for part in parts), max(part.lost_moment for part in parts)
    return MultiResolutionSum(levels, first.step, first.terms, error, drift, lost, moment, len(parts))
