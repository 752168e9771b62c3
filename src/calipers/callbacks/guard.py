"""The guard of a budget: asks before every step, measures rarely.

Measuring before every step would cost more than training. But a proof about a longer run covers every shorter one, so
the guard asks about a position some way ahead, doubles the way while the answer is yes, and halves it where it is no.
A yes is permission for every step up to there; between two questions the guard compares two numbers.

The permission rests on the terms it was asked under (the noise, what was seen of the draws). When they change it is
void, and the guard asks again. Where nothing can be proven the answer is no: a training never goes on because its
privacy could not be computed.

**When the number holds.** The composition of the steps that were taken is a guarantee only if they were fixed in
advance. So the number that a guard reports is that of the longest run that was possible: `planned_steps` (or what the
trainer says), and never more than the budget. The number of the length so far is reported too, under the name of its
condition: if the length had been fixed in advance. Noise or a rate that changes while training is refused unless the
schedule is declared to be fixed in advance (`schedule="fixed"`), or steps are paid from a `PrivacyFilter`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from calipers.adaptive import PrivacyFilter
from calipers.adaptive.filter import LICENSE
from calipers.bracket import Bracket
from calipers.callbacks.contradiction import accumulation_of, contradiction, shown
from calipers.callbacks.payments import Payments, RecordPayments, payments
from calipers.callbacks.progress import Progress, declared
from calipers.domains import COUNT
from calipers.errors import CalipersError, CertificationError, InputError, UnsupportedError
from calipers.gate import Budget
from calipers.measure import measure
from calipers.numerics.decimals import ceil_digits, setting
from calipers.run import Run

_LOGGER = logging.getLogger("calipers")
_TOLERANCE = 1e-3

_CHANGED = (
    "Noise or rate changed while training. The composition of the steps that were taken is a guarantee only if the "
    "schedule was fixed in advance: say schedule='fixed' if it was, or choose steps within a PrivacyFilter."
)

_NOTHING = "The training was stopped: nothing is proven about it."

Log = Callable[[Mapping[str, float], int], None]


class BudgetSpent(CalipersError, RuntimeError):
    """The next step is not proven to be within the budget, and the loop was about to take it all the same."""


def _budget(training: Any, epsilon: float | None, delta: float | None) -> Budget:
    """The budget that was given, or that of the filter."""
    source = training if isinstance(training, PrivacyFilter) else getattr(training, "privacy_filter", None)
    if source is not None:
        if epsilon not in (None, source.epsilon) or delta not in (None, source.delta):
            raise InputError(f"The filter has its own budget, {source.target}; leave epsilon and delta out.")
        return Budget(epsilon=source.epsilon, delta=source.delta)
    if epsilon is None or delta is None:
        raise InputError("Expected epsilon and delta, the budget of the training.")
    return Budget(epsilon=epsilon, delta=delta)


class BudgetGuard:
    """Stops a training before the step that its budget does not cover.

    Args:
        training: a `Run` that describes what is executed, the record of `calipers.adapters.opacus.attach` (which may
            pay from a `PrivacyFilter` itself), or a `PrivacyFilter` whose steps may be chosen while training (set
            `guard.step` to the one that comes next).
        epsilon, delta: the budget; that of the filter, where there is one.
        planned_steps: the largest number of steps, which a training that may stop earlier is reported with. Steps
            beyond it are refused.
        schedule: "fixed" if noise and rates, should they change, follow a schedule that was fixed in advance.
        log: called with {name: value} and the number of steps, at the end of every pass and every `every` steps if
            that is given.

    In a loop::

        guard = BudgetGuard(record, epsilon=3, delta=1e-5, planned_steps=10_000)
        for epoch in range(100):
            for inputs, targets in guard.batches(loader):
                ...                                      # one step
    """

    def __init__(
        self,
        training: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        planned_steps: int | None = None,
        schedule: str | None = None,
        log: Log | None = None,
        every: int | None = None,
    ) -> None:
        self._payments = payments(training)
        self.budget = _budget(training, epsilon, delta)
        self.training = training
        self._declared = None if self._payments is not None else declared(training)
        self._plan = None if planned_steps is None else COUNT.check_int("planned_steps", planned_steps)
        self._plan_is_declared = planned_steps is not None
        if schedule not in (None, "fixed"):
            raise InputError(f"Expected schedule 'fixed', or none, got schedule={schedule!r}.")
        self._fixed_schedule = schedule == "fixed" or isinstance(training, Run)
        self._log, self._every = log, None if every is None else COUNT.check_int("every", every)
        self._steps = self._passes = self._logged = 0
        self._terms: object = None
        self._allowed, self._refused, self._refusal = 0, math.inf, ""
        self._stride = 1
        self._base = (0, 0)
        self._reported = (0, 0)
        self._loader: tuple[Any, int, float | None] | None = None
        self.reason = ""
        """Why the training was stopped, in one sentence; empty while it may go on."""

    def _progress(self, *, in_hand: bool = False) -> Progress:
        """How far the training has come; `in_hand`: the loop is about to use the batches that it holds."""
        ahead: Progress = self._declared or self.training.ahead(in_hand=in_hand)
        return ahead

    @property
    def describes(self) -> bool:
        """Whether somebody describes the training (a `Run`, a filter); a record of `attach` watches it."""
        return self._declared is not None or isinstance(self._payments, Payments)

    @property
    def stopped(self) -> bool:
        """Whether the last answer was no."""
        return bool(self.reason)

    @property
    def step(self) -> str:
        """The step of the filter's menu that comes next."""
        return self._paying.step

    @step.setter
    def step(self, name: str) -> None:
        """The next steps are of this kind."""
        self._paying.choose(name)

    @property
    def _paying(self) -> Payments | RecordPayments:
        if self._payments is None:
            raise InputError("guard.step is for a guard of a PrivacyFilter; this one guards a fixed schedule.")
        return self._payments

    @property
    def _wanted(self) -> str:
        return f"epsilon = {setting(self.budget.epsilon)} at delta = {setting(self.budget.delta)}"

    @property
    def licensed_by(self) -> str:
        """The condition under which the reported number holds."""
        if self._payments is not None:
            return LICENSE
        longest = "the budget" if self._plan is None else f"at most {self._plan} steps, or the budget"
        return f"schedule fixed in advance; the longest run that was possible: {longest}"

    def plan(self, steps: int) -> None:
        """What a trainer says is the largest number of steps; a plan that is extended later is none."""
        if self._plan_is_declared or steps <= 0:
            return
        self._plan = steps if self._steps == 0 or self._plan == steps else None

    def allows(self, *, new_pass: bool = False, further: int = 1) -> bool:
        """Whether the run with `further` more steps (in a new pass, if so said) is proven to be within the budget."""
        if self._plan_is_declared and self._plan is not None and self._steps + further > self._plan:
            return self._say(f"The training was stopped: all {self._plan} planned steps were taken.")
        if self._payments is not None:
            return self._affords(further, in_hand=not new_pass)
        try:
            progress = self._progress(in_hand=not new_pass)
            terms = progress.terms
            position = progress.position(new_pass=new_pass, further=further)
        except UnsupportedError as error:
            return self._say(f"{_NOTHING} {error}")
        if terms != self._terms:
            self._terms, self._allowed, self._refused, self._stride = terms, 0, math.inf, 1
        while not position <= self._allowed:
            if position >= self._refused:
                return self._say(self._refusal)
            candidate = int(min(position + self._stride - 1, self._refused - 1))
            if self._within(progress, candidate):
                self._allowed, self._stride = candidate, 2 * self._stride
            else:
                self._refused, self._stride = candidate, max(1, (candidate - position) // 2)
        self.reason = ""
        return True

    def _affords(self, further: int, *, in_hand: bool) -> bool:
        """Whether the filter has room for so many more steps, and the record, if there is one, no doubts."""
        doubts = self._paying.doubts(in_hand=in_hand)
        if doubts:
            return self._say(f"{_NOTHING} {' '.join(doubts)}")
        if not self._paying.allows(further):
            return self._say(f"The training was stopped: its privacy filter for {self._wanted} is spent.")
        self.reason = ""
        return True

    def demand(self, *, new_pass: bool = False, further: int = 1) -> None:
        """Raise `BudgetSpent` unless `allows`: for the moment before a step that nothing else can prevent."""
        if not self.allows(new_pass=new_pass, further=further):
            raise BudgetSpent(self.reason)
        if not self._pay(further):
            self._say(f"The training was stopped: another process spent the rest of {self._wanted}.")
            raise BudgetSpent(self.reason)

    def _pay(self, further: int) -> bool:
        """Pay for the steps, if there is a filter; the step of its menu must be the one that the loader draws for."""
        if isinstance(self._payments, Payments) and self._loader is not None:
            self.refuse_contradiction(*self._loader)
        return self._payments is None or self._payments.pay(further)

    def refuse_contradiction(self, data_loader: Any, accumulation: int = 1, per_pass: float | None = None) -> None:
        """Compare a loader with the run that was declared, or with the step of the filter's menu that comes next.

        Args:
            data_loader: whatever the loop iterates.
            accumulation: batches whose gradients are added up for one step.
            per_pass: batches of a pass, where that is not the length of the loader.

        Raises:
            InputError: the loader visibly does not do what was declared.
        """
        if not self.describes:
            return
        self._loader = (data_loader, accumulation, per_pass)
        run = self._payments.run if isinstance(self._payments, Payments) else self.training
        sentence = contradiction(run, shown(*self._loader))
        if sentence is not None:
            raise InputError(sentence)

    def counted(self, steps: int, passes: int) -> None:
        """Tell the guard how far the training has come, by the framework's own counters.

        Counters that go back belong to another training with the same guard: what was released before stays released.
        """
        if steps < self._reported[0]:
            self._base = (self._steps, self._passes)
        self._reported = (steps, passes)
        self._steps, self._passes = self._base[0] + steps, self._base[1] + passes
        if self._declared is not None:
            self._declared.counted(self._steps, self._passes)
        if self._payments is not None:
            self._payments.counted(self._steps)
        if self._every is not None and steps >= self._logged + self._every:
            self.log()

    def batches(self, data_loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of one pass, as many as the budget allows; one step is taken on each.

        A loader that Accelerate prepared says how many batches make a step; then one is taken on as many.
        """
        self.refuse_contradiction(data_loader)
        accumulation, taken = accumulation_of(data_loader), 0
        # A loader that watches or resumes may have begun this pass earlier; its record knows, a counter does not.
        steps, passes = self._reported[0], self._reported[1] + 1
        fresh = True
        iterator = iter(data_loader)
        while self.allows(new_pass=fresh):
            try:
                batch = next(iterator)
            except StopIteration:
                self.counted(steps + -(-taken // accumulation), passes)  # Accelerate steps on what is left of a pass
                break
            fresh = False
            if not self._pay(1):
                self.allows()
                break
            yield batch
            taken += 1
            self.counted(steps + taken // accumulation, passes)
        if self._steps > self._logged:
            self.log()

    def values(self) -> dict[str, float]:
        """What is proven, and both bounds of what was executed so far, at the budget's delta.

        `epsilon_at_most` holds whenever the training is stopped: it is the number of the longest run that was possible.
        The two others are those of the length so far, if that had been fixed in advance; a begun pass counts whole.
        With a privacy filter there is no such length, and its target is the number.
        """
        found = {"calipers/epsilon_at_most": self.budget.epsilon, "calipers/delta": self.budget.delta}
        if self._payments is not None:
            return found if self._payments.proven else found | {"calipers/epsilon_at_most": math.inf}
        lower, upper = self._bounds()
        return found | {
            "calipers/epsilon_at_most": max(upper, min(self.budget.epsilon, self._planned())) if upper else 0.0,
            "calipers/epsilon_at_least_if_length_fixed": lower,
            "calipers/epsilon_at_most_if_length_fixed": upper,
        }

    def _planned(self) -> float:
        """The upper bound of all planned steps; infinite where there is no plan, or nothing is proven about it."""
        if self._plan is None:
            return math.inf
        with suppress(CertificationError, UnsupportedError):
            further, progress = self._plan - self._steps, self._progress()
            position = progress.position(further=further) if further > 0 else _reached(progress)
            position = max(position, progress.position_of(self._plan))
            return self._epsilon(progress.runs(position)).upper
        return math.inf

    def log(self) -> dict[str, float]:
        """Send the values to the logger, and return them."""
        self._logged = self._steps
        values = self.values()
        if self._log is not None:
            self._log(values, self._steps)
        return values

    def _bounds(self) -> tuple[float, float]:
        """Of what was executed so far, if its length had been fixed in advance."""
        lower, upper = 0.0, math.inf
        with suppress(CertificationError, UnsupportedError):
            finished = self._progress().finished()
            lower = self._epsilon(finished).lower if finished else 0.0
        with suppress(CertificationError, UnsupportedError):
            progress = self._progress()
            reached = _reached(progress)
            upper = self._epsilon(self._covered(progress, reached)).upper if reached else 0.0
        return lower, upper

    def _epsilon(self, runs: tuple[Run, ...]) -> Bracket:
        return measure(runs, tolerance=_TOLERANCE).epsilon(self.budget.delta)

    def _covered(self, progress: Progress, position: int) -> tuple[Run, ...]:
        """The runs up to the position; refused where noise or rate changed and nobody said that this was planned."""
        runs = progress.runs(position)
        declared_before = set(getattr(progress, "earlier", ()))
        kinds = {(run.noise_multiplier, run.rate) for run in runs if run not in declared_before}
        if len(kinds) > 1 and not self._fixed_schedule:
            raise UnsupportedError(_CHANGED)
        return runs

    def _within(self, progress: Progress, position: int) -> bool:
        """Post-condition: True only if a proof bounds everything up to the position by the budget."""
        budget = self.budget
        try:
            upper = self._epsilon(self._covered(progress, position)).upper
        except (CertificationError, UnsupportedError) as error:
            self._refusal = f"The training was stopped: nothing is proven about its next step. {error}"
            return False
        if upper <= budget.epsilon:
            return True
        refusal = f"The training was stopped at its budget of {self._wanted}: with one more step only"
        self._refusal = f"{refusal} {ceil_digits(upper)} is proven."
        return False

    def _say(self, reason: str) -> bool:
        """No, and why; said once to the log of the process."""
        if reason != self.reason:
            _LOGGER.warning("%s", reason)
        self.reason = reason
        return False


def _reached(progress: Progress) -> int:
    """The position up to which steps were taken: one before that of a step which would begin something new."""
    following, ahead = progress.position(), progress.position(new_pass=True)
    return following if following < ahead else following - 1
