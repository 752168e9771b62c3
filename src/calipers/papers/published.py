"""What a paper prints, read from `published.toml` next to its code: one name for each number or table.

Numbers that are compared stand there as text, because "1.3" and "1.30" claim different things; an empty text means that
nothing is printed. An array is read as a tuple, a table as a record with one attribute for each key, or, where its keys
are not all names, as a dictionary; a key that is a number, or several with commas, is read as that.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from types import SimpleNamespace
from typing import Any


def printed_numbers(package: str) -> SimpleNamespace:
    """The printed numbers of the paper whose package this is, each an attribute."""
    text = resources.files(package).joinpath("published.toml").read_text("utf-8")
    return SimpleNamespace(**{name: _read(value) for name, value in tomllib.loads(text).items()})


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    entries = {key: _read(entry) for key, entry in value.items()}
    if all(key.isidentifier() and key.islower() for key in entries):
        return SimpleNamespace(**entries)
    return {_key(key): entry for key, entry in entries.items()}


def _key(text: str) -> str | float | tuple[int, ...]:
    for kind in (int, float, lambda several: tuple(int(part) for part in several.split(","))):
        try:
            found: float | tuple[int, ...] = kind(text)
        except ValueError:
            continue
        return found
    return text
