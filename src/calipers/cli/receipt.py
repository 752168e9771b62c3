"""`calipers receipt` and `calipers verify-receipt`: what was executed, for a third party to measure again."""

from __future__ import annotations

import sys
from typing import Any

import click

from calipers.cli.kinds import COUNT, REAL, option
from calipers.cli.options import (
    SAME_AS_RUN,
    check_place,
    json_option,
    overwrite_option,
    run_named,
    run_option,
    tolerance_option,
    write,
)
from calipers.cli.patience import patience
from calipers.errors import InputError


@click.command("receipt", short_help="Write down what was executed and how that is known.")
@click.argument("run_path", metavar="[RUN]", required=False)
@run_option(SAME_AS_RUN)
@option("--probe", None, "What `calipers probe --json` printed about the loop.", called="probe_path", metavar="FILE")
@option("--epochs", REAL, "With --probe alone: how long the training is.", metavar="E")
@option("--steps", COUNT, "With --probe alone: how long the training is.", metavar="T")
@option("--delta", REAL, "State epsilon at this delta; repeatable. [default: 1e-5]", multiple=True)
@tolerance_option(1e-3)
@option("--max-grad-norm", REAL, "The clipping norm, as you declare it.", metavar="C")
@option("--noise-source", None, "Where the noise comes from, as you declare it.", metavar="TEXT")
@option("--library", None, "What trained; repeatable.", called="libraries", multiple=True, metavar="NAME=VERSION")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@overwrite_option
def receipt_command(
    run_path: str | None,
    run_file: str | None,
    probe_path: str | None,
    epochs: float | None,
    steps: int | None,
    delta: tuple[float, ...],
    tolerance: float,
    output: str | None,
    libraries: tuple[str, ...],
    **stated: Any,
) -> None:
    """Write a receipt: the run, fact by fact with how each was found out, and both bounds.

    What RUN, a run file, says counts as declared, what it leaves out as assumed. With --probe the facts are
    those that `calipers probe --json` found; together with a RUN they must agree with it. A training that was watched
    writes its own receipt:
    calipers.receipts.write_receipt(record, "run.receipt.json").

    \b
    Examples:
      calipers receipt run.toml -o run.receipt.json
      calipers receipt run.toml --max-grad-norm 1 --library opacus=1.6.0 -o run.receipt.json
      calipers receipt --probe probe.json --epochs 60 -o run.receipt.json
      calipers verify-receipt run.receipt.json
    """
    check_place(output)
    from calipers.phases import load_runs
    from calipers.receipts.executed import declared, probed, refuse_contradiction
    from calipers.receipts.write import DEFAULT_DELTAS, receipt_of
    from calipers.reports.records import to_json

    stated["libraries"] = _versions(libraries)
    length = {name: value for name, value in (("epochs", epochs), ("steps", steps)) if value is not None}
    report = _probe(probe_path)
    run_path = run_named(run_path, run_file)
    if run_path is not None:
        if length:
            raise InputError("RUN says how long the training is; leave --epochs and --steps out.")
        runs = load_runs(run_path)
        if report is not None:
            refuse_contradiction(runs, report)
            if len(runs) > 1:
                raise InputError(f"A probe is about one run, and RUN has {len(runs)} phases; leave --probe out.")
            found = probed(report, {}, runs[0], **stated)
        else:
            found = declared(runs, **stated)
    elif report is not None:
        if len(length) != 1:
            raise InputError("A probe finds one epoch: say how long the training is, by --epochs or --steps.")
        found = probed(report, length, **stated)
    else:
        raise InputError("Expected a run: give a run file, or --probe FILE with --epochs.")
    with patience("measuring"):
        written = receipt_of(found, delta or DEFAULT_DELTAS, tolerance)
    write(to_json(written) + "\n", output)
    if output is not None:
        click.echo(f"Check it with: calipers verify-receipt {output}")


def _probe(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    from calipers.gate.sources import read_json
    from calipers.provenance import is_intact

    record = read_json(path)
    if "provenance" in record and not is_intact(record):
        raise InputError(f"{path} was changed after it was written: its hash does not fit; probe again.")
    return record


def _versions(libraries: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in libraries]
    for name, mark, version in pairs:
        if not (name and mark and version):
            raise InputError(f"Expected --library NAME=VERSION (such as opacus=1.6.0), got {name + mark + version!r}.")
    return {name: version for name, _, version in pairs}


@click.command("verify-receipt", short_help="Measure the run of a receipt again and compare.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@json_option
def verify_receipt_command(files: tuple[str, ...], as_json: bool) -> None:
    """Measure the runs of receipts again and hold their numbers against what comes out.

    \b
    Exit status, the gravest of all files:
      0  confirmed: the new proof and the new attack confirm every number
      3  unconfirmed: compatible, but this computation proves less
      4  contradicted: a number, or a fact, is not that of the run
      2  no receipt, or changed after it was written

    \b
    Examples:
      calipers verify-receipt run.receipt.json
      calipers verify-receipt run.receipt.json --json
    """
    from calipers.receipts import read_receipt, verify_receipt
    from calipers.reports.records import to_document

    loaded = [(name, read_receipt(name)) for name in files]
    with patience("measuring"):
        verified = [(name, verify_receipt(record)) for name, record in loaded]
    status = max(found.standing.exit_status for _, found in verified)
    if as_json:
        receipts = [{"file": name, **found.to_dict()} for name, found in verified]
        click.echo(to_document({"exit_status": status, "receipts": receipts}))
    else:
        for name, found in verified:
            click.echo(f"{name}: {found.standing.value}")
            for sentence in found.sentences:
                click.echo(f"  {sentence}")
    sys.exit(status)
