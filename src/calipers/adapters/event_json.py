"""dp_accounting events as JSON: the class name and the fields, nested as the event is.

dp_accounting has no file format of its own; its named tuples hold a module name, a class name and the fields, and
that is what is written here:

    {"class_name": "SelfComposedDpEvent", "count": 1000,
     "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 20.0}}

Only classes of the installed `dp_accounting.dp_event` are built, whatever module a file names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calipers.errors import InputError, UnsupportedError
from calipers.extras import library as imported
from calipers.reading import read_bounded

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_MOST_BYTES = 50_000_000
_MODULE = "dp_accounting.dp_event"


def library() -> Any:
    """The module dp_accounting, or `MissingExtraError` with the line to type."""
    return imported(
        "dp_accounting",
        "Reading and writing events needs the library dp-accounting: pip install '.[dp-accounting]' in the clone.",
    )


def load_event(path: str | os.PathLike[str]) -> DpEvent:
    """The event a JSON file holds, or `InputError` naming the file."""
    name = os.fspath(path)
    try:
        return event_from_json(read_bounded(name, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read the event file {name}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not a text file in UTF-8; an event file is JSON.") from error
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def event_from_json(text: str) -> DpEvent:
    """The event that a JSON text describes."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"This is not valid JSON: {' '.join(str(error).split())}.") from error
    return _event(record, library())


def event_to_json(event: DpEvent) -> str:
    """The event as JSON; `event_from_json` gives back an equal one."""
    return json.dumps(_record(event), indent=2, allow_nan=True)


def _event(record: object, found: Any) -> Any:
    if not isinstance(record, Mapping) or not isinstance(record.get("class_name"), str):
        raise InputError("Expected an object with class_name, the name of a dp_accounting event, and its fields.")
    if record.get("module_name", _MODULE) != _MODULE:
        raise InputError(f"Expected an event of {_MODULE}, got one of {record['module_name']}.")
    name = record["class_name"]
    kind = getattr(found.dp_event, name, None)
    if not (isinstance(kind, type) and issubclass(kind, found.DpEvent)):
        raise UnsupportedError(f"The installed dp_accounting has no event {name!r}.")
    fields = {key: _value(value, found) for key, value in record.items() if key not in ("class_name", "module_name")}
    try:
        return kind(**fields)
    except TypeError as error:
        raise InputError(f"{name} does not take these fields: {error}.") from error


def _value(value: object, found: Any) -> object:
    if isinstance(value, Mapping):
        return _event(value, found)
    return [_value(item, found) for item in value] if isinstance(value, list) else value


def _record(value: Any) -> object:
    if hasattr(value, "to_named_tuple"):
        found = value.to_named_tuple()._asdict()
        return {"class_name": found.pop("class_name")} | {
            key: _record(getattr(value, key)) for key in found if key != "module_name"
        }
    if isinstance(value, list | tuple):
        return [_record(item) for item in value]
    return value.item() if hasattr(value, "item") else value
