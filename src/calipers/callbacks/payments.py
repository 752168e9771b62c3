"""Steps of a loop that are paid from a privacy filter, each before it is taken and none twice."""

from __future__ import annotations

from typing import Any

from calipers.adaptive import FilterSpent, PrivacyFilter
from calipers.errors import InputError
from calipers.run import Run


class Payments:
    """What a guard has paid for: the counter of the loop, and the kind of step that comes next."""

    def __init__(self, source: PrivacyFilter) -> None:
        for name, step in source.menu.items():
            if not isinstance(step, Run) or step.total_steps != 1:
                raise InputError(
                    f"A guard pays for single optimizer steps, and step {name!r} of the menu is another release; call "
                    "PrivacyFilter.spend yourself before each of them."
                )
        self.source = source
        self._step = next(iter(source.menu)) if len(source.menu) == 1 else None
        self._paid: int | None = None
        self._steps = 0

    @property
    def step(self) -> str:
        """The kind of step that comes next."""
        if self._step is None:
            raise InputError(
                f"Say which step of the menu comes next: guard.step = one of {', '.join(map(repr, self.source.menu))}."
            )
        return self._step

    @property
    def run(self) -> Run:
        """The same, as it is described."""
        found = self.source.menu[self.step]
        assert isinstance(found, Run)
        return found

    def choose(self, name: str) -> None:
        """The next steps are of this kind."""
        self._step = self.source.name_of(name)

    proven = True
    """Steps of the menu are what the filter's number is about."""

    def doubts(self, *, in_hand: bool) -> tuple[str, ...]:
        """The steps are described, and nobody watches them."""
        return ()

    def counted(self, steps: int) -> None:
        """The loop's own counter. A loop that resumes must resume its filter, too."""
        if self._paid is None:
            spent = sum(self.source.spent.values())
            if steps > spent:
                raise InputError(
                    f"The training resumes at step {steps}, and its privacy filter knows of {spent} steps; give the "
                    "filter the path it had before."
                )
            self._paid = steps
        self._steps = steps

    def due(self, further: int) -> int:
        """How many of the next `further` steps are not paid yet."""
        return max(0, self._steps + further - (self._paid or 0))

    def allows(self, further: int) -> bool:
        """Whether they fit."""
        due = self.due(further)
        return due == 0 or self.source.allows(self.step, due)

    def pay(self, further: int) -> bool:
        """Pay for them; False where they do not fit."""
        due = self.due(further)
        if due:
            try:
                self.source.spend(self.step, due)
            except FilterSpent:
                return False
            self._paid = (self._paid or 0) + due
        return True


def payments(training: Any) -> Payments | RecordPayments | None:
    """How steps are paid: by the guard from a filter, by a record of `attach` that has one, or not at all."""
    if isinstance(training, PrivacyFilter):
        return Payments(training)
    return None if getattr(training, "privacy_filter", None) is None else RecordPayments(training)


class RecordPayments:
    """A record of `attach` that pays for its own steps: the guard only asks whether the next one fits."""

    def __init__(self, record: Any) -> None:
        self._record = record

    @property
    def step(self) -> str:
        """The step that the optimizer would take now."""
        found: str = self._record.next_step
        return found

    def choose(self, name: str) -> None:
        """The noise of the optimizer says which step comes next, not the guard."""
        raise InputError("The record pays for what the optimizer does; set optimizer.noise_multiplier, not guard.step.")

    @property
    def proven(self) -> bool:
        """Whether the record says the filter's number."""
        return not self._record.steps or self._record.attained()

    def doubts(self, *, in_hand: bool) -> tuple[str, ...]:
        """Why the record says no number; steps that a filter paid for need everything to fit."""
        found: tuple[str, ...] = self._record.why_nothing(in_hand=in_hand)
        return found or tuple(self._record.ahead(in_hand=in_hand).seen.reasons)

    def counted(self, steps: int) -> None:
        """The record counts for itself."""

    def allows(self, further: int) -> bool:
        """Whether they fit."""
        found: bool = self._record.fits(further)
        return found

    def pay(self, further: int) -> bool:
        """The record pays, when the noise is about to be added."""
        return self.allows(further)
