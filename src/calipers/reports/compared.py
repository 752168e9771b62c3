"""The report of a comparison: the verdict on every pair, the runs side by side, then each run by itself.

Whatever the report of a single run says is here for every run: the bracket, the curves, what an attacker gets, what the
standard accounting would have said, what to change, a paragraph to paste, and the evidence behind the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.guarantee import NEIGHBORS
from calipers.reports.accounting import USUAL, claim_rows, usual_section
from calipers.reports.answers import Answers, Questions
from calipers.reports.comparison import MOST_SIDE_BY_SIDE
from calipers.reports.document import (
    Badge,
    Block,
    Cell,
    Code,
    Document,
    Items,
    Prose,
    Quote,
    Range,
    Section,
    Table,
    at_most,
    ends,
)
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import comparison_figure, rate_figures
from calipers.reports.officer import relation
from calipers.reports.overlays import overlays
from calipers.reports.paragraph import paragraph, printed_regret
from calipers.reports.records import comparison_record
from calipers.reports.remedies import Remedy
from calipers.reports.report import Report, asked, heading, measured
from calipers.reports.sections import ROUNDED, as_facts, notes_section, subject_file
from calipers.reports.words import assumed_text, describe_subject
from calipers.scope import differing, easier_text, only_side, other_side

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.reports.comparison import Comparison, PairVerdict

MOST_OVERLAID = 6
_MOODS = {"same": "plain", "curves cross": "plain", "not settled": "open", "not comparable": "open"}


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """One of the runs: its name, its measurement, the answers that a report gives, and what to change."""

    name: str
    measurement: Measurement
    answers: Answers
    found: tuple[Remedy, ...]


def report_comparison(comparison: Comparison, measurements: Sequence[Measurement], questions: Questions) -> Report:
    """Several runs side by side; `measurements` are those the comparison was made from, in its order."""
    reported = [
        ComparedRun(name, measurement, *asked(measurement, questions))
        for name, measurement in zip(comparison.names, measurements, strict=True)
    ]
    brief = brief_comparison(comparison)
    document = dataclasses.replace(
        brief,
        subject=f"Runs: {', '.join(map(_with_file, comparison.names, comparison.files or comparison.names))}.",
        sections=(
            _side_by_side(comparison.names, [one.answers for one in reported]),
            _verdicts(comparison),
            _curves(comparison, measurements),
            _claims(reported),
            _changes(reported),
            _paragraphs(reported),
            *(_run(number, one) for number, one in enumerate(reported, start=1)),
        ),
    )
    record = {
        **heading("compare", brief.verdict),
        "comparison": comparison_record(comparison),
        "runs": [{"name": one.name, **measured(one.measurement, one.answers, one.found)} for one in reported],
    }
    return Report(document, record)


def brief_comparison(comparison: Comparison) -> Document:
    """What a terminal and a notebook show: the winner, a ruler of all runs, the numbers, the pairs, the runs."""
    named = list(zip(comparison.names, comparison.answers, strict=True))
    sources = comparison.files or comparison.names
    described = [
        (_with_file(name, file), describe_subject(answers))
        for (name, answers), file in zip(named, sources, strict=True)
    ]
    return Document(
        kind="compare",
        title="Which run is more private",
        verdict=comparison.headline,
        badges=(_proven(*comparison.verdicts),) if len(comparison.verdicts) == 1 else (),
        opening=tuple(
            comparison_figure(_labels(comparison.names, comparison.answers), comparison.answers, position)
            for position in range(len(comparison.answers[0].epsilon))
        ),
        sections=(
            _side_by_side(comparison.names, comparison.answers),
            Section("Which is more private", (Items(comparison.sentences),)),
            Section("The runs", (Items(_shortly(described)), *_assumed(named))),
            *notes_section(_shared_notes(named)),
            *(evidence_section(answers.evidence().items(), f" of {name}") for name, answers in named),
        ),
    )


def _assumed(named: Sequence[tuple[str, Answers]]) -> tuple[Prose, ...]:
    """What nobody gave of the runs, each list once."""
    found: dict[str, list[str]] = {}
    for name, answers in named:
        if words := assumed_text(answers.runs, stated=answers.stated).strip():
            found.setdefault(words, []).append(name)
    return tuple(
        Prose(f"{'All runs' if len(names) == len(named) else ' and '.join(names)}: {words[0].lower()}{words[1:]}")
        for words, names in found.items()
    )


def _shortly(described: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """What was executed, run by run; what is said of every one of many is said once."""
    parts = [words.removesuffix(".").split("; ") for _, words in described]
    shared = [part for part in parts[0] if all(part in others for others in parts)]
    if len(described) <= MOST_SIDE_BY_SIDE or not shared:
        return tuple(f"{name}: {words}" for name, words in described)
    own = ("; ".join(part for part in all_parts if part not in shared) or "nothing else" for all_parts in parts)
    names = (name for name, _ in described)
    return (f"All: {'; '.join(shared)}.", *(f"{name}: {words}." for name, words in zip(names, own, strict=True)))


def _with_file(name: str, file: str) -> str:
    return name if name == file else f"{name} ({file})"


def _shared_notes(named: Sequence[tuple[str, Answers]]) -> tuple[str, ...]:
    """Every note once, after the names of the runs it is about."""
    about: dict[str, list[str]] = {}
    for name, answers in named:
        for note in answers.notes:
            about.setdefault(note, []).append(name)
    count = len(named)
    return tuple(f"{'All' if len(names) == count else ', '.join(names)}: {note}" for note, names in about.items())


def _verdicts(comparison: Comparison) -> Section:
    rows = tuple((f"{v.first} and {v.second}", _proven(v), v.sentence) for v in comparison.verdicts)
    return Section("Verdicts", (Table("Every pair of runs", ("pair", "proven", "in words"), rows, wide=True),))


def _proven(verdict: PairVerdict) -> Badge:
    return Badge(verdict.order.value, _MOODS.get(verdict.order.value, "good"))


def _relation(names: Sequence[str], compared: Sequence[Answers]) -> tuple[Prose, ...]:
    """The neighboring relation of all rows, and of which it is half; nothing where they differ, as the verdicts say."""
    found = {relation(answers) for answers in compared}
    if len(found) > 1 or not found <= set(NEIGHBORS):
        return ()
    (name,) = found
    runs = [run for answers in compared for run in answers.runs]
    differ = {differing(name, run) for run in runs} or {f"{NEIGHBORS[name]} one record"}
    words = f"All runs have the same neighboring relation, {name}: {' or '.join(sorted(differ))}."
    if runs:
        nobody = all("adjacency" in run.assumed for run in runs)
        words += (
            " This is assumed, since no run names an adjacency." if nobody else " Runs that name none get this one."
        )
    if name != "add-remove":
        words += _seen_by_counting(names, compared)
    for side in ("adding", "removing"):
        half = [name for name, answers in zip(names, compared, strict=True) if only_side(answers.runs) == side]
        if half:
            assumed = any("last_batch" in run.assumed for run in runs if only_side((run,)) == side)
            dropped = "with a last, shorter batch dropped, as assumed, " * assumed
            words += f" The numbers of {' and '.join(half)} are for {side} one only: {dropped}no finite epsilon holds "
            words += f"for {other_side(side)} one."
    return (Prose(words),)


def _seen_by_counting(names: Sequence[str], compared: Sequence[Answers]) -> str:
    """Of which runs somebody who counts the batches learns whether a record was there, which other rows do not say."""
    sides = {name: easier_text(answers.runs, "tell") for name, answers in zip(names, compared, strict=True)}
    found: dict[str, list[str]] = {}
    for name, said in sides.items():
        if said.startswith("no finite"):
            found.setdefault(said, []).append(name)
    return "".join(
        f" Whether a record was in the data at all (add-remove) is another question: of {' and '.join(those)}, {said}."
        for said, those in found.items()
    )


def _labels(names: Sequence[str], compared: Sequence[Answers]) -> list[str]:
    """The names, with the side that numbers are for where nothing finite holds for the other one."""
    sides = [only_side(answers.runs) for answers in compared]
    return [f"{name} ({side} only)" if side else name for name, side in zip(names, sides, strict=True)]


def _side_by_side(names: Sequence[str], compared: Sequence[Answers]) -> Section:
    labels = _labels(names, compared)
    rows: list[tuple[Cell, ...]] = [
        (together[0].name, *(Range(*ends(reading.bracket)) for reading in together))
        for together in zip(*(answers.readings for answers in compared), strict=True)
    ]
    rows.append(("regret of that mu, at most", *(at_most(printed_regret(answers)) for answers in compared)))
    caption = f"From attack (at least) to proof (at most). {ROUNDED}"
    if len(names) <= MOST_SIDE_BY_SIDE:
        table = Table(caption, ("quantity, attack to proof", *labels), tuple(rows))
        return Section("Side by side", (table, *_relation(names, compared)))
    reported = [row for row in rows if row[0] != "separation"]  # the advantage again, as a distance
    columns = ("run, attack to proof", *(str(row[0]) for row in reported))
    turned = tuple((name, *(row[number] for row in reported)) for number, name in enumerate(labels, start=1))
    return Section("Side by side", (Table(caption, columns, turned), *_relation(names, compared)))


def _curves(comparison: Comparison, measurements: Sequence[Measurement]) -> Section:
    if len(measurements) > MOST_OVERLAID:
        words = f"More than {MOST_OVERLAID} runs do not fit into one picture; each has its own below."
        return Section("Curves", (Prose(words),))
    return Section("Curves", overlays(comparison.names, measurements))


def _claims(reported: Sequence[ComparedRun]) -> Section:
    rows = [(one.name, *row) for one in reported for row in claim_rows(one.answers)]
    return usual_section(USUAL, rows, whose=("run",))


def _changes(reported: Sequence[ComparedRun]) -> Section:
    texts = tuple(f"{one.name}: {remedy.sentence}" for one in reported for remedy in one.found)
    return Section("What to change", (Items(texts) if texts else Prose("Nothing is known that would lower them."),))


def _paragraphs(reported: Sequence[ComparedRun]) -> Section:
    blocks: list[Block] = []
    for one in reported:
        if facts := as_facts(one.answers).strip():
            blocks.append(Prose(f"Of {one.name}: {facts}"))
        blocks.append(Quote(f"{one.name}. {paragraph(one.answers, one.measurement.tolerance)}"))
    return Section("Paragraphs to paste", tuple(blocks))


def _run(number: int, one: ComparedRun) -> Section:
    """What was executed, its curves with the Gaussian fit, what to know, and the evidence behind its numbers."""
    return Section(
        f"Run {one.name}",
        (
            Prose(describe_subject(one.answers)),
            Code(subject_file(one.answers)),
            *(figure.within(f"run-{number}") for figure in rate_figures(one.measurement, one.answers)),
            Items(one.answers.notes),
            *evidence_section(one.answers.evidence().items()).blocks,
        ),
    )
