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


def test_neighbors_that_nobody_named_are_assumed() -> None:
    """The line to report, the table and the JSON say so; neighbors that were named are not marked."""
    for guarantee, assumed in ((Guarantee(mu=1.0), True), (Guarantee(mu=1.0, adjacency="add-remove"), False)):
        report = report_measurement(measure(guarantee), Questions())
        page = to_markdown(report.document)
        assert ("adding or removing one record (assumed)" in page) is assumed
        assert ("| adjacency | add-remove (assumed) |" in page) is assumed
        assert report.record["measurement"]["scope"]["assumed"] == (["adjacency"] if assumed else [])


def test_a_mu_that_cannot_exist_is_not_called_unproven() -> None:
    """With a mass delta in the clear no mu is finite up to a smaller delta0: nothing is left to prove."""
    report = report_measurement(measure(Guarantee(epsilon=2.5, delta=1e-6)), Questions())
    page = to_markdown(report.document)
    assert "| mu up to delta0 = 1e-10 | infinite | none is finite |" in page
    assert "Some mechanism with this guarantee has no finite mu up to delta0 = 1e-10." in page
    assert "proven" not in report.record["measurement"]["notes"][-1]


def test_a_stated_mu_speaks_of_no_steps_and_its_profile_is_exact() -> None:
    """The attack is on some Gaussian mechanism; proof and attack of the profile differ in the last digit alone."""
    measured = measure(Guarantee(mu=1.0))
    page = to_markdown(report_measurement(measured, Questions()).document)
    assert "in every step" not in page
    assert "the Gaussian mechanism of sensitivity mu and noise 1" in page
    assert "| 0.81862 | 0.16267 | 0.16268 |" in page


def test_a_stated_mechanism_need_not_train_and_what_its_numbers_leave_out_is_a_section() -> None:
    """As the page about reports promises; nothing speaks of a training, or of a model."""
    page = to_markdown(report_measurement(measure(Guarantee(epsilon=1.0, delta=1e-5)), Questions()).document)
    assert "compares the same release from two neighboring datasets, which differ by adding or removing one" in page
    for training in ("two trainings", "a model trained", "seen this model"):
        assert training not in page
    left_out = page.partition("### What the numbers do not cover")[2].partition("\n### ")[0]
    assert "whether it has this guarantee was not examined" in left_out
    assert "the guarantee is read as one for adding or removing one record" in left_out
