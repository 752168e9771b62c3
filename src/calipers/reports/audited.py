"""The report of an audit: what was played, what it shows, with which confidence, and what it cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.reports.chart import Axis, Chart, Line
from calipers.reports.document import (
    Badge,
    Block,
    Cell,
    Document,
    Figure,
    Items,
    Notice,
    Prose,
    Quote,
    Section,
    Table,
    at_least,
    at_most,
    nearest,
    setting,
)
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import ATTACK, PROOF, TABLE_RATES
from calipers.reports.format import floor_digits
from calipers.reports.paragraph import audit_paragraph
from calipers.reports.report import Report, heading
from calipers.reports.sections import notes_section, run_section
from calipers.reports.words import describe

if TYPE_CHECKING:
    from calipers.auditing.audit import AuditResult
    from calipers.auditing.verdict import Verdict
    from calipers.bracket import Evidence
    from calipers.measure import Measurement
    from calipers.run import Run

_MOODS = {"falsified": "bad", "consistent": "good", "cannot tell": "open"}


def report_audit(
    result: AuditResult,
    target: str,
    distinguisher: str,
    run: Run | None = None,
    measurement: Measurement | None = None,
) -> Report:
    """An audit, beside the run that the target is said to be where one was described."""
    sentence = _verdict(result)
    text = audit_paragraph(result, target, distinguisher)
    verdicts = [found for found in (result.verdict, result.upper_verdict) if found is not None]
    document = Document(
        kind="audit",
        title="Audit of an implementation",
        subject=target,
        verdict=sentence,
        badges=tuple(Badge(f"{v.against}: {v.outcome.value}", _MOODS[v.outcome.value]) for v in verdicts),
        sections=(
            _played(result, target, distinguisher),
            *((_described(run),) if run is not None else ()),
            _bounds(result),
            _curve(result, measurement),
            Section("What to change", (Items(_advice(result)),)),
            Section("A paragraph to paste", (Quote(text),)),
            evidence_section(_evidence(result).items()),
            *notes_section(result.notes),
        ),
    )
    record = {
        **heading("audit", sentence),
        "paragraph": text,
        "run": None if run is None else run.to_dict(),
        "scored_by": distinguisher,
        "audit": result.to_dict(),
    }
    return Report(document, record)


def _verdict(result: AuditResult) -> str:
    """What exceeds a proof comes first, then the claim, then the bare bound."""
    for found in (result.upper_verdict, result.verdict):
        if found is not None and (found.outcome.value == "falsified" or found is result.verdict):
            return found.message
    bound = result.epsilon[0] if result.epsilon else result.delta[0]
    given = {"epsilon": "δ", "delta": "ε"}[bound.quantity]
    return (
        f"With confidence {setting(result.confidence)} the {bound.quantity} of {result.target.get('target', 'it')} at "
        f"{given} = {setting(bound.at)} is at least {floor_digits(bound.value)}."
    )


def _played(result: AuditResult, target: str, distinguisher: str) -> Section:
    rows = (
        ("target", target),
        ("scored by", distinguisher),
        ("trials for each hypothesis", f"{result.trials:,}"),
        ("seed", str(result.seed)),
        ("confidence of every bound", setting(result.confidence)),
    )
    words = (
        "The implementation was run many times with and without one record. Every run was scored, and the scores were "
        "turned into lower bounds on what leaks. Part of the trials chose the test; the bounds count only the others."
    )
    return Section("The audit", (Prose(words), Table("What was played", ("setting", "value"), rows)))


def _described(run: Run) -> Section:
    """The run that the target is said to be."""
    section = run_section((run,))
    return Section("The run described", (Prose(describe(run)), *section.blocks))


def _bounds(result: AuditResult) -> Section:
    rows: list[tuple[Cell, ...]] = [(f"ε at δ = {setting(b.at)}", at_least(b.value), "", "") for b in result.epsilon]
    for number, bound in enumerate(result.delta):
        claim: Cell = "" if result.claims is None else nearest(result.claims[number])
        proven: Cell = "" if result.uppers is None else at_most(result.uppers[number])
        rows.append((f"δ at ε = {setting(bound.at)}", at_least(bound.value), claim, proven))
    rows.append((f"μ up to δ₀ = {setting(result.mu.at)}", at_least(result.mu.value), "", ""))
    sure = f"at least (confidence {setting(result.confidence)})"
    blocks: list[Block] = [
        Table("Each bound holds on its own", ("quantity", sure, "claim", "at most (proof of the run)"), tuple(rows))
    ]
    blocks += [_judged(found) for found in (result.verdict, result.upper_verdict) if found is not None]
    return Section("What it shows", tuple(blocks))


def _judged(found: Verdict) -> Notice | Prose:
    return Notice(found.message) if found.outcome.value == "falsified" else Prose(found.message)


def _curve(result: AuditResult, measurement: Measurement | None) -> Section:
    """The attack's curve, which holds as a whole, and the proof about the run described, if there is one."""
    attack = result.band.curve
    alpha, beta = (tuple(map(float, column)) for column in (attack.alpha, attack.beta))
    sure = f"{ATTACK}, confidence {setting(result.confidence)}"
    lines = [Line(sure, "attack", (*alpha, 1.0), (*beta, 0.0))]
    at = np.array(TABLE_RATES)
    columns = [[at_most(float(value)) for value in attack(at)]]
    names = [f"at most (attack, confidence {setting(result.confidence)})"]
    if measurement is not None:
        proof = measurement.curve(Side.UPPER)
        rates = np.linspace(0.0, 1.0, 201)
        lines.insert(0, Line(f"{PROOF} of the run described", "proof", tuple(rates), tuple(map(float, proof(rates)))))
        columns.insert(0, [at_least(float(value)) for value in proof(at)])
        names.insert(0, "at least (proof of the run described)")
    lines.append(Line("perfect privacy", "guess", (0.0, 1.0), (1.0, 0.0)))
    chart = Chart(
        "tradeoff",
        "Trade-off curve of the attack",
        "The false negative rate that the attack is shown to reach, at most, at each false positive rate; the whole "
        "curve holds at once. The true curve of the implementation lies on or below it.",
        Axis("false positive rate", 0.0, 1.0),
        Axis("false negative rate", 0.0, 1.0),
        tuple(lines),
    )
    rows = tuple((nearest(float(a)), *row) for a, row in zip(at, zip(*columns, strict=True), strict=True))
    table = Table("False negative rate", ("false positive rate", *names), rows)
    return Section("Curve", (Figure(chart, table),))


