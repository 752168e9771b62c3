"""The measurement as a table to read: lower jaw, upper jaw, claim, and what licenses them.

Rendering returns text. Color is used only when the stream is a terminal and NO_COLOR is not set,
so a piped report is plain.
"""

from __future__ import annotations

import io
import os
import shutil
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calipers.bracket import Bracket, Evidence, Kind
from calipers.reports.answers import Answers, Claimed
from calipers.reports.format import ceil_digits, jaws, nearest_digits
from calipers.reports.standing import Standing, standing
from calipers.reports.words import describe, describe_phases

if TYPE_CHECKING:
    from calipers.calibrate import Calibration
    from calipers.reports.comparison import Comparison

PIPED_WIDTH = 110
WIDEST = 130
KINDS = {
    Kind.THEOREM: "proof",
    Kind.TEST: "attack",
    Kind.NUMERICAL: "certified computation",
    Kind.CONJECTURE: "conjecture, not a bound",
    Kind.STATISTICAL: "statistical",
}


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
        Text(describe_phases(answers.runs)),
        brackets_table(answers),
        _heading("What licenses the numbers"),
        *_evidence_lines(answers),
        *_notes(answers.notes),
    )


def brackets_table(answers: Answers) -> Table:
    """One row per quantity. The lower jaw is rounded down, the upper jaw up, the claim to nearest."""
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
    claim = nearest_digits(row.claim) if row is not None else ""
    table.add_row(name, lower, upper, Text(f"{claim} refuted", style="bold red") if refuted else claim)
    if bracket.conjectured is not None:
        value, evidence = bracket.conjectured
        table.add_row(f"  conjectured value ({evidence.source})", nearest_digits(value), "", "")


def _evidence_lines(answers: Answers) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for evidence, ends in answers.evidence().items():
        text = Text(f"{_shortened(ends)}: {_kind(evidence)}. {evidence.statement} [{evidence.source}]")
        lines.append(Padding(text, (0, 0, 0, 2)))
    return lines


def _kind(evidence: Evidence) -> str:
    kind = KINDS[evidence.kind]
    return f"{kind}, confidence {evidence.confidence:g}" if evidence.confidence is not None else kind


def _shortened(ends: list[str]) -> str:
    return ", ".join(ends) if len(ends) <= 2 else f"{ends[0]} and {len(ends) - 1} more"


def _notes(notes: tuple[str, ...]) -> list[RenderableType]:
    if not notes:
        return []
    return [Text(), _heading("Notes"), *(Padding(Text(note), (0, 0, 0, 2)) for note in notes)]


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def calibration_report(calibration: Calibration) -> RenderableType:
    """The noise multiplier (rounded up: more noise never leaks more), what it achieves, the run file."""
    target = ", ".join(f"{name} = {value:g}" for name, value in calibration.target.items())
    lower, upper = jaws(calibration.achieved)
    return Group(
        Text.assemble("noise multiplier  ", (ceil_digits(calibration.noise_multiplier, 8), "bold")),
        Text(f"target            {target}"),
        Text(f"achieved          between {lower} (attack) and {upper} (proof)"),
        Text(),
        _heading("The run, as a run file"),
        Padding(Text(calibration.run.to_toml().rstrip()), (0, 0, 0, 2)),
        *_notes(calibration.run.notes),
    )


def comparison_report(comparison: Comparison) -> RenderableType:
    """The runs side by side, then the verdict on each pair."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("quantity")
    for name in comparison.names:
        table.add_column(name, justify="right")
    named = [list(answers.brackets()) for answers in comparison.answers]
    for rows in zip(*named, strict=True):
        table.add_row(rows[0][0], *("{} .. {}".format(*jaws(bracket)) for _, bracket in rows))
    descriptions = [
        Text(f"{name}: " + " Then ".join(describe(run) for run in answers.runs))
        for name, answers in zip(comparison.names, comparison.answers, strict=True)
    ]
    notes = tuple(
        f"{name}: {note}"
        for name, answers in zip(comparison.names, comparison.answers, strict=True)
        for note in answers.notes
    )
    verdicts = [Padding(Text(verdict.sentence), (0, 0, 0, 2)) for verdict in comparison.verdicts]
    return Group(*descriptions, table, _heading("Which is more private"), *verdicts, *_notes(notes))
