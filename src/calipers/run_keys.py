"""Reading, completing and writing the keys of a run, before there is a `Run`."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from calipers.errors import InputError
from calipers.numerics.decimals import floor_digits, nearest_digits
from calipers.reading import RUN_FILE_BYTES, read_bounded
from calipers.synonyms import advice_on_key, key_named

T = TypeVar("T")

STANDARD_INPUT = "-"
# Exactly one of each pair is given; naming one of them anew drops the other.
ALTERNATIVES = (("batch_size", "sample_rate"), ("steps", "epochs"))
# 1/q and epochs * steps_per_epoch count as whole within this relative distance.
WHOLE = 1e-9
_MANY_POINTS, _MOST_POINTS = 100, 5_000
_FRACTION = re.compile(r" *([0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]{1,16}) */ *([0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]{1,16}) *")
_MOST_WHOLE = 2**53

OWN_KEYS = {
    "last_batch": ("shuffle", "deterministic"),
    "reshuffle": ("shuffle", "balls-and-bins"),
    "max_batch_size": ("truncated-poisson",),
    "cycle": ("cyclic-poisson",),
    "participations": ("random-allocation",),
    "derived_rate": ("poisson",),
}
"""The keys of a run that mean something to some samplers only: here, so that a help page can say to which."""
MEANT = {
    "last_batch": (
        "is about loaders that cut an order into batches",
        "leave it out, and give steps if an epoch takes ceil(N/B) of them",
    ),
    "reshuffle": ("says whether batches are drawn anew every epoch", "leave it out"),
    "max_batch_size": ("is the largest batch, beyond which records are dropped at random", "leave it out"),
    "cycle": ("is the number of groups of records that take turns", "leave it out"),
    "participations": ("is the number of steps in which every record takes part", "leave it out"),
    "derived_rate": (
        "is about a rate computed as batch_size / dataset_size",
        "leave it out where there is no such rate (a sample_rate that is given is a public number)",
    ),
}
"""What a key of some samplers says, and what to do about it elsewhere."""


def read_phases(
    path: str | os.PathLike[str],
    keys: Sequence[str],
    defaults: Mapping[str, object] | None = None,
    other_keys: Sequence[str] = (),
) -> list[dict[str, object]]:
    """The phases of a run file, each with what stands above them and, where nothing does, the defaults.

    `keys` are those of a run; those of `other_keys` are passed over.
    """
    record = read_toml(os.fspath(path))
    with naming(path):
        if "step" in record:
            raise InputError(
                "It describes an adaptive run (a menu of [[step]] tables). `calipers measure`, `calibrate` and "
                "`certify` read it; everything else is about runs that were fixed in advance."
            )
        for key in record:
            known(key, (*keys, "phase", "calipers", *other_keys))
        # [calipers] is the budget of `calipers check`, which reads it for itself; it says nothing about the run.
        described = {key: value for key, value in record.items() if key not in ("phase", "calipers", *other_keys)}
        shared = overridden(dict(defaults or {}), described)
        phases = record.get("phase", [{}])
        if not isinstance(phases, list) or not phases or not all(isinstance(phase, dict) for phase in phases):
            raise InputError("Expected phase to be an array of tables; write [[phase]] above each of them.")
        return [overridden(shared, phase) for phase in phases]


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Refusals begin with the name of the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{called(os.fspath(path))}: {error}") from error


def called(name: str) -> str:
    """A run file as a refusal calls it."""
    return "Standard input" if name == STANDARD_INPUT else name


def read_toml(name: str, what: str = "run file") -> dict[str, object]:
    """What a file holds ("-": standard input), or `InputError` naming it and saying what it should be."""
    import tomllib

    try:
        content = _piped() if name == STANDARD_INPUT else read_bounded(name, RUN_FILE_BYTES)
        # Some editors begin a file with a byte order mark; TOML has none.
        found = tomllib.loads(_plain(content.decode("utf-8-sig")))
    except OSError as error:
        if not name:
            raise InputError(f"The name of the {what} is empty; name one, or describe the run by options.") from error
        remedy = " Write - for its name to read standard input." if error.errno == errno.EINVAL else ""
        raise InputError(f"Cannot read the {what} {called(name)}: {error.strerror or error}.{remedy}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{called(name)} is not a text file in UTF-8; a {what} is TOML.") from error
    except (ValueError, RecursionError) as error:
        detail = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"{called(name)} is not valid TOML: {detail}.") from error
    if name == STANDARD_INPUT and not content.strip():
        raise InputError("Standard input is empty; pipe a run file into it.")
    return found


def _plain(text: str) -> str:
    """The text, unless it has names of thousands of parts: reading such a name takes time and memory by its square."""
    counts = (line.count(".") for line in text.splitlines())
    if sum(count for count in counts if count > _MANY_POINTS) > _MOST_POINTS:
        raise ValueError(f"its lines of more than {_MANY_POINTS} points have more than {_MOST_POINTS} in all")
    return text


_READ: list[tuple[object, bytes]] = []


def _piped() -> bytes:
    """All of standard input, which can be read only once, however often it is asked for."""
    if not _READ or _READ[0][0] is not sys.stdin:
        content = sys.stdin.buffer.read(RUN_FILE_BYTES + 1)
        if len(content) > RUN_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {RUN_FILE_BYTES:,} bytes")
        _READ[:] = [(sys.stdin, content)]
    return _READ[0][1]


def overridden(record: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """`record` with `changes`; a changed key drops the alternative it contradicts."""
    merged = dict(record)
    for pair in ALTERNATIVES:
        if any(changes.get(name) is not None for name in pair):
            for name in pair:
                merged.pop(name, None)
    return merged | dict(changes)


def known(key: object, allowed: tuple[str, ...]) -> None:
    """Refuse a key that is none of the allowed ones, with what is meant: by its other name, or the nearest of them."""
    if key in allowed:
        return
    import difflib

    meant, advice = key_named(str(key)), advice_on_key(str(key))
    if meant in allowed:
        raise InputError(f"Unknown key {str(key)!r}; did you mean {meant!r}?")
    if advice:
        raise InputError(f"Unknown key {str(key)!r}. {advice}")
    near = difflib.get_close_matches(str(key).replace("-", "_"), allowed, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(allowed)}."
    raise InputError(f"Unknown key {str(key)!r}; {remedy}")


def named_keys(described: type[T]) -> type[T]:
    """A dataclass that refuses a keyword it does not have as a run file does, with the key that is meant.

    Its objects have an attribute `named`, the keywords that were given.
    """
    keyed: Any = described
    built, keys = keyed.__init__, tuple(field.name for field in dataclasses.fields(keyed))

    @functools.wraps(built)
    def checked(self: T, *positional: Any, **given: Any) -> None:
        for key in given:
            known(key, keys)
        object.__setattr__(self, "named", frozenset(given))
        built(self, *positional, **given)

    keyed.__init__ = checked
    return described


def refuse_event(described: object) -> None:
    """Say how an event of dp_accounting is measured; it names no neighbors, so nobody should guess them."""
    if any(kind.__name__ == "DpEvent" for kind in type(described).__mro__):
        raise InputError(
            f"{type(described).__name__} is an event of dp_accounting, which does not say what neighbors differ by: "
            "measure it with calipers.adapters.dp_accounting.measurement_of(event, adjacency='add-remove')."
        )


def complete(given: Mapping[str, object]) -> None:
    """Refuse a description without noise, and name at once everything else that is missing."""
    if "noise_multiplier" in given:
        return
    missing = [" or ".join(pair) for pair in ALTERNATIVES if not any(name in given for name in pair)]
    raise InputError(f"A run needs {'; '.join(['noise_multiplier', *missing])}: add {'them' if missing else 'it'}.")


def exactly_one(run: object, first: str, second: str, meaning: str) -> None:
    """Refuse none and refuse both of two keys that say the same."""
    given = [name for name in (first, second) if getattr(run, name) is not None]
    if len(given) == 2:
        raise InputError(f"{first} and {second} contradict each other: both say {meaning}; give one of them.")
    if not given:
        raise InputError(f"Nothing says {meaning}; give {first} or {second}.")


def quotient(value: object) -> float | None:
    """The double nearest to a fraction written as text ("1/235", "256/60,000"), which is what a script divides to.

    Args:
        value: anything.

    Returns:
        The quotient of two whole numbers up to 2^53; None for whatever else it is.
    """
    found = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    above, below = (int(part.replace(",", "").replace("_", "")) for part in found.groups())
    return above / below if 0 < below <= _MOST_WHOLE and above <= _MOST_WHOLE else None


def whole(value: float) -> int | None:
    """The integer within a relative distance of `WHOLE` of a positive value, if there is one."""
    nearest = round(value)
    return nearest if nearest >= 1 and abs(value - nearest) <= WHOLE * nearest else None


def as_toml(table: Mapping[str, object]) -> str:
    """A table as TOML writes it, a line for each key."""
    quoted = {key: json.dumps(value) for key, value in table.items() if isinstance(value, str | bool)}
    return "".join(f"{key} = {quoted.get(key, repr(value))}\n" for key, value in table.items())


def rate_text(rate: float) -> str:
    """A rate; one with many digits as 1/M, or rounded down: what holds for it holds for that."""
    shown, turns = nearest_digits(rate), whole(1 / rate)
    if float(shown) == rate:
        return shown
    return f"1/{turns:,}" if turns and 1 / turns == rate else floor_digits(rate)
