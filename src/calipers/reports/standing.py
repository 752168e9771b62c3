"""What a bracket says about itself and about standard accounting, in a word and in one sentence.

A bracket is closed when its relative width is within the tolerance that was asked for, open otherwise. A bracket with
one infinite end is open; where an attack shows that nothing is finite there is nothing left to prove. What became of
the claim is in `calipers.reports.readings`.
"""

from __future__ import annotations

import math

from calipers.bracket import Bracket
from calipers.numerics.decimals import ceil_digits, floor_digits, nearest_digits, setting
from calipers.reports.answers import Answers
from calipers.reports.document import Badge
from calipers.reports.readings import Claimed, Standing
from calipers.run_keys import rate_text
from calipers.scope import neighbors_text, only_side, unit_name

_BADGES = {
    Standing.REFUTED: Badge("refuted", "bad"),
    Standing.COVERED: Badge("proven to hold", "good"),
    Standing.UNDECIDED: Badge("neither proven nor refuted", "open"),
    Standing.ELSEWHERE: Badge("about adding or removing one record", "plain"),
}
_ISOLATED = Badge("proven to hold in the isolated view only", "open")
_ZEROED = Badge("proven to hold for zero-out, the relation measured", "plain")
_OWN = Badge("applicable to this run", "plain")
_STATED = Badge("its own upper bound", "plain")


def is_closed(bracket: Bracket, tolerance: float) -> bool:
    """Whether the bounds meet within the relative tolerance; those with an infinite gap never do."""
    return math.isinf(bracket.lower) or (math.isfinite(bracket.upper) and bracket.relative_width <= tolerance)


def between(name: str, bracket: Bracket) -> str:
    """Where a quantity lies, each end with its word."""
    if math.isinf(bracket.lower):
        return f"no {name} is finite (attack)"
    lower = floor_digits(bracket.lower)
    if math.isinf(bracket.upper):
        return f"{name} is at least {lower} (attack) and no finite upper bound is proven"
    return f"{name} lies between {lower} (attack) and {ceil_digits(bracket.upper)} (proof)"


def verdict(answers: Answers, tolerance: float) -> str:
    """The measurement in one sentence: bracket, whether it is closed, what becomes of the claim, and for whom where
    that is not both adding and removing a record.
    """
    side = only_side(answers.runs)
    if answers.executed and answers.runs and answers.runs[0].adjacency != "add-remove":
        return (
            f"{_verdict(answers, tolerance)} This is for {neighbors_text(answers.runs[0])}; for adding or removing one "
            f"{unit_name(answers.described)} nothing is proven here."
        )
    if side:
        return f"{_verdict(answers, tolerance)} This is for {side} one {unit_name(answers.described)} only."
    zeroed = any(run.adjacency == "zero-out" for run in answers.runs)
    return _verdict(answers, tolerance) + f" This is for zeroing out one {unit_name(answers.described)}." * zeroed


def _verdict(answers: Answers, tolerance: float) -> str:
    row = answers.leading
    state = _open_or_closed(row.bracket, tolerance)
    if not isinstance(row, Claimed):
        return f"For this run {between(row.name, row.bracket)}; {state}."
    if math.isinf(row.bracket.lower):
        named = _accounting(answers)
        claimed = f", where standard accounting ({named}) would give {ceil_digits(row.claim)}" if row.refuted else ""
        return (
            f"At delta = {setting(row.at)} no epsilon is finite{claimed}: an attack shows everything with a "
            "probability above delta."
        )
    if row.refuted:
        proven = (
            f"at most {ceil_digits(row.bracket.upper)} is proven"
            if math.isfinite(row.bracket.upper)
            else "no finite upper bound is proven"
        )
        return (
            f"Standard accounting ({_accounting(answers)}) would give epsilon = {ceil_digits(row.claim)} at delta = "
            f"{setting(row.at)}, but an attack computed for these settings shows an epsilon of at least "
            f"{floor_digits(row.bracket.lower)}; {proven}, and {state}."
        )
    where = f"At delta = {setting(row.at)} {between('epsilon', row.bracket)}"
    return f"{where}; {state}{_about_claim(answers, row)}."


def _accounting(answers: Answers) -> str:
    """Poisson; with the rate that an accountant was given, where that is not the share of a batch in the run."""
    rates = {run.mean_rate for run in answers.accounted}
    if len(rates) != 1 or rates == {run.mean_rate for run in answers.runs}:
        return "Poisson"
    return f"Poisson, rate {rate_text(*rates)}"


def _open_or_closed(bracket: Bracket, tolerance: float) -> str:
    if is_closed(bracket, tolerance):
        return f"the bounds agree to {nearest_digits(100 * tolerance, 3)} %"
    return "the bounds do not meet"


def _about_claim(answers: Answers, row: Claimed) -> str:
    if answers.as_accounted or any(run.adjacency == "substitute" for run in answers.runs):  # a note says so
        return ""
    named = _accounting(answers)
    accounting = "standard accounting" if named == "Poisson" else f"standard accounting ({named})"
    return f", and the epsilon of {accounting}, {ceil_digits(row.claim)}, is {claim_cell(answers, row).text}"


def badges(answers: Answers, tolerance: float) -> tuple[Badge, ...]:
    """Open or closed, and what became of the claim, at the first delta asked for."""
    row = answers.leading
    state = Badge("bounds agree", "good") if is_closed(row.bracket, tolerance) else Badge("bounds do not meet", "open")
    if math.isinf(row.bracket.lower):
        state = Badge("nothing is finite", "bad")
    if not isinstance(row, Claimed):
        return (state,)
    about = claim_cell(answers, row)
    where = f" at delta = {setting(row.at)}" if row.standing is Standing.COVERED else ""
    return (state, Badge(f"standard accounting {about.text}{where}", about.mood))


def claim_cell(answers: Answers, row: Claimed) -> Badge:
    """What became of the claim of one row. A proof about a weaker adversary is about that one only."""
    if answers.stated is not None:
        return _STATED
    weaker = any(run.adjacency == "zero-out" for run in answers.runs)
    if answers.as_accounted:
        return _BADGES[Standing.ELSEWHERE] if answers.alone else _ZEROED if weaker else _OWN
    if row.standing is not Standing.COVERED:
        return _BADGES[row.standing]
    if any(run.view == "isolated" for run in answers.runs):
        return _ISOLATED
    if side := only_side(answers.runs):
        return Badge(f"proven to hold for {side} only", "plain")
    return _ZEROED if weaker else _BADGES[Standing.COVERED]
