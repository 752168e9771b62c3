"""Falsified, consistent, or cannot tell: an audit next to a claim.

A claim is a profile: delta(epsilon) at most D(epsilon), in both directions, at every epsilon >= 0. An audit looks at it
from two sides.

**FALSIFIED.** One of the audit's own lower bounds on delta(epsilon) exceeds D(epsilon): the one at the epsilon that
the first part of the trials has chosen, with the test and the direction that were chosen there as well. If the claim
is true this happens with probability at most 1 - confidence: one test, one epsilon and one direction are judged, so
nothing has to be corrected for. The number in the verdict is the number in the table of bounds (for a claim that
allows the same in both directions; otherwise the direction with more headroom is judged).

**CONSISTENT.** The claim was not falsified, and the audit could have seen a violation: the simultaneous band excludes
that any threshold test on this score exceeds D(epsilon) by more than `violation`, at any of the audited epsilons. If
some threshold test does exceed the claim by more than that, the verdict is CONSISTENT with probability at most 1 -
confidence: this is the power of the audit, proven and not estimated. It is a statement about this attack. A better
score may do what this one cannot; no audit proves privacy.

**CANNOT TELL.** Neither: too few trials to falsify the claim, too few to exclude a violation of the stated size. The
verdict then estimates how many a new audit would usually need.

The hypotheses of the first two exclude each other, so both errors are at most 1 - confidence without sharing a budget.

Next to a certified upper bound the same comparison means something else: the bound is a proof about the run that was
described. An audit above it shows, with its confidence, that **the implementation is not the run described**.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

import numpy as np
from scipy import special

from calipers.auditing.bounds import Chosen, LowerBound, SplitScores, ThresholdTest
from calipers.auditing.statistics import EPSILON, gains, wilson_upper
from calipers.bracket import Evidence, Kind, Side
from calipers.citations import statement
from calipers.curves.rdp_curve import adp_tradeoff
from calipers.curves.tradeoff import TradeoffCurve
from calipers.display import as_record
from calipers.domains import POSITIVE_PROBABILITY
from calipers.errors import InputError
from calipers.measure.measurement import Claim, Measurement
from calipers.numerics.decimals import ceil_digits, claim_digits, floor_digits, setting
from calipers.numerics.elementary import bisect
from calipers.phases import comparable

DEFAULT_VIOLATION = 0.05
STANDARD = "standard accounting (Poisson)"
"""What is judged where a run was described and nobody claimed anything."""
_MOST_TRIALS = 10**12
_CAUTION = 1.3
"""How much wider than expected the band of a new audit may fall out: both audits have luck of their own."""

Claimed: TypeAlias = "TradeoffCurve | Measurement | Claim | tuple[float, float] | Callable[[float], float]"


LARGEST_EPSILON = 200.0


_MORE = "Other datasets, or a better score,"


class AuditOutcome(enum.Enum):
    """What an audit says about a claim; see the module docstring for the line between them."""

    FALSIFIED = "falsified"
    CONSISTENT = "consistent"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Profile:
    """delta(epsilon) as claimed or certified: `forward` for the null hypothesis "absent", `backward` for "present"."""

    name: str
    forward: Callable[[float], float]
    backward: Callable[[float], float]
    epsilon: Callable[[float], float] | None = None
    """epsilon(delta) of the same guarantee, where it is known as a function of its own."""
    words: str = ""
    """What a sentence calls it."""

    def at(self, epsilon: float) -> float:
        """The larger of both directions."""
        return max(self.forward(epsilon), self.backward(epsilon))

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon at which no more than delta is allowed, rounded up; infinite above 200."""
        if self.epsilon is not None:
            return self.epsilon(delta)
        low, high = 0.0, LARGEST_EPSILON
        if self.at(low) <= delta:
            return low
        if self.at(high) > delta:
            return math.inf
        return bisect(low, high, lambda epsilon: self.at(epsilon) > delta, 60)[1]


def _checked(name: str, function: Callable[[float], float]) -> Callable[[float], float]:
    @cache
    def read(epsilon: float) -> float:
        value = float(function(epsilon))
        if not 0.0 <= value <= 1.0:
            raise InputError(f"Expected delta(epsilon) of the {name} in [0, 1], got {value} at epsilon={epsilon}.")
        return value

    return read


