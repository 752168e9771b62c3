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
import importlib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from calipers.errors import InputError
from calipers.numerics.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[int, int], None]
"""Called with (done, total) while an item is computed."""

Basis = Literal["bracket", "closed form", "exact check", "estimate"]
"""bracket: certified from both sides. closed form: exact up to rounding. exact check: decided without tolerance.
estimate: over a grid, or by a route that bounds only one side; the row's note says which."""

Cell = float | int | str
Interval = tuple[float, float]
Column = Sequence[Cell] | FloatArray
T = TypeVar("T")


class TwoSided(Protocol):
    """A bracket, or whatever else bounds a quantity from both sides."""

    @property
    def lower(self) -> float:
        """At most the quantity."""

    @property
    def upper(self) -> float:
        """At least the quantity."""


Value = float | Interval | TwoSided
"""What is known of a quantity: exactly, or from both sides."""


def jaws_of(value: Value) -> Interval:
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
        return cls(quantity, published, *jaws_of(value), basis, note)

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

    @classmethod
    def of_columns(cls, name: str, columns: Mapping[str, Column]) -> Data:
        """Columns of equal length, by name."""
        plain = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
        return cls(name, tuple(columns), list(zip(*plain, strict=True)))


class Table:
    """Runs or theorem values, one record each, all with the same cells: the CSV file, and what a picture draws.

    A cell that is known from both sides makes two columns, NAME_lower and NAME_upper.
    """

    def __init__(self, name: str = "values") -> None:
        self.name = name
        self.records: list[dict[str, Cell]] = []

    def add(self, **cells: Cell | Value) -> None:
        """One record."""
        record: dict[str, Cell] = {}
        for name, cell in cells.items():
            if isinstance(cell, float | int | str):
                record[name] = cell
            else:
                record[f"{name}_lower"], record[f"{name}_upper"] = jaws_of(cell)
        self.records.append(record)

    def column(self, name: str) -> list[Cell]:
        """One cell of every record."""
        return [record[name] for record in self.records]

    def where(self, **shared: Cell) -> list[dict[str, Cell]]:
        """The records that have these cells."""
        return [record for record in self.records if all(record[name] == cell for name, cell in shared.items())]

    @property
    def data(self) -> Data:
        """The CSV file."""
        return Data(self.name, tuple(self.records[0]), [list(record.values()) for record in self.records])


@dataclass(frozen=True)
class Picture:
    """One figure: `draw` fills an empty matplotlib Figure of the given size in inches."""

    draw: Callable[[Figure], None]
    size: tuple[float, float] = (6.4, 4.8)

    @classmethod
    def on_axes(cls, size: tuple[float, float], draw: Callable[..., object], *things: object, **words: str) -> Picture:
        """One pair of axes, filled by `draw(ax, *things, **words)`."""

        def fill(figure: Figure) -> None:
            draw(figure.subplots(), *things, **words)

        return cls(fill, size)


@dataclass(frozen=True)
class Outcome:
    """What computing an item gives, before anything is written. The item's remarks may name the `facts`."""

    rows: Sequence[Row]
    remarks: tuple[str, ...] = ()
    data: Sequence[Data] = ()
    picture: Picture | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One table, figure or quoted number of a paper, and how to compute it again."""

    name: str
    source: str
    title: str
    place: str
    reproduces: str
    compute: Callable[[Progress], Outcome] = field(repr=False)
    cost: Literal["quick", "slow"] = "quick"


def watched(things: Iterable[T], progress: Progress) -> Iterator[T]:
    """The things one by one; each is reported when the next one is asked for."""
    known = list(things)
    for done, thing in enumerate(known, start=1):
        yield thing
        progress(done, len(known))


def items_of(source: str) -> Iterator[Item]:
    """The items of the paper `source`, as `items.toml` beside its code describes them."""
    package = f"calipers.papers.{source}"
    text = resources.files(package).joinpath("items.toml").read_text("utf-8")
    for entry in tomllib.loads(text)["item"]:
        compute = partial(_computed, package, entry["compute"], entry.get("with", {}), tuple(entry.get("remarks", ())))
        about = entry["title"], entry["place"], entry["reproduces"]
        yield Item(f"{source}-{entry['name']}", source, *about, compute, "slow" if entry.get("slow") else "quick")


def _computed(
    package: str, place: str, arguments: Mapping[str, Any], remarks: tuple[str, ...], progress: Progress
) -> Outcome:
    module, function = place.split(".")
    found: Outcome = getattr(importlib.import_module(f"{package}.{module}"), function)(progress, **arguments)
    return replace(found, remarks=tuple(text.format(**found.facts) for text in remarks))
