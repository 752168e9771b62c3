"""The list of published statements that can be evaluated by name.

A theorem is a function with conditions: inside them it returns a number whose relation to the
truth (a bound and its direction, an identity, a limit) is part of the statement; outside them it
says nothing. That relation stands in `statements/`, one file for each source; `theorem` gives it its
function and the domain of every parameter, so that a reader, a report or the command line can ask
for one statement by name and read off what the number means:

>>> from calipers.theorems import evaluate
>>> result = evaluate("chua-prop-3.1", epsilon=4.0, noise_multiplier=0.4)
>>> result.direction.value, round(result.value, 4)
('exact value', 0.2438)

Parameters are checked against their domains whenever the function is called, by name or directly.

`parameters.toml` has the parameters that theorems take, each with its domain and one line of help, and a statement has
what differs for its own (`takes`) and what it fixes (`at`). One name per thing: `rounds` is the number of batches in
one epoch (T or M in the papers), `steps` the number of batches of a whole run."""

from __future__ import annotations

import enum
import functools
import inspect
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from calipers.citations import Statement, implements, statement
from calipers.domains import Domain, looked_up
from calipers.errors import CalipersError, CertificationError, ConditionError, InputError

F = TypeVar("F", bound=Callable[..., object])
Number = float | int | bool


class Relation(enum.Enum):
    """How the returned value relates to the quantity the statement is about."""

    UPPER_BOUND = "upper bound"
    LOWER_BOUND = "lower bound"
    EXACT = "exact value"
    ASYMPTOTIC = "asymptotic value, not a bound"
    CONDITION = "threshold of a condition"


@dataclass(frozen=True)
class Parameter:
    """One argument of a theorem: where it may lie, what it is, and its default if it has one."""

    name: str
    domain: Domain
    help: str
    default: Number | None = None

    def __str__(self) -> str:
        tail = "" if self.default is None else f" (default {self.default})"
        return f"{self.name} in {self.domain}: {self.help}{tail}"


@dataclass(frozen=True)
class Theorem:
    """A published statement and the function that evaluates it.

    `reads` is the relation in one line, in which the returned number is called as it is printed: "value" where there is
    one, else by its name. `at` has what the function also takes and the statement fixes: several are one function, each
    at a place of its own.
    """

    name: str
    function: Callable[..., object]
    parameters: tuple[Parameter, ...]
    statement: str
    direction: Relation
    reads: str
    note: str = ""
    at: Mapping[str, Number] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}: {self.reads} [{self.direction.value}; {statement(self.statement)}]"


@dataclass(frozen=True)
class TheoremValue:
    """What evaluating a theorem gives: named values, and how to read the first of them."""

    values: Mapping[str, Number]
    direction: Relation
    statement: Statement
    reads: str
    note: str

    @property
    def value(self) -> float:
        """The number the statement is about (the first of `values`)."""
        return float(next(iter(self.values.values())))


THEOREMS: dict[str, Theorem] = {}


def _stated() -> tuple[dict[str, tuple[dict[str, Any], dict[str, Any]]], dict[str, str]]:
    """What `statements/` says of every theorem (what it takes; `statement`, `direction`, `reads` ...) and condition."""
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    conditions: dict[str, str] = {}
    for path in sorted(Path(__file__).with_name("statements").glob("*.toml")):
        source = tomllib.loads(path.read_text("utf-8"))
        conditions |= source.get("conditions", {})
        for name, entry in source["theorems"].items():
            shared = source["notes"][entry.pop("shared")] if "shared" in entry else ""
            entry["note"] = " ".join(filter(None, (shared, entry.get("note"))))
            found[name] = entry.pop("takes", {}), entry | {"direction": Relation(entry["direction"])}
    return found, conditions


def _interval(text: str) -> Domain:
    """The domain that is written as an interval, "whole" before that of integers."""
    ends = text.removeprefix("whole ")
    low, high = (float(end) for end in ends[1:-1].split(","))
    return Domain(low, high, ends[0] == "(", ends[-1] == ")", integer=ends != text)


def _parameters(
    entries: Mapping[str, str | list[str]], known: Mapping[str, tuple[Domain, str]]
) -> dict[str, tuple[Domain, str]]:
    """Domain and help of every parameter; where no help is given, that of the `known` one of its name."""
    both = {key: [entry, known[key][1]] if isinstance(entry, str) else entry for key, entry in entries.items()}
    return {key: (_interval(domain), text) for key, (domain, text) in both.items()}


