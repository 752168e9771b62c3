"""Reading a file that nobody vouches for.

A certificate is JSON made of objects, lists, strings and whole numbers. There are no floating-point numbers in it:
others are strings such as "1.1" or "3/7", and exact. What may stand where is a table of *shapes*:

    range(1, 9)          a whole number from 1 to 8
    (low, high)          two fractions: the string of a number between them
    {"drop", "keep"}     one of these words
    200                  any string of at most 200 letters
    [shape, 1, 64]       a list of 1 to 64 values of the shape, read as a tuple
    (word, shape)        this word (or null), or else a value of the shape
    {"a": ..., "b": ...} an object with exactly these keys, read as the tuple of its values in this order
    Chosen(key, shapes)  an object whose entry `key` says which of the objects it is

`read` returns a value of the shape asked for or raises `Refused` with a reason; nothing in a file is ever executed, and
nothing grows beyond what the limits allow.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextvars import ContextVar
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

MOST_BYTES, MOST_EFFORT = 8_000_000, 40_000_000
"""An operation takes two or three microseconds, so that every verdict is there after about two minutes."""
_NUMBER = re.compile(r"-?\d{1,60}(\.\d{1,60})?([eE]-?\d{1,2})?|-?\d{1,60}/0*[1-9]\d{0,59}", re.ASCII)
_LEFT: ContextVar[int] = ContextVar("_LEFT", default=MOST_EFFORT)


class Refused(Exception):
    """The certificate proves nothing: the reason is the message."""


class Unproven(Refused):
    """It can be read and computed with, and falls short of its claim."""


class Chosen(NamedTuple):
    """An object whose entry `key` says which of the shapes it has besides."""

    key: str
    shapes: dict[str, dict[str, Any]]


def spend(amount: int, anew: bool = False) -> None:
    """Count work, so that no file can keep the checker busy forever: `Refused` where none is left."""
    left = (MOST_EFFORT if anew else _LEFT.get()) - amount
    if left < 0:
        raise Refused(f"checking it would take more than the {MOST_EFFORT} operations this checker spends")
    _LEFT.set(left)


def effort_left() -> int:
    """How much work may still be counted."""
    return _LEFT.get()


def read(value: Any, shape: Any, where: str) -> Any:
    """`value`, if it has the shape."""
    match shape:  # a range is a sequence, too, and may be too long for len(): it comes first, without a guard
        case range():
            if type(value) is int and value in shape:
                return value
        case Fraction() as low, Fraction() as high:
            if isinstance(value, str) and _NUMBER.fullmatch(value) and low <= Fraction(value) <= high:
                return Fraction(value)
        case set() if isinstance(value, str) and value in shape:
            return value
        case int() if isinstance(value, str) and len(value) <= shape:
            return value
        case Chosen(key, shapes):
            word = read(value.get(key) if isinstance(value, dict) else None, set(shapes), key)
            return read(value, {key: {word}, **shapes[word]}, f"{where} with {key} {word}")
        case None | str() as word, inner:
            return value if value == word else read(value, inner, where)
        case [each, int() as least, int() as most] if isinstance(value, list) and least <= len(value) <= most:
            return tuple([read(entry, each, where) for entry in value])
        case dict() if isinstance(value, dict) and value.keys() == shape.keys():
            return tuple([read(value[key], shape[key], key) for key in shape])
    raise Refused(f"{where} should be {expected(shape)}")


def expected(shape: Any) -> str:
    """A shape in words, outermost level only."""
    match shape:
        case range():
            return f"a whole number from {_brief(shape.start)} to {_brief(shape.stop - 1)}"
        case Fraction() as low, Fraction() as high:
            return f"the string of a number from {_brief(low)} to {_brief(high)}"
        case set():
            return f"one of {', '.join(sorted(shape))}"
        case int():
            return f"a string of at most {shape} letters"
        case dict():
            return f"an object with the keys {', '.join(shape)}"
    return f"a list of {shape[1]} to {shape[2]} entries"


def _brief(number: Fraction | int) -> str:
    exact = Fraction(number)
    short = abs(exact) < 10**20 and exact.denominator < 10**20
    return str(exact) if short else f"about {float(exact):.3g}"


def parsed(data: bytes) -> Any:
    """The JSON in `data`: no duplicate keys, no floats, no NaN, no huge numbers, no deep nesting."""
    if len(data) > MOST_BYTES or re.search(rb"\d{101}", data):
        raise Refused(f"the file has more than {MOST_BYTES} bytes, or a number of more than 100 digits")
    return json.loads(data, parse_float=_no_float, parse_constant=_no_float, object_pairs_hook=_distinct)


def digest(record: dict[str, Any]) -> str:
    """SHA-256 of everything but the digest itself, written in one fixed way.

    It shows damage, not authorship: whoever alters a file on purpose can compute it anew, and has to pass all other
    checks.
    """
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _no_float(text: str) -> NoReturn:
    raise Refused(f"it holds the floating-point number {text[:20]}")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise Refused("an object in it names a key twice")
    return dict(pairs)
