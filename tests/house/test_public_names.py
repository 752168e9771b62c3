"""The facade: every public name exists, is documented, and the examples in docstrings are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import calipers

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "calipers"


def module_name(path: Path) -> str:
    """The import name of a file under src."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


WITH_EXAMPLES = [module_name(path) for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text("utf-8")]
WITH_ALL = [
    module_name(path)
    for path in sorted(SOURCE.rglob("*.py"))
    if any(isinstance(n, ast.Name) and n.id == "__all__" for n in ast.walk(ast.parse(path.read_text("utf-8"))))
]


@pytest.mark.parametrize("name", calipers.__all__)
def test_public_names_exist_and_are_documented(name: str) -> None:
    """What the facade promises is there, with a docstring where the language allows one."""
    thing = getattr(calipers, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert inspect.getdoc(thing)


@pytest.mark.parametrize("name", WITH_ALL)
def test_all_names_only_what_exists(name: str) -> None:
    """`from module import *` works for every module that states its public names."""
    module = importlib.import_module(name)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    """The doctests of every module pass, and there is at least one where `>>>` was written."""
    failed, attempted = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0
    assert attempted > 0


def test_one_version() -> None:
    """The facade, CITATION.cff and the newest heading of CHANGELOG.md agree."""
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), flags=re.M)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.M)
    assert cited
    assert newest
    assert cited[1] == newest[1] == calipers.__version__