_STATED, CONDITIONS = _stated()
DESCRIBED = _parameters(tomllib.loads(Path(__file__).with_name("parameters.toml").read_text("utf-8")), {})
"""What a parameter of this name is, unless its theorem says otherwise."""


def theorem(name: str) -> Callable[[F], F]:
    """Register the decorated function under `name`, and as an implementation of its statement.

    The function is called with what its parameters' domains make of the arguments, or not at all. Defaults are read
    from the signature. A name used twice, or a parameter that nobody describes, raises `InputError` at import.
    """
    takes, stated = _STATED[name]

    def register(function: F) -> F:
        signature, fixed = inspect.signature(function), stated.get("at", {})
        known = {key: DESCRIBED[key] for key in signature.parameters if key in DESCRIBED}
        known |= _parameters(takes, DESCRIBED)
        if set(signature.parameters) != {*known, *fixed}:
            raise InputError(f"Theorem {name!r} describes {sorted(known)} but takes {sorted(signature.parameters)}.")
        if name in THEOREMS:
            raise InputError(f"Theorem {name!r} is registered twice.")

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> object:
            given = signature.bind(*args, **kwargs).arguments
            return function(**{k: known[k][0].check(k, value) if k in known else value for k, value in given.items()})

        parameters = tuple(
            Parameter(key, *known[key], None if taken.default is inspect.Parameter.empty else taken.default)
            for key, taken in signature.parameters.items()
            if key not in fixed
        )
        THEOREMS[name] = Theorem(name, checked, parameters, **stated)
        return cast(F, implements(stated["statement"])(checked))

    return register


def unmet(condition: str, /, **values: object) -> ConditionError:
    """The refusal where a condition does not hold, in the words of its source's file."""
    return ConditionError(CONDITIONS[condition].format(**values))


def find(name: str) -> Theorem:
    """The theorem of that name, or `InputError` with the names most like it."""
    return looked_up("theorem", name, THEOREMS, "calipers theorem --list")


def evaluate(name: str, **params: object) -> TheoremValue:
    """Evaluate one statement.

    Raises `InputError` for a name, a parameter or a value that does not exist or lies outside its
    domain, `ConditionError` where the statement's own conditions fail, and `CertificationError` where its
    numbers leave the range of double precision. The returned `value`
    stands in the relation `reads` to the truth.
    """
    entry = find(name)
    known = {parameter.name: parameter for parameter in entry.parameters}
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise InputError(
            f"{name} has no parameter {', '.join(unknown)}. It takes: {'; '.join(map(str, known.values()))}."
        )
    missing = [one for one in entry.parameters if one.default is None and one.name not in params]
    if missing:
        raise InputError(f"{name} also needs: {'; '.join(map(str, missing))}.")
    values = _computed(entry, params)
    return TheoremValue(values, entry.direction, statement(entry.statement), entry.reads, entry.note)


def _computed(entry: Theorem, params: dict[str, object]) -> dict[str, Number]:
    """The values of a statement, or `CertificationError` where numbers leave the range of double precision."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            values = _named(entry.function(**params, **entry.at))
    except CalipersError:
        raise
    except (ArithmeticError, ValueError) as error:
        raise CertificationError(_beyond(entry, params, f"{error}".rstrip("."))) from error
    for key, value in values.items():
        if not math.isfinite(value):
            raise CertificationError(_beyond(entry, params, f"{key} would be {value}"))
    return values


def _beyond(entry: Theorem, params: dict[str, object], why: str) -> str:
    given = ", ".join(f"{key}={value}" for key, value in params.items())
    return f"{entry.name} cannot be evaluated in double precision at {given} ({why}); choose less extreme parameters."


def _named(result: object) -> dict[str, Number]:
    """The fields of a result that has several, or the single number under the name 'value'."""
    if isinstance(result, tuple) and hasattr(result, "_asdict"):
        return dict(result._asdict())
    if isinstance(result, (bool, int, float)):
        return {"value": result}
    raise InputError(f"A theorem must return a number or a named tuple of numbers, not {type(result).__name__}.")
