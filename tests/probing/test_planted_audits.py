"""The planted mistakes under an audit of whole runs: most leak more than the claim allows, and that is shown."""

from __future__ import annotations

import pytest
from oracles.planted import AUDITED, PLANTED, STOPPED, Bug, Right
from oracles.planted_audit import audited, epochs_of, played, quieter

from calipers.auditing.targets import TargetError
from calipers.auditing.verdict import AuditOutcome

QUICK = {"ForgetsLayer", "ReseedsLayers", "NoNoise", "NeverShuffles"}


def _cases() -> list[object]:
    return [
        pytest.param(bug, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for bug in PLANTED
        if (name := bug.loop.__name__) in AUDITED
    ]


@pytest.mark.parametrize("bug", _cases())
def test_an_audit_says_what_the_documentation_shows(bug: Bug) -> None:
    """Falsified, or told apart too rarely to tell; a verdict that finds nothing names what it was blind to."""
    verdict = audited(played(bug), epochs_of(bug)).verdict
    assert verdict is not None
    assert (verdict.outcome is AuditOutcome.FALSIFIED) == AUDITED[bug.loop.__name__]
    if verdict.outcome is AuditOutcome.CONSISTENT:
        assert "was blind to" in verdict.message


@pytest.mark.parametrize("bug", [bug for bug in PLANTED if bug.loop.__name__ in STOPPED], ids=lambda bug: bug.name)
def test_runs_that_fail_or_differ_in_length_end_an_audit(bug: Bug) -> None:
    """No verdict is given on them, least of all a good one."""
    with pytest.raises(TargetError, match=STOPPED[bug.loop.__name__]):
        audited(played(bug), epochs_of(bug), trials=50)


@pytest.mark.parametrize(
    ("loop", "epochs"),
    [(Right, 1), pytest.param(Right, 2, marks=pytest.mark.slow), (quieter(Right), 2)],
)
def test_the_right_loop_is_not_falsified(loop: type[Right], epochs: int) -> None:
    """The same games with the loop that makes no mistake."""
    verdict = audited(loop, epochs).verdict
    assert verdict is not None
    assert verdict.outcome is not AuditOutcome.FALSIFIED


def test_every_loop_was_audited_and_most_of_what_outputs_can_show_is_falsified() -> None:
    """The rows that are not are mistakes that add noise, or leak less than two thousand trials can tell."""
    assert AUDITED.keys() | STOPPED.keys() == {bug.loop.__name__ for bug in PLANTED}
    assert not AUDITED.keys() & STOPPED.keys()
    assert sum(AUDITED.values()) >= 36
