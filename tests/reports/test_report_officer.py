"""What somebody signs: plain definitions, success against a guess, what is not covered, title and model."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from oracles.json_schema import complaints

import calipers as cp
from calipers.bracket import Bracket
from calipers.guarantee import Guarantee
from calipers.measure import measure
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.reports.answers import Questions, answer
from calipers.reports.document import Number, Prose, Section, Table
from calipers.reports.html import to_html
from calipers.reports.markdown import to_markdown
from calipers.reports.officer import BASELINES, SECRETS, reading_section, signature_section, success_cells
from calipers.reports.paragraph import paragraph, report_this
from calipers.reports.readings import is_claimed_run
from calipers.reports.records import measurement_document
from calipers.reports.report import report_measurement
from calipers.reports.schema import schema_of

RUN = cp.Run(dataset_size=1000, batch_size=100, epochs=5, noise_multiplier=2.0)
ISOLATED = cp.Run(dataset_size=100, batch_size=20, epochs=1, noise_multiplier=2.0, sampler="shuffle", view="isolated")


def section(report, title: str) -> Section:
    return next(one for one in report.document.sections if one.title == title)


@pytest.fixture(scope="module")
def report():
    return report_measurement(measure(RUN), Questions())


def test_the_table_has_both_bounds_of_every_baseline(report):
    (table,) = [block for block in section(report, SECRETS).blocks if isinstance(block, Table)]
    found = measure(RUN)
    for baseline, row in zip(BASELINES, table.rows, strict=True):
        bracket = found.success(baseline)
        lower, upper = (cell for cell in row[2:] if isinstance(cell, Number))
        assert (lower.exact, upper.exact) == (bracket.lower, bracket.upper)
        assert (lower.direction, upper.direction) == ("at least", "at most")
    assert [entry["baseline"] for entry in report.record["success"]] == list(BASELINES)


def test_singling_out_anybody_is_the_sum_over_all_records(report):
    """N (1 - f(w)) at w = 0.01 / N, rounded up."""
    text = " ".join(block.text for block in section(report, SECRETS).blocks if isinstance(block, Prose))
    upper = 1000 * measure(RUN).success(1e-5).upper
    printed = float(text.partition("at most ")[2].split()[0])
    assert upper <= printed <= upper * 1.0002
    assert "fits one in 100,000 of the population" in text
    assert "no attack is computed" in text


def test_definitions_and_limits_are_there(report):
    words = to_markdown(report.document)
    for named in (
        "DP-SGD trains",
        "epsilon and delta:",
        "delta has to be smaller than",
        "mu (of Gaussian differential privacy, mu-GDP) bounds the same by one number",
        "TPR at FPR:",
        "A proof",
        "An attack",
    ):
        assert named in words
    for uncovered in ("Pretraining", "Validation", "Hyperparameter search", "Floating point", "Logs of the training"):
        assert f"- {uncovered}" in words
    assert "who was in which batch where batches are drawn at random, stay secret" in words
    assert "the proofs and attacks for add-remove, the relation of this report" in words


def test_the_number_of_records_is_not_covered_where_the_report_has_it(report):
    named, covered = "It gives away the number of records", "The number of records: no number here covers publishing it"
    words = to_markdown(report.document)
    (item,) = (line for line in words.splitlines() if covered in line)
    assert named in words
    for place in ("Report this", "A paragraph to paste", "To sign"):
        assert f"'{place}'" in item
        assert "0.1" in words.partition(place)[2]  # the rate, in each of them
    assert "exactly or nearly, so rounding it does not hide it" in item
    zeroed = report_measurement(measure(RUN.replace(adjacency="zero-out")), Questions())
    rated = report_measurement(measure(cp.Run(sample_rate=0.1, steps=5, noise_multiplier=2.0)), Questions())
    for other in (zeroed, rated):
        assert named not in to_markdown(other.document)
        assert covered not in to_markdown(other.document)
    assert "The number of records: both neighbors have it" in to_markdown(zeroed.document)


def test_the_isolated_view_promises_no_secret_and_has_nothing_to_sign():
    report = report_measurement(measure(ISOLATED), Questions())
    words = to_markdown(report.document)
    assert "not differential privacy" in words
    assert "Nothing is said here" in words
    assert "# To sign" not in words
    assert report.record["success"] == []


def test_a_stated_guarantee_is_not_signed_as_a_run():
    report = report_measurement(measure(Guarantee(epsilon=1.0, delta=1e-5)), Questions())
    assert all(one.title != "To sign" for one in report.document.sections)
    assert len(report.record["success"]) == len(BASELINES)


def test_a_run_without_proof_is_not_signed():
    answers = answer(measure(RUN), Questions())
    assert signature_section(answers)
    first = answers.readings[0]
    unproven = dataclasses.replace(first, bracket=dataclasses.replace(first.bracket, upper=math.inf))
    assert signature_section(dataclasses.replace(answers, readings=(unproven, *answers.readings[1:]))) == ()


def test_clients_are_called_clients():
    report = report_measurement(measure(RUN.replace(unit="client", records_per_unit=1)), Questions())
    text = " ".join(block.text for block in section(report, SECRETS).blocks if isinstance(block, Prose))
    assert "secret of one client" in text
    assert "exactly one of the 1,000 clients" in text


def test_title_and_model_stand_at_the_head(report, tmp_path):
    named = report.named("Privacy of <triage>", "triage & co")
    html, words = to_html(named.document), to_markdown(named.document)
    assert "<h1>Privacy of &lt;triage&gt;</h1>" in html
    assert '<p class="model">Model: triage &amp; co</p>' in html
    assert words.startswith("## Privacy of \\<triage\\>\n\nModel: triage \\& co\n")
    place = cp.write_report(measure(RUN), tmp_path / "a.json", title="T", model="M")
    record = json.loads(place.read_text("utf-8"))
    assert (record["title"], record["model"]) == ("T", "M")
    assert 'class="model"' not in to_html(report.document)


def test_a_stated_guarantee_explains_no_training():
    """It may be about something else than DP-SGD."""
    words = to_markdown(report_measurement(measure(Guarantee(mu=0.5)), Questions()).document)
    assert "epsilon and delta:" in words
    assert "DP-SGD trains" not in words


def test_an_attacker_looks_for_the_unit_that_is_protected():
    run = RUN.replace(unit="patient", records_per_unit=3)
    words = to_markdown(report_measurement(measure(run), Questions()).document)
    assert "wants to know whether one given patient was in the data" in words
    assert "an attacker decides whether one given patient was in the data" in words


@pytest.mark.parametrize(
    ("adjacency", "asked"),
    [
        ("zero-out", "whether one given record was used, or its gradients were set to zero"),
        ("substitute", "whether the first of two given records was in the data, or the second"),
    ],
)
def test_the_table_of_attacks_asks_the_question_of_its_neighbors(adjacency: str, asked: str) -> None:
    """Of zeroed-out records it does not bound who can tell whether a record was in the data."""
    words = to_markdown(report_measurement(measure(RUN.replace(adjacency=adjacency)), Questions()).document)
    assert f"wants to know {asked}" in words
    assert f"An attack decides {asked}" in words
    assert "whether one given record was in the data" not in words
    assert "Whether a record was in the data at all is another question (add-remove)" in words


@pytest.mark.parametrize(
    ("lower", "printed"), [(1e-6, "the guess alone"), (1.5e-6, "1.5e-6"), (1.00000099e-6, "the guess alone")]
)
def test_an_attack_that_shows_no_more_than_a_guess_is_called_one(lower, printed):
    """As a number it looks like the result of an attack, smaller than that of a report that has one."""
    evidence = measure(RUN).success(0.5).lower_evidence
    cell, _ = success_cells(1e-6, Bracket(lower, 1.0, evidence, evidence))
    assert (cell.text, cell.exact, cell.direction) == (printed, lower, "at least")


def test_a_claim_about_one_record_is_not_compared_with_a_unit_of_several():
    """Standard accounting is right about one record; for a person with three it answers another question."""
    whole = measure(dataclasses.replace(RUN, unit="patient", records_per_unit=3))
    found = answer(whole, Questions())
    assert found.leading.bracket.lower > found.leading.claim
    assert not found.leading.refuted
    text = to_markdown(report_measurement(whole, Questions()).document)
    assert "refuted" not in text
    assert "is about adding or removing one record" in text
    assert "An attack decides whether one given patient was in the data" in text
    assert "Singling out anybody" not in text  # its proof needs independent units
    people = "(here, with 1,000 records of between 334 and 1,000 patients, 1/1,000 to be safe)"
    assert f"smaller than 1 divided by the number of people {people}" in text


def test_delta_is_held_against_the_most_people_there_can_be():
    """Between 20,000 and 60,000 patients: 1.7e-5 is more than 1/60,000, and 5e-5 is 1/20,000."""
    run = cp.Run(
        dataset_size=60_000, batch_size=256, epochs=1, noise_multiplier=2.0, unit="patient", records_per_unit=3
    )
    words = " ".join(reading_section(answer(measure(run), Questions())).blocks[-1].texts)
    assert "60,000 patients, 1/60,000 to be safe)" in words


def test_a_rate_computed_from_the_dataset_is_named_wherever_it_is_signed():
    """Its number is another than that of a public rate, which is what standard accounting assumes."""
    moving = report_measurement(measure(RUN.replace(derived_rate="moving", steps=50)), Questions())
    words = to_markdown(moving.document)
    named = "each record enters each batch with probability 0.1, computed from the dataset's own size"
    for title in ("To sign", "A paragraph to paste"):
        assert named in words.partition(f"## {title}")[2].partition("\n## ")[0]
    assert named in words.partition("Report this")[2].partition("\n\n")[0]
    assert "about the same mechanism" not in words
    assert "applicable to this run" not in words
    assert "It assumes a public rate; here the rate is computed from the dataset's own size." in words
    public = to_markdown(report_measurement(measure(RUN), Questions()).document)
    assert "own size" not in public
    assert "about the same mechanism" in public


def test_neighbors_of_one_size_have_one_rate():
    """Zeroing out leaves the dataset's size, so that standard accounting is about this run."""
    assert is_claimed_run((RUN.replace(derived_rate="moving", adjacency="zero-out"),))
    assert not is_claimed_run((RUN.replace(derived_rate="moving"),))


