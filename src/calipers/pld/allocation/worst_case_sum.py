"""The distribution of a sum of worst-case terms, on multi-resolution grids.

The divergence of a record hidden in one of M rounds is at most r/M E[(X_1 + ... + X_M - threshold)+] for independent
copies of its worst-case term (`calipers.pld.allocation.worst_case_term`), where r is the probability that it takes part
at all and

    threshold = M (1 - r)(k - 1)/r :

a record that sits out shows the same noise under both datasets. Splitting terms onto the places of a multi-resolution
grid (`calipers.pld.allocation.multi_resolution`) preserves their mean and makes the sum larger in convex order, so the
stop-loss transform can only grow.

Ends. A sum is asked only whether it passes the threshold, and by how much. So terms are clipped, at no risk: raising
the terms below `low` to it raises the sum, and

    (X_1 + ... + X_M - threshold)+  <=  (sum of min(X_t, high) - threshold)+  +  sum of (X_t - high)+,

whose last part has a closed form. It costs next to nothing where a term of `high` makes up for whatever else the sum
usually holds, and one of `low` for more than any other term can; with little noise it saves most of the
multi-resolution grid. The same is true of sums of a few terms, so multi-resolution grids end at -`high` and `high`: a
sum above is enough whatever else comes, up to a share of its worth that does not depend on how rare it is, and one
below seldom counts.

What is added. Observations beyond `end` are left out: their mass is at most 2 Phi(-end), and with them goes at most
E[A + k B] <= (1 + k) Phi(shift - end) of the first moment; (1 + k) >= E|X| stands where
`calipers.pld.allocation.average` has E[Y] = 1. Masses are known up to the multi-resolution grid's `error`. Values are
those of a slightly different k: with A and B known up to a factor 1 +- e, A - k e^(2e) B <= (1 + e)(A' - k B'), so a
node moves right by 2e.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from calipers.errors import CertificationError
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.normal import normal_tail_quantile
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.average import CELL_WEIGHTS, cell_error, cell_points, lattice_points, normal_cells, refined
from calipers.pld.allocation.fourier_sum import Payoff, RepeatedTerms
from calipers.pld.allocation.multi_resolution import (
    UNDERFLOW,
    MultiResolutionSum,
    ResolutionPlan,
    added,
    multiplied,
    placed,
)
from calipers.pld.allocation.resolution_plan import resolution_plans, typical
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

_CELL, _PLAIN_CELL = 0.05, 0.2
"""Cells of a term, and of one by which only choices are made, in deviations of the noise."""
_LITTLE_NOISE, _FEW_ROUNDS = 2.0, (64, 10_000)
"""Shift of one release from which on, and rounds up to which, sums near 0 are resolved."""
_DEEPEST = -620.0
"""The least log tail of a sum: deeper, products of probabilities leave the doubles."""
_LARGEST_ERROR = 0.1
"""Where masses have fewer digits than this the sum bounds nothing."""
_SELDOM = 1e-5
"""How often an epoch may have a term beyond those that its range is chosen by: such terms are clipped."""
_SPREADS = 6.0
"""How often a term of the size of the upper end may fail to make up for another one, and how many deviations of the sum
it has to make up for."""
_CLOSED_FORM = 1e-12
"""Relative slack of a difference of normal distribution functions."""


@dataclass(frozen=True)
class WorstCaseSum:
    """`rounds` copies of a term, resolved down to probabilities of about e^log_tail."""

    term: WorstCaseTerm
    rounds: int
    log_tail: float
    clipped: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def deep(cls, term: WorstCaseTerm, rounds: int, log_tail: float) -> WorstCaseSum:
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

    @property
    def _noise(self) -> tuple[FloatArray, FloatArray]:
        """Terms and their density on a plain mesh, for choices that decide cost, not truth."""
        return _plain(self.term, self.end)

    def ended(self, threshold: float) -> WorstCaseSum:
        """With terms clipped where that hardly changes the stop-loss transform at the threshold."""
        values, density = self._noise
        seldom = float(normal_tail_quantile(_SELDOM / self.rounds))
        rare = max(-float(self.term.value(np.array([-seldom]))[0]), self.term.crossing)
        center, spread = (float(found[0]) for found in typical(values, density, np.array([float(self.rounds)])))
        high = threshold + max(-center, 0.0) + _SPREADS * spread + 2.0 * rare
        low = -min(high, 4.0 * max(float(values[-1]), rare))
        return replace(self, clipped=(low, high))

    @property
    def beyond(self) -> float:
        """At least E[(X - high)+], which is added to the stop-loss transform for every term."""
        if self.clipped[1] >= self.term.value(np.array([self.end]))[0]:
            return 0.0  # observations beyond the end are added anyhow
        z = float(self.term.branches[0].preimage(np.array([self.clipped[1]]))[0])
        whole = float(ndtr(self.term.right[0] - z))
        others = math.exp(self.term.epsilon) * float(ndtr(self.term.right[1] - z))
        return max(whole - others - self.clipped[1] * float(ndtr(-z)), 0.0) + _CLOSED_FORM * whole

    @property
    def rounding(self) -> float:
        """A and B are known up to a factor 1 +- this."""
        shift = self.term.farthest_shift
        return (shift * self.end + shift * shift + 8.0 + self.term.epsilon) * 4.0 * UNIT_ROUNDOFF

    @property
    def node(self) -> float:
        """The epsilon for which the sum stands: that of the term up to rounding."""
        return self.term.epsilon + 2.02 * self.rounding

    def plans(self, resolution: float) -> list[ResolutionPlan]:
        """How to keep the sum."""
        values, density = self._noise
        # A plan is about typical sums; both ends are as heavy as lognormals, and would drown them in rounding.
        usual_end = float(normal_tail_quantile(1e-3 / self.rounds))
        farthest = float(np.max(np.abs(self.term.value(np.array([-usual_end, usual_end])))))
        scores = np.clip(values, -farthest, farthest)
        ends = -self.clipped[1], self.clipped[1]
        found = resolution_plans(scores, density, self.rounds, resolution, self.term.width, self.log_tail)
        usual = [replace(plan, ends=ends) for plan in found]
        # With little noise a few rounds can all lie where A = k B, far from where the sum usually is.
        step = resolution * min(self.term.width, 1.0) * self.term.crossing
        rough = math.ldexp(usual[-1].step, usual[-1].lowest) > step
        if not rough or self.rounds > _FEW_ROUNDS[self.term.width > _LITTLE_NOISE]:
            return usual
        return [replace(plan, step=step, center=0.0, lowest=0) for plan in usual]

    def one(self, plan: ResolutionPlan, shifts: tuple[float, ...] = ()) -> MultiResolutionSum:
        """One term under noise, and shifted by each of `shifts`, split onto the places of a multi-resolution grid."""
        low, high = (float(v) for v in np.clip(self.term.value(np.array([-self.end, self.end])), *self.clipped))
        bends = np.concatenate(([low], lattice_points(plan, low, high), [high]))
        kinks = np.concatenate((self.term.preimages(bends), self.term.flat))
        inner = np.unique(kinks[(kinks > -self.end) & (kinks < self.end)])
        points, widths = cell_points(refined(np.concatenate(([-self.end], inner, [self.end]))))
        values = np.clip(self.term.value(points), low, high)
        rows = np.stack([np.exp(-0.5 * (points - shift) ** 2) for shift in (0.0, *shifts)])
        masses, worths = rows @ CELL_WEIGHTS, (rows * values) @ CELL_WEIGHTS
        # Between two places a split is linear: a cell is split as its mean is.
        anywhere = np.broadcast_to(values[:, 0], masses.shape).copy()  # where there is no mass
        means = np.divide(worths, masses, out=anywhere, where=masses > 0.0)
        error = cell_error(self.end + self.term.farthest_shift, 0.5 * _CELL)
        one = placed(means, masses * (widths / math.sqrt(2.0 * math.pi)), plan, error, float(self.rounds))
        beyond = 2.0 * math.exp(self.log_loss)
        return replace(one, lost=one.lost + beyond, lost_moment=one.lost_moment + beyond)

    def terms(self, plan: ResolutionPlan, step: float) -> tuple[RepeatedTerms, float, float]:
        """All terms on one lattice of this step, and the mass and moment that their sum lost."""
        one = self.one(plan)
        lost = 1.01 * self.rounds * one.lost + UNDERFLOW
        return RepeatedTerms.of(one, step, self.rounds), lost, 1.01 * one.lost_moment + lost

    def left_out(self, lost_moment: float) -> float:
        """What clipping and lost observations take from an increasing payoff of slope at most one."""
        return self.rounds * (self.beyond + (1.0 + math.exp(self.term.epsilon)) * lost_moment)


@lru_cache(maxsize=64)
def _plain(term: WorstCaseTerm, end: float) -> tuple[FloatArray, FloatArray]:
    mesh, weights = normal_cells(refined(np.array([-end, end]), _PLAIN_CELL))
    density = (np.exp(-0.5 * mesh * mesh) * weights).ravel() / math.sqrt(2.0 * math.pi)
    with np.errstate(over="ignore"):
        values = term.value(mesh).ravel()
    if not np.all(np.isfinite(values)):
        raise CertificationError(
            "Likelihood ratios of single rounds leave the range of doubles: so little noise hides nothing, and no "
            "bound is computed for it. Use a larger noise_multiplier."
        )
    return values, density


def threshold_of(term: WorstCaseTerm, rounds: int, participation: float) -> tuple[float, float]:
    """The threshold, and how far rounding may have moved it: the participation it is made of is rounded too."""
    if participation == 1.0:
        # One that was rounded to this has a larger threshold, where a stop-loss transform is worth less.
        return 0.0, 0.0
    threshold = rounds * (1.0 - participation) * math.expm1(term.epsilon) / participation
    return threshold, 8.0 * UNIT_ROUNDOFF * (threshold + rounds * math.expm1(term.epsilon) / participation)


def divergence(
    term: WorstCaseTerm, rounds: int, participation: float, resolution: float, log_tail: float
) -> tuple[float, float]:
    """The divergence that a sum of worst-case terms bounds, at one epsilon (docs/theory/shuffling.md, section 7).

    Args:
        term: The worst-case term at epsilon >= 0.
        rounds: How many independent copies there are, M.
        participation: The probability r in (0, 1] that the record takes part.
        resolution: Of the multi-resolution grid; a smaller one gives a smaller delta.
        log_tail: About the logarithm of the mass that may be cut, and is added.

    Returns:
        (node, delta) with r/M E[(X_1 + ... + X_M - threshold)+] at the node at most delta <= 1; the node is the term's
        epsilon up to rounding, and no less.
    """
    threshold, rounded = threshold_of(term, rounds, participation)
    total = WorstCaseSum.deep(term, rounds, log_tail).ended(threshold)
    gain = float(expected_payoff(total, lambda sums: np.maximum(sums - threshold + rounded, 0.0), resolution))
    return total.node, min(1.0, participation * gain / rounds * (1.0 + 2.0 * total.rounding))


def rough_stop_losses(
    term: WorstCaseTerm, rounds: int, resolution: float, log_tail: float
) -> tuple[FloatArray, FloatArray]:
    """m = 1, 2, 4, ... up to `rounds`, and about E[(X_1 + ... + X_m)+] / m: for choices, as nothing is added."""
    total = WorstCaseSum.deep(term, rounds, log_tail).ended(0.0)
    plans = total.plans(resolution)
    power, stop_losses = total.one(plans[0]), []
    for plan in plans:
        power = power if plan is plans[0] else added(power, power, plan, 1.0)
        values, masses = power.flat()
        stop_losses.append(max(float(masses[0] @ np.maximum(values, 0.0)) / power.terms, 1e-300))
    return np.ldexp(1.0, np.arange(len(plans))), np.array(stop_losses)


def expected_payoff(total: WorstCaseSum, payoff: Payoff, resolution: float) -> FloatArray:
    """At least E[payoff(X_1 + ... + X_M)], or that of each row of payoffs; infinite if the grid has no digits left.

    Payoffs are convex and increasing with slope at most one.
    """
    found = on_grid(total, resolution)
    at_zero = np.asarray(payoff(np.zeros(1))[..., 0])
    if found.error > _LARGEST_ERROR:  # masses without digits bound nothing
        return np.full(at_zero.shape, math.inf)
    values, masses = found.flat()
    # Places are products, each with a rounding of its own.
    there = values + 8.0 * UNIT_ROUNDOFF * np.abs(values)
    with_error = payoff(there) @ masses[0] * ((1.0 + 4.0 * len(values) * UNIT_ROUNDOFF) / (1.0 - found.error))
    return np.asarray(with_error + found.above + total.left_out(found.lost_moment) + 2.0 * at_zero * found.lost)


def on_grid(total: WorstCaseSum, resolution: float, shifts: tuple[float, ...] = ()) -> MultiResolutionSum:
    """The distribution of the sum under noise, and with one round shifted by each of `shifts`."""
    plans = total.plans(resolution)
    return multiplied(total.one(plans[0], shifts), total.rounds, plans)
