"""Reports of a stated guarantee say what it implies, and claim no attack on the mechanism behind it."""

from __future__ import annotations

import pytest

from calipers.guarantee import Guarantee
from calipers.measure import measure
from calipers.reports.answers import Questions
from calipers.reports.html import to_html
from calipers.reports.markdown import to_markdown
from calipers.reports.report import report_measurement
from calipers.reports.terminal import to_text

STATED = [
    (Guarantee(epsilon=1.8283, delta=1e-5), "(1.8283, 1e-5)-DP", "at most 1.8283;", "1.8284"),
    (Guarantee(epsilon=1.1, delta=1e-5), "(1.1, 1e-5)-DP", "at most 1.1;", "1.1001"),
    (Guarantee(mu=1.0), "1-GDP", "at most 4.3772; nothing below 4.3771", "1.0001"),
    (Guarantee(rho=0.5), "0.5-zCDP", "at most 4.7284; nothing below 4.7172", "4.7285"),
]


@pytest.mark.parametrize(("guarantee", "named", "implied", "never"), STATED)
def test_what_is_stated_is_named_and_not_rounded(guarantee, named, implied, never) -> None:
    """A stated number stands as it was stated: in the sentence, the ruler, the table, the picture, the paragraph."""
    report = report_measurement(measure(guarantee), Questions())
    assert named in report.document.verdict
    assert implied in report.document.verdict
    assert named in report.record["paragraph"]
    for text in (to_html(report.document), to_text(report.document), report.record["paragraph"]):
        assert never not in text


@pytest.mark.parametrize("guarantee", [row[0] for row in STATED])
def test_nothing_is_claimed_of_the_mechanism_behind_it(guarantee) -> None:
    """Neither an attack on it, nor a bracket of its truth, nor a claim of standard accounting, nor a run."""
    report = report_measurement(measure(guarantee), Questions())
    pages = [to_html(report.document), to_markdown(report.document), report.record["paragraph"]]
    for wrong in (
        "truth lies",
        "true curve",
        "lies between",
        "so the bound is tight",
        "The run is",
        "would have said",
        "every noisy sum",
        "The run as it is described",
        "| standard accounting",
        "The regret of mu is not proven",
    ):
        assert not any(wrong in page for page in pages), wrong
    assert "which may leak less, nothing is proven or attacked" in pages[2]


def test_no_finite_epsilon_follows_below_the_stated_delta() -> None:
    """And no mu is explained that does not exist."""
    guarantee = Guarantee(epsilon=8.0, delta=1e-5)
    report = report_measurement(measure(guarantee), Questions(deltas=(1e-6,)))
    assert "No finite epsilon at delta = 1e-6 follows" in report.document.verdict
    assert "The regret" not in to_markdown(report.document)
    assert "explicit attack tells" not in to_markdown(report.document)
