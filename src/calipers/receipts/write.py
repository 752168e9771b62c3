"""Writing a receipt.

    schema        "calipers-receipt/1"
    run           what was executed, exactly; {"phase": []} where nothing describes it
    executed      how it was found out, fact by fact; whether the run is attained or only bounds the execution
    measurement   epsilon at each delta, from both sides, with its evidence; the tolerance, conditions, verdicts
    libraries     what trained (where it is known) and what measured
    provenance    version, date, command, hashes

The lower bound of a run that only bounds the execution is written as 0: an attack on the description is none on the
training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calipers.domains import OPEN_UNIT
from calipers.errors import InputError
from calipers.gate.receipt_shape import MOST_DELTAS, SCHEMA
from calipers.measure import Measurement, measure
from calipers.phases import as_phases, comparable
from calipers.provenance import sealed
from calipers.receipts.executed import Executed, attached, declared, measuring_libraries, probed
from calipers.reports.answers import large_deltas, noted
from calipers.reports.files import write_whole
from calipers.reports.records import run_record, strict, to_json
from calipers.run import Run

DEFAULT_DELTAS = (1e-5,)


def receipt(
    training: Any,
    *,
    deltas: Sequence[float] = DEFAULT_DELTAS,
    tolerance: float = 1e-3,
    epochs: float | None = None,
    steps: int | None = None,
    **stated: object,
) -> dict[str, Any]:
    """The receipt of a training as a JSON object.

    training: a `Run` or its phases (declared), the record of `attach` (attached), a report of `probe` or its JSON
    (probed; `epochs` or `steps` say how long the training is). stated: max_grad_norm, noise_source, libraries, as
    somebody says.
    """
    length = {name: value for name, value in (("epochs", epochs), ("steps", steps)) if value is not None}
    if unknown := set(stated) - {"max_grad_norm", "noise_source", "libraries"}:
        raise InputError(f"A receipt does not know {', '.join(sorted(unknown))}.")
    if isinstance(training, Run) or (isinstance(training, Sequence) and not isinstance(training, str | bytes)):
        found = declared(as_phases(training), **stated)
    elif hasattr(training, "why_not"):
        found = attached(training, **stated)
    elif hasattr(training, "findings"):
        found = probed(training.to_dict(), length, **stated)
    elif isinstance(training, dict):
        found = probed(training, length, **stated)
    else:
        raise InputError(
            f"Expected a Run, a record of attach, or a report of probe, got {type(training).__name__}; read a run file "
            "with load_runs."
        )
    if length and found.how != "probed":
        raise InputError("epochs and steps are for a probe, which finds one epoch; the training says its own length.")
    return receipt_of(found, deltas, tolerance)


def receipt_of(found: Executed, deltas: Sequence[float], tolerance: float) -> dict[str, Any]:
    """The receipt of what was found out."""
    run = run_record(found.runs) if found.runs else {"phase": []}
    record = {
        "schema": SCHEMA,
        "run": run,
        "executed": found.to_dict(),
        "measurement": measurement_section(found.runs, found.attained, deltas, tolerance),
        "libraries": {"training": dict(found.libraries), "measuring": measuring_libraries()},
    }
    content = strict(record)
    assert isinstance(content, dict)
    return sealed(content, content["run"])


def measurement_section(
    runs: tuple[Run, ...], attained: bool, deltas: Sequence[float], tolerance: float
) -> dict[str, object]:
    """Both bounds at each delta; no finite upper one, and no attack, where there is no run."""
    for delta in deltas:
        OPEN_UNIT.check("delta", delta)
    if len(deltas) > MOST_DELTAS:
        raise InputError(f"A receipt states epsilon at {MOST_DELTAS} deltas at most, got {len(deltas):,}.")
    if not runs:
        nothing = [{"delta": delta, "lower": 0.0, "upper": None, "claim": None} for delta in deltas]
        return {"tolerance": tolerance, "epsilon": nothing, "refuted": False, "closes": False, "notes": []}
    return {"tolerance": tolerance, **section_of(measure(runs, tolerance=tolerance), attained, deltas)}


def section_of(measurement: Measurement, attained: bool, deltas: Sequence[float]) -> dict[str, Any]:
    """What a receipt says of a measurement that has been asked nothing yet, but for its tolerance."""
    rows = [_row(measurement, delta, attained) for delta in deltas]
    return {
        "epsilon": rows,
        "refuted": refuted(measurement.runs, rows),
        "closes": attained and measurement.closes,
        "notes": noted(measurement.runs, [*large_deltas(measurement.runs, deltas), *measurement.notes]),
    }


def refuted(runs: Sequence[Run], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an attack exceeds the claim somewhere; a claim about other neighbors cannot be refuted by it."""
    return comparable(runs) and any((row["lower"] or 0.0) > row["claim"] for row in rows if row["claim"] is not None)


def _row(measurement: Measurement, delta: float, attained: bool) -> dict[str, Any]:
    found = measurement.epsilon(delta)
    row = {"delta": delta, "lower": found.lower, "upper": found.upper, "claim": measurement.claim.epsilon(delta)}
    return row | found.to_dict() | ({} if attained else {"lower": 0.0, "lower_evidence": None})


def write_receipt(training: Any, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write the receipt of a training to a file in one step.

    Args:
        training: as `receipt` takes it.
        path: of the file.
        options: those of `receipt`.

    Returns:
        The path.
    """
    place = Path(path)
    write_whole(place, to_json(receipt(training, **options)) + "\n")
    return place
