"""Plain data as YAML that every version of YAML reads alike.

Strings are always quoted as JSON quotes them, which YAML 1.1 and 1.2 both read; numbers in scientific notation get a
decimal point, without which YAML 1.1 takes 1e-05 for a string.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from calipers.errors import InputError


def to_yaml(record: Mapping[str, object], indent: int = 0) -> str:
    """A mapping of strings, numbers, lists of strings and further mappings."""
    lines = []
    for key, value in record.items():
        pad = "  " * indent
        if isinstance(value, Mapping):
            lines.append(f"{pad}{key}:\n{to_yaml(value, indent + 1)}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            items = "".join(f"{pad}  - {_scalar(item)}\n" for item in value)
            lines.append(f"{pad}{key}:\n{items}")
        else:
            lines.append(f"{pad}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"Expected text or a number, got {value!r}.")
    if isinstance(value, str):
        # JSON leaves these bare; in YAML they end a line.
        quoted = json.dumps(value, ensure_ascii=False)
        return quoted.replace("\x85", "\\x85").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise InputError(f"Expected a finite number, got {value!r}.")
    mantissa, mark, exponent = repr(value).partition("e")
    whole = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{whole}e{int(exponent):+03d}" if mark else whole
