"""`calipers audit --self-test`: the same attack where there is nothing to find, to count its false alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calipers.cli.audit_targets import chosen_distinguisher
from calipers.cli.kinds import picked, refuse
from calipers.errors import CertificationError
from calipers.numerics.decimals import setting

if TYPE_CHECKING:
    from calipers.auditing.one_run_game import SelfTest
    from calipers.auditing.targets import Target
    from calipers.cli.patience import ShownProgress

# A self-test repeats whole audits, so it plays shorter ones unless it is given otherwise.
SELF_TEST_TRIALS = 500


def show_self_test(target: Target, values: dict[str, Any], as_json: bool, progress: ShownProgress) -> None:
    """Repeated audits without the record; exit status 1 when they find leakage too often."""
    unused = picked(values, "claim", "ledger", "resume", "sequential", "most_trials")
    refuse("has no meaning in a self-test; leave it out.", **unused)
    from calipers.auditing.self_test import self_test

    trials = SELF_TEST_TRIALS if values["trials"] is None else values["trials"]
    tested = self_test(
        target,
        chosen_distinguisher(target, values | {"trials": trials}),
        trials=trials,
        progress=progress,
        **picked(values, "repeats", "seed", "confidence", "jobs", "chunk", "time_limit"),
    )
    if not tested.calibrated:
        raise CertificationError(f"The self-test of {target.name} failed: {_false_alarms(tested)}")
    from calipers.reports.records import to_document

    click.echo(to_document(tested.to_dict()) if as_json else f"{target.name}: {_false_alarms(tested)}")


def _false_alarms(tested: SelfTest) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in tested.found.items())
    allowed = tested.repeats * (1 - tested.confidence)
    return (
        f"{tested.repeats} audits that never saw the record, {tested.trials} trials each; false alarms: {counts}. "
        f"Each may have about {allowed:.3g} at confidence {setting(tested.confidence)}."
    )
