"""What an item of a paper is, and how a computed number is compared with a printed one.

A printed number is not a number but an interval: "1.57" stands for everything that rounds to it, [1.565, 1.575], and
"< 0.01" for everything below. Ours is an interval too, the bracket. So a comparison has three outcomes:

    AGREES     every value of our bracket is consistent with the print,
    DIFFERS    none is,
    UNDECIDED  some are: the bracket is wider than the question,

and a fourth, NOT PRINTED, where the paper shows a curve or a bar without its number.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeVar

from calipers.bracket import Bracket
from calipers.errors import InputError
from calipers.pld.composition.direction import BoundsWithTest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ItemProgress = Callable[[int, int], None]
"""Called with (done, total) while an item is computed."""

Basis = Literal["bracket", "closed form", "exact check", "estimate"]
"""bracket: certified from both sides. closed form: exact up to rounding. exact check: decided without tolerance.
estimate: over a grid, or by a route that bounds only one side; the row's note says which."""

Cell = float | int | str
NumberPair = tuple[float, float]
T = TypeVar("T")


Value = float | NumberPair | Bracket | BoundsWithTest
"""What is known of a quantity: exactly, or from both sides."""


def bounds_of(value: Value) -> NumberPair:
    """Both sides of a value."""
    if isinstance(value, tuple):
        return value
    return (value, value) if isinstance(value, float | int) else (value.lower, value.upper)


_RELATIONS = re.compile(r"^(<=|>=|<|>)\s*(.+)$")


class Agreement(enum.Enum):
    """How our bracket and the printed number stand to each other."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNDECIDED = "undecided"
    NOT_PRINTED = "not printed"


@dataclass(frozen=True)
class Published:
    """What the paper prints, and the interval of values consistent with it; `value` is None for relations and words."""

    text: str
    low: float
    high: float
    value: float | None = None


def printed(text: str) -> Published:
    """The interval of numbers that a paper would print as `text`: "1.57", "0.001", "< 0.01", ">= 2".

    Post-condition: low <= x <= high for every x that rounds to a plain number at its last digit.
    """
    relation = _RELATIONS.match(text)
    if relation is not None:
        bound = float(relation[2])
        return Published(text, -math.inf, bound) if relation[1][0] == "<" else Published(text, bound, math.inf)
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise InputError(f"Expected a printed number, got {text!r}.")
    half = Decimal(5).scaleb(exponent - 1)
    return Published(text, float(number - half), float(number + half), float(number))


@dataclass(frozen=True)
class Row:
    """One quantity: what is printed, what we get, and how the two compare."""

    quantity: str
    published: Published | None
    lower: float
    upper: float
    basis: Basis = "bracket"
    note: str = ""

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise InputError(f"Expected lower <= upper in {self.quantity!r}, got {self.lower!r} and {self.upper!r}.")

    @classmethod
    def of(
        cls, quantity: str, published: str | Published | None, value: Value, basis: Basis = "bracket", note: str = ""
    ) -> Row:
        """A row from what is printed (nothing, if the text is empty) and a number, a pair or a bracket."""
        if isinstance(published, str):
            published = printed(published) if published else None
        return cls(quantity, published, *bounds_of(value), basis, note)

    @property
    def difference(self) -> float | None:
        """The middle of our bracket less the printed number; None where one of them is not a number."""
        value = self.published.value if self.published is not None else None
        if value is None or not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            return None
        return 0.5 * (self.lower + self.upper) - value

    @property
    def verdict(self) -> Agreement:
        """See the module docstring."""
        if self.published is None:
            return Agreement.NOT_PRINTED
        if self.published.low <= self.lower and self.upper <= self.published.high:
            return Agreement.AGREES
        if self.upper < self.published.low or self.published.high < self.lower:
            return Agreement.DIFFERS
        return Agreement.UNDECIDED


@dataclass(frozen=True)
class Data:
    """Numbers that a figure shows or a table lists beyond its rows: one CSV file."""

    name: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Picture:
    """One figure: `draw` fills an empty matplotlib Figure of the given size in inches."""

    draw: Callable[[Figure], None]
    size: tuple[float, float] = (6.4, 4.8)


@dataclass(frozen=True)
class Views:
    """The views of what computing an item finds, before anything is written."""

    rows: Sequence[Row]
    remarks: tuple[str, ...] = ()
    data: Sequence[Data] = ()
    picture: Picture | None = None


@dataclass(frozen=True)
class Item:
    """One table, figure or quoted number of a paper, and how to compute it again."""

    name: str
    source: str
    title: str
    place: str
    reproduces: str
    compute: Callable[[ItemProgress], Views] = field(repr=False)
    cost: Literal["quick", "slow"] = "quick"


def watched(things: Iterable[T], progress: ItemProgress) -> Iterator[T]:
    """The things one by one; each is reported when the next one is asked for."""
    known = list(things)
    for done, thing in enumerate(known, start=1):
        yield thing
        progress(done, len(known))
