"""The options that several commands share: the run, the questions, the tolerance, the output."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.budget_tables import met_tables
from calipers.cli.failures import BY_OPTIONS, naming_options
from calipers.cli.kinds import COUNT, FILE, RATE, REAL, Command, Kind, option, with_options, word
from calipers.cli.quick import load_special
from calipers.cli.subjects import (
    EventFile,
    MenuFile,
    Subject,
    menu_of,
    subject_of,
    with_noisy_options,
    with_stated_options,
)
from calipers.domains import TOLERANCE
from calipers.errors import InputError
from calipers.phases import as_phases, load_runs
from calipers.run import CHOICES, KEYS, Run
from calipers.run_meanings import DEFAULTS, MEANINGS, kind_of

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.reports.document import Document

DEFAULT_TOLERANCE = 1e-3

_KINDS: dict[type, Kind] = {int: COUNT, float: REAL, str: click.STRING}
_LETTERS = {
    "dataset_size": "N",
    "batch_size": "B",
    "sample_rate": "Q",
    "epochs": "E",
    "steps": "T",
    "noise_multiplier": "S",
    "dimension": "n",
    "max_batch_size": "B",
    "cycle": "K",
    "participations": "K",
    "unit": "NAME",
    "records_per_unit": "G",
}


def keyed_options(*keys: str, multiple: bool = False, **defaults: str) -> Callable[[Command], Command]:
    """The options of these keys of a run, or of all; `defaults` are given where nothing else is."""

    def option(key: str) -> Callable[[Command], Command]:
        default = (DEFAULTS | defaults).get(key)
        # Another key that a sentence names is an option here.
        meaning = MEANINGS[key].replace("or give ", "or give --")
        said = meaning if default is None else f"{meaning} [default: {default}]"
        kind = word(CHOICES[key]) if key in CHOICES else RATE if key == "sample_rate" else _KINDS[kind_of(key)]
        once = None if multiple else functools.partial(_once, defaults.get(key))
        about: dict[str, Any] = {"metavar": _LETTERS.get(key), "help": said, "callback": once}
        return click.option(f"--{key.replace('_', '-')}", type=kind, multiple=True, **about)

    return with_options(*map(option, keys or MEANINGS))


def _once(default: object, context: click.Context, option: click.Parameter, values: Sequence[object]) -> object:
    """The one value of an option. Two are a contradiction: whichever counted, the other one might have been meant."""
    if len(set(values)) > 1:
        raise click.BadParameter(f"it is given {len(values)} times, with different values; give one.", context, option)
    return values[0] if values else default


def run_option(said: str, *, several: bool = False) -> Callable[[Command], Command]:
    """--run FILE, the other way to name a run file, which every command has that reads one."""
    about: dict[str, Any] = {"called": "run_files", "multiple": True} if several else {"called": "run_file"}
    return option("--run", FILE, said, metavar="FILE", **about)


SAME_AS_RUN = "The same as RUN."


def run_named(run_path: str | None, run_file: str | None) -> str | None:
    """The run file that is named by RUN or by --run; not by both."""
    if run_path is not None and run_file is not None:
        raise InputError("RUN and --run both name the run file; give one of them.")
    return run_file if run_path is None else run_path


def run_options(
    *,
    noise_default: float | None = None,
    optional: bool = False,
    stated: bool = False,
    noisy: bool = False,
    positional: bool = True,
    menus: bool = False,
    budgeted: bool = False,
) -> Callable[[Command], Command]:
    """Add RUN, --run and the options that describe a run; the command gets `runs`, its phases.

    Without `positional` the command's own argument is something else, and --run alone names the file.

    With `stated`, a guarantee or an event may be given instead, and `runs` is what `measured` understands. With
    `noisy`, the run may have correlated noise, be selected among several, or release more than the gradient.

    With `menus`, the file may describe an adaptive run, and `runs` is that. With `budgeted`, the budget that goes with
    the file decides about neighbors that nobody named (`budget_tables`).

    `noise_default` stands in for a noise multiplier that the command is about to find. With `optional`, `runs` is
    empty when no run is described.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_runs(**values: Any) -> Any:
            given = {key: value for key in KEYS if (value := values.pop(key)) is not None}
            run_file = run_named(values.pop("run_path", None), values.pop("run_file"))
            click.get_current_context().meta[BY_OPTIONS] = KEYS if run_file is None else tuple(given)
            defaults: dict[str, object] = {} if noise_default is None else {"noise_multiplier": noise_default}

            tables = met_tables(run_file if budgeted else None)

            def read(*keys: str) -> tuple[Run, ...]:
                return tables.asked_of(_runs(run_file, given, defaults, keys))

            subject: Subject | None = None
            if stated or noisy:
                subject = subject_of(values, given, run_file, read, defaults, noisy=noisy)
                subject = subject if subject is None else tables.asked_of_noise(subject, given)
            elif menus and run_file is not None:
                subject = menu_of(run_file, list(given))
            if subject is None:
                subject = () if optional and run_file is None and not given else read()
            return command(runs=subject, **values)

        more = (with_stated_options,) if stated else (with_noisy_options,) if noisy else ()
        argument = click.argument("run_path", type=FILE, metavar="[RUN]", required=False)
        read = "Read the run from a TOML file, - for standard input; options replace what it says."
        named = (argument, run_option(SAME_AS_RUN)) if positional else (run_option(read),)
        return with_options(*named, keyed_options(), *more)(with_runs)

    return decorate


# Keys that a file may leave out because an option gives them.
_FILLED = (
    "noise_multiplier", "dataset_size", "batch_size", "sample_rate", "steps", "epochs", "dimension", "unit",
    "records_per_unit",
)  # fmt: skip


