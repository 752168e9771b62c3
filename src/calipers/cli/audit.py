"""`calipers audit`: run an implementation with and without one record, and bound what it leaks from below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calipers.cli.audit_one_run import asked_for_one_run, one_run
from calipers.cli.audit_self_test import show_self_test
from calipers.cli.audit_targets import chosen_distinguisher, chosen_run, chosen_target, claimed_pair, claims
from calipers.cli.fail_on import end_audited
from calipers.cli.kinds import COUNT, GRADIENT_MODE, REAL, one_of, option, picked, refuse, with_options, word
from calipers.cli.options import run_options
from calipers.cli.outlet import Outlet, outlet_options
from calipers.cli.patience import counting
from calipers.errors import InputError
from calipers.run import Run

if TYPE_CHECKING:
    from calipers.auditing.targets import Target

TARGETS = ("builtin", "jax-privacy", "opacus", "opacus:sum")
DELTAS, EPSILONS = (1e-5,), (0.0, 1.0)
TRIALS = 10_000

_audit_options = with_options(
    option(
        "--other-gradients",
        word(["-1", "0", "1"]),
        "builtin, jax-privacy: the other gradients, as multiples of the differing one. [default: what leaks most]",
    ),
    option("--device", None, "builtin, opacus: where noise is drawn, e.g. cuda. [default: cpu]"),
    option("--vectors", bool, "builtin, jax-privacy: score full vectors, not two numbers computed from each."),
    option("--grad-sample-mode", GRADIENT_MODE, "opacus: how per-record gradients are computed. [default: hooks]"),
    option(
        "--distinguisher",
        None,
        "How runs are scored: likelihood-ratio, matched-filter, maximum, normality, scores, fitted, plain.",
        default="auto",
        metavar="NAME",
    ),
    option("--score", None, "Score runs by a function of your own instead.", metavar="MODULE:FUNCTION"),
    option("--pilot", COUNT, "Runs to fit a score to, where one is fitted. [default: 500, or --trials / 10]"),
    option("--trials", COUNT, f"Runs for each hypothesis; decide before you look. [default: {TRIALS}]"),
    option("--sequential", bool, "Look several times, end when the claim falls; the confidence covers all looks."),
    option("--most-trials", COUNT, "sequential: go on to so many. [default: --trials]", metavar="N"),
    option("--canaries", COUNT, "Audit one training run with M canaries; see above.", metavar="M"),
    option(
        "--guesses",
        None,
        "canaries: how many to call in and out; repeatable. [default: 1/20, 1/10 and 1/4 of them]",
        multiple=True,
        metavar="IN,OUT",
    ),
    option("--seed", COUNT, "Seed of every random number.", default=0),
    option("--confidence", REAL, "Confidence of every bound.", default=0.95),
    option("--delta", REAL, "Bound epsilon here; repeatable. [default: 1e-5]", multiple=True),
    option("--epsilon", REAL, "Bound delta here; repeatable. [default: 0 and 1]", multiple=True),
    option(
        "--claim",
        None,
        "The claim to test. [default: Poisson accounting of the run, if one is described]",
        metavar="EPSILON,DELTA",
    ),
    option("--jobs", COUNT, "Processes; -1 for all processors.", default=1),
    option("--chunk", COUNT, "Runs of each hypothesis played at a time. [default: by the target]"),
    option("--time-limit", REAL, "Give up when one chunk takes longer.", metavar="SECONDS"),
    option("--ledger", None, "Keep every finished chunk in this file.", metavar="FILE"),
    option("--resume", bool, "Go on with the ledger where it ends."),
    option("--self-test", bool, "Never show the record; count false alarms.", called="self_testing"),
    option("--repeats", COUNT, "Audits in a self-test.", default=100),
)


@click.command("audit", short_help="Attack an implementation: bound its leakage from below.")
@click.argument("target_name", metavar="TARGET", shell_complete=one_of(lambda: TARGETS, files=True))
@_audit_options
@run_options(optional=True, positional=False)
@outlet_options("falsified", "undecided")
def audit_command(runs: tuple[Run, ...], target_name: str, outlet: Outlet, **values: Any) -> None:
    """Run TARGET many times with and without one record, and bound what it leaks from below.

    TARGET is module:function, a function of your own that plays one run and returns what an
    adversary sees; `builtin`, Calipers' own simulation, noisy sums of worst-case gradients as the
    run's options say; `jax-privacy`, the same run by an execution plan of the installed JAX-Privacy
    (normalization "expected" or "floor": normalize_by is computed from each dataset's size); or
    `opacus` (`opacus:sum` with loss_reduction="sum"), one step of the installed Opacus on 3 or 4 records.

    \b
      # mine.py
      def target(present, rng):
          noise = rng.normal(scale=2.0, size=10)
          return noise + 1.0 if present else noise

    Take all randomness from rng. An attribute `target.scores`, a function from outputs of shape
    (count, features) to count scores, says how to tell the two apart; without one, a score is
    fitted to pilot runs.

    Every bound holds with the confidence stated, for this pair of datasets under this attack: an
    audit never proves privacy. The verdict on the claim is falsified, consistent, or cannot tell.
    Describe the run that TARGET is meant to be, and its certified upper bound is tested as well.

    With --ledger an audit can be killed at any moment and continued with --resume; the result is
    the same as without the interruption. A chunk that the ledger holds is played again first; the
    ledger is refused if it differs, or if a module of yours has changed since it was begun.

    An audit looks once. Auditing again with a new seed because the claim stood, or adding trials,
    adds errors: ten audits at confidence 0.95 falsify a true claim with a probability of at most
    about 0.4. --sequential plans several looks that share the error, ends at the first that falsifies,
    and may be continued beyond --trials with --most-trials and the same ledger.

    Where one training takes days, plant canaries: with --canaries M, TARGET is train(included, rng).
    It trains once, with those of M canaries that `included` says (fair coins, tossed here), and
    returns a score for each, larger where it seems to have been in. TARGET may also be a file
    FILE.csv with the columns included and score.

    \b
    Examples:
      calipers audit mine:target --jobs 4 --ledger mine.ledger --resume
      calipers audit mine:target --trials 50000 --claim 1,1e-5
      calipers audit mine:target --self-test
      calipers audit mine:target --claim 1,1e-5 --sequential --ledger mine.ledger
      calipers audit mine:train --canaries 1000 --claim 3,1e-5
      calipers audit scores.csv --claim 3,1e-5
      calipers audit opacus --jobs 2
      calipers audit opacus --grad-sample-mode ghost --trials 1000
      calipers audit jax-privacy --normalization expected --dimension 100 --dataset-size 5 \\
          --sample-rate 0.5 --steps 1 --noise-multiplier 10
      calipers audit builtin --normalization expected --dimension 100 --dataset-size 5 \\
          --sample-rate 0.05 --steps 1 --noise-multiplier 10
    """
    if len(runs) > 1:
        raise InputError(f"audit plays one run, got a file with {len(runs)} phases; use one phase.")
    described = runs[0] if runs else None
    if asked_for_one_run(target_name, values):
        refuse("has no page for one run with canaries yet; leave it out and use --json.", report=outlet.report_path)
        with counting("runs") as progress:
            one_run(target_name, described, values, outlet, progress)
        return
    run = chosen_run(target_name, described)
    target = chosen_target(target_name, run, values)
    if values["self_testing"]:
        refuse("has no meaning in a self-test; leave it out.", report=outlet.report_path)
        refuse("has no meaning in a self-test, which fails by itself; leave it out.", fail_on=outlet.fail_on)
        with counting("audits") as progress:
            show_self_test(target, values, outlet.as_json, progress)
        return
    _show_audit(target, run, values, outlet)


def _show_audit(target: Target, run: Run | None, values: dict[str, Any], outlet: Outlet) -> None:
    """Audit, write the report if one was asked for, print, and end as --fail-on says."""
    from calipers.auditing.audit import audit

    claim, upper = claims(run, claimed_pair(values["claim"]))
    trials = TRIALS if values["trials"] is None else values["trials"]
    distinguisher = chosen_distinguisher(target, values | {"trials": trials})
    # A claim that was given as a pair has its own row.
    own = (claim[0],) if isinstance(claim, tuple) else ()
    with counting("trials") as progress:
        result = audit(
            target,
            distinguisher,
            trials=trials,
            deltas=values["delta"] or DELTAS,
            epsilons=tuple(dict.fromkeys((*(values["epsilon"] or EPSILONS), *own))),
            claim=claim,
            upper=upper,
            progress=progress,
            **picked(values, "seed", "confidence", "sequential", "most_trials"),
            **picked(values, "jobs", "chunk", "ledger", "resume", "time_limit"),
        )

    from calipers.measure import Measurement
    from calipers.reports.audited import brief_audit, report_audit
    from calipers.reports.records import played, to_document

    proven = upper if isinstance(upper, Measurement) else None
    outlet.say(
        lambda: report_audit(result, run, proven),
        lambda: to_document(*played(result.to_dict(), run)),
        lambda: brief_audit(result),
    )
    verdicts = (result.verdict, result.upper_verdict)
    end_audited(outlet.fail_on, [verdict.outcome for verdict in verdicts if verdict is not None])
