"""`calipers compare`: several runs side by side, and which is certainly more private."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from calipers.cli.fail_on import end_measured, fail_on_option
from calipers.cli.options import (
    DEFAULT_TOLERANCE,
    check_folder,
    explain_option,
    json_option,
    measured,
    question_options,
    show,
    tolerance_option,
    write,
)
from calipers.cli.patience import patience
from calipers.cli.report_option import report_option, write_when_asked
from calipers.cli.subjects import Subject, load_subject
from calipers.errors import InputError
from calipers.run import Run, load_runs
from calipers.schemes import SAMPLERS, scheme_named

if TYPE_CHECKING:
    from calipers.reports.answers import Questions
    from calipers.reports.report import Report


@click.command("compare", short_help="Say which of several runs is more private.")
@click.argument("files", nargs=-1, metavar="A.toml B.toml [...]")
@click.option("--samplers", is_flag=True, help="Compare the one run file given with itself under all samplers.")
@click.option("--output", metavar="FILE", help="Also draw both jaws of all profiles, as FILE.png or FILE.svg.")
@question_options
@tolerance_option(DEFAULT_TOLERANCE)
@explain_option
@json_option
@fail_on_option("refuted", "open")
@report_option
def compare_command(
    files: tuple[str, ...],
    samplers: bool,
    output: str | None,
    questions: Questions,
    tolerance: float,
    explain: bool,
    as_json: bool,
    fail_on: tuple[str, ...],
    report_path: Path | None,
) -> None:
    """Measure several run files and say which run is more private.

    A file may also state a guarantee (a [guarantee] table) or hold a dp_accounting event (FILE.json).

    A run is called certainly more private than another only when its proof beats the other's
    attack at every error rate. Where the jaws overlap or the curves cross, the verdict says so.

    \b
    Examples:
      calipers compare poisson.toml shuffle.toml --delta 1e-6
      calipers compare run.toml --samplers --output samplers.png
    """
    file_format = None if output is None else chosen_picture(output)
    check_folder(output)
    names, described = _described(files, samplers)
    from calipers.reports.comparison import compare_measurements, profiles

    with patience("comparing"):
        measurements = [measured(runs, tolerance) for runs in described]
        comparison = compare_measurements(names, measurements, questions)
    if output is not None and file_format is not None:
        from calipers.reports.plots import draw_profiles, picture

        write(picture(lambda ax: draw_profiles(ax, profiles(names, measurements)), file_format, wide=True), output)

    def report() -> Report:
        from calipers.reports.compared import report_comparison

        return report_comparison(comparison, measurements)

    write_when_asked(report_path, report)
    if as_json:
        from calipers.reports.records import comparison_record, to_document

        click.echo(to_document(comparison_record(comparison)))
    else:
        from calipers.reports.compared import brief_comparison

        show(brief_comparison(comparison), explain=explain)
    end_measured(fail_on, comparison.answers)


def _described(files: tuple[str, ...], samplers: bool) -> tuple[tuple[str, ...], list[Subject]]:
    """Names and phases of the runs to compare."""
    if not samplers:
        if len(files) < 2:
            raise InputError(
                f"compare needs at least two run files, got {len(files)}; name another one, or --samplers."
            )
        return files, [load_subject(name) for name in files]
    if len(files) != 1:
        raise InputError(f"--samplers compares one run file with itself, got {len(files)}; name one.")
    runs = load_runs(files[0])
    return _under_every_sampler(runs)


def _under_every_sampler(runs: tuple[Run, ...]) -> tuple[tuple[str, ...], list[Subject]]:
    """The run as it is, and its counterparts under all other samplers; those it cannot have are left out, loudly."""
    names: list[str] = []
    described: list[Subject] = []
    for sampler in SAMPLERS:
        scheme = scheme_named(sampler)
        try:
            turned = tuple(run if run.sampler == sampler else run.replace(**scheme.counterpart(run)) for run in runs)
        except InputError as error:
            click.echo(f"{sampler}: left out. {error}", err=True)
            continue
        names.append(sampler)
        described.append(turned)
    if len(names) < 2:
        raise InputError("No other sampler can make this run: give dataset_size, batch_size and whole epochs.")
    return tuple(names), described


def chosen_picture(output: str) -> str:
    """The picture format that the file's ending names."""
    ending = Path(output).suffix.removeprefix(".").lower()
    if ending not in ("png", "svg"):
        raise InputError(f"A picture of a comparison ends in .png or .svg, got --output {output}.")
    return ending
