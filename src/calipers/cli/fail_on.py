"""`--fail-on`: a command that has said what it found ends with a status that a script can act on.

    refuted     an explicit attack exceeds the claim of standard accounting (measure, compare): exit status 4
    falsified   an audit found the claim false, with its confidence (audit): exit status 4
    undecided   the bounds do not meet, or an audit cannot tell (measure, compare, audit): exit status 3

A condition that a command can never find is refused: a gate that cannot close protects nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.kinds import Choice
from calipers.errors import InputError
from calipers.reports.readings import Standing

if TYPE_CHECKING:
    from calipers.auditing.verdict import AuditOutcome
    from calipers.reports.answers import Answers

STATUS = {"refuted": 4, "falsified": 4, "undecided": 3}


class _Condition(Choice):
    """One of the conditions; "open" is what earlier releases called one of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The condition by its name of today."""
        return super().convert("undecided" if value == "open" else value, param, ctx)


def fail_on_option(*meant: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --fail-on (repeatable); the command gets `fail_on`, all of it among the conditions `meant` here."""

    def check(_context: click.Context, _option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        for condition in value:
            if condition not in meant:
                raise InputError(
                    f"--fail-on {condition} can never happen here; this command finds {' and '.join(meant)}."
                )
        return value

    return click.option(
        "--fail-on",
        multiple=True,
        type=_Condition(list(STATUS)),
        callback=check,
        help="After printing, end with status 4 (refuted: an attack exceeds the claim of standard accounting; "
        "falsified: an audit found the claim false) or 3 (undecided: the bounds do not agree, the claim is neither "
        "proven nor refuted, or an audit cannot tell). Repeatable; here: " + ", ".join(meant) + ".",
    )


def end_measured(fail_on: Sequence[str], measured: Sequence[Answers]) -> None:
    """End with the gravest condition that was asked for and holds for any of the runs; else return."""
    rows = [row for answers in measured for row in answers.epsilon]
    if "refuted" in fail_on and rows and all(row.standing is Standing.ELSEWHERE for row in rows):
        raise InputError(
            "--fail-on refuted can never happen here: the claim of standard accounting is about adding, removing or "
            "zeroing out one record, and these numbers are about other neighbors. Use --fail-on undecided, or a budget "
            "(calipers check)."
        )
    refuted = any(row.refuted for row in rows)
    _end(fail_on, refuted=refuted, undecided=not all(answers.closes for answers in measured))


def end_audited(fail_on: Sequence[str], outcomes: Sequence[AuditOutcome]) -> None:
    """The same for the verdicts of an audit on the claim and on the upper bound; without a verdict it is undecided."""
    found = [outcome.value for outcome in outcomes]
    _end(fail_on, falsified="falsified" in found, undecided=not found or "cannot tell" in found)


def _end(fail_on: Sequence[str], **holds: bool) -> None:
    status = max((STATUS[condition] for condition in fail_on if holds.get(condition)), default=0)
    if status:
        sys.exit(status)
