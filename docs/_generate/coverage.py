"""The page of coverage: every numbered statement, table and figure of the papers, with its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from _generate.text import paper_heading, plain
from calipers.papers.coverage import CoverageVerdict, Covered, by_paper, how_to_run

INTRODUCTION = """# Coverage of the papers

What stands in the five papers and what became of it here; `calipers reproduce --coverage` prints the same. Everything
numbered is listed: definitions, statements, algorithms, tables and figures, and those equations and sections that
something here computes.

- **implemented**: a function is the statement. **reproduced**: an item of the [gallery](gallery.md) computes it again.
- **false as printed**: with a counterexample, or the reading under which it fails.
- **not computable**: it yields no number, because ...
- **described**: what to do about it instead. **nothing to compute**: a diagram, notation, an assumption.

A remark after an implemented statement says where it holds. What is stated for the isolated view, the record's own
contribution and nothing else, is not a statement about shuffled batches of fixed size
([views](../explanation/views.md)).
"""


def pages() -> dict[str, str]:
    """coverage.md: one table for each paper."""
    parts = [INTRODUCTION]
    for rows in by_paper().values():
        parts += _paper(rows)
    return {"coverage.md": "\n".join(parts)}


def _paper(rows: list[Covered]) -> Iterator[str]:
    counts = Counter(row.verdict for row in rows)
    counted = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in CoverageVerdict if counts[verdict])
    yield f"#{paper_heading(rows[0].source)}"
    yield f"{counted}.\n"
    yield "| place | what stands there | verdict | by | remark |\n|---|---|---|---|---|"
    for row in rows:
        by = ", ".join(f"`{how_to_run(name).removeprefix('calipers.')}`" for name in row.by)
        cells = (row.place, plain(row.says), row.verdict.value, by, plain(row.why))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
