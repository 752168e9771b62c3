"""A document as Markdown: headings, tables and sentences that fit into a model card.

Pictures become the tables that say the same. Every character that Markdown could take for a sign is escaped, so names
and notes are shown as they are written; the result reads the same in CommonMark and on the sites that extend it.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from calipers._version import __version__
from calipers.reports import document as parts
from calipers.reports.document import visible, words_of

_SIGNS = re.compile(r"([\\`*_\[\]<>&|~$#])")
# What begins a list or a rule when it is the first thing on a line.
_STARTS = re.compile(r"^(?:([-+])(?=[-+\s]|$)|(\d+)([.)])(?=\s|$))")


def to_markdown(document: parts.Document) -> str:
    """The whole text, headings from the second level on so that it fits under a title."""
    badges = " · ".join(plain(badge.text) for badge in document.badges)
    head = [f"## {plain(document.title)}", *([f"Model: {plain(document.model)}"] if document.model else [])]
    head.append(f"**{plain(document.verdict)}**")
    head += [f"*{badges}*"] if badges else []
    head += [_block(block) for block in document.opening]
    head += [plain(line) for line in document.subject.split("\n")]
    foot = f"Measured with Calipers {plain(__version__)}. Lower bounds are rounded down, upper bounds up."
    foot = f"{foot} {plain(document.origin)}".rstrip()
    return "\n\n".join([*head, *(_section(section) for section in document.sections), "---", foot]) + "\n"


def plain(text: str) -> str:
    """The text on one line with every sign of Markdown escaped."""
    line = " ".join(visible(text).split())
    escaped = _SIGNS.sub(r"\\\1", line)
    return _STARTS.sub(lambda found: f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}", escaped)


def _section(section: parts.Section) -> str:
    return "\n\n".join([f"### {plain(section.title)}", *(_block(block) for block in section.blocks)])


def _block(block: parts.Block) -> str:
    if isinstance(block, parts.Prose):
        return plain(block.text)
    if isinstance(block, parts.Notice):
        return f"> **Note.** {plain(block.text)}"
    if isinstance(block, parts.Items):
        return "\n".join(f"- {plain(text)}" for text in block.texts)
    if isinstance(block, parts.Table):
        return _table(block)
    if isinstance(block, parts.Figure):
        return f"**{plain(block.picture.title)}.** {plain(block.picture.description)}\n\n{_table(block.table)}"
    if isinstance(block, parts.Quote):
        return f"> **{plain(block.label)}:** {plain(block.text)}" if block.label else f"> {plain(block.text)}"
    if isinstance(block, parts.AttachedText):
        return f"[{plain(block.place)}](<{quote(block.place)}>), SHA-256 `{block.sha256}`"
    assert isinstance(block, parts.Code)
    return _fenced(block.text)


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}toml\n{visible(text).rstrip()}\n{fence}"


def _table(table: parts.Table) -> str:
    rule = " | ".join("---:" if right else ":---" for right in table.numeric)
    lines = [_row(table.columns), f"| {rule} |", *(_row(row) for row in table.rows)]
    return "\n".join(lines)


def _row(cells: tuple[parts.Cell, ...]) -> str:
    return f"| {' | '.join(plain(words_of(cell)) for cell in cells)} |"
