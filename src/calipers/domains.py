"""Parameter domains as objects: they check, and they say what they accept.

`check` returns the value as a plain `float` or `int`, or raises `InputError` with name, domain,
value and remedy. NaN lies outside every domain; so do booleans and strings.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from calipers.errors import InputError
from calipers.synonyms import advice_on_value

T = TypeVar("T")


@dataclass(frozen=True)
class Domain:
    """An interval of real numbers, or of integers when `integer` is set."""

    low: float
    high: float
    low_open: bool = False
    high_open: bool = False
    integer: bool = False

    def __str__(self) -> str:
        """What follows "in": "(0, 1)", "the whole numbers from 1 to 10"."""
        if self.integer:
            first, last = ("" if math.isinf(end) else _end(end) for end in (self.low, self.high))
            return f"the whole numbers{f' from {first}' if first else ''}{f' to {last}' if last else ' on'}"
        left = "(" if self.low_open or math.isinf(self.low) else "["
        right = ")" if self.high_open or math.isinf(self.high) else "]"
        return f"{left}{_end(self.low)}, {_end(self.high)}{right}"

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer beyond double precision lies outside every domain
            return False
        above = number > self.low if self.low_open else number >= self.low
        below = number < self.high if self.high_open else number <= self.high
        return above and below and math.isfinite(number) and (not self.integer or number.is_integer())

    def check(self, name: str, value: object, remedy: str = "") -> float:
        """The value as a float (an int for integer domains), or `InputError`."""
        if value not in self:
            shown = repr(value) if isinstance(value, str) else _spelled(str(value))
            if isinstance(value, str):
                remedy = f"Write a number, without quotes. {remedy}".rstrip()
            raise InputError(f"Expected {name} in {self}, got {name}={shown}.{remedy and ' ' + remedy}")
        assert isinstance(value, numbers.Real)
        number = float(value)
        return int(number) if self.integer else number

    def check_int(self, name: str, value: object, remedy: str = "") -> int:
        """`check` for an integer domain, typed as one."""
        return int(self.check(name, value, remedy))


def _spelled(number: str) -> str:
    """1e-05 as it is spelled everywhere: 1e-5."""
    return re.sub(r"e([+-])0(?=\d)", r"e\1", number)


def _end(value: float) -> str:
    """An end of a domain: large whole numbers with all their digits, 9,007,199,254,740,992 and not 9.0072e+15."""
    return f"{int(value):,}" if math.isfinite(value) and 1e6 <= abs(value) < 1e17 else _spelled(f"{value:g}")


POSITIVE = Domain(0.0, math.inf, low_open=True)
NON_NEGATIVE = Domain(0.0, math.inf)
REAL = Domain(-math.inf, math.inf)
PROBABILITY = Domain(0.0, 1.0)
POSITIVE_PROBABILITY = Domain(0.0, 1.0, low_open=True)
BELOW_ONE = Domain(0.0, 1.0, high_open=True)
OPEN_UNIT = Domain(0.0, 1.0, low_open=True, high_open=True)
RESOLVED = Domain(1e-300, 1.0, high_open=True)
"""Probabilities that an answer may be asked at: not far below, doubles have fewer digits and bounds would cross."""
TOLERANCE = Domain(1e-6, 1.0, high_open=True)
"""Relative widths that can be asked for: lattices that would close a bracket further do not fit into memory."""
COUNT = Domain(1, math.inf, integer=True)
COUNT_FROM_ZERO = Domain(0, math.inf, integer=True)
SEED = Domain(0, 2**53, integer=True)
"""Whole numbers that double precision holds exactly, so that no seed is silently another one."""


def choice(name: str, value: object, allowed: tuple[str, ...], remedy: str = "") -> str:
    """The value if it is one of `allowed`, or `InputError` that lists them."""
    if not isinstance(value, str) or value not in allowed:
        shown = repr(value) if isinstance(value, str) else value
        listed = ", ".join(repr(a) for a in allowed)
        remedy = advice_on_value(name, value) or remedy
        raise InputError(f"Expected {name} to be one of {listed}, got {name}={shown}.{remedy and ' ' + remedy}")
    return value


def looked_up(kind: str, name: str, known: Mapping[str, T], command: str) -> T:
    """What is known by this name, or `InputError` with the names most like it."""
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, n=3)
        remedy = f"did you mean {' or '.join(near)}?" if near else f"there are {len(known)}."
        raise InputError(f"No {kind} is called {name!r}; {remedy} `{command}` shows all names.")
    return known[name]
