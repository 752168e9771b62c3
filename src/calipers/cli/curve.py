"""`calipers curve`: the trade-off curve or the privacy profile, as CSV or as a picture."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from calipers.bracket import Side
from calipers.cli.budget_tables import budget_tables
from calipers.cli.kinds import FILE, REAL, option, word
from calipers.cli.options import (
    DEFAULT_TOLERANCE,
    check_place,
    measured,
    overwrite_option,
    run_options,
    tolerance_option,
    write,
)
from calipers.cli.patience import patience
from calipers.cli.subjects import Subject
from calipers.domains import NON_NEGATIVE
from calipers.errors import InputError

FORMATS = ("csv", "png", "svg")
SIDES = {"upper": (Side.UPPER,), "lower": (Side.LOWER,), "both": (Side.UPPER, Side.LOWER)}


@click.command("curve", short_help="Write the trade-off curve or the privacy profile.")
@run_options(stated=True, budgeted=True)
@option("--profile", bool, "delta against epsilon instead of the trade-off curve.")
@option("--epsilon", REAL, "Evaluate the profile here; repeatable. [default: a grid]", multiple=True)
@option("--side", word(list(SIDES)), "Which bound: upper (proof), lower (attack) or both.", default="both")
@option(
    "--format", word(FORMATS), "What to write. [default: by the ending of --output, else csv]", called="file_format"
)
@overwrite_option
@option("--output", FILE, "Where to write. [default: standard output, for csv]", metavar="FILE")
@tolerance_option(DEFAULT_TOLERANCE)
def curve_command(
    runs: Subject,
    profile: bool,
    epsilon: tuple[float, ...],
    side: str,
    file_format: str | None,
    output: str | None,
    tolerance: float,
) -> None:
    """Write the trade-off curve (or, with --profile, the privacy profile) of a run.

    RUN is a run file; or describe the run by options, as for `calipers measure`.

    The trade-off curve gives an attacker's smallest false negative rate (beta) at each false
    positive rate (alpha). At each alpha the better of two tests counts, "absent" against "present"
    or the reverse, so the curve is symmetric in alpha and beta; it is not the ROC curve of one test.
    Side "upper" is the proof: the true curve lies nowhere below it. Side "lower" is what attacks
    attain: the true curve lies nowhere above it. For the profile, "upper" is an
    upper and "lower" a lower bound of delta, read off the two curves; epsilons named with
    --epsilon are measured one by one, mostly a little more tightly.

    \b
    Examples:
      calipers curve --sample-rate 0.01 --steps 1000 --noise-multiplier 1
      calipers curve run.toml --output tradeoff.png
      calipers curve run.toml --profile --side upper --format csv --output profile.csv
    """
    file_format = chosen_format(file_format, output)
    if output is None and not profile and sys.stdout.isatty():
        raise InputError(
            "The trade-off curve has thousands of rows, too many for a terminal; add --output curve.csv (or "
            "curve.png), or pipe it: calipers curve ... | less."
        )
    check_place(output)
    if epsilon and not profile:
        raise InputError("--epsilon chooses points of the profile; add --profile, or leave it out.")
    for value in epsilon:
        NON_NEGATIVE.check("epsilon", value)
    from calipers.reports.points import profile_points, to_csv, tradeoff_points

    sides = SIDES[side]
    budget_tables().say_aside()
    with patience("measuring"):
        measurement = measured(runs, tolerance)
        points = profile_points(measurement, sides, epsilon) if profile else tradeoff_points(measurement, sides)
    if file_format == "csv":
        names = ("epsilon", "delta") if profile else ("alpha", "beta")
        write(to_csv(points, *names), output)
        return
    from calipers.reports.plots import draw_profile, draw_tradeoff, picture

    draw = draw_profile if profile else draw_tradeoff
    write(picture(lambda ax: draw(ax, points), file_format), output)


def chosen_format(file_format: str | None, output: str | None) -> str:
    """The format asked for, else the one the file's ending names, else csv."""
    ending = Path(output).suffix.removeprefix(".").lower() if output is not None else file_format or "csv"
    if file_format is not None and ending in FORMATS and ending != file_format:
        raise InputError(f"--format {file_format} and --output {output} contradict each other; change one of them.")
    if file_format is None:
        if ending not in FORMATS:
            raise InputError(f"Cannot tell the format of {output} from its ending; add --format csv, png or svg.")
        file_format = ending
    if file_format != "csv" and output is None:
        raise InputError(f"A picture needs a file; add --output FILE.{file_format}.")
    return file_format
