"""How far a training has come, and what it becomes if it goes on.

A guard needs two things from a training: a **position** (steps under Poisson sampling, passes where batches are
allocated), and the runs that bound everything up to a position from above. There are two ways to know them:

- a record of `calipers.adapters.opacus.attach`, which saw every draw and every step.
- `Declared`: a `Run` that somebody described, and a counter. Nobody checks that the loop does as it says; sampler, rate
  and sizes of its loader are compared with the description, at the beginning of every pass (`contradiction.py`).
"""

from __future__ import annotations

from typing import Any, Protocol

from calipers.errors import InputError
from calipers.run import Run
from calipers.samplers import scheme_of


class Progress(Protocol):
    """What a guard asks."""

    @property
    def terms(self) -> object:
        """An answer about positions ahead is void as soon as this changes."""

    def position(self, *, new_pass: bool = False, further: int = 1) -> int:
        """Where the last of `further` steps of one pass falls; `new_pass`: the loop is about to begin another."""

    def position_of(self, steps: int) -> int:
        """Where the last of so many steps in all falls, in a regular training."""

    def runs(self, position: int) -> tuple[Run, ...]:
        """Runs that bound everything up to there from above; an upper bound of them holds for what was executed."""

    def finished(self) -> tuple[Run, ...]:
        """The part on which attacks count."""


class Declared:
    """A run that is described; its own length is the plan, and the counter says how far it has come."""

    def __init__(self, run: Run) -> None:
        self._run, self._steps, self._passes = run, 0, 0
        self._by_steps = not scheme_of(run).whole_epochs
        self._length = 1 if self._by_steps else run.steps_per_epoch  # steps between two positions

    @property
    def terms(self) -> object:
        """A description does not change."""
        return self._run

    def counted(self, steps: int, passes: int) -> None:
        """The framework's own counters, which a checkpoint restores."""
        if not self._by_steps and steps > passes * self._run.steps_per_epoch:
            raise InputError(
                f"The run is described with {self._run.steps_per_epoch} steps per epoch, and {steps} were taken in "
                f"{passes} epochs; the description is not what is being executed."
            )
        self._steps, self._passes = steps, passes

    def position(self, *, new_pass: bool = False, further: int = 1) -> int:
        """The step, or the pass it falls in; a pass that is complete is followed by another."""
        if self._by_steps:
            return self._steps + further
        whole = self._steps >= self._passes * self._run.steps_per_epoch
        return self._passes + 1 if new_pass or whole else max(self._passes, 1)

    def position_of(self, steps: int) -> int:
        """Where the last of so many steps of a regular training falls."""
        return -(-steps // self._length)

    def runs(self, position: int) -> tuple[Run, ...]:
        """The run cut or prolonged to the position; a pass that was begun counts whole."""
        return (self._run.replace(steps=position * self._length),)

    def finished(self) -> tuple[Run, ...]:
        """All steps, or all passes but one that is under way; nothing where a pass before it was broken off."""
        whole, rest = divmod(self._steps, self._length)
        regular = whole and (self._by_steps or self._passes == whole + bool(rest))
        return self.runs(whole) if regular else ()


def declared(training: Any) -> Declared | None:
    """A `Run` is declared; None for a record of `attach`, which counts for itself. Anything else is refused."""
    if not isinstance(training, Run) and not callable(getattr(training, "ahead", None)):
        raise InputError(
            "Expected a Run that describes the training, or the record that calipers.adapters.opacus.attach returned, "
            f"got {type(training).__name__}."
        )
    return Declared(training) if isinstance(training, Run) else None
