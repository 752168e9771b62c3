"""`calipers measure`: the bracket of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from calipers.cli.budget_tables import budget_tables
from calipers.cli.fail_on import end_measured
from calipers.cli.kinds import COUNT, FILE, option
from calipers.cli.options import (
    DEFAULT_TOLERANCE,
    check_place,
    measured,
    question_options,
    run_options,
    tolerance_option,
    wrote,
)
from calipers.cli.outlet import Outlet, outlet_options
from calipers.cli.patience import patience
from calipers.cli.subjects import Subject
from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.reports.answers import Questions
    from calipers.reports.document import Document
    from calipers.reports.report import Report


@click.command("measure", short_help="Measure one run from both sides.")
@run_options(stated=True, budgeted=True)
@question_options
@tolerance_option(DEFAULT_TOLERANCE)
@option(
    "--dataset-size-range",
    COUNT,
    "The dataset size is known only to lie in this range: measure the worst of it (data-dependent division).",
    nargs=2,
    metavar="LOW HIGH",
)
@outlet_options("refuted", "undecided")
@option(
    "--certificate",
    FILE,
    "Also certify epsilon at the first --delta (see `calipers certify`), and attach the file to the report.",
    metavar="FILE",
)
def measure_command(
    runs: Subject,
    questions: Questions,
    tolerance: float,
    dataset_size_range: tuple[int, int] | None,
    outlet: Outlet,
    certificate: str | None,
) -> None:
    """Measure one run: lower bound, upper bound, and what standard accounting (Poisson) would claim.

    RUN is a run file (TOML, - for standard input), and options replace what it says; or describe the run by
    options alone. Delta, adjacency and view that neither names are those of the budget that goes with the file
    ([calipers] in it, or pyproject.toml: see `calipers check`). Or convert a guarantee that is
    stated somewhere (--guarantee, --mu, --zcdp, or a file with a [guarantee] table) or a dp_accounting event (--event).

    \b
      epsilon, delta  the run is (epsilon, delta)-differentially private
      TPR at FPR      the best attack's true positive rate at a false positive rate
      advantage       the largest TPR - FPR of any attack
      separation      advantage / sqrt(2): how far the trade-off curve is from perfect privacy
      mu-GDP          one number for the whole curve, stated up to delta0, with its regret
      claim           Poisson accounting of the undivided sum, whatever was executed

    Printed lower bounds are rounded down, upper bounds up.

    \b
    Examples:
      calipers measure --dataset-size 60000 --batch-size 256 --epochs 60 --noise-multiplier 1.1
      calipers measure --sample-rate 0.01 --steps 1000 --noise-multiplier 1 --delta 1e-5 --delta 1e-6
      calipers measure run.toml --epsilon 1 --json
      calipers measure run.toml --report out.html
      calipers measure --guarantee 8,1e-5
      calipers measure run.toml --sampler shuffle --certificate run.cert.json
    """
    from calipers.reports.answers import answer

    check_place(certificate)
    tables = budget_tables()
    questions = tables.answering(questions)
    phases = len(runs) if isinstance(runs, tuple) else 1
    with patience(f"measuring {phases} phases" if phases > 1 else "measuring"):
        measurement = measured(runs, tolerance, dataset_size_range)
        if certificate is not None:
            from calipers.adaptive import AdaptiveRun

            menu = runs if isinstance(runs, AdaptiveRun) else None
            if not measurement.runs and menu is None:
                raise InputError("--certificate certifies a run; a stated guarantee has nothing to compute.")
            from calipers.certificates import certified

            measurement, proof = certified(measurement, questions.deltas[0], certificate, menu)
            wrote(certificate)
        answers = answer(measurement, questions, with_relations=True)

    from calipers.reports.records import measurement_document

    # What programs read needs less than what people do.
    def report() -> Report:
        from calipers.reports.certificate import with_certificate
        from calipers.reports.report import report_measurement

        found = tables.said_in_report(report_measurement(measurement, questions))
        if certificate is None or outlet.report_path is None:
            return found
        return with_certificate(found, proof, certificate, outlet.report_path)

    def brief() -> Document:
        from calipers.reports.report import brief_measurement

        return tables.said_in(brief_measurement(answers, measurement.tolerance))

    outlet.say(report, lambda: measurement_document(answers), brief)
    if outlet.as_json:
        tables.say_aside()
    end_measured(outlet.fail_on, [answers])
