"""A privacy filter: as long as it allows a step, any step of the menu may be taken, chosen from what was released.

    keep = PrivacyFilter({"quiet": quiet, "sharp": sharp}, epsilon=3, delta=1e-5, path="run.filter")
    while keep.allows("sharp"):
        keep.spend("sharp")              # written to the disk before the step is taken
        ...                              # one step

Everything that is released while `spend` answers is (epsilon, delta)-DP, whatever was chosen and whenever it was
stopped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from calipers.adaptive.costs import block_sizes, equal_shares, steps_alone
from calipers.adaptive.rules import SAID, FilterRule, budgets, choose_rule, in_blocks
from calipers.adaptive.run import AdaptiveRun, checked_menu, described_step
from calipers.adaptive.state import Counts, FileState, MemoryState
from calipers.adaptive.steps import Step, block_of, step_pairs
from calipers.citations import implements
from calipers.domains import COUNT, OPEN_UNIT, POSITIVE
from calipers.errors import CalipersError, InputError
from calipers.numerics.decimals import setting
from calipers.run import Run

LICENSE = (
    "steps chosen while training, from a menu fixed in advance, within a privacy filter; choices look at what was "
    "released only"
)


class FilterSpent(CalipersError, RuntimeError):
    """The step does not fit what is left of the budget, and was about to be taken all the same."""


class _Spending:
    """Steps of a menu that are counted, in memory or in a file."""

    def __init__(self, menu: Mapping[str, Step] | Sequence[Step], path: str | os.PathLike[str] | None) -> None:
        self.menu = checked_menu(menu)
        self._covered: dict[Run, str] = {}
        self._state: FileState | MemoryState = MemoryState() if path is None else FileState(path)

    def _described(self) -> dict[str, object]:
        steps = {
            name: step.to_dict() if isinstance(step, Run) else described_step(step) for name, step in self.menu.items()
        }
        return {"menu": steps}

    def name_of(self, step: str | Step) -> str:
        """The name of a step of the menu; a run is covered by one with the same pairs and no more noise.

        Raises:
            InputError: no step of the menu covers it.
        """
        if isinstance(step, str):
            if step not in self.menu:
                raise InputError(f"Expected a step of the menu ({', '.join(map(repr, self.menu))}), got {step!r}.")
            return step
        for name, known in self.menu.items():
            if known == step:
                return name
        if isinstance(step, Run):
            if step not in self._covered:
                covering = [
                    (known.noise_multiplier, name)
                    for name, known in self.menu.items()
                    if isinstance(known, Run) and _covers(known, step)
                ]
                self._covered |= {step: max(covering)[1]} if covering else {}
            if step in self._covered:
                return self._covered[step]
            raise InputError(
                f"The step ({described_step(step)}, neighbors by {step.adjacency}) is not on the menu, and no step of "
                "the menu covers it (one that differs in having no more noise does). The menu is fixed before the run."
            )
        raise InputError("The step is not on the menu, which is fixed before the run.")

    @property
    def spent(self) -> Counts:
        """Steps of each kind so far, by all processes that share the file."""
        found = self._state.counts()
        return {name: found.get(name, 0) for name in self.menu}

    def _row(self, counts: Counts) -> tuple[int, ...]:
        return tuple(counts.get(name, 0) for name in self.menu)


def _covers(known: Run, step: Run) -> bool:
    """Whether a step of the menu dominates another after every past: same neighbors, same pairs, no more noise."""
    same = (known.adjacency, known.unit, known.view) == (step.adjacency, step.unit, step.view)
    if not same or known.noise_multiplier > step.noise_multiplier:
        return False
    alike = step.replace(noise_multiplier=known.noise_multiplier)
    return alike == known or step_pairs("menu", known).dominating == step_pairs("taken", alike).dominating


def run_of(menu: Mapping[str, Step], rule: FilterRule) -> AdaptiveRun | None:
    """The adaptive run whose budget a menu filter watches; None where a block of steps has no description."""
    sizes = rule.blocks or (1,) * len(menu)
    blocks = {name: block_of(step, size) for (name, step), size in zip(menu.items(), sizes, strict=True)}
    known = {name: block for name, block in blocks.items() if block is not None}
    if len(known) < len(menu):
        return None
    return AdaptiveRun(known, [int(cost) for cost in rule.costs], int(rule.budget))


class PrivacyFilter(_Spending):
    """Allows steps of a menu as long as everything released is proven to be (epsilon, delta)-DP.

    Args:
        menu: the steps, as for `AdaptiveRun`; fixed before the run.
        epsilon: the target, > 0.
        delta: the target, in (0, 1).
        rule: "menu", "gaussian" or "renyi"; by default the one that allows the most.
        path: a file for what was spent. It survives a killed process, and processes that share it share the budget.
            Without it the counts live in this object.

    Raises:
        InputError: an argument is none, or the file belongs to another menu or target.
        CertificationError: not one step is proven to be within the target.
        UnsupportedError: no pair is known that dominates a step after every past.
    """

    @implements("calipers:adaptive-menu", "calipers:adaptive-gaussian")
    def __init__(
        self,
        menu: Mapping[str, Step] | Sequence[Step],
        epsilon: float,
        delta: float,
        *,
        rule: str | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(menu, path)
        self.epsilon, self.delta = POSITIVE.check("epsilon", epsilon), OPEN_UNIT.check("delta", delta)

        def made() -> FilterRule:
            pairs = tuple(step_pairs(name, step) for name, step in self.menu.items())
            return choose_rule(pairs, self.epsilon, self.delta, rule)

        if isinstance(self._state, FileState):
            described = self._described() | {"epsilon": self.epsilon, "delta": self.delta}
            self.rule = FilterRule.from_dict(self._state.opened(described, lambda: made().to_dict()))
        else:
            self.rule = made()

    def allows(self, step: str | Step, times: int = 1) -> bool:
        """Whether so many more of the step fit. Another process may spend first: `spend` is what counts.

        Args:
            step: one of the menu, or its name.
            times: how many of them.

        Returns:
            What `spend` would find now.
        """
        name, times = self.name_of(step), COUNT.check_int("times", times)
        counts = self.spent
        counts[name] += times
        return self.rule.fits(self._row(counts))

    def spend(self, step: str | Step, times: int = 1) -> None:
        """Count steps that are about to be taken; call it before them.

        Guarantee: whatever is released by steps for which this returned is (epsilon, delta)-DP together.

        Args:
            step: one of the menu, or its name.
            times: how many of them.

        Raises:
            FilterSpent: they do not fit. Nothing is counted then, and the steps must not be taken.
        """
        name, times = self.name_of(step), COUNT.check_int("times", times)
        if not self._state.add(name, times, lambda counts: self.rule.fits(self._row(counts))):
            raise FilterSpent(
                f"The privacy filter for {self.target} has no room for {times} x {name!r}: {self._left()}."
            )

    @property
    def target(self) -> str:
        """epsilon and delta in words."""
        return f"epsilon = {setting(self.epsilon)} at delta = {setting(self.delta)}"

    @property
    def remaining(self) -> Counts:
        """For each step how many more of it fit if no other is taken."""
        row = self._row(self.spent)
        return {name: self.rule.further(row, place) for place, name in enumerate(self.menu)}

    def _left(self) -> str:
        return "left are " + " or ".join(f"{count} x {name!r}" for name, count in self.remaining.items())

    @property
    def adaptive_run(self) -> AdaptiveRun | None:
        """The run that the menu filter admits, to be measured from both sides; None for the other filters.

        Steps that are paid in blocks are blocks there.
        """
        return None if self.rule.kind != "menu" else run_of(self.menu, self.rule)

    def report(self) -> str:
        """Which filter it is, what it allows against a schedule fixed in advance, and what is left."""
        order = "" if self.rule.order is None else f" (order {self.rule.order:.4g})"
        lines = [f"Privacy filter for {self.target}: {SAID[self.rule.kind]}{order}.", f"Proof: {LICENSE}."]
        spent, remaining = self.spent, self.remaining
        empty = (0,) * len(self.menu)
        for place, (name, step) in enumerate(self.menu.items()):
            allowed, fixed = self.rule.further(empty, place), self.rule.alone[place]
            size = self.rule.blocks[place] if self.rule.blocks else 1
            paid = f"; paid in blocks of {size}" if size > 1 else ""
            share = f"{100.0 * self.rule.shares[place]:.0f} % of about {fixed} with a length fixed in advance"
            lines.append(f"  {name}: {described_step(step)}; alone at most {allowed} ({share}){paid}; ")
            lines[-1] += f"spent {spent[name]}, left {remaining[name]}"
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """The same as a JSON object."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "licensed_by": LICENSE,
            "rule": self.rule.to_dict(),
            "spent": self.spent,
            "remaining": self.remaining,
        }


