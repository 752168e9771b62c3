"""The measurement as a table to read: lower jaw, upper jaw, claim, and what licenses them.

Rendering returns text. Color is used only when the stream is a terminal and NO_COLOR is not set,
so a piped report is plain.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement as Extent
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calipers.bracket import Bracket, Evidence
from calipers.measure.notes import notes_of
from calipers.reports.answers import Answers, Claimed
from calipers.reports.evidence import kind_text, licensed
from calipers.reports.format import ceil_digits, jaws
from calipers.reports.standing import Standing, standing
from calipers.reports.words import describe, describe_subject

if TYPE_CHECKING:
    from calipers.calibrate import Calibration
    from calipers.reports.comparison import Comparison

PIPED_WIDTH = 110
WIDEST = 130
_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z])")


def to_text(content: RenderableType, *, terminal: bool = False) -> str:
    """The content as text, in color only for a terminal that wants it."""
    width = min(shutil.get_terminal_size().columns, WIDEST) if terminal else PIPED_WIDTH
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=terminal,
        no_color=bool(os.environ.get("NO_COLOR")) or not terminal,
        highlight=False,
        emoji=False,
        markup=False,
        # A report is text, whatever notebook or terminal variables the environment carries.
        force_jupyter=False,
        legacy_windows=False,
    )
    console.print(content)
    lines = (line.rstrip() for line in buffer.getvalue().splitlines())
    return "\n".join(lines).rstrip() + "\n"


def measurement_report(answers: Answers) -> RenderableType:
    """The run in words, the brackets, the evidence, the notes."""
    return Group(
        Text(describe_subject(answers)),
        brackets_table(answers),
        _heading("What licenses the numbers"),
        *_evidence_lines((found, _ends(answers, ends)) for found, ends in answers.evidence().items()),
        *_notes(answers.notes),
    )


def brackets_table(answers: Answers) -> Table:
    """One row per quantity. The lower jaw is rounded down; the upper jaw and the claim, a promised one, up."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("quantity")
    for heading in ("lower (attack)", "upper (proof)", "claim"):
        table.add_column(heading, justify="right")
    for row in answers.epsilon:
        _add(table, f"epsilon at delta = {row.at:.12g}", row.bracket, row, standing(answers, row) is Standing.REFUTED)
    for row in answers.delta:
        _add(table, f"delta at epsilon = {row.at:.12g}", row.bracket, row, standing(answers, row) is Standing.REFUTED)
    for fpr, bracket in answers.tpr:
        _add(table, f"attack TPR at FPR = {fpr:.12g}", bracket)
    _add(table, "advantage (max TPR - FPR)", answers.advantage)
    _add(table, "separation", answers.separation)
    _add(table, f"mu-GDP up to delta0 = {answers.delta0:.12g}", answers.mu)
    table.add_row("  regret of that mu", "", ceil_digits(answers.regret), "")
    return table


def _add(table: Table, name: str, bracket: Bracket, row: Claimed | None = None, refuted: bool = False) -> None:
    lower, upper = jaws(bracket)
    claim = ceil_digits(row.claim) if row is not None else ""
    table.add_row(name, lower, upper, Text(f"{claim} refuted", style="bold red") if refuted else claim)


def _evidence_lines(used: Iterable[tuple[Evidence, str]]) -> list[RenderableType]:
    """Each piece of evidence after what it licenses; sentences that an earlier piece began with are not repeated."""
    lines: list[RenderableType] = []
    told: dict[tuple[str, str], list[list[str]]] = {}
    for evidence, licenses in used:
        kind, sentences = kind_text(evidence), _SENTENCE_END.split(evidence.statement)
        earlier = told.setdefault((kind, evidence.source), [])
        known = min(max((_shared(sentences, other) for other in earlier), default=0), len(sentences) - 1)
        earlier.append(sentences)
        said = f"{kind} as above" if known else kind
        text = f"{licenses}: {said}. {' '.join(sentences[known:])} [{evidence.source}]"
        lines.append(Padding(Text(text), (0, 0, 0, 2)))
    return lines


