"""Verifying a receipt: its run is measured again, and its numbers are held against what comes out.

    confirmed      the new proof does not exceed the upper value, the new attack reaches the lower one
    unconfirmed    they are compatible, but this computation proves less than the receipt says
    contradicted   a new attack exceeds the upper value, a new proof lies below the lower one, or the facts of the
                   receipt are not those of its own run

What a receipt says about *how* something was found out (declared, attached, probed) is hearsay to a third party: that
the training was this run is vouched for by whoever signs it. What follows from the run is not.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calipers.bracket import Bracket
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.gate.sources import read_json, runs_of
from calipers.measure import measure
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.provenance import digest, is_intact
from calipers.receipts.executed import run_facts
from calipers.receipts.write import SCHEMA
from calipers.run import Run

_NARROWER = (1.0, 0.1, 0.01)


class Confirmation(enum.Enum):
    """What became of a receipt."""

    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"
    CONTRADICTED = "contradicted"

    @property
    def exit_status(self) -> int:
        """0, 3 or 4, as at the gate."""
        return {"confirmed": 0, "unconfirmed": 3, "contradicted": 4}[self.value]


@dataclass(frozen=True)
class Verified:
    """What became of a receipt, the sentences that say why, and what was measured anew at each delta."""

    standing: Confirmation
    sentences: tuple[str, ...]
    epsilon: tuple[tuple[float, Bracket], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        rows = [{"delta": delta, "lower": found.lower, "upper": found.upper} for delta, found in self.epsilon]
        return {"standing": self.standing.value, "sentences": list(self.sentences), "epsilon": rows}


def read_receipt(path: str) -> dict[str, Any]:
    """The receipt in a file; `InputError` if it is none, or was changed after it was written."""
    record = read_json(path)
    try:
        return _checked(record)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    if record.get("schema") != SCHEMA:
        raise InputError(f"it is no receipt of the form {SCHEMA}; `calipers receipt` writes them.")
    if not is_intact(record):
        raise InputError("it was changed after it was written: its hash does not fit.")
    for key in ("run", "executed", "measurement"):
        if not isinstance(record.get(key), dict):
            raise InputError(f"its key {key!r} is missing or no object.")
    rows = record["measurement"].get("epsilon")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and "delta" in row for row in rows):
        raise InputError("it states no epsilon at any delta.")
    if record["provenance"].get("run_sha256") != digest(record["run"]):
        raise InputError("the hash of its run does not fit.")
    return record


_KNOWN = {
    "declared": "declared by whoever trained",
    "attached": "told by a record attached to the training",
    "probed": "concluded from probing the implementation",
}


def verify_receipt(record: dict[str, Any]) -> Verified:
    """Measure the run of a receipt again and compare."""
    record = _checked(record)
    runs = runs_of(record["run"])
    executed = record["executed"]
    wrong = _false_facts(runs, executed)
    if wrong:
        return Verified(Confirmation.CONTRADICTED, tuple(wrong))
    rows = record["measurement"]["epsilon"]
    if not runs:
        finite = [row for row in rows if row.get("upper") is not None or row.get("lower")]
        if finite:
            return Verified(Confirmation.CONTRADICTED, ("It states numbers, and no run that they could be about.",))
        return Verified(Confirmation.CONFIRMED, ("It says that nothing is proven, and so states no number.",))
    attained = executed.get("attained") is True
    found, sentences, worst = [], [], Confirmation.CONFIRMED
    for row in rows:
        standing, sentence, bracket = _compared(runs, row, attained, _tolerance(record))
        sentences.append(sentence)
        if bracket is not None:
            found.append((float(row["delta"]), bracket))
        worst = max(worst, standing, key=lambda one: one.exit_status)
    how = executed.get("how")
    sentences.append(f"That the training was this run is {_KNOWN.get(how, how)}; a measurement cannot verify it.")
    return Verified(worst, tuple(sentences), tuple(found))


def _tolerance(record: Mapping[str, Any]) -> float:
    tolerance = record["measurement"].get("tolerance")
    known = isinstance(tolerance, float) and 1e-8 <= tolerance <= 0.5
    return float(tolerance) if known else 1e-3


def _false_facts(runs: tuple[Run, ...], executed: Mapping[str, Any]) -> list[str]:
    """The facts of a receipt that are not those of its run."""
    stated = {one.get("fact"): one.get("value") for one in executed.get("facts", []) if isinstance(one, dict)}
    return [
        f"It states {name} = {stated.get(name)!r}, and its run says {value!r}."
        for name, value, _ in run_facts(runs, "")
        if stated.get(name) != value
    ]


def _compared(
    runs: tuple[Run, ...], row: Mapping[str, Any], attained: bool, tolerance: float
) -> tuple[Confirmation, str, Bracket | None]:
    delta = row["delta"]
    lower = 0.0 if row.get("lower") is None else float(row["lower"])
    upper = math.inf if row.get("upper") is None else float(row["upper"])
    stated = _between(lower, upper)
    said = f"At delta = {setting(delta)} it states {stated}"
    bracket = None
    for factor in _NARROWER:
        try:
            bracket = measure(runs, tolerance=tolerance * factor).epsilon(delta)
        except (CertificationError, UnsupportedError) as error:
            if bracket is None:
                return Confirmation.UNCONFIRMED, f"{said}; nothing could be measured: {error}", None
            break
        shown = bracket.lower if attained else 0.0
        again = _between(shown, bracket.upper)
        if (attained and bracket.lower > upper) or bracket.upper < lower:
            return Confirmation.CONTRADICTED, f"{said}; measured again, {again}.", bracket
        if bracket.upper <= upper and shown >= lower:
            return (
                Confirmation.CONFIRMED,
                f"{said}; measured again, {'the same' if again == stated else again}.",
                bracket,
            )
    return Confirmation.UNCONFIRMED, f"{said}; measured again, only {again}.", bracket


def _between(lower: float, upper: float) -> str:
    proven = "no finite epsilon" if math.isinf(upper) else f"epsilon at most {ceil_digits(upper, 8)} (proof)"
    return f"{proven} and at least {floor_digits(lower, 8)} (attack)"
