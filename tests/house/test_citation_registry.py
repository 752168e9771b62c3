"""Every number's licence is registered, and every registered implementation can be found.

All of src is imported once, in a fresh interpreter, so that every `@implements` has run.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "calipers"

# Prints the registry as JSON. Modules whose optional library is absent are listed, not hidden.
PROGRAM = """
import importlib, json, pkgutil
import calipers
from calipers import citations
absent = []
for info in pkgutil.walk_packages(calipers.__path__, "calipers."):
    if info.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(info.name)
    except ImportError as error:
        absent.append([info.name, getattr(error, "name", None) or str(error)])
unresolved = []
for key, places in citations.IMPLEMENTATIONS.items():
    for place in places:
        parts = place.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:cut]))
            except ImportError:
                continue
            for name in parts[cut:]:
                found = getattr(found, name, None)
            break
        else:
            found = None
        if not callable(found):
            unresolved.append([key, place])
print(json.dumps({
    "sources": sorted(citations.SOURCES), "statements": sorted(citations.STATEMENTS),
    "implementations": citations.IMPLEMENTATIONS, "unresolved": unresolved, "absent": absent,
}))
"""


class Registry(TypedDict):
    sources: list[str]
    statements: list[str]
    implementations: dict[str, list[str]]
    unresolved: list[list[str]]
    absent: list[list[str]]


@pytest.fixture(scope="module")
def registry() -> Registry:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    loaded: Registry = json.loads(result.stdout.splitlines()[-1])
    return loaded


def statement_keys(tree: ast.AST, sources: list[str]) -> set[str]:
    """Every string of the form 'source:place' whose source is registered."""
    shape = re.compile(rf"({'|'.join(map(re.escape, sources))}):\S+")
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and shape.fullmatch(node.value)
    }


def decorated_keys(tree: ast.AST) -> set[str]:
    """Every literal key given to `implements`."""
    return {
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "implements"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def test_only_rooms_facing_optional_libraries_may_fail_to_import(registry: Registry) -> None:
    """Every module imports with the core dependencies alone, unless it faces an optional library."""
    facing = ("calipers.adapters.", "calipers.explorer.", "calipers.training.")
    assert [entry for entry in registry["absent"] if not entry[0].startswith(facing)] == []


def test_every_key_written_in_the_source_is_registered(registry: Registry) -> None:
    """`implements`, `Evidence.of` and `statement` name statements that exist."""
    unknown = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        keys = statement_keys(tree, registry["sources"]) | decorated_keys(tree)
        if missing := keys - set(registry["statements"]):
            unknown[str(path.relative_to(SOURCE))] = sorted(missing)
    assert unknown == {}


def test_every_implementation_can_be_found(registry: Registry) -> None:
    """What the registry names is a callable that can be imported by that name, and there is something to name."""
    assert registry["unresolved"] == []
    assert registry["implementations"]


def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON whose keys are said once."""
    keys = [key for key, _ in pairs]
    assert sorted(set(keys)) == sorted(keys)
    return dict(pairs)


def test_no_source_or_statement_is_registered_twice() -> None:
    """Of two entries with one key JSON would silently keep the last."""
    with pytest.raises(AssertionError):
        json.loads('{"eq1": ["a", "b"], "eq1": ["a", "c"]}', object_pairs_hook=distinct)
    records = json.loads((SOURCE / "citations.json").read_text("utf-8"), object_pairs_hook=distinct)
    assert all(where and says for record in records.values() for where, says in record["statements"].values())


def test_the_key_search_sees_both_ways_to_write_a_key() -> None:
    """A decorator with an unknown source and a bare key of a known one are both found; prose is not."""
    tree = ast.parse("@implements('nobody1999:eq1')\ndef f():\n    return Evidence.of(k, 'dong2022:nowhere')")
    assert decorated_keys(tree) == {"nobody1999:eq1"}
    assert statement_keys(tree, ["dong2022"]) == {"dong2022:nowhere"}
    assert statement_keys(ast.parse("x = 'dong2022: a remark'"), ["dong2022"]) == set()
