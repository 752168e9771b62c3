"""Whether a JSON value keeps to a JSON Schema: as much of the standard as the schemas that Calipers keeps to use."""

from __future__ import annotations

import math
import re
from datetime import date

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v),
}
KNOWN = {
    "type",
    "const",
    "enum",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minItems",
    "format",
    "oneOf",
}
KNOWN |= {"$ref", "$defs"}
NOTES = {"title", "description", "$schema", "$id"}


def complaints(value, schema, root, path="$"):
    """What is wrong with a value, after the part of JSON Schema that the shipped schemas use."""
    assert set(schema) <= KNOWN | NOTES, f"the validator does not know {set(schema) - KNOWN - NOTES}"
    found = []
    if "$ref" in schema:
        found += complaints(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is none of {schema['enum']}")
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(TYPES[name](value) for name in names):
            return [*found, f"{path}: {value!r} is no {names}"]
    if "oneOf" in schema:
        matching = [part for part in schema["oneOf"] if not complaints(value, part, root, path)]
        if len(matching) != 1:
            found.append(f"{path}: {len(matching)} of the alternatives hold")
    if isinstance(value, dict):
        found += [f"{path}: {key} is missing" for key in schema.get("required", ()) if key not in value]
        for key, item in value.items():
            part = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            found += [f"{path}: {key} is unknown"] if part is False else complaints(item, part, root, f"{path}.{key}")
    if "format" in schema:
        assert schema["format"] == "date"
        found += [] if _is_date(value) else [f"{path}: {value!r} is no date"]
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{path}: fewer than {schema['minItems']}")
        for number, item in enumerate(value):
            found += complaints(item, schema.get("items", {}), root, f"{path}[{number}]")
    return found


def _is_date(text):
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text) and date.fromisoformat(text))
    except ValueError:
        return False
