"""Menu, costs and budget in: certified upper bounds over all policies, and tests of an explicit policy, out.

Both directions of every pair are solved separately, and the larger counts. The chosen numbers of this room stand in
`PRECISION`, each with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.adaptive.kernel import (
    LowerKernel,
    UpperKernel,
    lower_block,
    upper_block,
)
from calipers.adaptive.recursion import Lattice, PolicyLevels, UpperLevels
from calipers.adaptive.steps import StepPairs
from calipers.errors import UnsupportedError
from calipers.memoize import memoize
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair, DominatingPair


@dataclass(frozen=True)
class Precision:
    """Every number that was chosen; all of them change how wide the bounds are, none whether they hold."""

    resolution: float = 0.03
    """Cells of a step's PLD, in deviations of its observation: they add a share of about 1.5e-4 to its variance."""
    log_tail: float = -42.0
    """Tails of a step rarer than e^-42 are moved in the safe direction: 1,000 steps lose 6e-16 of delta."""
    finest: float = 8.0
    coarsest: float = 3.0
    """Lattice points in one deviation of a step's privacy loss: h = deviation / 4 adds 1 % to the variance above and
    takes 0.5 % off below, so that epsilon is known to about 0.8 %; 8 points make that 0.2 %."""
    closed: float = 1e-2
    """Bounds are called closed to this: what the coarsest lattice leaves between proof and attack."""
    work: float = 2e7
    """Lattice points times levels times steps of the menu that one direction may take: about half a second for the
    upper bound and a second for the policy. As fine a lattice as this allows is used."""
    most_work: float = 2e9
    """Points of transforms that a calibration may take, about half a minute; one that would take more is refused."""
    most_measured: float = 3e8
    """The same for one direction of a measurement, whose policy takes twice as long again: 20 seconds."""
    most_points: int = 400_000
    """Beyond so many lattice points even the coarsest lattice is refused."""
    deep: float = 1e-7
    """Deltas below this are computed with exponential tilting, since transforms err by about 1e-10 in all."""


PRECISION = Precision()
_TILTS = np.geomspace(0.1, 200.0, 60)


@dataclass(frozen=True)
class _LossLattice:
    """Variance of a step's privacy loss under P, and a loss that one of its factors rarely exceeds."""

    variance: float
    far: float

    @property
    def deviation(self) -> float:
        """Of the step."""
        return math.sqrt(self.variance)


def _loss(pmfs: Sequence[tuple[PrivacyLossPmf, int]]) -> _LossLattice:
    variance = far = 0.0
    for pmf, count in pmfs:
        variance += count * pmf.cumulants(1.0)[2]
        tail = np.cumsum(np.exp(pmf.log_p[::-1]))[::-1]
        far = max(far, float(np.max(pmf.log_ratio[tail > 1e-12], initial=0.0)))
    return _LossLattice(variance, far)


