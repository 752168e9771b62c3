"""The report of a stated guarantee: what it implies, and what some mechanism with it leaks."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from calipers.guarantee import GuaranteeSubject
from calipers.reports.answers import Answers
from calipers.reports.chart import Interval
from calipers.reports.document import (
    Cell,
    Document,
    Figure,
    Items,
    Notice,
    Prose,
    Quote,
    Section,
    Table,
    at_most,
    ends,
    nearest,
)
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import ENDS, interval_figure, profile_figure, rate_figures
from calipers.reports.implied import implied_line, implied_verdict, stated_number
from calipers.reports.officer import ALLOWED, reading_section, secrets_section, success_rates
from calipers.reports.paragraph import paragraph, printed_regret
from calipers.reports.readings import Reading
from calipers.reports.sections import ROUNDED, notes_section, stated_section
from calipers.reports.uncovered import uncovered_by_guarantee
from calipers.reports.words import assumed_text, describe_subject
from calipers.scope import question_text, verdicts

if TYPE_CHECKING:
    from calipers.measure import Measurement

_SAYS = (
    'What the guarantee implies: "at most" holds for every mechanism that has it, "at least" is reached by an attack '
    "on some mechanism that has it."
)
_FOOT = (
    "The upper bound is what follows from the guarantee. The lower bound is what some mechanism with it leaks; the one "
    "behind the statement may leak less."
)
_REACHED = "at each false positive rate some mechanism with it can be attacked as the lower bound says."
_CURVES = {
    "tradeoff": "No attack on a mechanism with this guarantee has a false negative rate below that of the proof; "
    f"{_REACHED}",
    "low-rates": "No attack on a mechanism with this guarantee has a true positive rate above that of the proof; "
    f"{_REACHED}",
    "profile": "delta at each epsilon. Every mechanism with this guarantee meets that of the proof; some mechanism "
    "with it meets none below that of the attack.",
}


def brief_guarantee(answers: Answers) -> Document:
    """What a terminal and a notebook show."""
    stated = _stated(answers)
    return Document(
        kind="measure",
        title=f"Privacy of {stated.noun}",
        subject=describe_subject(answers) + assumed_text((), answers.assumed_deltas, stated),
        verdict=implied_verdict(answers),
        opening=(_ruler(answers), Quote(implied_line(answers), "Report this")),
        sections=(
            Section("All numbers", (_numbers(answers), Prose(_SAYS))),
            *notes_section(answers.notes),
            evidence_section(answers.evidence().items()),
        ),
        bounds=_FOOT,
    )


def guarantee_sections(measurement: Measurement, answers: Answers) -> tuple[Section, ...]:
    """Everything that follows from what is stated."""
    stated = _stated(answers)
    return (
        _definitions(answers),
        Section("All numbers", (Prose(_SAYS), _numbers(answers))),
        _attacker(answers),
        secrets_section(measurement, answers, success_rates(measurement)),
        uncovered_by_guarantee(answers),
        Section("What to change", (Items((stated.remedy,)),)),
        stated_section(stated),
        _curves(measurement, answers),
        Section("A paragraph to paste", (Quote(paragraph(answers, measurement.tolerance)),)),
        *notes_section(answers.notes),
        evidence_section(answers.evidence().items()),
    )


def _definitions(answers: Answers) -> Section:
    """What the words mean: without attacks on a run, and without mu where none is finite."""
    return reading_section(answers, ("attack", *(("mu", "regret") if math.isinf(answers.mu.upper) else ())))


def _stated(answers: Answers) -> GuaranteeSubject:
    assert answers.stated is not None  # a guarantee was measured
    return answers.stated


def _ruler(answers: Answers) -> Figure:
    """Epsilon at every delta asked for, or mu."""
    readings: tuple[Reading, ...] = answers.epsilon or (answers.leading,)
    rows = tuple(
        Interval(row.name, row.bracket.lower, row.bracket.upper, stated=stated_number(answers, row)) for row in readings
    )
    title = readings[0].name if len(readings) == 1 else "epsilon"
    cells = tuple(_cells(answers, row) for row in readings)
    return interval_figure("bracket", title, rows, cells, ("quantity", *ENDS), description=_FOOT)


def _cells(answers: Answers, reading: Reading) -> tuple[Cell, ...]:
    return (reading.name, *ends(reading.bracket, stated_number(answers, reading)))


def _numbers(answers: Answers) -> Table:
    rows = [_cells(answers, reading) for reading in answers.readings]
    if math.isfinite(answers.mu.upper):
        rows.append(("regret of that mu", "", at_most(printed_regret(answers))))
    return Table(f"{ROUNDED} What is stated is written as it was stated.", ("quantity", *ENDS), tuple(rows))


def _attacker(answers: Answers) -> Section:
    """True positive rates at false positive rates, with guessing next to them."""
    adjacency = _stated(answers).adjacency
    yes, _ = verdicts(adjacency)
    words = (
        f"The attacker wants to know {question_text(adjacency, 'record')}, and accepts a rate of false alarms. The "
        f"table bounds how often '{yes}' is answered where that is right, by the best attack on a mechanism with this "
        "guarantee; the two answers may be exchanged."
    )
    rows = [(f"{fpr:g}", *ends(bracket), nearest(fpr)) for fpr, bracket in answers.tpr]
    columns = ("false alarms", *ALLOWED, "guessing reaches")
    return Section("What an attacker gets", (Prose(words), Table("True positive rate", columns, tuple(rows))))


def _curves(measurement: Measurement, answers: Answers) -> Section:
    figures = (*rate_figures(measurement, answers), profile_figure(measurement, answers, with_claim=False))
    drawn = [_described(figure) for figure in figures if figure is not None]
    missing = Notice("No profile is drawn: no finite epsilon is proven to follow at any delta up to 0.01.")
    return Section("Curves", (*drawn, *(() if figures[-1] else (missing,))))


def _described(figure: Figure) -> Figure:
    picture = figure.picture
    return dataclasses.replace(figure, picture=dataclasses.replace(picture, description=_CURVES[picture.name]))
