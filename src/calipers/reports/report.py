"""A report of a measurement, a calibration, a comparison, an audit or a training run.

`Report` holds the document that people read and the record that programs read; both come from the same answers. Two
calls with the same numbers give the same bytes. Only when it is written to a file does a report say on which date and
by which command (`calipers.provenance`).

    write_report(measure(run), "out.html")        # or .md, or .json
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calipers._version import __version__
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.reports.answers import (
    DEFAULT_DELTA0,
    DEFAULT_DELTAS,
    DEFAULT_FPRS,
    Answers,
    Questions,
    answer,
    large_deltas,
)
from calipers.reports.chart import Chart, Intervals
from calipers.reports.document import Badge, Code, Document, Notice, Quote, Section, Table, at_least, at_most, nearest
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import bracket_figure, profile_figure, rate_figures, target_figure
from calipers.reports.guaranteed import brief_guarantee, guarantee_sections
from calipers.reports.implied import is_guarantee
from calipers.reports.officer import success_rates
from calipers.reports.paragraph import paragraph, report_this
from calipers.reports.records import Record, calibration_record, measurement_record
from calipers.reports.relations import last_batch_notice, noise_notice, presence
from calipers.reports.remedies import Remedy, remedies
from calipers.reports.schema import SCHEMA
from calipers.reports.sections import (
    about_evidence,
    bounding_text,
    calibrated_file,
    measurement_sections,
    notes_section,
    numbers_section,
    relations_section,
)
from calipers.reports.standing import badges, is_closed, verdict
from calipers.reports.views import LOW_RATES
from calipers.reports.words import assumed_text, calibrated_for, describe_calibrated, describe_subject, known_text
from calipers.scope import adjacency_notice

if TYPE_CHECKING:
    from calipers.calibrate import Calibration
    from calipers.measure import Measurement


@dataclass(frozen=True)
class Report:
    """What people read, and what programs read."""

    document: Document
    record: Record

    def named(self, title: str | None, model: str | None) -> Report:
        """The report under its owner's title, about a model by its name; None leaves either as it is."""
        document = dataclasses.replace(
            self.document, title=title or self.document.title, model=model or self.document.model
        )
        said = {name: value for name, value in (("title", title), ("model", model)) if value}
        return Report(document, self.record | said)


def report_measurement(
    measurement: Measurement, questions: Questions, kind: str = "measure", facts: Sequence[tuple[str, str]] = ()
) -> Report:
    """One run from both sides, with all sections."""
    answers, found = asked(measurement, questions, with_relations=True)
    brief = brief_measurement(answers, measurement.tolerance)
    if is_guarantee(answers):
        sections = guarantee_sections(measurement, answers)
    else:
        sections = measurement_sections(measurement, answers, found, facts)
    record = heading(kind, brief.verdict) | measured(measurement, answers, found)
    return Report(dataclasses.replace(brief, kind=kind, sections=sections), record)


def report_training(measurement: Measurement, questions: Questions, facts: Sequence[tuple[str, str]]) -> Report:
    """A run that was just trained: its measurement, and what the training loop says of itself, row by row."""
    report = report_measurement(measurement, questions, "train", facts)
    document = dataclasses.replace(report.document, title="Privacy of a training run")
    return Report(document, {**report.record, "training": dict(facts)})


def as_measured(calibration: Calibration, measurement: Measurement) -> Calibration:
    """What another measurement of what was found says is achieved, if it meets the target, so that a page agrees."""
    target = calibration.target
    if "epsilon" in target:
        achieved = measurement.epsilon(target["delta"])
    elif "mu" in target:
        achieved = measurement.gdp(target["delta0"]).mu
    else:
        achieved = measurement.tpr(target["fpr"]) if "tpr" in target else measurement.advantage()
    meets = achieved.upper <= next(iter(target.values()))
    return dataclasses.replace(calibration, achieved=achieved) if meets else calibration


def report_calibration(calibration: Calibration, measurement: Measurement) -> Report:
    """The run with the noise that was found, read at the target's own delta, false positive rate and delta0;
    `measurement` is of that very run.
    """
    target = calibration.target
    questions = Questions(
        deltas=(target["delta"],) if "delta" in target else DEFAULT_DELTAS,
        fprs=(target["fpr"],) if "fpr" in target else DEFAULT_FPRS,
        delta0=target.get("delta0", DEFAULT_DELTA0),
    )
    report, brief = report_measurement(measurement, questions, "calibrate"), brief_calibration(calibration)
    document = dataclasses.replace(
        report.document,
        title=brief.title,
        verdict=brief.verdict,
        opening=(Notice(_TO_BE_TRAINED), *report.document.opening),
        badges=(*brief.badges, *report.document.badges),
        sections=(brief.sections[0], *report.document.sections),
    )
    calibrated = {"verdict": brief.verdict, "calibration": calibration_record(calibration)}
    return Report(document, report.record | calibrated)


