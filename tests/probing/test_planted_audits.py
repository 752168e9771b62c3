"""The planted mistakes under an audit of whole runs: most leak more than the claim allows, and that is shown."""

from __future__ import annotations

import pytest
from oracles.planted import AUDITED, PLANTED, Bug, Right
from oracles.planted_audit import audited, epochs_of

from calipers.auditing.verdict import Outcome

QUICK = {"ForgetsLayer", "ReseedsLayers", "NoNoise"}


def _cases() -> list[object]:
    return [
        pytest.param(bug, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for bug in PLANTED
        if (name := bug.loop.__name__) in AUDITED
    ]


@pytest.mark.parametrize("bug", _cases())
def test_an_audit_says_what_the_documentation_shows(bug: Bug) -> None:
    """Falsified, or told apart too rarely to tell; a verdict that finds nothing names what it was blind to."""
    verdict = audited(bug.loop, epochs_of(bug)).verdict
    assert verdict is not None
    assert (verdict.outcome is Outcome.FALSIFIED) == AUDITED[bug.loop.__name__]
    if verdict.outcome is Outcome.CONSISTENT:
        assert "was blind to" in verdict.message


@pytest.mark.parametrize(("epochs", "seed"), [(1, 1), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_the_right_loop_is_not_falsified(epochs: int, seed: int) -> None:
    """The same game with the loop that makes no mistake."""
    verdict = audited(Right, epochs, seed=seed).verdict
    assert verdict is not None
    assert verdict.outcome is not Outcome.FALSIFIED


def test_most_of_what_outputs_can_show_is_falsified() -> None:
    """The rows that are not are mistakes that add noise, or leak less than two thousand trials can tell."""
    assert len(AUDITED) >= 40
    assert AUDITED.keys() <= {bug.loop.__name__ for bug in PLANTED if bug.audit}
    assert sum(AUDITED.values()) >= 25
