"""`calipers calibrate`: nearly the smallest noise whose upper bound meets a target."""

from __future__ import annotations

import click

from calipers.cli.adaptive import calibrate_menu
from calipers.cli.budget_tables import budget_tables
from calipers.cli.kinds import REAL, option
from calipers.cli.options import run_options, tolerance_option
from calipers.cli.outlet import Outlet, outlet_options
from calipers.cli.patience import patience
from calipers.cli.subjects import MenuFile, Noisy
from calipers.run import Run

DEFAULT_TOLERANCE = 1e-4


@click.command("calibrate", short_help="Find noise that meets a target, nearly the smallest.")
@run_options(noise_default=1.0, noisy=True, budgeted=True)
@option("--epsilon", REAL, "Target epsilon; needs --delta.")
@option("--delta", REAL, "The delta that belongs to --epsilon.")
@option("--mu", REAL, "Target mu of Gaussian differential privacy.")
@option("--advantage", REAL, "Target for the largest TPR - FPR of any attack.")
@option("--tpr", REAL, "Target true positive rate; needs --fpr.")
@option("--fpr", REAL, "The false positive rate that belongs to --tpr.")
@tolerance_option(DEFAULT_TOLERANCE)
@outlet_options()
def calibrate_command(
    runs: tuple[Run, ...] | Noisy,
    tolerance: float,
    outlet: Outlet,
    **values: float | None,
) -> None:
    """Find nearly the smallest noise multiplier whose upper bound meets a target.

    The guarantee is proven for the noise multiplier that is printed, which is within --tolerance of the smallest
    (shuffled batches: within 5e-4). RUN is a run file; or describe the run
    by options, as for `calipers measure`; its own noise multiplier, if it has one, is ignored. The phases of a run file
    keep the ratios of their noise multipliers. With --noise-matrix the noise multiplier is that of the noise before
    the matrix is applied; with --additional-query only the gradient's noise is changed. Name one target: --epsilon
    with --delta, or --mu, or --advantage, or --tpr with --fpr. With RUN the budget that goes with it ([calipers] in the
    file, or pyproject.toml: see `calipers check`) says what is not named of --epsilon, --delta, --adjacency, --view.

    For a run file with [[step]] tables (an adaptive run) the budget is found, and the costs of steps that have none.

    \b
    Examples:
      calipers calibrate --sample-rate 0.01 --steps 1000 --epsilon 3 --delta 1e-5
      calipers calibrate run.toml --mu 0.5
      calipers calibrate --dataset-size 50000 --batch-size 500 --epochs 20 --tpr 0.05 --fpr 0.01 --json
    """
    from calipers.calibrate import one_target, refuse_one_sided, solve
    from calipers.numerics.decimals import nearest_digits

    tables = budget_tables()
    target = one_target(tables.target(values), "--{}")
    if isinstance(runs, MenuFile):
        calibrate_menu(runs, target, tolerance, outlet)
        tables.say_aside()
        return
    refuse_one_sided(runs)
    with patience("calibrating", logged=True) as say:
        calibration = solve(
            runs,
            tolerance=tolerance,
            progress=lambda noise, upper: say(
                f"calibrating: noise multiplier {nearest_digits(noise)} gives at most {nearest_digits(upper)}"
            ),
            **target,
        )

    from calipers.reports.records import calibrated_record, calibration_record, to_document
    from calipers.reports.report import as_measured, brief_calibration, report_calibration

    def record() -> str:
        found = calibration.found
        first = found[0].to_dict() if isinstance(found, tuple) else calibrated_record(calibration)
        return to_document(calibration_record(calibration), first)

    measurement = None
    if outlet.report_path is not None:
        # As narrow as the last measurements of the search, so that the report shows the value that met the target.
        measurement = calibration.measured(min(max(1e-2, tolerance), 5 * tolerance))
        calibration = as_measured(calibration, measurement)
    outlet.say(
        lambda: tables.said_in_report(report_calibration(calibration, measurement)),  # type: ignore[arg-type]  # measured
        record,
        lambda: tables.said_in(brief_calibration(calibration)),
    )
    if outlet.as_json:
        tables.say_aside()