def brief_calibration(calibration: Calibration) -> Document:
    """The noise multiplier (rounded up: more noise never leaks more), what it achieves and why, the run file."""
    from calipers.measure import measure

    achieved, target = calibration.achieved, calibration.target
    several = len(set(calibration.noise_multipliers)) > 1
    noises = calibration.noise_multipliers if several else (calibration.noise_multiplier,)
    noise = ", ".join(ceil_digits(one, NOISE_DIGITS) for one in noises)
    wanted = ", ".join(f"{name} = {setting(value)}" for name, value in target.items())
    enough = f"Noise multipliers of {noise} are" if several else f"A noise multiplier of {noise} is"
    sentence = (
        f"{enough} enough for {wanted}, for {calibrated_for(calibration)}: at most {ceil_digits(achieved.upper)} is "
        f"proven and an explicit attack shows at least {floor_digits(achieved.lower)}."
    )
    rows = (
        *(
            (f"noise multiplier of phase {number}" if several else "noise multiplier", at_most(one, NOISE_DIGITS))
            for number, one in enumerate(noises, start=1)
        ),
        *((f"target {name}", nearest(value, 12)) for name, value in target.items()),
        ("achieved, at most (proof)", at_most(achieved.upper)),
        ("achieved, at least (attack)", at_least(achieved.lower)),
    )
    quantity = next(iter(target))
    figure = target_figure(quantity, achieved, target[quantity])
    own = (note for phase in calibration.phases or (calibration.run,) for note in phase.notes)
    about = measure(calibration.phases).notes if calibration.phases else ()
    deltas = large_deltas(calibration.phases, [target["delta"]] if "delta" in target else [])
    used = {achieved.upper_evidence: ["achieved (upper)"]}
    used.setdefault(achieved.lower_evidence, []).append("achieved (lower)")
    return Document(
        kind="calibrate",
        title="Noise for a privacy target",
        subject=describe_calibrated(calibration) + assumed_text(calibration.phases),
        verdict=sentence,
        badges=(Badge("target met by proof", "good"),),
        opening=(
            figure,
            Quote(f"noise multiplier{'s' if several else ''} {noise}", "Train with"),
            *_assumed(noise_notice(calibration.phases), adjacency_notice(calibration.phases)),
        ),
        sections=(
            Section("The noise", (Table(_SMALLEST, ("quantity", "value"), rows),)),
            Section("The run, as a run file", (Code(calibrated_file(calibration)),)),
            *notes_section(tuple(dict.fromkeys((*deltas, *own, *about)))),
            evidence_section(used.items()),
        ),
    )


_TO_BE_TRAINED = (
    "This noise was computed, and nothing was trained with it here. Every sentence of this report, also those to paste "
    "and to sign, is about a model that will have been trained exactly as described."
)
NOISE_DIGITS = 8
_SMALLEST = "The smallest noise multiplier found whose upper bound meets the target, rounded up"


def asked(
    measurement: Measurement, questions: Questions, *, with_relations: bool = False
) -> tuple[Answers, tuple[Remedy, ...]]:
    """The answers of a report, which always looks at false positive rates from 0.1 down to 1e-5, and the remedies."""
    rates = tuple(sorted({*questions.fprs, *LOW_RATES}, reverse=True))
    answers = answer(measurement, dataclasses.replace(questions, fprs=rates), with_relations=with_relations)
    return answers, remedies(measurement, answers)


def heading(kind: str, sentence: str) -> Record:
    """How every report for programs begins."""
    return {"schema": SCHEMA, "kind": kind, "calipers": __version__, "verdict": sentence}


def measured(measurement: Measurement, answers: Answers, found: Sequence[Remedy]) -> Record:
    """One measured run for programs: brackets, standing of the claim, evidence of every end, remedies, curves."""
    tolerance = measurement.tolerance
    return {
        "paragraph": paragraph(answers, tolerance),
        "tolerance": tolerance,
        "closed": all(is_closed(row.bracket, tolerance) for row in answers.epsilon),
        "measurement": measurement_record(answers),
        "claims": [{"delta": row.at, "standing": row.standing.value} for row in answers.epsilon],
        "evidence": [{**one.to_dict(), "licenses": list(names)} for one, names in answers.evidence().items()],
        "success": [{"baseline": k, "lower": b.lower, "upper": b.upper} for k, b in success_rates(measurement)],
        "remedies": [remedy.to_dict() for remedy in found],
        "curves": _curves(measurement, answers),
    }


def _curves(measurement: Measurement, answers: Answers) -> Record:
    """The drawn points. Each value is a bound at its own place; a straight line between two of them is not."""
    even, low = rate_figures(measurement, answers)
    profile = profile_figure(measurement, answers, with_claim=False)
    return {
        "tradeoff": _points(even.picture, "fpr", "fnr", proof_first=True),
        "low_rates": _points(low.picture, "fpr", "tpr"),
        "profile": None if profile is None else _points(profile.picture, "epsilon", "delta"),
    }


def _points(picture: Chart | Intervals, x_name: str, y_name: str, proof_first: bool = False) -> Record:
    assert isinstance(picture, Chart)
    proof, attack = picture.lines[:2]
    low, high = (proof, attack) if proof_first else (attack, proof)
    return {x_name: list(low.x), f"{y_name}_at_least": list(low.y), f"{y_name}_at_most": list(high.y)}


def _assumed(*texts: str) -> tuple[Notice, ...]:
    """What nobody said and was assumed, one notice each."""
    return tuple(Notice(text) for text in texts if text)


def brief_measurement(answers: Answers, tolerance: float) -> Document:
    """What a terminal and a notebook show of a run: nothing is measured for it beyond the answers."""
    if is_guarantee(answers):
        return brief_guarantee(answers)
    return Document(
        kind="measure",
        title="Privacy of a DP-SGD run" if answers.stated is None else f"Privacy of {answers.stated.noun}",
        subject=describe_subject(answers) + known_text(answers) + assumed_text(answers.runs, answers.assumed_deltas),
        verdict=verdict(answers, tolerance),
        badges=badges(answers, tolerance),
        opening=(
            *_assumed(last_batch_notice(answers.relations, answers.runs)),
            bracket_figure(answers),
            Quote(report_this(answers), "Report this"),
            *_assumed(
                adjacency_notice(answers.runs, presence(answers.relations, answers.runs)),
                bounding_text(answers.executed),
            ),
        ),
        sections=(
            numbers_section(answers, tolerance),
            *relations_section(answers),
            *notes_section(answers.notes),
            evidence_section(answers.evidence().items(), said_first=about_evidence(answers)),
        ),
    )