def _runs(
    run_file: str | None, given: dict[str, object], defaults: dict[str, object], other_keys: Sequence[str]
) -> tuple[Run, ...]:
    """The phases described by options, or by a file with options that replace what it says."""
    load_special()
    if run_file is None:
        return (Run.from_dict(defaults | given),)
    return load_changed(run_file, given, defaults, other_keys)


def load_changed(
    run_file: str,
    given: Mapping[str, object],
    defaults: Mapping[str, object] | None = None,
    other_keys: Sequence[str] = (),
) -> tuple[Run, ...]:
    """The phases of a file with the keys given in place of its own; keys named by `other_keys` are read elsewhere."""
    load_special()
    filled = {key: value for key, value in given.items() if key in _FILLED}
    phases = load_runs(run_file, defaults={**(defaults or {}), **filled}, other_keys=other_keys)
    lengths = [f"--{key}" for key in ("steps", "epochs") if key in given]
    if len(phases) > 1 and lengths:
        raise InputError(f"{lengths[0]} would give all {len(phases)} phases of {run_file} one length; change the file.")
    return as_phases([phase.replace(**given) for phase in phases]) if given else phases


def repeated_run_options(command: Command) -> Command:
    """Add the options that describe a run, each repeatable; the command gets `alternatives`, the values of each key."""

    @functools.wraps(command)
    def with_alternatives(**values: Any) -> Any:
        found = {key: tuple(dict.fromkeys(given)) for key in KEYS if (given := values.pop(key))}
        return command(alternatives=found, **values)

    return keyed_options(multiple=True)(with_alternatives)


def question_options(command: Command) -> Command:
    """Add --delta, --epsilon, --fpr (each repeatable) and --delta0; the command gets `questions`."""

    @functools.wraps(command)
    def with_questions(**values: Any) -> Any:
        from calipers.reports.answers import Questions

        questions = Questions.asked(*(values.pop(name) for name in ("delta", "epsilon", "fpr", "delta0")))
        return command(questions=questions, **values)

    return with_options(
        option("--delta", REAL, "Report epsilon at this delta; repeatable. [default: 1e-5]", multiple=True),
        option("--epsilon", REAL, "Report delta at this epsilon; repeatable.", multiple=True),
        option(
            "--fpr",
            REAL,
            "Report an attacker's true positive rate at this false positive rate; repeatable. "
            "[default: 0.1, 0.01, 0.001]",
            multiple=True,
        ),
        option("--delta0", REAL, "mu is stated up to this failure probability.", default=1e-10, show_default="1e-10"),
    )(with_questions)


def tolerance_option(default: float) -> Callable[[Command], Command]:
    """Add --tolerance, checked to lie in [1e-6, 1)."""

    def check(_context: click.Context, _option: click.Parameter, value: float) -> float:
        return TOLERANCE.check("tolerance", value)

    return option(
        "--tolerance",
        REAL,
        "Relative numerical width to aim for. Narrower takes longer; the bounds hold at any width.",
        default=default,
        callback=check,
    )


explain_option = option("--explain", bool, "Also print the proof or attack behind every number.")
json_option = option("--json", bool, "Print one JSON object; null means no finite bound.", called="as_json")


def measured(runs: Subject, tolerance: float, dataset_sizes: tuple[int, int] | None = None) -> Measurement:
    """Measure the phases of one run, or what is stated."""
    from calipers.measure import measure

    if dataset_sizes is not None and not isinstance(runs, tuple):
        raise InputError("--dataset-size-range is about runs whose divisor moves with the data; leave it out.")
    if isinstance(runs, EventFile):
        return runs.measured(tolerance)
    if dataset_sizes is not None and dataset_sizes[0] > dataset_sizes[1]:
        low, high = dataset_sizes
        raise InputError(f"Expected --dataset-size-range LOW HIGH with LOW at most HIGH, got {low} {high}.")
    assert not isinstance(runs, MenuFile)  # only `calibrate` is handed a menu without a budget
    return measure(runs, tolerance=tolerance, dataset_sizes=dataset_sizes)


def show(document: Document, *, explain: bool = False) -> None:
    """Print a report, in color when standard output is a terminal; where the run was typed, its keys are options."""
    from calipers.reports.terminal import for_stream, to_text

    typed = click.get_current_context().meta.get(BY_OPTIONS, ())
    if typed == KEYS:
        document = document.reworded(lambda text: naming_options(text, KEYS))
    click.echo(for_stream(to_text(document, explain=explain, terminal=sys.stdout.isatty())), nl=False)


def check_place(output: str | None) -> None:
    """Refuse a place where no file can be written, or a file that something else wrote, before anything is computed."""
    if output is not None:
        from calipers.reports import files

        files.check_place(output, overwrite=may_overwrite())


def may_overwrite() -> bool:
    """Whether --overwrite was given."""
    return bool(click.get_current_context().meta.get(OVERWRITE, False))


def write(content: str | bytes, output: str | None) -> None:
    """Write to the file named, and say so on standard error, or to standard output."""
    if output is None:
        click.echo(content, nl=False)
        return
    place = Path(output)
    if place.exists() and not place.is_file():  # a pipe or a device, which cannot be replaced
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    else:
        from calipers.reports.files import write_whole

        write_whole(place, content)
    wrote(output)


def wrote(path: str | Path) -> None:
    """Say which file was written, where it does not disturb what is printed."""
    click.echo(f"wrote {path}", err=True)


def _remember_overwrite(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[OVERWRITE] = value


OVERWRITE = "calipers.overwrite"
overwrite_option = option(
    "--overwrite",
    bool,
    "Replace a file even if something else wrote it.",
    is_eager=True,
    expose_value=False,
    callback=_remember_overwrite,
)
