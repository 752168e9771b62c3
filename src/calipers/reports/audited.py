"""The report of an audit: what was played, what it shows, with which confidence, and what it cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.reports.answers import DEFAULT_DELTAS, Questions, answer
from calipers.reports.audit_figures import attacker_table, low_rates_figure, profile_figure, tradeoff_figure
from calipers.reports.document import (
    Badge,
    Block,
    Cell,
    Document,
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
from calipers.reports.figures import LOW_RATES
from calipers.reports.format import floor_digits
from calipers.reports.paragraph import audit_paragraph, judgements
from calipers.reports.report import Report, heading
from calipers.reports.sections import CLAIM_COLUMNS, claim_rows, notes_section, run_section
from calipers.reports.words import describe

if TYPE_CHECKING:
    from calipers.auditing.audit import AuditResult
    from calipers.bracket import Evidence
    from calipers.measure import Measurement
    from calipers.reports.answers import Answers
    from calipers.reports.audit_figures import Described
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
    text = audit_paragraph(result, target, distinguisher, run)
    described = None if measurement is None else (measurement, answer(measurement, _questions(result)))
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
            _bounds(result, described),
            _curves(result, described),
            Section("What an attacker gets", (Prose(_GETS), attacker_table(result, described))),
            *((_claimed(described[1]),) if described is not None else ()),
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


_GETS = (
    "The attacker wants to know whether the record was in the data, and accepts a rate of false alarms. What the "
    "attack of this audit reaches holds for all rates at once; a stronger attack may find more."
)


def _questions(result: AuditResult) -> Questions:
    """The run described is asked what the audit was asked."""
    return Questions(
        deltas=tuple(bound.at for bound in result.epsilon) or DEFAULT_DELTAS,
        epsilons=tuple(bound.at for bound in result.delta),
        fprs=LOW_RATES,
        delta0=result.mu.at,
    )


def _bounds(result: AuditResult, described: Described) -> Section:
    """What the audit shows beside what is claimed and what is proven about the run described."""
    asked = None if described is None else described[1]
    rows: list[tuple[Cell, ...]] = []
    for number, bound in enumerate(result.epsilon):
        proven: Cell = "" if asked is None else at_most(asked.epsilon[number].bracket.upper)
        rows.append((f"ε at δ = {setting(bound.at)}", at_least(bound.value), "", proven))
    for number, bound in enumerate(result.delta):
        claim: Cell = "" if result.claims is None else nearest(result.claims[number])
        proven = "" if result.uppers is None else at_most(result.uppers[number])
        rows.append((f"δ at ε = {setting(bound.at)}", at_least(bound.value), claim, proven))
    proven = "" if asked is None else at_most(asked.mu.upper)
    rows.append((f"μ up to δ₀ = {setting(result.mu.at)}", at_least(result.mu.value), "", proven))
    sure = f"at least (confidence {setting(result.confidence)})"
    blocks: list[Block] = [
        Table("Each bound holds on its own", ("quantity", sure, "claim", "at most (proof of the run)"), tuple(rows))
    ]
    blocks += [Notice(text) if bad else Prose(text) for text, bad in judgements(result)]
    return Section("What it shows", tuple(blocks))


def _curves(result: AuditResult, described: Described) -> Section:
    """The attack's curve, which holds as a whole, and the proof about the run described, if there is one."""
    draw = (tradeoff_figure, low_rates_figure, profile_figure)
    return Section("Curves", tuple(one(result, described) for one in draw))


def _claimed(answers: Answers) -> Section:
    """What mainstream accounting reports for the run described, and what that run's own bracket makes of it."""
    words = (
        "Mainstream accountants report the epsilon of Poisson sampling and an undivided noisy sum under add-remove "
        "adjacency, whatever was executed. The bracket beside the claim is that of the run described; whether the "
        "implementation is that run is what the audit asks."
    )
    table = Table("The usual claim beside the bracket", CLAIM_COLUMNS, tuple(claim_rows(answers)))
    return Section("What the usual accounting would have said", (Prose(words), table))


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
        found.append(
            "Decide on more trials before looking again. An audit with a new seed adds an error of its own; a "
            "sequential one (--sequential) has one error for all its looks. A stronger score may also help."
        )
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
