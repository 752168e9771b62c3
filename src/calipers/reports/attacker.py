"""What an attacker gets: true positive rates at false positive rates, and of which records they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calipers.numerics.decimals import ceil_digits, setting
from calipers.reports.answers import Answers
from calipers.reports.document import Cell, Prose, Section, Table, ends, nearest
from calipers.reports.evidence import BEHIND
from calipers.reports.officer import relation
from calipers.reports.relations import presence
from calipers.run import Run
from calipers.scope import easier_text, only_side, question_text, unit_name, verdicts


def attacker_section(answers: Answers) -> Section:
    """True positive rates at false positive rates, with guessing next to them."""
    rows: list[tuple[Cell, ...]] = [(_one_in(fpr), *ends(bracket), nearest(fpr)) for fpr, bracket in answers.tpr]
    rows.append(("largest TPR - FPR", *ends(answers.advantage), nearest(0.0)))
    adjacency = relation(answers)
    asked = question_text(adjacency, unit_name(answers.described), only_side(answers.runs))
    yes, no = verdicts(adjacency)
    return Section(
        "What an attacker gets",
        (
            Prose(
                f"The attacker wants to know {asked}, and accepts a rate of false alarms. The "
                f"table bounds the true positive rate of the best such attack: how probably it says '{yes}' where that "
                f"is right (or '{no}' where that is right, if that is more). {_alarm(answers)}"
                "The first number is reached by an attack that was computed, on "
                f"the data that the section '{BEHIND}' describes; the second holds against {_adversary(answers)}"
                f"{_holds_on(answers.runs)}.{_another(answers)}"
            ),
            Table(
                f"True positive rate: how often '{yes}' is said where that is right (or '{no}' where that is, if more)",
                ("false alarms", "some attack reaches at least", "no attack exceeds", "guessing reaches"),
                tuple(rows),
            ),
        ),
    )


def _alarm(answers: Answers) -> str:
    """How often the answer is right, which is another number: of an example from the table, both answers as likely."""
    if not answers.tpr:
        return ""
    fpr, bracket = answers.tpr[min(1, len(answers.tpr) - 1)]
    most = ceil_digits(bracket.upper)
    right = math.ceil(100.0 * float(most) / (float(most) + fpr))
    return (
        f"It is not how often such an answer is right: where both answers were as likely before, a TPR of {most} at "
        f"an FPR of {setting(fpr)} makes it right with probability {most}/({most} + {setting(fpr)}), "
        f"at most {right} %; answers with rarer false alarms are right more often. "
    )


def _another(answers: Answers) -> str:
    """That being in the data at all is another question, and whether it is an easier one."""
    if relation(answers) not in ("zero-out", "substitute"):
        return ""
    easier = easier_text(answers.runs, "answer", presence(answers.relations, answers.runs)) if answers.runs else ""
    said = "" if easier.startswith("may") and relation(answers) == "substitute" else f", and {easier}" * bool(easier)
    return f" Whether a {unit_name(answers.described)} was in the data at all is another question (add-remove){said}."


def _holds_on(runs: Sequence[Run]) -> str:
    """Of which records the upper numbers are: of one that is added, or removed, where the other is told for certain."""
    side, name = only_side(runs), unit_name(runs)
    if not side:
        return ", on all data"
    if side == "removing":
        return (
            f" on a {name} of these data that is removed; whether one more was among them, the number of batches tells "
            "for certain"
        )
    if runs[0].records_per_unit > 1:
        return (
            f" on a {name} that is added to these data; whether one of the {name}s in them was used, the number of "
            "batches can tell for certain"
        )
    return (
        f" on a {name} that is added to these data; whether one of these {runs[0].dataset_size:,} was used, the number "
        "of batches tells for certain"
    )


def _adversary(answers: Answers) -> str:
    isolated = any(run.view == "isolated" for run in answers.runs)
    return (
        "every attacker who sees only the record's own noisy contribution"
        if isolated
        else "every attack within the scope of this report"
    )


def _one_in(fpr: float) -> str:
    turns = round(1 / fpr)
    return f"1 in {turns:,}" if math.isclose(1 / fpr, turns, rel_tol=1e-12) else f"FPR {setting(fpr)}"
