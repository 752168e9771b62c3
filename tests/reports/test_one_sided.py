"""Numbers for adding a record alone are nobody's protection who is in the data; numbers for zero-out say nothing of it.

A thousand records in ten batches of 100: one record fewer takes a batch away in every epoch, which anybody counts.
"""

from __future__ import annotations

import dataclasses

import pytest

import calipers as cp
from calipers.disclosure.facts import disclose
from calipers.disclosure.text import model_card
from calipers.errors import UnsupportedError
from calipers.gate import Budget, check
from calipers.measure import Selection, measure
from calipers.reports.answers import Questions, answer
from calipers.reports.compared import brief_comparison
from calipers.reports.comparison import Comparison
from calipers.reports.markdown import to_markdown
from calipers.reports.officer import signature_section
from calipers.reports.paragraph import paragraph, report_this
from calipers.reports.relations import relations
from calipers.reports.report import brief_measurement, report_measurement
from calipers.reports.terminal import to_text
from calipers.scope import scope_text, unseen_text

SIZES = {"dataset_size": 1000, "batch_size": 100, "noise_multiplier": 4.0}
ADDED = cp.Run(**SIZES, epochs=1, sampler="shuffle", last_batch="drop", adjacency="add-remove")
REMOVED = ADDED.replace(dataset_size=1099)
ZEROED = cp.Run(**SIZES, epochs=1, sampler="shuffle", last_batch="drop")
COUNTED = "no finite epsilon holds for removing one"


def pages(run: cp.Run) -> tuple[str, str]:
    """A report and what a terminal shows, with the other relations."""
    found = measure(run, tolerance=0.05)
    report = report_measurement(found, Questions())
    answers = answer(found, Questions(), with_relations=True)
    return to_markdown(report.document), " ".join(to_text(brief_measurement(answers, 0.05)).split())


def part(page: str, title: str) -> str:
    return page.partition(f"### {title}\n")[2].partition("\n### ")[0]


def test_numbers_for_adding_alone_are_said_to_be_that_wherever_they_are_quoted() -> None:
    """What an attacker gets, the sentence to report, and the paragraph, sentence by sentence; nothing is signed."""
    page, shown = pages(ADDED)
    nothing = "promise nothing to the 1,000 whose records were used."
    gets = part(page, "What an attacker gets")
    assert "whether one given record was added to the data, and accepts" in gets
    assert "whether one given record was in the data" not in page
    assert (
        "holds against every attack within the scope of this report on a record that is added to these data; whether "
        "one of these 1,000 was used, the "
        "number of batches tells for certain." in gets
    )
    (reported,) = (line for line in page.splitlines() if "**Report this:**" in line)
    assert "It promises nothing to the 1,000 whose records were used. What the data of a known participant" in reported
    assert nothing.replace("promise", "promises") in shown
    pasted = part(page, "A paragraph to paste")
    assert "adjacency, for adding one record only: for removing one no finite epsilon holds." in pasted
    for sentence in pasted.split(". "):
        if "differentially private" in sentence or "mu-GDP with mu" in sentence:
            assert sentence.startswith("For adding one, ")
    signed = part(page, "To sign")
    assert "There is nothing to sign" in signed
    assert nothing in signed
    assert "signature |" not in signed


def test_numbers_for_removing_alone_are_signed_with_their_restriction() -> None:
    """They are about the people in the data."""
    page, _ = pages(REMOVED)
    gets = part(page, "What an attacker gets")
    assert "whether one given record of the data was used" in gets
    assert "on a record of these data that is removed; whether one more was among them, the number of batches" in gets
    assert "It is (" not in part(page, "A paragraph to paste")
    signed = part(page, "To sign")
    assert "for removing one record (1,099 records against 1,098; adding one changes the number of batches" in signed
    assert "| signature |" in signed
    assert "promises nothing" not in page


def test_an_export_does_not_say_of_members_what_holds_for_others() -> None:
    """Of those in the data the number of batches tells, and of zeroed-out records nothing is said of being there."""
    card = model_card(disclose(measure(ADDED, tolerance=0.05)))
    assert "a given record that is added to the data is found with probability at most 0.0156" in card
    assert "by the number of batches, those whose data were used can be found for certain." in card
    assert "It promises nothing to the 1,000 whose records were used." in card
    zeroed = model_card(disclose(measure(ZEROED, tolerance=0.05)))
    assert "whether one given record was used, or its gradients were set to zero" in zeroed
    assert "'used' is said, where it is right, with probability at most 0.0133." in zeroed
    assert "of the members" not in card + zeroed


