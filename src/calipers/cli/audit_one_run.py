"""`calipers audit` of one training run with canaries: a function that trains, or a file of scores and coins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.audit_targets import claimed_pair, claims
from calipers.cli.fail_on import end_audited
from calipers.cli.kinds import picked, refuse
from calipers.cli.options import show
from calipers.errors import CertificationError, InputError
from calipers.numerics.decimals import setting
from calipers.run import Run

if TYPE_CHECKING:
    from calipers.auditing.one_run_game import OneRunResult
    from calipers.cli.outlet import Outlet
    from calipers.cli.patience import ShownProgress

FILE_ENDING = ".csv"
# Options that are about many runs; one run has no use for them.
_OTHERS = ("trials", "jobs", "chunk", "ledger", "resume", "sequential", "most_trials", "score", "pilot", "epsilon")


def asked_for_one_run(target_name: str, values: dict[str, Any]) -> bool:
    """Whether one run is to be audited: --canaries was given, or the target is a file of scores."""
    if values["canaries"] is None and not target_name.endswith(FILE_ENDING):
        refuse("is about canaries in one training run; add --canaries.", guesses=values["guesses"])
        return False
    # One job is what is usual; True, which equals one, is not.
    others = {name: values[name] is True or values[name] not in (None, False, (), 1) for name in _OTHERS}
    refuse("is about audits of many runs; leave it out with canaries.", **others)
    return True


def one_run(
    target_name: str,
    run: Run | None,
    values: dict[str, Any],
    outlet: Outlet,
    progress: ShownProgress,
) -> None:
    """Audit one run, or test the audit, and print."""
    from calipers.reports.records import played, to_document

    if values["self_testing"]:
        refuse("has no meaning in a self-test, which fails by itself; leave it out.", fail_on=outlet.fail_on)
        record, text = _tested(target_name, values, progress)
        click.echo(to_document(record) if outlet.as_json else text)
        return
    result = _audited(target_name, run, values)
    if outlet.as_json:
        click.echo(to_document(*played(result.to_dict(), run)))
    else:
        from calipers.reports.audited import brief_one_run

        show(brief_one_run(result), explain=outlet.explain)
    end_audited(outlet.fail_on, [outcome for _, outcome, _ in result.verdicts])


def _guesses(values: dict[str, Any]) -> tuple[tuple[int, int], ...] | None:
    pairs = []
    for text in values["guesses"]:
        try:
            guess_in, guess_out = (int(part) for part in text.split(","))
        except ValueError as error:
            raise InputError(f"Expected --guesses IN,OUT (such as 50,50), got {text!r}.") from error
        pairs.append((guess_in, guess_out))
    return tuple(pairs) or None


def _audited(target_name: str, run: Run | None, values: dict[str, Any]) -> OneRunResult:
    from calipers.auditing.loading import load_function
    from calipers.auditing.one_run_game import audit_one_run, play_one_run, read_canaries

    claim, upper = claims(run, claimed_pair(values["claim"]))
    if target_name.endswith(FILE_ENDING):
        if values["canaries"] is not None:
            raise InputError(f"{target_name} says itself how many canaries there are; leave out --canaries.")
        found = read_canaries(Path(target_name))
    else:
        found = play_one_run(load_function(target_name), **picked(values, "canaries", "seed", "time_limit"))
    return audit_one_run(
        found,
        deltas=values["delta"] or (1e-5,),
        confidence=values["confidence"],
        guesses=_guesses(values),
        claim=claim,
        upper=upper,
    )


def _tested(target_name: str, values: dict[str, Any], progress: ShownProgress) -> tuple[dict[str, object], str]:
    """Repeated runs that were shown other coins; `CertificationError` when they seem to leak too often."""
    refuse("has no meaning in a self-test; leave it out.", claim=values["claim"])
    if target_name.endswith(FILE_ENDING):
        raise InputError("A self-test trains again and again; name the function that trains, not a file of scores.")
    from calipers.auditing.loading import load_function
    from calipers.auditing.one_run_game import one_run_self_test

    tested = one_run_self_test(
        load_function(target_name),
        guesses=_guesses(values),
        progress=progress,
        **picked(values, "repeats", "canaries", "seed", "confidence", "time_limit"),
    )
    text = (
        f"{target_name}: {tested.repeats} runs with {tested.trials} canaries that were shown other coins; false "
        f"alarms: {tested.found['one-run']}. There may be about {tested.repeats * (1 - tested.confidence):.3g} at "
        f"confidence {setting(tested.confidence)}."
    )
    if not tested.calibrated:
        raise CertificationError(f"The self-test failed: {text} The scores know coins that they were not shown.")
    return tested.to_dict(), text