@dataclass(frozen=True, eq=False)
class Menu:
    """The pairs of all steps of a menu with their costs; every answer is computed once."""

    steps: tuple[StepPairs, ...]
    costs: tuple[int, ...]

    @property
    def directions(self) -> tuple[bool, ...]:
        """Whether to reverse the pairs; both ways where that makes a difference."""
        return (False,) if all(step.symmetric for step in self.steps) else (False, True)

    @property
    def attacked(self) -> bool:
        """Whether some step has an attack that a policy can use."""
        return any(step.attained for step in self.steps)

    @memoize
    def upper_pmf(self, source: DominatingPair, reverse: bool) -> PrivacyLossPmf:
        """The PLD that dominates one factor, in one direction."""
        pmf = source.upper(PRECISION.resolution, PRECISION.log_tail)
        return pmf.reverse() if reverse else pmf

    @memoize
    def lower_pmf(self, source: AttainedPair, reverse: bool) -> PrivacyLossPmf:
        """The PLD that an attack sees of one factor, in one direction."""
        pmf = source.lower(PRECISION.resolution, PRECISION.log_tail)
        return pmf.reverse() if reverse else pmf

    @memoize
    def losses(self, reverse: bool) -> tuple[_LossLattice, ...]:
        """The privacy losses of all steps, the worst of their neighbors."""
        found = []
        for step in self.steps:
            kinds = [_loss([(self.upper_pmf(s, reverse), n) for s, n in factors]) for factors in step.dominating]
            found.append(max(kinds, key=lambda loss: loss.variance))
        return tuple(found)

    @memoize
    def upper_kernels(self, step: float, reverse: bool, least: float) -> tuple[tuple[UpperKernel, int], ...]:
        """The kernels of all steps with their costs; a step with several kinds of neighbors has several."""
        found = []
        for own, cost in zip(self.steps, self.costs, strict=True):
            for factors in own.dominating:
                pmfs = [(self.upper_pmf(s, reverse), n) for s, n in factors]
                small = math.exp(PRECISION.log_tail) if sum(n for _, n in pmfs) > 1 else 0.0
                found.append((upper_block(pmfs, step, max(least, small)), cost))
        return tuple(found)

    @memoize
    def lower_kernels(self, step: float, reverse: bool) -> tuple[tuple[LowerKernel, int], ...]:
        """The kernels of the attacks with their costs."""
        found = []
        for own, cost in zip(self.steps, self.costs, strict=True):
            if own.attained:
                pmfs = [(self.lower_pmf(s, reverse), n) for s, n in own.attained]
                found.append((lower_block(pmfs, step, math.exp(PRECISION.log_tail)), cost))
        return tuple(found)

    def lattice(self, budget: int, reach: float, tilt: float = 0.0) -> Lattice:
        """Points of log k from -reach/2 on to reach, as fine as `PRECISION.work` allows for so many levels."""
        losses = [loss for reverse in self.directions for loss in self.losses(reverse)]
        deviation = min(loss.deviation for loss in losses)
        low, high = -max(0.5 * reach, 2.0 * deviation), reach
        span = high - low + max(loss.far for loss in losses)
        affordable = span * max(1, budget) * len(self.steps) / PRECISION.work
        step = min(max(deviation / PRECISION.finest, affordable), deviation / PRECISION.coarsest)
        if span / step > PRECISION.most_points:
            raise UnsupportedError(
                f"The privacy losses of the menu's steps differ too much: a lattice fine enough for the smallest of "
                f"them ({deviation:.2g}) would need {span / step:.0f} points. Leave out the step with the most noise, "
                "or put several of such steps into one block (steps = 100)."
            )
        return Lattice(step, math.floor(low / step), math.ceil(high / step), tilt)

    def check_work(self, levels: UpperLevels, budget: int) -> None:
        """Refuse what would take minutes, before it begins."""
        work = float(levels.length) * budget * len(self.steps)
        if work > PRECISION.most_work:
            raise UnsupportedError(
                f"The recursion over the remaining budget would take {budget} levels of {levels.length} points, "
                f"{work / PRECISION.most_work:.0f} times as long as is tried: that many steps fit the target. Use a "
                "larger sample rate with fewer steps, or PrivacyFilter(..., rule='renyi'), which allows less."
            )

    def check_measured(self, lattice: Lattice, reverse: bool, budget: int) -> None:
        """Refuse a measurement that would take minutes, before it begins."""
        levels = self.upper_levels(lattice, reverse)
        work = float(levels.length) * budget * len(self.steps)
        if work > PRECISION.most_measured:
            size = max(2, math.ceil(budget / min(self.costs) / 1000))
            raise UnsupportedError(
                f"The recursion over the remaining budget would take {budget} levels of {levels.length} points, "
                f"{work / PRECISION.most_measured:.2g} times as long as is tried. Put several steps into one block of "
                f"the menu (steps = {size}, the same costs, and a budget of {budget // size}): a block is paid when "
                "its first step is taken. PrivacyFilter and `calipers calibrate` choose such blocks by themselves."
            )

    def deviation(self, budget: int, reverse: bool) -> float:
        """The largest deviation of the total privacy loss within the budget, of one kind of step alone."""
        losses = zip(self.losses(reverse), self.costs, strict=True)
        return max(math.sqrt(budget / cost * loss.variance) for loss, cost in losses)

    def meets(self, budget: int, epsilon: float, delta: float, reverse: bool) -> bool:
        """Whether Renyi divergences prove (epsilon, delta) of all policies within the budget; False: they do not.

        W(k) <= P(L > k) + P(L = inf) <= V k^-theta + P(L = inf) with V at most the largest product of E_P[L^theta].
        """
        steps, aside, shift, rounding = budget / min(self.costs), 0.0, 0.0, 0.0
        for step in self.steps:
            for factors in step.dominating:
                pmfs = [(self.upper_pmf(source, reverse), count) for source, count in factors]
                aside = max(aside, math.fsum(count * pmf.p_inf for pmf, count in pmfs))
                shift = max(shift, math.fsum(count * pmf.shift_error for pmf, count in pmfs))
                rounding = max(rounding, math.fsum(count * pmf.rounding for pmf, count in pmfs))
        left = delta * (1.0 - 1e-6) - 1.001 * steps * aside
        if left <= 0.0:
            return False
        theta, proven = self._renyi(budget, left, reverse)
        return proven * (1.0 + 1e-6) + 1.001 * steps * (shift + rounding / theta) <= epsilon

    @memoize
    def _renyi(self, budget: int, delta: float, reverse: bool) -> tuple[float, float]:
        """(theta, epsilon): the best bound on epsilon at delta by one order 1 + theta, mass at infinity left aside."""
        growth = np.array(
            [
                max(
                    budget / cost * math.fsum(n * self.upper_pmf(s, reverse).cumulants(1.0 + t)[0] for s, n in factors)
                    for step, cost in zip(self.steps, self.costs, strict=True)
                    for factors in step.dominating
                )
                for t in _TILTS.tolist()
            ]
        )
        epsilons = (growth - math.log(delta)) / _TILTS
        best = int(np.argmin(epsilons))
        return float(_TILTS[best]), float(epsilons[best])

    def reach(self, budget: int, depth: float, reverse: bool) -> float:
        """A log k that all losses together exceed by far less than `depth`, by Renyi divergences."""
        return max(self._renyi(budget, 1e-4 * min(depth, 1e-6), reverse)[1], 1e-9)

    def tilt(self, budget: int, depth: float, reverse: bool) -> float:
        """theta for deltas near `depth`: 0 from `PRECISION.deep` on, else by the Renyi order that is best there."""
        if depth >= PRECISION.deep:
            return 0.0
        farthest = max(self.reach(budget, depth, reverse), *(loss.far for loss in self.losses(reverse)))
        return min(self._renyi(budget, depth, reverse)[0], 250.0 / farthest)  # e^{theta x} stays in range

    def upper_levels(self, lattice: Lattice, reverse: bool, least: float = 0.0) -> UpperLevels:
        """The upper recursion of one direction, at level 0; tails of a step of at most `least` are moved upward."""
        kernels, costs = zip(*self.upper_kernels(lattice.step, reverse, least), strict=True)
        return UpperLevels(kernels, costs, lattice)


