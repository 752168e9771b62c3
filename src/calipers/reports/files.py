"""Where a report goes: the form by the ending of the file, the file checked before and written at once.

A measurement may take minutes, an audit hours; a path that cannot work is refused before they begin. The file appears
whole or not at all: it is written next to its place under a temporary name and then renamed.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.atomic_write import atomic_write
from calipers.errors import InputError
from calipers.provenance import origin

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.reports.answers import Questions
    from calipers.reports.report import Report

ENDINGS = (".html", ".md", ".json")
_AS_SEARCHED = 5e-4
"""Tolerance of the last measurements of a calibration's search."""
WEIGHTS = b"Trained with Calipers"
MARKS = (
    b'<meta name="generator" content="Calipers',
    b"Measured with Calipers",
    b'"schema": "calipers-',
    b'{"format":"calipers-certificate"',
    b'"made_by": "calipers',
    b"side,alpha,beta\n",
    b"side,epsilon,delta\n",
    b"Drawn with Calipers",
    b'<testsuites name="calipers check"',
    b"## Evaluation after NIST SP 800-226 (March 2025)",
    WEIGHTS,
)
"""By one of these a file that Calipers wrote is known."""


def check_report_path(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """The path, if a report can be written there as far as one can tell; else `InputError` with a remedy."""
    place = check_place(path, "the report to ", overwrite=overwrite)
    if place.suffix.lower() not in ENDINGS:
        raise InputError(f"Cannot tell the form of the report {place} from its ending; end it in .html, .md or .json.")
    if place.exists() and not place.is_file():
        raise InputError(f"Cannot write the report to {place}: it is not a regular file; choose another name.")
    return place


def check_place(path: str | os.PathLike[str], what: str = "", *, overwrite: bool) -> Path:
    """The path, if a file can be written there as far as one can tell; `what` is written, as a refusal says it."""
    name = os.fspath(path)
    if not name or "\0" in name:
        raise InputError("A file without a name, or with the character NUL in it, cannot be written; name another.")
    place, cannot = Path(name), f"Cannot write {what}{name}"
    if place.is_dir():
        raise InputError(f"{cannot}: it is a folder; name a file in it{what and ', such as report.html'}.")
    folder = Path(os.path.realpath(place)).parent
    if not folder.is_dir():
        raise InputError(f"{cannot}: there is no folder {folder}; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{cannot}: the folder {folder} is not writable; choose another.")
    refuse_foreign(place, overwrite=overwrite)
    return place


def refuse_foreign(place: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file that Calipers did not write, unless given to; an empty one is nobody's."""
    if overwrite or not place.is_file():
        return
    content = place.read_bytes()
    if content and not any(mark in content for mark in MARKS):
        raise InputError(
            f"{place} exists and was not written by Calipers; choose another name, or say --overwrite "
            "(in Python the argument overwrite)."
        )


def write_report(
    result: Report | Measurement | Any,
    path: str | os.PathLike[str],
    questions: Questions | None = None,
    *,
    delta: float | None = None,
    title: str | None = None,
    model: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the report of a measurement, or one that is made already, as the ending says.

    Args:
        result: a measurement, a report, a calibration, or the record of a training that was watched; the last two are
            then measured.
        path: of the file: .html, .md, .json, ...
        questions: what a measurement is asked, `calipers.reports.answers.Questions(deltas=(1e-6,), ...)`; the usual
            ones if left out.
        delta: at which epsilon is read, the short form of `questions`. A calibration has its own.
        title: stands at its head.
        model: what was trained.
        overwrite: replace a file that Calipers did not write too.

    Returns:
        The path.

    Raises:
        InputError: there is no report of such a thing, or it cannot be written there.
    """
    place = check_report_path(path, overwrite=overwrite)
    from calipers.calibrate import Calibration
    from calipers.measure import Measurement
    from calipers.reports.answers import Questions
    from calipers.reports.report import Report, as_measured, report_calibration, report_measurement

    if delta is not None and questions is not None:
        raise InputError("Give delta or questions, which name the deltas.")
    asked = questions if questions is not None else Questions.asked(() if delta is None else (delta,))
    if isinstance(result, Calibration):
        if delta is not None or questions is not None:
            raise InputError("A calibration is reported at the delta of its target; leave delta and questions out.")
        found = result.measured(_AS_SEARCHED)
        result = report_calibration(as_measured(result, found), found)
    elif not isinstance(result, Measurement | Report) and hasattr(result, "why_not"):
        result = result.measure()
    if not isinstance(result, Measurement | Report):
        raise InputError(
            "Expected a measurement, a calibration, a report, or the record of attach, got "
            f"{type(result).__name__}; measure it first."
        )
    if isinstance(result, Measurement):
        result = report_measurement(result, asked)
    elif delta is not None or questions is not None:
        raise InputError("This report is made already; delta and questions are for a measurement. Leave them out.")
    write_whole(place, rendered(result.named(title, model), place.suffix.lower()))
    return place


def rendered(report: Report, ending: str) -> str:
    """The report as .html, .md or .json."""
    from calipers.reports.html import to_html
    from calipers.reports.markdown import to_markdown
    from calipers.reports.records import run_of_record, to_document

    run = run_of_record(report.record)
    if ending == ".json":
        return to_document(report.record, run) + "\n"
    document = dataclasses.replace(report.document, origin=_origin(run))
    return to_html(document) if ending == ".html" else to_markdown(document)


def _origin(run: dict[str, object] | None) -> str:
    """Version, date, command and the hash of the run, in one sentence."""
    about = origin(run)
    hashed = f" The run has the SHA-256 {about['run_sha256']} (run_sha256 in JSON)." if run is not None else ""
    return f"Written on {about['date']} by: {about['command']}.{hashed}"


def write_whole(path: Path, content: str | bytes) -> None:
    """Put the text at the path in one step; a link is followed, the mode of a file that is replaced is kept."""
    try:
        atomic_write(path, [content.encode() if isinstance(content, str) else content])
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror or error}; choose another place.") from error
