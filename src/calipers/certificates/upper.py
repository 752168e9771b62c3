"""The upper bound of a certificate: PLDs that dominate one step of every phase, and what their product shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

from flint import arb

from calipers.certificates.exact import exact
from calipers.certificates.placing import StopLoss, places_between, pmf_record, reach, spacing_for
from calipers.certificates.rounds import Focus, gain, hides, node_places, sum_for
from calipers.errors import CertificationError
from calipers.numerics.elementary import bisect
from calipers_verify import pmfs
from calipers_verify.checker import PROOF, directions, dust_of, fixed_batches, proven_pmf
from calipers_verify.reading import effort_left, read, spend
from calipers_verify.rows import ONE
from calipers_verify.steps import HOW, Phase, bound
from calipers_verify.stop_loss import ball, gaussian

SayProgress = Callable[[str], object]
DIGITS = 7
"""Significant digits of a certified number, the last one rounded away from the truth."""
EFFORT = 10_000_000
"""Operations spent on the sums of one certificate, at most half a minute: with fewer nodes a bound is looser."""
ENOUGH = 3e-4
"""Nothing is asked any more where all of it could lower epsilon by no larger share."""
_TRIES, _MORE = 4, Fraction(101, 100)
"""How often a delta is looked for with more cut, and for how much more of it than was found."""


def rounded(value: float, up: bool, digits: int = DIGITS) -> Fraction:
    """The number on the decimal grid of `digits` significant digits next to `value`, above or below."""
    if value <= 0.0:
        return Fraction(0)
    unit = Fraction(10) ** (math.floor(math.log10(value)) + 1 - digits)
    steps = Fraction(value) / unit
    return (math.ceil(steps) if up else math.floor(steps)) * unit


class UpperProof:
    """A proof for all pairs of neighbors at about (epsilon, delta): its record, and the bound it gives at any epsilon.

    Fixed batches compete: where hiding the record proves less than its batch being known, the closed form wins.
    """

    def __init__(self, pairs: list[list[Phase]], epsilon: float, delta: float, share: float, say: SayProgress) -> None:
        self.mu, self.pmfs, self.proof = None, list[pmfs.LatticePmf](), list[dict[str, object]]()
        self.pairs, self.dust = pairs, dust_of(exact(delta))
        if not any(phase.kind in ("realized", "size") for phase in pairs[0]):
            self.mu = fixed_batches(pairs[0], "upper")
        self.is_plain = all(not phase.is_hidden or phase.kind == "fixed" for phase in pairs[0]) and self.mu is not None
        if self.is_plain:
            return
        spend(0, anew=True)  # what was spent on another certificate does not count here
        steps = max(sum(phase.repeats for phase in phases) for phases in pairs)
        spacing = spacing_for(epsilon, delta, steps, share)
        shares = len(pairs) * max(1, sum(map(hides, pairs[0])))
        focus = Focus(epsilon, delta, len(pairs[0]) == 1, EFFORT // shares)
        for number, (phases, back) in enumerate(directions(pairs), 1):
            say(f"proving the upper bound, distribution {number} of {len(directions(pairs))}")
            record = one_direction(phases, back, spacing, self.dust, focus, say, self.proof[-1] if back else None)
            self.pmfs.append(proven_pmf(read(record, PROOF, "a proof"), phases, back, self.dust))
            self.proof.append(record)

    def record(self, epsilon: Fraction, delta: Fraction) -> object:
        """What the certificate says for this claim."""
        return "fixed-batches" if self._fixed_hold(epsilon, delta) else self.proof

    def _fixed_hold(self, epsilon: Fraction, delta: Fraction) -> bool:
        return self.mu is not None and bool(gaussian(self.mu, ball(epsilon)) <= ball(delta))

    def holds(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Whether the checker would accept it."""
        if self._fixed_hold(epsilon, delta):
            return True
        return not self.is_plain and all(bool(pmfs.delta_bound(pmf, epsilon) <= ball(delta)) for pmf in self.pmfs)

    def smallest_epsilon(self, delta: Fraction) -> Fraction:
        """The smallest epsilon of seven digits at which the proof gives delta."""
        return smallest(lambda epsilon: self.holds(epsilon, delta), 0.0, f"delta = {float(delta):g}")

    def smallest_delta(self, epsilon: Fraction) -> Fraction:
        """The smallest delta of seven digits at which the proof gives epsilon.

        The checker cuts what is small next to the delta claimed: where more is claimed than was expected, as much is
        cut here, since every cut adds to the bound.
        """
        for _ in range(_TRIES):
            found = smallest(lambda delta: self.holds(epsilon, delta), -280.0, f"epsilon = {float(epsilon):g}")
            if dust_of(found) <= self.dust or self._fixed_hold(epsilon, found):
                return found
            self._cut(dust_of(found * _MORE))
        raise CertificationError(f"No bound could be certified at epsilon = {float(epsilon):g}.")

    def _cut(self, dust: int) -> None:
        """The PLDs of the same proof if so much may be cut."""
        spend(0, anew=True)
        self.dust = dust
        self.pmfs = [
            proven_pmf(read(record, PROOF, "a proof"), phases, back, dust)
            for record, (phases, back) in zip(self.proof, directions(self.pairs), strict=True)
        ]