def test_what_is_shown_to_be_easier_is_not_called_perhaps_easier() -> None:
    """With the epsilon for adding a record where it was measured; `check` knows that there is none for removing."""
    page, shown = pages(ZEROED)
    added = part(page, "Epsilon at delta = 1e-5 for each neighboring relation").partition(
        "| add-remove, for adding only | "
    )[2]
    lower = added.split(" |")[0]
    easier = (
        f"{COUNTED}: whoever counts the batches can tell (for adding one, epsilon at delta = 1e-5 is at least {lower})."
    )
    assert f"add-remove, and {easier}" in page
    assert f"add-remove, and {easier}" in shown
    assert f"another question (add-remove), and {easier}" in part(page, "What an attacker gets")
    signed = part(page, "To sign")
    assert f"Whether somebody's data were used at all is another question (add-remove), and {easier}" in signed
    assert f"{COUNTED}: whoever counts" in check(ZEROED, Budget(epsilon=1.0, delta=1e-5)).sentence
    assert "| add-remove, for removing | infinite | infinite |" in page
    assert "may be easier" not in page + shown


def test_what_is_not_shown_to_be_easier_may_be() -> None:
    """Poisson batches show as little of a removed record as of a zeroed-out one; nobody may have asked for zero-out."""
    named = cp.Run(**SIZES, epochs=1, adjacency="zero-out")
    page, _ = pages(named)
    assert "another question (add-remove), and may be easier to answer." in page
    assert "only because nobody named a relation" not in page
    assert "only because nobody named a relation" in pages(ZEROED)[0]
    (section,) = signature_section(answer(measure(named), Questions()))
    assert "does not cover whether a record was in the data at all (add-remove)." in section.blocks[0].text


@pytest.mark.parametrize("order", [0, 1])
def test_phases_of_which_one_counts_what_is_added_and_one_what_is_removed_have_no_neighbors(order: int) -> None:
    """1,000 = 10 x 100 = 142 x 7 + 6: a batch more with one record more, and one fewer with one record fewer."""
    phases = [ADDED, ADDED.replace(batch_size=7)]
    with pytest.raises(UnsupportedError, match="no epsilon is finite"):
        measure(phases[::-1] if order else phases)
    zeroed = answer(
        measure([run.replace(adjacency="zero-out") for run in phases], tolerance=0.05), Questions(), with_relations=True
    )
    assert next(one for one in zeroed.relations if one.adjacency == "add-remove").epsilon is None


def test_a_phase_for_adding_alone_makes_the_run_one_for_adding_alone() -> None:
    """The first phase has both neighbors, and its words stood before the number of all phases."""
    phases = [ADDED.replace(batch_size=300), ADDED]
    assert scope_text(phases).startswith("for adding one record (1,000 records against 1,001;")
    assert report_this(answer(measure(phases, tolerance=0.05), Questions())).endswith("whose records were used.")


@pytest.mark.parametrize(
    ("changes", "unseen"),
    [
        ({}, "sees neither the noise nor who was in which batch"),
        ({"sampler": "deterministic", "last_batch": "drop"}, "does not see the noise"),
        ({"batch_size": 1000}, "does not see the noise"),
        ({"batch_size": 1000, "sampler": "with-replacement"}, "sees neither the noise nor who was in which batch"),
        ({"sampler": "shuffle", "view": "isolated"}, ""),
    ],
)
def test_what_the_adversary_must_not_see_is_said(changes: dict[str, object], unseen: str) -> None:
    """Batches are secret where they are drawn; the isolated view says all that is seen."""
    run = cp.Run.from_dict(SIZES | {"steps": 5, "adjacency": "zero-out"} | changes)
    assert unseen_text([run]) == unseen
    answers = answer(measure(run, tolerance=0.05), Questions())
    said = f"gradients, but {unseen}. It holds only" if unseen else "contribution. It holds only"
    assert said in report_this(answers)
    assert (f"The adversary sees every noisy sum, but {unseen}." in paragraph(answers, 0.05)) is bool(unseen)