def _advice(result: AuditResult) -> tuple[str, ...]:
    found = []
    if result.upper_verdict is not None and result.upper_verdict.outcome.value == "falsified":
        found.append(
            "The implementation is not the run described: look at how it draws batches, clips, adds noise and divides "
            "(calipers probe does), and describe what it does."
        )
    outcome = None if result.verdict is None else result.verdict.outcome.value
    if outcome == "falsified":
        found.append("Do not publish the claim. Measure what is executed (calipers measure) and state that.")
    elif outcome == "cannot tell":
        found.append("Decide on more trials before looking again, and use a new seed; a stronger score may also help.")
    else:
        found.append("Nothing follows for privacy: a stronger attack may find more. A guarantee needs a proof.")
    return tuple(found)


def _evidence(result: AuditResult) -> dict[Evidence, list[str]]:
    used: dict[Evidence, list[str]] = {}
    for bound in (*result.epsilon, *result.delta, result.mu):
        used.setdefault(bound.evidence, []).append(f"{bound.quantity} at {setting(bound.at)} (lower)")
    used.setdefault(result.band.evidence, []).append("curve (lower)")
    for found in (result.verdict, result.upper_verdict):
        if found is not None:
            used.setdefault(found.evidence, []).append(f"verdict on the {found.against}")
    return used