def _shared(sentences: Sequence[str], other: Sequence[str]) -> int:
    """How many sentences both begin with."""
    same = (one == two for one, two in zip(sentences, other, strict=False))
    return sum(1 for _ in itertools.takewhile(bool, same))


def _ends(answers: Answers, ends: Sequence[str]) -> str:
    """The ends by name, or in two words where they are all there are of one side."""
    for side in ("upper", "lower"):
        if list(ends) == [f"{name} ({side})" for name, _ in answers.brackets()]:
            return f"every {side} value"
    return licensed(ends)


def _notes(notes: tuple[str, ...]) -> list[RenderableType]:
    if not notes:
        return []
    return [Text(), _heading("Notes"), *(Padding(Text(note), (0, 0, 0, 2)) for note in notes)]


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def calibration_report(calibration: Calibration) -> RenderableType:
    """The noise multiplier (rounded up: more noise never leaks more), what it achieves and why, the run file."""
    target = ", ".join(f"{name} = {value:g}" for name, value in calibration.target.items())
    achieved = calibration.achieved
    lower, upper = jaws(achieved)
    used = [(achieved.upper_evidence, "achieved (upper)"), (achieved.lower_evidence, "achieved (lower)")]
    return Group(
        Text.assemble("noise multiplier  ", (ceil_digits(calibration.noise_multiplier, 8), "bold")),
        Text(f"target            {target}"),
        Text(f"achieved          between {lower} (attack) and {upper} (proof)"),
        Text(),
        _heading("The run, as a run file"),
        Padding(Text(calibration.run.to_toml().rstrip()), (0, 0, 0, 2)),
        Text(),
        _heading("What licenses the numbers"),
        *_evidence_lines(used),
        *_notes(tuple(dict.fromkeys((*calibration.run.notes, *notes_of((calibration.run,)))))),
    )


def comparison_report(comparison: Comparison) -> RenderableType:
    """The runs side by side, then the verdict on each pair."""
    descriptions = [
        Text(f"{name}: " + _in_one_line(answers))
        for name, answers in zip(comparison.names, comparison.answers, strict=True)
    ]
    verdicts = [Padding(Text(verdict.sentence), (0, 0, 0, 2)) for verdict in comparison.verdicts]
    table, heading = _SideBySide(comparison), _heading("Which is more private")
    return Group(*descriptions, table, heading, *verdicts, *_notes(_shared_notes(comparison)))


def _in_one_line(answers: Answers) -> str:
    if answers.stated is not None:
        return answers.stated.sentence
    return " Then ".join(describe(run) for run in answers.runs)


class _SideBySide:
    """The brackets of all runs: both ends on one line where the lines fit, else one below the other."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        one_line = self._table(" .. ")
        fits = Extent.get(console, options.update(max_width=10_000), one_line).maximum <= options.max_width
        yield one_line if fits else self._table(" ..\n")

    def _table(self, between: str) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("quantity\nattack .. proof")
        for name in self.comparison.names:
            table.add_column(name, justify="right", overflow="fold")
        named = [list(answers.brackets()) for answers in self.comparison.answers]
        for rows in zip(*named, strict=True):
            table.add_row(rows[0][0], *(between.join(jaws(bracket)) for _, bracket in rows))
        return table


def _shared_notes(comparison: Comparison) -> tuple[str, ...]:
    """Every note once, after the names of the runs it is about."""
    about: dict[str, list[str]] = {}
    for name, answers in zip(comparison.names, comparison.answers, strict=True):
        for note in answers.notes:
            about.setdefault(note, []).append(name)
    count = len(comparison.names)
    return tuple(f"{'All' if len(names) == count else ', '.join(names)}: {note}" for note, names in about.items())
