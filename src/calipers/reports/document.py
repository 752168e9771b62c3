"""The parts a report is made of, before anybody decides how they look.

A report is built once, from numbers that were computed below, and rendered as HTML, as Markdown, in a notebook or in a
terminal. What is decided here is decided for all of them: which way a number was rounded, which end of which bracket it
is, and what stands next to it.

    Document -> Section -> Prose | Notice | Items | Table | Figure | Quote | Code | AttachedText

A `Number` keeps the direction in which it is a bound and the double it was rounded from:

    "at least":  Decimal(text) <= exact,     "at most":  Decimal(text) >= exact,     "":  no bound, rounded to nearest.

Only what somebody stated is written as it was stated, whichever way its double was rounded.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from calipers.bracket import Bracket
from calipers.numerics.decimals import DIGITS, ceil_digits, claim_digits, end_digits, floor_digits, nearest_digits
from calipers.reports.chart import Chart, Intervals

AT_LEAST, AT_MOST, NEAREST = "at least", "at most", ""
# Marks that turn the direction of the text around them; shown as escapes, so that a name cannot rearrange a report.
_DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Number:
    """A number as printed, the double behind it, the direction in which it is a bound, and what to think of it."""

    text: str
    exact: float
    direction: str = NEAREST
    unit: str = ""
    mood: str = ""
    infinite: str = ""
    """How an infinite one is said, where the direction alone does not say it."""

    @property
    def shown(self) -> str:
        """As a page shows it: where a proof is infinite none is finite, where an attack is nothing finite holds."""
        if self.text != "inf":
            return self.text
        return self.infinite or ("infinite" if self.direction == AT_LEAST else "none proven")

    @property
    def with_unit(self) -> str:
        """The same with its unit."""
        return f"{self.shown} {self.unit}".rstrip()

    @property
    def spelled(self) -> str:
        """Every digit of the double, with its direction, for whoever needs them."""
        value = "infinite" if math.isinf(self.exact) else repr(self.exact)
        return f"{self.direction} {value}".strip()


@dataclass(frozen=True)
class Badge:
    """A word that says what to think of a row: "good", "bad", "open" or "plain"."""

    text: str
    mood: str = "plain"


@dataclass(frozen=True)
class Range:
    """Both bounds in one cell."""

    lower: Number
    upper: Number


Cell: TypeAlias = str | Number | Badge | Range


@dataclass(frozen=True)
class Prose:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Notice:
    """One paragraph that must not be overlooked."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under column names; the first cell of a row names it. `wide` tables hold sentences."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    wide: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, and are flush right."""
        return [any(isinstance(row[i], Number | Range) for row in self.rows) for i in range(len(self.columns))]


@dataclass(frozen=True)
class Figure:
    """A picture with the table that says the same in numbers."""

    picture: Chart | Intervals
    table: Table

    def within(self, prefix: str) -> Figure:
        """The figure under a name that no other on the page has."""
        return replace(self, picture=replace(self.picture, name=f"{prefix}-{self.picture.name}"))


@dataclass(frozen=True)
class Quote:
    """What somebody else is to copy, after a word that says so."""

    text: str
    label: str = ""


@dataclass(frozen=True)
class Code:
    """Text to be kept letter by letter."""

    text: str


@dataclass(frozen=True)
class AttachedText:
    """A text file that belongs to the report, by its place relative to it."""

    place: str
    text: str

    @property
    def sha256(self) -> str:
        """Of the file, byte by byte."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()


Block: TypeAlias = Prose | Notice | Items | Table | Figure | Quote | Code | AttachedText


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: tuple[Block, ...]
    detail: bool = False
    """Evidence: a terminal leaves it out unless asked for it."""


@dataclass(frozen=True)
class Document:
    """A whole report: the verdict in one sentence, a ruler and what to report, what it is about, the sections."""

    kind: str
    title: str
    subject: str = ""
    verdict: str = ""
    badges: tuple[Badge, ...] = ()
    opening: tuple[Block, ...] = ()
    sections: tuple[Section, ...] = ()
    model: str = ""
    """What the report is about, as its owner calls it."""
    bounds: str = (
        "The upper bound is a proof: no attacker within the scope that is named gets more. The lower bound is an "
        "attack: an explicit adversary gets this much."
    )
    """What the two bounds are, for the foot of a page."""
    origin: str = ""
    """Version, date, command and hash, set when the report is written."""

    def reworded(self, change: Callable[[str], str]) -> Document:
        """The same with other words for its notices and lists, which may name settings of the run."""

        def changed(block: Block) -> Block:
            if isinstance(block, Notice):
                return Notice(change(block.text))
            return Items(tuple(map(change, block.texts))) if isinstance(block, Items) else block

        sections = (replace(one, blocks=tuple(map(changed, one.blocks))) for one in self.sections)
        return replace(self, opening=tuple(map(changed, self.opening)), sections=tuple(sections))


def at_least(value: float, digits: int = DIGITS) -> Number:
    """A lower bound, rounded down."""
    return Number(floor_digits(value, digits), value, AT_LEAST)


def at_most(value: float, digits: int = DIGITS) -> Number:
    """An upper bound, rounded up."""
    return Number(ceil_digits(value, digits), value, AT_MOST)


def claimed(value: float) -> Number:
    """What somebody promised."""
    return Number(claim_digits(value), value)


def nearest(value: float, digits: int = DIGITS) -> Number:
    """A number that is no bound: a setting, a claim, an estimate."""
    return Number(nearest_digits(value, digits), value)


def ends(bracket: Bracket, stated: float | None = None) -> tuple[Number, Number]:
    """Both bounds as numbers, the lower one rounded down and the upper one up; what is stated, as it was stated."""
    lower, upper = end_digits(bracket.lower, bracket.upper, stated)
    nothing = "none is finite" if math.isinf(bracket.lower) else ""  # an attack shows it; no proof is missing
    return Number(lower, bracket.lower, AT_LEAST), Number(upper, bracket.upper, AT_MOST, infinite=nothing)


def words_of(cell: Cell, between: str = " to ") -> str:
    """A cell as text; both bounds with something between them."""
    if isinstance(cell, Range):
        return f"{cell.lower.with_unit}{between}{cell.upper.with_unit}"
    if isinstance(cell, Number):
        return cell.with_unit
    return cell.text if isinstance(cell, Badge) else cell


def visible(text: str) -> str:
    """The text with every character that does not show, or cannot be written in UTF-8, as an escape.

    Line breaks and tabs stay. Control characters are not allowed in HTML, and single surrogates (file names that are
    not UTF-8) in no encoding at all.
    """
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cs") or character in _DIRECTION_MARKS
    if not hidden or character in "\n\t":
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
