"""The report of an audit: what was played, what it shows, with which confidence, and what it cannot show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from calipers._version import __version__
from calipers.guarantee import NEIGHBORS
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.reports.accounting import USUAL, claim_rows, usual_section
from calipers.reports.answers import DEFAULT_DELTAS, Questions, answer
from calipers.reports.audit_figures import attacker_table, curve_figures, lowest_counted
from calipers.reports.chart import Interval
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
    claimed,
)
from calipers.reports.evidence import evidence_section
from calipers.reports.figures import interval_figure
from calipers.reports.paragraph import audit_paragraph, audited_relation, judgements, other_hypothesis
from calipers.reports.readings import name_of
from calipers.reports.report import Report, heading
from calipers.reports.sections import ASSUMED_MARK, notes_section, run_section
from calipers.reports.views import LOW_RATES
from calipers.reports.words import describe
from calipers.scope import question_text

if TYPE_CHECKING:
    from calipers.auditing.audit import AuditResult
    from calipers.auditing.bounds import LowerBound
    from calipers.auditing.one_run_game import OneRunResult
    from calipers.auditing.verdict import Verdict
    from calipers.bracket import Evidence
    from calipers.measure import Measurement
    from calipers.reports.answers import Answers
    from calipers.run import Run

UNASKED = "No claim was tested: add --claim EPSILON,DELTA, or describe the run it should be."
SIMULATED = "Calipers' own simulation was audited, not your training code."
"""What a report of a built-in target opens with."""
_MOODS = {"falsified": "bad", "consistent": "good", "cannot tell": "open"}


def report_audit(result: AuditResult, run: Run | None = None, measurement: Measurement | None = None) -> Report:
    """An audit, next to the run that the target is said to be where one was described."""
    text = audit_paragraph(result, run)
    described = None if measurement is None else (measurement, answer(measurement, _questions(result)))
    brief, asked = brief_audit(result), question_text(audited_relation(result, run), "record")
    gets = _GETS.format(asked=asked) + lowest_counted(result)
    document = dataclasses.replace(
        brief,
        sections=(
            _bounds(result),
            _played(result, run),
            *((_described(run),) if run is not None else ()),
            Section("Curves", curve_figures(result, described)),
            Section("What an attacker gets", (Prose(gets), attacker_table(result, described))),
            *((_claimed(described[1]),) if described is not None else ()),
            Section("What to change", (Items(tuple(_advice(result))),)),
            Section("A paragraph to paste", (Quote(text),)),
            *brief.sections[1:],
        ),
    )
    record = {
        **heading("audit", brief.verdict),
        "paragraph": text,
        "run": None if run is None else run.to_dict(),
        "scored_by": result.scored_by,
        "audit": result.to_dict(),
    }
    return Report(document, record)


def brief_audit(result: AuditResult) -> Document:
    """What a terminal and a notebook show: the verdict, the bounds next to claim and proof, how it was played."""
    verdicts = [found for found in (result.verdict, result.upper_verdict) if found is not None]
    unasked = () if verdicts else (UNASKED,)
    played = (
        f"{result.target_name}: {result.trials:,} trials for each hypothesis, seed {result.seed}, confidence "
        f"{setting(result.confidence)}. Scored by: {result.scored_by}."
    )
    return Document(
        kind="audit",
        title="Audit of an implementation",
        subject="\n".join([played, *looked(result), *unasked]),
        verdict=_verdict(result),
        badges=tuple(_badge(found) for found in verdicts),
        opening=(*_ruler(result), Quote(_report_this(result), "Report this")),
        sections=(_bounds(result), *notes_section(result.notes), evidence_section(_evidence(result).items())),
        bounds=_FOOT,
    )


_FOOT = (
    "The lower bounds are those of an attack, with their confidence. An audit proves no upper bound; one that stands "
    "next to them is of the run described."
)


def _badge(found: Verdict) -> Badge:
    """The outcome in a word. A proof is never falsified: code that exceeds it is another run."""
    not_it = found.against == "upper bound" and found.outcome.value == "falsified"
    text = "not the run described" if not_it else f"{found.judged.removeprefix('the ')}: {found.outcome.value}"
    return Badge(text, _MOODS[found.outcome.value])


def _ruler(result: AuditResult) -> tuple[Figure, ...]:
    """What the audit shows of epsilon, with the claim and the proof of the run described as diamonds.

    Nothing is proven about the implementation itself, so the right end stays open.
    """
    if not result.epsilon:
        return ()
    bound = result.epsilon[0]
    promised = ((_promised(result), bound.claim), ("proof of the run described", bound.upper))
    marks = tuple((name, "claim", value) for name, value in promised if value is not None and math.isfinite(value))
    row = Interval(
        name_of("epsilon", bound.at), bound.value, math.inf, marks, "an audit does not bound epsilon from above"
    )
    cells = ((row.label, at_least(bound.value)),)
    description = f"At least: what the attack shows, with confidence {setting(result.confidence)}."
    if bound.upper is not None:
        description += " The proof is of the run described, and bounds the code only if the code is that run."
    return (interval_figure("audit", row.label, (row,), cells, ("quantity", "at least"), description),)


def _promised(result: AuditResult) -> str:
    """What is judged besides the proof: a claim, or standard accounting where nobody claimed anything."""
    return "standard accounting" if result.verdict is not None and result.verdict.words else "claim"


def _report_this(result: AuditResult) -> str:
    """One line to report: what was audited, the first bound that shows anything, its confidence; never a guarantee."""
    sure = f"confidence {setting(result.confidence)}"
    where = " in Calipers' own simulation of a run" if result.simulated else ""
    audited = (
        f"This audit of one pair of datasets{_differing(result)}{where} ({result.target_name}, {result.trials:,} "
        f"trials for each hypothesis, Calipers {__version__})"
    )
    bounds = (*result.epsilon, *result.delta, result.mu)
    shown = next((bound for bound in bounds if bound.value > 0.0), None)
    if shown is None:
        said = f"{audited} demonstrated no leakage, which does not show that there is none."
    else:
        said = f"{audited} shows, with {sure}, that {_bound_text(shown)}."
    return f"{said}{_unseen_excess(result)} An audit proves no privacy."


def _differing(result: AuditResult) -> str:
    """What the datasets differ by, where the target says it."""
    adjacency = result.target.get("adjacency")
    return f" that differ by {NEIGHBORS[str(adjacency)]} one record" if adjacency in NEIGHBORS else ""


def _unseen_excess(result: AuditResult) -> str:
    """How much more than is allowed the trials do not exclude, by this very score, where it was held against that."""
    verdicts = [found for found in (result.verdict, result.upper_verdict) if found is not None]
    if any(found.outcome.value == "falsified" for found in verdicts):
        return ""
    widest = max(verdicts, key=lambda found: found.excluded, default=None)
    if widest is None or widest.excluded <= 0.0:
        return ""
    excess = ceil_digits(widest.excluded, 3)
    over = f"over what {widest.judged} allows {widest.at_tested}"
    return (
        f" For this score an excess of more than {excess} in delta {over} is excluded with confidence "
        f"{setting(result.confidence)}, a smaller one is not (verdict: {widest.outcome.value})."
    )


def _first_bound(result: AuditResult, whose: str = "") -> str:
    """What the audit shows, in words: epsilon at the first delta, or delta where none was asked for."""
    return _bound_text(result.epsilon[0] if result.epsilon else result.delta[0], whose)


def _bound_text(bound: LowerBound, whose: str = "") -> str:
    return f"{name_of(bound.quantity, bound.at)}{whose} is at least {floor_digits(bound.value)}"


def looked(result: AuditResult) -> list[str]:
    """What a sequential audit did, and how it may go on."""
    if not result.looks:
        return []
    looks = len(result.looks)
    said = f"Sequential: {looks} look{'s' if looks > 1 else ''}, the last after {result.trials} trials"
    if result.looks[-1].outcome == "falsified":
        return [f"{said}, which ended it; the confidence covers all looks."]
    more = 2 * result.trials
    return [f"{said}. The confidence covers all looks, and more: --most-trials {more} with the same ledger goes on."]


def _verdict(result: AuditResult) -> str:
    """What is no training code comes first, then what it shows."""
    return f"{SIMULATED} {_shown(result)}" if result.simulated else _shown(result)


def _shown(result: AuditResult) -> str:
    """What exceeds a proof comes first, then the claim, then the bare bound."""
    for found in (result.upper_verdict, result.verdict):
        if found is not None and (found.outcome.value == "falsified" or found is result.verdict):
            return found.message
    whose = f" of {result.target.get('name', result.target.get('target', 'it'))}"
    return f"With confidence {setting(result.confidence)}, {_first_bound(result, whose)}."


def _played(result: AuditResult, run: Run | None) -> Section:
    rows = (
        ("target", result.target_name),
        ("scored by", result.scored_by),
        ("trials for each hypothesis", f"{result.trials:,}"),
        ("seed", str(result.seed)),
        ("confidence of every bound", setting(result.confidence)),
    )
    who = "Calipers' own simulation, not your training code," if result.simulated else "The implementation"
    words = (
        f"{who} was run many times with one record and {other_hypothesis(result, run)}. Every run was scored, and the "
        "scores were turned into lower bounds on what leaks. Part of the trials chose the tests of the table 'What it "
        "shows' and of a rejection, and those bounds count only the others; the curves, 'What an attacker gets' and "
        "'consistent' hold at all thresholds at once and count every trial."
    )
    return Section("The audit", (Prose(words), Table("What was played", ("setting", "value"), rows)))


def _described(run: Run) -> Section:
    """The run that the target is said to be."""
    section = run_section((run,), left_out=_LEFT_OUT)
    return Section("The run described", (Prose(describe(run)), *section.blocks))


_LEFT_OUT = f"Settings marked {ASSUMED_MARK} were not given: ask whether the audited code has them."
_GETS = (
    "The attacker wants to know {asked}, and accepts a rate of false alarms. What the attack of this audit reaches "
    "holds for all rates at once; other datasets, or a better score, may show more. "
)


def _questions(result: AuditResult) -> Questions:
    """The run described is asked what the audit was asked."""
    return Questions(
        deltas=tuple(bound.at for bound in result.epsilon) or DEFAULT_DELTAS,
        epsilons=tuple(bound.at for bound in result.delta),
        fprs=LOW_RATES,
        delta0=result.mu.at,
    )


def _bounds(result: AuditResult) -> Section:
    """What the audit shows next to what is claimed and what is proven about the run described."""
    rows: list[tuple[Cell, ...]] = []
    for bound in (*result.epsilon, *result.delta, result.mu):
        claim: Cell = "" if bound.claim is None or math.isinf(bound.claim) else claimed(bound.claim)
        proven: Cell = "" if bound.upper is None else at_most(bound.upper)
        rows.append((name_of(bound.quantity, bound.at), at_least(bound.value), claim, proven))
    sure = f"at least (confidence {setting(result.confidence)})"
    columns = ("quantity", sure, _promised(result), "at most (proof of the run)")
    reported = [number for number in range(len(columns)) if any(row[number] != "" for row in rows)]
    blocks: list[Block] = [
        Table(
            "Each bound holds on its own",
            tuple(columns[number] for number in reported),
            tuple(tuple(row[number] for number in reported) for row in rows),
        )
    ]
    blocks += [Notice(text) if bad else Prose(text) for text, bad in judgements(result)]
    return Section("What it shows", tuple(blocks))


def _claimed(answers: Answers) -> Section:
    """What mainstream accounting reports for the run described, and what that run's own bracket makes of it."""
    words = (
        f"{USUAL} The two bounds next to it are those of the run described; whether the implementation is that run "
        "is what the audit asks."
    )
    rows = [(*row[:-1], _of_described(row[-1])) for row in claim_rows(answers)]
    return usual_section(words, rows)


