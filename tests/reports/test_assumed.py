"""What nobody said about a run, and what the reports and the gate say was assumed."""

from __future__ import annotations

import pytest

from calipers import Run, measure
from calipers.calibrate import solve
from calipers.gate import Budget, check
from calipers.phases import as_phases, load_runs
from calipers.receipts.executed import declared
from calipers.reports.answers import Questions
from calipers.reports.document import Table
from calipers.reports.html import to_html
from calipers.reports.records import run_record
from calipers.reports.report import brief_calibration, report_measurement
from calipers.reports.sections import run_file, run_section
from calipers.reports.terminal import to_text

DIVIDED = {"dataset_size": 40, "batch_size": 10, "epochs": 1, "noise_multiplier": 2.0, "sampler": "shuffle"}
ZERO_OUT = "Nobody named the neighboring relation, and one record more or fewer can change the number of batches"
UNDIVIDED = "normalization none (the noisy sum is not divided)"
SHORTER = "Nobody said what becomes of a last, shorter batch"


def words(run: Run) -> str:
    """The whole report on one line."""
    return " ".join(to_text(report_measurement(measure(run, tolerance=0.05), Questions()).document).split())


def test_zero_out_that_nobody_named_is_said_to_be_assumed() -> None:
    """40 = 4 x 10: removing a record takes a batch away, so zero-out is measured, which promises something else."""
    run = Run(**DIVIDED, last_batch="drop")
    assert run.adjacency == "zero-out"
    assert ZERO_OUT in words(run)
    assert "Whether a record was in the data at all is add-remove" in words(run)
    assert ZERO_OUT not in words(Run(**DIVIDED, last_batch="drop", adjacency="zero-out"))
    found = check(run, Budget(epsilon=5.0, delta=1e-5))
    assert ZERO_OUT in found.sentence


def test_calibrated_noise_says_so_too() -> None:
    found = brief_calibration(solve(Run(**DIVIDED, last_batch="drop"), epsilon=3.0, delta=1e-5))
    assert ZERO_OUT in " ".join(to_text(found).split())


@pytest.mark.parametrize(("name", "why"), [("deterministic", "moves all later ones"), ("shuffle", "number of batches")])
def test_why_it_is_not_add_remove(name: str, why: str) -> None:
    assert why in words(Run(**DIVIDED | {"sampler": name}, last_batch="drop"))


def test_one_batch_of_all_records_is_what_standard_accounting_is_about() -> None:
    """In every step, as at rate 1: the headline says that its epsilon holds, and no note says otherwise."""
    said = words(Run(dataset_size=40, batch_size=40, steps=1, noise_multiplier=2.0, sampler="deterministic"))
    assert "of standard accounting, 1.9931, is proven to hold" in said
    assert "unlike in standard accounting" not in said
    assert "moves all later ones" not in said
    assert ZERO_OUT in said
    assert "(40 records in 1 batch of 40 per epoch; a remainder would be dropped)" in said
    several = words(Run(**DIVIDED | {"sampler": "deterministic"}, last_batch="drop"))
    assert "unlike in standard accounting, which assumes Poisson batches" in several
    assert "(40 records in 4 batches of 10 per epoch; a remainder would be dropped)" in several


def test_a_last_batch_that_one_record_more_makes_is_assumed_to_be_dropped() -> None:
    """Kept, it leaks more: 40 records fill 4 batches of 10, and 39 or 41 do not."""
    run = Run(**DIVIDED, adjacency="add-remove")
    kept = measure(run.replace(last_batch="keep"), tolerance=0.05).epsilon(1e-5)
    assert kept.lower > measure(run, tolerance=0.05).epsilon(1e-5).upper
    assert SHORTER in words(run)
    assert SHORTER in check(run, Budget(epsilon=5.0, delta=1e-5)).sentence
    assert SHORTER not in words(run.replace(last_batch="drop"))
    assert SHORTER not in check(run.replace(last_batch="drop"), Budget(epsilon=5.0, delta=1e-5)).sentence


def test_a_report_about_substitution_says_that_the_claim_is_refuted_elsewhere() -> None:
    """The claim is for add-remove, and an attack on an added record exceeds it."""
    run = Run(**DIVIDED | {"dataset_size": 45}, last_batch="drop", adjacency="substitute")
    added = measure(run.replace(adjacency="add-remove"), tolerance=0.05)
    assert added.epsilon(1e-5).lower > added.claim.epsilon(1e-5)
    assert "so there standard accounting is refuted" in words(run)


