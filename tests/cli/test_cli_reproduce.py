"""`calipers reproduce`: lists, computes, resumes, refuses, and survives interruption."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.errors import CertificationError
from calipers.papers import registry
from calipers.papers.items import Item, Row, Views, printed


def an_item(name, compute, cost="quick"):
    return Item(name, "gomez2025", f"Title of {name}", "Table 0", "nothing", compute, cost)


@pytest.fixture
def computed(monkeypatch):
    """Two items that work and one that cannot be certified; the list of those computed."""
    calls = []

    def works(name, text, lower, upper):
        def compute(progress):
            calls.append(name)
            progress(1, 2)
            return Views((Row("mu", printed(text), lower, upper),), (f"Remark on {name}.",))

        return an_item(name, compute)

    def fails(progress):
        calls.append("doubtful")
        raise CertificationError("The bounds crossed.")

    items = (
        works("first", "1.57", 1.5661234, 1.5671234),
        an_item("doubtful", fails, "slow"),
        works("last", "1.3", 1.5661234, 1.5671234),
    )
    monkeypatch.setattr(registry, "list_items", lambda: items)
    return calls


def test_list_names_every_item(calipers, computed):
    assert calipers("reproduce", "--list").stdout == (
        "first     quick  Table 0: Title of first\n"
        "doubtful  slow   Table 0: Title of doubtful\n"
        "last      quick  Table 0: Title of last\n"
    )


def test_an_item_prints_its_comparison(calipers, computed, tmp_path):
    """Published value, bracket rounded outward, difference, verdict, remark, files."""
    result = calipers("reproduce", "first", "--output", tmp_path)
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.lstrip().startswith("mu"))
    assert line.split() == ["mu", "1.57", "1.5661", "to", "1.5672", "-0.0034", "agrees"]
    assert "Remark on first." in result.stdout
    assert "first.csv" in result.stdout
    assert "[1/1] first" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.csv", "first.json"]


def test_all_goes_on_after_a_failure_and_remembers_it(calipers, computed, tmp_path):
    result = calipers("reproduce", "--all", "--output", tmp_path)
    assert result.exit_code == 1
    assert computed == ["first", "doubtful", "last"]
    assert "doubtful failed: The bounds crossed." in result.stderr
    assert "Not reproduced: doubtful (1 of 3)" in result.stderr
    assert "differs" in result.stdout
    assert (tmp_path / "last.json").is_file()
    assert not (tmp_path / "doubtful.json").exists()


def test_resume_computes_only_what_is_missing(calipers, computed, tmp_path):
    calipers("reproduce", "first", "--output", tmp_path)
    result = calipers("reproduce", "first", "last", "--output", tmp_path, "--resume")
    assert computed == ["first", "last"]
    assert "first: already finished" in result.stderr
    assert "Remark on first." in result.stdout
    record = json.loads((tmp_path / "first.json").read_text(encoding="utf-8"))
    (tmp_path / "first.json").write_text(json.dumps(record | {"version": "0"}), encoding="utf-8")
    calipers("reproduce", "first", "--output", tmp_path, "--resume")
    assert computed == ["first", "last", "first"]


def test_without_resume_everything_is_computed_again(calipers, computed, tmp_path):
    for _ in range(2):
        calipers("reproduce", "first", "first", "--output", tmp_path)
    assert computed == ["first", "first"]


def test_refusals(refused, computed, tmp_path):
    """Unknown names are told with those most like them, before anything is computed."""
    message = refused("reproduce", "first", "banana", "--output", tmp_path)
    assert "No item is called 'banana'; there are 3. `calipers reproduce --list`" in message
    assert "did you mean doubtful?" in refused("reproduce", "doubtfull", "--output", tmp_path)
    assert computed == []
    for choice in ((), ("--all", "--list"), ("--all", "first"), ("--list", "first")):
        assert "exactly one of" in refused("reproduce", *choice)
    assert "--resume" in refused("reproduce", "--list", "--resume")


def test_a_folder_that_cannot_be_written_is_refused(refused, computed, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "file" in refused("reproduce", "first", "--output", tmp_path / "file")


def test_interruption_keeps_what_is_finished(monkeypatch, computed, tmp_path):
    def interrupted(progress):
        raise KeyboardInterrupt

    items = (*registry.list_items()[:1], an_item("endless", interrupted))
    monkeypatch.setattr(registry, "list_items", lambda: items)
    result = CliRunner().invoke(main, ["reproduce", "--all", "--output", str(tmp_path)])
    assert result.exit_code == 130
    assert "Stopped in endless" in result.stderr
    assert "--resume" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.csv", "first.json"]


def test_coverage_lists_every_row_with_what_computes_it(calipers):
    """Place, verdict and subject on one line; commands, names and reasons below it."""
    from calipers.papers.coverage import coverage

    found = calipers("reproduce", "--coverage")
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    for row in coverage():
        assert any(line.split()[: len(row.place.split())] == row.place.split() and row.says in line for line in lines)
    assert any("calipers theorem chua-prop-3.1" in line for line in lines)
    assert any("calipers reproduce wang2026-figure-5" in line for line in lines)
    conjecture = next(line for line in lines if line.strip().startswith("Conjecture 3.2"))
    assert "false as printed" in conjecture
    assert sum("σ = 2, ε = 1/2" in line for line in lines) == 1


@pytest.mark.parametrize("extra", ["--list", "--all", "first"])
def test_coverage_stands_alone(calipers, computed, extra):
    assert calipers("reproduce", "--coverage", extra).exit_code != 0
    assert calipers("reproduce", "--coverage", "--resume").exit_code != 0
    assert computed == []