def test_accounting_of_another_schedule_is_not_about_the_run():
    """As many Poisson steps at another rate, or fewer of them, are another mechanism than the one that is measured."""
    assert is_claimed_run((RUN,), (RUN,))
    assert is_claimed_run((RUN,), (RUN.replace(steps=20), RUN.replace(steps=30)))
    assert not is_claimed_run((RUN,), (RUN.replace(steps=49),))
    assert not is_claimed_run((RUN,), (RUN.replace(sample_rate=0.11, steps=50),))


def test_a_run_that_only_bounds_what_was_executed_is_not_called_that():
    """Sentence to report, paragraph, signature, remedies and JSON name what was executed, and offer no other run."""
    bounded = dataclasses.replace(measure(RUN), executed="7 steps on some batches")
    report = report_measurement(bounded, Questions())
    text = to_markdown(report.document)
    assert text.count("in 7 steps on some batches, which reveal at most as much as 50 steps of Poisson batches") == 2
    assert "The model was trained with DP-SGD, in 7 steps on some batches, which reveal at most as much" in text
    assert "The run described above" not in text
    assert "calibrate" not in text
    assert "substitute |" not in text
    document = json.loads(measurement_document(answer(bounded, Questions())))
    assert document["scope"]["executed"] == "7 steps on some batches"
    assert not complaints(document, schema_of("measure"), schema_of("measure"))
    assert "executed" not in json.loads(measurement_document(answer(measure(RUN), Questions())))["scope"]


