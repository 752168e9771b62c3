"""Libraries that not everybody has installed, imported when they are needed."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calipers.errors import MissingExtraError, UnsupportedError


def library(name: str, missing: str, known: str = "") -> Any:
    """The module called `name`.

    A library that is not there is a `MissingExtraError` that says `missing`, the line to type. One that is there and
    cannot be imported, or lacks the module, is an `UnsupportedError` that names its version, what went wrong, and the
    releases that are `known`.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever goes wrong inside a library while it is imported
        from importlib.util import find_spec

        installed = name.partition(".")[0]
        if isinstance(error, ImportError) and find_spec(installed) is None:
            raise MissingExtraError(hint(missing)) from error
        said = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(". ")
        raise UnsupportedError(
            f"{installed} {_version(installed)} is installed, but importing {name} fails: {said}.{known}"
        ) from error


def hint(words: str) -> str:
    """Words with "pip install '.[extra]'", the line for a clone; in an installed package it names calipers instead."""
    if (Path(__file__).parents[2] / "pyproject.toml").is_file():
        return words
    return re.sub(r"'\.(\[[\w-]+\])'( in (the|a) clone( of Calipers)?)?", r"'calipers\1'", words)


def on_demand(module: str, name: str, behavior: type[Any], base: Callable[[], Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module with the class `name`: `behavior`, derived from a class of a library.

    Importing `calipers.callbacks.lightning` must not import Lightning; `from calipers.callbacks.lightning import
    PrivacyBudget` does, since what Lightning is handed must derive from its own class.
    """

    @functools.cache
    def derived() -> type[Any]:
        return type(name, (behavior, base()), {"__doc__": behavior.__doc__, "__module__": module})

    def attribute(asked: str) -> Any:
        if asked == name:
            return derived()
        raise AttributeError(f"module {module!r} has no attribute {asked!r}")

    return attribute


def _version(installed: str) -> str:
    from importlib import metadata

    loaded = sys.modules.get(installed)
    if loaded is not None and hasattr(loaded, "__version__"):
        return str(loaded.__version__)
    try:
        return metadata.version(installed)
    except metadata.PackageNotFoundError:
        return "of unknown version"
