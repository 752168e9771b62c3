"""Verifying a receipt: its run is measured again, and what it says of the run is held against what comes out.

    confirmed      the new proof does not exceed the upper value, the new attack reaches the lower one, and everything
                   else that follows from the run comes out again
    unconfirmed    they are compatible, but this computation proves less than the receipt says, or words it otherwise
    contradicted   a new attack exceeds the upper value, a new proof lies below the lower one, or the facts, the claim
                   or the verdict of the receipt are not those of its own run

"Confirmed" is about what was compared, and the last sentence says what that is. What a receipt says about *how*
something was found out (declared, attached, probed), its reasons, conditions, observations and libraries, are hearsay
to a third party: that the training was this run is vouched for by whoever signs it. What follows from the run is not.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calipers._version import __version__
from calipers.bracket import Bracket
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.gate.outcome import Checked, Outcome
from calipers.gate.receipt_shape import PROBE_FACT, STATED_FACTS, assumed_words, checked_receipt
from calipers.gate.sources import assumed_facts, read_json, runs_of
from calipers.measure import Measurement, measure
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.receipts.executed import ASSUMED, DECLARED, DERIVED, PROBED, UNPROBED, assumable, derived, run_facts
from calipers.receipts.write import refuted, section_of
from calipers.reports.answers import large_deltas
from calipers.reports.records import strict
from calipers.run import Run
from calipers.scope import NOT_DP, in_units, shared_neighbors

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
    explanations: int = 0
    """How many of the last sentences say what the others are about, and not why."""

    @property
    def wrong(self) -> str:
        """Why it stands so, in one text."""
        return " ".join(self.sentences[: len(self.sentences) - self.explanations])

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        rows = [{"delta": delta, "lower": found.lower, "upper": found.upper} for delta, found in self.epsilon]
        return {"standing": self.standing.value, "sentences": list(self.sentences), "epsilon": rows}


def read_receipt(path: str) -> dict[str, Any]:
    """The receipt in a file; `InputError` if it is none, or was changed after it was written."""
    record = read_json(path)
    try:
        checked_receipt(record)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return record


_KNOWN = {
    "declared": "declared by whoever wrote the receipt, not seen in a training",
    "attached": "said by a record attached to the training",
    "probed": "concluded from probing the implementation",
}
_Said = tuple[Confirmation, str]


def verify_receipt(record: Mapping[str, Any]) -> Verified:
    """Measure the run of a receipt again and compare.

    Args:
        record: The receipt, as `read_receipt` returns it.

    Returns:
        Its standing, which is about what the last sentence says was compared.

    Raises:
        InputError: It is no receipt, or was changed after it was written.
    """
    checked_receipt(record)
    runs = runs_of(record["run"])
    executed, measured = record["executed"], record["measurement"]
    wrong = _false_facts(runs, executed)
    if not runs:
        wrong += _numbers_of_nothing(measured)
    else:
        wrong += _own_contradictions(runs, measured)
    if wrong:
        return Verified(Confirmation.CONTRADICTED, tuple(wrong))
    if not runs:
        return Verified(Confirmation.CONFIRMED, ("It says that nothing is proven, and so states no number.",))
    said, found = _measured_again(record, runs)
    worst = max((standing for standing, _ in said), key=lambda one: one.exit_status)
    vouched = _KNOWN[executed["how"]]
    known = f"That the training was this run is {vouched}; a measurement cannot verify it."
    if assumed := ", ".join(assumed_words(assumed_facts(record), runs).values()):
        known = (
            f"Nobody stated, so assumed: {assumed}. What else it states is {vouched}. A measurement can verify neither."
        )
    deltas = (row["delta"] for row in measured["epsilon"])
    notes = (in_units(f"Note: {note}", runs[0]) for note in large_deltas(runs, tuple(deltas)))
    about = (*notes, known, _scope(record))
    return Verified(worst, (*(text for _, text in said), *about), found, len(about))


def with_receipt(checked: Checked, verified: Verified) -> Checked:
    """What the gate found of the run in a receipt, and what became of the receipt.

    A run whose receipt is contradicted is not within its budget, whatever its proof: which of two things that
    contradict each other was executed, nobody can say.
    """
    if verified.standing is Confirmation.CONFIRMED:
        return checked
    if verified.standing is Confirmation.UNCONFIRMED:
        return replace(checked, sentence=f"{checked.sentence} Its receipt is unconfirmed: {verified.sentences[0]}")
    why = verified.wrong
    alone = checked.sentence[:1].lower() + checked.sentence[1:]
    sentence = f"The receipt contradicts its own run: {why} The run itself, measured again: {alone}"
    outcome = Outcome.UNCERTIFIED if checked.outcome is Outcome.WITHIN else checked.outcome
    return replace(checked, sentence=sentence, outcome=outcome)


def _own_contradictions(runs: tuple[Run, ...], measured: Mapping[str, Any]) -> list[str]:
    """What is wrong with the numbers of a receipt whatever its run is."""
    found = []
    for row in measured["epsilon"]:
        if row["upper"] is not None and (row["lower"] or 0.0) > row["upper"]:
            found.append(f"It states epsilon at least {row['lower']!r} and at most {row['upper']!r}: both cannot be.")
    if measured["refuted"] is not refuted(runs, measured["epsilon"]):
        found.append("Its verdict on the claim (refuted) is not what its own numbers say.")
    return found


def _numbers_of_nothing(measured: Mapping[str, Any]) -> list[str]:
    """What a receipt without a run states although there is nothing that it could be about."""
    numbers = [
        row for row in measured["epsilon"] if row["upper"] is not None or row["lower"] or row["claim"] is not None
    ]
    if numbers or measured["refuted"] or measured["closes"] or measured["notes"]:
        return ["It states numbers, and no run that they could be about."]
    return []


def _tolerance(record: Mapping[str, Any]) -> float:
    tolerance = float(record["measurement"]["tolerance"])
    return tolerance if 1e-6 <= tolerance <= 0.5 else 1e-3


def _false_facts(runs: tuple[Run, ...], executed: Mapping[str, Any]) -> list[str]:
    """The facts of a receipt that are not those of its run, or known in another way than the run is."""
    stated = {one["fact"]: one for one in executed["facts"]}
    wrong = []
    how, may_be_assumed = executed["how"], assumable(runs, executed["how"])
    for name, value, _ in run_facts(runs, how):
        one = stated.pop(name, {})
        if json.dumps(one.get("value")) != json.dumps(value):  # by their text: True is not 1
            wrong.append(f"It states {name} = {one.get('value')!r}, and its run says {value!r}.")
        elif one["how"] not in (
            how,
            ASSUMED if name in may_be_assumed else how,
            DECLARED if how == PROBED and name in UNPROBED else how,
            DERIVED if name in derived(runs, how) else how,
        ):
            wrong.append(f"It calls {name} {one['how']}, and its run {how}.")
    for name, one in stated.items():
        if name not in STATED_FACTS and not name.startswith(PROBE_FACT):
            wrong.append(f"It states {name} = {one['value']!r}, and has no run.")
        elif one["how"] == "not stated" and one["value"] is not None:
            wrong.append(f"It states {name} = {one['value']!r}, and says that nobody stated it.")
        elif one["how"] not in ("declared", "not stated", executed["how"]):
            wrong.append(f"It calls {name} {one['how']}, and its run {executed['how']}.")
    return wrong


def _measured_again(record: Mapping[str, Any], runs: tuple[Run, ...]) -> tuple[list[_Said], Any]:
    """Everything that follows from the run, held against a new measurement; and its brackets."""
    stated, attained = record["measurement"], record["executed"]["attained"]
    said: list[_Said] = []
    brackets = []
    try:
        first = measure(runs, tolerance=_tolerance(record))
        again: Any = strict(section_of(first, attained, [row["delta"] for row in stated["epsilon"]]))
    except (CertificationError, UnsupportedError) as error:
        return [(Confirmation.UNCONFIRMED, f"Nothing could be measured: {error}")], ()
    for row, new in zip(stated["epsilon"], again["epsilon"], strict=True):
        standing, sentence, bracket = _compared(runs, row, attained, first)
        said.append((standing, sentence))
        brackets.append((float(row["delta"]), bracket))
        if not _same_claim(row["claim"], new["claim"], first.tolerance):
            where = f"At delta = {setting(row['delta'])} it states a claim of {row['claim']!r}"
            said.append((Confirmation.CONTRADICTED, f"{where}; Poisson accounting claims {new['claim']!r}."))
    if stated["refuted"] is not again["refuted"]:
        said.append((Confirmation.UNCONFIRMED, "Whether the claim is refuted does not come out again."))
    if stated["closes"] and not again["closes"]:
        said.append((Confirmation.UNCONFIRMED, "It says that one pair is both proof and attack; here it is not."))
    if _same_version(record):
        said += [(Confirmation.UNCONFIRMED, text) for text in _other_words(stated, again)]
    return said, tuple(brackets)


def _same_claim(stated: float | None, found: float | None, tolerance: float) -> bool:
    """Whether two claims, None where they are not finite, are one within the tolerance of the measurement."""
    if stated is None or found is None:
        return stated is found
    return abs(stated - found) <= tolerance * found


def _same_version(record: Mapping[str, Any]) -> bool:
    return bool(record["provenance"]["calipers"] == __version__)


def _other_words(stated: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Sentences about the run that this version of Calipers does not write of it."""
    found = []
    if stated["notes"] != again["notes"]:
        found.append("Its notes are not those of its run.")
    for row, new in zip(stated["epsilon"], again["epsilon"], strict=True):
        if any(row.get(key) != new.get(key) for key in ("lower_evidence", "upper_evidence")):
            found.append(f"What it names as evidence at delta = {setting(row['delta'])} is not that of its run.")
    return found


