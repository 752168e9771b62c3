"""`--report FILE`: the result as a file for people or for programs, beside what the command prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calipers.cli.kinds import FILE
from calipers.cli.options import Command, may_overwrite, overwrite_option, wrote

if TYPE_CHECKING:
    from calipers.reports.report import Report


def _checked(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
    """The path, refused before anything is computed if no report can be written there."""
    if value is None:
        return None
    from calipers.reports.files import check_report_path

    return check_report_path(value, overwrite=may_overwrite())


def report_option(command: Command) -> Command:
    """Add --report and --overwrite; the command gets `report_path`."""
    option = click.option(
        "--report",
        "report_path",
        type=FILE,
        metavar="FILE",
        callback=_checked,
        help="Also write a report: FILE.html to read, FILE.md for a model card, or FILE.json for programs.",
    )
    return option(overwrite_option(command))


def write_when_asked(path: Path | None, build: Callable[[], Report]) -> None:
    """Build and write the report if a file was named. Call it before printing: a failure leaves the output empty."""
    if path is None:
        return
    from calipers.reports.files import write_report

    write_report(build(), path, overwrite=True)  # checked before anything was computed
    wrote(path)
