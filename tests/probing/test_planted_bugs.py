"""Mistakes planted one at a time: each is named, none is blessed, and the loop without a mistake is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracles.planted import PLANTED, Bug, Right, table

from calipers.probing.probe import ProbeReport, probe

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "planted-bugs.md"


def probed(loop: type[Right], seed: int = 0) -> ProbeReport:
    return probe(loop, dataset_size=120, batch_size=20, name="loop", seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_the_right_loop_is_left_alone(seed: int) -> None:
    """Whatever the seed: no alarm, and a run with the numbers it was written with."""
    report = probed(Right, seed)
    assert report.alarms == ()
    assert report.caveats == ()
    assert report.run is not None
    assert (report.run.sample_rate, report.run.noise_multiplier) == (1 / 6, 2.0)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.loop.__name__)
def test_each_mistake_is_named(bug: Bug) -> None:
    """Under its subject, in its words; and never is a run given without an alarm or a caveat."""
    report = probed(bug.loop)
    assert report.alarms or report.caveats
    assert bug.says in report.finding(bug.subject).verdict


def test_the_documentation_shows_this_table() -> None:
    """What the page says was found is what the tests above find."""
    assert table() in PAGE.read_text("utf-8")
    assert f"{len(PLANTED)} loops" in PAGE.read_text("utf-8")
    assert len({bug.loop for bug in PLANTED}) == len({bug.name for bug in PLANTED}) == len(PLANTED) >= 40