@pytest.mark.parametrize(
    ("changes", "reference"),
    [
        ({"adjacency": "add-remove"}, "a model trained without that record)"),
        ({"adjacency": "zero-out"}, "a model trained with the gradients of that record set to zero)"),
        ({"adjacency": "substitute"}, "a model trained with fixed data in the place of that record)"),
        ({"unit": "patient", "records_per_unit": 3}, "a model trained without the records of that patient)"),
    ],
)
def test_a_guess_knows_the_training_that_the_proof_compares_with(changes, reference):
    """docs/success.md: D_0 is a neighbor of every D_s, so what differs is the relation that was measured."""
    words = to_markdown(report_measurement(measure(RUN.replace(**changes)), Questions()).document)
    assert reference in words
    name = changes.get("unit", "record")
    own = changes.get("adjacency", "add-remove")
    others = {
        "add-remove": "zero-out or substitute",
        "zero-out": "add-remove (unless it is for adding only) or substitute",
        "substitute": "add-remove (unless it is for adding only) or zero-out",
    }[own]
    assert (
        f"They hold also for a {name} that is known to be in the data; then a report with adjacency {others} has "
        "such a table too; its numbers hold as well, and the smallest may be quoted" in words
    )
    whole = "all records of the patient" if name == "patient" else "the record itself"
    assert f"Reconstruction: the secret is {whole}." in words


