"""One bound of a composition at a time.

`calipers.pld.composition.product` narrows a bracket from both sides until its bounds agree. Where the proof is one pair
and the attack another, the bounds stay apart however fine the grid is, so each bound is computed once, at the fineness
that the tolerance asks for, and several proofs or attacks can be compared by one bound only.

Every function looks around a saddle point, and looks again where the answer lies far from it. The saddle decides how
well a bound is computed, never whether it holds; all that is found on the way is a bound, and the best is returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.pld.composition.direction import FINEST, Direction, TailQuery, eta_for, log_escape_for, within
from calipers.pld.composition.product import Product, signed_eta
from calipers.pld.composition.saddle import Saddle, saddle_for_delta, saddle_for_epsilon
from calipers.pld.composition.tails import TailFocus

_LOOKS = 4
_NEAR = 0.7
"""Within so many deviations of its saddle point an answer is as good as the grid."""
_DEEPEST_LOG_DELTA = -640.0
_SPARE = 18.0
_FIRST_DEPTH, _DEEP = -36.0, -60.0
"""Deep enough for a delta of 1e-8 of one step, or for an advantage, and no deeper than epsilon at 1e-5 asks; and where
nothing is left of a PLD but its end, that of a deeper one."""
_SIGNED = 0.02
"""A delta that others publish too is computed to this share of the tolerance."""
_SHORT = 1 << 18
"""The longest lattice of a rough look at delta, where rare large steps reach far beyond the rest."""


@dataclass(frozen=True)
class AttackValue:
    """What an attack shows at least, with the threshold of its test and the order of the datasets."""

    value: float
    threshold: float = math.inf
    reversed: bool = False


def _eta(direction: Direction, wanted: float) -> float:
    """At most `wanted`, but no finer than a lattice of a few hundred thousand points allows."""
    steps = float(direction.steps())
    finest = max(FINEST, 13.0 * math.sqrt(min(steps, 2.0 * math.sqrt(steps))) / 4e5)
    return max(finest, within(wanted))


def _depth(log_delta: float, direction: Direction) -> float:
    return log_delta - math.log(direction.steps()) - _SPARE


def epsilon_above(product: Product, delta: float, tolerance: float, signed: bool = False) -> float:
    """At least epsilon(delta) of what the pessimistic PLDs dominate, in both orders; `signed`: as fine as of both
    bounds.
    """
    log_delta = math.log(delta)
    ordered = [
        (saddle_for_delta(orientation.pilot(_depth(log_delta, orientation)), log_delta), orientation)
        for orientation in product.directions
    ]
    ordered.sort(key=lambda item: -item[0].mean)
    best = 0.0
    for saddle, direction in ordered:
        best = max(best, _epsilon_above(direction, saddle, delta, tolerance, signed, best))
    return best


def _epsilon_above(
    direction: Direction, saddle: Saddle, delta: float, tolerance: float, signed: bool, known: float
) -> float:
    """In one order, no more finely than to see that it is at most `known`."""
    log_delta = math.log(delta)
    log_tail = _depth(log_delta, direction)
    far, log_leak = direction.end(log_tail)
    if log_leak > log_delta:
        return math.inf
    if direction.moment_bound(known, saddle, log_tail) <= delta:
        return known
    pilot, best = direction.pilot(log_tail), max(0.0, far)
    for _ in range(_LOOKS):
        relative = 0.1 * tolerance * max(saddle.mean, 0.05 * saddle.deviation) * (saddle.tilt - 1.0)
        log_escape = log_escape_for(saddle, min(max(1e-9, relative), 1e-3)) - 5.0
        eta = _eta(direction, 0.3 * eta_for(saddle, tolerance))
        eta = signed_eta(saddle, direction.steps(), eta) if signed else eta
        found = direction.upper(TailQuery(saddle, eta, log_tail, log_escape, TailFocus(delta=delta))).epsilon(delta)
        best = min(best, found)
        if abs(found - saddle.mean) <= _NEAR * saddle.deviation:
            break
        moved = saddle_for_epsilon(pilot, found if math.isfinite(found) else saddle.mean + 3.0 * saddle.deviation)
        if abs(moved.tilt - saddle.tilt) <= 1e-3 * saddle.tilt:
            break
        saddle = moved
    return best


def delta_above(product: Product, epsilon: float, tolerance: float, signed: bool = False) -> float:
    """At least delta(epsilon) of what the pessimistic PLDs dominate, in both orders; `signed`: finer than is asked
    for.
    """
    # Total variation has no direction.
    orientations = product.directions if epsilon > 0.0 else product.directions[:1]
    return max(_delta_above(direction, epsilon, tolerance, signed and epsilon > 0.0) for direction in orientations)


def _delta_above(direction: Direction, epsilon: float, tolerance: float, signed: bool) -> float:
    log_tail, best = _FIRST_DEPTH, 1.0
    for _ in range(_LOOKS):
        far, log_leak = direction.end(log_tail)
        if epsilon >= far:  # no log ratio reaches epsilon: only mass at infinity is left
            best = min(best, math.exp(log_leak))
            if log_tail <= _DEEP:
                return best
            log_tail = _DEEP
            continue
        saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        if saddle.log_delta < _DEEPEST_LOG_DELTA:
            return min(best, direction.moment_bound(epsilon, saddle, log_tail))
        eta = _eta(direction, _eta_for_delta(saddle, (_SIGNED if signed else 1.0) * tolerance))
        log_escape, focus = log_escape_for(saddle, 0.1 * tolerance), TailFocus(epsilon=epsilon)
        best = min(best, direction.upper(TailQuery(saddle, eta, log_tail, log_escape, focus)).delta(epsilon))
        needed = _depth(saddle.log_delta, direction)
        if needed >= log_tail:
            break
        log_tail = max(2.0 * log_tail, _DEEPEST_LOG_DELTA - 80.0)
    return best


def _eta_for_delta(saddle: Saddle, tolerance: float) -> float:
    """Cells that move log delta by about 0.6 tolerance: V theta (theta - 1) eta^2 / 4, and eta^2 / 4 at a flat tilt."""
    return math.sqrt(4.0 * 0.6 * tolerance / (1.0 + saddle.variance * saddle.tilt * (saddle.tilt - 1.0)))


def epsilon_below(product: Product, delta: float, tolerance: float | None) -> AttackValue:
    """At most epsilon(delta) of the attack that the optimistic PLDs describe; without a tolerance one rough look."""
    return max(
        (_epsilon_below(orientation, delta, tolerance) for orientation in product.directions),
        key=lambda shown: shown.value,
    )


def _epsilon_below(direction: Direction, delta: float, tolerance: float | None) -> AttackValue:
    log_delta = math.log(delta)
    log_tail = _depth(log_delta, direction)
    pmfs = direction.lower_pmfs(0.2, log_tail, None)
    saddle, best = saddle_for_delta(pmfs, log_delta), AttackValue(0.0, math.inf, direction.reverse)
    for _ in range(_LOOKS):
        eta = _eta(direction, 0.25 if tolerance is None else 1.4 * eta_for(saddle, tolerance))
        tests = direction.lower(TailQuery(saddle, eta, log_tail, log_escape_for(saddle, 1e-4), TailFocus(delta=delta)))
        found = tests.epsilon(delta)
        if found > best.value:
            best = AttackValue(found, tests.best_test(found)[1], direction.reverse)
        if abs(found - saddle.mean) <= _NEAR * saddle.deviation:
            break
        moved = saddle_for_epsilon(pmfs, found)
        if abs(moved.tilt - saddle.tilt) <= 1e-3 * saddle.tilt:
            break
        saddle = moved
    return best


def delta_below(product: Product, epsilon: float, tolerance: float | None) -> AttackValue:
    """At most delta(epsilon) of the attack that the optimistic PLDs describe; without a tolerance a rough look."""
    return max(
        (_delta_below(orientation, epsilon, tolerance) for orientation in product.directions),
        key=lambda shown: shown.value,
    )


def _delta_below(direction: Direction, epsilon: float, tolerance: float | None) -> AttackValue:
    log_tail, best = -60.0, AttackValue(0.0, math.inf, direction.reverse)
    for _ in range(_LOOKS):
        saddle = saddle_for_epsilon(direction.lower_pmfs(0.2, log_tail, None), epsilon)
        if saddle.log_delta < _DEEPEST_LOG_DELTA:
            break
        eta = _eta(direction, 0.25 if tolerance is None else 1.4 * _eta_for_delta(saddle, tolerance))
        longest, focus = _SHORT if tolerance is None else None, TailFocus(epsilon=epsilon)
        tests = direction.lower(TailQuery(saddle, eta, log_tail, log_escape_for(saddle, 1e-4), focus, longest=longest))
        value, threshold = tests.best_test(epsilon)
        if value > best.value:
            best = AttackValue(value, threshold, direction.reverse)
        if _depth(saddle.log_delta, direction) >= log_tail:
            break
        log_tail = max(2.0 * log_tail, _DEEPEST_LOG_DELTA - 80.0)
    return best
