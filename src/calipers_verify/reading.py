"""Reading a file that nobody vouches for.

A certificate is JSON made of objects, lists, strings and whole numbers. There are no floating-point numbers in it:
rationals are strings such as "11/10". Everything here either returns a value of the kind asked for, within its
limits, or raises `Refused` with a reason; nothing in a file is ever executed, and nothing grows beyond what the
limits allow.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any, NoReturn

MOST_BYTES = 8_000_000
MOST_DIGITS = 100
MOST_EFFORT = 100_000_000
MOST_COUNT = 1 << 53
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


def fields(value: Any, names: Iterable[str], where: str) -> dict[str, Any]:
    """`value` as an object with exactly these keys."""
    if not isinstance(value, dict) or set(value) != set(names):
        raise Refused(f"{where} should be an object with exactly the keys {', '.join(sorted(names))}")
    return value


def items(value: Any, low: int, high: int, where: str) -> list[Any]:
    """`value` as a list of `low` to `high` entries."""
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise Refused(f"{where} should be a list of {low} to {high} entries")
    return value


def one_of(value: Any, allowed: Iterable[str], where: str) -> str:
    """`value`, one of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise Refused(f"{where} should be one of {', '.join(allowed)}")
    return value


def whole(value: Any, low: int, high: int, where: str) -> int:
    """`value` as a whole number between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(f"{where} should be a whole number from {low} to {high}")
    return value


def wholes(value: Any, count: int, low: int, high: int, where: str) -> list[int]:
    """`value` as a list of exactly `count` whole numbers."""
    return [whole(entry, low, high, where) for entry in items(value, count, count, where)]


def rational(value: Any, low: Fraction | int, high: Fraction | int, where: str) -> Fraction:
    """`value`, a string such as "11/10", as an exact number with low < number <= high."""
    if not isinstance(value, str) or not _RATIONAL.fullmatch(value):
        raise Refused(f"{where} should be a string such as 11/10")
    try:
        found = Fraction(value)
    except ZeroDivisionError as error:
        raise Refused(f"{where} divides by zero") from error
    if not low < found <= high:
        raise Refused(f"{where} should lie in ({low}, {high}]")
    return found


def increasing(numbers: list[Any], where: str) -> list[Any]:
    """The numbers, if each is larger than the one before."""
    if any(a >= b for a, b in pairwise(numbers)):
        raise Refused(f"{where} should increase")
    return numbers
