"""What is measured when it is not a DP-SGD run: a guarantee that somebody states, a mechanism, an event.

`GuaranteeSubject` carries what reports say about it: one sentence, its keys, and who counts as neighbors. `Guarantee`
is one of the three forms in which guarantees are published,

    Guarantee(epsilon=8, delta=1e-5)      (epsilon, delta)-DP
    Guarantee(mu=1.2)                     Gaussian DP
    Guarantee(rho=0.5)                    zero-concentrated DP (rho-zCDP)
    Guarantee(epsilon=.1, delta=1e-6, times=20)   twenty releases, each with the guarantee, of the same data

and a file with the same keys, `[guarantee]` above them, is read by `load_guarantee`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from calipers.domains import COUNT, NON_NEGATIVE, POSITIVE, PROBABILITY, Domain, choice
from calipers.errors import InputError
from calipers.numerics.decimals import setting
from calipers.run_keys import as_toml, known, named_keys, read_toml
from calipers.synonyms import adjacency_named

NEIGHBORS = {
    "add-remove": "adding or removing",
    "zero-out": "zeroing out the gradients of",
    "substitute": "substituting",
}
ADJACENCIES = tuple(NEIGHBORS)
_EPSILON = Domain(0.0, 500.0)
_RHO = Domain(1e-8, 200.0)
_KEYS = ("epsilon", "delta", "mu", "rho", "times", "adjacency")


@dataclass(frozen=True)
class GuaranteeSubject:
    """What a measurement without a run is about."""

    words: str
    keys: tuple[tuple[str, object], ...]
    adjacency: str = "add-remove"
    table: str = "mechanism"
    view: str = "worst-case"
    assumed: tuple[str, ...] = ()
    """The keys that nobody named."""
    neighbors: str = ""
    """What they differ by, where that is not one record."""
    runs: tuple[Any, ...] = ()
    """The phases (`Run`) of the run that is described, where there is one (the best of several is no run itself)."""

    @property
    def sentence(self) -> str:
        """The subject of a report, as one sentence."""
        if self.adjacency == "its own":
            return f"{self.words}; neighbors are those that its pairs are about."
        return f"{self.words}; neighbors differ by {self.differ}."

    @property
    def differ(self) -> str:
        """What neighbors differ by, where that is one of the relations."""
        return self.neighbors or f"{NEIGHBORS[self.adjacency]} one record"

    @property
    def is_described(self) -> bool:
        """Whether it was computed from a description, of runs or of correlated noise, and not stated by somebody."""
        return bool(self.runs) or self.table == "correlated"

    @property
    def noun(self) -> str:
        """What it is called, with its article."""
        return f"a {self.table}"

    @property
    def is_guarantee(self) -> bool:
        """Whether a guarantee is all that is known, nothing of its mechanism."""
        return self.table == "guarantee"

    def number(self, quantity: str) -> float | None:
        """What is stated of a quantity by its name, as a number of its own."""
        keys = dict(self.keys)
        value = keys.get(quantity) if self.is_guarantee and "times" not in keys else None
        return value if isinstance(value, float) else None

    @property
    def about_lower(self) -> str:
        """What the lower bounds are those of."""
        whose = "attacks on what is described" if self.is_described else "those of some mechanism for which it holds"
        return f"The lower bounds are {whose}."

    @property
    def about_claim(self) -> str:
        """What stands where reports compare with the standard accounting."""
        if self.is_described:
            return "Of this it says nothing: the claim is its own upper bound."
        return "Here no run is described: the claim is the upper bound of what is stated."

    @property
    def remedy(self) -> str:
        """What would lower the number, or say more."""
        return "A stated guarantee says nothing of its mechanism: describe the run, and measure that."

    def to_dict(self) -> dict[str, object]:
        """The keys, under the name of their table."""
        return {self.table: dict(self.keys) | {"adjacency": self.adjacency}}

    def to_toml(self) -> str:
        """The same as the text of a file."""
        ((table, keys),) = self.to_dict().items()
        assert isinstance(keys, dict)
        return f"[{table}]\n{as_toml(keys)}"


@named_keys
@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A guarantee as it is published: epsilon with delta, or mu, or rho; neighbors as it means them."""

    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None
    times: int = 1
    adjacency: str = "add-remove"
    named: ClassVar[frozenset[str]]
    """The keywords that were given."""

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "mu", "rho") if getattr(self, name) is not None]
        if len(given) != 1 or (self.delta is not None and given != ["epsilon"]):
            raise InputError(
                "A guarantee is stated by epsilon with delta, by mu, or by rho; got "
                f"{', '.join(n for n in _KEYS[:4] if getattr(self, n) is not None) or 'none of them'}."
            )
        self._keep("adjacency", adjacency_named(self.adjacency))
        choice("adjacency", self.adjacency, ADJACENCIES)
        self._keep("times", COUNT.check_int("times", self.times))
        if self.rho is not None and self.times > 1:
            raise InputError(
                f"zCDP adds up: {self.times} releases of {self.rho:g}-zCDP are one of {self.times * self.rho:g}-zCDP. "
                "State that, without a number of times."
            )
        if self.epsilon is not None:
            self._keep("epsilon", _EPSILON.check("epsilon", self.epsilon))
            delta = 0.0 if self.delta is None else PROBABILITY.check("delta", self.delta)
            if delta == 1.0 or (self.epsilon == 0.0 and delta == 0.0):
                raise InputError(
                    f"Expected a guarantee that says something, got epsilon={self.epsilon:g}, delta={delta:g}: "
                    f"{'everything' if delta else 'nothing but a constant'} meets it."
                )
            self._keep("delta", delta)
        elif self.mu is not None:
            self._keep("mu", POSITIVE.check("mu", self.mu))
        else:
            self._keep("rho", _RHO.check("rho", self.rho))

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def stated(self) -> GuaranteeSubject:
        """What reports say about it."""
        if self.mu is not None:
            words = f"A guarantee of {self.mu:.12g}-GDP"
        elif self.rho is not None:
            words = f"A guarantee of {self.rho:.12g}-zCDP"
        else:
            assert self.epsilon is not None  # one of the three is given
            words = f"A guarantee of ({setting(self.epsilon)}, {setting(self.delta or 0.0)})-DP"
        keys = tuple((name, getattr(self, name)) for name in _KEYS[:4] if getattr(self, name) is not None)
        if self.times > 1:
            words = f"{self.times} releases, each with {words[0].lower()}{words[1:]}"
            keys += (("times", self.times),)
        assumed = () if "adjacency" in self.named else ("adjacency",)
        return GuaranteeSubject(words, keys, self.adjacency, "guarantee", assumed=assumed)

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> Guarantee:
        """The guarantee a mapping states.

        Args:
            record: names and values of the fields.

        Returns:
            The guarantee.

        Raises:
            InputError: naming the key that is unknown or wrong.
        """
        for key in record:
            known(key, _KEYS)
        return cls(**record)  # type: ignore[arg-type]  # every value is checked by __post_init__

    @classmethod
    def parse(cls, text: str, adjacency: str | None = None, times: int = 1) -> Guarantee:
        """The guarantee that a text such as "8,1e-5" states.

        Args:
            text: EPS,DELTA, or EPS alone for delta = 0.
            adjacency: what neighbors it is about; None: add-remove, as an assumption.
            times: how often it is used.

        Returns:
            The guarantee.

        Raises:
            InputError: the text is something else.
        """
        parts = text.split(",")
        try:
            if not text.isascii() or len(parts) > 2:  # Python reads the digits of every script
                raise ValueError
            domains = zip(("epsilon", "delta"), (NON_NEGATIVE, PROBABILITY), parts, strict=False)
            numbers = [domain.check(name, float(part)) for name, domain, part in domains]
        except ValueError as error:
            form = "EPS,DELTA, an epsilon from 0 on and a delta up to 1, for example 8,1e-5"
            raise InputError(f"Expected a guarantee as {form}; got {text!r}.") from error
        delta = numbers[1] if len(numbers) == 2 else 0.0
        named: dict[str, Any] = {} if adjacency is None else {"adjacency": adjacency}
        return cls(epsilon=numbers[0], delta=delta, times=times, **named)


def load_guarantee(path: str | os.PathLike[str]) -> Guarantee | None:
    """The guarantee that a file states under [guarantee], or None where it describes something else."""
    name = os.fspath(path)
    record = read_toml(name)
    if "guarantee" not in record:
        return None
    table = record["guarantee"]
    try:
        if not isinstance(table, dict) or len(record) > 1:
            raise InputError("Expected a [guarantee] table and nothing else.")
        return Guarantee.from_dict(table)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
