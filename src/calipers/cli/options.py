"""The options that several commands share: the run, the questions, the tolerance, the output."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.subjects import Subject, stated_subject, with_stated_options
from calipers.domains import OPEN_UNIT
from calipers.errors import InputError
from calipers.run import (
    ADJACENCIES,
    DERIVED_RATES,
    KEYS,
    LAST_BATCHES,
    NORMALIZATIONS,
    RESHUFFLES,
    VIEWS,
    Run,
    load_runs,
)
from calipers.schemes import SAMPLERS

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.reports.document import Document

Command = Callable[..., Any]

DEFAULT_TOLERANCE = 1e-3

_RUN_OPTIONS = (
    click.option("--run", "run_file", metavar="FILE", help="Read the run from a TOML file instead of options."),
    click.option("--dataset-size", type=int, metavar="N", help="Number of records in your own dataset."),
    click.option("--batch-size", type=int, metavar="B", help="Records per batch (expected, under Poisson sampling)."),
    click.option("--sample-rate", type=float, metavar="Q", help="Probability that a record enters a batch, B/N."),
    click.option(
        "--epochs", type=float, metavar="E", help="Passes over the data, each floor(N/B) steps; or give --steps."
    ),
    click.option("--steps", type=int, metavar="T", help="Noisy sums released in total; or give --epochs."),
    click.option(
        "--noise-multiplier", type=float, metavar="S", help="Standard deviation of the noise / clipping norm."
    ),
    click.option(
        "--sampler", type=click.Choice(SAMPLERS), help="How batches were really drawn, not assumed. [default: poisson]"
    ),
    click.option(
        "--normalization",
        type=click.Choice(NORMALIZATIONS),
        help="What the noisy sum is divided by: nothing, a public constant, N q, floor(N q), or the batch size "
        "that came out. [default: none]",
    ),
    click.option(
        "--dimension", type=int, metavar="n", help="Number of trained parameters (for data-dependent division)."
    ),
    click.option("--adjacency", type=click.Choice(ADJACENCIES), help="What neighbors are. [default: add-remove]"),
    click.option(
        "--view",
        type=click.Choice(VIEWS),
        help="worst-case: the adversary may choose all other records. isolated: it sees only the differing "
        "record's noisy contribution. [default: worst-case]",
    ),
    click.option(
        "--last-batch",
        type=click.Choice(LAST_BATCHES),
        help="What the loader does with records that do not fill a batch: drop (drop_last=True) or keep them as a "
        "short last one (PyTorch's default). [default: drop]",
    ),
    click.option(
        "--reshuffle",
        type=click.Choice(RESHUFFLES),
        help="Whether the shuffled order, or the bins, are drawn anew every epoch or once for all. "
        "[default: every-epoch]",
    ),
    click.option(
        "--max-batch-size", type=int, metavar="B", help="truncated-poisson: the largest batch; surplus is dropped."
    ),
    click.option("--cycle", type=int, metavar="K", help="cyclic-poisson: how many groups of records take turns."),
    click.option(
        "--participations", type=int, metavar="K", help="random-allocation: in how many of --steps each record is used."
    ),
    click.option("--unit", metavar="NAME", help="What is protected, if it has several records: user, patient, ..."),
    click.option("--records-per-unit", type=int, metavar="G", help="The most records that one unit has. [default: 1]"),
    click.option(
        "--derived-rate",
        type=click.Choice(DERIVED_RATES),
        help="Whether the Poisson rate B/N is a public number, or moving: computed by the loop from the dataset it is "
        "given, so that one record changes it. [default: public]",
    ),
)


def run_options(
    *, noise_default: float | None = None, optional: bool = False, stated: bool = False
) -> Callable[[Command], Command]:
    """Add the options that describe a run; the command gets `runs`, its phases.

    With `stated`, a guarantee or an event may be given instead, and `runs` is what `measured` understands.

    `noise_default` stands in for a noise multiplier that the command is about to find. With `optional`, `runs` is
    empty when no run is described.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_runs(**values: Any) -> Any:
            given = {key: value for key in KEYS if (value := values.pop(key)) is not None}
            run_file = values.pop("run_file")
            subject = (
                stated_subject(values, given, run_file, lambda: _runs(run_file, given, noise_default))
                if stated
                else None
            )
            if subject is not None:
                return command(runs=subject, **values)
            described = not optional or run_file is not None or bool(given)
            runs = _runs(run_file, given, noise_default) if described else ()
            return command(runs=runs, **values)

        return _decorated(with_stated_options(with_runs) if stated else with_runs, _RUN_OPTIONS)

    return decorate


