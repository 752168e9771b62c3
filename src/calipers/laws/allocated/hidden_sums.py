"""The divergence that a sum of hidden terms bounds, for several epsilons at once.

A ladder (`calipers.laws.allocated.average_ladder`) spends most of its time on moving rungs about, whatever stands on
them. Sums for neighboring epsilons have nearly the same shape, and share one: each is a row of its own. Their sizes and
centers differ by more than their shapes, so the terms of each are divided by a scale, and a constant is taken off: with
X' = X/s - c,

    (X_1 + ... + X_M - strike)+ = s (X'_1 + ... + X'_M - (strike/s - M c))+ .

What is charged for lost mass and moments (`calipers.laws.allocated.hidden_sum`) grows with E|X'| <= (1 + k)/s + |c|,
and the strike moves by the rounding of M c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np

from calipers.laws.allocated.average_ladder import Ladder, LadderPlan, added, multiplied, one_more
from calipers.laws.allocated.hidden_sum import LARGEST_ERROR, HiddenSum, call_by_waves, strike_of
from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.laws.allocated.strips import Strip
from calipers.laws.allocated.waves import Payoff
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray

Nodes = list[tuple[float, float]]


def divergence(
    term: HiddenTerm, rounds: int, participation: float, resolution: float, log_tail: float
) -> tuple[float, float]:
    """(node, delta): r/M E[(X_1 + ... + X_M - strike)+] at the node is at most delta <= 1.

    The node is the term's epsilon >= 0 up to rounding. A smaller `resolution` gives a smaller delta.
    """
    return divergences([term], rounds, participation, resolution, log_tail)[0]


def divergences(
    terms: Sequence[HiddenTerm], rounds: int, participation: float, resolution: float, log_tail: float
) -> Nodes:
    """As `divergence` for every term; their epsilons increase and are near to each other."""
    by_waves = (_by_waves(term, rounds, participation, resolution, log_tail) for term in terms)
    found = [node for node in takewhile(lambda node: node is not None, by_waves) if node is not None]
    if len(found) < len(terms):
        sums = [HiddenSum.deep(term, rounds, log_tail) for term in terms[len(found) :]]
        found += _by_ladders(sums, (rounds,), participation, resolution)[0]
    return found


def divergences_too(
    terms: Sequence[HiddenTerm], rounds: int, resolution: float, log_tail: float
) -> tuple[Nodes, Nodes]:
    """As `divergences` of so many rounds and of one round more, where the record is in one of them for certain."""
    if _by_waves(terms[0], rounds + 1, 1.0, resolution, log_tail) is not None:
        few, more = (divergences(terms, count, 1.0, resolution, log_tail) for count in (rounds, rounds + 1))
    else:
        sums = [HiddenSum.deep(term, rounds + 1, log_tail) for term in terms]
        few, more = _by_ladders(sums, (rounds, rounds + 1), 1.0, resolution)
    return few, more


def rough_calls(term: HiddenTerm, rounds: int, resolution: float, log_tail: float) -> tuple[FloatArray, FloatArray]:
    """m = 1, 2, 4, ... up to `rounds`, and about E[(X_1 + ... + X_m)+] / m: for choices, as nothing is charged."""
    total = HiddenSum.deep(term, rounds, log_tail).ended(0.0)
    plans = total.plans(resolution)[0]
    power, calls = total.one(plans[0]), []
    for plan in plans:
        power = power if plan is plans[0] else added(power, power, plan, 1.0)
        values, masses = power.flat()
        calls.append(max(float(masses[0] @ np.maximum(values, 0.0)) / power.terms, 1e-300))
    return np.ldexp(1.0, np.arange(len(plans))), np.array(calls)


def _by_waves(
    term: HiddenTerm, rounds: int, participation: float, resolution: float, log_tail: float
) -> tuple[float, float] | None:
    """As `divergence`, by transforms, one epsilon at a time; None where ladders are better."""
    strike, rounded = strike_of(term, rounds, participation)
    total = HiddenSum.deep(term, rounds, log_tail).ended(strike)
    gain = call_by_waves(total, strike, rounded, resolution)
    return None if gain is None else _node(total, participation, rounds, gain)


def _node(total: HiddenSum, participation: float, rounds: int, gain: float) -> tuple[float, float]:
    return total.node, min(1.0, participation * gain / rounds * (1.0 + 2.0 * total.rounding))


def _by_ladders(
    sums: Sequence[HiddenSum], counts: Sequence[int], participation: float, resolution: float
) -> list[Nodes]:
    """For each of the counts of rounds, of which the second is one more than the first."""
    strikes = [[strike_of(one.term, count, participation) for one in sums] for count in counts]
    sums = [one.ended(strike) for one, (strike, _) in zip(sums, strikes[0], strict=True)]
    gains = np.full((len(counts), len(sums)), math.inf)
    for plans, centered in alike(sums, [strike for strike, _ in strikes[0]], resolution):
        first = _joint([one.one(plans[0]) for one in centered])
        totals = [multiplied(first, counts[0], plans)]
        totals += [one_more(totals[0], first, plans)] if len(counts) > 1 else []
        for found, total, asked in zip(gains, totals, strikes, strict=True):
            found[:] = np.minimum(found, np.ravel(_expected(total, centered, [_call(*each) for each in asked])))
    return [
        [_node(one, participation, count, float(gain)) for one, gain in zip(sums, found, strict=True)]
        for count, found in zip(counts, gains, strict=True)
    ]


def _call(strike: float, rounded: float) -> Payoff:
    return lambda sums: np.maximum(sums - strike + rounded, 0.0)


def expected_payoffs(
    sums: Sequence[HiddenSum], payoffs: Sequence[Payoff], resolution: float, bend: float, ways: int | None = None
) -> list[FloatArray]:
    """At least E[payoff(X_1 + ... + X_M)] of every sum, or of each row of its payoffs.

    Payoffs are convex and increasing with slope at most one, and `bend` at this sum. `ways`: at most so many ways to
    keep the sums are tried, of which the best counts.
    """
    found: list[list[FloatArray]] = []
    for plans, moved in alike(sums, [bend] * len(sums), resolution)[:ways]:
        found.append(_expected(shared_ladder(moved, plans), moved, payoffs))
    return [np.min(each, axis=0) for each in zip(*found, strict=True)]


def _expected(total: Ladder, sums: Sequence[HiddenSum], payoffs: Sequence[Payoff]) -> list[FloatArray]:
    """At least the expected payoffs of sums whose laws are the rows of a ladder, infinite if it has no digits left."""
    if total.error > LARGEST_ERROR:  # masses without digits bound nothing
        return [np.full(np.shape(payoff(np.zeros(1))[..., 0]), math.inf) for payoff in payoffs]
    values, masses = total.flat()
    found = []
    aboves = np.broadcast_to(total.above, len(sums))
    for one, law, above, payoff in zip(sums, masses, aboves, payoffs, strict=True):
        moved = total.terms * one.offset
        # c is taken off every term, and M c added to the sum, each with a rounding of its own.
        there = one.scale * (values + moved) + one.scale * 8.0 * UNIT_ROUNDOFF * (np.abs(values) + abs(moved))
        at_zero = payoff(np.array([one.scale * moved * (1.0 + math.copysign(8.0 * UNIT_ROUNDOFF, moved))]))[..., 0]
        charged = payoff(there) @ law * ((1.0 + 4.0 * len(values) * UNIT_ROUNDOFF) / (1.0 - total.error))
        lost = replace(one, rounds=total.terms).left_out(total.lost_moment)
        found.append(charged + one.scale * float(above) + lost + 2.0 * at_zero * total.lost)
    return found


def alike(
    sums: Sequence[HiddenSum], strikes: Sequence[float], resolution: float
) -> list[tuple[list[LadderPlan], list[HiddenSum]]]:
    """Plans that serve all sums, with the sums scaled and moved to the center of the first."""
    sizes = [math.hypot(1.0, math.exp(one.term.epsilon)) for one in sums]
    sums = [replace(one, scale=max(1.0, size / sizes[0])) for one, size in zip(sums, sizes, strict=True)]
    far = max(one.clipped[1] / one.scale for one in sums)
    ways = [one.plans(resolution) for one in sums]
    found = []
    for number, usual in enumerate(ways[0]):
        others = [(way[number], one.scale) for way, one in zip(ways, sums, strict=True) if number < len(way)]
        plans = [replace(plan, ends=(-far, far)) for plan in _finest(usual, others)]
        moved = []
        for one, strike in zip(sums, strikes, strict=True):
            offset = _offset(plans[-1], strike / one.scale, one.center / one.scale - sums[0].center)
            moved.append(replace(one, offset=offset / one.rounds))
        found.append((plans, moved))
    return found


def _finest(usual: Sequence[LadderPlan], others: Sequence[tuple[Sequence[LadderPlan], float]]) -> list[LadderPlan]:
    """The usual plans, as fine at every size as any of the others, divided by its scale, and as deep."""
    units = np.array([[math.ldexp(plan.step, plan.lowest) / scale for plan in plans] for plans, scale in others])
    least = units.min(axis=0)
    base, grain = float(least.min()), min(plans[0].grain for plans, _ in others)
    lowest, loss = np.floor(np.log2(least / base)).astype(int), min(plans[0].log_loss for plans, _ in others)
    return [
        replace(plan, step=base, grain=grain, lowest=int(e), log_loss=loss)
        for plan, e in zip(usual, lowest, strict=True)
    ]


def _offset(plan: LadderPlan, strike: float, offset: float) -> float:
    """About `offset`, such that the strike lies on a place of the ladder, where the bend of a call costs nothing."""
    if plan.center == 0.0:
        return 0.0  # most sums are about 0, which is a place: they stay there
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
