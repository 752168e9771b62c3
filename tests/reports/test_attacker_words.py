"""What a report says around its numbers, so that nobody reads another number into them."""

import re

import pytest

import calipers as cp
from calipers.reports.answers import Questions, answer
from calipers.reports.attacker import attacker_section
from calipers.reports.markdown import to_markdown
from calipers.reports.officer import reading_section
from calipers.reports.report import report_measurement
from calipers.reports.sections import assumed_settings, change_section, run_section
from calipers.reports.words import assumed_text
from calipers.scope import scope_record

BINS = {"batch_size": 20, "epochs": 3, "noise_multiplier": 2.0, "sampler": "balls-and-bins"}


def notes(run: cp.Run) -> str:
    return " ".join(cp.measure(run).notes)


def test_a_true_positive_rate_is_not_how_often_an_alarm_is_right() -> None:
    """With even odds before, t at f makes it right with t/(t + f), which is said of a row of the table."""
    answers = answer(cp.measure(cp.Run(dataset_size=200, **BINS)), Questions())
    text = attacker_section(answers).blocks[0].text
    rate, share = re.search(r"a TPR of ([0-9.]+) at an FPR of 0.01 .*, at most ([0-9]+) %", text).groups()
    assert 0 <= float(rate) - dict(answers.tpr)[0.01].upper < 1e-4
    assert 0 <= float(share) - 100 * float(rate) / (float(rate) + 0.01) < 1
    assert "the true positive rate of the best such attack: how probably it says 'present' where that is right" in text


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (200, "Here 200 = 10 x 20: a loop that computes it from its dataset takes 9 with one record fewer, which"),
        (
            219,
            "Here 219 records make 10 batches: a loop that computes it from its dataset takes 11 with one record more",
        ),
    ],
)
def test_where_one_record_moves_the_number_of_batches_that_it_is_public_is_assumed(size: int, said: str) -> None:
    """In the note, in what was assumed, among the settings, and in JSON."""
    run = cp.Run(dataset_size=size, **BINS)
    assert said in notes(run)
    assert "the number of batches taken as the same for both neighbors" in assumed_text([run])
    assert "public_number_of_batches" in scope_record([run])["assumed"]
    (row,) = [row for row in run_section([run]).blocks[1].rows if row[0] == "number of batches"]
    assert row[1].endswith("(assumed)")
    assert "number of batches" not in assumed_settings(run)


@pytest.mark.parametrize("size", [201, 210, 218])
def test_where_one_record_does_not_move_the_number_of_batches_nothing_is_assumed_of_it(size: int) -> None:
    """Ten batches with one record fewer or more: also a loop that counts them is covered."""
    run = cp.Run(dataset_size=size, **BINS)
    assert {(size + more) // 20 for more in (-1, 0, 1)} == {10}
    assert "The number of batches floor(N/B) = 10 is the same with one record fewer or more" in notes(run)
    assert "number of batches" not in assumed_text([run])
    assert "public_number_of_batches" not in scope_record([run])["assumed"]


def test_the_number_of_batches_of_a_unit_moves_with_all_its_records() -> None:
    """202 records are ten batches of 20, and 199 are nine; under zero-out no record is gone."""
    run = cp.Run(dataset_size=202, **BINS, unit="patient", records_per_unit=3)
    assert "takes 9 with 3 records fewer" in notes(run)
    zeroed = run.replace(adjacency="zero-out")
    assert "number of batches" not in assumed_text([zeroed]) + notes(zeroed)


def test_of_other_samplers_what_follows_from_the_size_is_assumed_to_be_public() -> None:
    """Rates of cyclic and of truncated Poisson sampling, and the steps of so many epochs."""
    cyclic = cp.Run(dataset_size=210, **BINS | {"sampler": "cyclic-poisson"}, cycle=2)
    assert "the rate taken as the same for both neighbors, " in assumed_text([cyclic])
    assert "number of steps" not in assumed_text([cyclic])
    assert "the number of steps taken as the same for both neighbors" in assumed_text(
        [cyclic.replace(dataset_size=200)]
    )
    fixed = cp.Run(dataset_size=200, **BINS | {"sampler": "without-replacement"}, adjacency="add-remove")
    assert "the number of steps taken as the same for both neighbors" in assumed_text([fixed])
    assert "number of steps" not in assumed_text([fixed.replace(steps=30)])


@pytest.mark.parametrize(
    ("changes", "agree"),
    [
        ({}, True),
        ({"adjacency": "zero-out"}, True),
        ({"adjacency": "substitute"}, False),
        ({"unit": "patient", "records_per_unit": 3}, False),
        ({"reshuffle": "once"}, False),
    ],
)
def test_bounds_are_said_to_agree_only_where_they_do(changes: dict[str, object], agree: bool) -> None:
    """Of one record, added, removed or zeroed out, drawn anew in every epoch."""
    run = cp.Run(dataset_size=210, **BINS, **changes)
    assert ("the bounds agree" in notes(run)) is agree
    if agree:
        assert cp.measure(run).epsilon(1e-5).relative_width < 1e-3


def test_what_to_change_is_never_empty() -> None:
    """Without a remedy that is measured, what lowers the numbers of every run."""
    text = change_section(()).blocks[0].text
    assert "Each of these lowers them: more noise, fewer steps, a smaller share of the data per batch." in text
    units = cp.Run(dataset_size=210, **BINS, adjacency="zero-out", unit="patient", records_per_unit=3)
    page = to_markdown(report_measurement(cp.measure(units, tolerance=0.01), Questions()).document)
    assert not re.search(r"## What to change\s+##", page)


def test_the_claim_that_is_refuted_is_about_adding_or_removing_a_record() -> None:
    """A report for zero-out says so; for Poisson sampling both relations have the same epsilon."""
    shuffled = cp.Run(dataset_size=210, **BINS | {"sampler": "shuffle"}, adjacency="zero-out")
    words = " ".join(reading_section(answer(cp.measure(shuffled), Questions())).blocks[0].texts)
    assert "about add-remove adjacency (for Poisson sampling the epsilon is the same as for zero-out)" in words
    poisson = cp.Run(dataset_size=200, **BINS | {"sampler": "poisson"})
    same = [cp.measure(poisson.replace(adjacency=one)).epsilon(1e-5) for one in ("add-remove", "zero-out")]
    assert (same[0].lower, same[0].upper) == (same[1].lower, same[1].upper)


def test_a_kept_last_batch_leaks_more_than_a_fixed_order_does_of_a_zeroed_out_record() -> None:
    """Of an added or removed record a fixed order leaks far more."""
    keys = {"dataset_size": 205, "batch_size": 20, "epochs": 3, "noise_multiplier": 2.0, "last_batch": "keep"}
    kept = cp.Run(**keys, sampler="shuffle", adjacency="add-remove")
    shown = cp.measure(kept, tolerance=0.01).epsilon(1e-5)
    zeroed, removed = (
        cp.measure(cp.Run(**keys, sampler="deterministic", adjacency=one)).epsilon(1e-5)
        for one in ("zero-out", "add-remove")
    )
    assert zeroed.upper < shown.lower <= shown.upper < removed.lower