class Odometer(_Spending):
    """Reads an epsilon at every time of an adaptive run, valid at all times at once.

    With G epsilons, filters of delta / G each: the reading is the smallest epsilon whose budget holds what was spent.
    Guarantee: for every event A and every rule to stop, P(A) <= E_Q[e^(reading); A] + delta.

    Args:
        menu: the steps, as for `AdaptiveRun`.
        epsilons: the readings there can be, increasing.
        delta: shared by all of them.
        path: a file for what was spent, as for `PrivacyFilter`.

    Raises:
        InputError: an argument is none, or the file belongs to another menu.
    """

    @implements("calipers:adaptive-odometer")
    def __init__(
        self,
        menu: Mapping[str, Step] | Sequence[Step],
        epsilons: Sequence[float],
        delta: float,
        *,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(menu, path)
        self.epsilons = tuple(POSITIVE.check("epsilons", epsilon) for epsilon in epsilons)
        self.delta = OPEN_UNIT.check("delta", delta)
        if not self.epsilons or any(a >= b for a, b in zip(self.epsilons, self.epsilons[1:], strict=False)):
            raise InputError(f"Expected epsilons that increase, at least one, got {epsilons!r}.")
        if isinstance(self._state, FileState):
            described = self._described() | {"epsilons": list(self.epsilons), "delta": self.delta}
            record = self._state.opened(described, self._made)
        else:
            record = self._made()
        self.costs: tuple[int, ...] = tuple(record["costs"])  # type: ignore[arg-type]  # written by _made
        self.budgets: tuple[int, ...] = tuple(record["budgets"])  # type: ignore[arg-type]
        self.blocks: tuple[int, ...] = tuple(record.get("blocks", (1,) * len(self.costs)))  # type: ignore[arg-type]

    def _made(self) -> dict[str, object]:
        pairs = tuple(step_pairs(name, step) for name, step in self.menu.items())
        share = self.delta / len(self.epsilons) * (1.0 - 1e-12)
        alone = tuple(steps_alone(pair, self.epsilons[-1], share) for pair in pairs)
        blocks = block_sizes(alone)
        pairs, within = in_blocks(pairs, alone, blocks)
        costs = equal_shares(within)
        found = budgets(pairs, costs, [(epsilon, share) for epsilon in self.epsilons], within)
        return {"costs": list(costs), "blocks": list(blocks), "budgets": found}

    def _cost(self, counts: Counts) -> int:
        """Of whole blocks: one that was begun is paid, as for `PrivacyFilter`."""
        paid = zip(self._row(counts), self.blocks, self.costs, strict=True)
        return sum(-(-count // size) * cost for count, size, cost in paid)

    def spend(self, step: str | Step, times: int = 1) -> float:
        """Count steps that are about to be taken; call it before them.

        Args:
            step: one of the menu, or its name.
            times: how many of them.

        Returns:
            The reading after them; infinite beyond the last that the odometer covers.
        """
        name, times = self.name_of(step), COUNT.check_int("times", times)
        self._state.add(name, times, lambda _: True)
        return self.reading

    @property
    def reading(self) -> float:
        """The smallest epsilon whose budget holds what was spent; 0 while nothing was."""
        spent = self._cost(self.spent)
        if spent == 0:
            return 0.0
        return next((e for e, budget in zip(self.epsilons, self.budgets, strict=True) if spent <= budget), float("inf"))
