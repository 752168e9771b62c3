"""Special functions, loaded in half the time.

`scipy.special` copies the whole namespace of numpy for its array interface, and so imports everything that numpy itself
loads only on demand: a Fortran compiler's front end, a test framework, polynomials, masked arrays. And it parses every
docstring of its own, to add a paragraph. Together that was a third of the CPU time of a short command. A command
computes and ends; nothing in it looks for these there.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_UNNEEDED = frozenset({"char", "core", "ctypeslib", "f2py", "ma", "polynomial", "rec", "strings", "testing"})


class _PlainDoc(dict[str, list[str]]):
    """A docstring that is not parsed: sections may be appended to, and are lost; the text comes out as it was."""

    def __init__(self, described: object) -> None:
        super().__init__()
        self._text = getattr(described, "__doc__", None) or ""

    def __missing__(self, section: str) -> list[str]:
        return []

    def __str__(self) -> str:
        # The first line, a signature, is dropped by those who ask.
        return f"\n{self._text}"


def load_special() -> None:
    """Import `scipy.special` without all that; it is still there for whoever imports it."""
    if "scipy.special" not in sys.modules:
        with _uncollected(), _kept_out(), _unparsed():
            import scipy.special  # noqa: F401


@contextmanager
def _uncollected() -> Iterator[None]:
    """What is imported stays until the end: looking for garbage among it, again and again, is time lost."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


@contextmanager
def _kept_out() -> Iterator[None]:
    """Within the block numpy does not list the parts that are not needed, so that copying it leaves them alone."""
    import numpy as np

    listed, directory = np.__all__, np.__dir__
    np.__all__ = [name for name in listed if name not in _UNNEEDED]
    np.__dir__ = lambda: [name for name in directory() if name not in _UNNEEDED]  # type: ignore[method-assign]
    try:
        yield
    finally:
        np.__all__, np.__dir__ = listed, directory  # type: ignore[method-assign]


@contextmanager
def _unparsed() -> Iterator[None]:
    """Within the block scipy takes its docstrings as they are; other releases may parse them elsewhere."""
    parser = _docstring_parser()
    parsed = getattr(parser, "FunctionDoc", None)
    if parser is None or parsed is None:
        yield
        return
    vars(parser)["FunctionDoc"] = _PlainDoc
    try:
        yield
    finally:
        vars(parser)["FunctionDoc"] = parsed


def _docstring_parser() -> ModuleType | None:
    try:
        return importlib.import_module("scipy._lib._docscrape")
    except ImportError:
        return None
