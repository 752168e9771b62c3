"""The JSON interface, described for programs (OpenAPI, at /api/openapi.json).

The schemas say which keys there are. What values they take is checked by the same code as on the command line, whose
sentences a schema could not give; so the routes read bodies themselves, and this description is for readers.
"""

from __future__ import annotations

from typing import Any

from calipers.explorer.requests import MOST_PHASES, MOST_POINTS, MOST_RUNS, TARGET_KEYS
from calipers.run import CHOICES
from calipers.run_meanings import DEFAULTS, MEANINGS, kind_of

REPORT_TYPES = {
    "html": "text/html; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "json": "application/json",
}
_KINDS: dict[type, dict[str, Any]] = {
    int: {"type": "integer", "minimum": 1},
    float: {"type": "number", "exclusiveMinimum": 0},
    str: {"type": "string"},
}


def _key(key: str, meaning: str) -> dict[str, Any]:
    """One key of a run: what it takes, its default where it has one, and what it means."""
    found = {"enum": list(CHOICES[key])} if key in CHOICES else _KINDS[kind_of(key)]
    default = {"default": DEFAULTS[key]} if key in DEFAULTS else {}
    return found | default | {"description": meaning}


_RUN: dict[str, Any] = {key: _key(key, meaning) for key, meaning in MEANINGS.items()}
_RUN["sample_rate"] |= {"maximum": 1}


def _several(name: str, meaning: str) -> dict[str, Any]:
    number = {"type": "number"}
    listed = {"type": "array", "items": number, "maxItems": MOST_POINTS}
    return {"title": name, "description": meaning, "oneOf": [number, listed]}


_QUESTIONS: dict[str, Any] = {
    "delta": _several("delta", "Report epsilon at these values (default 1e-5)."),
    "epsilon": _several("epsilon", "Report delta at these values."),
    "fpr": _several("fpr", "Report an attacker's true positive rate here (default 0.1, 0.01, 0.001)."),
    "delta0": {"type": "number", "default": 1e-10, "description": "mu is stated up to this failure probability."},
    "tolerance": {"type": "number", "default": 1e-3, "description": "Relative numerical width to aim for."},
}


def _object(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """An object with these keys."""
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {}) | more


_ONE_RUN = _object(_RUN, "noise_multiplier", additionalProperties=False)
_PHASES = {"phase": {"type": "array", "items": _ONE_RUN, "minItems": 1, "maxItems": MOST_PHASES}}
_RUN_OR_PHASES = {"oneOf": [_ONE_RUN, _object(_PHASES, "phase")]}
_MEASURED = {"run": _RUN_OR_PHASES, **_RUN, **_QUESTIONS}
_COMPARED = {
    "runs": {"type": "array", "items": _RUN_OR_PHASES, "minItems": 2, "maxItems": MOST_RUNS},
    "names": {"type": "array", "items": {"type": "string"}},
    **_QUESTIONS,
}
_CALIBRATED = {"run": _RUN_OR_PHASES, **_RUN, **{key: {"type": "number"} for key in TARGET_KEYS}}
_FORMAT = {"format": {"enum": list(REPORT_TYPES), "default": "html"}}
_REFUSAL = _object({"error": {"type": "string"}, "kind": {"type": "string"}}, "error", "kind")


def _operation(summary: str, keys: dict[str, Any], meaning: str, *required: str) -> dict[str, Any]:
    body = {"schema": _object(keys, *required)}
    refusals = {
        413: "The body is too large.",
        422: "Bad input, or nothing is proven about it; the sentence says what to change.",
        503: "Too many requests are waiting.",
        504: "Stopped at the time limit.",
    }
    return {
        "summary": summary,
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": body}}},
        "responses": {
            200: {"description": meaning},
            **{
                status: {"description": text, "content": {"application/json": {"schema": _REFUSAL}}}
                for status, text in refusals.items()
            },
        },
    }


OPERATIONS: dict[str, dict[str, Any]] = {
    "measure": _operation("Measure one run", _MEASURED, "What `calipers measure --json` prints."),
    "explore": _operation("Measure one run, for the page", _MEASURED, "The measurement, shown numbers, curves."),
    "compare": _operation("Compare runs", _COMPARED, "What `calipers compare --json` prints.", "runs"),
    "calibrate": _operation("Find the smallest noise", _CALIBRATED, "What `calipers calibrate --json` prints."),
    "report": _operation("Write the report of a run", _FORMAT | _MEASURED, "What `calipers measure --report` writes."),
    "compare report": _operation(
        "Write the report of a comparison", _FORMAT | _COMPARED, "What `calipers compare --report` writes.", "runs"
    ),
}
