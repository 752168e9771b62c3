"""Where a command says what it found: as text or as JSON, in a report next to it (`--report FILE`), by its status."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.fail_on import fail_on_option
from calipers.cli.kinds import FILE, Command, option, refuse, with_options
from calipers.cli.options import explain_option, json_option, may_overwrite, overwrite_option, show, wrote

if TYPE_CHECKING:
    from calipers.reports.document import Document
    from calipers.reports.report import Report


def _checked(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
    """The path, refused before anything is computed if no report can be written there."""
    if value is None:
        title, model = _named()
        refuse("is about the report; name its file with --report.", report_title=title, report_model=model)
        return None
    from calipers.reports.files import check_report_path

    return check_report_path(value, overwrite=may_overwrite())


def report_option(command: Command) -> Command:
    """Add --report, its title and model, and --overwrite; the command gets `report_path`."""
    report = option(
        "--report",
        FILE,
        "Also write a report: FILE.html to read, FILE.md for a model card, or FILE.json for programs.",
        called="report_path",
        metavar="FILE",
        callback=_checked,
    )
    title = option("--report-title", None, "The title of the report.", metavar="TEXT", **_KEPT)
    model = option("--report-model", None, "The name of the model, below the title.", metavar="TEXT", **_KEPT)
    return report(title(model(overwrite_option(command))))


def _remember(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[f"calipers.{option.name}"] = value


def _named() -> tuple[str | None, str | None]:
    """The title and the model that were given."""
    about = click.get_current_context().meta
    return about.get("calipers.report_title"), about.get("calipers.report_model")


# Read before --report, which refuses them where it is not given.
_KEPT: dict[str, Any] = {"expose_value": False, "is_eager": True, "callback": _remember}


def write_when_asked(path: Path | None, build: Callable[[], Report]) -> None:
    """Build and write the report if a file was named. Call it before printing: a failure leaves the output empty."""
    if path is None:
        return
    from calipers.reports.files import write_report

    title, model = _named()
    write_report(build(), path, title=title, model=model, overwrite=True)  # checked before anything was computed
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
