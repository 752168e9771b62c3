"""What no number of a report is about: the section that says so."""

from __future__ import annotations

from calipers.reports.answers import Answers
from calipers.reports.document import Items, Section
from calipers.reports.officer import differ_text, relation, unit_words
from calipers.reports.words import watched_text
from calipers.scope import in_units

UNCOVERED = "What the numbers do not cover"


def uncovered_section(answers: Answers) -> Section:
    """What no number of this report is about."""
    who = unit_words(answers)
    texts = (
        "Pretraining: what a model that was used as a start learned from its own data.",
        "Validation and test data: metrics, early stopping and chosen checkpoints use them without noise.",
        _search(answers),
        "Preprocessing: vocabularies, normalization constants, deduplication and labels that were computed from the "
        "data.",
        "Floating point: the noise is taken to be real-valued and Gaussian, and its generator unpredictable; "
        "libraries draw floating-point numbers from a start number (the seed), which must stay secret.",
        "Logs of the training: attackers who see the seed, the noise or, where batches are drawn at random, who was in "
        "which batch.",
        f"Several records of one person: the unit is {who}{_alone(answers)}. People with more, and groups, are "
        "protected less.",
        "Other releases: models, statistics or logs made from the same data add up with this one.",
        *_size(answers),
        _description(answers),
    )
    return Section(UNCOVERED, (Items(texts),))


def _alone(answers: Answers) -> str:
    """That a person, or whatever the unit is called, is counted as one record."""
    runs = answers.described
    return ", counted as one record" if runs and runs[0].unit is not None and runs[0].records_per_unit == 1 else ""


def _search(answers: Answers) -> str:
    """Whether trying several settings is counted."""
    if answers.stated is not None and answers.stated.runs:
        return "Hyperparameter search: trainings on the same data beyond those of which the best was released."
    return (
        "Hyperparameter search: trying several settings on the same data and publishing the best one leaks more than "
        "one run (calipers measure --selected-mean)."
    )


def uncovered_by_guarantee(answers: Answers) -> Section:
    """What nothing that follows from a stated guarantee is about."""
    texts = (
        "The mechanism: whether it has this guarantee was not examined. Randomness, floating point and the code are "
        "part of that.",
        "What the statement leaves out: pretraining, preprocessing, validation data or a search for hyperparameters on "
        "the same data are covered only if whoever stated the guarantee counted them.",
        f"Other neighbors: the guarantee is read as one for {differ_text(answers)}.",
        "Several records of one person: the unit is one record. People with more, and groups, are protected less.",
        "Other releases: models, statistics or logs made from the same data add up with this one.",
    )
    return Section(UNCOVERED, (Items(texts),))


def _description(answers: Answers) -> str:
    """How the run is known."""
    if answers.watched:
        return (
            f"What a record cannot watch: the run is {watched_text(answers.watched)}, and what that could not see is "
            "in 'Notes'. Calipers can also write it down as a receipt: ask for one."
        )
    return (
        "The description: the numbers are about the run as it is described here. Calipers can also test the code "
        "(probes, audits) and record what was executed (receipts): ask for one."
    )


def _size(answers: Answers) -> tuple[str, ...]:
    """That this report gives away the number of records."""
    if not names_size(answers):
        return ()
    if relation(answers) in ("zero-out", "substitute"):
        same = "The number of records: both neighbors have it, so publishing it shows nothing that these numbers are "
        same += "about. It may show whether a record was in the data at all, which is another question (add-remove)."
        return (in_units(same, answers.described[0]),)
    text = (
        "The number of records: no number here covers publishing it, though whoever knows all other records learns "
        "from it whether this one was among them. Rate and batch size, or the batches of an epoch and their sizes, "
        "give it away too, exactly or nearly, so rounding it does not hide it. If it is secret, choose rate and "
        "number of steps that do not reveal it, and leave all of these out of what is published, also where "
        "'Report this', 'A paragraph to paste' and 'To sign' have them."
    )
    return (in_units(text, answers.described[0]),)


def names_size(answers: Answers) -> bool:
    """Whether the report says how many records there are."""
    return any(run.dataset_size is not None for run in answers.described)
