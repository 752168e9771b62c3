"""The driver that fuzzes the command line sees what it looks for, and some of its cases pass; see `make fuzz`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import click
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from drivers import fuzz_checkpoints, fuzz_cli, fuzz_files, many

from calipers.cli import main

FINE = {"seconds": 1.0, "megabytes": 200.0, "outcome": 0, "said": "", "printed": 10, "nan": False, "words": ["measure"]}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, ""),
        ({"outcome": 2, "printed": 0, "said": "Error: no."}, ""),
        ({"outcome": 70}, "status 70"),
        ({"outcome": "killed"}, "status killed"),
        ({"seconds": 31.0}, "31 s"),
        ({"megabytes": 1001.0}, "1001 MB"),
        ({"said": "Traceback (most"}, "Traceback"),
        ({"said": "x.py:1: RuntimeWarning: overflow"}, "Warning"),
        ({"outcome": 1, "said": "Error: no."}, "a refusal"),
        ({"outcome": 1, "printed": 0}, "a refusal"),
        ({"nan": True}, "nan"),
        ({"outcome": "hung"}, "status hung"),
        ({"outcome": "skipped", "skipped": "torch"}, ""),
    ],
)
def test_what_is_bad(found: dict[str, object], why: str) -> None:
    said = fuzz_cli.why_bad(FINE | found)
    assert why in said
    assert bool(why) == bool(said)


def test_cases_are_the_same_whoever_draws_them(tmp_path: Path) -> None:
    kinds = tuple(one for one in fuzz_cli.KINDS if one[0] != "checkpoint")
    first, again = ([fuzz_cli.made(7, number, tmp_path, kinds) for number in range(40)] for _ in range(2))
    assert first == again
    assert len({kind for kind, _ in first}) > 6


def test_a_command_that_raises_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("theorem", context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def raises(words: tuple[str, ...]) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(main, "get_command", lambda ctx, name: raises)
    found = many.alone(fuzz_cli.asked, (1, 0, "theorem"))
    assert fuzz_cli.why_bad(found) == "status 70"
    assert "Calipers failed (KeyError: 'lost')" in found["said"]


def _dies_at_two(number: int) -> many.Record:
    if number == 2:
        os._exit(9)
    return {"kind": "odd" if number % 2 else "even", "outcome": number % 3, "skipped": "flint" if number == 4 else ""}


def test_several_at_a_time_are_all_asked_once_and_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers 0 to 6, three processes at a time; the one that dies is bad, and the exit status says so."""
    log = tmp_path / "log.jsonl"
    ended = many.drive(_dies_at_two, range(7), log, lambda found: str(found["outcome"] == "killed" or ""), jobs=3)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(line["about"] for line in lines) == list(range(7))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended == 1
    assert (said["runs"], said["bad"], said["skipped"]) == (7, 1, {"flint": 1})
    assert said["kinds"] == {"even": 3, "odd": 3}
    assert said["outcomes"] == {"0": 3, "1": 2, "2": 1, "killed": 1}
    assert said["slowest"]["about"] == 2


def test_a_question_that_waits_forever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no time of a core, so no limit of the system ends it."""
    monkeypatch.setattr(many, "_PATIENCE", 0.001)
    assert many.alone(lambda _: {"outcome": signal.pause()}, 0)["outcome"] == "hung"


def test_cases_of_a_library_that_is_missing_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_checkpoints, "HAS_TORCH", False)
    found = many.alone(fuzz_cli.asked, (1, 0, "checkpoint"))
    assert (found["outcome"], found["skipped"], fuzz_cli.why_bad(found)) == ("skipped", "torch", "")
    monkeypatch.setitem(sys.modules, "flint", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = many.alone(fuzz_cli.asked, (1, 0, "certificate"))
    assert (found["outcome"], found["skipped"], fuzz_cli.why_bad(found)) == (2, "flint", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [name for name, _ in fuzz_cli.KINDS if name not in ("checkpoint", "certify", "calibrate")]
)
def test_some_cases_of_every_kind(kind: str) -> None:
    """Seed 1, numbers 0 to 4."""
    fuzz_cli.honest_receipt()
    for number in range(5):
        found = many.alone(fuzz_cli.asked, (1, number, kind))
        assert fuzz_cli.why_bad(found) == "", found


def test_forged_documents_are_sealed() -> None:
    import random

    from calipers.provenance import is_intact

    forged = [fuzz_files.receipt(fuzz_cli.honest_receipt(), random.Random(number)) for number in range(30)]
    read = []
    for one in forged:
        try:
            read.append(json.loads(one))
        except ValueError:
            continue
    assert sum(is_intact(one) for one in read) > 15