def profile_of(claimed: Claimed, name: str = "claim", certified: bool = False) -> Profile:
    """Anything that says how much leaks at most, as a profile.

    A curve of Side.UPPER, a pair (epsilon, delta), a function delta(epsilon) that holds in both directions, the
    `claim` of a measurement, or a measurement: its certified upper bound if `certified`, otherwise the claim it
    carries.
    """
    if isinstance(claimed, tuple):
        stated, at = claimed
        pair = profile_of(adp_tradeoff(stated, at), name)

        def own(read: Callable[[float], float]) -> Callable[[float], float]:
            return lambda epsilon: at if epsilon >= stated else read(epsilon)

        # At its own delta a pair says its own epsilon, and from there on its own delta, to the last digit.
        return replace(
            pair,
            forward=own(pair.forward),
            backward=own(pair.backward),
            epsilon=lambda delta: stated if delta == at else pair.epsilon_at(delta),
        )
    if isinstance(claimed, TradeoffCurve):
        if claimed.side is not Side.UPPER:
            raise InputError(f"Expected the {name} as a curve of Side.UPPER (a guarantee), got an attack (Side.LOWER).")
        curve, inverse = claimed, claimed.inverse()
        forward = _checked(name, lambda epsilon: float(curve.delta(epsilon)))
        backward = _checked(name, lambda epsilon: float(inverse.delta(epsilon)))
        return Profile(name, forward, backward, lambda delta: max(curve.epsilon(delta), inverse.epsilon(delta)))
    if isinstance(claimed, Measurement):
        measured = claimed
        if certified:
            read = _checked(name, lambda epsilon: measured.delta(epsilon).upper)
            return Profile(name, read, read, lambda delta: measured.epsilon(delta).upper)
        if not comparable(measured.runs):
            raise InputError(
                "Standard accounting is about adding or removing one record, and this run is not: it cannot be the "
                f"{name}. Give the measurement as upper=, which is tested too, or the pair (epsilon, delta) that was "
                "claimed for these neighbors."
            )
        return profile_of(measured.claim, name)
    if isinstance(claimed, Claim):
        read = _checked(name, claimed.delta)
        return Profile(name, read, read, claimed.epsilon, STANDARD if claimed.runs else "")
    if callable(claimed):
        read = _checked(name, claimed)
        return Profile(name, read, read)
    raise InputError(
        f"Expected the {name} as a TradeoffCurve, a Measurement, a pair (epsilon, delta) or a function "
        f"delta(epsilon), got {type(claimed).__name__}."
    )


def allowed(profile: Profile | None, quantity: str, at: float) -> float | None:
    """The epsilon at this delta, or the delta at this epsilon, if there is a profile that says so."""
    if profile is None:
        return None
    return profile.epsilon_at(at) if quantity == "epsilon" else profile.at(at)


