"""One record thrown into one of M rounds: the distribution of a mean of M independent likelihood ratios.

A record takes part in exactly one round of an epoch, drawn uniformly and independently of everything
else (balls-and-bins sampling; for shuffled batches it is what an observer sees who knows nothing
about the other records' positions). With the record zeroed out the M rounds show standard noise Q; with
it, round t is shifted by 1/sigma. So P is a mixture of M shifts, and

    L = dP/dQ = (1/M) sum_t Y_t,      Y_t = exp(x_t/sigma - 1/(2 sigma^2)),      E_Q[Y_t] = 1.

UPPER. Rounding each Y to lattice points with its mean preserved makes the sum larger in convex order,
so the PLD of the rounded mean dominates. What falls beyond the lattice, base mass q and first moment
p, is moved to L = 0 and L = infinity, which spreads it further.

LOWER. The rounded sum is a statistic (rounding uses coins that depend on nothing), so its PLD under Q
and under P, where one term at a uniformly random place follows N(1/sigma, 1), is a pair that the truth
dominates. What falls beyond the lattice counts as "do not reject", in every test.

Both come from one computation (`calipers.pld.allocation.multi_resolution`), accurate relative to every mass.

Rounding. Let a doubling compute every mass of the exact product of its inputs with a relative error of
at most e, and let `drift` be the sum of e over one chain of doublings.

- LOWER. The observer may erase: at every block of terms, after looking at its value, report "nothing"
  with a small probability that depends on the value only. Erasing at most a share 2e makes the base PLD of the
  block *equal* to a constant times the computed vector. The constant, the same for P and Q, multiplies over
  blocks to at least e^(-error); the PLD of a block that holds the marked term is then known up to the factor
  (1 +- 2e) once, and not once per block. So both rows are scaled by e^(-error), and what is left is a relative error
  of 2 drift in p against q.
- UPPER. Write nu for a computed vector divided by its sum, and kappa for the exact PLD it stands for (its mass is
  at most 1). Then kappa <= (1 + 2e) nu, so every stop-loss transform of kappa is at most 1 + 2e times that of nu, which
  is at most the stop-loss transform of (1 + 2e) X, X ~ nu: kappa is below a nu *scaled* by 1 + 2e in the increasing
  convex order, which sums preserve with the same factor. For puts, that of X - a with a = 9 e E[X] suffices: up to
  twice the mean because k F(k) >= put(k), beyond it because the means differ by at most a share 2e and half of the mass
  lies below. So a shift of log L by 2 drift, or by 9 drift / min L, covers everything, whatever M is. For small M it is
  simpler to charge `error` itself.

A record that takes part in an epoch only with probability r (leftover records of a data loader are random)
has P' = (1 - r) Q + r P under zero-out adjacency, since a record that is left out shows the same noise as a
zeroed one. Hence L' = 1 - r + r L, exactly, on both sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from calipers.citations import implements
from calipers.domains import POSITIVE_PROBABILITY, Domain
from calipers.errors import CertificationError
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.multi_resolution import ResolutionPlan, multiplied, placed
from calipers.pld.allocation.resolution_plan import resolution_plans
from calipers.pld.core.gaussian_part import gaussian_pair
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf
from calipers.pld.core.source import TwoSidedPair

_NODES, CELL_WEIGHTS = np.polynomial.legendre.leggauss(8)
"""Gauss-Legendre rule of a cell."""
_CELL_WIDTH = 0.05
"""Width of the cells that the normal density is integrated over, in deviations of the noise."""
SIGMA = Domain(0.1, 100.0)
"""Noise multipliers that an epoch of one pass may have."""
LITTLE = Domain(0.06, 100.0)
"""What one pair can have: a record that sits in the same batch in every epoch is seen at sigma / sqrt(E)."""
ROUNDS = Domain(1, 10**11, integer=True)
"""Batches of an epoch."""
_LOWEST_LOG_TAIL = -560.0
"""The log of the least probability that is looked at: deeper, products of probabilities leave the doubles."""
FINEST_RESOLUTION = 0.02
"""Where a PLD is built in about a second; a smaller resolution gives this one, which is as valid, only less tight."""
_RESOLUTIONS, _COARSE = (0.02, 0.05, 0.08, 0.12, 0.2, 0.35, 0.6, 1.0), 0.12
"""Cells that PLDs are built with, so that questions share them; little noise has those from the second number on."""
_DEEP = -70.0
"""Deeper PLDs, and coarse ones, have no masses under P: nobody asks for them."""
_LITTLE_NOISE, _SHALLOWEST = 0.3, -52.0
"""Where PLDs are long to build, and the depth of the one that epsilons, curves and distances share there."""
_MANY_ROUNDS, _FINEST_OF_MANY = 10**6, 0.035
"""Sums of so many terms are longer to build, and a little less fine: brackets still close to 1e-3."""
_DEPTHS = 26.0
"""Depths come in steps of this size (of a log), so that questions share PLDs."""
_SINGLE_MARGIN, _SINGLE_CURVE = 11.0, -39.0
"""How much deeper than its curve the PLD of a single epoch is, and the depth that usual curves share."""
_MASS_ERROR_TERM = 1e-8
"""Masses that are known no better than this share are made to add up to 1, and ratios pay for it,"""
_SHIFT_ERROR_TERM = 1e-6
"""if that moves them by less than this (of a log)."""


def normal_cells(ends: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Quadrature points (cells x 8) and weights between consecutive `ends`."""
    points, half = cell_points(ends)
    return points, half[:, None] * CELL_WEIGHTS


