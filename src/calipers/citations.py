"""The registry of sources and statements behind Calipers' numbers.

They are data (`citations.json`): for every source who wrote it, and of every statement the place and what it says.
Every function that returns a published number is decorated with `implements("source:place")`; `Evidence`, the docs, the
reports and the tests all read this one registry.

>>> statement("gomez2025:eq21").where
'Equation (21), Proposition C.1'
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from calipers.errors import InputError

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Source:
    """A paper or a piece of software, as one would cite it."""

    key: str
    authors: str
    title: str
    year: int
    where: str

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.where}."


@dataclass(frozen=True)
class Statement:
    """One numbered statement of a source: `key` is 'source:place'."""

    key: str
    source: Source
    where: str
    says: str

    def __str__(self) -> str:
        return f"{self.source.authors} {self.source.year}, {self.where}"


_RECORDS = json.loads(Path(__file__).with_name("citations.json").read_text("utf-8"))

_NAMED = ("authors", "title", "year", "where")
SOURCES = {key: Source(key, *(record[name] for name in _NAMED)) for key, record in _RECORDS.items()}
STATEMENTS = {
    f"{key}:{place}": Statement(f"{key}:{place}", SOURCES[key], where, says)
    for key, record in _RECORDS.items()
    for place, (where, says) in record["statements"].items()
}
IMPLEMENTATIONS: dict[str, list[str]] = {}


def statement(key: str) -> Statement:
    """The registered statement, or `InputError` naming the key."""
    if key not in STATEMENTS:
        raise InputError(f"No statement {key!r} is registered; see calipers.citations.STATEMENTS.")
    return STATEMENTS[key]


def implements(*keys: str) -> Callable[[F], F]:
    """Mark a function or class as an implementation of registered statements."""

    def mark(thing: F) -> F:
        for key in keys:
            statement(key)
            IMPLEMENTATIONS.setdefault(key, []).append(f"{thing.__module__}.{thing.__qualname__}")
        return thing

    return mark
