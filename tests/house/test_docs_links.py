"""Every link of README and of the documentation leads to a page, a heading or a file that is there.

So does every place in the documentation that the registry of statements names, and every file of Python that a page
names.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from calipers.citations import STATEMENTS

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.parts),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
# Sections that moved to chapters of their own; links from outside still lead to the page that has them.
MOVED = [
    "5-adding-or-removing-a-record-from-batches-of-fixed-size",
    "6-a-record-allocated-to-one-batch-per-epoch",
    "7-one-lemma-for-hidden-records",
    "8-shuffled-batches-with-a-dropped-remainder",
    "9-shuffled-batches-without-a-remainder",
    "10-attacks-on-shuffled-batches",
    "11-a-shift-that-is-drawn",
    "12-batches-of-fixed-size-drawn-anew",
    "units-of-several-records-allocated-to-batches",
    "13-poisson-batches-with-a-largest-size",
    "14-groups-that-take-turns-bins-that-are-kept-k-of-t-rounds",
]


@cache
def anchors(page: Path) -> frozenset[str]:
    """What follows # in a link to a heading, as GitHub and MyST write it."""
    text = FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return frozenset(re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    """Pages that the build writes are left to the build, which fails where one is missing."""
    missing = []
    for path, anchor in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        target = (page.parent / path).resolve() if path else page
        if "generated" in target.parts:
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(f"{path}#{anchor}")
    assert missing == []


@pytest.mark.parametrize("anchor", MOVED)
def test_a_section_that_moved_is_still_found_and_leads_on(anchor: str) -> None:
    """The old heading stands in the mathematics, with a link to its chapter."""
    page = ROOT / "docs" / "mathematics.md"
    assert anchor in anchors(page)
    assert [path for path, to in LINK.findall(page.read_text("utf-8")) if to == anchor and path.startswith("theory/")]


STATED = r"(?:Theorem|Attack) \d+\.\d+ \((?:(?! and (?:Theorem|Attack) ).)+\)"
NUMBERED = re.compile(rf"(docs/[\w/-]+\.md), ({STATED}(?: and {STATED})*)")
NAMED = re.compile(r"(docs/[\w/-]+\.md), section (?:(?P<number>\d+) \((?P<numbered>.+)\)|'(?P<plain>.+)')")


def headings(page: Path) -> list[str]:
    """The headings of a page, without what stands in fences."""
    return re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), flags=re.M)


def is_cited_rightly(where: str) -> bool:
    """Whether this is a page of ours with a numbered statement or a heading, or a module of ours with a name in it."""
    if stated := NUMBERED.fullmatch(where):
        page = ROOT / stated[1]
        return page.is_file() and all(
            page.read_text("utf-8").count(f"\n**{one}.**") == 1 for one in re.findall(STATED, stated[2])
        )
    if named := NAMED.fullmatch(where):
        heading = named["plain"] or f"{named['number']}. {named['numbered']}"
        page = ROOT / named[1]
        return page.is_file() and heading in headings(page)
    module, _, name = where.partition(", ")
    found = importlib.util.find_spec(module) if module.startswith("calipers.") else None
    return found is not None and (not name or hasattr(importlib.import_module(module), name))


def test_every_place_that_a_statement_of_ours_names_is_there() -> None:
    """A page with the very heading of a section, or a module: what `--explain` cites can be opened."""
    ours = [statement for statement in STATEMENTS.values() if statement.source.key == "calipers"]
    assert len(ours) > 30
    assert [statement.where for statement in ours if not is_cited_rightly(statement.where)] == []


@pytest.mark.parametrize(
    "where",
    [
        "The best test against shuffled batches",
        "docs/theory/shuffling.md, section 9 (Shuffled batches)",
        "docs/theory/shuffling.md, section 10 (Shuffled batches without a remainder)",
        "docs/theory/nowhere.md, section 'Odometer'",
        "docs/theory/shuffling.md, Theorem 5.1 (last batch kept)",
        "docs/theory/shuffling.md, Theorem 5.1 (remainder dropped) and Theorem 5.9 (last batch kept)",
        "docs/theory/shuffling.md, Theorem 8.6",
        "calipers.scope, nothing_of_that_name",
    ],
)
def test_a_place_that_is_not_there_is_noticed(where: str) -> None:
    """A title without a page, half a heading, another number, no page, another name or none."""
    assert not is_cited_rightly(where)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_of_ours_that_a_page_names_is_there(page: Path) -> None:
    """`tests/pld/test_pool.py`, `pld/core/pmf.py:split`: in the repository, or in one of the two packages."""
    text = FENCE.sub("", page.read_text("utf-8"))
    named = re.findall(r"`((?:[\w.-]+/)+[a-z0-9_]+\.py)(?::\w+)?`", text)
    places = (ROOT, ROOT / "src", ROOT / "src" / "calipers")
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []
