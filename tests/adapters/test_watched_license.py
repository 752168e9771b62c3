"""The condition in a few words fits what was taken, not only what was planned."""

from __future__ import annotations

from calipers.adapters.watched_license import Terms


def test_a_plan_that_was_overrun_is_no_longest_run() -> None:
    """Up to the planned steps it is the longest run, if passes are taken to their end; beyond them it is none."""
    terms = Terms(planned=10)
    assert "at most 10 steps, every pass taken to its end" in terms.licensed_by(10)
    assert "longest run" not in terms.licensed_by(12)
    assert "10 steps were planned and 12 taken" in terms.licensed_by(12)
