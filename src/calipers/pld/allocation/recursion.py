"""The adversary's dynamic program over one shuffled epoch, from above.

With R >= 1 records dropped, the largest divergence of one epoch over all adaptive adversaries is
(B/N) V_M(-(R/B)(k - 1)),

    V_0(s) = max(s, 0),      V_n(s) = sup over controls of E[V_(n-1)(s + X)],

s the running sum of the terms seen so far and X the term of a control (`calipers.pld.allocation.frontier`; for replaced
records `calipers.pld.allocation.triangles`). `recursion_divergence` computes at least that value.

*Controls.* Cells cover all of them, and cell by cell a variable that dominates every control of it takes the place of
X. Cells are narrow at both ends of the range, where the best control usually lies: what a wide cell in the middle adds
counts only at those sums at which its controls come close to being the best ones.

*Grid.* In the coordinate u = s - n (k - 1) terms X + k - 1 have mean zero. All V_n are convex and increasing with slope
at most one. So a term may be split onto the places of a grid, mean preserved; sums left of the grid have at most the
value at its first place, and sums right of it at most that at the last place plus the distance, of which the mean is
known.

*Transforms.* A round is a cyclic convolution for every cell, of terms that stay on the grid. V e^(-t u) / m^n, with m
at least the moment E[e^(t (X + k - 1))] of these, keeps digits where they are needed, and its error in the 2-norm,
which `calipers.numerics.fourier` bounds, is added to every value. Masses are non-negative, so all else errs by a share.

*Blocks.* Where M rounds would take too long, c -> V_m(-c), m < M, is the function E[(Y - c)+] of a variable Y, and M
rounds lie below a sum of independent copies of Y ("one lemma for hidden records"), which transforms add up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.fft
from scipy.special import ndtr

from calipers.numerics.fourier import UNIT_ROUNDOFF, fast_length, fft_relative_error, two_norm
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.allocation import triangles
from calipers.pld.allocation.fourier_sum import Payoff, RepeatedTerms, payoff_by_fourier
from calipers.pld.allocation.frontier import GridTerm, cell_on_grid, control_range, placed
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

WithErrorTerms = tuple[RepeatedTerms, float]


@dataclass(frozen=True)
class Effort:
    """How finely the program is computed.

    Attributes:
        step: Of the grid, in deviations of one term: a share of step^2/6 is added to the variance of every term.
        cells: Where interval of controls end, as shares of their range (a record that is zeroed out).
        angles: Into how many parts the angles of triangles are divided (one that is replaced).
        points: Of the factors of a term; splitting adds about (20/points)^2/6 to its variance.
        work: Rounds times places of the grid, at most; where it does not suffice the epoch is divided into blocks.
        mixed: The grid is finer for a normal tail where that is worth more than this share of what one large term is.
        rare: So many times coarser is the grid where one large term decides.
    """

    step: float
    cells: tuple[float, ...]
    angles: int
    points: int
    work: float
    mixed: float = 1.0
    rare: float = 1.0


_FEWEST_CELLS, _FEW_CELLS, _MANY_CELLS, _BETWEEN = (
    (0.0, 0.02, 0.15, 0.5, 0.85, 0.98, 1.0),
    (0.0, 0.006, 0.035, 0.14, 0.36, 0.64, 0.86, 0.965, 0.994, 1.0),
    (0.0, 0.003, 0.012, 0.04, 0.12, 0.22, 0.4, 0.6, 0.78, 0.88, 0.96, 0.988, 0.997, 1.0),
    (0.007, 0.025, 0.075, 0.17, 0.3, 0.5, 0.7, 0.83, 0.925, 0.975, 0.993, 0.9985, 0.9995),
)
"""Ends of 6, 9 and 13 intervals of controls, denser where controls are extreme, and what halves the last ones."""
_MOST_CELLS = tuple(sorted({*_MANY_CELLS, *_BETWEEN}))
ROUGH, QUICK, USUAL, FINE, FINEST = (
    Effort(0.4, _FEWEST_CELLS, 4, 240, 1e5, rare=2.0),
    Effort(0.25, _FEW_CELLS, 6, 400, 4e5, rare=2.0),
    Effort(0.16, _MANY_CELLS, 8, 640, 6e5),
    Effort(0.1, _MOST_CELLS, 16, 800, 2e8),
    Effort(0.1, _MOST_CELLS, 16, 800, 2e8, 1e-6),
)
"""For hints, for the nodes of a PLD, for single questions, and either where a tolerance asks for it."""
_SPREADS, _ONE_START = 5.0, 3.5
"""How many deviations of the sum the grid reaches beyond its start and beyond 0, and how many where nothing is asked
but the value at the start and many small terms decide: the latter is less than 3e-4 to pass, and what is lost there
about as small a share."""
_MOST_LOSSES = 15.0
"""Deviations up to which heavy losses are followed."""
_TAIL, _DECIDES = 2.2, 0.01
"""Deviations beyond which a normal tail needs a finer grid: a share v of variance moves it by about z^2 v / 2. And the
share of what one large term is worth below which small ones do not count."""
_LOSSES = 4.0
"""Deviations of the observation up to which heavy losses stay within the grid."""
_LARGEST_SHIFT, _LARGEST_EPSILON = 2.6, 20.0
"""With so little noise, or so far out, one term decides, and a sum of worst-case terms is exact to 2e-4."""
_SHORTEST = 8
"""Blocks of fewer rounds gain nothing over a sum of worst-case terms."""
_LONGEST = 40_000
"""Places of a grid, beyond which it is divided into blocks."""
_NEGLIGIBLE = 1e-3
"""Of the worth of all rounds, about: what terms hold beyond the grid of a block."""
_RATES, _LARGEST_EXPONENT = 48, 300.0
"""Rates at which Chernoff bounds are tried, and the largest exponent."""
_MOST_PAIRS, _PAIRS_AT_ONCE = 100_000_000, 2_000_000
"""Pairs of values that are looked at where transforms have no digits, some 20 MB at a time."""


@dataclass(frozen=True)
class SumGrid:
    """Places low, low + 1, ..., high, each times the step."""

    low: int
    high: int
    step: float

    @property
    def size(self) -> int:
        """How many places there are."""
        return self.high - self.low + 1

    @property
    def sums(self) -> FloatArray:
        """Where they are."""
        return np.asarray(np.arange(self.low, self.high + 1) * self.step, dtype=np.float64)


@dataclass(frozen=True)
class _Problem:
    """A term, how often, and where the running sum starts, in coordinates in which terms have mean zero."""

    term: WorstCaseTerm
    rounds: int
    start: float
    effort: Effort
    spreads: float

    @property
    def deviation(self) -> float:
        """Of k B, whichever control is chosen."""
        return math.exp(self.term.epsilon) * math.sqrt(math.expm1(self.term.width**2))

    @property
    def step(self) -> float:
        """Of the grid, one of whose places is the start; smaller where the tail of a normal variable decides."""
        spread = self.deviation * math.sqrt(self.rounds)
        z, (normal, jumps) = -self.start / spread, self._worth
        step = self.effort.step * self.deviation
        if normal > self.effort.mixed * jumps:
            step *= min(1.0, _TAIL / max(z, 1e-9))
        elif normal < _DECIDES * jumps:
            step *= self.effort.rare
        return -self.start / math.ceil(-self.start / step) if -self.start > step else step

    @property
    def far(self) -> float:
        """Terms beyond it hold about a thousandth of what all rounds are worth, in the mean."""
        ends = self.deviation * np.geomspace(1.0, 1e6, 300)
        beyond = self.rounds * self._gains(ends) > _NEGLIGIBLE * max(self._worth)
        return float(ends[min(int(np.sum(beyond)), len(ends) - 1)])

    @property
    def _worth(self) -> tuple[float, float]:
        """About what all rounds are worth, for many small terms and for one large one."""
        spread = self.deviation * math.sqrt(self.rounds)
        z = -self.start / spread
        normal = spread * (math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) - z * float(ndtr(-z)))
        return normal, self.rounds * float(self._gains(np.array([max(-self.start, 1e-3 * self.deviation)]))[0])

    def _gains(self, ends: FloatArray) -> FloatArray:
        """E[(X - c)+] of the worst-case term."""
        (a, b), z = self.term.right, self.term.branches[0].preimage(ends)
        return np.asarray(ndtr(a - z) - math.exp(self.term.epsilon) * ndtr(b - z) - ends * ndtr(-z))

    def grid(self, rounds: int) -> SumGrid:
        """For so many of the rounds; the start is one of its places."""
        step, spread = self.step, self.deviation * math.sqrt(rounds)
        heavy = self.term.left[1]
        losses = math.exp(self.term.epsilon + _LOSSES * heavy - 0.5 * heavy**2) if heavy > self.term.width else 0.0
        if rounds == self.rounds:
            normal, jumps = self._worth
            reach = self.spreads if normal > jumps else _SPREADS  # between rare large terms sums drift to the left
            left, right = reach * spread - self.start, reach * spread
        else:
            left, right = max(1.5 * _SPREADS * spread, self.far), _SPREADS * spread
        right = max(right, min(losses, _MOST_LOSSES * spread))
        return SumGrid(math.floor(-left / step), math.ceil(right / step), step)

    def _affordable(self, rounds: int) -> bool:
        return rounds * self.grid(rounds).size <= self.effort.work

    @property
    def block(self) -> int:
        """How many rounds are computed at a time: all of them, or blocks of equal size; 0 where that is too much."""
        block = self.rounds
        if not self._affordable(block):
            numbers = range(2, max(3, self.rounds // _SHORTEST + 1))  # of blocks: the more, the shorter they are
            first = bisect_left(numbers, True, key=lambda blocks: self._affordable(-(-self.rounds // blocks)))
            block = -(-self.rounds // numbers[first]) if first < len(numbers) else 0
        long = self.grid(max(block, 1)).size > _LONGEST
        return 0 if long or block < min(_SHORTEST, self.rounds) else block

    def cells(self, grid: SumGrid) -> list[GridTerm]:
        """Variables that dominate all controls between them."""
        drift, places = math.expm1(self.term.epsilon), (-grid.size, grid.size)
        if self.term.replaced:
            cells, epsilon = triangles.cells(self.term.width, self.effort.angles), self.term.epsilon
            return [placed(cell, epsilon, drift, grid.step, places, self.effort.points) for cell in cells]
        first, last = control_range(self.term)
        ends = [first + (last - first) * share for share in self.effort.cells]
        return [cell_on_grid(self.term, cell, drift, grid.step, places, self.effort.points) for cell in pairwise(ends)]

    def tilt(self, cells: list[GridTerm], grid: SumGrid) -> float:
        """The rate with the least Chernoff bound of all rounds, of terms that stay within the grid."""
        masses = np.stack([cell.masses[: 2 * grid.size] for cell in cells])
        sums = grid.step * (cells[0].low + np.arange(masses.shape[1]))
        largest = min(60.0 / (self.deviation * math.sqrt(self.rounds)), _LARGEST_EXPONENT / float(sums[-1]))
        rates = np.geomspace(1e-3 * largest, largest, _RATES)
        logs = self.rounds * np.log((masses @ np.exp(np.outer(sums, rates))).max(axis=0))
        bounds = np.where(logs < _LARGEST_EXPONENT, logs + rates * self.start, math.inf)
        return float(rates[np.argmin(bounds)])


class OneRound:
    """One round before a function on the grid, for the best of the cells at every sum.

    Functions are multiplied by e^(-tilt u - number of rounds * log_moment).
    """

    def __init__(self, cells: list[GridTerm], grid: SumGrid, tilt: float) -> None:
        size, first = grid.size, cells[0].low
        masses = np.stack([cell.masses for cell in cells])
        inside = np.arange(1 - size, size)
        tilted = masses[:, inside - first] * np.exp(tilt * grid.step * inside)
        self.grid, self.tilt, self.error_term = grid, tilt, max(cell.error_term for cell in cells)
        self.log_moment = math.log(float(tilted.sum(axis=1).max()))
        self._length = fast_length(2 * size - 1)
        spread: FloatArray = np.zeros((len(cells), self._length))
        spread[:, -inside % self._length] = tilted * math.exp(-self.log_moment)
        self._spectra = scipy.fft.rfft(spread)
        # Where terms end beyond the grid: P(place + X < first), P(place + X > last) and E[(place + X - last)+].
        number = np.arange(size)
        ahead = size - 1 - number
        below = np.cumsum(masses, axis=1)[:, -1 - number - first]
        above = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1]
        stop_losses = grid.step * np.cumsum(above[:, ::-1], axis=1)[:, ::-1] + np.array([[c.excess] for c in cells])
        left, right = (np.exp(tilt * grid.step * d - self.log_moment) for d in (-number, ahead))
        edges = (below * left, above[:, ahead + 1 - first] * right, stop_losses[:, ahead + 1 - first] * right)
        self._edges = np.stack([edge.ravel() for edge in edges])
        self._error = 1.02 * (3.0 * fft_relative_error(self._length) + 8.0 * UNIT_ROUNDOFF)

    @property
    def rounding(self) -> float:
        """Relative, of every round: exponentials, sums of masses, products."""
        return UNIT_ROUNDOFF * (128.0 + 16.0 * self.grid.size * (1.0 + self.tilt * self.grid.step))

    def __call__(self, values: FloatArray, rounds: int) -> FloatArray:
        """At least the function one round earlier, from upper values of that before `rounds` rounds."""
        grid = self.grid
        found = scipy.fft.irfft(scipy.fft.rfft(values, self._length) * self._spectra, self._length)[:, : grid.size]
        slope_one = math.exp(-self.tilt * grid.step * grid.high - rounds * self.log_moment)
        found += np.dot((values[0], values[-1], slope_one), self._edges).reshape(found.shape)
        return np.asarray(found.max(axis=0) + self._error * two_norm(values))


def _values(problem: _Problem, grid: SumGrid, counts: tuple[int, ...]) -> list[FloatArray]:
    """At least V_n on the grid for each of a few increasing n."""
    cells = problem.cells(grid)
    earlier = OneRound(cells, grid, problem.tilt(cells, grid))
    sums = grid.sums
    exponents = earlier.tilt * sums
    values, found = np.maximum(sums, 0.0) * np.exp(-exponents), []
    for done in range(counts[-1]):
        values = earlier(values, done)
        if done + 1 in counts:
            logs = exponents + (done + 1) * earlier.log_moment
            rounding = (done + 1) * earlier.rounding + 8.0 * UNIT_ROUNDOFF * float(np.max(np.abs(logs)))
            found.append(values * np.exp(logs) * math.exp(2.0 * rounding) + (done + 1) * earlier.error_term)
    return found


def recursion_divergence(term: WorstCaseTerm, rounds: int, participation: float, effort: Effort) -> float:
    """At least (r/M) V_M(-M (1 - r)(k - 1)/r), r the participation: the divergence of the best adaptive adversary.

    Args:
        term: Bounds on the shifts of one round, and epsilon >= 0.
        rounds: M.
        participation: The share of the records that an epoch keeps, in (0, 1].
        effort: How finely to compute it.

    Returns:
        An upper bound, 1 where the grid would be too long or one term decides.
    """
    if term.farthest_shift > _LARGEST_SHIFT or term.epsilon > _LARGEST_EPSILON:
        return 1.0
    # The start is rounded, and so is the participation it is made of; a sum is worth the more the larger it is.
    start = -rounds * math.expm1(term.epsilon) / participation * (1.0 - 16.0 * UNIT_ROUNDOFF)
    problem = _Problem(term, rounds, start, effort, _ONE_START)
    block = problem.block
    if block == 0:
        return 1.0
    if block == rounds:
        grid = problem.grid(rounds)
        found = float(np.interp(start, grid.sums, _values(problem, grid, (rounds,))[0]))
    else:
        parts, with_error = _blocks(problem, block, 1.0)
        gain = payoff_by_fourier(parts, lambda sums: np.maximum(sums + start, 0.0), -start)
        found = math.inf if gain is None else gain + with_error
    return min(1.0, participation * found / rounds * (1.0 + 16.0 * UNIT_ROUNDOFF))


def recursion_payoff(
    term: WorstCaseTerm,
    rounds: int,
    scale: float,
    payoff: Payoff,
    heavy: Callable[[float], WithErrorTerms],
    effort: Effort,
) -> float:
    """At least E[payoff(scale S + S')], S the sum of the best adaptive adversary, S' of other, independent terms.

    Args:
        term: Bounds on the shifts of one round, and epsilon >= 0.
        rounds: How many there are.
        scale: Their weight.
        payoff: Convex, increasing, of slope at most one.
        heavy: The other terms on a lattice of a given step, and what is to be added for them.
        effort: How finely to compute it.

    Returns:
        An upper bound, infinite where one term decides or transforms have no digits.
    """
    if term.farthest_shift > _LARGEST_SHIFT or term.epsilon > _LARGEST_EPSILON:
        return math.inf
    start = -rounds * math.expm1(term.epsilon) * (1.0 - 16.0 * UNIT_ROUNDOFF)
    problem = _Problem(term, rounds, start, effort, _SPREADS)
    block = problem.block
    if block == 0:
        return math.inf
    parts, with_error = _blocks(problem, block, scale)
    others, more = heavy(parts[0].step)
    gain = payoff_by_fourier(
        [*parts, others], lambda sums: payoff(sums + scale * start), -scale * start, everywhere=True
    )
    if gain is None and [part.count for part in (*parts, others)] == [1, 1]:
        gain = _by_pairs(parts[0], others, lambda sums: payoff(sums + scale * start), scale * start)
    return math.inf if gain is None else gain + scale * with_error + more


def _by_pairs(first: RepeatedTerms, second: RepeatedTerms, payoff: Payoff, start: float) -> float | None:
    """At least E[payoff] of the sum of two terms, from all pairs of their values; None where these are too many."""
    pairs = len(first.masses) * len(second.masses)
    if pairs > _MOST_PAIRS:
        return None
    gain = 0.0
    for some in np.array_split(np.arange(len(first.masses)), -(-pairs // _PAIRS_AT_ONCE)):
        gain += float(first.masses[some] @ payoff(first.values[some, None] + second.values) @ second.masses)
    # Sums of non-negative numbers err by a share; places by theirs, and slopes are at most one.
    places = float(np.abs(first.values).max() + np.abs(second.values).max()) + abs(start)
    return gain * math.exp(first.error + second.error + 1e-10) + 8.0 * UNIT_ROUNDOFF * places


def _blocks(problem: _Problem, block: int, scale: float) -> tuple[list[RepeatedTerms], float]:
    """Variables of blocks of at most so many rounds, times a scale, and what is to be added to their payoffs."""
    rounds = problem.rounds
    blocks = -(-rounds // block)
    few, more = divmod(rounds, blocks)
    counts = (few, few + 1) if more else (few,)
    grid = problem.grid(block)
    parts, with_error = [], 0.0
    for values, number in zip(_values(problem, grid, counts), (blocks - more, more), strict=False):
        places, masses, error_term = block_pmf(grid, values)
        parts.append(RepeatedTerms(places, masses, scale * grid.step, 4.0 * UNIT_ROUNDOFF, number))
        with_error += number * error_term
    return parts, with_error


def block_pmf(grid: SumGrid, values: FloatArray) -> tuple[IntArray, FloatArray, float]:
    """A variable on the grid from upper values of V_m.

    Args:
        grid: Where the values stand.
        values: At least V_m there.

    Returns:
        Places, masses, and a charge with E[(Y - c)+] + charge >= V_m(-c) for all c.
    """
    places, values = -np.arange(grid.low, grid.high + 1)[::-1], values[::-1]  # as a function of c = -u, which falls
    slopes = np.diff(values) / grid.step
    # Left of the grid the slope is -1; right of it the value is added as a constant. Slopes that are no larger than
    # the next ones make a function convex, and larger.
    slopes = np.minimum.accumulate(np.concatenate(([-1.0], np.maximum(slopes, -1.0), [0.0]))[::-1])[::-1]
    masses = np.diff(slopes)
    some = masses > 0.0
    return np.asarray(places[some]), np.asarray(masses[some]), float(values[-1])
