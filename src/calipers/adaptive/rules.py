"""Three filters, each a cost for every step and a budget: as long as the sum of costs fits, any step may be chosen.

- **Menu**: whole costs and the largest budget for which the recursion over all policies is within (epsilon, delta).
- **Gaussian**: where every step is a Gaussian release, the sum of mu^2 = 1/sigma^2; nothing is lost.
- **Renyi**: Renyi divergences of one order that is fixed in advance (Feldman and Zrnic 2021).

The rule, its costs and its budget are public and fixed before the first step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from calipers.adaptive.costs import block_sizes, equal_shares, steps_alone
from calipers.adaptive.solver import Menu
from calipers.adaptive.steps import StepPairs, repeated
from calipers.citations import implements
from calipers.curves.renyi import epsilon_from_rdp
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.numerics.normal import gaussian_epsilon_bounds
from calipers.pld.composition.renyi import renyi_above

LevelProgress = Callable[[int, int], object]
"""Told the level that is done, and about how many there will be."""
RULES = ("menu", "gaussian", "renyi")
SAID = {
    "menu": "menu filter: whole costs, and the recursion over all policies that stay within the budget",
    "gaussian": "Gaussian filter: the sum of 1/sigma^2 over Gaussian releases",
    "renyi": "Renyi filter: the sum of Renyi divergences of one order fixed in advance",
}
_ORDERS = 1.0 + np.geomspace(0.2, 200.0, 40)
_TAILS = 1e-4
"""What trimming the tails of steps may add to delta, as a share of it: epsilon moves in the sixth digit."""
_ROOM = 1.0 - 1e-12
"""What sums of costs that are no whole numbers may lose to rounding is taken off their budget."""


@dataclass(frozen=True)
class FilterRule:
    """A cost for every step and a budget; `kind` is one of `RULES`, `order` that of Renyi divergences.

    `blocks`: how many steps of each kind one cost pays for (empty: one); a block that was begun is paid whole.
    `alone`: how many steps of each kind alone meet the target if their number is fixed in advance (about).
    """

    kind: str
    costs: tuple[float, ...]
    budget: float
    alone: tuple[int, ...]
    order: float | None = None
    blocks: tuple[int, ...] = ()

    def _paid(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """How many costs of each kind so many steps take."""
        return tuple(-(-count // size) for count, size in zip(counts, self.blocks or (1,) * len(counts), strict=True))

    def fits(self, counts: tuple[int, ...]) -> bool:
        """Whether so many steps of each kind are within the budget."""
        if self.kind == "menu":
            paid = self._paid(counts)
            return sum(count * int(cost) for count, cost in zip(paid, self.costs, strict=True)) <= self.budget
        total = math.fsum(count * cost for count, cost in zip(counts, self.costs, strict=True))
        return total <= self.budget * _ROOM

    def further(self, counts: tuple[int, ...], place: int) -> int:
        """How many more steps of one kind fit."""
        paid, size = self._paid(counts), self.blocks[place] if self.blocks else 1
        room = self.budget - math.fsum(count * cost for count, cost in zip(paid, self.costs, strict=True))
        number = max(0, math.floor(room / self.costs[place])) + 1
        begun = -counts[place] % size  # what is left of the block that was paid last

        def fit(more: int) -> bool:
            return self.fits(tuple(c + more * (i == place) for i, c in enumerate(counts)))

        while number and not fit(begun + number * size):
            number -= 1
        return begun + number * size if fit(begun) else 0

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the steps that a length fixed in advance would allow, the share that this filter allows, by kind."""
        empty = (0,) * len(self.costs)
        return tuple(self.further(empty, m) / max(1, number) for m, number in enumerate(self.alone))

    def to_dict(self) -> dict[str, object]:
        """As JSON; `from_dict` gives back an equal rule."""
        return {
            "kind": self.kind,
            "costs": list(self.costs),
            "budget": self.budget,
            "alone": list(self.alone),
            "order": self.order,
            "blocks": list(self.blocks),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> FilterRule:
        """The rule that was written."""
        costs, alone, blocks = record["costs"], record["alone"], record.get("blocks", [])
        assert isinstance(costs, list)
        assert isinstance(alone, list)
        assert isinstance(blocks, list)
        head = str(record["kind"]), tuple(costs), record["budget"], tuple(alone), record["order"]
        return cls(*head, tuple(blocks))  # type: ignore[arg-type]  # written by to_dict


def choose_rule(pairs: tuple[StepPairs, ...], epsilon: float, delta: float, kind: str | None = None) -> FilterRule:
    """The filter whose smallest share of fixed-length steps is largest, or the one that is named.

    Where the recursion of the menu filter would take too long, it is the Renyi filter if that allows every step.

    Raises:
        InputError: a kind that there is not, or that does not fit the menu.
        UnsupportedError: the filter that is named cannot be computed for this menu.
        CertificationError: not one step fits the target.
    """
    if kind is not None and kind not in RULES:
        raise InputError(f"Expected rule in {', '.join(map(repr, RULES))}, got rule={kind!r}.")
    alone = tuple(steps_alone(pair, epsilon, delta) for pair in pairs)
    gaussian = all(pair.shift is not None for pair in pairs)
    if kind == "gaussian" and not gaussian:
        raise InputError("rule='gaussian' is for Gaussian releases without sampling; this menu has others. Use 'menu'.")
    if gaussian and kind in (None, "gaussian"):
        return _usable(_gaussian(pairs, epsilon, delta, alone), epsilon, delta)
    found = _renyi(pairs, epsilon, delta, alone) if kind in (None, "renyi") else []
    if kind in (None, "menu"):
        try:
            found.append(menu_rule(pairs, epsilon, delta, alone))
        except UnsupportedError:
            if not found or not min(found[0].shares):
                raise
    if not found:
        raise UnsupportedError("rule='renyi': some step of the menu has no finite Renyi divergence. Use rule='menu'.")
    return _usable(max(found, key=lambda rule: (min(rule.shares), rule.kind == "menu")), epsilon, delta)


def _usable(rule: FilterRule, epsilon: float, delta: float) -> FilterRule:
    if not any(rule.further((0,) * len(rule.costs), m) for m in range(len(rule.costs))):
        raise CertificationError(
            f"No step of the menu is proven to be within epsilon={epsilon:g} at delta={delta:g}; use more noise, or a "
            "larger target."
        )
    return rule


def calibrated_rule(
    pairs: tuple[StepPairs, ...],
    epsilon: float,
    delta: float,
    costs: tuple[int, ...] = (),
    progress: LevelProgress = lambda done, most: None,
) -> FilterRule:
    """The menu filter for (epsilon, delta), with these costs or with equal shares.

    Raises:
        CertificationError: not one step fits the target.
        UnsupportedError: the recursion would take too long.
    """
    alone = tuple(steps_alone(pair, epsilon, delta) for pair in pairs)
    return _usable(menu_rule(pairs, epsilon, delta, alone, costs, progress), epsilon, delta)


def menu_rule(
    pairs: tuple[StepPairs, ...],
    epsilon: float,
    delta: float,
    alone: tuple[int, ...],
    costs: tuple[int, ...] = (),
    progress: LevelProgress = lambda done, most: None,
) -> FilterRule:
    """The largest budget for which the certified recursion is within (epsilon, delta), by default at equal shares.

    Steps paid in blocks are bounded by the recursion over blocks: whoever sees a whole block when its first step is
    paid can play everything that steps taken later, one by one, would show.
    """
    blocks = (1,) * len(alone) if costs else block_sizes(alone)
    pairs, within = in_blocks(pairs, alone, blocks)
    costs = costs or equal_shares(within)
    budget = budgets(pairs, costs, [(epsilon, delta)], within, progress)[0]
    return FilterRule("menu", costs, budget, alone, blocks=blocks if max(blocks) > 1 else ())


def in_blocks(
    pairs: tuple[StepPairs, ...], alone: tuple[int, ...], blocks: tuple[int, ...]
) -> tuple[tuple[StepPairs, ...], tuple[int, ...]]:
    """Blocks of steps as the steps of a menu, and how many whole ones of each meet the target alone."""
    whole = tuple(repeated(pair, size) for pair, size in zip(pairs, blocks, strict=True))
    return whole, tuple(number // size for number, size in zip(alone, blocks, strict=True))


def budgets(
    pairs: tuple[StepPairs, ...],
    costs: tuple[int, ...],
    targets: list[tuple[float, float]],
    alone: tuple[int, ...],
    progress: LevelProgress = lambda done, most: None,
) -> list[int]:
    """For each (epsilon, delta) the largest budget whose upper bound meets it.

    The second direction is only solved for targets that Renyi divergences do not prove for it at the budget found.

    Raises:
        UnsupportedError: the recursion would take too long.
    """
    menu = Menu(pairs, costs)
    most = max(1, *(number * cost for number, cost in zip(alone, costs, strict=True)))
    found = [2 * most + max(costs)] * len(targets)
    pending = set(range(len(targets)))
    for reverse in menu.directions:
        solved = _met(menu, reverse, {place: targets[place] for place in pending}, most, max(found), progress)
        found = [min(budget, solved.get(place, budget)) for place, budget in enumerate(found)]
        pending = {
            place
            for place, (epsilon, delta) in enumerate(targets)
            if found[place] and not menu.meets(found[place], epsilon, delta, not reverse)
        }
        if not pending:
            break
    return found


def _met(
    menu: Menu,
    reverse: bool,
    targets: Mapping[int, tuple[float, float]],
    most: int,
    highest: int,
    progress: LevelProgress,
) -> dict[int, int]:
    """For each target the largest budget, up to the highest, whose upper bound in one direction meets it."""
    smallest = min(delta for _, delta in targets.values())
    farthest = max(epsilon for epsilon, _ in targets.values())
    tilt = menu.tilt(most, smallest, reverse)
    reach = menu.reach(most, smallest, reverse)
    if tilt == 0.0:  # beyond epsilon and what steps may take back nothing is read off
        reach = min(reach, 1.2 * farthest + 3.0 * menu.deviation(most, reverse))
    lattice = menu.lattice(most, max(reach, 1.2 * farthest), tilt)
    # Tails of all steps together that are moved upward: a share of _TAILS of delta.
    levels = menu.upper_levels(lattice, reverse, _TAILS * smallest * min(menu.costs) / most)
    menu.check_work(levels, min(most, highest))
    found, open_targets = dict.fromkeys(targets, 0), set(targets)
    while open_targets and levels.level < highest:
        levels.advance()
        progress(levels.level, min(most, highest))
        for place in list(open_targets):
            epsilon, delta = targets[place]
            if levels.delta(epsilon) <= delta:
                found[place] = levels.level
            else:
                open_targets.remove(place)
    return found


def _gaussian(pairs: tuple[StepPairs, ...], epsilon: float, delta: float, alone: tuple[int, ...]) -> FilterRule:
    low, high = 0.0, 1.0
    while gaussian_epsilon_bounds(high, delta)[1] <= epsilon:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian_epsilon_bounds(middle, delta)[1] <= epsilon else (low, middle)
    shifts = [pair.shift for pair in pairs if pair.shift is not None]
    return FilterRule("gaussian", tuple(shift * shift * (1.0 + 1e-14) for shift in shifts), low * low, alone)


@implements("calipers:adaptive-renyi")
def _renyi(pairs: tuple[StepPairs, ...], epsilon: float, delta: float, alone: tuple[int, ...]) -> list[FilterRule]:
    """The Renyi filter of the order that keeps the largest smallest share; none where divergences are not finite."""
    menu = Menu(pairs, (1,) * len(pairs))
    best: tuple[float, float] = (0.0, 0.0)
    for order in _ORDERS.tolist():
        about = [
            max(
                math.fsum(n * menu.upper_pmf(s, way).cumulants(order)[0] for s, n in factors) / (order - 1.0)
                for way in menu.directions
                for factors in pair.dominating
            )
            for pair in pairs
        ]
        budget = _renyi_budget(order, epsilon, delta)
        share = min(budget / max(cost, 1e-300) / max(1, n) for cost, n in zip(about, alone, strict=True))
        best = max(best, (share, order))
    order = best[1]
    if order == 0.0:
        return []
    try:
        costs = tuple(max(renyi_above(factors, order) for factors in pair.dominating) * (1.0 + 1e-12) for pair in pairs)
    except UnsupportedError:
        return []
    return [FilterRule("renyi", costs, _renyi_budget(order, epsilon, delta), alone, order)]


def _renyi_budget(order: float, epsilon: float, delta: float) -> float:
    """The largest divergence of this order that implies (epsilon, delta); the conversion increases with it."""
    low, high = 0.0, epsilon
    if epsilon_from_rdp(np.array([order]), np.array([0.0]), delta) > epsilon:
        return 0.0
    while epsilon_from_rdp(np.array([order]), np.array([high]), delta) <= epsilon:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        fits = epsilon_from_rdp(np.array([order]), np.array([middle]), delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low
