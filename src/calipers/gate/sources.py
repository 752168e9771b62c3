"""What a gate is shown: run files, and JSON that holds a run.

A file is read for the *run* alone. Numbers that stand in it are never believed: the run is measured again.

Receipts of a training that was watched may say that their run only bounds what was executed (`attained` false: the loop
broke off, or drew in a way no run describes). Then the upper bound holds and the lower one is about something else.

JSON in which an object has a key twice is refused: readers disagree about which of the two counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.errors import InputError
from calipers.gate.budget import settings_of
from calipers.gate.receipt_shape import checked_receipt
from calipers.phases import as_phases, load_runs
from calipers.provenance import is_intact
from calipers.reading import read_bounded
from calipers.run import Run
from calipers.scope import FIXED

MOST_BYTES = 50_000_000


@dataclass(frozen=True)
class Described:
    """A run as somebody wrote it down; no runs: nothing is proven about it, and `reasons` say why.

    `receipt`: the receipt it stands in, if it does. What is said of it there is hearsay (`in_its_words`).
    """

    name: str
    runs: tuple[Run, ...]
    attained: bool = True
    reasons: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    how: str = "declared"
    budget: Mapping[str, object] | None = None
    receipt: Mapping[str, Any] | None = None

    @property
    def in_its_words(self) -> tuple[str, ...]:
        """Reasons and conditions as what they are: what the writer of the receipt says, beside the usual condition."""
        said = [" ".join(text.split()) for text in (*self.reasons, *self.conditions)]
        words = [json.dumps(text, ensure_ascii=False) for text in said if text != FIXED]
        return tuple(f"The receipt says, unverified: {text}" for text in words)

    @property
    def assumed(self) -> tuple[str, ...] | None:
        """All that the receipt calls assumed; None where the run itself knows what nobody named."""
        return None if self.receipt is None else tuple(assumed_facts(self.receipt))


def assumed_facts(receipt: Mapping[str, Any]) -> list[str]:
    """The facts of a receipt for which a default stands in, because nobody stated them."""
    return [one["fact"] for one in receipt["executed"]["facts"] if one["how"] == "assumed"]


def read_described(path: str) -> Described:
    """The run of a run file (TOML), of `calipers measure --json`, of a report as JSON, or of a receipt."""
    if Path(path).suffix.lower() != ".json":
        runs = load_runs(path)
        return Described(path, runs, budget=settings_of(path))
    record = read_json(path)
    if "provenance" in record and not is_intact(record):
        raise InputError(f"{path} was changed after it was written: its hash does not fit; write it anew.")
    inner = record.get("measurement")
    holder = record if "run" in record or not isinstance(inner, dict) else inner
    if not isinstance(holder.get("run"), dict):
        raise InputError(
            f"{path} holds no run; expected a run file, a receipt, or what `calipers measure --json` prints."
        )
    try:
        if "executed" in record:
            checked_receipt(record)
        runs = runs_of(holder["run"])
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if "executed" not in record:
        return Described(path, tuple(_unnamed_again(run, holder.get("scope")) for run in runs))
    found = record["executed"]
    reasons, conditions = tuple(found["reasons"]), tuple(found["conditions"])
    return Described(path, runs, found["attained"], reasons, conditions, found["how"], receipt=record)


_KEPT = ("sampler", "normalization", "last_batch", "reshuffle", "derived_rate", "view", "adjacency")
"""Keys that JSON writes down whether or not somebody named them."""


def _unnamed_again(run: Run, scope: object) -> Run:
    """The run as it was described, where JSON says which keys nobody named: it writes their defaults down."""
    assumed = scope.get("assumed") if isinstance(scope, dict) else None
    if not isinstance(assumed, list):
        return run
    for kept in (_KEPT, _KEPT[:-1]):  # neighbors may follow from another phase
        record = {key: value for key, value in run.to_dict().items() if key not in kept or key not in assumed}
        if "derived_rate" not in assumed and run.sampler == "poisson":
            record.setdefault("derived_rate", run.derived_rate)
        try:
            found = Run.from_dict(record)
        except InputError:
            continue
        if found == run:
            return found
    return run


class _TwiceError(Exception):
    """A key that an object has twice."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError(repr(Counter(name for name, _ in pairs).most_common(1)[0][0]))
    return found


def read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file, or `InputError` naming it."""
    try:
        data = read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    try:
        record = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_each_once)
    except _TwiceError as error:
        raise InputError(f"{path} has the key {error} twice in one object; nobody can say which counts.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON in UTF-8.") from error
    if not isinstance(record, dict):
        raise InputError(f"{path} holds no JSON object.")
    return record


def runs_of(record: Mapping[str, object]) -> tuple[Run, ...]:
    """The phases that the key "run" of a document describes; none where nothing could be described."""
    phases = record.get("phase")
    if len(record) == 1 and isinstance(next(iter(record.values())), dict):
        (kind,) = record
        raise InputError(
            f"it holds no run but {kind!r}, which `calipers check` cannot measure again yet. Compare the upper bound "
            "that `calipers measure` prints at the budget's delta with the budget, or call "
            "calipers.check(calipers.measure(...), budget) in Python."
        )
    if phases is None:
        return (Run.from_dict(record),)
    if not isinstance(phases, list) or set(record) != {"phase"}:
        raise InputError("Expected a run as one object, or as {'phase': [...]}.")
    return as_phases([Run.from_dict(phase) for phase in phases]) if phases else ()
