"""The registry: complete, durable, and open to further papers."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re

import pytest

from calipers.citations import SOURCES
from calipers.errors import InputError
from calipers.papers import registry, storage
from calipers.papers.items import Data, Item, Picture, Row, Views, printed

EXPECTED = {
    *(f"table-{number}" for number in range(1, 6)),
    *(f"figure-{number}" for number in (1, 2, 4, 5, 6, 7, 8)),
    *("table-2-solved", "headline", "tpr", "topdown", "rule-of-thumb", "rdp-minimum"),
}


def a_picture(figure):
    figure.subplots().plot([0, 1], [1, 0])


OUTCOME = Views(
    (Row("mu", printed("1.57"), 1.566, 1.567), Row("lost", None, 0.5, math.inf, "estimate", "a, note")),
    ("One remark.",),
    (Data("grid", ("x", "y"), [[1, 0.1], [2, math.nan]]),),
    Picture(a_picture),
)


@pytest.fixture
def item(monkeypatch):
    """A small item in the place of all others, which counts how often it is computed."""

    def compute(progress):
        calls.append(progress)
        progress(1, 1)
        return OUTCOME

    calls = []
    small = Item("small", "gomez2025", "A small item", "Table 0", "nothing", compute)
    monkeypatch.setattr(registry, "list_items", lambda: (small,))
    return calls


def test_every_computable_item_of_the_paper_is_there():
    names = [item.name for item in registry.list_items() if item.source == "gomez2025"]
    assert {name.removeprefix("gomez2025-") for name in names} == EXPECTED


def test_items_say_what_they_are():
    """Names are unique and can be file names; source, title, place, purpose and cost are filled in."""
    items = registry.list_items()
    assert len({item.name for item in items}) == len(items)
    for item in items:
        assert re.fullmatch(r"[a-z0-9-]+", item.name)
        assert item.name.startswith(f"{item.source}-")
        assert item.source in SOURCES
        assert item.cost in ("quick", "slow")
        assert all((item.title, item.place, item.reproduces))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("nonsense", "--list"),
        ("", "--list"),
        ("gomez2025-table-6", "did you mean .*gomez2025-table-3"),
        ("../gomez2025-table-3", "did you mean .*gomez2025-table-3"),
    ],
)
def test_unknown_names_are_refused_with_those_most_like_them(name, remedy, tmp_path):
    for ask in (registry.reproduce, registry.load):
        with pytest.raises(InputError, match=remedy):
            ask(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_reproduce_writes_everything_and_load_reads_it_back(item, tmp_path):
    seen = []
    files = registry.reproduce("small", tmp_path / "new" / "folder", lambda *state: seen.append(state))
    assert [path.name for path in files] == ["small.csv", "small-grid.csv", "small.png", "small.svg", "small.json"]
    assert seen == [(1, 1)]
    result = registry.load("small", tmp_path / "new" / "folder")
    assert result.rows == OUTCOME.rows
    assert result.remarks == OUTCOME.remarks
    assert list(result.files) == files
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}
    rows = list(csv.DictReader(io.StringIO(files[0].read_text(encoding="utf-8"))))
    assert [row["verdict"] for row in rows] == ["agrees", "not printed"]
    assert float(rows[0]["difference"]) == pytest.approx(-0.0035)
    assert (rows[1]["upper"], rows[1]["note"]) == ("inf", "a, note")
    assert json.loads(files[-1].read_text(encoding="utf-8"))["rows"][1]["upper"] == "inf"


def test_finished_means_complete_and_of_this_version(item, tmp_path):
    assert not registry.finished("small", tmp_path)
    *_, svg, result = registry.reproduce("small", tmp_path)
    assert registry.finished("small", tmp_path)
    text = result.read_text(encoding="utf-8")
    record = json.loads(text)
    for damaged in (
        text[:40],
        "[]",
        "null",
        json.dumps(record | {"version": "0.0.0"}),
        json.dumps(record | {"item": "x"}),
    ):
        result.write_text(damaged, encoding="utf-8")
        assert not registry.finished("small", tmp_path)
    result.write_text(text, encoding="utf-8")
    assert registry.finished("small", tmp_path)
    svg.unlink()
    assert not registry.finished("small", tmp_path)


def test_an_interrupted_write_leaves_the_old_file_and_no_result(item, tmp_path, monkeypatch):
    """A result file exists only after all others; a file that was there stays whole."""
    (tmp_path / "small.csv").write_text("old", encoding="utf-8")

    def interrupted(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        registry.reproduce("small", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["small.csv"]
    assert (tmp_path / "small.csv").read_text(encoding="utf-8") == "old"


def test_drawing_touches_no_global_state():
    import matplotlib

    before = dict(matplotlib.rcParams)
    pictures = storage.rendered(Picture(a_picture))
    assert dict(matplotlib.rcParams) == before
    assert pictures["png"].startswith(b"\x89PNG")
    assert b"<svg" in pictures["svg"]
