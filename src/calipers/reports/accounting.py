"""What standard accounting would have said of a run, next to its two bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calipers.numerics.decimals import floor_digits, setting
from calipers.phases import comparable
from calipers.reports.answers import Answers
from calipers.reports.document import Cell, Notice, Prose, Section, Table, at_most, ends
from calipers.reports.readings import rate_moves, schedule
from calipers.reports.standing import claim_cell
from calipers.scope import neighbors_text, share_text


def claim_section(answers: Answers) -> Section:
    """Poisson accounting of the undivided sum, whatever was executed."""
    intro = f"{USUAL}{_accounted(answers)}"
    if answers.stated is not None:
        intro += f" {answers.stated.about_claim}"
    elif answers.as_accounted and answers.alone:
        intro += " Its number holds here for zeroing a record out; nothing is proven for adding or removing one."
    elif answers.as_accounted:
        divided = any(run.normalization == "constant" for run in answers.runs)
        same = " (dividing by a constant changes nothing)" * divided
        intro += f" That is what is described here{same}, so its number and the proof are about the same mechanism."
    elif not comparable(answers.runs):
        intro += (
            f" This run is measured for {neighbors_text(answers.runs[0])}: the two numbers answer different questions."
            f"{_refuted_elsewhere(answers)}"
        )
    elif any(map(rate_moves, answers.runs)):
        intro += " It assumes a public rate; here the rate is computed from the dataset's own size."
    elif answers.runs[0].adjacency == "zero-out":
        intro += (
            " Undivided, Poisson sampling has the same epsilon for zeroing out a record as for adding or removing it."
        )
    times = [(row.at, row.bracket.lower / row.claim) for row in answers.epsilon if row.refuted and row.claim > 0]
    notices = (
        f"At delta = {setting(at)} an attack shows {floor_digits(ratio, 3)} times the epsilon of standard accounting."
        for at, ratio in times
    )
    return usual_section(intro, claim_rows(answers), *map(Notice, notices))


def _accounted(answers: Answers) -> str:
    """The steps and rates that the claim is about."""
    taken = [
        f"{steps:,} step{'s' * (steps > 1)} at the sampling rate {share_text(rate, answers.accounted[0])}"
        for (rate, _), steps in schedule(answers.accounted).items()
    ]
    other = {rate for rate, _ in schedule(answers.accounted)} - {run.mean_rate for run in answers.runs}
    rate_of = f", as {answers.watched.split()[0]} tells its accountant" if answers.watched and other else ""
    return f" Here it is that of {' and '.join(taken)}{rate_of}." if 0 < len(taken) <= _FEW else ""


_FEW = 5
"""Phases that are listed; a schedule of more is not."""


def _refuted_elsewhere(answers: Answers) -> str:
    """That an attack on added or removed records exceeds the claim, where this report is about others."""
    if answers.runs[0].records_per_unit > 1:
        return ""  # the claim is about one record
    claims = {row.at: row.claim for row in answers.epsilon}
    for one in answers.relations:
        claim = claims.get(one.delta, math.inf)
        if one.adjacency == "add-remove" and not one.last_batch and one.epsilon and one.epsilon.lower > claim:
            shown = f"at least {floor_digits(one.epsilon.lower)} at delta = {setting(one.delta)}"
            return f" For {one.words} an attack shows an epsilon of {shown}, so there standard accounting is refuted."
    return ""


def usual_section(
    reported: str, rows: Sequence[tuple[Cell, ...]], *notices: Notice, whose: tuple[str, ...] = ()
) -> Section:
    """What mainstream accounting would have said, row by row, after the column `whose` where there are several runs."""
    caption = "Standard accounting (Poisson) next to the two bounds"
    table = (Table(caption, (*whose, *_CLAIM_COLUMNS), tuple(rows)),) if rows else ()
    return Section("What standard accounting (Poisson) would have said", (Prose(reported), *table, *notices))


USUAL = (
    "Standard accounting reports the epsilon of Poisson sampling and an undivided noisy sum under add-remove "
    "adjacency, whatever was executed."
)
_CLAIM_COLUMNS = (
    "quantity",
    "standard accounting",
    "at least (attack)",
    "at most (proof)",
    "so standard accounting is",
)


def claim_rows(answers: Answers) -> list[tuple[Cell, ...]]:
    """Quantity, claim, both ends, and what the ends make of the claim."""
    rows = (*answers.epsilon, *answers.delta)
    return [(row.name, at_most(row.claim), *ends(row.bracket), claim_cell(answers, row)) for row in rows]
