"""Reports of attached records: a run that only bounds what was executed is never called what was executed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from calipers.adapters.opacus import attach
from calipers.measure import measure
from calipers.reports.answers import Questions
from calipers.reports.html import to_html
from calipers.reports.markdown import to_markdown
from calipers.reports.relations import relations
from calipers.reports.report import Report, report_measurement
from calipers.reports.terminal import to_text

pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore")]

DELTA = 1e-5
DEALT: dict[str, Any] = {"poisson_sampling": False, "loader": {"drop_last": True}}
ORDERED: dict[str, Any] = {"poisson_sampling": False, "loader": {"drop_last": True, "shuffle": False}}


def trained(script: Any, epochs: int, *, stop: int | None = None, repeat: int = 1, **settings: Any) -> Any:
    """The record of a training; those of `attach` are told from those of the script by name."""
    own = {name: settings.pop(name) for name in ("adjacency", "planned_steps") if name in settings}
    loop = script(settings.pop("size", 1050), **settings)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, **own)
    loop.train(epochs, stop=stop, repeat=repeat)
    return record


def report_of(record: Any) -> Report:
    return report_measurement(record.measure(), Questions.asked())


def texts(report: Report) -> list[str]:
    """HTML, Markdown and terminal, each on one line."""
    document = report.document
    pages = (to_html(document), to_markdown(document), to_text(document))
    return [" ".join(re.sub(r"<[^>]*>", " ", page).split()).replace("\n! ", " ") for page in pages]


@pytest.mark.parametrize(
    ("settings", "batches", "ending"),
    [
        (DEALT, "shuffled batches of 100", "no attack is claimed"),
        (ORDERED, "batches of 100 in a fixed order", "not carried out on this model, shows at least 4.3771"),
    ],
)
def test_a_pass_that_broke_off_is_said_to_be_bounded_by_another_run(script, settings, batches, ending) -> None:
    """7 of 10 batches: one release of every record is a worse run, not what was trained, signed or to be changed."""
    record = trained(script, 1, stop=7, **settings)
    report = report_of(record)
    executed = f"7 steps on {batches}, with noise multiplier 1"
    assert record.measure().executed == executed
    for text in texts(report):
        assert f"in {executed}, which reveal at most as much as 1 step of batches in a fixed order" in text
        assert f"The model was trained with DP-SGD, in {executed}, which reveal at most as much as" in text
        assert "it is not what was executed" in text
        assert "The training described above is" in text
        assert ending in text
        for wrong in (
            "with DP-SGD: 1 step",
            "The run described above is",
            "Draw batches by sampler",
            "left out (assumed)",
        ):
            assert wrong not in text
        assert "for each neighboring relation" not in text
        assert "calipers calibrate" not in text
    assert report.record["measurement"]["scope"]["executed"] == executed


def test_a_plan_names_what_was_possible_and_what_was_taken(script) -> None:
    """Bound and claim are about the 220 steps that were possible: 9.45 both, where 2.72 is the claim of 11."""
    record = trained(script, 1, planned_steps=220)
    measured = record.measure()
    (run,) = measured.runs
    assert run.total_steps == 220
    assert measured.claim.epsilon(DELTA) == measure(run).claim.epsilon(DELTA) > 9
    for text in texts(report_of(record)):
        assert "in 11 steps (at most 220 were possible) on Poisson batches at the rate 1/11" in text
        assert "Here it is that of 220 steps at the sampling rate 1/11." in text
        assert "with DP-SGD: 220 steps" not in text
        assert "2.7231" not in text


def test_several_steps_on_a_batch_are_not_what_the_accountant_was_told(script) -> None:
    """22 steps on 11 batches leak 5.69; accounting for 22 steps with a batch each says 3.42, and is refuted."""
    report = report_of(trained(script, 1, repeat=2))
    assert [badge.text for badge in report.document.badges] == ["bounds agree", "standard accounting refuted"]
    for text in texts(report):
        assert "in 22 steps on Poisson batches at the rate 1/11, with noise multiplier 1, which reveal at most" in text
        assert "That is what is described here" not in text


@pytest.mark.parametrize("drops", [True, False])
def test_what_a_loader_does_with_the_last_batch_was_seen(script, drops) -> None:
    """The record watched the loader, so neither the last batch nor the order is assumed."""
    record = trained(script, 1, poisson_sampling=False, loader={"drop_last": drops})
    (run,) = record.runs()
    assert run.last_batch == ("drop" if drops else "keep")
    assert not {"last_batch", "reshuffle"} & set(run.assumed)
    assert record.measure().executed == ""
    for text in texts(report_of(record)):
        assert "Nobody said what becomes" not in text
        assert "if the last batch is kept" not in text


def test_a_divisor_that_happens_to_stay_is_called_that(script) -> None:
    """make_private computes floor(1055 / 10) = 105, and 105 for 1,054 and 1,056 records: luck, and no constant."""
    record = trained(script, 1, size=1055, loss_reduction="mean", adjacency="add-remove", **DEALT)
    (run,) = record.runs()
    assert run.normalization == "floor"
    for text in texts(report_of(record)):
        assert "divided by floor(N / number of batches) = 105, the same for both neighbors" in text
        assert "is the same for 1,054, 1,055 and 1,056 records, so here the plain guarantee holds; it does not" in text
        assert "public constant," not in text
    public = trained(script, 1, size=1055, loss_reduction="mean", adjacency="zero-out", **DEALT)
    assert public.runs()[0].normalization == "constant"


def test_a_report_says_that_it_was_watched_and_at_which_rate_it_was_accounted(script) -> None:
    """The accountant was given 1/11, and a batch is 100/1050 of the records: two claims, each with its rate."""
    report = report_of(trained(script, 1, poisson_sampling=False))
    assert report.document.verdict.startswith("Standard accounting (Poisson, rate 1/11) would give epsilon = ")
    assert "Known from a record attached to the training (Opacus " in report.document.subject


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 1000, "poisson_sampling": False, "loss_reduction": "mean"},  # the divisor follows the dataset
        {"size": 1000, "loss_reduction": "sum"},  # so does the rate, of which nobody said that it is public
    ],
)
def test_a_report_has_no_number_for_neighbors_of_which_nothing_is_proven(script, settings) -> None:
    """The run of zeroed-out records, read for added ones, is not what was executed (32.464 was shown as proven)."""
    record = trained(script, 1, **settings)
    assert record.measure().runs[0].adjacency == "zero-out"
    assert record.epsilon(DELTA, adjacency="add-remove").upper == float("inf")
    rows = {one.adjacency: one for one in relations(record.measure(), DELTA)}
    assert rows["add-remove"].epsilon is None
    assert "nothing is proven" in rows["add-remove"].refused
    asked = record.epsilon(DELTA, adjacency="substitute")
    found = rows["substitute"].epsilon
    assert found is not None
    assert (found.lower, found.upper) == (asked.lower, asked.upper)
    assert "add-remove | not proven | not proven" in texts(report_of(record))[1]
