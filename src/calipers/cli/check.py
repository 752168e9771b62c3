"""`calipers check`: a gate for build servers, hooks and people in a hurry."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calipers.cli.kinds import REAL, option, word
from calipers.cli.options import SAME_AS_RUN, check_place, json_option, overwrite_option, run_option, write
from calipers.cli.patience import patience
from calipers.errors import InputError, UnsupportedError
from calipers.run import CHOICES

if TYPE_CHECKING:
    from calipers.gate import Budget, Checked, Described


@click.command("check", short_help="Fail when a run is not proven to be within a budget.")
@click.argument("files", metavar="[RUN]...", nargs=-1)
@run_option(SAME_AS_RUN + " Repeatable.", several=True)
@option("--epsilon", REAL, "The budget: epsilon at --delta.")
@option("--delta", REAL, "The budget's delta; there is no default.")
@option("--adjacency", word(CHOICES["adjacency"]), "The budget's neighbors: runs that name other ones are refused.")
@option("--view", word(CHOICES["view"]), "The budget's adversary: runs in the other view are refused.")
@json_option
@option("--github", bool, "Print GitHub workflow commands, shown as annotations in a pull request.")
@option("--junit", None, "Also write the outcomes as JUnit XML.", called="junit_path", metavar="FILE")
@overwrite_option
def check_command(
    files: tuple[str, ...],
    run_files: tuple[str, ...],
    epsilon: float | None,
    delta: float | None,
    adjacency: str | None,
    view: str | None,
    as_json: bool,
    github: bool,
    junit_path: str | None,
) -> None:
    """Measure runs and hold them against a privacy budget.

    RUN is a run file, a receipt, or what `calipers measure --json` printed; the run in it is measured
    again, its numbers are not trusted. What else a receipt says is verified as well (see
    verify-receipt), and one that contradicts its own run is not within any budget. Behind -- every
    word is a RUN, also one that begins with a hyphen. The budget is given by options, by [calipers] in a run
    file, or by [tool.calipers] in the nearest pyproject.toml with a budget; the first of these that has a key counts
    for it. A run file cannot choose the isolated view, other neighbors than a budget given elsewhere names, or a
    larger epsilon or delta than pyproject.toml; a budget that names no neighbors takes those of the run.
    Without RUN, the files that `runs` in pyproject.toml names are checked.

    \b
      [tool.calipers]
      epsilon = 3
      delta = 1e-5
      runs = ["run.toml"]

    Every run's outcome goes to standard output. Exit status, the gravest outcome of all:

    \b
      4  an explicit attack already exceeds the budget
      3  the upper bound, a proof, is above the budget or infinite; or it
         holds for only one of adding and removing a record, even if it
         is within the budget
      1  Calipers has no bound for the run (and says why), or a receipt
         contradicts its run
      0  every upper bound is within its budget

    With 2 (bad input) and 70 (a defect of Calipers) nothing is decided: one sentence goes to standard error.

    \b
    Examples:
      calipers check run.toml --epsilon 3 --delta 1e-5
      calipers check poisson.toml shuffle.toml --epsilon 3 --delta 1e-5 --junit privacy.xml
      calipers check --github
    """
    if as_json and github:
        raise InputError("--json and --github both choose what is printed; give one of them.")
    check_place(junit_path)
    from calipers.gate.machine import github_commands, github_refusal, junit
    from calipers.provenance import date

    options = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency, "view": view}
    try:
        with patience("checking"):
            found = _checked((*files, *run_files), options)
    except (InputError, UnsupportedError) as error:
        if github:
            click.echo(github_refusal(str(error)), nl=False)
        raise
    status = max(one.outcome.exit_status for one in found)
    if junit_path is not None:
        write(junit(found, date()), junit_path)
    if github:
        click.echo(github_commands(found), nl=False)
    else:
        _print(found, status, as_json)
    sys.exit(status)


def _print(found: list[Checked], status: int, as_json: bool) -> None:
    """Every outcome, for people or as one JSON object."""
    if as_json:
        from calipers.reports.records import to_document

        click.echo(to_document({"exit_status": status, "runs": [one.to_dict() for one in found]}))
        return
    for one in found:
        click.echo(f"{one.name}: {one.sentence}")


def _checked(files: tuple[str, ...], options: Mapping[str, object]) -> list[Checked]:
    """Every run against its budget. All files are read before anything is measured."""
    from calipers.gate import find_settings

    place, settings = find_settings()
    asked = []
    for name in files or _listed(place, settings):
        with _naming(name):
            asked.append(_asked(name, options, settings))
    found = []
    for one, budget in asked:
        with _naming(one.name):
            found.append(_held(one, budget))
    return found


def _asked(name: str, options: Mapping[str, object], settings: Mapping[str, object]) -> tuple[Described, Budget]:
    """What a file describes, and the budget that counts for it."""
    from calipers.gate import configured, read_described, refuse_looser

    one = read_described(name)
    own = one.budget or {}
    refuse_looser(own, options, settings)
    budget = configured(options, own, settings)
    budget.about(budget.asked_of(one.runs), one.assumed)
    return one, budget


def _held(one: Described, budget: Budget) -> Checked:
    """One run against its budget; what a receipt says beside its run is verified as well."""
    from calipers.gate import check, uncertified
    from calipers.receipts.verify import verify_receipt, with_receipt
    from calipers.reports.answers import large_deltas
    from calipers.scope import in_units

    if one.runs:
        result = check(one.runs, budget, name=one.name, attained=one.attained, assumed=one.assumed)
        if one.receipt is not None and one.in_its_words:
            result = replace(result, sentence=f"{result.sentence} {' '.join(one.in_its_words)}")
        if result.bracket is not None and not result.warned:
            notes = (in_units(note, one.runs[0]) for note in large_deltas(one.runs, [budget.delta]))
            result = replace(result, sentence=" ".join((result.sentence, *(f"Note: {note}" for note in notes))))
    else:
        result = uncertified(one.name, (), budget, " ".join(one.in_its_words) or "the file says so.")
    return result if one.receipt is None else with_receipt(result, verify_receipt(one.receipt))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Refusals name the file they are about: there may be several."""
    try:
        yield
    except (InputError, UnsupportedError) as error:
        if name in str(error):
            raise
        raise type(error)(f"{name}: {error}") from error


def _listed(place: Path | None, settings: dict[str, object]) -> list[str]:
    """The run files that pyproject.toml names, as seen from the current folder."""
    names = settings.get("runs")
    if place is None or names is None:
        raise InputError(
            "Nothing to check: name a run file, or list them as runs = [...] under [tool.calipers] in pyproject.toml."
        )
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{place}: expected runs to be a list of file names, got {names!r}.")
    try:
        folder = place.parent.relative_to(Path.cwd())
    except ValueError:
        folder = place.parent
    return [str(folder / name) for name in names]
