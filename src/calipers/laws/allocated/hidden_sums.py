"""Sums of hidden terms for several epsilons at once.

A ladder (`calipers.laws.allocated.average_ladder`) spends most of its time on moving rungs about, whatever stands on
them. Sums for neighboring epsilons have nearly the same shape, and share one: each is a row of its own. Their centers
differ by more than their shapes, so a constant is taken off the terms of each: with X' = X - c,

    (X_1 + ... + X_M - strike)+ = (X'_1 + ... + X'_M - (strike - M c))+ .

What is charged for lost mass and moments (`calipers.laws.allocated.hidden_sum`) grows with E|X'| <= 1 + k + |c|, and
the strike moves by the rounding of M c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calipers.laws.allocated.average_ladder import Ladder, LadderPlan, Strip, multiplied
from calipers.laws.allocated.hidden_sum import LARGEST_ERROR, HiddenSum, divergence, strike_of
from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray


def divergences(
    terms: Sequence[HiddenTerm], rounds: int, participation: float, resolution: float, log_tail: float
) -> list[tuple[float, float]]:
    """As `divergence` for every term; their epsilons increase and are near to each other."""
    strikes = [strike_of(term, rounds, participation) for term in terms]
    sums = [
        HiddenSum.deep(term, rounds, log_tail).ended(strike) for term, (strike, _) in zip(terms, strikes, strict=True)
    ]
    if len(sums) == 1 or not sums[0].hopeless(resolution):
        return [divergence(term, rounds, participation, resolution, log_tail) for term in terms]
    gains = np.full(len(sums), math.inf)
    for plans, centered in alike(sums, [strike for strike, _ in strikes], resolution):
        total = shared_ladder(centered, plans)
        if total.error > LARGEST_ERROR:
            continue  # masses without digits bound nothing
        values, masses = total.flat()
        for i, (one, (strike, rounded)) in enumerate(zip(centered, strikes, strict=True)):
            moved = rounds * one.offset
            # c is taken off every term, and M c off the strike, each with a rounding of its own.
            slack = rounded + 8.0 * UNIT_ROUNDOFF * (abs(moved) + abs(strike - moved))
            call = np.maximum(values - (strike - moved) + slack, 0.0)
            at_zero = max(moved - strike + slack, 0.0)
            found = float(call @ masses[i]) * ((1.0 + 4.0 * len(values) * UNIT_ROUNDOFF) / (1.0 - total.error))
            gains[i] = min(gains[i], found + one.left_out(total.lost_moment) + 2.0 * at_zero * total.lost)
    return [
        (one.node, min(1.0, participation * float(gain) / rounds * (1.0 + 2.0 * one.rounding)))
        for one, gain in zip(sums, gains, strict=True)
    ]


def alike(
    sums: Sequence[HiddenSum], strikes: Sequence[float], resolution: float
) -> list[tuple[list[LadderPlan], list[HiddenSum]]]:
    """Plans that serve all sums, those of the first, with the sums moved to their centers."""
    own = [one.plans(resolution) for one in sums]
    found = []
    for way, plans in enumerate(own[0]):
        last, size = plans[-1], 1 << (len(plans) - 1)
        moved = []
        for one, strike, ways in zip(sums, strikes, own, strict=True):
            gap = ways[min(way, len(ways) - 1)][-1].center - last.center
            moved.append(replace(one, offset=_offset(last, strike, gap * one.rounds / size) / one.rounds))
        found.append((plans, moved))
    return found


def _offset(plan: LadderPlan, strike: float, offset: float) -> float:
    """About `offset`, such that the strike lies on a place of the ladder, where the bend of a call costs nothing."""
    distance = abs(strike - offset - plan.center)
    rung = plan.lowest
    while plan.radius(rung) < distance:
        rung += 1
    unit = math.ldexp(plan.step, rung)
    return strike - unit * round((strike - offset) / unit)


def shared_ladder(sums: Sequence[HiddenSum], plans: Sequence[LadderPlan], shifts: tuple[float, ...] = ()) -> Ladder:
    """The laws of all sums, under noise and with one round shifted by each of `shifts`, on one ladder."""
    return multiplied(_joint([one.one(plans[0], shifts) for one in sums]), sums[0].rounds, plans)


def _joint(parts: Sequence[Ladder]) -> Ladder:
    """Laws on the same lattices, each of as many rows, on one ladder."""
    rungs = {}
    for e in sorted({e for part in parts for e in part.rungs}):
        strips = [(i, part.rungs[e]) for i, part in enumerate(parts) if e in part.rungs]
        low = min(strip.low for _, strip in strips)
        size = max(strip.low + strip.rows.shape[1] for _, strip in strips) - low
        rows: FloatArray = np.zeros((len(strips[0][1].rows), len(parts), size))
        for i, strip in strips:
            rows[:, i, strip.low - low : strip.low - low + strip.rows.shape[1]] = strip.rows
        rungs[e] = Strip(low, rows.reshape(-1, size))
    first = parts[0]
    error, drift = max(part.error for part in parts), max(part.drift for part in parts)
    lost, moment = max(part.lost for part in parts), max(part.lost_moment for part in parts)
    return Ladder(rungs, first.step, first.terms, error, drift, lost, moment, len(parts))