def _of_described(cell: Cell) -> Cell:
    """What became of the claim, of the run that the implementation is said to be."""
    if not isinstance(cell, Badge):
        return cell
    return dataclasses.replace(cell, text=cell.text.replace("this run", "the run described"))


def _advice(result: AuditResult) -> Iterator[str]:
    if result.upper_verdict is not None and result.upper_verdict.outcome.value == "falsified":
        yield (
            "The implementation is not the run described: look at how it draws batches, clips, adds noise and divides "
            "(calipers probe does), and describe what it does."
        )
    outcome = None if result.verdict is None else result.verdict.outcome.value
    if outcome == "falsified":
        yield f"Do not publish {_promised_epsilon(result)}. Measure what is executed (calipers measure) and state that."
    elif outcome == "cannot tell":
        yield (
            "Decide on more trials before looking again. An audit with a new seed adds an error of its own; a "
            "sequential one (--sequential) has one error for all its looks. A stronger score may also help."
        )
    else:
        yield "Nothing follows for privacy: other attacks may find more. A guarantee needs a proof."


def _promised_epsilon(result: AuditResult) -> str:
    return "the claim" if _promised(result) == "claim" else "the epsilon of standard accounting"


def _evidence(result: AuditResult) -> dict[Evidence, list[str]]:
    used: dict[Evidence, list[str]] = {}
    for bound in (*result.epsilon, *result.delta, result.mu):
        used.setdefault(bound.evidence, []).append(f"{bound.quantity} at {setting(bound.at)} (lower)")
    used.setdefault(result.band.evidence, []).append("curve (lower)")
    for found in (result.verdict, result.upper_verdict):
        if found is not None:
            used.setdefault(found.evidence, []).append(f"verdict on {found.judged}")
    return used


