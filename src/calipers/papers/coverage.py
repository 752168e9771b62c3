"""Every numbered statement, table and figure of the papers, with what became of it here.

The rows are data (`coverage.csv`), in the order of each paper: the place, what stands there, a verdict, the names of
what computes it, and a reason. The verdicts:

- *implemented*: a function is the statement; *reproduced*: an item computes the table or figure again;
- *false as printed*: a counterexample, or the reading under which it fails, stands in the reason;
- *not computable*: the statement yields no number, and the reason says why;
- *described*: what a user can do about it instead; *nothing to compute*: a diagram, notation, an assumption.

A name is that of a theorem (`calipers theorem NAME`), of an item (`calipers reproduce NAME`), or the dotted name of a
function or class.
"""

from __future__ import annotations

import csv
import enum
from dataclasses import dataclass
from functools import cache
from importlib import resources

from calipers.citations import SOURCES, Source
from calipers.errors import InputError
from calipers.papers.registry import list_items
from calipers.theorems import THEOREMS


class CoverageVerdict(enum.Enum):
    """What became of a statement."""

    IMPLEMENTED = "implemented"
    REPRODUCED = "reproduced"
    FALSE = "false as printed"
    NOT_COMPUTABLE = "not computable"
    DESCRIBED = "described"
    NOTHING = "nothing to compute"


NAMES_WHAT_COMPUTES = (CoverageVerdict.IMPLEMENTED, CoverageVerdict.REPRODUCED)
"""With these verdicts the names are the answer; with every other one it is the reason."""


@dataclass(frozen=True)
class Covered:
    """One row: `by` names what computes it, `why` is the reason for the verdict or a reservation."""

    source: Source
    place: str
    says: str
    verdict: CoverageVerdict
    by: tuple[str, ...]
    why: str


@cache
def coverage() -> tuple[Covered, ...]:
    """Every row, papers in the order of the file. A verdict that does not exist, or lacks its reason, raises."""
    text = resources.files("calipers.papers").joinpath("coverage.csv").read_text("utf-8")
    return tuple(_row(line) for line in csv.DictReader(text.splitlines()))


def _row(line: dict[str, str]) -> Covered:
    verdict = CoverageVerdict(line["verdict"])
    by = tuple(line["by"].split())
    answered = by if verdict in NAMES_WHAT_COMPUTES else line["why"]
    if not answered:
        missing = "what computes it" if verdict in NAMES_WHAT_COMPUTES else "the reason"
        raise InputError(f"{line['place']} of {line['source']} is {verdict.value} but does not say {missing}.")
    return Covered(SOURCES[line["source"]], line["place"], line["says"], verdict, by, line["why"])


def how_to_run(name: str) -> str:
    """The command, or the dotted name, under which a reader finds what a row names; `InputError` if it is neither.

    Dotted names are not imported: what trains needs PyTorch, and a list does not.
    """
    if name in THEOREMS:
        return f"calipers theorem {name}"
    if any(item.name == name for item in list_items()):
        return f"calipers reproduce {name}"
    if name.startswith("calipers."):
        return name
    raise InputError(f"{name!r} is neither a theorem, nor an item, nor a name of Calipers.")


def by_paper() -> dict[str, list[Covered]]:
    """The rows of each paper, by its key."""
    papers: dict[str, list[Covered]] = {}
    for row in coverage():
        papers.setdefault(row.source.key, []).append(row)
    return papers
