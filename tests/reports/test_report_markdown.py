"""A report in Markdown reads as written, in CommonMark with tables."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from calipers.reports.document import Code, Document, Prose, Section, Table, visible
from calipers.reports.markdown import plain, to_markdown

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def texts(markdown: str) -> list[str]:
    """The plain text of every inline part; anything but text inside one is a mark that was obeyed."""
    found = []
    for token in PARSER.parse(markdown):
        if token.type == "inline":
            assert {child.type for child in token.children} <= {"text", "softbreak"}, token.content
            found.append("".join(child.content for child in token.children))
    return found


@given(text=st.text(min_size=1))
@example(text="- item")
@example(text="1. item")
@example(text="12) item")
@example(text="---")
@example(text="# head")
@example(text="a | b")
@example(text="*x* _y_ `z` [a](b) <i> &amp; ~~s~~ \\")
def test_text_is_shown_and_never_obeyed(text):
    """Escaped text is one paragraph that reads as the text with its blanks collapsed."""
    expected = " ".join(visible(text).split())
    parsed = PARSER.parse(plain(text))
    assert [token.type for token in parsed] == (["paragraph_open", "inline", "paragraph_close"] if expected else [])
    assert texts(plain(text)) == ([expected] if expected else [])


@given(text=st.text(min_size=1))
@example(text="a | b\n| c")
@example(text="```\nx")
def test_cells_and_code_keep_what_they_hold(text):
    """A name with bars or backticks stays in its cell, and code keeps every letter."""
    table = Table("t", (text, "second"), ((text, "value"),))
    document = Document("measure", "t", "s", "v", (), (), (Section("h", (table, Code(text), Prose("end"))),))
    tokens = PARSER.parse(to_markdown(document))
    assert [token.type for token in tokens].count("td_open") == 2
    assert [token.type for token in tokens].count("fence") == 1
    (fence,) = (token for token in tokens if token.type == "fence")
    assert fence.content.rstrip() == visible(text).rstrip().replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("kind", ["measure", "open", "train", "calibrate", "compare"])
def test_a_report_fits_into_a_model_card(reports, kind):
    """Headings below the first level, the verdict in bold, every table as wide as its head."""
    text = to_markdown(reports[kind].document)
    assert text.startswith("## ")
    prose = "".join(text.split("```")[::2])  # a run file's comments begin like headings
    assert "\n# " not in prose
    tokens = PARSER.parse(text)
    bold = [t for t in tokens[:9] if t.type == "inline" and "strong_open" in [child.type for child in t.children]]
    (verdict,) = bold
    assert visible(reports[kind].document.verdict) in "".join(child.content for child in verdict.children)
    width, rows = 0, []
    for token in tokens:
        width = 0 if token.type == "thead_open" else width + (token.type == "th_open")
        if token.type == "tr_open":
            rows.append(0)
        elif token.type == "td_open":
            rows[-1] += 1
        elif token.type == "tr_close" and rows[-1]:
            assert rows[-1] == width
    assert "calipers 0." in text.lower()


def test_the_same_numbers_give_the_same_text(reports):
    assert to_markdown(reports["open"].document) == to_markdown(reports["open"].document)
