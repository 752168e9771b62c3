"""The shape of a receipt, checked in one place before anything in it is used.

`reports/assets/receipt.schema.json` says which keys there are and of what kind. Beyond it: facts are those that a
receipt has and none is stated twice, every delta is one, and both hashes fit. What is left is a receipt as Calipers
writes them, true or not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from calipers.domains import OPEN_UNIT
from calipers.errors import InputError
from calipers.provenance import digest, is_intact
from calipers.run import Run
from calipers.run_meanings import DEFAULTS
from calipers.scope import assumptions, last_batch_matters

SCHEMA = "calipers-receipt/1"
WAYS = ("declared", "attached", "probed")
RUN_FACTS = {
    "sampler": "sampler",
    "sample rate": "rate",
    "steps": "total_steps",
    "noise multiplier": "noise_multiplier",
    "divisor": "normalization",
    "adjacency": "adjacency",
    "view": "view",
}
"""How a receipt calls what a run says."""
SCOPE_FACTS = ("batches", "neighbors", "unit")
"""What the numbers are about, in words."""
_OPEN = {"last_batch": "drop", "reshuffle": DEFAULTS["reshuffle"], "derived_rate": "public"}
"""What may be assumed of the batches, beside the sampler; a receipt does not say which of them was."""
STATED_FACTS = ("clipping norm", "noise source")
PROBE_FACT = "probe: "
MOST_DELTAS = 100
"""At which a receipt states epsilon: each is measured again by whoever verifies it."""

_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
}


def assumed_words(facts: Iterable[str], runs: Sequence[Run]) -> dict[str, str]:
    """Facts that were assumed, each as a sentence lists it; "neighbors" is the adjacency once more, in words."""
    given, found = tuple(facts), dict[str, str]()
    for fact in given:
        if fact == "batches":
            found |= _batches_words(runs, sampler="sampler" in given)
        elif fact == "unit":
            found[fact] = "privacy unit one record"
        elif fact in RUN_FACTS:
            values = {getattr(run, RUN_FACTS[fact]) for run in runs}
            found[fact] = f"{fact} {values.pop()}" if len(values) == 1 else fact
        elif fact != "neighbors" or "adjacency" not in given:
            found[fact] = fact
    return found


def _batches_words(runs: Sequence[Run], *, sampler: bool) -> dict[str, str]:
    """What the fact "batches" may mean of these runs; where the sampler was assumed, perhaps that alone."""
    found = dict[str, str]()
    for run in runs:
        with suppress(InputError):  # steps that fit only one kind of last batch: then it was named
            bare = Run.from_dict({key: value for key, value in run.to_dict().items() if _OPEN.get(key) != value})
            skipped = () if last_batch_matters(bare) else ("last batch",)
            found |= {key: text for key, text in assumptions([bare]).items() if key not in skipped}
    found = {key: text for key, text in found.items() if key.replace(" ", "_") in _OPEN}
    if sampler:
        return {key: f"perhaps {text}" for key, text in found.items()}
    if len(found) > 1:
        return {"batches": f"at least one of {' and '.join(found.values())}"}
    return found or {"batches": "some detail of the batches"}


def checked_receipt(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record, if it is a receipt as Calipers writes them.

    Args:
        record: A JSON object.

    Returns:
        The same object.

    Raises:
        InputError: It is no receipt, was changed after it was written, or contradicts itself.
    """
    if record.get("schema") != SCHEMA:
        raise InputError(f"it is no receipt of the form {SCHEMA}; `calipers receipt` writes them.")
    if not is_intact(record):
        raise InputError("it was changed after it was written: its hash does not fit.")
    _refuse_misshapen(record, _schema())
    if record["provenance"]["run_sha256"] != digest(record["run"]):
        raise InputError("the hash of its run does not fit.")
    rows = record["measurement"]["epsilon"]
    if not rows:
        raise InputError("it states no epsilon at any delta.")
    if len(rows) > MOST_DELTAS:
        raise InputError(f"it states epsilon at {len(rows):,} deltas, and a receipt has at most {MOST_DELTAS}.")
    for row in rows:
        OPEN_UNIT.check("delta", row["delta"])
    _refuse_facts([fact["fact"] for fact in record["executed"]["facts"]])
    return record


@cache
def _schema() -> Mapping[str, Any]:
    text = files("calipers").joinpath("reports", "assets", "receipt.schema.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _refuse_facts(names: list[str]) -> None:
    known, seen = {*RUN_FACTS, *SCOPE_FACTS, *STATED_FACTS}, set[str]()
    for name in names:
        if name in seen:
            raise InputError(f"it states {name!r} twice; which of the two holds, it does not say.")
        if name not in known and not name.startswith(PROBE_FACT):
            raise InputError(f"it states {name!r}, which is no fact of a receipt.")
        seen.add(name)


def _refuse_misshapen(value: Any, rule: Mapping[str, Any], place: str = "") -> None:
    """Hold a value against a schema, as much of JSON Schema as the one of receipts uses."""
    if "$ref" in rule:
        rule = _schema()["$defs"][rule["$ref"].removeprefix("#/$defs/")]
    if "oneOf" in rule:  # an object, or null
        rule = rule["oneOf"][1 if value is None else 0]
        return _refuse_misshapen(value, rule, place)
    where = f"its key {place}" if place else "it"
    if "const" in rule and value != rule["const"]:
        raise InputError(f"{where} is not {rule['const']!r}.")
    if "enum" in rule and (not isinstance(value, str) or value not in rule["enum"]):
        raise InputError(f"{where} is none of {', '.join(rule['enum'])}.")
    kinds = [rule["type"]] if isinstance(rule.get("type"), str) else rule.get("type", [])
    if kinds and not any(_is(kind, value) for kind in kinds):
        raise InputError(f"{where} is missing, or no {' or '.join(kinds)}.")
    if isinstance(value, dict):
        properties, others = rule.get("properties", {}), rule.get("additionalProperties", {})
        for key in rule.get("required", ()):
            if key not in value:
                raise InputError(f"{where} lacks the key {key!r}.")
        for key, part in value.items():
            if key not in properties and others is False:
                raise InputError(f"{where} has the key {key!r}, which no receipt has.")
            _refuse_misshapen(part, properties.get(key, others), f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            _refuse_misshapen(part, rule.get("items", {}), f"{place}[{number}]")
    return None


def _is(kind: str, value: object) -> bool:
    if not isinstance(value, _KINDS[kind]) or (kind == "number" and isinstance(value, bool)):
        return False
    return kind != "number" or abs(value) <= sys.float_info.max  # type: ignore[arg-type]  # a number
