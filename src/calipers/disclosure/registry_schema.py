"""Which keys an entry of the differential-privacy deployments registry has, and what they may hold.

The registry is kept by OpenDP (github.com/opendp/deployments-registry-data) and proposed to be hosted by NIST. Its
schema has no version number; the facts in `registry_schema.json` are those of its commit 3e9c812a of 2026-07-15. A
test writes them as a JSON Schema again, whose fingerprint must be that of the registry's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

REVISION = "3e9c812a (2026-07-15)"
TEXT, TEXTS, NUMBER, NUMBER_OR_TEXT, DATE = "text", "texts", "number", "number or text", "date"
ANYTHING = "anything"
"""What the schema leaves open; here too it is a text."""
# Formulas begin with \\( and end with \\); any other doubled backslash is one escaped twice.
_DOUBLED = re.compile(r"\\\\[^()]")

# A list holds what is allowed, an object further keys, a word names a kind; "*" marks what is required.
SCHEMA: dict[str, object] = json.loads(Path(__file__).with_name("registry_schema.json").read_text("utf-8"))


def complaints(value: object, kind: object = SCHEMA, place: str = "entry") -> Iterator[str]:
    """Where an entry departs from the schema, a sentence each."""
    if isinstance(kind, dict):
        yield from _object(value, kind, place)
    elif isinstance(kind, list):
        if isinstance(value, bool) or value not in kind:
            yield f"{place} is one of {', '.join(map(str, kind))}, got {value!r}."
    elif kind == TEXTS:
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            yield f"{place} is a list of at least one text, got {value!r}."
    elif kind in (NUMBER, NUMBER_OR_TEXT):
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric and not (kind == NUMBER_OR_TEXT and isinstance(value, str)):
            yield f"{place} is a {kind}, got {value!r}."
    elif not isinstance(value, str):
        yield f"{place} is a text, got {value!r}."
    elif kind == DATE and not _is_date(value):
        yield f"{place} is a date as YYYY-MM-DD, got {value!r}."
    elif _DOUBLED.search(value):
        yield f"{place} has two backslashes in a row, which the registry refuses; write formulas with one."


def file_name_complaints(name: str) -> Iterator[str]:
    """The registry's checker looks at the name of the file as well."""
    if not re.fullmatch(r"[a-z0-9_]+\.yaml", name):
        yield f"The registry takes files named with small letters, digits and underscores (my_model.yaml), not {name}."


def _object(value: object, kind: dict[str, object], place: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{place} holds further keys, got {value!r}."
        return
    known = {name.removesuffix("*"): inner for name, inner in kind.items()}
    for name in kind:
        if name.endswith("*") and name.removesuffix("*") not in value:
            yield f"{place} needs {name.removesuffix('*')}."
    for name, inner in value.items():
        if name not in known:
            yield f"{place} knows no {name}."
        else:
            yield from complaints(inner, known[name], f"{place}.{name}")


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
