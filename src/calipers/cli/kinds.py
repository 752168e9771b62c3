"""What an option takes: numbers as people write them, words in any case, files and names that a shell completes.

--steps 1e6      --dataset-size 60_000      --dataset-size 60,000      --sampler Shuffle
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from calipers.errors import InputError
from calipers.run_keys import quotient
from calipers.synonyms import adjacency_named, advice_on_value

_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
_POINTS = re.compile(r"[0-9]{1,3}\.000")
"""60.000: sixty, or sixty thousand where thousands are parted by points."""
_HINTS = [
    (re.compile(form), said)
    for form, said in (
        (r"[+-]?\d+,\d+", "write the decimal point as a point"),
        (r"[\d.e+-]+ *%", "write a percentage as a part of one, such as 0.1 for 10%"),
        (r"[\d.,_]+ *[kKmMgGbB]", "write it out, such as 60000 or 6e4 for 60k"),
        (r"[\d.]+ */ *[\d.]+", "write the quotient as a decimal number"),
        (r"[\d.]*[x*]?10(\^|\*\*)[+-]?\d+", "write a power of ten as 1e-5"),
    )
]
"""How to write what people write otherwise."""


if TYPE_CHECKING:
    Kind = click.ParamType[Any]
    Choice = click.Choice[str]
else:  # generic only in newer releases of click
    Kind, Choice = click.ParamType, click.Choice


class Real(Kind):
    """A number: 0.01, 1e-5, 60_000, 60,000. A comma is a thousands separator or a mistake, never a decimal point."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a refusal that says how to write it."""
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default, which is a number already
        text = self._plain(value, param, ctx)
        if _THOUSANDS.fullmatch(text):
            text = text.replace(",", "")
        try:
            return float(text)
        except ValueError:
            hint = next((f"; {said}" for form, said in _HINTS if form.fullmatch(text)), "")
            self.fail(f"{value!r} is not a number{hint}.", param, ctx)

    def _plain(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Python reads the digits of every script, and people misread those of others: 0 to 9 alone are taken."""
        text = value.strip()
        if not text.isascii():
            dashed = re.sub("[\u2010-\u2015\u2212]", "-", text).isascii()
            how = "the minus sign as -" if dashed else "it with the digits 0 to 9"
            self.fail(f"{value!r} is not a number; write {how}.", param, ctx)
        return text


class Rate(Real):
    """A number, or a fraction of whole numbers such as 1/235: the double nearest to it."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or the quotient."""
        found = quotient(value)
        return super().convert(value, param, ctx) if found is None else found


class Count(Real):
    """A whole number, which may be written 1e6, 60_000 or 60,000."""

    name = "whole number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The whole number, every digit of it, or a refusal."""
        if not isinstance(value, str):
            return value  # type: ignore[return-value]
        plain = self._plain(value, param, ctx)
        plain = plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain
        if _POINTS.fullmatch(plain):
            both = f"{plain.replace('.', '')}, or {plain.partition('.')[0]} without the point"
            self.fail(f"{value!r} may mean two numbers; write {both}.", param, ctx)
        try:
            return int(plain)
        except ValueError:
            number = super().convert(value, param, ctx)
        if not math.isfinite(number) or number != math.floor(number):
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return int(number)


class Word(Choice):
    """One of a few words, in any case; a refusal names the one that was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word, by another name that it has elsewhere too, or a refusal that lists them."""
        key = "" if param is None or param.name is None else param.name
        try:
            return super().convert(adjacency_named(value) if key == "adjacency" else value, param, ctx)
        except click.BadParameter as error:
            from difflib import get_close_matches

            if advice := advice_on_value(key, value):
                self.fail(f"{error.message.rstrip('.')}. {as_options(advice, key)}", param, ctx)
            meant = get_close_matches(str(value).lower(), [str(choice) for choice in self.choices], 1)
            if not meant:
                raise
            self.fail(f"{error.message.rstrip('.')}. Did you mean {meant[0]}?", param, ctx)


def as_options(advice: str, key: str) -> str:
    """A sentence about key='value' as the command line writes it."""
    return re.sub(rf"\b{key}='([^']+)'", rf"--{key.replace('_', '-')} \1", advice)


def word(words: Sequence[str]) -> Kind:
    """One of a few words, in any case."""
    return Word(list(words), case_sensitive=False)


COUNT, RATE, REAL = Count(), Rate(), Real()
GRADIENT_MODE = word(["hooks", "functorch", "ew", "ghost"])
"""How Opacus computes the gradients of single records."""
FILE = click.Path()
"""A file that need not exist; a shell completes it."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def one_of(names: Callable[[], Iterable[str]], *, files: bool = False) -> Complete:
    """Completion by names that are looked up when a shell asks; with `files`, by files as well."""

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names() if name.startswith(begun)]
        return [*found, CompletionItem(begun, type="file")] if files else found

    return complete


Command = Callable[..., Any]


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """All of these, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def option(name: str, kind: Any, said: str, *, called: str | None = None, **more: Any) -> Callable[[Command], Command]:
    """One option in a row: what it is called, what it takes (bool: nothing), what its help says; a default is shown."""
    flag = {"is_flag": True} if kind is bool else {"type": kind, "show_default": "default" in more}
    return click.option(*([name] if called is None else [name, called]), help=said, **(flag | more))


def refuse(why: str, **given: object) -> None:
    """Refuse the first of these options that was given."""
    for name, value in given.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} {why}")


def picked(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """The options that are called as the arguments they are for."""
    return {name: values[name] for name in names}
