"""What a request may say, checked the way the command line checks its options.

A body is one JSON object with the names of the options of `calipers measure`, underscores for hyphens. The run stands
either at the top, like options, or under "run", like a run file:

    {"dataset_size": 60000, "batch_size": 256, "epochs": 60, "noise_multiplier": 1.1, "delta": [1e-5]}
    {"run": {"sample_rate": 0.01, "steps": 100, "noise_multiplier": 1}, "fpr": 0.01}

Two requests that ask the same are equal, and are answered once.

JSON as Python reads it is laxer than JSON: NaN, Infinity and repeated keys pass. Here they are refused, since a number
that is not one and a value that was silently replaced would both be measured as if somebody had meant them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from calipers.calibrate.solve import TARGETS
from calipers.domains import TOLERANCE
from calipers.errors import InputError
from calipers.phases import as_phases, with_one_adjacency
from calipers.reports.answers import DEFAULT_DELTA0, Questions
from calipers.run import KEYS, Run

MOST_RUNS = 4
MOST_PHASES = 8
MOST_POINTS = 16
LONGEST_NAME = 40
DEFAULT_TOLERANCE = 1e-3
TARGET_KEYS = tuple(TARGETS)
QUESTION_KEYS = ("delta", "epsilon", "fpr", "delta0", "tolerance")


@dataclass(frozen=True)
class Asked:
    """One run and what to read off its measurement."""

    runs: tuple[Run, ...]
    questions: Questions
    tolerance: float


@dataclass(frozen=True)
class AskedTogether:
    """Several runs to compare, each under its name, all asked the same questions."""

    names: tuple[str, ...]
    each: tuple[Asked, ...]


def read_object(body: bytes) -> dict[str, object]:
    """The JSON object that the body is, or `InputError` saying why it is none."""
    try:
        found = json.loads(body, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)
    except InputError:
        raise
    except RecursionError as error:
        raise InputError("The body is nested too deeply; a run is flat.") from error
    except ValueError as error:
        raise InputError(f"The body is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"Expected the body to be one JSON object, got {type(found).__name__}.")
    return found


def read_asked(record: Mapping[str, object]) -> Asked:
    """One run with its questions."""
    questions, tolerance = _questions(record)
    rest = {key: value for key, value in record.items() if key not in QUESTION_KEYS}
    return Asked(_runs(rest), questions, tolerance)


@dataclass(frozen=True)
class AskedNoise:
    """A run and the target for which the smallest noise is wanted."""

    runs: tuple[Run, ...]
    target: tuple[tuple[str, float], ...]
    tolerance: float


def read_asked_noise(record: Mapping[str, object]) -> AskedNoise:
    """A run (its own noise is where the search begins, 1 if it has none) and one target."""
    target = tuple((key, TARGETS[key].check(key, _number(record[key]))) for key in TARGET_KEYS if key in record)
    if not target:
        raise InputError(f"Name a target: epsilon with delta, mu, advantage, or tpr with fpr, of {TARGET_KEYS}.")
    rest = {key: value for key, value in record.items() if key not in (*TARGET_KEYS, "tolerance")}
    tolerance = TOLERANCE.check("tolerance", record.get("tolerance", DEFAULT_TOLERANCE))
    return AskedNoise(_runs(rest), target, tolerance)


def read_asked_together(record: Mapping[str, object]) -> AskedTogether:
    """Two to four runs with their names and the questions to all of them."""
    questions, tolerance = _questions(record)
    _refuse_others(record, (*QUESTION_KEYS, "runs", "names"))
    runs = record.get("runs")
    if not isinstance(runs, list) or not 2 <= len(runs) <= MOST_RUNS:
        raise InputError(f"Expected runs to be a list of 2 to {MOST_RUNS} runs.")
    names = record.get("names", ["A", "B", "C", "D"][: len(runs)])
    if not isinstance(names, list) or not all(_is_name(name) for name in names):
        raise InputError(f"Expected names to be a list of texts of 1 to {LONGEST_NAME} characters.")
    if len(set(names)) != len(runs) or len(names) != len(runs):
        raise InputError(f"Expected {len(runs)} different names, one for each run, got {len(names)}.")
    alike = with_one_adjacency([_named(name, run) for name, run in zip(names, runs, strict=True)])
    return AskedTogether(tuple(names), tuple(Asked(phases, questions, tolerance) for phases in alike))


def _named(name: str, record: object) -> tuple[Run, ...]:
    """The run described; of several, the one that is refused is named."""
    try:
        return _described(record)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME


def _questions(record: Mapping[str, object]) -> tuple[Questions, float]:
    deltas, epsilons, fprs = (_points(record, name) for name in ("delta", "epsilon", "fpr"))
    questions = Questions.asked(deltas, epsilons, fprs, _number(record.get("delta0", DEFAULT_DELTA0)))
    return questions, TOLERANCE.check("tolerance", record.get("tolerance", DEFAULT_TOLERANCE))


def _points(record: Mapping[str, object], name: str) -> tuple[float, ...]:
    given = record.get(name, [])
    values = given if isinstance(given, list) else [given]
    if len(values) > MOST_POINTS:
        raise InputError(f"Expected at most {MOST_POINTS} values of {name}, got {len(values)}; ask again for more.")
    return tuple(_number(value) for value in values)


def _number(value: object) -> float:
    """Whole numbers as the doubles they are; everything else as it stands, for the domain to judge."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53:
        return float(value)
    return value  # type: ignore[return-value]  # `Questions` refuses what is no number


def _runs(record: dict[str, object]) -> tuple[Run, ...]:
    if "run" not in record:
        return _described(record)
    if len(record) > 1:
        others = ", ".join(repr(key) for key in record if key != "run")
        raise InputError(f"'run' and {others} contradict each other: both describe the run; give one of them.")
    return _described(record["run"])


def _described(record: object) -> tuple[Run, ...]:
    """The run a mapping describes; {"phase": [...]} holds several that follow one another, each complete."""
    if not isinstance(record, dict):
        raise InputError(f"Expected a run to be a JSON object, got {type(record).__name__}.")
    if "phase" not in record:
        return (Run.from_dict(record),)
    _refuse_others(record, ("phase",))
    phases = record["phase"]
    if not isinstance(phases, list) or not 1 <= len(phases) <= MOST_PHASES:
        raise InputError(f"Expected phase to be a list of 1 to {MOST_PHASES} runs.")
    return as_phases([Run.from_dict(phase) for phase in phases])


def _refuse_others(record: Mapping[str, object], allowed: tuple[str, ...]) -> None:
    for key in record:
        if key not in allowed:
            where = "; describe each run inside its own object" if key in KEYS else ""
            raise InputError(f"Unknown key {key!r}; the keys here are {', '.join(allowed)}{where}.")


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"The body holds {name}, which is no number; every value must be finite.")


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"The key {key!r} is given twice; give it once.")
        found[key] = value
    return found
