"""The coverage: nothing without a verdict, nothing named that does not exist, nothing numbered left out."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import pytest

from calipers.citations import STATEMENTS
from calipers.errors import InputError
from calipers.papers import coverage as module
from calipers.papers.coverage import NAMES_WHAT_COMPUTES, CoverageVerdict, by_paper, coverage, how_to_run
from calipers.papers.registry import PAPERS, list_items
from calipers.theorems import THEOREMS

ITEMS = {item.name: item for item in list_items()}
PAPERS_FOLDER = Path(os.environ.get("CALIPERS_PAPERS_DIR", Path(__file__).parents[3] / "shared" / "papers"))

# How a numbered thing begins a line of the papers' texts, and words by which to tell the texts apart.
HEADING = re.compile(
    r"^[*#_ ]*(Theorem|Lemma|Proposition|Corollary|Definition|Conjecture|Assumption|Property|Algorithm|Table|Figure)"
    r"\\?s? ([A-Z]?\.?\d+(?:\.\d+)?)(?=[ .:(\n*]|$)",
    re.MULTILINE,
)
TITLES = {
    "gomez2025": "Gaussian DP for Reporting",
    "chua2024": "How Private are DP-SGD",
    "ertan2026": "Fundamental Limitations of Favorable",
    "vandijk2026": "Trade-off Functions for DP-SGD",
    "wang2026": "Rethinking the Security of DP-SGD",
}

# Everything that carries a number of its own in the papers.
NUMBERED = {
    "gomez2025": {
        "Algorithm": "1 2",
        "Definition": "2.1 2.2 2.3 2.5 2.6 A.1 A.2 A.3 A.4 A.5 A.8 A.11 A.12 C.3",
        "Figure": "1 2 3 4 5 6 7 8",
        "Lemma": "D.1",
        "Proposition": "4.1 6.1 6.2 C.1 C.2",
        "Table": "1 2 3 4 5",
        "Theorem": "2.4 A.6 A.7 A.9 A.10",
    },
    "chua2024": {
        "Algorithm": "1 2 3 4",
        "Conjecture": "3.2 4.3",
        "Definition": "2.1 2.2 2.3",
        "Figure": "1 2 3 4 5 6 7",
        "Lemma": "B.1 B.2",
        "Proposition": "3.1 C.1 C.2 C.3",
        "Theorem": "4.1 4.2",
    },
    "ertan2026": {
        "Assumption": "4.1 4.2",
        "Definition": "3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 5.1 5.2",
        "Figure": "1 2 3 4",
        "Lemma": "5.3 6.2 6.4 E.1 E.2 E.3 F.1",
        "Proposition": "4.3",
        "Table": "1 2 3 4 5 6 7 8 9 10",
        "Theorem": "6.1 6.3",
    },
    "vandijk2026": {
        "Corollary": "5.3",
        "Figure": "1 2 3",
        "Lemma": "D.1 G.5",
        "Proposition": "C.2 C.3 D.2 D.3 D.4 D.5 D.6 D.7 G.1 G.2 G.3 G.4 G.6 G.7",
        "Table": "1",
        "Theorem": "4.1 5.1 5.2 C.1",
    },
    "wang2026": {
        "Algorithm": "1",
        "Corollary": "B.2",
        "Definition": "2.1 2.2 2.3 2.4 2.5 2.7 2.8 2.9 A.1",
        "Figure": "1 2 3 4 5 6 7",
        "Lemma": "2.6 2.10 3.1 3.2 3.3 3.14 3.15 3.16",
        "Property": "1 2 3",
        "Table": "1 2",
        "Theorem": "3.4 3.5 3.6 3.7 3.8 3.9 3.10 3.11 3.12 3.13 A.2 A.3 A.4 A.5 A.6 A.7 B.1",
    },
}


def imported(name: str) -> object:
    """What a dotted name stands for; skips the test where a library that only training needs is absent."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "calipers":
                pytest.skip(f"needs {error.name}")
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found
    return None


def test_every_paper_is_covered_and_every_row_has_a_verdict() -> None:
    """All five papers; each row says what stands there, and either what computes it or why nothing does."""
    assert set(by_paper()) == set(PAPERS)
    places = [(row.source.key, row.place) for row in coverage()]
    assert len(places) == len(set(places))
    for row in coverage():
        assert row.verdict in CoverageVerdict
        assert row.says
        assert row.by if row.verdict in NAMES_WHAT_COMPUTES else row.why, row.place


@pytest.mark.parametrize("row", coverage(), ids=lambda row: f"{row.source.key} {row.place}")
def test_what_a_row_names_exists(row) -> None:
    """Theorems and items by name, everything else by import; a reproduced row names an item of its own paper."""
    for name in row.by:
        if name in THEOREMS or name in ITEMS:
            assert how_to_run(name).endswith(name)
        else:
            assert how_to_run(name) == name
            assert callable(imported(name)), name
    if row.verdict is CoverageVerdict.REPRODUCED:
        assert any(name in ITEMS and ITEMS[name].source == row.source.key for name in row.by)
    if row.verdict is CoverageVerdict.IMPLEMENTED:
        assert any(name not in ITEMS for name in row.by)


def test_every_item_and_every_theorem_of_the_papers_is_named() -> None:
    """Nothing is computed for a paper that its coverage does not mention."""
    named = {name for row in coverage() for name in row.by}
    assert set(ITEMS) - named == set()
    of_papers = {name for name, entry in THEOREMS.items() if entry.statement.partition(":")[0] in PAPERS}
    assert of_papers - named == set()
    assert {key.partition(":")[0] for key in STATEMENTS} > set(PAPERS)


def numbered(paper: str) -> set[str]:
    return {f"{kind} {number}" for kind, numbers in NUMBERED[paper].items() for number in numbers.split()}


@pytest.mark.parametrize("paper", PAPERS)
def test_everything_numbered_has_a_row(paper: str) -> None:
    assert numbered(paper) - {row.place for row in by_paper()[paper]} == set()


@pytest.mark.parametrize("paper", PAPERS)
def test_the_numbers_are_those_of_the_text(paper: str) -> None:
    """Every heading of the paper's text, where it is at hand, is in the list above."""
    texts = [path.read_text("utf-8", errors="replace") for path in sorted(PAPERS_FOLDER.glob("*.txt"))]
    mine = [text for text in texts if TITLES[paper] in text[:2000]]
    if not mine:
        pytest.skip(f"the texts of the papers are not in {PAPERS_FOLDER}")
    found = {f"{kind} {number.rstrip('.')}" for kind, number in HEADING.findall(mine[0])}
    assert len(found) > 20
    assert found <= numbered(paper)
    # What the text sets within a line, or the list would be the regular expression again.
    assert numbered(paper) - found <= {"Algorithm 3", "Proposition C.3"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"by": ""}, "does not say what computes it"),
        ({"verdict": "not computable", "why": ""}, "does not say the reason"),
    ],
)
def test_a_row_without_an_answer_is_refused(change, complaint) -> None:
    line = {"source": "chua2024", "place": "Figure 9", "says": "x", "verdict": "implemented", "by": "a", "why": ""}
    with pytest.raises(InputError, match=complaint):
        module._row(line | change)
    with pytest.raises(ValueError, match="unheard"):
        module._row(line | {"verdict": "unheard"})
    with pytest.raises(InputError, match="neither a theorem"):
        how_to_run("chua-prop-9.9")
