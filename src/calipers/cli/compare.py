"""`calipers compare`: several runs side by side, and which is certainly more private."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from calipers.cli.options import DEFAULT_TOLERANCE, json_option, measured, question_options, show, tolerance_option
from calipers.errors import InputError
from calipers.run import load_runs

if TYPE_CHECKING:
    from calipers.reports.answers import Questions


@click.command("compare", short_help="Say which of several runs is more private.")
@click.argument("files", nargs=-1, metavar="A.toml B.toml [...]")
@question_options
@tolerance_option(DEFAULT_TOLERANCE)
@json_option
def compare_command(files: tuple[str, ...], questions: Questions, tolerance: float, as_json: bool) -> None:
    """Measure several run files and say which run is more private.

    A run is called certainly more private than another only when its proof beats the other's
    attack at every error rate. Where the jaws overlap or the curves cross, the verdict says so.

    \b
    Example:
      calipers compare poisson.toml shuffle.toml --delta 1e-6
    """
    if len(files) < 2:
        raise InputError(f"compare needs at least two run files, got {len(files)}; name another one.")
    described = [load_runs(name) for name in files]
    from calipers.reports.comparison import compare_measurements

    comparison = compare_measurements(files, [measured(runs, tolerance) for runs in described], questions)
    if as_json:
        from calipers.reports.records import comparison_record, to_json

        click.echo(to_json(comparison_record(comparison)))
        return
    from calipers.reports.table import comparison_report

    show(comparison_report(comparison))
