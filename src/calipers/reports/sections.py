"""The sections of a measurement's report, in the order in which a reader asks.

What the words mean; how private the run is; what an attacker gets, also of a secret; what is not covered; what to
change; what was run; what that looks like; what the standard accounting would have said; what to write about it; what
else to know; the evidence behind the numbers; what to sign.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.guarantee import GuaranteeSubject
from calipers.numerics.decimals import floor_digits, setting
from calipers.reports.answers import Answers
from calipers.reports.document import (
    Block,
    Cell,
    Code,
    Items,
    Notice,
    Prose,
    Quote,
    Section,
    Table,
    at_most,
    ends,
    nearest,
)
from calipers.reports.evidence import BEHIND, evidence_section
from calipers.reports.figures import profile_figure, rate_figures
from calipers.reports.officer import (
    reading_section,
    relation,
    secrets_section,
    signature_section,
    success_rates,
    uncovered_section,
)
from calipers.reports.paragraph import paragraph, printed_regret
from calipers.reports.readings import Reading, comparable, is_claimed_run, rate_moves
from calipers.reports.remedies import Remedy
from calipers.reports.standing import claim_cell, is_closed
from calipers.run import KEYS, Run
from calipers.run_keys import as_toml
from calipers.scope import (
    VIEWS,
    assumed_settings,
    divisor_text,
    neighbors_text,
    question_text,
    unit_name,
    unit_text,
    verdicts,
)

if TYPE_CHECKING:
    from calipers.calibrate import Calibration
    from calipers.measure import Measurement

ASSUMED_MARK = "(assumed)"
"""After a setting that nobody named."""
_FORMAT = {"dataset_size", "batch_size", "steps", "dimension"}
_NAMES = {name: name.replace("_", " ") for name in KEYS}


def measurement_sections(
    measurement: Measurement, answers: Answers, found: Sequence[Remedy], facts: Sequence[tuple[str, str]] = ()
) -> tuple[Section, ...]:
    """Everything about one measured run; `facts` are rows that a training loop adds about itself."""
    return (
        reading_section(answers),
        numbers_section(answers, measurement.tolerance),
        *relations_section(answers, (Prose(_WHICH),)),
        attacker_section(answers),
        secrets_section(measurement, answers, success_rates(measurement)),
        uncovered_section(answers),
        Section("What to change", (Items(tuple(remedy.sentence for remedy in found)),)),
        run_section(answers.runs, facts, answers.assumed_deltas)
        if answers.stated is None
        else stated_section(answers.stated),
        curves_section(measurement, answers),
        claim_section(answers),
        Section(
            "A paragraph to paste", (Prose(_PASTE + _size(answers)), Quote(paragraph(answers, measurement.tolerance)))
        ),
        *notes_section(answers.notes),
        evidence_section(answers.evidence().items(), said_first=about_evidence(answers)),
        *signature_section(answers),
    )


_LEFT_OUT = f"Settings marked {ASSUMED_MARK} were not given: check them before you sign."
_WHICH = (
    "Which one to report: add-remove, if the promise is about whether somebody's data were used at all; substitute, if "
    "it is known whose data were used and the promise is about what they say; zero-out, if a policy or a library asks "
    "for that one: the gradients become zero, and the place in the batches stays."
)
_PASTE = "Fits a paper or a model card. It reports mu-GDP with its regret, as Gomez et al. (2025) propose."


def _size(answers: Answers) -> str:
    """That the paragraph publishes the exact number of records, which neighbors differ by."""
    if all(run.dataset_size is None or run.adjacency != "add-remove" for run in answers.runs):
        return ""
    return (
        " It names the number of records, and no number here covers publishing that: round it, if it is not public "
        "anyway."
    )


def run_section(
    runs: Sequence[Run], facts: Sequence[tuple[str, str]] = (), assumed_deltas: Sequence[float] = ()
) -> Section:
    """What was executed, as a table and as a run file; the sentence stands at the head of the report."""
    reported = ("unit", "records_per_unit")  # in one row, below
    # What a sampler has no use for is no setting of the run, whatever its default.
    settings = [{**run.to_dict(), **assumed_settings(run)} for run in runs]
    keys = [key for key in KEYS if key not in reported and any(key in own for own in settings)]
    columns = ("setting", "value") if len(runs) == 1 else ("setting", *(f"phase {i + 1}" for i in range(len(runs))))
    rows = [(_NAMES[key], *(_setting_text(run, key) for run in runs)) for key in keys]
    rows.append(("privacy unit", *(f"{unit_text(run)}{'' if run.unit else f' {ASSUMED_MARK}'}" for run in runs)))
    rows += [("delta", *(f"{setting(delta)} {ASSUMED_MARK}",) * len(runs)) for delta in assumed_deltas]
    said = (Prose(_LEFT_OUT),) if any(ASSUMED_MARK in cell for row in rows for cell in row) else ()
    blocks: list[Block] = [*said, Table("Settings", columns, tuple(rows))]
    if facts:
        blocks.append(Table("Training", ("fact", "value"), tuple(facts)))
    blocks.append(Code(run_file(runs)))
    return Section("The run", tuple(blocks))


def _setting_text(run: Run, key: str) -> str:
    value = {**run.to_dict(), **assumed_settings(run)}.get(key)
    if value is None:
        return "not given"
    if key in _FORMAT:
        return f"{value:,}"
    meanings = {
        "normalization": divisor_text(run),
        "adjacency": f"neighbors differ by {neighbors_text(run)}",
        "view": VIEWS[run.view],
        "last_batch": "a last batch that is not full is " + {"drop": "left out", "keep": "used"}[run.last_batch],
        "reshuffle": f"{_DRAWN.get(run.sampler, 'the order is')} drawn {_ANEW[run.reshuffle]}",
        "derived_rate": _RATES[run.derived_rate],
    }
    said = setting(value) if isinstance(value, float) else str(value)
    words = f"{said}: {meanings[key]}" if key in meanings else said
    return f"{words} {ASSUMED_MARK}" if key in run.assumed else words


_DRAWN = {"balls-and-bins": "the batch of each record is"}
_RATES = {
    "public": "the rate is the same for both neighboring datasets",
    "moving": "the rate is computed from each dataset's own size",
}
_ANEW = {"every-epoch": "anew for every epoch", "once": "once for all epochs"}


def run_file(runs: Sequence[Run]) -> str:
    """The run as the text of a run file; several phases as [[phase]] tables."""
    if len(runs) == 1:
        return runs[0].to_toml()
    return "\n".join(f"[[phase]]\n{run.to_toml()}" for run in runs)


def calibrated_file(calibration: Calibration) -> str:
    """What was calibrated, as the text of a run file."""
    beside = as_toml(calibration.release_keys)
    return beside + (run_file(calibration.phases) if calibration.phases else "")


def stated_section(stated: GuaranteeSubject) -> Section:
    """What is stated, as a table and as a file."""
    ((_, keys),) = stated.to_dict().items()
    assert isinstance(keys, dict)
    rows = tuple((name, _cell(value)) for name, value in keys.items() if not _nested(value))
    return Section(
        f"The {stated.noun.split(maxsplit=1)[1]}",
        (Table("As stated", ("setting", "value"), rows), Code(stated.to_toml())),
    )


def _nested(value: object) -> bool:
    """Whether it is a table of its own, which the file shows better."""
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return setting(value) if isinstance(value, float) else str(value)


def subject_file(answers: Answers) -> str:
    """What was measured, as the text of a file."""
    return run_file(answers.runs) if answers.stated is None else answers.stated.to_toml()


def numbers_section(answers: Answers, tolerance: float) -> Section:
    """Every reading between its two bounds."""
    blocks: list[Block] = [numbers_table(answers)]
    if answers.tpr:
        blocks.append(Prose(_TEST))
    if not is_closed(answers.leading.bracket, tolerance):
        blocks.append(
            Notice(
                "The two bounds do not meet: the truth lies somewhere between the two values. Plan with the proof, "
                "and do not call the attack a guarantee."
            )
        )
    return Section("All numbers", tuple(blocks))


_TEST = (
    "Behind each TPR: the attacker computes one score from all that was released, and compares it with the threshold "
    "that gives the FPR of the row."
)


def numbers_table(answers: Answers) -> Table:
    """One row per reading; the regret is that of the mu above it, as printed."""
    rows: list[tuple[Cell, ...]] = [(r.name, *ends(r.bracket), claim_number(r)) for r in answers.readings]
    rows.append(("regret of that mu", "", at_most(printed_regret(answers)), ""))
    return Table(ROUNDED, ("quantity", "at least (attack)", "at most (proof)", "standard accounting"), tuple(rows))


def relations_section(answers: Answers, said_first: tuple[Block, ...] = ()) -> tuple[Section, ...]:
    """Epsilon for all neighboring relations, since people do not know beforehand which one they need."""
    found = answers.relations
    if not found:
        return ()
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        read = " (this report)" if one.adjacency == answers.runs[0].adjacency and not one.last_batch else ""
        kept = ", if the last batch is kept" if one.last_batch == "keep" else ""
        bounds = ("not proven", "not proven") if one.epsilon is None else ends(one.epsilon)
        rows.append((f"{one.adjacency}{kept}{read}", *bounds, one.words))
    refused = tuple(f"{one.adjacency}: {one.refused}" for one in found if one.epsilon is None)
    table = Table(ROUNDED, ("adjacency", "at least (attack)", "at most (proof)", "neighbors differ by"), tuple(rows))
    title = f"Epsilon at delta = {setting(found[0].delta)} for each neighboring relation"
    return (Section(title, (*said_first, table, *((Items(refused),) if refused else ()))),)


def about_evidence(answers: Answers) -> tuple[Prose, ...]:
    """Which of the relations the proofs and attacks are those of, where there are several."""
    if not answers.relations:
        return ()
    return (
        Prose(
            f"For specialists: the proofs and attacks for {answers.runs[0].adjacency}, the relation of this report. "
            "For another relation: calipers measure, with this run, --adjacency and --explain."
        ),
    )


ROUNDED = "Lower values are rounded down, upper values up."


def claim_number(reading: Reading) -> Cell:
    """The claim of standard accounting, a promised upper value, rounded up; marked where an attack refutes it."""
    if reading.claim is None:
        return ""
    number = at_most(reading.claim)
    return dataclasses.replace(number, unit="refuted", mood="bad") if reading.refuted else number


def curves_section(measurement: Measurement, answers: Answers) -> Section:
    """Trade-off curve on both scales, and the profile."""
    blocks: list[Block] = [
        Prose(
            f"An attack decides {question_text(relation(answers), unit_name(answers.runs))}. The true curve "
            "lies between proof and attack; where the two are the same, the bounds meet."
        ),
        *rate_figures(measurement, answers),
        profile_figure(measurement, answers)
        or Notice("No profile is drawn: no finite epsilon is proven at any delta up to 0.01."),
    ]
    if math.isinf(answers.mu.upper):
        blocks.append(Notice("No Gaussian curve is drawn: no finite mu is proven."))
    return Section("Curves", tuple(blocks))


def attacker_section(answers: Answers) -> Section:
    """True positive rates at false positive rates, with guessing next to them."""
    rows: list[tuple[Cell, ...]] = [(_one_in(fpr), *ends(bracket), nearest(fpr)) for fpr, bracket in answers.tpr]
    rows.append(("largest TPR - FPR", *ends(answers.advantage), nearest(0.0)))
    name, adjacency = unit_name(answers.runs), relation(answers)
    yes, no = verdicts(adjacency)
    return Section(
        "What an attacker gets",
        (
            Prose(
                f"The attacker wants to know {question_text(adjacency, name)}, and accepts a rate of false alarms. The "
                f"table bounds the probability with which the best such attack says '{yes}' where that is right (or "
                f"'{no}' where that is right, if that is more). The first number is reached by an explicit attack, on "
                f"the data that the section '{BEHIND}' describes; the second holds against {_adversary(answers)}, on "
                "all data."
                f"{_ANOTHER.get(adjacency, '').format(name=name)}"
            ),
            Table(
                f"Probability of answering '{yes}' where that is right (or '{no}' where that is, if that is more)",
                ("false alarms", "some attack reaches at least", "no attack exceeds", "guessing reaches"),
                tuple(rows),
            ),
        ),
    )


_ANOTHER = {
    "zero-out": " Whether a {name} was in the data at all is another question (add-remove), and may be easier to "
    "answer.",
    "substitute": " Whether a {name} was in the data at all is another question (add-remove).",
}


def _adversary(answers: Answers) -> str:
    isolated = any(run.view == "isolated" for run in answers.runs)
    return "every attacker who sees only the record's own noisy contribution" if isolated else "every attack"


def _one_in(fpr: float) -> str:
    turns = round(1 / fpr)
    return f"1 in {turns:,}" if math.isclose(1 / fpr, turns, rel_tol=1e-12) else f"FPR {setting(fpr)}"


def claim_section(answers: Answers) -> Section:
    """Poisson accounting of the undivided sum, whatever was executed."""
    intro = USUAL
    if answers.stated is not None:
        intro += f" {answers.stated.about_claim}"
    elif is_claimed_run(answers.runs):
        intro += " That is what is described here, so its number and the proof are about the same mechanism."
    elif not comparable(answers.runs):
        intro += (
            f" This run is measured for {neighbors_text(answers.runs[0])}: the two numbers answer different questions."
            f"{_refuted_elsewhere(answers)}"
        )
    elif any(map(rate_moves, answers.runs)):
        intro += " It assumes a public rate; here the rate is computed from the dataset's own size."
    elif answers.runs[0].adjacency == "zero-out":
        intro += " For Poisson sampling, zeroing out a record has the same epsilon as adding or removing it."
    times = [(row.at, row.bracket.lower / row.claim) for row in answers.epsilon if row.refuted and row.claim > 0]
    notices = (
        f"At delta = {setting(at)} an attack shows {floor_digits(ratio, 3)} times the epsilon of standard accounting."
        for at, ratio in times
    )
    return usual_section(intro, claim_rows(answers), *map(Notice, notices))


def _refuted_elsewhere(answers: Answers) -> str:
    """That an attack on added or removed records exceeds the claim, where this report is about others."""
    if answers.runs[0].records_per_unit > 1:
        return ""  # the claim is about one record
    claims = {row.at: row.claim for row in answers.epsilon}
    for one in answers.relations:
        claim = claims.get(one.delta, math.inf)
        if one.adjacency == "add-remove" and not one.last_batch and one.epsilon and one.epsilon.lower > claim:
            shown = f"at least {floor_digits(one.epsilon.lower)} at delta = {setting(one.delta)}"
            return f" For {one.words} an attack shows an epsilon of {shown}, so there standard accounting is refuted."
    return ""


def usual_section(
    reported: str, rows: Sequence[tuple[Cell, ...]], *notices: Notice, whose: tuple[str, ...] = ()
) -> Section:
    """What mainstream accounting would have said, row by row, after the column `whose` where there are several runs."""
    caption = "Standard accounting (Poisson) next to the two bounds"
    table = (Table(caption, (*whose, *_CLAIM_COLUMNS), tuple(rows)),) if rows else ()
    return Section("What standard accounting (Poisson) would have said", (Prose(reported), *table, *notices))


USUAL = (
    "Standard accounting reports the epsilon of Poisson sampling and an undivided noisy sum under add-remove "
    "adjacency, whatever was executed."
)
_CLAIM_COLUMNS = (
    "quantity",
    "standard accounting",
    "at least (attack)",
    "at most (proof)",
    "so standard accounting is",
)


def claim_rows(answers: Answers) -> list[tuple[Cell, ...]]:
    """Quantity, claim, both ends, and what the ends make of the claim."""
    rows = (*answers.epsilon, *answers.delta)
    return [(row.name, at_most(row.claim), *ends(row.bracket), claim_cell(answers, row)) for row in rows]


def notes_section(notes: Sequence[str]) -> tuple[Section, ...]:
    """What an honest reader must know; no section without a note."""
    return (Section("Notes", (Items(tuple(notes)),)),) if notes else ()
