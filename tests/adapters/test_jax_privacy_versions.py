"""A library that is there and cannot be imported, or has moved its plans, is named with its version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from calipers.adapters.jax_privacy import library_module, run_of
from calipers.errors import MissingExtraError, UnsupportedError

BROKEN = {
    "a name that another library lacks": (
        "import math\n__version__ = '9.1'\nmath.nothing\n",
        "AttributeError: module 'math'",
    ),
    "a module that another library lacks": (
        "__version__ = '9.1'\nimport no_such_library\n",
        "No module named 'no_such",
    ),
    "an import that fails": ("__version__ = '9.1'\nfrom math import nothing\n", "cannot import name 'nothing'"),
}


def written(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "jax_privacy"
    (package / "experimental").mkdir(parents=True)
    (package / "__init__.py").write_text(text, encoding="utf-8")
    (package / "experimental" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "jax_privacy-9.1.dist-info").mkdir()
    (folder / "jax_privacy-9.1.dist-info" / "METADATA").write_text(
        "Name: jax_privacy\nVersion: 9.1\n", encoding="utf-8"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "jax_privacy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(folder)


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> object:
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "jax_privacy"]:
        del sys.modules[name]


@pytest.mark.parametrize("case", BROKEN)
def test_an_error_inside_the_library_is_not_its_absence(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version and what went wrong, instead of advice to install what is installed."""
    text, said = BROKEN[case]
    written(tmp_path, text, monkeypatch)
    with pytest.raises(UnsupportedError, match=r"jax_privacy 9\.1 is installed, but importing") as refusal:
        library_module("jax_privacy")
    assert said in str(refusal.value)
    assert "pip install" not in str(refusal.value)


def test_plans_that_moved_again_are_refused_with_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that keeps them elsewhere is not taken for a missing one."""
    written(tmp_path, "__version__ = '9.1'\n", monkeypatch)
    with pytest.raises(UnsupportedError, match=r"JAX-Privacy 9\.1 is installed, and has no execution plans"):
        run_of(object())


def test_an_absent_library_is_still_called_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line to type."""
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[jax-privacy\]'"):
        library_module("jax_privacy")
