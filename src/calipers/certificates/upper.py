"""The upper jaw of a certificate: laws that dominate one step of every phase, and what their product shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from calipers.certificates.placing import (
    Call,
    coarsening,
    dust_for,
    law_record,
    places_between,
    reach,
    saddle,
    spacing_for,
)
from calipers.certificates.rounds import Focus, hides, node_places, one_sum, plan_for
from calipers.errors import CertificationError
from calipers_verify import lattice
from calipers_verify.calls import ONE, ball, gaussian
from calipers_verify.checker import DIRECTIONS, EpochKind, Phase, composed, fixed_batches
from calipers_verify.reading import Effort

DIGITS = 7
"""Significant digits of a certified number, the last one rounded away from the truth."""


def rounded(value: float, up: bool, digits: int = DIGITS) -> Fraction:
    """The number on the decimal grid of `digits` significant digits next to `value`, above or below."""
    if value <= 0.0:
        return Fraction(0)
    unit = Fraction(10) ** (math.floor(math.log10(value)) + 1 - digits)
    steps = Fraction(value) / unit
    return (math.ceil(steps) if up else math.floor(steps)) * unit


class UpperProof:
    """A proof for all phases at about (epsilon, delta): its record, and the bound it gives at any epsilon."""

    def __init__(self, phases: list[Phase], adjacency: str, epsilon: float, delta: float, share: float) -> None:
        self.phases, self.adjacency = phases, adjacency
        self.mu = None
        self.record: object = "fixed-batches"
        self.laws: list[lattice.Law] = []
        if all(phase.rate == 1 and not hides(phase) for phase in phases):
            self.mu = fixed_batches(phases, adjacency)
            return
        directions = ("both",) if adjacency == "substitute" else DIRECTIONS
        proof = {}
        effort = Effort()
        kinds = [EpochKind(phase, adjacency, effort) for phase in phases]
        steps = sum(phase.repeats for phase in phases)
        spacing = spacing_for(epsilon, delta, steps, share)
        focus = Focus(epsilon, saddle(epsilon, delta), len(phases) == 1)
        for direction in directions:
            record = _one_direction(phases, kinds, direction, spacing, delta, focus)
            self.laws.append(composed(record, phases, kinds, direction, effort))
            proof[direction] = record
        self.record = proof

    def holds(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Whether the checker would accept it."""
        x, bound = ball(epsilon), ball(delta)
        if self.mu is not None:
            return bool(gaussian(self.mu, x) <= bound)
        return all(bool(lattice.delta_bound(law, epsilon) <= bound) for law in self.laws)

    def smallest_epsilon(self, delta: Fraction) -> Fraction:
        """The smallest epsilon of seven digits at which the proof gives delta."""
        return _smallest(lambda epsilon: self.holds(epsilon, delta), 0.0, f"delta = {float(delta):g}")

    def smallest_delta(self, epsilon: Fraction) -> Fraction:
        """The smallest delta of seven digits at which the proof gives epsilon."""
        return _smallest(lambda delta: self.holds(epsilon, delta), -280.0, f"epsilon = {float(epsilon):g}")


def _smallest(holds: Callable[[Fraction], bool], log10_least: float, asked: str) -> Fraction:
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
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(Fraction(value(middle))) else (middle, high)
    found = min(rounded(value(high), True), Fraction(1)) if by_log else rounded(value(high), True)
    if not holds(found):
        raise CertificationError(f"No bound could be certified at {asked}.")
    return found


def _one_direction(
    phases: list[Phase], kinds: list[EpochKind], direction: str, spacing: Fraction, delta: float, focus: Focus
) -> dict[str, object]:
    dust = dust_for(delta)
    factors = []
    for phase, kind in zip(phases, kinds, strict=True):
        small = Fraction(dust, ONE) / phase.repeats
        if hides(phase):
            factors.append(_by_sums(phase, kind, direction, spacing, small, focus))
            continue
        call: Call = kind.closed_form(direction)
        low, high = reach(call, spacing, small)
        law = law_record(call, places_between(low, high), spacing)
        factors.append({"law": law, "coarsen": coarsening(phase.repeats), "plans": None})
    return {"spacing": f"{spacing.numerator}/{spacing.denominator}", "dust": dust, "factors": factors}


def _by_sums(
    phase: Phase, kind: EpochKind, direction: str, spacing: Fraction, small: Fraction, focus: Focus
) -> dict[str, object]:
    """A law from sums, with nodes from the middle outward until what lies beyond is small."""
    tiny = float(small)
    shared = [plan_for(phase, kind.replaced, direction, Fraction(0), tiny)] if one_sum(phase, kind.replaced) else None
    everywhere = node_places(phase, kind.replaced, spacing, tiny, focus)
    known: dict[int, tuple[arb, dict[str, object]]] = {}

    def is_small(place: int) -> bool:
        x = place * spacing
        plans = shared or [plan_for(phase, kind.replaced, direction, x, tiny)]
        found = kind.by_sums(direction, plans, [place], spacing)(x)
        known[place] = found, plans[0]
        return bool(found - (1 - ball(x).exp() if place < 0 else 0) <= ball(small))

    for side in ([p for p in everywhere if p >= 0], [p for p in reversed(everywhere) if p < 0]):
        for place in side:
            if is_small(place):
                break
    places = sorted(known)
    heights = {place * spacing: known[place][0] for place in places}
    plans = shared or [known[place][1] for place in places]
    return {
        "law": law_record(heights.__getitem__, places, spacing),
        "coarsen": coarsening(phase.repeats),
        "plans": plans,
    }
