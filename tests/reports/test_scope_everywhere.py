"""Every output names what its numbers are about: neighbors, adversary, sampler, and that the schedule was fixed."""

from __future__ import annotations

import json

import pytest

import calipers as cp
from calipers.disclosure.facts import disclose
from calipers.disclosure.forms import FORMS, render
from calipers.gate import Budget, check
from calipers.reports.answers import Questions, answer
from calipers.reports.html import to_html
from calipers.reports.markdown import to_markdown
from calipers.reports.records import measurement_document
from calipers.reports.report import brief_measurement, report_measurement
from calipers.reports.terminal import to_text
from calipers.run import ADJACENCIES
from calipers.samplers import SAMPLERS
from calipers.scope import neighbors_text

SIZES = {"dataset_size": 62, "batch_size": 10, "noise_multiplier": 2.0}
KEYS = {
    "truncated-poisson": {"max_batch_size": 20, "steps": 6},
    "cyclic-poisson": {"cycle": 2, "steps": 6},
    "random-allocation": {"participations": 1, "steps": 6, "batch_size": None},
    "without-replacement": {"steps": 6},
    "with-replacement": {"steps": 6},
    "shuffle": {"last_batch": "drop", "epochs": 1},
    "deterministic": {"last_batch": "drop", "epochs": 1},
}
NEIGHBORS = {
    "add-remove": "adding or removing one record",
    "zero-out": "zeroing out the gradients of one record",
    "substitute": "substituting one record",
}
# A word of every sampler's sentence, written down here by hand.
DRAWN = {
    "poisson": "Poisson batches",
    "shuffle": "shuffled batches of fixed size",
    "balls-and-bins": "balls-and-bins batches",
    "deterministic": "batches in a fixed order",
    "without-replacement": "without replacement",
    "with-replacement": "with replacement",
    "truncated-poisson": "at most 20",
    "cyclic-poisson": "take turns",
    "random-allocation": "randomly allocated batches",
}
ABOUT = {
    "name": "n", "data_curators": ["c"], "intended_use": "u", "data_product_region": "r", "description": "d",
    "publication_date": "2026-01-02", "registry_authors": ["a"],
}  # fmt: skip


def _run(sampler: str, adjacency: str, **more: object) -> cp.Run:
    keys = SIZES | {"epochs": 1} | KEYS.get(sampler, {}) | {"adjacency": adjacency} | more
    if "steps" in keys:
        keys["epochs"] = None
    return cp.Run.from_dict({"sampler": sampler} | keys)


def _texts(run: cp.Run, *, whole: bool) -> dict[str, str]:
    found = cp.measure(run, tolerance=0.05)
    questions = Questions()
    answers = answer(found, questions)
    texts = {
        "terminal": to_text(brief_measurement(answers, 0.05)),
        "json": measurement_document(answers),
        "gate": check(run, Budget(epsilon=1.0, delta=1e-5, view=run.view)).sentence,
    }
    disclosed = disclose(found, about=ABOUT)
    forms = [form for form in FORMS if not (form == "registry" and run.view == "isolated")]
    texts |= {form: render(disclosed, form) for form in forms}
    if whole:
        report = report_measurement(found, questions)
        texts |= {"html": to_html(report.document), "markdown": to_markdown(report.document)}
        texts |= {"report.json": json.dumps(report.record)}
    return {name: " ".join(text.replace("&#x27;", "'").replace("\\", "").split()) for name, text in texts.items()}


CASES = [(sampler, adjacency) for sampler in SAMPLERS for adjacency in ADJACENCIES]


@pytest.mark.parametrize(("sampler", "adjacency"), CASES)
def test_an_output_names_neighbors_sampler_and_condition(sampler: str, adjacency: str) -> None:
    """In every format that is quick to make."""
    for name, text in _texts(_run(sampler, adjacency), whole=False).items():
        assert NEIGHBORS[adjacency] in text, name
        assert DRAWN[sampler] in text, name
        assert "choose all other records" in text, name
        assert "fixed before the run" in text, name
        for other in set(ADJACENCIES) - {adjacency}:
            # What the claim is about is said beside it, and other relations only in their own table.
            assert f"private, for {NEIGHBORS[other]}" not in text, name


ORDERS = {"every-epoch": "in a new random order every epoch", "once": "in one random order for all epochs"}