@dataclass(frozen=True)
class Verdict:
    """The outcome, where it was decided, and what it means in one sentence.

    `delta_lower` is the bound at `epsilon` that was compared with `delta_claimed`. `excluded` is the smallest
    violation that the band excludes for every threshold test on this score (negative if none even reaches the claim);
    `violation` the one it was asked to exclude. `trials_estimate` is an estimate, per hypothesis, of what it would
    take to be given; None where none can be given. `unseen`: what the audit was blind to. `tested`: the epsilons, each
    with the delta allowed there in the direction that allows less. `beyond`: another number, which shows more than is
    allowed where no tested epsilon does.
    """

    outcome: AuditOutcome
    against: str
    epsilon: float
    delta_lower: float
    delta_claimed: float
    test: ThresholdTest
    excluded: float
    violation: float
    trials_estimate: int | None
    confidence: float
    unseen: str
    words: str = ""
    tested: tuple[tuple[float, float], ...] = ()
    beyond: str = ""

    @property
    def judged(self) -> str:
        """What was judged, as sentences call it: a claim, or the proof of the run that the target is said to be."""
        return self.words or {"upper bound": "the proof"}.get(self.against, f"the {self.against}")

    def held_against(self, bounds: Sequence[LowerBound]) -> Verdict:
        """The verdict, given other bounds of the same audit: nothing is consistent that one of them exceeds."""
        for bound in bounds:
            allowed = bound.upper if self.against == "upper bound" else bound.claim
            if self.outcome is AuditOutcome.CONSISTENT and allowed is not None and bound.value > allowed:
                at = f" at delta = {setting(bound.at)}" if bound.quantity == "epsilon" else ""
                shown = f"{bound.quantity}{at} is at least {floor_digits(bound.value)}, and {self.judged} allows"
                return replace(self, outcome=AuditOutcome.CANNOT_TELL, beyond=f"{shown} {self._allowed(allowed)}")
        return self

    @property
    def at_tested(self) -> str:
        """The epsilons that were tested, as sentences name them."""
        texts = [setting(epsilon) for epsilon, _ in self.tested]
        return f"at epsilon = {' or '.join(filter(None, (', '.join(texts[:-1]), texts[-1])))}"

    @property
    def message(self) -> str:
        """What it means, in one sentence; for a claim that stands, with what the audit was blind to."""
        against, sure = self.judged, f"with confidence {setting(self.confidence)}"
        where = f"{self.at_tested}, the only {'ones' if len(self.tested) > 1 else 'one'} tested"
        excess = ceil_digits(self.excluded, 3)
        if self.outcome is AuditOutcome.FALSIFIED:
            described = self.against == "upper bound"
            start = "The implementation is not the run described" if described else "Falsified"
            allowed = self._allowed(self.delta_claimed)
            shown = f"delta at epsilon = {setting(self.epsilon)} is at least {floor_digits(self.delta_lower)}"
            return f"{start}: {sure}, {shown}, but {against} allows {allowed}."
        if self.outcome is AuditOutcome.CONSISTENT:
            start = f"Consistent: {sure}, no threshold test on this score"
            if self.excluded <= 0.0:
                seen = f"even reaches the delta that {against} allows {where}. {_MORE} might."
                return f"{start} {seen} {self.unseen}"
            epsilon, least = min(self.tested, key=lambda one: one[1])
            return (
                f"{start} has TPR - e^epsilon FPR above the delta that {against} allows by more than {excess} {where}. "
                f"That is an upper confidence bound, not what was seen; 'consistent' only means that it is at most "
                f"{setting(self.violation)}, which may be far above the delta that is allowed ({self._allowed(least)} "
                f"at epsilon = {setting(epsilon)}). {_MORE} might exceed it by more. {self.unseen}"
            )
        if self.beyond:
            return (
                f"Cannot tell: {self.at_tested} nothing exceeds {against}, but {sure} for this number alone "
                f"{self.beyond}. Let a new audit test more epsilons (--epsilon)."
            )
        unable = (
            f"Cannot tell: {sure}, these trials only exclude that a threshold test on this score has TPR - e^epsilon "
            f"FPR above the delta that {against} allows by more than {excess} {where} (to be called consistent, this "
            f"upper confidence bound would have to be at most {setting(self.violation)})"
        )
        if self.trials_estimate is None:
            return f"{unable}; no affordable number of trials would decide (an estimate)."
        trials = f"{self.trials_estimate:,} trials for each hypothesis"
        decide = f"a new audit with about {trials} and another seed would usually decide (an estimate)"
        return f"{unable}; {decide}. Each audit adds an error probability of its own."

    def _allowed(self, value: float) -> str:
        """What is allowed: a proof rounded up; a claim, which is no bound of ours, as it is."""
        return ceil_digits(value) if self.against == "upper bound" else claim_digits(value)

    @property
    def evidence(self) -> Evidence:
        """The sentence with the theorems behind it."""
        source = "; ".join(str(statement(key)) for key in ("wang2026:eq3", "berger1994:p-value", "massart1990:cor1"))
        return Evidence(Kind.STATISTICAL, self.message, source, self.confidence)

    def to_dict(self) -> dict[str, object]:
        """The verdict as a JSON object."""
        said = {"message": self.message, "evidence": self.evidence.to_dict()}
        return as_record(self, "test", "confidence", "unseen", "words", "tested", "beyond") | said


def _excess(rates: tuple[float, float], profile: Profile, epsilon: float) -> tuple[float, bool]:
    """(gain - claimed, whether forward) of a test with these rates, in the direction where the first is largest."""
    forward, backward = gains(*rates, epsilon)
    return max((float(forward) - profile.forward(epsilon), True), (float(backward) - profile.backward(epsilon), False))


