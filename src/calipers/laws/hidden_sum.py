"""The law of a sum of hidden terms, on ladders, and the divergence it bounds.

The divergence of a record hidden in one of M rounds is at most r/M E[(X_1 + ... + X_M - strike)+] for independent
copies of its worst term (`calipers.laws.hidden_term`), where r is the probability that it takes part at all and

    strike = M (1 - r)(k - 1)/r :

a record that sits out shows the same noise under both datasets. Splitting terms onto the places of a ladder
(`calipers.laws.average_ladder`) preserves their mean and makes the sum larger in convex order, so the call can only
grow.

What is charged. Observations beyond `end` are left out: their mass is at most 2 Phi(-end), and with them goes at most
E[A + k B] <= (1 + k) Phi(shift - end) of the first moment; (1 + k) >= E|X| stands where `calipers.laws.average` has
E[Y] = 1. Masses are known up to the ladder's `error`. Values are those of a slightly different k: with A and B known up
to a factor 1 +- e, A - k e^(2e) B <= (1 + e)(A' - k B'), so a node moves right by 2e.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.laws.average import cell_error, lattice_points, normal_cells, refined
from calipers.laws.average_ladder import Ladder, LadderPlan, multiplied, placed
from calipers.laws.average_plan import ladder_plans
from calipers.laws.hidden_term import HiddenTerm
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.normal import normal_tail_quantile

_CELL = 0.05
_FEW_ROUNDS, _FEW_ROUNDS_LITTLE_NOISE = 64, 10_000
_DEEPEST = -620.0
_LARGEST_ERROR = 0.1


@dataclass(frozen=True)
class HiddenSum:
    """`rounds` copies of a term, resolved down to probabilities of about e^log_tail."""

    term: HiddenTerm
    rounds: int
    log_tail: float

    @classmethod
    def deep(cls, term: HiddenTerm, rounds: int, log_tail: float) -> HiddenSum:
        """As deep as needed so that what is cut, which counts 1 + k times, costs about e^log_tail."""
        return cls(term, rounds, max(log_tail - term.epsilon, _DEEPEST))

    @property
    def log_loss(self) -> float:
        """Log of the mass, and of the moments of A and B, that one term may lose."""
        return self.log_tail - math.log(self.rounds) - 4.0

    @property
    def end(self) -> float:
        """Where observations are cut: E[A; z > end] = Phi(shift - end) <= e^log_loss."""
        return math.sqrt(-2.0 * self.log_loss) + self.term.farthest_shift

    def plans(self, resolution: float) -> list[list[LadderPlan]]:
        """How to keep the sum: one way, or two for few rounds."""
        mesh, weights = normal_cells(refined(np.array([-self.end, self.end])))
        density = (np.exp(-0.5 * mesh * mesh) * weights).ravel() / math.sqrt(2.0 * math.pi)
        # A plan is about typical sums; both ends are as heavy as lognormals, and would drown them in rounding.
        usual_end = float(normal_tail_quantile(1e-3 / self.rounds))
        farthest = float(np.max(np.abs(self.term.value(np.array([-usual_end, usual_end])))))
        scores = np.clip(self.term.value(mesh).ravel(), -farthest, farthest)
        usual = ladder_plans(scores, density, self.rounds, resolution, self.term.width, self.log_tail)
        if self.rounds > (_FEW_ROUNDS if self.term.width <= 2.0 else _FEW_ROUNDS_LITTLE_NOISE):
            return [usual]
        # A few rounds can all lie where A = k B, far from where the sum usually is.
        step = resolution * min(self.term.width, 1.0) * self.term.crossing
        return [usual, [LadderPlan(step, plan.grain, 0.0, 0, plan.log_loss) for plan in usual]]

    def ladder(self, plans: Sequence[LadderPlan], shifts: tuple[float, ...] = ()) -> Ladder:
        """The law of the sum under noise, and with one round shifted by each of `shifts`."""
        low, high = (float(v) for v in self.term.value(np.array([-self.end, self.end])))
        kinks = np.concatenate((self.term.preimages(lattice_points(plans[0], low, high)), self.term.flat))
        inner = np.unique(kinks[(kinks > -self.end) & (kinks < self.end)])
        points, weights = normal_cells(refined(np.concatenate(([-self.end], inner, [self.end]))))
        rows = [
            (np.exp(-0.5 * (points - shift) ** 2) * weights).ravel() / math.sqrt(2.0 * math.pi)
            for shift in (0.0, *shifts)
        ]
        error = cell_error(self.end + self.term.farthest_shift, 0.5 * _CELL)
        one = placed(self.term.value(points).ravel(), np.stack(rows), plans[0], error, float(self.rounds))
        beyond = 2.0 * math.exp(self.log_loss)
        one = replace(one, lost=one.lost + beyond, lost_moment=one.lost_moment + beyond)
        return multiplied(one, self.rounds, plans)


def divergence(
    term: HiddenTerm, rounds: int, participation: float, resolution: float, log_tail: float
) -> tuple[float, float]:
    """(node, delta): r/M E[(X_1 + ... + X_M - strike)+] at the node is at most delta <= 1.

    The node is the term's epsilon >= 0 up to rounding. A smaller `resolution` gives a smaller delta.
    """
    epsilon, k = term.epsilon, math.exp(term.epsilon)
    strike = rounds * (1.0 - participation) * math.expm1(epsilon) / participation
    total = HiddenSum.deep(term, rounds, log_tail)
    best = 1.0
    for plans in total.plans(resolution):
        ladder = total.ladder(plans)
        values, (noise,) = ladder.flat()
        if ladder.error > _LARGEST_ERROR:
            continue  # masses without digits bound nothing
        above = values > strike
        gain = float(np.sum(noise[above] * (values[above] - strike))) / rounds
        # The strike is rounded too, and so is the participation it is made of.
        rounded = 8.0 * UNIT_ROUNDOFF * (strike + rounds * math.expm1(epsilon) / participation)
        gain += rounded * float(np.sum(noise[above])) / rounds
        charged = gain * (1.0 + 4.0 * len(values) * UNIT_ROUNDOFF) / (1.0 - ladder.error)
        best = min(best, participation * (charged + (1.0 + k) * ladder.lost_moment))
    shift = term.farthest_shift
    error = (shift * total.end + shift * shift + 8.0 + epsilon) * 4.0 * UNIT_ROUNDOFF
    return epsilon + 2.02 * error, min(1.0, best * (1.0 + 2.0 * error))
