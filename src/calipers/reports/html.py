"""A document as one HTML file that needs nothing else: style and pictures inside, no script, no address to fetch.

The page forbids itself every request (Content-Security-Policy), so opening a report tells nobody. All text is escaped;
a run file named `<b>` is shown as it is called. Numbers carry their exact value as a tooltip and in a data element.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import PurePosixPath
from string import Template

from calipers._version import __version__
from calipers.reports import document as parts
from calipers.reports.chart import Chart
from calipers.reports.document import visible
from calipers.reports.schema import asset
from calipers.reports.svg import draw, mark_swatch, swatch

_TOGETHER = re.compile(r"\S{1,12} = -?\d[\d.]*(?:e-?\d+)?|\d[\d.]*e-\d+|--[a-z]+(?:-[a-z]+)*")


def to_html(document: parts.Document) -> str:
    """The whole page."""
    names = slugs([section.title for section in document.sections])
    named = list(zip(document.sections, names, strict=True))
    body = "\n".join(_section(section, name) for section, name in named)
    links = "".join(f'<li><a href="#{name}">{_text(section.title)}</a></li>' for section, name in named)
    return Template(asset("report.html")).substitute(
        title=_text(document.title),
        style=asset("report.css"),
        kind=_text(document.kind),
        model=f'<p class="model">Model: {_text(document.model)}</p>' if document.model else "",
        badges="".join(_badge(badge) for badge in document.badges),
        verdict=_words(document.verdict),
        opening="\n".join(_block(block) for block in document.opening),
        subject="".join(f"<p>{_words(line)}</p>" for line in document.subject.split("\n")),
        contents=links,
        sections=body,
        version=_text(__version__),
        bounds=_text(document.bounds),
        origin=_text(document.origin),
    )


def fragment(document: parts.Document) -> str:
    """A piece of a page, for a notebook: what is evidence is folded, and the style is about this piece alone."""
    pieces = [f'<p class="badges">{"".join(_badge(badge) for badge in document.badges)}</p>' if document.badges else ""]
    pieces += [f'<p class="verdict">{_words(document.verdict)}</p>', *(_block(block) for block in document.opening)]
    for number, section in enumerate(document.sections):
        inner = "\n".join(_block(block) for block in section.blocks)
        folded = f"<details><summary>{_text(section.title)}</summary>{inner}</details>"
        pieces.append(folded if number or section.detail else inner)
    pieces += [f"<p>{_words(line)}</p>" for line in document.subject.split("\n") if line]
    content = "\n".join(part for part in pieces if part)
    return f'<div class="calipers"><style>{asset("notebook.css")}</style>\n{content}\n</div>'


def slugs(titles: Sequence[str]) -> list[str]:
    """A name for every title: lower case letters, digits and hyphens, no two alike."""
    names: list[str] = []
    for number, title in enumerate(titles, start=1):
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        names.append(name if name not in names else f"{name}-part-{number}")
    return names


def _text(text: str) -> str:
    return escape(visible(text), quote=True)


def _words(text: str) -> str:
    """Text whose settings (delta = 1e-5) and options stay on one line."""
    return _TOGETHER.sub(r'<span class="together">\g<0></span>', _text(text))


def _section(section: parts.Section, name: str) -> str:
    pieces = []
    for drawn, blocks in groupby(section.blocks, key=lambda block: isinstance(block, parts.Figure)):
        content = "\n".join(_block(block) for block in blocks)
        pieces.append(f'<div class="figures">\n{content}\n</div>' if drawn else content)
    inner = "\n".join(pieces)
    return (
        f'<section id="{name}" aria-labelledby="{name}-heading">\n'
        f'<h2 id="{name}-heading">{_text(section.title)}</h2>\n{inner}\n</section>'
    )


def _block(block: parts.Block) -> str:
    if isinstance(block, parts.Prose):
        return f"<p>{_words(block.text)}</p>"
    if isinstance(block, parts.Notice):
        return f'<p class="notice">{_words(block.text)}</p>'
    if isinstance(block, parts.Items):
        return "<ul>" + "".join(f"<li>{_words(text)}</li>" for text in block.texts) + "</ul>"
    if isinstance(block, parts.Table):
        return _table(block)
    if isinstance(block, parts.Figure):
        return _figure(block)
    if isinstance(block, parts.Quote):
        label = f"<b>{_text(block.label)}:</b> " if block.label else ""
        return f'<blockquote class="paste"><p>{label}{_text(block.text)}</p></blockquote>'
    if isinstance(block, parts.AttachedText):
        return _attachment(block)
    assert isinstance(block, parts.Code)
    return f"<details><summary>As a run file</summary><pre><code>{_text(block.text)}</code></pre></details>"


def _attachment(file: parts.AttachedText) -> str:
    """A link that saves the file, which is inside the page: nothing has to be fetched."""
    name = _text(PurePosixPath(file.place).name)
    inside = b64encode(file.text.encode("utf-8")).decode("ascii")
    link = f'<a download="{name}" href="data:application/json;base64,{inside}">{name}</a>'
    return f"<p>{link} (inside this page), SHA-256 <code>{file.sha256}</code></p>"


def _figure(figure: parts.Figure) -> str:
    picture = figure.picture
    if isinstance(picture, Chart):
        entries = [(swatch(line.role), line.label) for line in picture.lines]
    else:
        marks = {(role, label): None for row in picture.rows for label, role, _ in row.marks}
        entries = [(mark_swatch("attack"), "lower bound (attack)")]
        if any(math.isfinite(row.upper) for row in picture.rows):
            entries.append((mark_swatch("proof"), "upper bound (proof)"))
        entries += [(mark_swatch(role), label) for role, label in marks]
    legend = "".join(f"<li>{sample}{_text(label)}</li>" for sample, label in entries)
    return (
        f'<figure><figcaption>{_text(picture.title)}</figcaption>{draw(picture)}<ul class="legend">{legend}</ul>'
        f'<p class="reading">{_text(picture.description)}</p>'
        f"<details><summary>The same in numbers</summary>{_table(figure.table)}</details></figure>"
    )


def _table(table: parts.Table) -> str:
    """A table in a frame of its own that can be moved sideways; wide ones turn into cards on a narrow screen."""
    caption = _text(table.caption)
    # Cards are no table to a browser, so wide tables say what their parts are.
    wide, role, heading = "", "", ""
    if table.wide:
        wide, role, heading = ' class="wide" role="table"', ' role="row"', ' role="columnheader"'
    head = "".join(f'<th scope="col"{heading}>{_text(name)}</th>' for name in table.columns)
    rows = []
    for row in table.rows:
        named = enumerate(zip(row, table.columns, strict=True))
        cells = [_cell(cell, name, first=number == 0, wide=table.wide) for number, (cell, name) in named]
        rows.append(f"<tr{role}>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table{wide}>'
        f"<caption>{caption}</caption><thead><tr{role}>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(cell: parts.Cell, column: str, *, first: bool, wide: bool) -> str:
    label = f' data-label="{_text(column)}"' if wide else ""
    if first:
        role = ' role="rowheader"' if wide else ""
        return f'<th scope="row"{role}{label}>{_inline(cell)}</th>'
    role = ' role="cell"' if wide else ""
    kind = ""
    if isinstance(cell, parts.Number):
        kind = f' class="number {cell.mood}"' if cell.mood else ' class="number"'
    elif isinstance(cell, parts.Range):
        kind = ' class="number range"'
    return f"<td{role}{kind}{label}>{_inline(cell)}</td>"


def _inline(cell: parts.Cell) -> str:
    if isinstance(cell, parts.Range):
        return f"{_inline(cell.lower)} to {_inline(cell.upper)}"
    if isinstance(cell, parts.Number):
        exact = "Infinity" if cell.text == "inf" else repr(cell.exact)
        return f'<data value="{exact}" title="{_text(cell.spelled)}">{_text(cell.with_unit)}</data>'
    return _badge(cell) if isinstance(cell, parts.Badge) else _words(cell)


def _badge(badge: parts.Badge) -> str:
    return f'<span class="badge {badge.mood}">{_text(badge.text)}</span>'