def smallest(holds: Callable[[Fraction], bool], log10_least: float, asked: str) -> Fraction:
    """The smallest number on the decimal grid that holds; deltas are searched for by their logarithm."""
    by_log = log10_least < 0.0
    if not by_log and holds(Fraction(0)):
        return Fraction(0)

    def value(at: float) -> float:
        return 10.0**at if by_log else at

    low, high = (log10_least, 0.0) if by_log else (0.0, 1.0)
    while not by_log and not holds(rounded(high, True)):
        low, high = high, 2.0 * high
        if high > 1e5:
            raise CertificationError(f"No finite bound could be certified at {asked}.")
    _, high = bisect(low, high, lambda at: not holds(Fraction(value(at))), 40)
    found = min(rounded(value(high), True), Fraction(1)) if by_log else rounded(value(high), True)
    if not holds(found):
        raise CertificationError(f"No bound could be certified at {asked}.")
    return found


def one_direction(
    phases: list[Phase],
    back: bool,
    spacing: Fraction,
    dust: int,
    focus: Focus,
    say: SayProgress,
    other: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The proof of one direction: for every phase a PLD that dominates a step or epoch of it.

    `other`: that of the other one. At the opposite log ratios both need the same sums.
    """
    factors = []
    for number, phase in enumerate(phases):
        small = Fraction(dust, ONE) / phase.repeats
        if hides(phase):
            same = None if other is None else other["factors"][number]
            factors.append(_by_sums(phase, back, spacing, small, focus, say, same))
            continue
        stop_loss: StopLoss = partial(bound, phase, back=back, how=None)
        low, high = reach(stop_loss, spacing, small)
        factors.append({"law": pmf_record(stop_loss, places_between(low, high), spacing), "sums": [None]})
    return {"spacing": str(spacing), "factors": factors}


def _by_sums(
    phase: Phase,
    back: bool,
    spacing: Fraction,
    small: Fraction,
    focus: Focus,
    say: SayProgress,
    other: dict[str, Any] | None,
) -> dict[str, object]:
    """A PLD from sums, with nodes from the middle outward until what lies beyond is small, or where `other` has them.

    Where no remainder is dropped little is lost by half of the operations: the theorem loses more, or sums are smooth.
    """
    tiny, blocks_pay = float(small), dict[float, bool]()
    shared = sum_for(phase, back, Fraction(0), tiny, blocks_pay) if phase.one_sum else None
    known: dict[int, tuple[arb, dict[str, object] | None]] = {}
    chosen = cache(lambda place: sum_for(phase, back, place * spacing, tiny, blocks_pay))

    def ask(place: int) -> arb:
        x = place * spacing
        if not shared:
            say(f"proving the upper bound, {len(known)} of at most {len(everywhere)} sums")
        how = shared or (chosen(abs(place) if phase.replaced else place) if place not in hows else hows[place])
        known[place] = bound(phase, x, back, read(how, HOW, "a sum")), how
        return known[place][0] - (1 - ball(x).exp() if place < 0 else 0)

    def worth(first: int, last: int, *values: float) -> float:
        return gain(focus, phase.repeats, float(first * spacing), float(last * spacing), *values)

    everywhere, hows = node_places(phase, spacing, tiny, focus), dict[int, Any]()
    sides = [p for p in everywhere if p >= 0], [p for p in reversed(everywhere) if p <= 0]
    if other is not None and not shared:
        hows = {-place: how for place, how in zip(other["law"]["places"], other["sums"], strict=True)}
        for place in hows:
            ask(place)
    elif shared:
        for side in sides:
            any(ask(place) <= ball(small) for place in side)
    else:
        effort = focus.effort if phase.kind == "dropping" or phase.repeats == 1 else focus.effort // 2
        _ask_where_it_gains(sides, ask, ball(small), worth, effort)
    heights = {place * spacing: known[place][0] for place in known}
    places = sorted(known) if shared else _below_chords(sorted(known), heights, spacing)
    return {
        "law": pmf_record(heights.__getitem__, places, spacing),
        "sums": [shared] if shared else [known[place][1] for place in places],
    }


def _ask_where_it_gains(
    sides: tuple[list[int], ...],
    ask: Callable[[int], arb],
    small: arb,
    worth: Callable[..., float],
    effort: int,
) -> None:
    """Ask at a few places from the middle outward until what lies beyond is small, then between those where most can
    be gained, until that is little or the operations are spent.
    """
    least_left, stride = effort_left() - effort, 1 << max(0, len(sides[0]).bit_length() - 4)
    between: list[tuple[float, list[int], int, int, float, float]] = []
    total = 0.0

    def add(side: list[int], first: int, last: int, values: tuple[float, float]) -> float:
        gained = worth(side[first], side[last], *values) if last - first > 1 else 0.0
        if gained > 0.0:
            heappush(between, (-gained, side, first, last, *values))
        return gained

    for side in sides:
        found = _first_asked(side, stride, ask, small)
        for (first, value), (last, next_value) in pairwise(found.items()):
            total += add(side, first, last, (value, next_value))
    while between and total > ENOUGH and effort_left() > least_left:
        gained, side, first, last, *values = heappop(between)
        middle = (first + last) // 2
        value = float(ask(side[middle]))
        total += gained + add(side, first, middle, (values[0], value)) + add(side, middle, last, (value, values[1]))


def _first_asked(side: list[int], stride: int, ask: Callable[[int], arb], small: arb) -> dict[int, float]:
    """Values by their number on the side, up to the first that is small or to the last."""
    values: dict[int, float] = {}
    for at in (*range(0, len(side) - 1, stride), len(side) - 1):
        value = ask(side[at])
        values[at] = float(value)
        if value <= small:
            break
    return values


def _below_chords(places: list[int], heights: dict[Fraction, arb], spacing: Fraction) -> list[int]:
    """The places whose bound is below the chord of others: D is convex in e^x, so that at the rest it is too.

    Every place has a bound of its own, and a single loose one would add to the masses around it.
    """
    kept: list[tuple[int | None, arb, arb]] = [(None, arb(0), arb(1))]
    for place in places:
        ratio, height = ball(place * spacing).exp(), heights[place * spacing]
        while len(kept) > 1:
            (_, first, at_first), (_, second, at_second) = kept[-2:]
            if (at_second - at_first) * (ratio - first) < (height - at_first) * (second - first):
                break
            kept.pop()
        kept.append((place, ratio, height))
    return [place for place, _, _ in kept if place is not None]
