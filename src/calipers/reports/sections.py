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
from calipers.numerics.decimals import claim_digits, setting
from calipers.reports.accounting import claim_section
from calipers.reports.answers import Answers
from calipers.reports.attacker import attacker_section
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
)
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import profile_figure, rate_figures
from calipers.reports.officer import (
    reading_section,
    relation,
    secrets_section,
    signature_section,
    success_rates,
)
from calipers.reports.paragraph import paragraph, printed_regret
from calipers.reports.readings import Reading
from calipers.reports.remedies import Remedy
from calipers.reports.standing import is_closed
from calipers.reports.uncovered import names_size, uncovered_section
from calipers.run import KEYS, Run
from calipers.run_keys import as_toml
from calipers.scope import (
    SHARED,
    VIEWS,
    assumed_settings,
    assumptions,
    divisor_text,
    neighbors_text,
    only_side,
    other_side,
    question_text,
    taken_as_public,
    unit_name,
    unit_text,
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
        *relations_section(answers, (Prose(_which(answers)),)),
        attacker_section(answers),
        secrets_section(measurement, answers, success_rates(measurement)),
        uncovered_section(answers),
        change_section(found),
        run_section(answers.runs, facts, answers.assumed_deltas, answers.executed)
        if answers.stated is None
        else stated_section(answers.stated),
        curves_section(measurement, answers),
        claim_section(answers),
        Section(
            "A paragraph to paste",
            (
                Prose(_PASTE + as_facts(answers) + _SIZE * (names_size(answers) and relation(answers) == "add-remove")),
                Quote(paragraph(answers, measurement.tolerance)),
            ),
        ),
        *notes_section(answers.notes),
        evidence_section(answers.evidence().items(), said_first=about_evidence(answers)),
        *signature_section(answers),
    )


def as_facts(answers: Answers) -> str:
    """A sentence on what a paragraph states although nobody gave it; neighbors, view and unit are chosen."""
    listed = assumptions(answers.runs).items()
    found = [text for name, text in listed if name not in _PROMISED and not text.endswith(SHARED)]  # a condition there
    return _AS_FACTS.format(", ".join(found)) if found else ""


def _which(answers: Answers) -> str:
    """Which relation to report; zero-out is not recommended by its own use where nobody asked for it."""
    unnamed = any(run.adjacency == "zero-out" and "adjacency" in run.assumed for run in answers.runs)
    half = any(one.side for one in answers.relations)
    return _WHICH.format(unnamed=_UNNAMED * unnamed) + _HALF * half


def change_section(found: Sequence[Remedy]) -> Section:
    """What lowers the numbers of this run; where nothing was found that is measured, what lowers those of every run."""
    items = Items(tuple(remedy.sentence for remedy in found))
    return Section("What to change", (items if found else Prose(_ALWAYS),))


_ALWAYS = (
    "No other sampler, divisor or last batch was found that is measured to lower these numbers. Each of these lowers "
    "them: more noise, fewer steps, a smaller share of the data per batch. `calipers calibrate` finds the noise for a "
    "target."
)
_LEFT_OUT = (
    f"Settings marked {ASSUMED_MARK} were not given. Before you sign, ask whether the training had them; adjacency, "
    "view, privacy unit and delta are what you want to promise, for and against whom."
)
_WHICH = (
    "Which one to report: add-remove, if the promise is about whether somebody's data were used at all; substitute, if "
    "it is known whose data were used and the promise is about what they say; zero-out, if a policy or a library asks "
    "for that one{unnamed}: the gradients become zero, and the place in the batches stays."
)
_UNNAMED = " (this report, and its 'Report this', has it only because nobody named a relation)"
_HALF = " Where a row is infinite, nothing can be promised to those whom it is about: change the run first."
_PASTE = "Fits a paper or a model card. It reports mu-GDP with its regret, as Gomez et al. (2025) propose."
_AS_FACTS = " It states as facts what nobody gave: {}. Ask whether the training had these before you paste it."
_PROMISED = ("adjacency", "view", "privacy unit")
_SIZE = " It gives away the number of records: if that is secret, see 'What the numbers do not cover'."


def run_section(
    runs: Sequence[Run],
    facts: Sequence[tuple[str, str]] = (),
    assumed_deltas: Sequence[float] = (),
    executed: str = "",
    left_out: str = _LEFT_OUT,
) -> Section:
    """What was executed, as a table and as a run file; the sentence stands at the head of the report.

    `left_out`: what to do about settings that nobody named.
    """
    reported = ("unit", "records_per_unit")  # in one row, below
    # What a sampler has no use for is no setting of the run, whatever its default.
    settings = [{**run.to_dict(), **assumed_settings(run)} for run in runs]
    keys = [key for key in KEYS if key not in reported and any(key in own for own in settings)]
    columns = ("setting", "value") if len(runs) == 1 else ("setting", *(f"phase {i + 1}" for i in range(len(runs))))
    rows = [(_NAMES[key], *(_setting_text(run, key) for run in runs)) for key in keys]
    rows.append(("privacy unit", *(f"{unit_text(run)}{'' if run.unit else f' {ASSUMED_MARK}'}" for run in runs)))
    public = [taken_as_public(run) for run in runs]
    for name in dict.fromkeys(name for names in public for name in names):
        rows.append((name, *(f"{_FIXED} {ASSUMED_MARK}" if name in names else "" for names in public)))
    counted = [assumptions([run]).get("steps per epoch", "").removeprefix("steps per epoch ") for run in runs]
    if any(counted):
        rows.append(("steps per epoch", *(f"{text} {ASSUMED_MARK}" if text else "" for text in counted)))
    rows += [("delta", *(f"{setting(delta)} {ASSUMED_MARK}",) * len(runs)) for delta in assumed_deltas]
    blocks: list[Block] = [Notice(bounding_text(executed))] if executed else []
    if any(ASSUMED_MARK in cell for row in rows for cell in row):
        blocks.append(Prose(left_out))
    blocks.append(Table("Settings", columns, tuple(rows)))
    if facts:
        blocks.append(Table("Training", ("fact", "value"), tuple(facts)))
    blocks.append(Code(run_file(runs)))
    return Section("The run whose bound was taken" if executed else "The run", tuple(blocks))


