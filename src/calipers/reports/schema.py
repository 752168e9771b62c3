"""The shape of a report for programs, versioned.

`SCHEMA` names the version and is the first key of every report. Within one version keys may be added, never renamed,
removed or given another meaning; `assets/report.schema.json` says which there are, as JSON Schema (draft 2020-12).
`assets/measure.schema.json` does the same for `measure --json`, `assets/receipt.schema.json` for receipts.
"""

from __future__ import annotations

import json
from typing import Any

SCHEMA = "calipers-report/1"


def asset(name: str) -> str:
    """A text file that is shipped with the reports."""
    from importlib.resources import files

    return files("calipers.reports").joinpath("assets", name).read_text(encoding="utf-8")


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of a "report", of a "receipt", or of what `calipers measure --json` prints ("measure")."""
    schema: dict[str, Any] = json.loads(asset(f"{kind}.schema.json"))
    return schema
