"""Side, Evidence and Bracket: how Calipers says a number.

A bracket holds a lower and an upper value of one quantity. The upper value is a proof that the
truth is no larger, the lower value an attack that shows the truth is no smaller; each carries
the evidence behind it. A bracket that would be empty is a bug and raises.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field

from calipers.citations import statement
from calipers.display import NotebookDisplay, as_record
from calipers.errors import CertificationError, InputError
from calipers.numerics.decimals import ceil_digits, directed, floor_digits

_FORMAT = re.compile(r"(?P<place>(?:.?[<>^])?[1-9]?[0-9]*)(?:\.(?P<digits>[0-9]{1,2})(?P<kind>[feg%]))?")


class Side(enum.Enum):
    """Which way an approximate object errs.

    UPPER: it dominates the truth (it leaks at least as much): its numbers bound leakage from above.
    LOWER: it is dominated by the truth: its numbers bound leakage from below.
    """

    UPPER = "upper"
    LOWER = "lower"

    def same(self, other: Side) -> Side:
        """This side, if both agree.

        Args:
            other: the side of what is to be combined with this.

        Returns:
            The common side.

        Raises:
            InputError: they differ; a mixture of both would bound nothing.
        """
        if self is not other:
            raise InputError(
                f"Cannot combine an {self.name} with a {other.name} privacy loss distribution: the result would "
                "bound nothing. Build all factors with the same Side."
            )
        return self


class Kind(enum.Enum):
    """What sort of evidence stands behind a value."""

    THEOREM = "theorem"
    TEST = "test"
    NUMERICAL = "numerical"
    CONJECTURE = "conjecture"
    STATISTICAL = "statistical"


@dataclass(frozen=True)
class Evidence:
    """Which theorem, attack or numerical route gave a value.

    `statement` is a sentence a reader can act on; `source` names the publication or derivation;
    `confidence` is set for statistical evidence only.
    """

    kind: Kind
    statement: str
    source: str
    confidence: float | None = None

    @classmethod
    def of(cls, kind: Kind, key: str, text: str | None = None) -> Evidence:
        """Evidence from a registered statement of `calipers.citations`.

        Args:
            kind: of evidence.
            key: of the statement.
            text: what is shown to hold; the statement's own words if left out.

        Returns:
            The evidence, with its source.
        """
        entry = statement(key)
        return cls(kind, text if text is not None else entry.says, str(entry))

    def to_dict(self) -> dict[str, object]:
        """The JSON object of the command-line contract."""
        return {name: value for name, value in as_record(self).items() if value is not None}


@dataclass(frozen=True)
class Bracket(NotebookDisplay):
    """lower <= truth <= upper, each end with its evidence."""

    lower: float
    upper: float
    # Sentences, which would bury the two numbers in what an interactive session echoes.
    lower_evidence: Evidence = field(repr=False)
    upper_evidence: Evidence = field(repr=False)

    def __post_init__(self) -> None:
        if math.isnan(self.lower) or math.isnan(self.upper):
            raise CertificationError(f"A bracket cannot hold NaN: [{self.lower}, {self.upper}].")
        if self.lower > self.upper:
            raise CertificationError(
                f"The lower bound {self.lower!r} exceeds the upper bound {self.upper!r}: one of the two bounds is "
                "wrong. Please report the run that produced this."
            )

    @property
    def width(self) -> float:
        """upper - lower (0 for two equal infinities)."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    @property
    def relative_width(self) -> float:
        """width / upper, and 0 for a bracket that is a single point."""
        return 0.0 if self.width == 0 else self.width / self.upper

    def to_dict(self) -> dict[str, object]:
        """Both ends and the evidence behind them, as JSON objects have it."""
        return as_record(self)

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper

    def __format__(self, spec: str) -> str:
        """Both ends in this format, rounded outward: f"{bracket:.2f}" has a lower end that is not above its own.

        Args:
            spec: as for a float, `.2f`, `.3e`, `.4g` or `.1%` with an alignment and a width before it, or these alone.

        Raises:
            ValueError: for another format.
        """
        found = _FORMAT.fullmatch(spec)
        if found is None:
            raise ValueError(f"Cannot format a bracket as {spec!r}; write '.2f', '.3e', '.4g' or '.1%', or a width.")
        text = str(self)
        if found["kind"]:
            digits, kind = int(found["digits"]), found["kind"]
            text = f"[{directed(self.lower, digits, kind, up=False)}, {directed(self.upper, digits, kind, up=True)}]"
        return format(text, found["place"] or "")

    def __str__(self) -> str:
        """The digits of every table, the lower end rounded down, the upper end up: it holds as printed."""
        return f"[{floor_digits(self.lower)}, {ceil_digits(self.upper)}]"
