"""The report of a comparison: the verdict on every pair, the brackets side by side, then each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.reports.answers import Answers
from calipers.reports.document import Badge, Block, Document, Items, Prose, Quote, Range, Section, Table, ends
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import comparison_figure, overlay_figure
from calipers.reports.paragraph import paragraph
from calipers.reports.records import comparison_record
from calipers.reports.report import Report, heading, measured
from calipers.reports.words import describe_phases

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.reports.comparison import Comparison

MOST_OVERLAID = 6
_MOODS = {"same": "plain", "not settled": "open", "not comparable": "open"}


def report_comparison(comparison: Comparison, measurements: Sequence[Measurement]) -> Report:
    """Several runs side by side; `measurements` are those the comparison was made from, in its order."""
    sentence = _verdict(comparison)
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
            _brackets(comparison),
            _curves(comparison, measurements),
            _paragraphs(comparison, measurements),
            *(_run(name, answers) for name, answers in zip(comparison.names, comparison.answers, strict=True)),
        ),
    )
    record = {
        **heading("compare", sentence),
        "comparison": comparison_record(comparison),
        "runs": [
            {"name": name, **measured(measurement, answers, ())}
            for name, answers, measurement in zip(comparison.names, comparison.answers, measurements, strict=True)
        ],
    }
    return Report(document, record)


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


def _brackets(comparison: Comparison) -> Section:
    blocks: list[Block] = [
        comparison_figure(comparison.names, comparison.answers, position)
        for position in range(len(comparison.answers[0].epsilon))
    ]
    named = [list(answers.brackets()) for answers in comparison.answers]
    rows = tuple(
        (quantities[0][0], *(Range(*ends(bracket)) for _, bracket in quantities))
        for quantities in zip(*named, strict=True)
    )
    caption, columns = "From attack (at least) to proof (at most)", ("quantity", *comparison.names)
    return Section("Side by side", (*blocks, Table(caption, columns, rows)))


def _curves(comparison: Comparison, measurements: Sequence[Measurement]) -> Section:
    if len(measurements) > MOST_OVERLAID:
        words = f"More than {MOST_OVERLAID} runs do not fit into one picture; calipers curve draws each of them."
        return Section("Curves", (Prose(words),))
    return Section("Curves", (overlay_figure(comparison.names, measurements),))


def _paragraphs(comparison: Comparison, measurements: Sequence[Measurement]) -> Section:
    quotes = [
        Quote(f"{name}. {paragraph(answers, measurement.tolerance)}")
        for name, answers, measurement in zip(comparison.names, comparison.answers, measurements, strict=True)
    ]
    return Section("Paragraphs to paste", tuple(quotes))


def _run(name: str, answers: Answers) -> Section:
    evidence = evidence_section(answers.evidence().items())
    return Section(f"Run {name}", (Prose(describe_phases(answers.runs)), *evidence.blocks[:1], Items(answers.notes)))
