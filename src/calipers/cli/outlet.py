"""Where a command says what it found: as text or as JSON, in a report beside it (`--report FILE`), by its status."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.fail_on import fail_on_option
from calipers.cli.kinds import FILE, Command, option, with_options
from calipers.cli.options import explain_option, json_option, may_overwrite, overwrite_option, show, wrote

if TYPE_CHECKING:
    from calipers.reports.document import Document
    from calipers.reports.report import Report


def _checked(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
    """The path, refused before anything is computed if no report can be written there."""
    if value is None:
        return None
    from calipers.reports.files import check_report_path

    return check_report_path(value, overwrite=may_overwrite())


def report_option(command: Command) -> Command:
    """Add --report and --overwrite; the command gets `report_path`."""
    report = option(
        "--report",
        FILE,
        "Also write a report: FILE.html to read, FILE.md for a model card, or FILE.json for programs.",
        called="report_path",
        metavar="FILE",
        callback=_checked,
    )
    return report(overwrite_option(command))


def write_when_asked(path: Path | None, build: Callable[[], Report]) -> None:
    """Build and write the report if a file was named. Call it before printing: a failure leaves the output empty."""
    if path is None:
        return
    from calipers.reports.files import write_report

    write_report(build(), path, overwrite=True)  # checked before anything was computed
    wrote(path)


@dataclass(frozen=True)
class Outlet:
    """What was asked for: everything explained, JSON, a report, and a status on which conditions."""

    explain: bool
    as_json: bool
    fail_on: tuple[str, ...]
    report_path: Path | None

    def say(self, report: Callable[[], Report], record: Callable[[], str], brief: Callable[[], Document]) -> None:
        """Write the report if one was asked for, and print. Each is made when it is needed."""
        write_when_asked(self.report_path, report)
        if self.as_json:
            click.echo(record())
        else:
            show(brief(), explain=self.explain)


def outlet_options(*conditions: str) -> Callable[[Command], Command]:
    """Add --explain, --json, --fail-on (if it can find `conditions`) and --report; the command gets `outlet`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_outlet(
            *, explain: bool, as_json: bool, report_path: Path | None, fail_on: tuple[str, ...] = (), **values: Any
        ) -> Any:
            return command(outlet=Outlet(explain, as_json, fail_on, report_path), **values)

        gate = (fail_on_option(*conditions),) if conditions else ()
        return with_options(explain_option, json_option, *gate, report_option)(with_outlet)

    return decorate
