"""`calipers certify` and `calipers verify`: numbers that anybody can check without Calipers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from calipers.cli.budget_tables import budget_tables
from calipers.cli.kinds import FILE, REAL, option
from calipers.cli.options import check_place, json_option, overwrite_option, run_options, write
from calipers.cli.patience import patience
from calipers.errors import InputError
from calipers.reading import read_bounded
from calipers.run import Run

if TYPE_CHECKING:
    from calipers.adaptive import AdaptiveRun
    from calipers_verify import Verdict

MOST_BYTES = 1 << 30
"""More than the checker reads: what is too long for it is refused by it."""


@click.command("certify", short_help="Write a certificate that anybody can check.")
@run_options(optional=True, menus=True, budgeted=True)
@option("--delta", REAL, "Certify epsilon at this delta.")
@option("--epsilon", REAL, "Certify delta at this epsilon.")
@overwrite_option
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Where to write. [default: standard output]")
def certify_command(
    runs: tuple[Run, ...] | AdaptiveRun, delta: float | None, epsilon: float | None, output: str | None
) -> None:
    """Write a certificate of a run: a statement, and what a short independent program needs to check it.

    RUN is a run file, and options replace what it says; or describe the run by options, as for
    `calipers measure`. The certificate states
    the upper bound, and a lower bound where an attack shows one, at one --delta or one --epsilon, for the
    neighbors that the run names; what is not named of --delta, adjacency and view the budget says that goes with the
    file ([calipers] in it, or pyproject.toml: see `calipers check`). It is checked before it is written. Needs the
    extra `verify` (python-flint).
    For a file with [[step]] tables (an adaptive run) it states the upper bound over all choices.

    \b
    Examples:
      calipers certify run.toml --delta 1e-5 -o run.cert.json
      calipers certify --sample-rate 0.01 --steps 1000 --noise-multiplier 1 --epsilon 2 -o run.cert.json
      calipers certify adaptive.toml --delta 1e-5 -o adaptive.cert.json
      calipers verify run.cert.json
    """
    if not runs:
        raise InputError("Expected a run: give a run file, or options such as --sample-rate.")
    check_place(output)
    tables = budget_tables()
    if epsilon is None and delta is None:
        delta = tables.delta()
    from calipers.certificates import certify

    with patience("measuring", logged=True) as say:
        certificate = certify(runs, epsilon=epsilon, delta=delta, progress=say)
    write(certificate.to_json(), output)
    tables.say_aside()
    if certificate.remark is not None:
        click.echo(certificate.remark, err=True)
    if output is not None:
        sentences = [*certificate.verdict.sentences(), *certificate.verdict.scope]
        if all(claim.side == "upper" for claim in certificate.verdict.claims):
            sentences.append("No attack is certified from below here.")
        click.echo("\n".join([*sentences, f"Check it with: python -m calipers_verify {output}"]))


@click.command("verify", short_help="Check certificates.")
@click.argument("files", type=FILE, metavar="FILE...", nargs=-1, required=True)
@json_option
def verify_command(files: tuple[str, ...], as_json: bool) -> None:
    """Check certificates: recompute everything they rest on, in integers and ball arithmetic (with proven errors).

    The same as `python -m calipers_verify FILE...`, which needs nothing of Calipers but that package.
    Exit status 1 if a certificate is refused, 2 if a file cannot be read.

    \b
    Examples:
      calipers verify run.cert.json
      calipers verify run.cert.json --json
    """
    from calipers.certificates import verify

    for name in files:  # what cannot be opened is a wrong word on the command line, not a certificate that is refused
        try:
            read_bounded(name, MOST_BYTES)
        except OSError as error:
            reason = f"Cannot read {name}: {error.strerror}; name a file that `calipers certify` wrote."
            raise InputError(reason) from error
    verdicts = [(name, verify(name)) for name in files]
    if as_json:
        from calipers.provenance import sealed
        from calipers.reports.records import to_json

        click.echo(to_json([sealed(verdict_record(name, verdict)) for name, verdict in verdicts]))
        return
    for name, verdict in verdicts:
        for line in verdict.lines():
            click.echo(f"{name}: {line}")


def verdict_record(name: str, verdict: Verdict) -> dict[str, object]:
    """What a certificate proves, for programs; numbers are exact, as strings."""
    claims = [
        {"jaw": c.side, "epsilon": str(c.epsilon), "delta": str(c.delta), "direction": c.direction}
        for c in verdict.claims
    ]
    return {"file": name, "run": verdict.run, "claims": claims, "scope": list(verdict.scope)}
