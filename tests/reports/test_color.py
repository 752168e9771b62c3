"""Colour is for terminals that want it."""

from __future__ import annotations

import pytest

from calipers.reports.document import Document, Notice, Section
from calipers.reports.terminal import to_text

BOLD_RED = Document("measure", "", "", "", (), (Notice("refuted"),), ())
RED = "\x1b[1;31m"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_terminal_gets_colour():
    assert RED in to_text(BOLD_RED, terminal=True)


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in to_text(BOLD_RED, terminal=True)


def test_a_pipe_gets_plain_text_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert to_text(BOLD_RED).strip() == "! refuted"


def test_markup_in_a_note_is_text():
    document = Document("measure", "", "", "[bold]q[/bold] :smile:", (), (), (Section("", ()),))
    assert to_text(document) == "[bold]q[/bold] :smile:\n"