_FIXED = "a constant, the same for both neighboring datasets"


def bounding_text(executed: str) -> str:
    """That the run of a report is not what was executed; empty where it is."""
    return executed and (
        f"Executed: {executed}. The run that is described here is at least as revealing as that, and its bound was "
        "taken; it is not what was executed."
    )


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
    if key == "noise_multiplier":
        said = claim_digits(run.noise_multiplier, 8)
    words = f"{said}: {meanings[key]}" if key in meanings else said
    return f"{words} {ASSUMED_MARK}" if key in run.assumed else words


_DRAWN = {"balls-and-bins": "the batch of each record is"}
_RATES = {
    "public": "a constant, the same for both neighboring datasets",
    "moving": "the rate is computed from each dataset's own size",
}
_ANEW = {"every-epoch": "anew for every epoch", "once": "once for all epochs"}


def run_file(runs: Sequence[Run]) -> str:
    """The run as the text of a run file, with comments for what nobody named; several phases as [[phase]] tables."""
    if len(runs) == 1:
        return _named_keys(runs[0])
    return "\n".join(f"[[phase]]\n{_named_keys(run)}" for run in runs)


def _named_keys(run: Run) -> str:
    """Read back, the same run with the same assumptions."""
    assumed = assumed_settings(run)
    named = {key: value for key, value in run.to_dict().items() if key not in assumed}
    return as_toml(named) + "".join(f"# assumed: {line}\n" for line in as_toml(assumed).splitlines())


def calibrated_file(calibration: Calibration) -> str:
    """What was calibrated, as the text of a run file."""
    beside = as_toml(calibration.release_keys)
    return beside + (run_file(calibration.phases) if calibration.phases else "")


def stated_section(stated: GuaranteeSubject) -> Section:
    """What is stated, as a table and as a file."""
    ((_, keys),) = stated.to_dict().items()
    assert isinstance(keys, dict)
    marks = {name: f" {ASSUMED_MARK}" for name in stated.assumed}
    rows = tuple((name, _cell(value) + marks.get(name, "")) for name, value in keys.items() if not _nested(value))
    return Section(
        f"The {stated.noun.split(maxsplit=1)[1]}",
        (
            Table("As described" if stated.is_described else "As stated", ("setting", "value"), rows),
            Code(_stated_file(stated)),
        ),
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
    return run_file(answers.runs) if answers.stated is None else _stated_file(answers.stated)


def _stated_file(stated: GuaranteeSubject) -> str:
    """The best of several runs is a run file with a few keys more."""
    if not stated.runs:
        return stated.to_toml()
    keys = {_SELECTED.get(name, name): value for name, value in stated.keys if value is not None}
    return as_toml(keys) + run_file(stated.runs)


_SELECTED = {"mean": "selected_mean", "shape": "trials_shape"}


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
        half = f", for {one.side} only" if one.side else ""
        rows.append((f"{one.adjacency}{half}{kept}{read}", *bounds, one.words))
        if one.side:
            other = f"{one.adjacency}, for {other_side(one.side)}{kept}"
            rows.append((other, "infinite", "infinite", "whoever counts the batches can tell"))
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
            "For another relation: calipers measure, with this run, --adjacency and --explain. The regret of mu comes "
            "from the upper value of mu and from the attacks (Gomez et al. 2025, Equation (24))."
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
    question = question_text(relation(answers), unit_name(answers.described), only_side(answers.runs))
    blocks: list[Block] = [
        Prose(
            f"An attack decides {question}. "
            "The true curve lies between proof and attack; where the two are the same, the bounds meet."
        ),
        *rate_figures(measurement, answers),
        profile_figure(measurement, answers)
        or Notice("No profile is drawn: no finite epsilon is proven at any delta up to 0.01."),
    ]
    if math.isinf(answers.mu.upper):
        why = "no mu is finite" if math.isinf(answers.mu.lower) else "no finite mu is proven"
        blocks.append(Notice(f"No Gaussian curve is drawn: {why}."))
    return Section("Curves", tuple(blocks))


def notes_section(notes: Sequence[str]) -> tuple[Section, ...]:
    """What an honest reader must know; no section without a note."""
    return (Section("Notes", (Items(tuple(notes)),)),) if notes else ()
