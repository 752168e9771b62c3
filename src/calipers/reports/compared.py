"""The report of a comparison: the verdict on every pair, the runs side by side, then each run by itself.

Whatever the report of a single run says is here for every run: the bracket, the curves, what an attacker gets, what the
usual accounting would have said, what to change, a paragraph to paste, and what licenses the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.reports.answers import Answers, Questions
from calipers.reports.document import (
    Badge,
    Block,
    Cell,
    Code,
    Document,
    Figure,
    Items,
    Prose,
    Quote,
    Range,
    Section,
    Table,
    at_most,
    ends,
    setting,
)
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import comparison_figure, low_rates_figure, tradeoff_figure
from calipers.reports.overlays import low_rates_overlay, profile_overlay, tradeoff_overlay
from calipers.reports.paragraph import paragraph
from calipers.reports.records import comparison_record
from calipers.reports.remedies import Remedy
from calipers.reports.report import Report, asked, heading, measured
from calipers.reports.sections import CLAIM_COLUMNS, claim_rows, quantities, subject_file
from calipers.reports.words import describe_subject

if TYPE_CHECKING:
    from calipers.bracket import Bracket
    from calipers.measure import Measurement
    from calipers.reports.comparison import Comparison

MOST_OVERLAID = 6
_MOODS = {"same": "plain", "not settled": "open", "not comparable": "open"}


@dataclasses.dataclass(frozen=True)
class Told:
    """One of the runs: its name, its measurement, the answers that a report gives, and what to change."""

    name: str
    measurement: Measurement
    answers: Answers
    found: tuple[Remedy, ...]


def report_comparison(comparison: Comparison, measurements: Sequence[Measurement]) -> Report:
    """Several runs side by side; `measurements` are those the comparison was made from, in its order."""
    sentence = _verdict(comparison)
    questions = _questions(comparison.answers[0])
    told = [
        Told(name, measurement, *asked(measurement, questions))
        for name, measurement in zip(comparison.names, measurements, strict=True)
    ]
    document = Document(
        kind="compare",
        title="Which run is more private",
        subject=", ".join(comparison.names),
        verdict=sentence,
        badges=tuple(Badge(v.order.value, _MOODS.get(v.order.value, "good")) for v in comparison.verdicts[:1])
        if len(comparison.verdicts) == 1
        else (),
        sections=(
            _verdicts(comparison),
            _brackets(comparison, told),
            _curves(comparison, measurements),
            _claims(told),
            _changes(told),
            _paragraphs(told),
            *(_run(number, one) for number, one in enumerate(told, start=1)),
        ),
    )
    record = {
        **heading("compare", sentence),
        "comparison": comparison_record(comparison),
        "runs": [{"name": one.name, **measured(one.measurement, one.answers, one.found)} for one in told],
    }
    return Report(document, record)


def _questions(answers: Answers) -> Questions:
    """What was asked, read off the answers: all runs of a comparison are asked the same."""
    return Questions(
        deltas=tuple(row.at for row in answers.epsilon),
        epsilons=tuple(row.at for row in answers.delta),
        fprs=tuple(fpr for fpr, _ in answers.tpr),
        delta0=answers.delta0,
    )


def _verdict(comparison: Comparison) -> str:
    if len(comparison.verdicts) == 1:
        return comparison.verdicts[0].sentence
    settled = sum(v.order.value not in ("not settled", "not comparable") for v in comparison.verdicts)
    return f"Of {len(comparison.verdicts)} pairs of runs, {settled} are ordered by proof at every false positive rate."


def _verdicts(comparison: Comparison) -> Section:
    rows = tuple(
        (f"{v.first} and {v.second}", Badge(v.order.value, _MOODS.get(v.order.value, "good")), v.sentence)
        for v in comparison.verdicts
    )
    return Section("Verdicts", (Table("Every pair of runs", ("pair", "proven", "in words"), rows, wide=True),))


def _brackets(comparison: Comparison, told: Sequence[Told]) -> Section:
    blocks: list[Block] = [
        comparison_figure(comparison.names, comparison.answers, position)
        for position in range(len(comparison.answers[0].epsilon))
    ]
    named = [_listed(one.answers) for one in told]
    rows: list[tuple[Cell, ...]] = [
        (together[0][0], *(Range(*ends(bracket)) for _, bracket in together)) for together in zip(*named, strict=True)
    ]
    rows.append(("regret of the proven μ, at most", *(at_most(one.answers.regret) for one in told)))
    caption, columns = "From attack (at least) to proof (at most)", ("quantity", *comparison.names)
    return Section("Side by side", (*blocks, Table(caption, columns, tuple(rows))))


def _listed(answers: Answers) -> list[tuple[str, Bracket]]:
    """Every bracket with its name for people; what an attacker gets stands before what summarizes it."""
    rates = [(f"attack TPR at FPR = {setting(fpr)}", bracket) for fpr, bracket in answers.tpr]
    first = len(answers.epsilon) + len(answers.delta)
    others = quantities(answers)
    return [*others[:first], *rates, *others[first:]]


def _curves(comparison: Comparison, measurements: Sequence[Measurement]) -> Section:
    if len(measurements) > MOST_OVERLAID:
        words = f"More than {MOST_OVERLAID} runs do not fit into one picture; each has its own below."
        return Section("Curves", (Prose(words),))
    drawn = (tradeoff_overlay, low_rates_overlay, profile_overlay)
    return Section("Curves", tuple(draw(comparison.names, measurements) for draw in drawn))


def _claims(told: Sequence[Told]) -> Section:
    rows = tuple((one.name, *row) for one in told for row in claim_rows(one.answers))
    intro = (
        "Mainstream accountants report the epsilon of Poisson sampling and an undivided noisy sum under add-remove "
        "adjacency, whatever was executed."
    )
    table = (Table("The usual claim beside the brackets", ("run", *CLAIM_COLUMNS), rows),) if rows else ()
    return Section("What the usual accounting would have said", (Prose(intro), *table))


def _changes(told: Sequence[Told]) -> Section:
    texts = tuple(f"{one.name}: {remedy.sentence}" for one in told for remedy in one.found)
    return Section("What to change", (Items(texts) if texts else Prose("Nothing is known that would lower them."),))


def _paragraphs(told: Sequence[Told]) -> Section:
    return Section(
        "Paragraphs to paste",
        tuple(Quote(f"{one.name}. {paragraph(one.answers, one.measurement.tolerance)}") for one in told),
    )


def _run(number: int, one: Told) -> Section:
    """What was executed, its curves with the Gaussian fit, what to know, and what licenses its numbers."""
    figures = [make(one.measurement, one.answers) for make in (tradeoff_figure, low_rates_figure)]
    evidence = evidence_section(one.answers.evidence().items())
    return Section(
        f"Run {one.name}",
        (
            Prose(describe_subject(one.answers)),
            Code(subject_file(one.answers)),
            *(_renamed(figure, f"run-{number}") for figure in figures),
            Items(one.answers.notes),
            *evidence.blocks,
        ),
    )


def _renamed(figure: Figure, prefix: str) -> Figure:
    """The figure under a name that no other on the page has."""
    picture = dataclasses.replace(figure.picture, name=f"{prefix}-{figure.picture.name}")
    return dataclasses.replace(figure, picture=picture)
