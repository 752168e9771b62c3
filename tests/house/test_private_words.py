"""Texts use the words of the field: `tests/drivers/private_words.py` finds none that only Calipers used."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers import private_words

ROOT = Path(__file__).parents[2]


def test_pages_use_the_words_of_the_field() -> None:
    """README, documentation and its kept tables; the glossary defines the old words in a section of its own."""
    assert list(map(str, private_words.of_pages())) == []


def test_help_uses_the_words_of_the_field() -> None:
    """Of the program and of every command."""
    assert list(map(str, private_words.of_help())) == []


@pytest.mark.slow
def test_the_reference_uses_the_words_of_the_field() -> None:
    """The docstrings that the page about Python shows."""
    assert list(map(str, private_words.of_reference())) == []


@pytest.mark.slow
def test_messages_use_the_words_of_the_field() -> None:
    """Every sentence in the sources and their data files: refusals, notes, reports, the explorer, statements."""
    assert list(map(str, private_words.of_messages())) == []


@pytest.mark.slow
def test_reports_use_the_words_of_the_field() -> None:
    """What is put together from several pieces: terminal, HTML and Markdown of four kinds of measurements."""
    assert list(map(str, private_words.of_reports())) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The upper jaw is a proof.", ["jaw"]),
        ("Options beside a file; besides, `beside` is a key.", ["beside"]),
        ("whoever is told which batches", ["told"]),
        ("records left\nover by the loader", ["left\nover"]),
        ("epochs that leave nothing over", ["leave nothing over"]),
        ("the bracket is closed to 0.1 %", ["bracket is closed"]),
        ("The usual claim and the usual accounting", ["usual claim", "usual accounting"]),
        ("An UPPER law, by the law of large numbers, of calipers.pld", ["law"]),
        ("what licenses the numbers (Apache License)", ["licenses"]),
        ("data collection exposure, and an exposure", ["exposure"]),
        ("upper bound, lower bound, threshold, remainder, allocated, revealed", []),
    ],
)
def test_private_words_are_found_in_their_sense(text: str, words: list[str]) -> None:
    """Whole words, broken by a line or not; not what is code, and not the field's own use of a word."""
    assert sorted(found.word for found in private_words.found_in(text, "here")) == sorted(words)


def test_the_glossary_defines_the_old_words_and_nothing_else_is_hidden(tmp_path: Path) -> None:
    """Only its last section is not searched."""
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    assert private_words.DEFINED in text
    assert any(private_words.found_in(text, "glossary"))
    assert text.index(private_words.DEFINED) > 0.75 * len(text)