def test_settings_that_nobody_named_are_marked() -> None:
    """In the table of settings, and after the sentence that describes the run; those that were named are not."""
    run = Run(**DIVIDED, adjacency="zero-out", view="worst-case")
    found = report_measurement(measure(run, tolerance=0.05), Questions()).document
    (table,) = (block for section in found.sections if section.title == "The run" for block in section.blocks[1:2])
    assert isinstance(table, Table)
    marked = {str(name) for name, value in table.rows if str(value).endswith("(assumed)")}
    assert marked == {"normalization", "last batch", "reshuffle", "privacy unit"}
    said = f"{UNDIVIDED}, last batch drop, reshuffle every-epoch, privacy unit one record."
    assert f"Assumed, because not given: {said}" in words(run)
    everything = Run(**run.to_dict(), unit="user", records_per_unit=1)
    assert "(assumed)" not in to_html(report_measurement(measure(everything, tolerance=0.05), Questions()).document)
    assert "Assumed" not in words(everything)


def test_the_run_file_of_a_report_assumes_what_the_run_did(tmp_path) -> None:
    """Read back it is the same run, and a receipt of it declares no more; so are phases."""
    runs = (Run(**DIVIDED), Run(dataset_size=40, batch_size=9, epochs=5, noise_multiplier=2.0, view="worst-case"))
    path = tmp_path / "run.toml"
    for phases in ((runs[0],), (runs[1],), runs):
        path.write_text(run_file(phases))
        again, phases = load_runs(path), as_phases(phases)
        assert again == phases
        assert [run.assumed for run in again] == [run.assumed for run in phases]
        assert run_record(again) == run_record(phases)
        assert declared(again).facts == declared(phases).facts
    assert '# assumed: last_batch = "drop"\n' in run_file(runs[:1])
    assert '\nview = "worst-case"\n' in run_file(runs[1:])


def test_what_reshuffle_means_is_said_for_each_sampler() -> None:
    """An order, or a batch for each record."""
    for sampler, said in (("shuffle", "the order is drawn"), ("balls-and-bins", "the batch of each record is drawn")):
        rows = dict(run_section((Run(**DIVIDED | {"sampler": sampler}),)).blocks[1].rows)
        assert rows["reshuffle"] == f"every-epoch: {said} anew for every epoch (assumed)"
    assert "reshuffle" not in dict(run_section((Run(**DIVIDED | {"sampler": "poisson"}),)).blocks[1].rows)


def test_numbers_for_adding_alone_say_so_in_the_first_sentence() -> None:
    """Of 4 x 10 records removing one takes a batch away; of 39 adding one brings a batch."""
    sided = Run(**DIVIDED, last_batch="drop", adjacency="add-remove")
    assert "This is for adding one record only." in words(sided)
    assert "removing one changes the number of batches" in words(sided)
    assert "This is for removing one record only." in words(sided.replace(dataset_size=39))
    assert "only." not in words(sided.replace(dataset_size=42))
    found = brief_calibration(solve(sided, epsilon=3.0, delta=1e-5))
    assert "is enough for epsilon = 3, delta = 1e-5, for adding one record only and undivided noisy sums: " in " ".join(
        to_text(found).split()
    )


def test_a_public_rate_that_nobody_named_is_marked_where_sizes_differ() -> None:
    """A loop that computes B/N on each dataset leaks more; of a given rate, or equal sizes, there is nothing to say."""
    run = Run(dataset_size=1000, batch_size=100, steps=5, noise_multiplier=2.0)
    assert dict(run_section((run,)).blocks[1].rows)["derived rate"] == (
        "public: a constant, the same for both neighboring datasets (assumed)"
    )
    assert "the rate (batch size / number of records) taken as the same for both neighbors" in words(run)
    rated = Run(sample_rate=0.1, steps=5, noise_multiplier=2.0)
    for other in (run.replace(derived_rate="public"), run.replace(adjacency="zero-out"), rated):
        assert "assumed" not in dict(run_section((other,)).blocks[1].rows).get("derived rate", "")
        assert "the rate (batch size / number of records) taken as the same for both neighbors" not in words(other)
    moving = dict(run_section((run.replace(derived_rate="moving"),)).blocks[1].rows)
    assert moving["derived rate"] == "moving: the rate is computed from each dataset's own size"


def test_a_delta_that_nobody_named_is_marked() -> None:
    """In the table of settings and in the list of what was assumed; one that was named is not."""
    measured = measure(Run(sample_rate=0.1, steps=5, noise_multiplier=2.0), tolerance=0.05)
    for questions, marked in ((Questions.asked(), True), (Questions.asked(deltas=(1e-5,)), False)):
        document = report_measurement(measured, questions).document
        assert ("privacy unit one record, delta 1e-5." in to_text(document)) is marked
        (table,) = (part for section in document.sections if section.title == "The run" for part in section.blocks[1:2])
        assert isinstance(table, Table)
        assert (("delta", "1e-5 (assumed)") in table.rows) is marked
