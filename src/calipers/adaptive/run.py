"""An adaptive run: a menu of steps, their costs and a budget, all fixed before the run begins.

    menu = {"quiet": Run(sample_rate=0.01, steps=1, noise_multiplier=2.0),
            "sharp": Run(sample_rate=0.01, steps=1, noise_multiplier=0.8)}
    run = AdaptiveRun(menu, costs={"quiet": 1, "sharp": 8}, budget=1000)
    measure(run).epsilon(1e-5)

Each step may be chosen from everything that was released before: losses on public data, noisy gradients, the model. The
number holds for every such choice and for stopping at any time. It does not hold for choices that look at private
data which was not released.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calipers.adaptive.bounds import AdaptiveAttack, AdaptiveProof, best_sum
from calipers.adaptive.solver import PRECISION, Menu, Solver
from calipers.adaptive.steps import Step, StepPairs, step_pairs
from calipers.domains import Domain
from calipers.errors import InputError
from calipers.guarantee import Guarantee, GuaranteeSubject
from calipers.measure import Claim, Measurement
from calipers.measure.bounds import Bounds, one_gaussian
from calipers.measure.guarantees import written
from calipers.memoize import memoize
from calipers.numerics.decimals import setting
from calipers.phases import as_phases
from calipers.pld.composition.product import Product
from calipers.run import KEYS, Run
from calipers.run_keys import as_toml, called, known, overridden, read_toml

COST = Domain(1, 1_000_000, integer=True)
BUDGET = Domain(1, 10_000_000, integer=True)
CONDITIONS = (
    "The numbers hold for every policy that chooses its next step from what was already released, and for stopping at "
    "any time. Menu, costs and budget are fixed before the run; a choice that looks at private data which was not "
    "released (a validation loss on training records) is not covered.",
    "The budget is for the worst case of records alike: accounting for each record by its own gradients (individual "
    "accounting) is not part of it.",
)
_GUARANTEE_KEYS = ("epsilon", "delta", "mu", "rho", "times")


def checked_menu(menu: Mapping[str, Step] | Sequence[Step]) -> dict[str, Step]:
    """The steps by name; those of a list are called by their noise multiplier, or by their place.

    Raises:
        InputError: the menu is empty, or its runs are about different neighbors.
    """
    if isinstance(menu, Mapping):
        steps = {str(name): step for name, step in menu.items()}
    elif not isinstance(menu, str):
        steps = {}
        for place, step in enumerate(menu, start=1):
            name = f"noise {step.noise_multiplier:g}" if isinstance(step, Run) else f"step {place}"
            steps[f"{name} ({place})" if name in steps else name] = step
    else:
        raise InputError(f"Expected a menu as a mapping from names to steps, got {type(menu).__name__}.")
    if not steps:
        raise InputError("Expected at least one step in the menu, got none.")
    runs = [step for step in steps.values() if isinstance(step, Run)]
    adjacencies = {step.adjacency for step in steps.values() if isinstance(step, Run | Guarantee)}
    if runs:
        as_phases(runs)
    if len(adjacencies) > 1:
        raise InputError(f"Steps of one menu share adjacency, got {' and '.join(sorted(adjacencies))}.")
    return steps


def described_step(step: Step) -> str:
    """A step in a few words."""
    if isinstance(step, Run):
        number = f"{step.total_steps} steps" if step.total_steps > 1 else "1 step"
        return f"{number} of sampler {step.sampler} at rate {step.rate:.6g}, noise multiplier {step.noise_multiplier:g}"
    if isinstance(step, Guarantee):
        return f"{step.stated.words[0].lower()}{step.stated.words[1:]}"
    return written(step) if isinstance(step, Product) else step.words


@dataclass(frozen=True)
class AdaptiveSubject(GuaranteeSubject):
    """What reports say about an adaptive run; its file can be read again."""

    file: str = ""
    noun = "an adaptive run"
    about_lower = "The lower bounds are those of one explicit policy that stays within the budget."
    about_claim = (
        "Here steps are chosen while training. The composition of those that were taken is no guarantee then, and the "
        "claim shown is the upper bound itself."
    )
    remedy = (
        "A smaller budget, or a menu with more noise, lowers the number; a narrower menu lets more steps be taken. "
        "calipers calibrate finds costs and budget for a target."
    )

    def to_dict(self) -> dict[str, object]:
        """The keys, and the menu with every key of its steps."""
        keys = dict(self.keys) | {"adjacency": self.adjacency, "menu": tomllib.loads(self.file).get("step", [])}
        return {self.table: keys}

    def to_toml(self) -> str:
        """The run file."""
        return self.file


class AdaptiveRun:
    """Steps chosen while training from a fixed menu, within a fixed budget.

    Args:
        menu: steps by name, or in a list: a `Run` (of one optimizer step, one epoch, or a block), a mechanism of
            `calipers.mechanisms`, a `Guarantee`.
        costs: a whole number >= 1 for each step, by name or in the order of the list.
        budget: the run ends when no step fits any more; whole number >= 1.

    Raises:
        InputError: the menu, a cost or the budget is none.
        UnsupportedError: no pair is known that dominates a step after every past.
    """

    def __init__(
        self, menu: Mapping[str, Step] | Sequence[Step], costs: Mapping[str, int] | Sequence[int], budget: int
    ) -> None:
        self.menu = checked_menu(menu)
        self.costs = _checked_costs(costs, tuple(self.menu))
        self.budget = BUDGET.check_int("budget", budget)
        if self.budget < min(self.costs.values()):
            raise InputError(
                f"Expected a budget of at least the smallest cost {min(self.costs.values())}, got budget={self.budget}."
            )

    def __repr__(self) -> str:
        return f"AdaptiveRun(menu={self.menu!r}, costs={self.costs!r}, budget={self.budget})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AdaptiveRun):
            return NotImplemented
        return (self.menu, self.costs, self.budget) == (other.menu, other.costs, other.budget)

    __hash__ = None  # type: ignore[assignment]  # menus are dictionaries

    @memoize
    def pairs(self) -> tuple[StepPairs, ...]:
        """What dominates each step, and what an attack sees of it."""
        return tuple(step_pairs(name, step) for name, step in self.menu.items())

    def evaluation(self) -> Bounds:
        """The upper bound and the attack; where all steps are Gaussian releases, one Gaussian in closed form."""
        pairs = self.pairs()
        shifts = [pair.shift for pair in pairs if pair.shift is not None]
        if len(shifts) == len(pairs):
            squares = best_sum([shift * shift for shift in shifts], tuple(self.costs.values()), self.budget)
            reason = (
                "Gaussian releases chosen adaptively are dominated by one Gaussian whose mu^2 is the largest sum of "
                "their mu^2 that the budget admits; those steps, taken without looking, attain it."
            )
            played = " ".join(dict.fromkeys(pair.description for pair in pairs))
            return one_gaussian(math.sqrt(squares) * (1.0 + 1e-13), reason, "calipers:adaptive-gaussian", played)
        solver = Solver(Menu(pairs, tuple(self.costs.values())), self.budget)
        reason = f"Every step of the menu is dominated by its pair after every past ({len(pairs)} kinds of steps)."
        description = " ".join(dict.fromkeys(pair.description for pair in pairs))
        closes = all(pair.closes for pair in pairs)
        return Bounds(AdaptiveProof(solver, reason), AdaptiveAttack(solver, description), closes)

    def measured(self, tolerance: float = 1e-3) -> Measurement:
        """The measurement of this run, as `calipers.measure` returns it.

        Args:
            tolerance: how far apart the bounds may be to be called closed; at least `PRECISION.closed`.

        Returns:
            Bounds with lower <= truth over all policies <= upper.
        """
        found, tolerance = self.evaluation(), max(tolerance, PRECISION.closed)
        return Measurement((), found, Claim(found.upper, tolerance), tolerance, CONDITIONS, stated=self.stated)

    @property
    def stated(self) -> AdaptiveSubject:
        """What reports say about it."""
        parts = [f"{name!r} for {self.costs[name]} ({described_step(step)})" for name, step in self.menu.items()]
        words = f"An adaptive run that spends at most {self.budget} units on steps chosen while it runs: "
        adjacency = next((s.adjacency for s in self.menu.values() if isinstance(s, Run | Guarantee)), "its own")
        keys: tuple[tuple[str, object], ...] = (
            ("budget", self.budget),
            ("steps", [f"{name}: {described_step(step)}" for name, step in self.menu.items()]),
            ("costs", [self.costs[name] for name in self.menu]),
        )
        return AdaptiveSubject(words + ", ".join(parts), keys, adjacency, "adaptive", file=self.to_toml())

    def to_toml(self) -> str:
        """The run file that `load_adaptive` reads; mechanisms, which no file describes, as comments."""
        tables = [f"budget = {self.budget}\n"]
        for name, step in self.menu.items():
            head: dict[str, object] = {"name": name, "cost": self.costs[name]}
            if isinstance(step, Run):
                head |= step.to_dict()
            elif isinstance(step, Guarantee):
                head |= {key: v for key in _GUARANTEE_KEYS if (v := getattr(step, key)) is not None}
            else:
                tables.append(f"# {described_step(step)}, described in Python only\n")
            tables.append(f"[[step]]\n{as_toml(head)}")
        return "\n".join(tables)


def _checked_costs(costs: Mapping[str, int] | Sequence[int], names: tuple[str, ...]) -> dict[str, int]:
    given = dict(costs) if isinstance(costs, Mapping) else dict(zip(names, costs, strict=False))
    if set(given) != set(names) or len(costs) != len(names):
        raise InputError(f"Expected one cost for each step of the menu ({', '.join(map(repr, names))}), got {costs!r}.")
    return {name: COST.check_int(f"cost of {name!r}", given[name]) for name in names}


def is_adaptive(record: Mapping[str, object]) -> bool:
    """Whether a run file describes a menu."""
    return "step" in record


def load_menu(path: str | os.PathLike[str]) -> tuple[dict[str, Step], dict[str, int], int | None]:
    """(menu, costs, budget) of a file with [[step]] tables; costs are empty and the budget None where it has none.

    Raises:
        InputError: naming the file and the key that is wrong.
    """
    name = os.fspath(path)
    record = read_toml(name)
    try:
        tables = record.get("step")
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise InputError("Expected step to be an array of tables; write [[step]] above each of them.")
        for key in record:
            known(key, (*KEYS, "step", "budget", "calipers"))
        shared = {key: value for key, value in record.items() if key not in ("step", "budget", "calipers")}
        menu: dict[str, Step] = {}
        costs: dict[str, int] = {}
        for place, table in enumerate(tables, start=1):
            own = {key: value for key, value in table.items() if key not in ("name", "cost")}
            title = str(table.get("name", f"step {place}"))
            if title in menu:
                raise InputError(f"Two steps are called {title!r}; give each a name of its own.")
            menu[title] = _read_step(own, shared)
            if "cost" in table:
                costs[title] = COST.check_int(f"cost of {title!r}", table["cost"])
        if costs and len(costs) < len(menu):
            raise InputError("Give every step a cost, or none of them: then `calipers calibrate` chooses all.")
        budget = record.get("budget")
        return checked_menu(menu), costs, None if budget is None else BUDGET.check_int("budget", budget)
    except InputError as error:
        raise InputError(f"{called(name)}: {error}") from error


def _read_step(own: Mapping[str, object], shared: Mapping[str, object]) -> Step:
    if any(key in own for key in ("epsilon", "mu", "rho")):
        adjacency = {key: shared[key] for key in ("adjacency",) if key in shared}
        return Guarantee.from_dict({**adjacency, **own})
    return Run.from_dict(overridden(dict(shared), own))


def load_adaptive(path: str | os.PathLike[str]) -> AdaptiveRun:
    """The adaptive run of a file.

    Raises:
        InputError: naming the file; also where it gives no costs or no budget, which `calipers calibrate` finds.
    """
    menu, costs, budget = load_menu(path)
    if not costs or budget is None:
        missing = "costs" if not costs else "a budget"
        raise InputError(
            f"{called(os.fspath(path))}: the steps have no {missing.split()[-1]}; add {missing}, or let `calipers "
            f"calibrate FILE --epsilon {setting(3.0)} --delta 1e-5` choose."
        )
    return AdaptiveRun(menu, costs, budget)
