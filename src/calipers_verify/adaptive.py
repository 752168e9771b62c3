r"""Steps that are chosen while the run goes on: a menu, whole costs and a budget, and the bound for every choice.

W_c(k) is the largest D at k of any policy that spends at most c and chooses each step by what it saw before. With the
next step of kind m, z = q/p of what it shows, the rest of the run is met at k z:

    W_0(k) = (1 - k)+,    W_c(k) <= max(W_0(k), max over m with c_m <= c of E_P[W_(c - c_m)(k z)]).

W_c is convex and decreasing in k with W_c(0) = 1, hence a mixture of a constant and of (1 - k/t)+ over t > 0. So a PLD
that dominates step m (`calipers_verify.pmfs`, total mass at least 1) makes the expectation larger:

    E_P[W(k z)] <= sum_i p_i W(k e^(-x_i)) + p_inf.

On a lattice of log k that is the one of the PLDs this is a product of whole numbers for each level and step. All of
them are rounded up; what lies outside the window [first, last] is bounded by the true W:

- left of it by the chord from W(0) = 1 to the value at `first` (convex),
- right of it by the value at `last` (decreasing).

**Known batches.** Gaussian releases with mu_1, mu_2, ... chosen one after the other, mu_1^2 + mu_2^2 + ... <= mu^2
always, show at most N(mu, 1) against N(0, 1): the log ratio is a Brownian motion whose clock is the sum, stopped before
mu^2. The largest sum that the budget admits is found level by level.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, fmpz, fmpz_poly

from calipers_verify.pmfs import LatticePmf
from calipers_verify.reading import Chosen, Refused, spend
from calipers_verify.shuffled import COUNT
from calipers_verify.steps import CUT, NOISE, SAMPLERS, Phase
from calipers_verify.stop_loss import ball

BITS = 128
UNIT = 1 << BITS
"""Values of the recursion are whole numbers of 2^-128: a level adds about 1e-38 times the points of a step."""
MOST_POINTS = 1 << 16
FRESH: dict[str, dict[str, Any]] = {
    "gaussian": {"steps": COUNT},
    "poisson": SAMPLERS["poisson"],
    "deterministic": SAMPLERS["deterministic"],
    "balls-and-bins": {**SAMPLERS["balls-and-bins"], "order": {"every-epoch"}},
    "shuffle": {**CUT, "order": {"every-epoch"}, "view": {"worst-case"}, "epochs": SAMPLERS["shuffle"]["epochs"]},
}
"""Steps whose batches are drawn afresh each time: one pair dominates them after every past."""
STEP = Chosen("sampler", {sampler: {"noise_multiplier": NOISE, **own} for sampler, own in FRESH.items()})
CHOICE = {"cost": range(1, 10**6 + 1), "step": STEP}
WINDOW = {"first": range(-MOST_POINTS, 1), "last": range(1, MOST_POINTS)}


class Curve(NamedTuple):
    """At least W at e^(place * spacing), for the places first, first + 1, ..."""

    spacing: Fraction
    first: int
    values: list[Any]

    def delta(self, epsilon: Fraction) -> arb:
        """At least W(e^epsilon): on the chord of both neighbors, or at the last place beyond it."""
        place = int(epsilon // self.spacing)
        at = min(place - self.first, len(self.values) - 1)
        left = arb(self.values[at]) / UNIT
        if at + 1 == len(self.values):
            return left
        right, step = arb(self.values[at + 1]) / UNIT, ball(self.spacing)
        share = (ball(epsilon - place * self.spacing).exp() - 1) / (step.exp() - 1)
        return left + (right - left) * share


class _Kernel(NamedTuple):
    """A PLD in 2^-128, rounded up."""

    low: int
    high: int
    masses: Any
    infinity: int
    cost: int


def all_policies(pmfs: Sequence[LatticePmf], costs: Sequence[int], budget: int, window: tuple[int, int]) -> Curve:
    """The recursion for all policies within the budget; what it will take is counted before it begins."""
    first, last = window
    if len({pmf.spacing for pmf in pmfs}) > 1:
        raise Refused("the distributions of all steps should end on one lattice")
    kernels = [_kernel(pmf, cost) for pmf, cost in zip(pmfs, costs, strict=True)]
    below, above = max(0, *(k.high for k in kernels)), max(0, *(-k.low for k in kernels))
    size = last - first + 1
    whole, kept = size + below + above, min(budget, max(costs))
    spend(budget * sum(whole + k.high - k.low + 20 for k in kernels) + 5 * kept * whole)
    step, start = ball(pmfs[0].spacing).exp(), ball(first * pmfs[0].spacing).exp()
    bottom = [max(fmpz(0), _up(1 - k)) for k in _powers(start, step, size)]
    falls = [-_up(-k) for k in _powers(1 / step, 1 / step, below)]
    past: deque[Any] = deque([_spread(bottom, falls, above)], maxlen=max(costs))
    values = bottom
    for level in range(1, budget + 1):
        values = bottom
        for kernel in kernels:
            if kernel.cost <= level:
                product = (past[-kernel.cost] * kernel.masses // fmpz(UNIT)).coeffs()
                start_at, more = below - kernel.low, kernel.infinity + 1
                product += [fmpz(0)] * (start_at + size - len(product))
                shown = product[start_at : start_at + size]
                values = [max(a, b + more) for a, b in zip(values, shown, strict=True)]
        values = [min(value, fmpz(UNIT)) for value in values]
        past.append(_spread(values, falls, above))
    return Curve(pmfs[0].spacing, first, values)


def _kernel(pmf: LatticePmf, cost: int) -> _Kernel:
    low, masses = pmf.row
    if len(masses) > MOST_POINTS or abs(low) > MOST_POINTS or low + len(masses) > MOST_POINTS:
        raise Refused(f"a distribution reaches beyond {MOST_POINTS} places")
    rounded = [-(-mass // UNIT) for mass in masses]  # from 2^-256
    return _Kernel(low, low + len(masses) - 1, fmpz_poly(rounded), -(-pmf.infinity // UNIT), cost)


def _spread(values: list[Any], falls: list[Any], above: int) -> Any:
    """The values on the window, on its left 1 - e^(-d h) (1 - value at first), on its right the last value."""
    left = [UNIT - ((UNIT - values[0]) * fall >> BITS) for fall in reversed(falls)]
    return fmpz_poly(left + values + [values[-1]] * above)


def _powers(start: arb, step: arb, count: int) -> Iterator[arb]:
    for _ in range(count):
        yield start
        start = start * step


def _up(value: arb) -> Any:
    return fmpz(int((value * UNIT).upper().ceil().unique_fmpz()))


def known_batches(steps: Sequence[Sequence[Phase]], costs: Sequence[int], budget: int) -> arb:
    """mu of what the budget admits at most if everybody knew which batches hold the record."""
    spend(10 * budget * (1 + len(costs)))
    squares = []
    for phases in steps:
        square = sum((phase.repeats * (4 if phase.replaced else 1) * phase.shift for phase in phases), Fraction(0))
        squares.append(-(-square.numerator * UNIT // square.denominator))
    best = [0] * (budget + 1)
    for level in range(1, budget + 1):
        fitting = [best[level - c] + square for square, c in zip(squares, costs, strict=True) if c <= level]
        best[level] = max(fitting, default=0)
    return (arb(fmpz(best[budget])) / UNIT).sqrt()
