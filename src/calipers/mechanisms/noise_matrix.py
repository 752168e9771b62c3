"""Correlated noise as one matrix: what a record can move, over all ways in which it may take part.

A matrix mechanism with encoder (strategy) C releases C X + Z: row t of X is the sum of clipped gradients of step t, Z
is independent Gaussian noise of deviation sigma per entry (in units of the clipping norm). Training adds C^-1 Z to the
gradients, which is the same release. DP-SGD is C = identity; banded factorizations, buffered linear Toeplitz (BLT) and
tree aggregation (DP-FTRL) are other C.

**One Gaussian.** If the record takes part in the steps of a pattern with clipped gradients u_t, the release moves by
the sum over t of c_t u_t (c_t the columns of C), whose squared length is the sum over i, j of X_ij <u_i, u_j>,
X = C'C (the Gram matrix). C is lower triangular (or its rows are nodes of a tree that become complete one after
another), so row t is released before gradients after t are chosen, and the release is, adaptively too, at most one
Gaussian with mu = s / sigma, s the largest length over patterns and gradients (Denisov et al. 2022, Theorem 2.1). It
is attained.

**Patterns.** Between two participations lie at least `min_separation` steps, and there are at most
`max_participations` (b-min-separated participation); or exactly `min_separation` steps (a kept order: `fixed`).

**The largest length**, from both sides:

- *Orthogonal columns*: columns b or more steps apart share no row. Only the diagonal of X counts, and the best pattern
  is a longest path: exact, by dynamic programming (Choquette-Choo et al. 2023, Algorithm 3).
- *Toeplitz with coefficients c_0 >= c_1 >= ... >= 0*: exact, at 0, b, 2b, ... Proof: let p_1 < ... < p_k be a pattern,
  q_m = (m - 1) b <= p_m. For m <= l, X(p_m, p_l) = sum over s < T - p_l of c_s c_(s + p_l - p_m); with q there are no
  fewer terms, and none is smaller because q_l - q_m <= p_l - p_m and c falls: X(p_m, p_l) <= X(q_m, q_l).
- *Fixed order*: the patterns are looked at one by one; exact if X >= 0 on them.
- *Trees*: level by level (`calipers.mechanisms.tree_noise`).
- *Otherwise* above: every row's best pattern on |X|, then the best pattern of these values (their Algorithm 4), since
  a maximum over more choices is no smaller. Below: the best pattern found, with signs for the gradients, which anybody
  can play. The bracket then stays open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calipers.citations import implements
from calipers.domains import Domain
from calipers.errors import InputError, UnsupportedError
from calipers.numerics.types import FloatArray, IntArray

STEPS = Domain(1, 10**7, integer=True)
LARGEST_DENSE = 4096
_UNIT = 2.0**-53


@dataclass(frozen=True)
class Patterns:
    """In which steps a record may take part."""

    min_separation: int = 1
    max_participations: int | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        STEPS.check("min_separation", self.min_separation, "1 means that a record may take part in every step.")
        if self.max_participations is not None:
            STEPS.check("max_participations", self.max_participations)

    def most(self, steps: int) -> int:
        """The largest number of participations in so many steps."""
        possible = -(-steps // self.min_separation)
        return possible if self.max_participations is None else min(possible, self.max_participations)

    @property
    def words(self) -> str:
        """The patterns in words."""
        limit = "" if self.max_participations is None else f", at most {self.max_participations} times"
        apart = "exactly" if self.fixed else "at least"
        return f"a record takes part {apart} {self.min_separation} steps apart{limit}"


@dataclass(frozen=True)
class Sensitivity:
    """lower <= s <= upper, the pattern that shows the lower one, and why."""

    lower: float
    upper: float
    pattern: tuple[int, ...]
    reason: str

    @classmethod
    def of(
        cls, value: float, pattern: Sequence[int], reason: str, slack: float, upper: float | None = None
    ) -> Sensitivity:
        """What a pattern shows, and that no other shows more (or more than `upper`), rounded outward by `slack`."""
        most = value if upper is None else upper
        return cls(float(value * (1.0 - slack)), float(most * (1.0 + slack)), tuple(pattern), reason)

    @property
    def exact(self) -> bool:
        """Whether both ends are the same up to rounding."""
        return self.upper <= self.lower * (1.0 + 1e-9)


class NoiseMatrix:
    """An encoder C: dense, or lower triangular Toeplitz given by its first column."""

    def __init__(
        self, *, dense: FloatArray | None = None, toeplitz: FloatArray | None = None, name: str, tree: bool = False
    ) -> None:
        self.dense, self.toeplitz, self.name, self.tree_nodes = dense, toeplitz, name, tree

    @classmethod
    def of(cls, matrix: ArrayLike, name: str = "matrix", *, tree: bool = False) -> NoiseMatrix:
        """A square lower triangular matrix; `tree`: rows are nodes that become complete one after another."""
        array = np.asarray(matrix, dtype=np.float64)
        if array.ndim != 2 or not np.all(np.isfinite(array)) or min(array.shape) < 1:
            raise InputError(f"Expected {name} as a matrix of finite numbers, got shape {array.shape}.")
        if array.shape[1] > LARGEST_DENSE:
            raise UnsupportedError(
                f"Expected at most {LARGEST_DENSE} steps in a dense matrix, got {array.shape[1]}; give a Toeplitz "
                "matrix by its coefficients."
            )
        if not tree and (array.shape[0] != array.shape[1] or np.any(np.triu(array, 1) != 0.0)):
            raise UnsupportedError(
                f"{name} is not square and lower triangular: what is released at a step would depend on later steps, "
                "and no guarantee holds for gradients chosen adaptively. Use L of C = Q L, which releases the same."
            )
        if np.any(np.linalg.norm(array, axis=0) == 0.0):
            raise InputError(f"{name} has a column of zeros: that step is released without what it adds.")
        return cls(dense=array, name=name, tree=tree)

    @classmethod
    def of_toeplitz(cls, coefficients: ArrayLike, steps: int, name: str = "Toeplitz matrix") -> NoiseMatrix:
        """The lower triangular Toeplitz matrix with this first column, padded with zeros."""
        column, steps = np.asarray(coefficients, dtype=np.float64).ravel(), STEPS.check_int("steps", steps)
        if not np.all(np.isfinite(column)) or column.size == 0 or column[0] == 0.0:
            raise InputError(f"Expected {name} as finite coefficients, the first of them not zero.")
        padded = np.zeros(steps)
        padded[: min(steps, column.size)] = column[:steps]
        return cls(toeplitz=padded, name=name)

    @classmethod
    def blt(cls, buf_decay: ArrayLike, output_scale: ArrayLike, steps: int) -> NoiseMatrix:
        """A buffered linear Toeplitz matrix: 1, then sum of output_scale buf_decay^(t - 1)."""
        decay, scale = (np.asarray(given, dtype=np.float64).ravel() for given in (buf_decay, output_scale))
        if decay.shape != scale.shape:
            raise InputError(f"Expected one output_scale per buf_decay, got {scale.size} and {decay.size}.")
        powers = decay[:, None] ** np.arange(STEPS.check_int("steps", steps) - 1)
        return cls.of_toeplitz(np.append(1.0, scale @ powers), steps, f"BLT with {decay.size} buffers")

    @property
    def steps(self) -> int:
        """Number of steps, columns of C."""
        return int((self.entries if self.toeplitz is None else self.toeplitz).shape[-1])

    @property
    def entries(self) -> FloatArray:
        """The matrix itself."""
        if self.dense is None:
            self.dense = self.materialized().entries
        return self.dense

    def column_norms(self) -> FloatArray:
        """The length of every column."""
        if self.toeplitz is not None:
            return np.sqrt(np.cumsum(self.toeplitz**2))[::-1]
        return np.asarray(np.linalg.norm(self.entries, axis=0))

    def bands(self) -> int:
        """The smallest b such that columns b or more steps apart share no row."""
        if self.toeplitz is not None:
            return int(np.flatnonzero(self.toeplitz)[-1]) + 1
        rows, columns = np.nonzero(self.entries)
        first, last = np.full(len(self.entries), self.steps), np.full(len(self.entries), -1)
        np.minimum.at(first, rows, columns)
        np.maximum.at(last, rows, columns)
        return int(np.max(last - first)) + 1

    @implements("denisov2022:thm2.1", "choquette2023:alg3")
    def sensitivity(self, patterns: Patterns) -> Sensitivity:
        """The largest length by which a record can move the release, from both sides."""
        count, norms, slack = patterns.most(self.steps), self.column_norms(), self._slack
        if count == 1:
            place = int(np.argmax(norms))
            return Sensitivity.of(norms[place], (place,), "the longest column", slack)
        if self.bands() <= patterns.min_separation and not patterns.fixed:
            value, pattern = best_pattern(norms**2, patterns.min_separation, count)
            return Sensitivity.of(math.sqrt(value), pattern, "columns of a pattern share no row", slack)
        return self._searched(patterns, count)

    @property
    def _slack(self) -> float:
        return 8.0 * (self.steps + 8) * _UNIT

    def _searched(self, patterns: Patterns, count: int) -> Sensitivity:
        """Where columns of a pattern share rows."""
        if self.toeplitz is None:
            return self._dense_sensitivity(patterns, count)
        falling = np.all(np.diff(self.toeplitz) <= 0.0) and np.all(self.toeplitz >= 0.0)
        if not falling:
            if self.steps <= LARGEST_DENSE:
                return self._dense_sensitivity(patterns, count)
            raise UnsupportedError(
                "The sensitivity of a Toeplitz matrix is known where its coefficients are non-negative and do not grow."
                f" These are not, and a dense matrix of {self.steps} steps is too large to search."
            )
        pattern = tuple(range(0, count * patterns.min_separation, patterns.min_separation))
        moved = np.zeros(self.steps)
        for start in pattern:
            moved[start:] += self.toeplitz[: self.steps - start]
        value = math.sqrt(float(np.sum(moved**2)))
        return Sensitivity.of(value, pattern, "Toeplitz with non-negative coefficients that do not grow", self._slack)

    def materialized(self) -> NoiseMatrix:
        """The same matrix, dense."""
        if self.toeplitz is None:
            return self
        index = np.arange(self.steps)[:, None] - np.arange(self.steps)[None, :]
        return NoiseMatrix.of(np.where(index >= 0, self.toeplitz[np.maximum(index, 0)], 0.0), self.name)

    def _dense_sensitivity(self, patterns: Patterns, count: int) -> Sensitivity:
        dense = self.entries
        gram = dense.T @ dense
        sizes = gram if np.all(dense >= 0.0) else np.abs(dense).T @ np.abs(dense)
        above = np.abs(gram) + 4.0 * (len(dense) + 4) * _UNIT * sizes
        candidates = _progressions(self.steps, patterns.min_separation, count)
        if patterns.fixed:
            upper = math.sqrt(max(float(above[np.ix_(one, one)].sum()) for one in candidates))
            reason = "every pattern of a fixed order"
        else:
            rows = best_values(above, patterns.min_separation, count)
            value, guess = best_pattern(rows, patterns.min_separation, count)
            upper, reason = math.sqrt(value), "every row's best pattern on |C'C|"
            longest = best_pattern(np.diag(gram), patterns.min_separation, count)[1]
            candidates += [np.array(guess), np.array(longest)]
        lower, pattern = max((self._played(gram, one), tuple(int(i) for i in one)) for one in candidates)
        return Sensitivity.of(lower, pattern, reason, 1e-12, upper)

    def _played(self, gram: FloatArray, pattern: IntArray) -> float:
        """At most the length that this pattern shows, with signs chosen one after another; rounding charged."""
        signs = np.ones(len(pattern))
        part = gram[np.ix_(pattern, pattern)]
        for place in range(1, len(pattern)):
            signs[place] = 1.0 if float(part[place, :place] @ signs[:place]) >= 0.0 else -1.0
        columns = self.entries[:, pattern]
        moved, blur = np.abs(columns @ signs), 2.0 * (len(pattern) + 2) * _UNIT * np.abs(columns).sum(axis=1)
        return math.sqrt(float(np.sum(np.maximum(moved - blur, 0.0) ** 2)))


def _progressions(steps: int, separation: int, count: int) -> list[IntArray]:
    """The patterns that take part every `separation` steps, from every possible first one."""
    whole = count >= -(-steps // separation)  # then a later start only leaves the first ones out
    starts = range(min(separation, steps) if whole else steps)
    return [np.arange(start, steps, separation)[:count] for start in starts]


def best_values(rows: FloatArray, separation: int, count: int) -> FloatArray:
    """What `best_pattern` gives for every row, all at once."""
    steps = rows.shape[1]
    if count >= -(-steps // separation):
        best = np.zeros((steps + separation, rows.shape[0]))
        for i in range(steps - 1, -1, -1):
            np.maximum(best[i + 1], rows[:, i] + best[i + separation], out=best[i])
        return np.asarray(best[0])
    table = np.zeros((rows.shape[0], steps + separation))
    for _ in range(count):
        table[:, :steps] = rows + table[:, separation:]
        table[:, steps:] = 0.0
        table = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1].copy()
    return table[:, 0]


def best_pattern(values: FloatArray, separation: int, count: int) -> tuple[float, tuple[int, ...]]:
    """The largest sum of non-negative values over a pattern, and such a pattern: a longest path, in O(steps count).

    `best[j]` is the most that j participations from step i on can give; looked at from the last step back.
    """
    steps = len(values)
    if count >= -(-steps // separation):  # no limit but the separation: one row of the table is enough
        best = np.zeros(steps + separation)
        for i in range(steps - 1, -1, -1):
            best[i] = max(best[i + 1], values[i] + best[i + separation])
        pattern, i = [], 0
        while i < steps:
            if best[i] > best[i + 1]:
                pattern.append(i)
                i += separation
            else:
                i += 1
        return float(best[0]), tuple(pattern)
    # Which step comes first is all that is remembered of the table of every number left: a bit a step.
    best, chosen_first = np.zeros(steps + separation), []
    for _ in range(count):
        chosen = np.append(values + best[separation:], np.zeros(separation))
        best = np.maximum.accumulate(chosen[::-1])[::-1]
        chosen_first.append(np.packbits(best[:steps] > best[1 : steps + 1]))
    pattern, i = [], 0
    for row in reversed(chosen_first):
        found = np.flatnonzero(np.unpackbits(row, count=steps)[i:])
        if len(found) == 0:
            break
        pattern.append(i + int(found[0]))
        i = pattern[-1] + separation
    return float(best[0]), tuple(pattern)