def _scope(record: Mapping[str, Any]) -> str:
    """What was compared, and what was not."""
    words = _same_version(record)
    compared = ["its facts about the run", "epsilon", "the claim", "whether it is refuted", "whether the bounds agree"]
    compared += ["notes", "evidence"] * words
    executed = record["executed"]
    others = [one["fact"] for one in executed["facts"] if one["fact"] in STATED_FACTS and one["how"] != "not stated"]
    others += [key for key in ("reasons", "conditions", "observations") if executed[key]]
    others += ["libraries", "date", "command"] + ["notes and evidence, worded by another version"] * (not words)
    words_alone = f"Not compared, the words of whoever wrote it: {', '.join(others)}."
    return f"Compared with the run that it states: {', '.join(compared)}. {words_alone}"


def _compared(
    runs: tuple[Run, ...], row: Mapping[str, Any], attained: bool, first: Measurement
) -> tuple[Confirmation, str, Bracket]:
    delta = float(row["delta"])
    lower = 0.0 if row["lower"] is None else float(row["lower"])
    upper = math.inf if row["upper"] is None else float(row["upper"])
    stated = _between(lower, upper)
    view = f", in the isolated view ({NOT_DP})" if runs[0].view == "isolated" else ""
    said = f"At delta = {setting(delta)} it states {stated}, for {shared_neighbors(runs)}{view}"
    bracket, again = first.epsilon(delta), ""
    for factor in _NARROWER:
        if factor < 1.0:
            try:
                bracket = measure(runs, tolerance=first.tolerance * factor).epsilon(delta)
            except (CertificationError, UnsupportedError):
                break
        shown = bracket.lower if attained else 0.0
        again = _between(shown, bracket.upper)
        if (attained and bracket.lower > upper) or bracket.upper < lower:
            return Confirmation.CONTRADICTED, f"{said}; measured again, {again}.", bracket
        if bracket.upper <= upper and shown >= lower:
            new = "the same" if again == stated else again
            return Confirmation.CONFIRMED, f"{said}; measured again, {new}.", bracket
    return Confirmation.UNCONFIRMED, f"{said}; measured again, only {again}.", bracket


def _between(lower: float, upper: float) -> str:
    proven = "no finite epsilon" if math.isinf(upper) else f"epsilon at most {ceil_digits(upper, 8)} (proof)"
    return f"{proven} and at least {floor_digits(lower, 8)} (attack)"