@dataclass(frozen=True, eq=False)
class Solver:
    """Bounds of a menu at one budget."""

    menu: Menu
    budget: int

    @memoize
    def upper(self, depth: float) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """For each direction nodes epsilon >= 0, the first 0, and at least W there; W is convex in e^epsilon between.

        Args:
            depth: the delta that matters, 1 for all from `PRECISION.deep` on.
        """
        return tuple(self._direction(depth, reverse) for reverse in self.menu.directions)

    def _direction(self, depth: float, reverse: bool) -> tuple[FloatArray, FloatArray]:
        reach, tilt = self.menu.reach(self.budget, depth, reverse), self.menu.tilt(self.budget, depth, reverse)
        lattice = self.menu.lattice(self.budget, reach, tilt)
        self.menu.check_measured(lattice, reverse, self.budget)
        levels = self.menu.upper_levels(lattice, reverse)
        for _ in range(self.budget):
            levels.advance()
        x = lattice.x + levels.shift
        bound = (levels.excess() + np.maximum(-np.expm1(lattice.x), 0.0)) * math.exp(levels.shift) * (1.0 + 1e-12)
        above = x > 0.0
        nodes, values = np.concatenate(([0.0], x[above])), np.concatenate(([levels.delta(0.0)], bound[above]))
        return nodes, np.minimum(np.minimum.accumulate(values), 1.0)

    @memoize
    def tests(self, depth: float) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """For each direction (false positive rate, power) of tests of the policy, rounded against the attack."""
        if not self.menu.attacked:
            return ((np.array([0.0]), np.array([0.0])),)
        found = []
        for reverse in self.menu.directions:
            tilt = self.menu.tilt(self.budget, depth, reverse)
            lattice = self.menu.lattice(self.budget, self.menu.reach(self.budget, depth, reverse), tilt)
            self.menu.check_measured(lattice, reverse, self.budget)
            kernels, costs = zip(*self.menu.lower_kernels(lattice.step, reverse), strict=True)
            levels = PolicyLevels(kernels, costs, lattice)
            for _ in range(self.budget):
                levels.advance()
            found.append(levels.tests())
        return tuple(found)


def depth_of(delta: float) -> float:
    """1 for deltas that need no tilting, else the power of ten below: answers nearby share a recursion."""
    return 1.0 if delta >= PRECISION.deep else 10.0 ** math.floor(math.log10(max(delta, 1e-200)))
