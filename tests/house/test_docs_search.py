"""Whoever searches the documentation for a word of the field finds a page about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    page: " ".join(re.sub(r"[*_`]", "", page.read_text("utf-8")).lower().split())
    for page in DOCS.rglob("*.md")
    if "generated" not in page.parts
}
GLOSSARY = PAGES[DOCS / "glossary.md"]

TERMS = [
    "privacy loss distribution",
    "hockey-stick divergence",
    "dominating pair",
    "privacy profile",
    "group privacy",
    "privacy amplification by shuffling",
    "privacy amplification by subsampling",
    "Poisson subsampling",
    "f-DP",
    "trade-off function",
    "Gaussian differential privacy",
    "Rényi differential privacy",
    "zero-concentrated differential privacy",
    "membership inference advantage",
    "replace-one",
    "bounded DP",
    "unbounded DP",
    "add-or-remove-one",
    "zero-out",
    "balls-and-bins",
    "random allocation",
    "without replacement",
    "DP-FTRL",
    "matrix factorization mechanism",
    "privacy filter",
    "odometer",
    "user-level DP",
    "privacy auditing",
    "noise multiplier",
    "clipping norm",
    "max_grad_norm",
]


@pytest.mark.parametrize("term", TERMS)
def test_the_field_s_words_are_found(term: str) -> None:
    """In the glossary, which the search finds by any of its words."""
    assert re.sub(r"[*_`]", "", term).lower() in GLOSSARY


@pytest.mark.parametrize(
    "term",
    ["privacy loss distribution", "hockey-stick divergence", "dominating pair", "group privacy", "poisson subsampling"],
)
def test_a_page_explains_them(term: str) -> None:
    """Another page than the glossary uses the word too."""
    assert [page for page, text in PAGES.items() if term in text and page.name != "glossary.md"]