def cell_points(ends: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same points, and half of the width of each cell: weights are their products with `CELL_WEIGHTS`."""
    half = 0.5 * np.diff(ends)
    return ends[:-1, None] + half[:, None] * (1.0 + _NODES), half


def cell_error(slope: float, half_width: float) -> float:
    """Relative error of the integral over a cell of a normal density times a smooth share.

    `slope` bounds the derivative of the log of the integrand. Quadrature: Trefethen, Approximation Theory and
    Approximation Practice, Theorem 19.3, on the best of a few Bernstein ellipses, whose long half axis is
    `reach`; a factor 64 covers the smallest ratio of such an integral to the maximum of its integrand. Rounding:
    exp(-z^2/2) inherits z^2/2 units in the last place from its argument.
    """
    best = math.inf
    for rho in (4.0, 8.0, 16.0, 24.0, 32.0, 64.0, 128.0):
        reach = 0.5 * half_width * (rho + 1.0 / rho)
        best = min(best, slope * (reach + half_width) + 0.5 * reach**2 - (2 * len(_NODES) - 1) * math.log(rho))
    error = 64.0 * math.exp(min(best, 0.0)) + (slope * slope + 40.0) * UNIT_ROUNDOFF
    if error > 1e-9:
        raise CertificationError(
            f"Cells of half width {half_width:.2g} are too wide for their error bound ({error:.2g})."
        )
    return error


def refined(ends: FloatArray, width: float = _CELL_WIDTH) -> FloatArray:
    """The same partition with cells cut into equal parts no wider than `width`."""
    parts = np.maximum(np.ceil(np.diff(ends) / width), 1.0).astype(np.intp)
    starts = np.repeat(ends[:-1], parts)
    index = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    inner = starts + np.repeat(np.diff(ends) / parts, parts) * index
    return np.append(inner, ends[-1])


@dataclass(frozen=True)
class _Allocation:
    """Values of M L and their masses under Q (row 0) and, where they were asked for, under P (row 1)."""

    values: FloatArray
    rows: FloatArray
    error: float
    drift: float
    value_error: float
    lost_q: float
    lost_p: float


def lattice_points(plan: ResolutionPlan, low: float, high: float) -> FloatArray:
    """All places of the multi-resolution grid between `low` and `high`, where the split of one term has its kinks."""
    far = max(plan.center - low, high - plan.center) / plan.radius(plan.lowest)
    top = plan.lowest + max(0, math.ceil(math.log2(far)) if far > 0.0 else 0)
    points = _places(plan, top if plan.radius(top) >= far * plan.radius(plan.lowest) else top + 1)
    return points[np.searchsorted(points, low, "right") : np.searchsorted(points, high, "left")]


@lru_cache(maxsize=8)
def _places(plan: ResolutionPlan, top: int) -> FloatArray:
    """All places up to this level; terms that share a multi-resolution grid reach about as far."""
    pieces, inner = [], 0.0
    for e in range(plan.lowest, top + 1):
        unit, radius = math.ldexp(plan.step, e), plan.radius(e)
        for left, right in ((plan.center - radius, plan.center - inner), (plan.center + inner, plan.center + radius)):
            pieces.append(np.arange(math.floor(left / unit), math.ceil(right / unit) + 1) * unit)
        inner = radius
    return np.unique(np.concatenate(pieces))


@lru_cache(maxsize=12)
def _allocation(sigma: float, rounds: int, resolution: float, log_tail: float, under_p: bool) -> _Allocation:
    """The sum of so many rounds, with masses `under_p` or without."""
    width = 1.0 / sigma
    log_loss = log_tail - math.log(rounds) - 4.0
    reach = math.sqrt(-2.0 * log_loss)  # Phi(-reach) <= e^log_loss
    low, high = -reach, reach + width
    mesh, mesh_weights = normal_cells(refined(np.array([low, high])))
    values = np.exp(width * mesh - 0.5 * width * width).ravel()
    density = (np.exp(-0.5 * mesh * mesh) * mesh_weights).ravel() / math.sqrt(2.0 * math.pi)
    plans = resolution_plans(values, density, rounds, resolution, width, log_tail)
    kinks = lattice_points(plans[0], float(values[0]), float(values[-1]))
    ends = np.concatenate(([low], (np.log(kinks) + 0.5 * width * width) / width, [high]))
    points, weights = normal_cells(refined(ends))
    scaled = weights / math.sqrt(2.0 * math.pi)
    densities = [np.exp(-0.5 * (points - shift) ** 2) * scaled for shift in ((0.0, width) if under_p else (0.0,))]
    terms = np.exp(width * points - 0.5 * width * width).ravel()
    error = cell_error(high + width, 0.5 * _CELL_WIDTH)
    one = placed(terms, np.stack([density.ravel() for density in densities]), plans[0], error, float(rounds))
    beyond = math.exp(log_loss)
    one = replace(one, lost=one.lost + 2.0 * beyond, lost_moment=one.lost_moment + 2.0 * beyond)
    total = multiplied(one, rounds, plans)
    value_error = (width * high + width * width + 8.0) * 4.0 * UNIT_ROUNDOFF
    return _Allocation(*total.flat(), total.error, total.drift, value_error, total.lost, total.lost_moment)


def shared_depth(log_tail: float) -> float:
    """The next of a few depths, so that questions about one epoch find its PLD already there."""
    return max(-_DEPTHS * math.ceil(-log_tail / _DEPTHS), _LOWEST_LOG_TAIL)


def single_depth(smallest_delta: float) -> float:
    """The same for the curve of one epoch down to `smallest_delta`, and one depth more, of the usual curve."""
    log_tail = math.log(smallest_delta) - _SINGLE_MARGIN
    return _SINGLE_CURVE if _SINGLE_CURVE <= log_tail < _SINGLE_CURVE + 1.0 else shared_depth(log_tail)


@dataclass(frozen=True)
class AllocatedEpoch:
    """One epoch in which a record shows up in one of `rounds` rounds, uniformly, with probability `participation`."""

    sigma: float
    rounds: int
    participation: float = 1.0
    noises: ClassVar[Domain] = SIGMA

    def __post_init__(self) -> None:
        for name, domain in (("sigma", self.noises), ("rounds", ROUNDS), ("participation", POSITIVE_PROBABILITY)):
            object.__setattr__(self, name, domain.check(name, getattr(self, name)))

    @property
    def shift(self) -> float:
        """mu of one release whose time is known."""
        return 1.0 / self.sigma

    @property
    def symmetric(self) -> bool:
        """Only one round with certain participation gives the same PLD in both directions."""
        return self.rounds == 1 and self.participation == 1.0

    @property
    def slope(self) -> float:
        """Of a release whose time is known."""
        return self.shift

    def known_moment(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order], order > 1, in either direction: whether and when the record shows up is
        revealed.
        """
        del reverse
        return float(mixed_log_moment(self.participation, 0.5 * order * (order - 1.0) * self.shift**2))


def mixed_log_moment(probability: float, log_moment: float) -> float:
    """log(1 - p + p e^log_moment), rounded up: a pair that is met with probability p, which is revealed."""
    value = (
        log_moment
        if probability == 1.0
        else float(np.logaddexp(math.log1p(-probability), math.log(probability) + log_moment))
    )
    return value * (1.0 + 1e-13) + 1e-15


@implements("calipers:allocation")
@dataclass(frozen=True)
class AllocationPair(AllocatedEpoch, TwoSidedPair):
    """The pair of an allocated epoch whose record, if it shows up, adds its gradient to the noise of its round.

    `upper` dominates the pair at every epsilon in both directions, `lower` is dominated by it. A smaller
    `resolution` is tighter, down to `FINEST_RESOLUTION`: brackets close like its square,
    to a relative width of 1e-4 there.
    """

    noises: ClassVar[Domain] = LITTLE
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0
    moment_depth: ClassVar[float] = -400.0

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The pessimistic PLD of L = dP/dQ (docs/theory/shuffling.md, section 6).

        Args:
            resolution: In deviations of log L, about; from a few values, down to `FINEST_RESOLUTION`.
            log_tail: About the logarithm of the mass that may lie beyond the lattice, and is added.

        Returns:
            A PLD whose divergence is at least that of the pair at every epsilon, in both directions.
        """
        if self.rounds == 1:
            return gaussian_pair(self.shift).upper(resolution, log_tail).subsample(self.participation)
        return _upper(self._summed(resolution, log_tail, False), self.rounds).subsample(self.participation)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The optimistic PLD of L; arguments as for `upper`.

        Returns:
            A PLD whose divergence is at most that of the pair at every epsilon, in both directions.
        """
        if self.rounds == 1:
            return gaussian_pair(self.shift).lower(resolution, log_tail).subsample(self.participation)
        return _lower(self._summed(resolution, log_tail, True)).subsample(self.participation)

    def _summed(self, resolution: float, log_tail: float, attacked: bool) -> _Allocation:
        POSITIVE_PROBABILITY.check("resolution", resolution)
        shared = self.sigma < _LITTLE_NOISE
        log_tail = min(log_tail, _SHALLOWEST) if shared else log_tail
        finest = FINEST_RESOLUTION if self.rounds <= _MANY_ROUNDS else _FINEST_OF_MANY
        # Building a PLD costs more than composing it: whoever asks for many resolutions is given a few.
        below = [step for step in _RESOLUTIONS if finest <= step <= resolution and (step >= _COARSE or not shared)]
        cells = max(below, default=finest)
        # Pilots are coarse, PLDs for moments and groups are deep, and both are UPPER: nobody asks for masses under P.
        under_p = attacked or (cells < _COARSE and log_tail > _DEEP)
        return _allocation(self.sigma, self.rounds, cells, max(log_tail, _LOWEST_LOG_TAIL), under_p)


def _upper(found: _Allocation, rounds: int) -> PrivacyLossPmf:
    """Atoms p = l q at l = value / M, and the lost part at 0 and infinity."""
    positive = (found.values > 0) & (found.rows[0] > 0)
    ratio = np.log(found.values[positive] / rounds)
    masses = found.rows[0, positive]
    at_zero = float(found.rows[0, found.values == 0].sum())
    mass_error, shift = found.error, 0.0
    down = 9.0 * found.drift * math.exp(-float(ratio[0]))
    if found.error > _MASS_ERROR_TERM and at_zero == 0.0 and down < _SHIFT_ERROR_TERM:
        masses = masses / math.fsum(masses)
        mass_error, shift = 0.0, 1.01 * max(down, 2.0 * found.drift)
    log_q = np.log(masses)
    return PrivacyLossPmf.dominating(
        ratio,
        log_q,
        p_inf=min(1.0, found.lost_p),
        q_zero=min(1.0, at_zero * (1.0 + found.error) + found.lost_q),
        mass_error=mass_error + ATOM_ROUNDING,
        shift_error=shift + found.value_error + _log_rounding(ratio),
    )


def _lower(found: _Allocation) -> PrivacyLossPmf:
    """Atoms of the statistic, erasure included: masses under P and under Q, sorted by their ratio."""
    both = (found.rows > 0).all(axis=0)
    log_q, log_p = np.log(found.rows[0, both]) - found.error, np.log(found.rows[1, both]) - found.error
    logs = _log_rounding(log_p)
    return PrivacyLossPmf.observed(log_p, log_q, 2.02 * found.drift + ATOM_ROUNDING + logs, logs)


def _log_rounding(logs: FloatArray) -> float:
    """Absolute error of stored logarithms, and of the masses they stand for."""
    return 1e-15 * (4.0 + float(np.max(np.abs(logs), initial=0.0)))
