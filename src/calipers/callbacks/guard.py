"""The guard of a budget: asks before every step, measures rarely.

Measuring before every step would cost more than training. But a proof about a longer run covers every shorter one, so
the guard asks about a position some way ahead, doubles the way while the answer is yes, and halves it where it is no.
A yes is permission for every step up to there; between two questions the guard compares two numbers.

The permission rests on the terms it was asked under (the noise, what was seen of the draws). When they change it is
void, and the guard asks again. Where nothing can be proven the answer is no: a training never goes on because its
privacy could not be computed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from calipers.bracket import Bracket
from calipers.callbacks.progress import Progress, contradiction, declared
from calipers.domains import COUNT
from calipers.errors import CalipersError, CertificationError, InputError, UnsupportedError
from calipers.gate import Budget
from calipers.measure import measure
from calipers.numerics.decimals import ceil_digits, setting
from calipers.run import Run

_LOGGER = logging.getLogger("calipers")
_TOLERANCE = 1e-3

Log = Callable[[Mapping[str, float], int], None]


class BudgetSpent(CalipersError, RuntimeError):
    """The next step is not proven to be within the budget, and the loop was about to take it all the same."""


class BudgetGuard:
    """Stops a training before the step that its budget does not cover.

    training: a `Run` that describes what is executed, or the record of `calipers.adapters.opacus.attach`.
    epsilon, delta: the budget. log: called with {name: value} and the number of steps, at the end of every pass and
    every `every` steps if that is given. In a loop::

        guard = BudgetGuard(record, epsilon=3, delta=1e-5)
        for epoch in range(100):
            for inputs, targets in guard.batches(loader):
                ...                                      # one step
    """

    def __init__(
        self,
        training: Any,
        *,
        epsilon: float,
        delta: float,
        log: Log | None = None,
        every: int | None = None,
    ) -> None:
        self.budget = Budget(epsilon=epsilon, delta=delta)
        self.training, self._declared = training, declared(training)
        self._log, self._every = log, None if every is None else COUNT.check_int("every", every)
        self._steps = self._passes = self._logged = 0
        self._terms: object = None
        self._allowed, self._refused, self._refusal = 0, math.inf, ""
        self._stride = 1
        self._base = (0, 0)
        self._told = (0, 0)
        self.reason = ""
        """Why the training was stopped, in one sentence; empty while it may go on."""

    @property
    def _progress(self) -> Progress:
        """How far the training has come by now."""
        ahead: Progress = self._declared or self.training.ahead()
        return ahead

    @property
    def stopped(self) -> bool:
        """Whether the last answer was no."""
        return bool(self.reason)

    def allows(self, *, new_pass: bool = False, further: int = 1) -> bool:
        """Whether the run with `further` more steps (in a new pass, if so said) is proven to be within the budget."""
        try:
            terms = self._progress.terms
            position = self._progress.position(new_pass=new_pass, further=further)
        except UnsupportedError as error:
            return self._say(f"The training was stopped: nothing is proven about it. {error}")
        if terms != self._terms:
            self._terms, self._allowed, self._refused, self._stride = terms, 0, math.inf, 1
        while not position <= self._allowed:
            if position >= self._refused:
                return self._say(self._refusal)
            candidate = int(min(position + self._stride - 1, self._refused - 1))
            if self._within(candidate):
                self._allowed, self._stride = candidate, 2 * self._stride
            else:
                self._refused, self._stride = candidate, max(1, (candidate - position) // 2)
        self.reason = ""
        return True

    def demand(self, *, new_pass: bool = False, further: int = 1) -> None:
        """Raise `BudgetSpent` unless `allows`: for the moment before a step that nothing else can prevent."""
        if not self.allows(new_pass=new_pass, further=further):
            raise BudgetSpent(self.reason)

    def refuse_contradiction(self, data_loader: Any) -> None:
        """Raise `InputError` where the loader visibly is not what the declared run says."""
        sentence = contradiction(self.training, data_loader)
        if sentence is not None:
            raise InputError(sentence)

    def counted(self, steps: int, passes: int) -> None:
        """Tell the guard how far the training has come, by the framework's own counters.

        Counters that go back belong to another training with the same guard: what was released before stays released.
        """
        if steps < self._told[0]:
            self._base = (self._steps, self._passes)
        self._told = (steps, passes)
        self._steps, self._passes = self._base[0] + steps, self._base[1] + passes
        if self._declared is not None:
            self._declared.counted(self._steps, self._passes)
        if self._every is not None and steps >= self._logged + self._every:
            self.log()

    def batches(self, data_loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of one pass, as many as the budget allows; one step is taken on each."""
        self.refuse_contradiction(data_loader)
        # A loader that watches or resumes may have begun this pass earlier; its record knows, a counter does not.
        steps, passes = self._told[0], self._told[1] + 1
        fresh = True
        iterator = iter(data_loader)
        while self.allows(new_pass=fresh):
            try:
                batch = next(iterator)
            except StopIteration:
                break
            fresh = False
            yield batch
            steps += 1
            self.counted(steps, passes)
        if self._steps > self._logged:
            self.log()

    def values(self) -> dict[str, float]:
        """Both jaws of what was executed so far, at the budget's delta; the upper one counts a begun pass whole."""
        names = ("calipers/epsilon_at_least", "calipers/epsilon_at_most")
        return dict(zip(names, self._jaws(), strict=True)) | {"calipers/delta": self.budget.delta}

    def log(self) -> dict[str, float]:
        """Send the jaws to the logger, and return them."""
        self._logged = self._steps
        values = self.values()
        if self._log is not None:
            self._log(values, self._steps)
        return values

    def _jaws(self) -> tuple[float, float]:
        lower, upper = 0.0, math.inf
        with suppress(CertificationError, UnsupportedError):
            finished = self._progress.finished()
            lower = self._epsilon(finished).lower if finished else 0.0
        with suppress(CertificationError, UnsupportedError):
            reached = self._reached()
            upper = self._epsilon(self._progress.runs(reached)).upper if reached else 0.0
        return lower, upper

    def _epsilon(self, runs: tuple[Run, ...]) -> Bracket:
        return measure(runs, tolerance=_TOLERANCE).epsilon(self.budget.delta)

    def _reached(self) -> int:
        """The position up to which steps were taken: one before that of a step which would begin something new."""
        following, ahead = self._progress.position(), self._progress.position(new_pass=True)
        return following if following < ahead else following - 1

    def _within(self, position: int) -> bool:
        """Post-condition: True only if a proof bounds everything up to the position by the budget."""
        budget = self.budget
        try:
            upper = self._epsilon(self._progress.runs(position)).upper
        except (CertificationError, UnsupportedError) as error:
            self._refusal = f"The training was stopped: nothing is proven about its next step. {error}"
            return False
        if upper <= budget.epsilon:
            return True
        wanted = f"epsilon = {setting(budget.epsilon)} at delta = {setting(budget.delta)}"
        refusal = f"The training was stopped at its budget of {wanted}: with one more step only"
        self._refusal = f"{refusal} {ceil_digits(upper)} is proven."
        return False

    def _say(self, reason: str) -> bool:
        """No, and why; said once to the log of the process."""
        if reason != self.reason:
            _LOGGER.warning("%s", reason)
        self.reason = reason
        return False
