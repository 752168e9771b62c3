"""The table of brackets that guards changes of the engine, and the figures of the source."""

from __future__ import annotations

import ast
import json
import re

import pytest
from drivers.house_figures import INNER, ROOT, SOURCE, Module, circles, modules, repeated_types
from drivers.reference_brackets import DELTAS, RUNS, TARGET, change, name_of

from calipers.samplers import SAMPLERS

STORED = json.loads(TARGET.read_text("utf-8"))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([1.0, 1.001], [1.0, 1.001], ""),
        ([1.0, 1.001], [0.997, 1.004], ""),
        ([1.0, 1.001], [1.0, 1.007], "wider"),
        ([1.0, 1.001], [0.99, 1.001], "wider"),
        ([1.0, 1.001], [1.002, 1.003], "CROSSES"),
        ([1.0, 1.001], [0.9, 0.99], "CROSSES"),
        ([1.0, 1.001], [1.001, 1.0], "crossed in itself"),
        ([1.0, 1.001], None, "was"),
    ],
)
def test_what_is_for_the_worse_is_named(before: list[float], after: list[float] | None, said: str) -> None:
    """Half a percent of the upper bound may be lost on either side; no answer may deny a stored one."""
    found = change(before, after)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_the_stored_brackets_are_those_of_the_listed_runs() -> None:
    """Every sampler and adjacency, with all questions answered or a refusal; each bracket is one."""
    assert [entry["run"] for entry in STORED] == RUNS
    assert len({name_of(run) for run in RUNS}) == len(RUNS) >= 100
    assert {run.get("sampler", "poisson") for run in RUNS} == set(SAMPLERS)
    for entry in STORED:
        found = entry["answers"]
        assert "raised" in found or len(found) == len(DELTAS) + 2
        assert all(0.0 <= low <= high for low, high in (pair for pair in found.values() if isinstance(pair, list)))


def test_the_figures_count_what_they_say() -> None:
    """Constants in capitals, one by one; modules that import each other; types defined twice."""
    listed = {module.name: module for module in modules()}
    assert {"calipers.bracket", "calipers.pld.core.pmf"} <= set(listed)
    first, second = (_module(name, text) for name, text in (("a", FIRST), ("b", SECOND)))
    assert first.constants() == ["ONE", "_TWO", "_THREE", "TABLE"]
    assert circles([first, second]) == ["calipers.a <-> calipers.b"]
    assert list(repeated_types([first, second])) == ["Thing"]
    assert first.decorated(("lru_cache",)) == 1
    assert first.mutable() == ["_seen = {}"]


def test_no_two_files_of_the_inner_rooms_import_each_other() -> None:
    """Not even for types."""
    assert circles([module for module in modules() if module.room in INNER]) == []


FOLDERS = sorted({str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_what_is_in_it(folder: str) -> None:
    """Its README names files that exist."""
    text = (SOURCE / folder / "README.md").read_text("utf-8")
    named = [name for name in re.findall(r"`([\w/]+\.py)`", text) if not name.startswith("test")]
    assert len(named) >= min(3, len(list((SOURCE / folder).glob("[a-z]*.py"))))
    assert [name for name in named if not any((base / name).exists() for base in (SOURCE / folder, ROOT))] == []


FIRST = """
from functools import lru_cache
from calipers.b import Thing
ONE = 1.0
_TWO, _THREE = 2, 3
TABLE = {"a": 1}
NAME = "x"
_seen = {}
class _Thing: ...
@lru_cache(maxsize=3)
def f(): ...
"""
SECOND = "from calipers import a\nclass Thing: ...\n"


def _module(name: str, text: str) -> Module:
    made = Module(SOURCE / "bracket.py")
    made.name, made.tree = f"calipers.{name}", ast.parse(text)
    return made
