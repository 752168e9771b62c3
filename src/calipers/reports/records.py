"""Measurements, calibrations and comparisons as JSON.

The keys are a contract for programs. Numbers are the exact doubles of the brackets. JSON knows no
infinity: a bound that is not finite is written as null, and a note says that none is proven.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.bracket import Bracket
from calipers.display import plain
from calipers.errors import CertificationError
from calipers.provenance import sealed
from calipers.reports.answers import Answers
from calipers.reports.readings import Claimed
from calipers.run import Run
from calipers.scope import scope_record

if TYPE_CHECKING:
    from calipers.calibrate import Calibration
    from calipers.reports.comparison import Comparison

Record = dict[str, object]
MEASURE_SCHEMA = "calipers-measure/1"


def to_json(record: object) -> str:
    """The record as one strict JSON document."""
    return json.dumps(strict(record), indent=2, allow_nan=False)


def to_document(record: Record, run: Record | None = None) -> str:
    """The record as strict JSON with its origin: version, date, command, and the hashes of the run and of itself."""
    content = strict(record)
    assert isinstance(content, dict)
    return to_json(sealed(content, run))


def measurement_document(answers: Answers) -> str:
    """What `calipers measure --json` prints; `assets/measure.schema.json` says which keys there are."""
    record = measurement_record(answers)
    return to_document({"schema": MEASURE_SCHEMA, **record}, subject_record(answers))


def run_record(runs: Sequence[Run]) -> Record:
    """The run's own keys; several phases as {"phase": [...]}, the way a run file writes them."""
    return runs[0].to_dict() if len(runs) == 1 else {"phase": [run.to_dict() for run in runs]}


def run_of_record(record: Record) -> Record | None:
    """The run that a record is about, wherever it stands in it; None for a comparison of several."""
    inner = record.get("measurement")
    run = record.get("run", inner.get("run") if isinstance(inner, dict) else None)
    return run if isinstance(run, dict) else None


def subject_record(answers: Answers) -> Record:
    """What was measured: the run's keys, or what is stated under the name of its table."""
    return run_record(answers.runs) if answers.stated is None else answers.stated.to_dict()


def measurement_record(answers: Answers) -> Record:
    """The object `calipers measure --json` prints."""
    return {
        "run": subject_record(answers),
        **scope_of(answers),
        "epsilon": [{"delta": row.at, **_claimed(row), **row.bracket.to_dict()} for row in answers.epsilon],
        "delta": [{"epsilon": row.at, **_claimed(row)} for row in answers.delta],
        "tpr": [{"fpr": fpr, **_ends(bracket)} for fpr, bracket in answers.tpr],
        "gdp": {
            "mu_lower": answers.mu.lower,
            "mu_upper": answers.mu.upper,
            "delta0": answers.delta0,
            "regret": answers.regret,
        },
        "advantage": _ends(answers.advantage),
        "separation": _ends(answers.separation),
        "refuted": any(row.refuted for row in answers.epsilon),
        "closes": answers.closes,
        "notes": list(answers.notes),
    }


def scope_of(answers: Answers) -> Record:
    """What the numbers are about, in words and as keys, and what they are for other neighbors."""
    if answers.stated is not None:
        stated = answers.stated
        scope = {"adjacency": stated.adjacency, "view": stated.view, "neighbors": stated.sentence}
        return {"scope": scope | {"assumed": list(stated.assumed)}}
    executed = {"executed": answers.executed} if answers.executed else {}
    found: Record = {"scope": scope_record(answers.runs, answers.dataset_sizes) | executed}
    return found | ({"relations": [one.to_dict() for one in answers.relations]} if answers.relations else {})


def played(record: Record, run: Run | None) -> tuple[Record, Record | None]:
    """The record of an audit with the run that it is said to be, and that run."""
    if run is None:
        return record, None
    described = run.to_dict()
    return {"run": described, **record}, described


def calibrated_record(calibration: Calibration) -> Record:
    """What was calibrated: the run's keys, with those that stand next to them; or what is stated."""
    run = calibration.run
    return run_record(calibration.phases) | calibration.release_keys if isinstance(run, Run) else run.stated.to_dict()


def calibration_record(calibration: Calibration) -> Record:
    """The object `calipers calibrate --json` prints; of several phases the first one's noise, and a list of all."""
    return {
        "noise_multiplier": calibration.noise_multiplier,
        "run": calibrated_record(calibration),
        "target": dict(calibration.target),
        "achieved": _ends(calibration.achieved),
    } | ({} if len(calibration.noise_multipliers) == 1 else {"noise_multipliers": list(calibration.noise_multipliers)})


def comparison_record(comparison: Comparison) -> Record:
    """The object `calipers compare --json` prints: each measurement, then the verdict on each pair."""
    return {
        "runs": [
            {"name": name, **measurement_record(answers)}
            for name, answers in zip(comparison.names, comparison.answers, strict=True)
        ],
        "headline": comparison.headline,
        "winner": comparison.winner,
        "verdicts": plain(comparison.verdicts),
    }


def _ends(bracket: Bracket) -> Record:
    return {"lower": bracket.lower, "upper": bracket.upper}


def _claimed(row: Claimed) -> Record:
    return {**_ends(row.bracket), "claim": row.claim}


def strict(value: object) -> object:
    """The value with every bound that is not finite as None; NaN raises."""
    if isinstance(value, float):
        if math.isnan(value):
            raise CertificationError("NaN is no bound and cannot be reported as one.")
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value
