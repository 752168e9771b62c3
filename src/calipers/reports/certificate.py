"""A certificate attached to a report: what it proves, the file, its hash, and how to check it.

A report in HTML carries the file inside, so that whoever has the report has the certificate; Markdown and JSON name
it by its place next to the report. All of them state the SHA-256 of the file, byte by byte, so that a reader can tell
whether the certificate at hand is the one that was attached.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from calipers.reports.document import AttachedText, Items, Prose, Section
from calipers.reports.report import Report

if TYPE_CHECKING:
    from calipers.certificates import Certificate

_CHECK = (
    "The certificate proves the statements below, not the other numbers of this report, to whoever trusts neither "
    "Calipers nor this page: python -m calipers_verify FILE recomputes everything from the run stated in it, in "
    "integers and ball arithmetic."
)


def with_certificate(report: Report, certificate: Certificate, path: str, report_path: Path) -> Report:
    """The report of the certified run, with the certificate that was written to `path`."""
    place = os.path.relpath(Path(path).absolute(), report_path.absolute().parent)
    attached = AttachedText(Path(place).as_posix(), certificate.to_json())
    sentences = tuple(certificate.verdict.sentences())
    section = Section("Certificate", (Prose(_CHECK), Items(sentences), attached))
    sections = report.document.sections
    at = next((i for i, one in enumerate(sections) if one.title == "Notes"), len(sections))
    document = dataclasses.replace(report.document, sections=(*sections[:at], section, *sections[at:]))
    entry = {"file": attached.place, "sha256": attached.sha256, "proves": list(sentences)}
    return Report(document, {**report.record, "certificate": entry})
