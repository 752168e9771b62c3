"""How objects show themselves: `print(m)`, the rich display of a notebook, and JSON.

What a measurement looks like is decided in `calipers.reports`, floors above the objects themselves. So they name that
room here, by its name only: it is loaded when somebody looks, and `import calipers` stays light.
"""

from __future__ import annotations

import dataclasses
import enum
from importlib import import_module
from typing import Any, cast

RENDERER = "calipers.reports.notebook"


class NotebookDisplay:
    """What shows itself as a piece of a page in a notebook."""

    def _repr_html_(self) -> str:
        return cast(str, import_module(RENDERER).html(self))


class PrintedDisplay(NotebookDisplay):
    """What also prints as the command line would print it."""

    def __str__(self) -> str:
        return cast(str, import_module(RENDERER).text(self))


def as_record(thing: Any, *left_out: str, **names: str) -> dict[str, object]:
    """The fields of a dataclass as a JSON object, some under other `names`."""
    kept = [field.name for field in dataclasses.fields(thing) if field.name not in left_out]
    return {names.get(name, name): plain(getattr(thing, name)) for name in kept}


def plain(value: Any) -> object:
    """A value as JSON has it: parts by their own `to_dict`, other dataclasses by their fields, tuples as lists."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, enum.Enum):
        return value.value
    return as_record(value) if dataclasses.is_dataclass(value) else value