def brief_one_run(result: OneRunResult) -> Document:
    """One training run with canaries: the verdict, the bounds next to claim and proof, the assumptions."""
    rows: list[tuple[Cell, ...]] = []
    for bound in result.epsilon:
        claim: Cell = "" if bound.claim is None else claimed(bound.claim)
        proven: Cell = "" if bound.upper is None else at_most(bound.upper)
        guessed = f"{bound.correct} of {bound.guesses}"
        name = name_of("epsilon", bound.delta)
        rows.append((name, at_least(bound.epsilon_lower), claim, proven, guessed))
    from calipers.auditing.verdict import STANDARD  # numpy, which help does not need

    first, sure = result.epsilon[0], setting(result.confidence)
    bare = f"With confidence {sure}, {rows[0][0]} is at least {floor_digits(first.epsilon_lower)}."
    said = [text for _, _, text in result.verdicts] or [bare]
    unasked = () if result.verdicts else (UNASKED,)
    standard = any(STANDARD in text for text in said)
    promised = "standard accounting" if standard else "claim"
    columns = ("quantity", f"at least (confidence {sure})", promised, "at most (proof of the run)", "right guesses")
    table = Table("Each bound holds on its own", columns, tuple(rows))
    return Document(
        kind="audit",
        title="Audit of one training run",
        subject="\n".join([f"{result.source}: one run, {first.canaries} canaries, confidence {sure}.", *unasked]),
        verdict=said[0],
        sections=(Section("What it shows", (table, *map(Prose, said[1:]))), *notes_section(result.notes)),
        bounds=_FOOT,
    )
