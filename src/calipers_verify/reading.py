"""Reading a file that nobody vouches for.

A certificate is JSON made of objects, lists, strings and whole numbers. There are no floating-point numbers in it:
rationals are strings such as "11/10". What may stand where is a table of *shapes* (`calipers_verify.checker`), and
`read` either returns a value of the shape asked for or raises `Refused` with a reason; nothing in a file is ever
executed, and nothing grows beyond what the limits allow.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

MOST_BYTES = 8_000_000
MOST_DIGITS = 100
MOST_EFFORT = 100_000_000
_RATIONAL = re.compile(r"-?[0-9]{1,60}(/[0-9]{1,60})?", re.ASCII)


class Refused(Exception):
    """The certificate proves nothing: the reason is the message."""


class Effort:
    """Counts work, so that no file can keep the checker busy forever."""

    def __init__(self, most: int = MOST_EFFORT) -> None:
        self.left = most

    def spend(self, amount: int) -> None:
        """Take `amount` from what is left, or refuse."""
        self.left -= amount
        if self.left < 0:
            raise Refused(f"checking it would take more than the {MOST_EFFORT} operations this checker spends")


class Whole(NamedTuple):
    """A whole number from `low` to `high`."""

    low: int
    high: int


class Rational(NamedTuple):
    """A string such as "11/10", an exact number up to `high`, and positive or at least `low`."""

    high: Fraction | int
    low: Fraction | int = Fraction(1, 10**60)


class Items(NamedTuple):
    """A list of `least` to `most` values of one shape."""

    each: Any
    least: int
    most: int


class Or(NamedTuple):
    """One certain word, or null, or else a value of the shape."""

    word: str | None
    shape: Any


class Chosen(NamedTuple):
    """An object whose entry `key` says which of the shapes it has."""

    key: str
    shapes: dict[str, Any]


def read(value: Any, shape: Any, where: str) -> Any:
    """`value`, if it has the shape: one of those above, a tuple of words, or an object with exactly the keys of a dict.

    Lists become tuples and rationals fractions.
    """
    match shape:
        case dict():
            if isinstance(value, dict) and value.keys() == shape.keys():
                return {key: read(value[key], shape[key], key) for key in shape}
            raise Refused(f"{where} should be an object with exactly the keys {', '.join(sorted(shape))}")
        case Chosen(key, shapes):
            word = read(value.get(key) if isinstance(value, dict) else None, tuple(shapes), key)
            return read(value, {key: (word,), **shapes[word]}, f"{where} with {key} {word}")
        case Or(word, inner):
            return value if value == word else read(value, inner, where)
        case Items(each, least, most):
            if not isinstance(value, list) or not least <= len(value) <= most:
                raise Refused(f"{where} should be a list of {least} to {most} entries")
            return tuple(read(entry, each, where) for entry in value)
        case Whole(low, high):
            if type(value) is not int or not low <= value <= high:
                raise Refused(f"{where} should be a whole number from {low} to {high}")
            return value
        case Rational(high, low):
            if not isinstance(value, str) or not _RATIONAL.fullmatch(value) or re.search("/0+$", value):
                raise Refused(f"{where} should be a string such as 11/10")
            if not low <= Fraction(value) <= high:
                raise Refused(f"{where} should lie between {low} and {high}")
            return Fraction(value)
    if not isinstance(value, str) or value not in shape:
        raise Refused(f"{where} should be one of {', '.join(shape)}")
    return value


def loaded(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, as many as are ever read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Refused(f"it cannot be read ({error.strerror or error})") from error


def parsed(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`: no duplicate keys, no floats, no NaN, no huge numbers, no deep nesting."""
    if len(data) > MOST_BYTES:
        raise Refused(f"the file has more than {MOST_BYTES} bytes")
    try:
        record = json.loads(
            data.decode("utf-8"),
            parse_float=_no_float,
            parse_constant=_no_float,
            parse_int=_short_int,
            object_pairs_hook=_distinct,
        )
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"it is not JSON that this checker reads ({type(error).__name__})") from error
    if not isinstance(record, dict):
        raise Refused("it is not a JSON object")
    return record


def digest(record: dict[str, Any]) -> str:
    """SHA-256 of everything but the digest itself, written in one fixed way.

    It shows damage, not authorship: whoever alters a file on purpose can compute it anew, and has to pass all other
    checks.
    """
    content = {key: value for key, value in record.items() if key != "digest"}
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused("it holds something that is not JSON") from error
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _no_float(text: str) -> NoReturn:
    raise Refused(f"it holds the floating-point number {text[:20]}")


def _short_int(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise Refused(f"it holds a number of {len(text)} digits")
    return int(text)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused("an object in it names a key twice")
    return found
