"""`calipers compare`: several runs side by side, and which is certainly more private."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.budget_tables import BudgetTables
from calipers.cli.fail_on import end_measured
from calipers.cli.failures import BY_OPTIONS
from calipers.cli.kinds import FILE, option
from calipers.cli.options import (
    DEFAULT_TOLERANCE,
    check_place,
    load_changed,
    measured,
    question_options,
    repeated_run_options,
    run_option,
    tolerance_option,
    write,
)
from calipers.cli.outlet import Outlet, outlet_options
from calipers.cli.patience import patience
from calipers.cli.subjects import Subject, load_subject
from calipers.errors import InputError
from calipers.phases import with_one_adjacency
from calipers.run import KEYS, Run
from calipers.samplers import SAMPLERS, scheme_named

if TYPE_CHECKING:
    from calipers.reports.answers import Questions
    from calipers.reports.document import Document
    from calipers.reports.report import Report


Compared = tuple[tuple[str, ...], list[Subject], tuple[str, ...]]
"""Names and subjects to compare, and the files they are from."""


@click.command("compare", short_help="Say which of several runs is more private.")
@click.argument("files", nargs=-1, type=FILE, metavar="[NAME=]A.toml [NAME=]B.toml [...]")
@run_option("The same as A.toml; repeatable.", several=True)
@repeated_run_options
@option("--samplers", bool, "Compare one run with its counterparts under all samplers.")
@option("--output", FILE, "Also draw both bounds of all profiles: FILE.png or FILE.svg.", metavar="FILE")
@question_options
@tolerance_option(DEFAULT_TOLERANCE)
@outlet_options("refuted", "undecided")
def compare_command(
    files: tuple[str, ...],
    run_files: tuple[str, ...],
    alternatives: dict[str, tuple[object, ...]],
    samplers: bool,
    output: str | None,
    questions: Questions,
    tolerance: float,
    outlet: Outlet,
) -> None:
    """Measure several runs and say which is more private.

    A file may also state a guarantee (a [guarantee] table) or hold a dp_accounting event (FILE.json).

    A run is called certainly more private than another only when its proof beats the other's
    attack at every error rate. Where the bounds overlap or the curves cross, the verdict says so.

    Budgets ([calipers] of a run file, or pyproject.toml) decide about delta, adjacency and view that nobody named.

    Name run files, or describe runs by the options of `calipers measure`. An option given several
    times makes one run of each of its values; options replace what the files say, and
    a single file is compared with the run so changed. Runs are called by what
    differs between them; NAME=FILE gives one a name of your own.

    \b
    Examples:
      calipers compare poisson.toml shuffle.toml --delta 1e-6
      calipers compare mine=a.toml theirs=b.toml
      calipers compare run.toml --samplers --output samplers.png
      calipers compare run.toml --noise-multiplier 2
      calipers compare --sample-rate 0.01 --steps 1000 --noise-multiplier 1 --noise-multiplier 2
    """
    files = (*files, *run_files)
    file_format = None if output is None else chosen_picture(output)
    check_place(output)
    click.get_current_context().meta[BY_OPTIONS] = tuple(alternatives) if files else KEYS
    tables = {file: BudgetTables(file) for file in dict.fromkeys(named_file(word)[1] for word in files)}
    names, described, sources = (_sampled if samplers else _described)(tables, files, alternatives)
    questions = answering(list(tables.values()), questions)
    from calipers.reports.comparison import compare_measurements, profiles

    with patience("comparing") as say:
        measurements = []
        for number, (name, runs) in enumerate(zip(names, described, strict=True), start=1):
            say(f"measuring run {number} of {len(described)}, {name}")
            measurements.append(measured(runs, tolerance))
        say("comparing")
        comparison = compare_measurements(names, measurements, questions, sources)
    if output is not None and file_format is not None:
        from calipers.reports.plots import draw_profiles, picture

        write(picture(lambda ax: draw_profiles(ax, profiles(names, measurements)), file_format, wide=True), output)

    from calipers.reports.compared import brief_comparison, report_comparison
    from calipers.reports.records import comparison_record, to_document

    said = " ".join(dict.fromkeys(table.sentence for table in tables.values() if table.sentence))
    if said and outlet.as_json:
        click.echo(said, err=True)

    def page() -> Report:
        found = report_comparison(comparison, measurements, questions)
        return replace(found, document=_saying(said, found.document))

    outlet.say(
        page, lambda: to_document(comparison_record(comparison)), lambda: _saying(said, brief_comparison(comparison))
    )
    end_measured(outlet.fail_on, comparison.answers)


def _saying(said: str, document: Document) -> Document:
    """The document with what budgets decided, below what was measured."""
    return replace(document, subject=f"{document.subject}\n{said}".strip())


def answering(tables: Sequence[BudgetTables], questions: Questions) -> Questions:
    """The questions at the delta of all tables, where they have one and the same, and no option names one."""
    if not tables or len({table.said("delta") for table in tables}) > 1:
        return questions
    for table in tables:  # each says that it was asked
        asked = table.answering(questions)
    return asked


def _sampled(
    tables: Mapping[str, BudgetTables], files: Sequence[str], alternatives: dict[str, tuple[object, ...]]
) -> Compared:
    """One run as it is, and its counterparts under all other samplers; those it cannot have are left out, loudly."""
    several = [f"--{key.replace('_', '-')}" for key, values in alternatives.items() if len(values) > 1]
    if "sampler" in alternatives or several or len(files) > 1:
        given = ", ".join([*files, *several])
        raise InputError(
            f"--samplers compares one run with itself, got {given}; describe one."
            if given
            else "--samplers and --sampler contradict each other: both say which samplers; give one."
        )
    change = {key: values[0] for key, values in alternatives.items()}
    file = named_file(files[0])[1] if files else ""
    runs = tables[file].asked_of(load_changed(file, change)) if files else (Run.from_dict(change),)
    found: dict[str, Subject] = {}
    for name in SAMPLERS:
        scheme = scheme_named(name)
        try:
            kept = {} if "adjacency" in runs[0].assumed else {"adjacency": runs[0].adjacency}
            found[name] = tuple(
                run if run.sampler == name else run.replace(**scheme.counterpart(run), **kept) for run in runs
            )
        except InputError as error:
            click.echo(f"{name}: left out. {error}", err=True)
    return tuple(found), _alike(list(found.values())), (file,) * len(found) if files else ()


def _described(
    tables: Mapping[str, BudgetTables], files: Sequence[str], alternatives: dict[str, tuple[object, ...]]
) -> Compared:
    """Names and subjects to compare, and the files they are from."""
    from calipers.reports.naming import names_by_difference

    changes: list[dict[str, Any]] = [
        dict(zip(alternatives, values, strict=True)) for values in itertools.product(*alternatives.values())
    ]
    named = [named_file(word) for word in files]
    described: list[Subject]
    if not named:
        described = [(Run.from_dict(change),) for change in changes] if alternatives else []
    else:
        if len(named) == 1 and len(changes) == 1 and changes[0]:
            changes = [{}, *changes]
        described = [_changed(tables[file], file, change) for _, file in named for change in changes]
    described = _alike(described)
    if len(described) < 2:
        raise InputError(
            f"compare needs at least two runs, got {len(described)}; name another file, give an option twice, or add "
            "--samplers."
        )
    sources = tuple(file for _, file in named for _ in changes)
    runs = [subject for subject in described if isinstance(subject, tuple)]
    found = names_by_difference(runs) if len(runs) == len(described) else sources
    if found[0] == "run 1" and len(set(sources)) == len(described):
        found = sources
    own = [name for name, _ in named for _ in changes]
    if len(changes) == 1 and any(own):
        found = tuple(name or other for name, other in zip(own, found, strict=True))
    if len(set(found)) < len(described):
        raise InputError(f"Expected different names for the runs, got {', '.join(found)}.")
    return found, described, sources


def _alike(described: list[Subject]) -> list[Subject]:
    """Runs that name no adjacency, about neighbors that all of them have."""
    if not all(isinstance(subject, tuple) for subject in described):
        return described
    return list(with_one_adjacency(described))  # type: ignore[arg-type]  # all are phases of runs


def _changed(tables: BudgetTables, file: str, change: dict[str, Any]) -> Subject:
    """What a file describes; options replace what the file of a run says, and its budget what nobody named."""
    subject = load_changed(file, change) if change else load_subject(file)
    return tables.asked_of(subject) if isinstance(subject, tuple) else subject


def named_file(word: str) -> tuple[str, str]:
    """(name, file) of NAME=FILE; a file whose own name holds an equals sign is that file."""
    name, mark, file = word.partition("=")
    if not mark or Path(word).exists() or not name or not file:
        return "", word
    return name, file


def chosen_picture(output: str) -> str:
    """The picture format that the file's ending names."""
    ending = Path(output).suffix.removeprefix(".").lower()
    if ending not in ("png", "svg"):
        raise InputError(f"A picture of a comparison ends in .png or .svg, got --output {output}.")
    return ending
