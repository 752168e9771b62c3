"""Steps of a loop that are paid from a privacy filter, each before it is taken and none twice."""

from __future__ import annotations

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

    def choose(self, name: str) -> None:
        """The next steps are of this kind."""
        self._step = self.source.name_of(name)

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