def _choose(scores: SplitScores, profile: Profile, epsilons: Sequence[float]) -> tuple[float, Chosen, bool]:
    """What the first part of the trials chose to judge: epsilon, test, and whether forward.

    The epsilon has the most headroom: the excess that was seen, over the expected width of its bound.
    """
    found = []
    for epsilon in epsilons:
        chosen = scores.choose_for_delta(epsilon)
        seen, _ = _excess(chosen.seen, profile, epsilon)
        expected, forward = _excess(chosen.expected, profile, epsilon)
        found.append((seen / (seen - expected), (epsilon, chosen, forward)))
    return max(found, key=lambda one: one[0])[1]


def _width(rates: tuple[float, float], epsilon: float, forward: bool, counted: int, z: float) -> float:
    """How far the excess of a test with these rates may lie above what `counted` runs show, z deviations up."""
    odds = math.exp(epsilon)
    factors = (odds, 1.0) if forward else (1.0, odds)
    # Independent errors add up in squares, as they do in the exact test.
    widths = [float(wilson_upper(np.array(rate), counted, z)) - rate for rate in rates]
    return math.hypot(*(factor * width for factor, width in zip(factors, widths, strict=True)))


def _trials_estimate(
    scores: SplitScores, test: ThresholdTest, profile: Profile, epsilon: float, excluded: float, violation: float
) -> int | None:
    """Trials for each hypothesis of a new audit that would usually decide, one way or the other: an estimate.

    Of a claim that holds the excess that is not excluded shrinks at least like one over the square root of the trials.
    """
    played = max(scores.absent.size, scores.present.size)
    most = min(_MOST_TRIALS, played * (_CAUTION * excluded / violation) ** 2)
    rates, counted = scores.observed_rates(test), scores.trials[0]
    gap, forward = _excess(rates, profile, epsilon)
    gap -= _width(rates, epsilon, forward, counted, 1.0)  # what was seen may be luck
    total, z = played, -float(special.ndtri(scores.error))
    while gap > 0.0 and total < most:
        if gap > _width(rates, epsilon, forward, max(int(total * counted / scores.absent.size), 1), z):
            return total
        total = math.ceil(1.1 * total)
    return math.ceil(most) if most < _MOST_TRIALS else None


def _unseen(blind: str) -> str:
    """What a consistent audit was blind to: the score's own limits, other datasets, and what is not shown."""
    always = "other datasets and to all that the target does not return"
    return f"This audit was blind to {blind}, to {always}." if blind else f"This audit was blind to {always}."


def judge(
    scores: SplitScores,
    profile: Profile,
    epsilons: Sequence[float],
    violation: float = DEFAULT_VIOLATION,
    blind: str = "",
) -> Verdict:
    """The verdict of these scores on the profile at the given epsilons; `blind` says what the score cannot see.

    Post-condition: FALSIFIED with probability at most 1 - confidence if the profile is true; CONSISTENT with
    probability at most 1 - confidence if some threshold test on this score exceeds it by more than `violation`.
    """
    violation = POSITIVE_PROBABILITY.check("violation", violation)
    grid = [EPSILON.check("epsilon", epsilon) for epsilon in epsilons]
    if not grid:
        raise InputError("Expected at least one epsilon at which to compare, got none.")
    epsilon, chosen, forward = _choose(scores, profile, grid)
    lower = scores.largest_delta(chosen, epsilon, forward)
    claimed = (profile.forward if forward else profile.backward)(epsilon)
    tested = tuple((at, min(profile.forward(at), profile.backward(at))) for at in grid)
    excluded = max(scores.band.largest_delta(at) - least for at, least in tested)
    trials = None
    if lower > claimed:
        outcome = AuditOutcome.FALSIFIED
    elif excluded <= violation:
        outcome = AuditOutcome.CONSISTENT
    else:
        outcome = AuditOutcome.CANNOT_TELL
        trials = _trials_estimate(scores, chosen.test, profile, epsilon, excluded, violation)
    return Verdict(
        outcome, profile.name, epsilon, lower, claimed, chosen.test, excluded, violation, trials,
        scores.confidence, _unseen(blind), profile.words, tested,
    )  # fmt: skip
