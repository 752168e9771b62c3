"""Documents that somebody forged: of the right form, changed in one or a few places, and sealed anew."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

from calipers.provenance import digest
from calipers_verify.reading import digest as certificate_digest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "certificates"
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**30, 2**63, 1e-300, 5e-324, 1.7e308, -0.0, 0.5, "", "x", "1", "1e5", "1/3", "-1/7",
    "1/1000000000000", "nan", [], {}, [[]], {"a": 1}, ["x"], [0] * 50, "a" * 300, "\x1b[31m", "\u017f",
)  # fmt: skip


def places(record: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value."""
    inner = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    found = [path] if path else []
    for key, value in inner:
        found += places(value, (*path, key))
    return found


def changed(record: Any, rng: random.Random) -> Any:
    """A copy with a few values replaced, removed, doubled or moved."""
    made = copy.deepcopy(record)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        *outer, key = rng.choice(places(made))
        holder = made
        for step in outer:
            holder = holder[step]
        way = rng.randrange(6)
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] *= rng.choice((0, -1, 2, 10**9, 1.0000001, 1e-9))
        elif way == 2 and isinstance(holder[key], list) and holder[key]:
            holder[key] = holder[key] * 2 if rng.random() < 0.5 else holder[key][:-1]
        elif way == 3 and isinstance(holder, dict):
            holder[f"{key}x"] = holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))  # one list in two places would come to hold itself
        if not places(made):
            break
    return made


def torn(data: bytes, rng: random.Random) -> bytes:
    """Damaged: cut, a byte changed, something before or after it."""
    at = rng.randrange(len(data))
    ways = (data[:at], data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :], b"\xff" + data, data + b"}", b"")
    return rng.choice(ways)


def _written(record: Any, rng: random.Random) -> bytes:
    data = json.dumps(record, allow_nan=True).encode()
    return torn(data, rng) if rng.random() < 0.05 else data


def certificate(rng: random.Random) -> bytes:
    """A forged certificate."""
    record = changed(json.loads(rng.choice(sorted(EXAMPLES.glob("*.json"))).read_text()), rng)
    if isinstance(record, dict) and rng.random() < 0.95:
        record["digest"] = certificate_digest(record)
    return _written(record, rng)


def receipt(honest: dict[str, Any], rng: random.Random) -> bytes:
    """A forged receipt."""
    record = changed(honest, rng)
    about = record.get("provenance")
    if isinstance(about, dict) and rng.random() < 0.95:
        about.pop("sha256", None)
        try:
            if isinstance(record.get("run"), dict):
                about["run_sha256"] = digest(record["run"])
            about["sha256"] = digest(record)
        except ValueError:  # not strict JSON: it has no seal
            pass
    return _written(record, rng)
