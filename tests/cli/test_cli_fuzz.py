"""The driver that fuzzes the command line sees what it looks for, and some of its cases pass; see `make fuzz`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from drivers import fuzz_cli, fuzz_files, many

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
    import json
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
