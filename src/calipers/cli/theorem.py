"""`calipers theorem`: one published statement, evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from calipers.cli.kinds import one_of, option
from calipers.cli.options import json_option
from calipers.display import as_record
from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.theorems.registry import Theorem, TheoremValue

DIGITS = 10


def _names() -> list[str]:
    from calipers.theorems.registry import THEOREMS

    return sorted(THEOREMS)


@click.command(
    "theorem", short_help="Evaluate one published statement.", context_settings={"ignore_unknown_options": True}
)
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="NAME [--PARAM VALUE]...",
    shell_complete=one_of(_names),
)
@option("--list", bool, "List the statements.", called="list_names")
@option("--explain", bool, "Say what the statement NAME is about and which parameters it takes.")
@json_option
def theorem_command(words: tuple[str, ...], list_names: bool, explain: bool, as_json: bool) -> None:
    """Evaluate one published statement and say what the number means.

    \b
    Examples:
      calipers theorem --list
      calipers theorem chua-prop-3.1 --explain
      calipers theorem chua-prop-3.1 --epsilon 4 --noise-multiplier 0.4
    """
    from calipers.theorems.registry import THEOREMS, evaluate, find

    if list_names:
        if words:
            raise InputError(f"--list and {words[0]} contradict each other; give one of them.")
        width = max(map(len, THEOREMS))
        click.echo("\n".join(f"{name:<{width}}  {THEOREMS[name].reads}" for name in sorted(THEOREMS)))
        return
    if not words or words[0].startswith("-"):
        raise InputError("Name the statement first; `calipers theorem --list` shows the names.")
    name, given = words[0], parameters(words[1:])
    if explain:
        if given:
            raise InputError("--explain takes no parameters; leave them out, or leave out --explain.")
        click.echo(_explained(find(name)))
        return
    result = evaluate(name, **given)
    click.echo(_as_json(name, result) if as_json else _as_text(result))


def parameters(words: Sequence[str]) -> dict[str, object]:
    """The pairs `--name value` or `--name=value`; numbers as numbers, everything else as it stands."""
    found: dict[str, object] = {}
    remaining = list(words)
    while remaining:
        option = remaining.pop(0)
        name, equals, value = option.removeprefix("--").partition("=")
        if not option.startswith("--") or not name:
            raise InputError(f"Expected --PARAM VALUE, got {option!r}.")
        if not equals:
            if not remaining:
                raise InputError(f"--{name} needs a value.")
            value = remaining.pop(0)
        key = name.replace("-", "_")
        if key in found:
            raise InputError(f"--{name} is given twice; give it once.")
        found[key] = _number(value)
    return found


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _explained(entry: Theorem) -> str:
    taken = (f"  --{p.name.replace('_', '-')}{str(p).removeprefix(p.name)}" for p in entry.parameters)
    lines = [str(entry), *([entry.note] if entry.note else []), "Parameters:", *taken]
    return "\n".join(lines)


def _as_json(name: str, result: TheoremValue) -> str:
    from calipers.reports.records import to_document

    about = {"source": str(result.statement), "note": result.note}
    return to_document({"theorem": name, **as_record(result, "statement", "note"), **about})


def _as_text(result: TheoremValue) -> str:
    """Every value rounded in its own direction: "lower" down, "upper" up, the first as the statement says."""
    from calipers.numerics.decimals import ceil_digits, floor_digits, nearest_digits
    from calipers.theorems.registry import Relation

    directed = {Relation.UPPER_BOUND: ceil_digits, Relation.LOWER_BOUND: floor_digits}
    rounding = directed.get(result.direction, nearest_digits)
    lines = []
    for name, value in result.values.items():
        own = {"lower": floor_digits, "upper": ceil_digits}.get(name, rounding)
        shown = str(value) if isinstance(value, bool | int) else own(value, DIGITS)
        lines.append(f"{name} = {shown}")
        rounding = nearest_digits
    lines += [f"{result.direction.value}: {result.reads}", str(result.statement)]
    return "\n".join([*lines, result.note] if result.note else lines)