@pytest.mark.parametrize("reshuffle", ORDERS)
def test_two_runs_that_differ_in_the_order_have_two_sentences(reshuffle: str) -> None:
    """Their bounds differ; in a single epoch there is one order in any case, and no word about it."""
    run = cp.Run(**SIZES, epochs=2, sampler="shuffle", adjacency="zero-out", reshuffle=reshuffle)
    for name, text in _texts(run, whole=False).items():
        assert f"shuffled batches of fixed size, {ORDERS[reshuffle]} (62 records in 6 batches of 10" in text, name
    for text in _texts(run.replace(epochs=1), whole=False).values():
        assert "shuffled batches of fixed size (62 records in 6" in text


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "adjacency"), CASES)
def test_a_whole_report_does_too(sampler: str, adjacency: str) -> None:
    """HTML, Markdown, JSON."""
    for name, text in _texts(_run(sampler, adjacency), whole=True).items():
        assert NEIGHBORS[adjacency] in text, name
        assert DRAWN[sampler] in text, name
        assert "fixed before the run" in text, name


@pytest.mark.parametrize("sampler", ["poisson", "shuffle", "balls-and-bins"])
def test_a_bound_in_the_isolated_view_is_not_called_differential_privacy(sampler: str) -> None:
    """Nowhere, and every output says whom it holds against."""
    for name, text in _texts(_run(sampler, "zero-out", view="isolated"), whole=False).items():
        assert "-differentially private" not in text.replace("not differentially private", ""), name
        assert "own noisy contribution" in text, name


def test_json_keys_say_it_for_programs() -> None:
    """The relation that was computed, and which keys nobody named."""
    run = cp.Run(**SIZES, epochs=1, sampler="shuffle")
    record = json.loads(measurement_document(answer(cp.measure(run), Questions(), with_relations=True)))
    assert record["scope"]["adjacency"] == record["run"]["adjacency"] == "add-remove"
    assert record["scope"]["assumed"] == ["normalization", "adjacency", "view", "last_batch", "reshuffle"]
    rows = {(row["adjacency"], row.get("last_batch")): row for row in record["relations"]}
    assert set(rows) == {*((adjacency, None) for adjacency in ADJACENCIES), ("add-remove", "keep")}
    assert rows["add-remove", None]["upper"] == record["epsilon"][0]["upper"]
    kept = cp.measure(run.replace(last_batch="keep")).epsilon(1e-5)
    assert (rows["add-remove", "keep"]["lower"], rows["add-remove", "keep"]["upper"]) == (kept.lower, kept.upper)


def test_a_budget_delta_that_is_not_below_one_over_n_is_said_aloud() -> None:
    """As `measure` says it."""
    run = cp.Run(dataset_size=60_000, batch_size=256, epochs=1, noise_multiplier=1.1)
    assert "not below 1/N" in check(run, Budget(epsilon=1.0, delta=0.5)).sentence
    assert "not below 1/N" not in check(run, Budget(epsilon=1.0, delta=1e-6)).sentence


def test_runs_that_name_no_neighbors_are_compared_for_common_ones() -> None:
    """A shuffled run whose size is a multiple of the batch size has no add-remove neighbor on one side."""
    poisson = cp.Run(dataset_size=60, batch_size=10, epochs=1, noise_multiplier=2.0)
    shuffled = poisson.replace(sampler="shuffle")
    found = cp.compare(poisson, shuffled)
    assert {run.adjacency for answers in found.answers for run in answers.runs} == {"zero-out"}
    named = cp.compare(poisson.replace(adjacency="add-remove"), shuffled.replace(adjacency="zero-out"))
    assert "do not compare" in " ".join(named.sentences)


def test_a_replaced_unit_has_as_many_records_as_before() -> None:
    """Else the dataset's size changes, which moves rates, steps and divisors that are computed from it."""
    run = cp.Run(
        sample_rate=0.01, steps=5, noise_multiplier=1.0, unit="user", records_per_unit=3, adjacency="substitute"
    )
    assert neighbors_text(run) == "substituting one user with up to 3 records by one with equally many"
    assert neighbors_text(run.replace(records_per_unit=1)) == "substituting one user"
    assert neighbors_text(run.replace(adjacency="zero-out")).endswith("one user with up to 3 records")
