"""A document in a terminal: the verdict, a ruler with numbers on its bounds, what to report, then the table.

The proofs and attacks behind each number are shown when asked for (`explain`); notes are never cut. Color is
only for a terminal that wants it, so a piped report is plain; where the stream knows no such signs, the ruler is drawn
with those of ASCII.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence

from calipers.reports import document as parts
from calipers.reports.chart import Intervals
from calipers.reports.document import visible, words_of
from calipers.reports.ruler import ruler

PIPED_WIDTH = 110
WIDEST = 130
BOLD, BAD = "1", "1;31"
EXPLAIN = "More with --explain: the proofs and attacks behind each number."
_wrap = functools.partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
_ASCII = str.maketrans("─┼▶◀━▷◇├┤…≈", "-+><=>*||~~")


def to_text(document: parts.Document, *, explain: bool = False, terminal: bool = False, more: str = EXPLAIN) -> str:
    """The document as text, in color only for a terminal that wants it; `more` says how to see the rest."""
    width = min(shutil.get_terminal_size().columns, WIDEST) if terminal else PIPED_WIDTH
    page = _Page(width, terminal and not os.environ.get("NO_COLOR"))
    pieces = [page.styled(page.wrapped(document.verdict), BOLD)]
    pieces += [page.block(block) for block in document.opening]
    shown = [section for section in document.sections if explain or not section.detail]
    first, *others = shown or [parts.Section("", ())]
    pieces.append(page.section(dataclasses.replace(first, title="")))
    pieces.append([line for text in document.subject.split("\n") if text for line in page.wrapped(text)])
    pieces += [page.section(section) for section in others]
    hidden = any(section.detail for section in document.sections) and not explain
    pieces.append(page.wrapped(more) if hidden else [])
    return "\n\n".join("\n".join(line.rstrip() for line in part) for part in pieces if part) + "\n"


def for_stream(text: str) -> str:
    """The text with signs that standard output can write."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text = text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")
    return text


def columns_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    wide = ("W", "F")
    return sum(2 if unicodedata.east_asian_width(c) in wide else not unicodedata.combining(c) for c in text)


_SIGN = re.compile(r" ([=-]) ")
_WIDE = 27
_FOLDS = ((" .. ", _WIDE, _WIDE), (" ..\n", _WIDE, _WIDE), *((" ..\n", 10, fold) for fold in (_WIDE, 22, 18, 14, 10)))
"""How a table is made narrower and narrower: between the ends of a bracket, columns of a head, columns of words."""


class _Page:
    """How wide, and whether in color."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color = width, color

    def wrapped(self, text: str, first: str = "", rest: str = "") -> list[str]:
        line = " ".join(visible(text).split())
        return _wrap(line, max(20, self.width), initial_indent=first, subsequent_indent=rest) or [first.rstrip()]

    def styled(self, lines: list[str], style: str) -> list[str]:
        return [self.span(line, style) for line in lines]

    def span(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color and style and text.strip() else text

    def section(self, section: parts.Section) -> list[str]:
        heading = [self.span(section.title, BOLD)] if section.title else []
        blocks = [self.block(block) for block in section.blocks]
        return [*heading, *(line for lines in _spaced(blocks) for line in lines)]

    def block(self, block: parts.Block) -> list[str]:
        if isinstance(block, parts.Prose):
            return self.wrapped(block.text)
        if isinstance(block, parts.Notice):
            return self.styled(self.wrapped(block.text, "! ", "  "), BAD)
        if isinstance(block, parts.Items):
            return [line for text in block.texts for line in self.wrapped(text, "  - ", "    ")]
        if isinstance(block, parts.Quote):
            return self.wrapped(f"{block.label}: {block.text}" if block.label else block.text)
        if isinstance(block, parts.Code):
            return [f"  {line}" for line in visible(block.text).rstrip().split("\n")]
        if isinstance(block, parts.AttachedText):
            return self.wrapped(f"{block.place}, SHA-256 {block.sha256}")
        if isinstance(block, parts.Figure):
            if isinstance(block.picture, Intervals):
                return ruler(block.picture, min(self.width, 92))
            return [block.picture.title, *self.table(block.table)]
        return self.sentences(block) if block.wide else self.table(block)

    def sentences(self, table: parts.Table) -> list[str]:
        """A table of sentences as paragraphs: what a row is about, a colon, the rest; the source in brackets."""
        lines = []
        for first, *others in table.rows:
            texts = [_text(cell) for cell in others if _text(cell)]
            if table.columns[-1] == "source":
                texts[-1] = f"[{texts[-1]}]"
            joined = ". ".join(texts[:-1]).rstrip(".")
            text = f"{_text(first)}: {joined}. {texts[-1]}" if joined else f"{_text(first)}: {texts[-1]}"
            bad = any(isinstance(cell, parts.Badge) and cell.mood == "bad" for cell in (first, *others))
            lines += self.styled(self.wrapped(text, "  - ", "    "), BAD if bad else "")
        return lines

    def table(self, table: parts.Table) -> list[str]:
        """Columns side by side; both ends of a bracket one below the other where the lines would be too long.

        Where that is not enough, heads are folded, and then words, no more than needed.
        """
        right = table.numeric
        for between, head, fold in _FOLDS:
            folds = [_WIDE if flush else fold for flush in right]
            grid = [[_lines(cell, between, most) for cell, most in zip(row, folds, strict=True)] for row in table.rows]
            heads = [_folded(name, head) for name in table.columns]
            widths = [max(columns_of(t) for row in [heads, *grid] for t in row[i]) for i in range(len(heads))]
            if sum(widths) + 3 * len(widths) - 2 <= self.width:
                break
        styles = [[getattr(cell, "mood", "") == "bad" for cell in row] for row in table.rows]
        lines = [self._row(line, widths, right, [False] * len(widths)) for line in _stacked(heads)]
        lines.append(" " + "─" * (sum(widths) + 3 * (len(widths) - 1)))
        for row, bad in zip(grid, styles, strict=True):
            lines += [self._row(line, widths, right, bad) for line in _stacked(row)]
        return lines

    def _row(self, cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], bad: Sequence[bool]) -> str:
        found = []
        for text, width, flush, red in zip(cells, widths, right, bad, strict=True):
            space = " " * (width - columns_of(text))
            said = self.span(text, BAD if red else "")
            found.append(space + said if flush else said + space)
        return " " + "   ".join(found)


def _spaced(blocks: Sequence[list[str]]) -> Iterator[list[str]]:
    """The blocks with an empty line between two of them."""
    for number, lines in enumerate(blocks):
        yield ["", *lines] if number else lines


def _text(cell: parts.Cell) -> str:
    return " ".join(_lines(cell, " .. "))


def _lines(cell: parts.Cell, between: str, fold: int = _WIDE) -> list[str]:
    if isinstance(cell, parts.Number | parts.Range):
        return words_of(cell, between).split("\n")
    words = visible(words_of(cell)).replace("\n", " ")
    return [words] if fold == _WIDE else _folded(words, fold)


def _folded(words: str, most: int) -> list[str]:
    """Words in lines of at most so many columns, where they can be parted: not next to a sign such as "="."""
    held = _SIGN.sub("\u00a0\\1\u00a0", visible(words))
    return [line.replace("\u00a0", " ") for line in _wrap(held, most) or [""]]


def _stacked(cells: Sequence[list[str]]) -> Iterator[list[str]]:
    """Line by line through cells of several lines."""
    for number in range(max(len(lines) for lines in cells)):
        yield [lines[number] if number < len(lines) else "" for lines in cells]