def _runs(run_file: str | None, given: dict[str, object], noise_default: float | None) -> tuple[Run, ...]:
    defaults: dict[str, object] = {} if noise_default is None else {"noise_multiplier": noise_default}
    if run_file is None:
        return (Run.from_dict(defaults | given),)
    if given:
        extra = ", ".join(f"--{key.replace('_', '-')}" for key in given)
        raise InputError(f"--run and {extra} contradict each other: both describe the run; change the file instead.")
    return load_runs(run_file, defaults=defaults)


def question_options(command: Command) -> Command:
    """Add --delta, --epsilon, --fpr (each repeatable) and --delta0; the command gets `questions`."""

    @functools.wraps(command)
    def with_questions(**values: Any) -> Any:
        from calipers.reports.answers import DEFAULT_DELTAS, DEFAULT_FPRS, Questions

        questions = Questions(
            deltas=values.pop("delta") or DEFAULT_DELTAS,
            epsilons=values.pop("epsilon"),
            fprs=values.pop("fpr") or DEFAULT_FPRS,
            delta0=values.pop("delta0"),
        )
        return command(questions=questions, **values)

    options = (
        click.option(
            "--delta", type=float, multiple=True, help="Report epsilon at this delta; repeatable. [default: 1e-05]"
        ),
        click.option("--epsilon", type=float, multiple=True, help="Report delta at this epsilon; repeatable."),
        click.option(
            "--fpr",
            type=float,
            multiple=True,
            help="Report an attacker's true positive rate at this false positive rate; repeatable. "
            "[default: 0.1, 0.01, 0.001]",
        ),
        click.option(
            "--delta0",
            type=float,
            default=1e-10,
            show_default=True,
            help="mu-GDP is reported up to this much of delta.",
        ),
    )
    return _decorated(with_questions, options)


def tolerance_option(default: float) -> Callable[[Command], Command]:
    """Add --tolerance, checked to lie in (0, 1)."""

    def check(_context: click.Context, _option: click.Parameter, value: float) -> float:
        return OPEN_UNIT.check("tolerance", value)

    return click.option(
        "--tolerance",
        type=float,
        default=default,
        show_default=True,
        callback=check,
        help="Relative numerical width to aim for. Narrower takes longer; the bounds hold at any width.",
    )


explain_option = click.option(
    "--explain", is_flag=True, help="Also print what licenses every number, and the notes in full."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object; null means no finite bound.")


def measured(runs: Subject, tolerance: float, dataset_sizes: tuple[int, int] | None = None) -> Measurement:
    """Measure the phases of one run, or what is stated."""
    from calipers.measure import measure

    if not isinstance(runs, tuple):
        if dataset_sizes is not None:
            raise InputError("--dataset-size-range is about runs whose divisor moves with the data; leave it out.")
        return runs.measured(tolerance)

    named = {} if dataset_sizes is None else {"dataset_sizes": dataset_sizes}
    return measure(runs[0] if len(runs) == 1 else runs, tolerance=tolerance, **named)


def show(document: Document, *, explain: bool = False) -> None:
    """Print a report, in color when standard output is a terminal."""
    from calipers.reports.terminal import for_stream, to_text

    click.echo(for_stream(to_text(document, explain=explain, terminal=sys.stdout.isatty())), nl=False)


def check_folder(output: str | None) -> None:
    """Refuse a file in a folder that does not exist before anything is computed for it."""
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise InputError(f"Cannot write {output}: there is no folder {Path(output).parent}; make it first.")


def write(content: str | bytes, output: str | None) -> None:
    """Write to the file named, or to standard output."""
    if output is None:
        click.echo(content, nl=False)
    elif isinstance(content, bytes):
        Path(output).write_bytes(content)
    else:
        Path(output).write_text(content, encoding="utf-8", newline="")


def _decorated(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
