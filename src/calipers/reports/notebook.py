"""Objects as a notebook and `print` show them: verdict, ruler, what to report, the table; evidence folded away.

    cp.measure(run)        the last line of a cell        print(cp.measure(run))        the same as text

A page may hold many of them, in the light or in the dark: every piece brings its own style, which touches nothing else,
takes its ink from the page around it, and its pictures have ids of their own.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable

from calipers.auditing.audit import AuditResult
from calipers.bracket import Bracket
from calipers.measure import Measurement
from calipers.reports.answers import Questions, answer
from calipers.reports.audited import brief_audit
from calipers.reports.chart import Interval
from calipers.reports.compared import brief_comparison
from calipers.reports.comparison import Comparison
from calipers.reports.document import Document, Figure, Items, Section, Table
from calipers.reports.figures import interval_figure
from calipers.reports.html import fragment
from calipers.reports.report import brief_measurement
from calipers.reports.sections import run_section
from calipers.reports.terminal import to_text
from calipers.reports.words import describe
from calipers.run import Run

_OF_BRACKETS = "Proofs and attacks: .upper_evidence and .lower_evidence of each bracket."
_MORE: dict[type, str] = {
    Measurement: "Proofs and attacks: m.epsilon(1e-5).upper_evidence and .lower_evidence (m: this measurement).",
    Bracket: "Proof and attack: .upper_evidence and .lower_evidence.",
}


def text(thing: object) -> str:
    """What `print` shows."""
    more = next((said for kind, said in _MORE.items() if isinstance(thing, kind)), _OF_BRACKETS)
    return to_text(document_of(thing), more=more).rstrip("\n")


def html(thing: object) -> str:
    """What a notebook shows."""
    document = document_of(thing)
    key = f"c{zlib.crc32(repr(document).encode('utf-8', 'backslashreplace')):08x}"
    opening = tuple(block.within(key) if isinstance(block, Figure) else block for block in document.opening)
    return fragment(dataclasses.replace(document, opening=opening))


def document_of(thing: object) -> Document:
    """The short document about an object."""
    for kind, make in _MAKERS.items():
        if isinstance(thing, kind):
            return make(thing)
    raise TypeError(f"There is no short form of {type(thing).__name__}.")


def _bracket(bracket: Bracket) -> Document:
    """Both bounds on a ruler, and the evidence behind them."""
    row = Interval("value", bracket.lower, bracket.upper)
    figure = interval_figure("bracket", "value", (row,))
    behind = (("at least", bracket.lower_evidence), ("at most", bracket.upper_evidence))
    blocks = (Items(tuple(f"{end}: {found.statement} [{found.source}]" for end, found in behind)),)
    return Document("bracket", "Bracket", "", str(bracket), (), (figure,), (Section("Evidence", blocks, detail=True),))


def _run(run: Run) -> Document:
    """The run in one sentence and as a table."""
    tables = tuple(block for block in run_section((run,)).blocks if isinstance(block, Table))
    return Document("run", "Run", verdict=describe(run), sections=(Section("Settings", tables),))


_MAKERS: dict[type, Callable[..., Document]] = {
    Measurement: lambda found: brief_measurement(answer(found, Questions.asked()), found.tolerance),
    AuditResult: brief_audit,
    Comparison: brief_comparison,
    Bracket: _bracket,
    Run: _run,
}