def test_numbers_for_adding_alone_bound_no_secret_of_the_records_in_the_run():
    """Of 10 x 100 shuffled records removing one takes a batch away, and the proof is for 1,000 against 1,001."""
    run = cp.Run(dataset_size=1000, batch_size=100, epochs=1, noise_multiplier=4.0, sampler="shuffle")
    added = run.replace(last_batch="drop", adjacency="add-remove")
    words = to_markdown(report_measurement(measure(added, tolerance=0.05), Questions()).document)
    assert "they are about a record that is added to the data of the run" in words
    assert "the smallest may be quoted" not in words
    assert "Singling out anybody" not in words
    both = to_markdown(
        report_measurement(measure(added.replace(dataset_size=1050), tolerance=0.05), Questions()).document
    )
    assert "the smallest may be quoted" in both
    assert "Singling out anybody" in both


def test_the_answers_of_the_attacker_are_those_to_the_question():
    """Of a replaced record: nobody can say yes to "the first, or the second"."""
    words = to_markdown(report_measurement(measure(RUN.replace(adjacency="substitute")), Questions()).document)
    assert "how often the answer is 'the first' where that is right" in words
    assert "how often it is 'the first' where 'the second' is right" in words
    assert "says 'the first' where that is right (or 'the second'" in words


def test_a_rare_diagnosis_has_a_row_of_its_own(report):
    """Who guesses 'no' is right 99 times in 100, so the attack is not held against 1 in 100."""
    (table,) = [block for block in section(report, SECRETS).blocks if isinstance(block, Table)]
    names = [row[0] for row in table.rows]
    assert names == ["99 in 100", "1 in 2", "1 in 10", "1 in 100", "1 in 1,000", "1 in 1,000,000"]
    text = to_markdown(report.document)
    assert "that 1 in 100 such persons have is not the row '1 in 100': its best guess is 'no', right 99 times" in text
    assert "given all else known of the record and a model trained without that record" in text
    bracket = measure(RUN).success(0.99)
    assert 0.99 <= bracket.lower <= bracket.upper < 1


def test_a_report_names_the_factor_of_its_own_epsilon(report):
    """Rounded up; beyond e^20 the notes say what there is to say."""
    text = to_markdown(report.document)
    epsilon, factor = text.partition("; here e^")[2].split(". ")[0].split(" is at most ")
    assert float(epsilon) >= measure(RUN).epsilon(1e-5).upper
    assert math.exp(float(epsilon)) <= float(factor.replace(",", "")) <= 1.01 * math.exp(float(epsilon))
    large = report_measurement(measure(RUN.replace(noise_multiplier=0.3)), Questions())
    assert "here e^" not in to_markdown(large.document)


def test_every_delta_that_was_asked_for_is_signed():
    """Of two, both pairs, with what an attack shows at each; a delta without a finite epsilon is no pair."""
    found = measure(RUN)
    answers = answer(found, Questions(deltas=(1e-5, 1e-6)))
    first, second = answers.epsilon
    pairs = (
        f"({ceil_digits(first.bracket.upper)}, 1e-5)- and ({ceil_digits(second.bracket.upper)}, 1e-6)-differentially"
    )
    shown = f"at least {floor_digits(first.bracket.lower)} at delta = 1e-5 and {floor_digits(second.bracket.lower)} at"
    (signed,) = signature_section(answers)
    for text in (report_this(answers), paragraph(answers, 0.05), signed.blocks[0].text):
        assert pairs in text
        assert shown in text
    endless = dataclasses.replace(second, bracket=dataclasses.replace(second.bracket, upper=math.inf))
    readings = (first, endless, *answers.readings[2:])
    assert "1e-6" not in report_this(dataclasses.replace(answers, readings=readings))


def test_words_about_pictures_are_not_in_a_form_without_pictures(report):
    words = to_markdown(report.document)
    for seen in ("shaded", "diagonal", "axes", "left end", "looks like"):
        assert seen not in words


def test_an_overstated_advantage_is_not_held_against_its_lower_bound():
    """What is overstated is what the best attacker reaches: by no more than mu's own exceeds it."""
    run = RUN.replace(noise_multiplier=8.0)
    found = measure(run, tolerance=0.05)
    answers = answer(found, Questions())
    text = paragraph(answers, 0.05)
    printed = float(text.partition("it overstates the best attacker's advantage by at most ")[2].split()[0])
    mu = float(text.partition("mu = ")[2].split()[0])
    assert math.erf(mu / math.sqrt(8.0)) - found.advantage().upper <= printed
