"""What a bracket says about itself and about the usual claim, in a word and in one sentence.

The claim is what mainstream accounting prints: Poisson sampling of the undivided sum under add-remove adjacency. It is

    refuted     when an explicit attack exceeds it, read generously (rounded up to the printed digits);
    covered     when the proven upper value does not exceed it;
    undecided   when it lies inside the bracket;
    elsewhere   when it is about other neighbors than the run (substitution), so that nothing compares.

A bracket is closed when its relative width is within the tolerance that was asked for, open otherwise. A bracket with
an infinite end is open.
"""

from __future__ import annotations

import enum
import math
from decimal import Decimal

from calipers.bracket import Bracket
from calipers.reports.answers import PUBLIC, Answers, Claimed
from calipers.reports.document import Badge, setting
from calipers.reports.format import ceil_digits, floor_digits, nearest_digits


class Standing(enum.Enum):
    """Where the usual claim stands beside the bracket."""

    REFUTED = "refuted"
    COVERED = "covered"
    UNDECIDED = "undecided"
    ELSEWHERE = "elsewhere"


_BADGES = {
    Standing.REFUTED: Badge("refuted", "bad"),
    Standing.COVERED: Badge("covered by the proof", "good"),
    Standing.UNDECIDED: Badge("neither proven nor refuted", "open"),
    Standing.ELSEWHERE: Badge("about other neighbors", "plain"),
}
_ISOLATED = Badge("covered by the proof in the isolated view only", "open")
_OWN = Badge("about this very run", "plain")
_STATED = Badge("its own upper jaw", "plain")


def comparable(answers: Answers) -> bool:
    """Whether the usual claim is about the same neighbors as the run."""
    return all(run.adjacency != "substitute" for run in answers.runs)


def is_claimed_run(answers: Answers) -> bool:
    """Whether the usual accounting describes exactly what was executed."""
    return comparable(answers) and all(r.sampler == "poisson" and r.normalization in PUBLIC for r in answers.runs)


def standing(answers: Answers, row: Claimed) -> Standing:
    """Where the claim of one row stands; REFUTED and COVERED only when attack or proof say so."""
    if not comparable(answers):
        return Standing.ELSEWHERE
    if Decimal(ceil_digits(row.claim)) < Decimal(row.bracket.lower):
        return Standing.REFUTED
    return Standing.COVERED if row.bracket.upper <= row.claim else Standing.UNDECIDED


def is_closed(bracket: Bracket, tolerance: float) -> bool:
    """Whether the jaws meet within the relative tolerance; an infinite width never does."""
    return math.isfinite(bracket.upper) and bracket.relative_width <= tolerance


def between(name: str, bracket: Bracket) -> str:
    """Where a quantity lies, each end with its word."""
    lower = floor_digits(bracket.lower)
    if math.isinf(bracket.upper):
        return f"{name} is at least {lower} (attack) and no finite upper bound is proven"
    return f"{name} lies between {lower} (attack) and {ceil_digits(bracket.upper)} (proof)"


def verdict(answers: Answers, tolerance: float) -> str:
    """The measurement in one sentence: bracket, whether it is closed, what becomes of the claim."""
    if not answers.epsilon:
        words = between(f"μ up to δ₀ = {setting(answers.delta0)}", answers.mu)
        return f"For this run {words}; the bracket is {_open_or_closed(answers.mu, tolerance)}."
    row = answers.epsilon[0]
    state = _open_or_closed(row.bracket, tolerance)
    if standing(answers, row) is Standing.REFUTED:
        proven = (
            f"at most {ceil_digits(row.bracket.upper)} is proven"
            if math.isfinite(row.bracket.upper)
            else "no finite upper bound is proven"
        )
        return (
            f"The usual accounting claims ε = {ceil_digits(row.claim)} at δ = {setting(row.at)} for this run, but "
            f"an explicit attack shows ε of at least {floor_digits(row.bracket.lower)}; {proven}, and the bracket is "
            f"{state}."
        )
    return f"At δ = {setting(row.at)} {between('ε', row.bracket)}; the bracket is {state}{_about_claim(answers, row)}."


def _open_or_closed(bracket: Bracket, tolerance: float) -> str:
    if is_closed(bracket, tolerance):
        return f"closed to {nearest_digits(100 * tolerance, 3)} %"
    return "open"


def _about_claim(answers: Answers, row: Claimed) -> str:
    found, claim = standing(answers, row), ceil_digits(row.claim)
    if found is Standing.ELSEWHERE or is_claimed_run(answers):
        return ""
    if found is Standing.COVERED:
        return f", and the usual claim of ε = {claim} is {claim_cell(answers, row).text}"
    return f", and the usual claim of ε = {claim} is neither proven nor refuted"


def badges(answers: Answers, tolerance: float) -> tuple[Badge, ...]:
    """Open or closed, and what became of the claim, at the first delta asked for."""
    leading = answers.epsilon[0].bracket if answers.epsilon else answers.mu
    state = Badge("bracket closed", "good") if is_closed(leading, tolerance) else Badge("bracket open", "open")
    if not answers.epsilon:
        return (state,)
    about = claim_cell(answers, answers.epsilon[0])
    return (state, Badge(f"usual claim {about.text}", about.mood))


def claim_cell(answers: Answers, row: Claimed) -> Badge:
    """What became of the claim of one row. A proof about a weaker adversary covers it for that one only."""
    if answers.stated is not None:
        return _STATED
    if is_claimed_run(answers):
        return _OWN
    found = standing(answers, row)
    isolated = any(run.view == "isolated" for run in answers.runs)
    return _ISOLATED if found is Standing.COVERED and isolated else _BADGES[found]
