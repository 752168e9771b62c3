"""What is audited: something that can be run again and again, with and without one record.

The game of differential privacy has one secret bit. A **target** is the challenger: asked for `count` runs with the
bit set (the record is present) or not (it is absent), it returns what an adversary would see. Two things make the
statistics behind an audit true, and the target must keep both:

- the runs of one call are independent of each other, and of the runs of every other call;
- all randomness comes from the generator it is handed (or is seeded from it), so that a run can be repeated.

What can be seen of a breach is refused: see `calipers.auditing.game`.

A target of your own is a function of one run; `FunctionTarget` turns it into this interface:

    def target(present, rng):
        records = everybody + [me] if present else everybody
        return train(records, seed=int(rng.integers(2**63)))

"""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from calipers.errors import CalipersError
from calipers.numerics.types import FloatArray

OneRun = Callable[[bool, np.random.Generator], ArrayLike]


class TargetError(CalipersError, RuntimeError):
    """A target (or the distinguisher that reads it) failed in one chunk of the game.

    `chunk` and `seed` are set by the game; together they repeat the failure. The target's own traceback is attached
    as a note.
    """

    chunk: int | None = None
    seed: int | None = None


@runtime_checkable
class Target(Protocol):
    """The challenger of the privacy game."""

    @property
    def name(self) -> str:
        """A short name for reports."""

    def identity(self) -> dict[str, object]:
        """Everything that changes the distribution of the outputs, as JSON; a ledger belongs to one identity."""

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """What the adversary sees in `count` independent runs: shape (count, features) or (count, rounds, features)."""


class FunctionTarget:
    """A function of one run, `function(present, rng) -> array`, as a target.

    Run number i of a call gets a generator of its own, the i-th child of the one handed in, so that a single failing
    run can be repeated alone. Scalars and arrays of any shape are read as one row of features.
    """

    chunk = 20

    def __init__(self, function: OneRun, name: str | None = None) -> None:
        self.function = function
        self.name = name if name is not None else described(function)

    def identity(self) -> dict[str, object]:
        """The name, and the digest of the file the function is written in."""
        return {"target": "function", "name": self.name, "source": source_digest(self.function)}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """One row for each run.

        Raises `TargetError` when a run fails, when rows differ in length, or when all runs agree although none of
        them drew from its generator: such runs are one run, written down many times.
        """
        rows: list[FloatArray] = []
        drew = False
        for number, child in enumerate(rng.spawn(count)):
            before = footprint(child)
            row = self._one(present, child, number)
            if rows and row.size != rows[0].size:
                raise TargetError(
                    f"{self.name} returned {rows[0].size} numbers in run 0 and {row.size} in run {number}; return "
                    "arrays of one shape."
                )
            drew = drew or footprint(child) != before
            rows.append(row)
        found = np.stack(rows)
        refuse_same(found, drew, f"{self.name} gave the same output in all {count} runs")
        return found

    def _one(self, present: bool, rng: np.random.Generator, number: int) -> FloatArray:
        try:
            returned = self.function(present, rng)
        except Exception as error:
            raise TargetError(
                f"{self.name} raised {type(error).__name__}: {error} in run {number}, record "
                f"{'present' if present else 'absent'}."
            ) from error
        if returned is None:
            raise TargetError(f"{self.name} returned nothing in run {number}; return what the adversary sees.")
        try:
            row = np.asarray(returned, dtype=np.float64).ravel()
        except (TypeError, ValueError) as error:
            raise TargetError(
                f"{self.name} returned {type(returned).__name__} in run {number}, which is no array of numbers; "
                "return what the adversary sees as an array."
            ) from error
        if row.size == 0:
            raise TargetError(f"{self.name} returned an empty array in run {number}; return what the adversary sees.")
        return row


def refuse_same(outputs: FloatArray, drew: bool, said: str) -> None:
    """Refuse runs that all agree although none of them `drew` a random number: one run, written down many times."""
    if not drew and len(outputs) > 1 and bool((outputs == outputs[:1]).all()):
        raise TargetError(f"{said} and never drew from rng; take all randomness from rng")


def failure(name: str, error: str | Exception, where: str, chunk: int, seed: int) -> TargetError:
    """What went wrong with the target called `name`, and where: in a chunk of a game, or of its pilot."""
    said = str(error) if isinstance(error, str | CalipersError) else f"{type(error).__name__}: {error}"
    named = said if said.startswith(name) else f"{name}: {said}"
    found = TargetError(f"{named.rstrip('.')}. ({where})")
    found.chunk, found.seed = chunk, seed
    return found


def footprint(rng: np.random.Generator) -> object:
    """A value that changes when the generator is drawn from, or has children."""
    seeds = rng.bit_generator.seed_seq
    return repr(rng.bit_generator.state), getattr(seeds, "n_children_spawned", 0)


def described(function: Callable[..., object]) -> str:
    """The function's address, "module:name"."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{getattr(function, '__module__', '?')}:{name}"


def source_digest(function: Callable[..., object]) -> str | None:
    """SHA-256 of the file the function is written in, or None where there is no such file."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        path = inspect.getsourcefile(type(function)) if type(function).__module__ != "builtins" else None
    if path is None or not Path(path).is_file():
        return None
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


T = TypeVar("T")


def within(limit: float | None, call: Callable[[], T]) -> T:
    """The result of the call, or `TargetError` after `limit` seconds; None is no limit.

    The call gets a thread of its own, which works in any process and on any cluster. A thread cannot be stopped, so a
    target that hangs goes on hanging until its process ends.
    """
    if limit is None:
        return call()
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True, name="calipers-chunk").start()
    if not wait([found], limit).done:
        raise TargetError(f"did not finish the chunk within {limit:g} seconds")
    return found.result()
