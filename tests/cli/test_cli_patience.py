"""Waiting at a terminal: a line after two seconds, none where nobody looks, none left behind."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from calipers.cli import patience as module
from calipers.cli.patience import counting, patience


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_computation_says_how_long_it_has_been_running(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(module, "_AFTER", 0.05)
    with patience("measuring"):
        time.sleep(0.3)
    assert "measuring ... 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_short_ones_and_files_stay_silent(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(ValueError, match="passed on"), patience("measuring"):
        raise ValueError("passed on")
    assert stream.getvalue() == ""


def test_a_log_gets_a_line_of_its_own_where_minutes_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setattr(module, "_EVERY", 0.05)
    with patience("calibrating", logged=True) as say:
        say("calibrating: noise multiplier 2")
        time.sleep(0.12)
    assert log.getvalue().splitlines()[0] == "calibrating: noise multiplier 2 ... 0 s"
    monkeypatch.setattr("sys.stderr", silent := io.StringIO())
    with patience("measuring"):
        time.sleep(0.12)
    assert silent.getvalue() == ""


def test_what_is_counted_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(module, "_AFTER", 0.05)
    with counting("trials") as progress:
        progress(1_500, 10_000)
        time.sleep(0.3)
    assert "trials: 1,500 of 10,000 ... 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_rest_takes_as_long_as_the_pace_says_and_what_was_resumed_is_no_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taken up at step 500, 100 steps in 20 s: 400 more take 80 s."""
    said: list[str] = []

    @contextmanager
    def told(doing: str) -> Iterator[Callable[[str], None]]:
        yield said.append

    monkeypatch.setattr(module, "patience", told)
    clock = iter((0.0, 0.0, 20.0, 20.0))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with counting("training") as progress:
        progress(500, 1_000)
        progress(600, 1_000)
    assert said == ["training: 500 of 1,000", "training: 600 of 1,000, about 80 s left"]