def test_batches_of_some_phases_alone_are_secret() -> None:
    """Full batches hide nobody."""
    run = cp.Run(**SIZES, steps=5)
    assert unseen_text([run, run.replace(batch_size=1000)]).endswith("which batch where batches were drawn at random")


@pytest.mark.parametrize(
    ("run", "neighbors"),
    [
        (cp.Run(dataset_size=1000, batch_size=100, epochs=1, noise_multiplier=4.0, sampler="shuffle",
                adjacency="add-remove"), "for adding one record (1,000 records against 1,001"),
        (cp.Run(dataset_size=1000, batch_size=50, steps=5, noise_multiplier=4.0, unit="customer", records_per_unit=5),
         "for adding or removing one customer with up to 5 records."),
    ],
)  # fmt: skip
def test_the_best_of_several_runs_has_the_neighbors_of_one(run, neighbors) -> None:
    """ "Adding or removing one record" was said of both."""
    report = report_measurement(measure(Selection(run, mean=3), tolerance=0.05), Questions())
    page = " ".join(to_markdown(report.document).split())
    assert f"differentially private, {neighbors}" in page
    assert "adding or removing one record" not in page.partition("### How to read")[0]


def test_a_comparison_says_which_numbers_are_for_adding_alone() -> None:
    """Beside a run that bounds both, 0.15 stood under "adding or removing one record"."""
    both = ADDED.replace(sampler="poisson")
    named = [answer(measure(run, tolerance=0.05), Questions()) for run in (both, ADDED)]
    text = " ".join(to_text(brief_comparison(Comparison(("coins", "shuffled"), tuple(named), ()))).split())
    said = "adding or removing one record. Runs that name none get this one. The numbers of shuffled are for adding one"
    assert f"{said} only: {COUNTED}" in text


def test_what_is_zeroed_out_is_not_called_absent() -> None:
    """Neither dataset lacks the record: 'used' is told from 'zeroed out', in every test that is described."""
    for run in (ZEROED, ZEROED.replace(sampler="poisson", adjacency="zero-out")):
        found = measure(run, tolerance=0.05)
        said = " ".join(each.lower_evidence.statement for each in (found.epsilon(1e-5), found.tpr(0.01)))
        assert "ay 'used' when" in said
        assert "says 'used' with probability FPR where 'zeroed out' is right" in said
        assert "absent" not in said


@pytest.mark.parametrize("view", ["worst-case", "isolated"])
def test_the_epsilon_of_substitute_is_named_where_it_is_a_guarantee(view: str) -> None:
    """In the isolated view it is one of a noisy contribution, not of what somebody's data say."""
    run = cp.Run.from_dict(SIZES | {"steps": 5, "adjacency": "zero-out", "sampler": "deterministic", "view": view})
    measured = measure(run, tolerance=0.05)
    answers = dataclasses.replace(answer(measured, Questions()), relations=relations(measured, 1e-5))
    assert ("What the data of a known participant say" in report_this(answers)) is (view == "worst-case")


def test_numbers_for_adding_alone_win_against_no_run_with_numbers_for_both() -> None:
    """Batches without replacement have the larger epsilon, but for both; shuffled ones show who was removed."""
    both = cp.Run(**SIZES, epochs=1, sampler="without-replacement", adjacency="add-remove")
    found = cp.compare(adding=ADDED, both=both, removing=REMOVED)
    epsilons = [answers.epsilon[0].bracket for answers in found.answers]
    assert epsilons[0].upper < epsilons[1].lower
    orders = {(verdict.first, verdict.second): verdict.order.value for verdict in found.verdicts}
    assert orders["adding", "both"] == "second is more private"
    assert orders["both", "removing"] == "first is more private"
    assert orders["adding", "removing"] == "not comparable"
    two = cp.compare(adding=ADDED, both=both)
    assert two.headline.startswith("both is certainly more private than adding for adding and removing together: ")
    assert "sees that a record was removed" in two.headline
    shown = to_text(brief_comparison(found))
    assert "adding (adding only)" in shown
    assert "removing (removing only)" in shown
