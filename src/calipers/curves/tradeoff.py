"""The trade-off curve: what the best test can do, at every false positive rate.

For a pair of output distributions, Q under the null and P under the alternative, f(alpha) is the smallest false
negative rate of any test whose false positive rate is at most alpha. f is convex, non-increasing and at most 1 - alpha.
Higher means more private. Here f is piecewise linear, and its breakpoints are the whole truth about it:

- the profile is delta(epsilon) = max over breakpoints of (1 - beta) - e^epsilon alpha  (Dong et al., Proposition 2.13);
- epsilon(delta) = max over breakpoints of log((1 - beta - delta)/alpha);
- the segments are the atoms of the pair, with likelihood ratio (fall of beta)/(rise of alpha).

Breakpoints run from (0, f(0)) to the first alpha with f = 0. f(0) < 1 means P has mass where Q has none.

A curve has a `Side`. UPPER: f lies at or below the true curve, so its numbers bound leakage from above (a guarantee).
LOWER: f lies at or above it, so they bound leakage from below (an attack). Every number a curve returns is rounded to
its side, and curves of different sides do not mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import ArrayLike

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves.arguments import mirrored, read_column, read_complement, read_nodes
from calipers.curves.construction import CORNERS, Lines, atom_points, profile_points
from calipers.curves.points import UNIT, Points, lies_below, order_key, rise, settled
from calipers.domains import POSITIVE_PROBABILITY, PROBABILITY, REAL
from calipers.errors import InputError
from calipers.numerics.elementary import checked
from calipers.numerics.types import FloatArray

CURVE_ALLOWANCE = 1e-12
"""Relative rounding within which a curve may exceed 1 - alpha or bend the wrong way; more raises InputError."""

LARGEST_PRODUCT = 4_000_000
_CHUNK = 2_000_000
_ROWS = 64
_MARGIN = 1e-9


@dataclass(frozen=True, eq=False)
class TradeoffCurve:
    """A piecewise linear trade-off curve with its side; see the module docstring. Build it with a `from_...`.

    Of `alpha` and `alpha_c` = 1 - alpha the smaller is exact, likewise for `beta`.
    """

    alpha: FloatArray
    beta: FloatArray
    alpha_c: FloatArray
    beta_c: FloatArray
    side: Side

    def __post_init__(self) -> None:
        alpha, beta = read_column("alpha", self.alpha), read_column("beta", self.beta)
        if alpha.size == 0 or alpha.shape != beta.shape:
            raise InputError(f"Expected as many alpha as beta, at least one, got {alpha.size} and {beta.size}.")
        alpha_c, beta_c = read_complement("alpha", alpha, self.alpha_c), read_complement("beta", beta, self.beta_c)
        points = Points(alpha, beta, alpha_c, beta_c).settled()
        if points.alpha[0] != 0.0 or points.beta[-1] != 0.0:
            raise InputError("Expected breakpoints from alpha = 0 to beta = 0. Build the curve with from_tests.")
        rising = np.all(np.diff(order_key(points.alpha, points.alpha_c)) > 0)
        falling = np.all(np.diff(order_key(points.beta, points.beta_c)) < 0)
        if not (rising and falling):
            raise InputError("Expected alpha strictly increasing and beta strictly decreasing. Use from_tests.")
        above = points.beta > points.alpha_c * (1.0 + CURVE_ALLOWANCE)
        if np.any(above | (points.alpha > points.beta_c * (1.0 + CURVE_ALLOWANCE))):
            worst = int(np.argmax(points.beta - points.alpha_c))
            raise InputError(
                f"Expected f(alpha) <= 1 - alpha, got beta={points.beta[worst]!r} at alpha={points.alpha[worst]!r}. "
                "A test worse than guessing is improved by guessing: from_tests does that."
            )
        for name, column in zip(points._fields, points, strict=True):
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        if np.any(self.odds[:-1] * (1.0 + CURVE_ALLOWANCE) < self.odds[1:]):
            raise InputError("Expected a convex curve, got a breakpoint above a chord. Use from_tests for the hull.")

    # ------------------------------------------------------------------ constructors

    @classmethod
    def perfect_privacy(cls, side: Side = Side.UPPER) -> TradeoffCurve:
        """f(alpha) = 1 - alpha: the two distributions are the same. Exact.

        Args:
            side: what the curve counts as; it is both.

        Returns:
            The curve.
        """
        return cls(*CORNERS, side)

    @classmethod
    @implements("dong2022:thm2.4")
    def from_profile(
        cls,
        epsilon: ArrayLike,
        delta: ArrayLike,
        side: Side = Side.UPPER,
        symmetric: bool = False,
        reverse: tuple[ArrayLike, ...] | None = None,
        kept: ArrayLike | None = None,
    ) -> TradeoffCurve:
        """The curve of the profile whose nodes are (epsilon, delta), linear in e^epsilon in between.

        Args:
            epsilon: of the nodes.
            delta: at them. UPPER: upper bounds of the true profile. LOWER: the caller promises more, namely that the
                whole interpolated profile (constant beyond the last node) lies below the true one, as it does when the
                nodes are all kinks of a privacy loss distribution that the truth dominates.
            side: of the bound.
            symmetric: whether the nodes (epsilon >= 0) hold in both directions.
            reverse: the profile of the swapped pair as nodes of its own; better than negative epsilon, where a delta
                near 1 has no digits left for the tail. A third row is 1 - delta.
            kept: 1 - delta, where that is known better.

        Returns:
            f <= true curve (UPPER), f >= true curve (LOWER), rounding included.
        """
        forward = read_nodes("", epsilon, delta, kept)
        positive = forward.epsilon >= 0.0
        if symmetric and (reverse is not None or not positive.all()):
            raise InputError(
                "Expected epsilon >= 0 and no reverse profile with symmetric=True. Pass reverse=(epsilon, delta)."
            )
        parts = [mirrored(forward, side)]
        if symmetric:
            parts.append(forward)
        if reverse is not None:
            given = read_nodes("reverse ", *reverse)
            if np.any(given.epsilon < 0.0):
                raise InputError("Expected reverse epsilon >= 0. A negative one is a node of the forward profile.")
            parts.append(given)
        both = Lines(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return cls(*profile_points(forward.take(np.flatnonzero(positive)), both, side), side)

    @classmethod
    def from_tests(
        cls,
        alpha: ArrayLike,
        power: ArrayLike,
        alpha_c: ArrayLike | None = None,
        power_c: ArrayLike | None = None,
        side: Side = Side.LOWER,
    ) -> TradeoffCurve:
        """The hull of tests and of guessing.

        Args:
            alpha: false positive rates. All numbers are taken as they are: round alpha up and power down first if
                they are computed.
            power: true positive rates.
            alpha_c: 1 - alpha, where that is known better.
            power_c: 1 - power, likewise.
            side: LOWER: each test exists. UPPER: the caller promises that the chords lie below the true curve.

        Returns:
            f >= true curve (LOWER), f <= true curve (UPPER).
        """
        alphas, powers = read_column("alpha", alpha), read_column("power", power)
        if alphas.shape != powers.shape:
            raise InputError(f"Expected as many alpha as power, got {alphas.size} and {powers.size}.")
        alphas_c, misses = read_complement("alpha", alphas, alpha_c), read_complement("power", powers, power_c)
        return cls(*Points.joined(Points(alphas, misses, alphas_c, powers).settled(), CORNERS).hull(side), side)

    @classmethod
    def from_atoms(
        cls, p: ArrayLike, q: ArrayLike, p_inf: float = 0.0, q_zero: float = 0.0, *, side: Side
    ) -> TradeoffCurve:
        """The Neyman-Pearson curve of a finite pair.

        Args:
            p: masses of the alternative.
            q: masses of the null.
            p_inf: the mass of P where Q has none.
            q_zero: the mass of Q where P has none.
            side: of the bound.

        Returns:
            f <= the pair's curve (UPPER), >= it (LOWER), within rounding of about 1e-15 sqrt(atoms).

        Raises:
            InputError: the masses do not sum to 1.
        """
        masses, null_masses = read_column("p", p), read_column("q", q)
        if masses.shape != null_masses.shape:
            raise InputError(f"Expected as many p as q, got {masses.size} and {null_masses.size}.")
        p_inf, q_zero = PROBABILITY.check("p_inf", p_inf), PROBABILITY.check("q_zero", q_zero)
        return cls(*atom_points(masses, null_masses, p_inf, q_zero, side, 0.0), side)

    @classmethod
    def mixture(cls, curves: Sequence[TradeoffCurve], weights: Sequence[float]) -> TradeoffCurve:
        """The curve when mechanism i runs with probability weights[i] and i is revealed: segments merged by slope.

        Args:
            curves: all of one side.
            weights: public probabilities that sum to 1.

        Returns:
            A curve of their common side.
        """
        if len(curves) != len(weights) or not curves:
            raise InputError(f"Expected one weight per curve, got {len(curves)} curves and {len(weights)} weights.")
        shares = [POSITIVE_PROBABILITY.check("weight", weight) for weight in weights]
        side = reduce(Side.same, (curve.side for curve in curves))
        parts = [(curve.atoms, share) for curve, share in zip(curves, shares, strict=True)]
        p, q = (np.concatenate([share * atoms[i] for atoms, share in parts]) for i in (0, 1))
        p_inf, q_zero = (sum(share * float(atoms[i]) for atoms, share in parts) for i in (2, 3))
        return cls(*atom_points(p, q, p_inf, q_zero, side, 4.0 * UNIT), side)

    # ------------------------------------------------------------------ parts

    @cached_property
    def points(self) -> Points:
        """The breakpoints with their complements."""
        return Points(self.alpha, self.beta, self.alpha_c, self.beta_c)

    @cached_property
    def odds(self) -> FloatArray:
        """Likelihood ratios dP/dQ of the segments, decreasing; relative error at most 5 units of roundoff."""
        index = np.arange(self.alpha.size)
        return self.points.steepness(index[:-1], index[1:])

    @cached_property
    def atoms(self) -> tuple[FloatArray, FloatArray, float, float]:
        """(p, q, p_inf, q_zero): the masses of the segments and of the two singular parts."""
        here, there = self.points.take(np.arange(self.alpha.size - 1)), self.points.take(np.arange(1, self.alpha.size))
        p = rise(there.beta, there.beta_c, here.beta, here.beta_c)
        q = rise(here.alpha, here.alpha_c, there.alpha, there.alpha_c)
        return p, q, float(self.beta_c[0]), float(self.alpha_c[-1])

    # ------------------------------------------------------------------ numbers

    def rates(self, alpha: ArrayLike, alpha_c: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """(f(alpha), 1 - f(alpha)), each relatively accurate in its own tail.

        Args:
            alpha: false positive rates.
            alpha_c: 1 - alpha, where that is known better.

        Returns:
            Both, rounded to the side (UPPER: f down and 1 - f up); exact at breakpoints.
        """
        shape = np.shape(alpha)
        alphas = read_column("alpha", np.ravel(alpha))
        x, x_c = settled(alphas, read_complement("alpha", alphas, None if alpha_c is None else np.ravel(alpha_c)))
        beta, beta_c, rounding = self.points.at(x, x_c)
        if self.side is Side.LOWER:
            rounding = -rounding
        # A rate is at most 1, so rounding up may stop there.
        miss, power = np.minimum(beta * (1.0 - rounding), 1.0), np.minimum(beta_c * (1.0 + rounding), 1.0)
        return miss.reshape(shape), power.reshape(shape)

    def __call__(self, alpha: ArrayLike, alpha_c: ArrayLike | None = None) -> FloatArray:
        """f(alpha); UPPER: at most the true false negative rate, LOWER: at least."""
        return self.rates(alpha, alpha_c)[0]

    @implements("dong2022:thm2.4")
    def delta(self, epsilon: ArrayLike) -> FloatArray:
        """The profile delta(epsilon) = max over tests of power - e^epsilon alpha.

        Args:
            epsilon: any real numbers.

        Returns:
            At least the profile of the stored curve (UPPER), at most (LOWER).
        """
        epsilons = checked(REAL, "epsilon", epsilon)
        with np.errstate(over="ignore"):
            odds = np.exp(epsilons.ravel())
        found = self.gains(odds, 1.0 if self.side is Side.UPPER else -1.0)
        return np.minimum(np.maximum(found, 0.0), 1.0).reshape(epsilons.shape)

    def gains(self, odds: FloatArray, up: float) -> FloatArray:
        """max over tests of power - odds alpha.

        Args:
            odds: e^epsilon.
            up: 1 to round up, -1 to round down.

        Returns:
            One number for each of the odds.
        """
        result = np.empty(odds.size)
        rows = max(_CHUNK // self.alpha.size, 1)
        # Many at a time, in order, so that the few tests that can be best for them are the same.
        order = np.argsort(odds) if odds.size > 1 else np.arange(odds.size)
        for start in range(0, odds.size, min(rows, _ROWS)):
            asked = order[start : start + min(rows, _ROWS)]
            near = self._best_tests(odds[asked[0]], odds[asked[-1]]) if odds.size > _ROWS else slice(None)
            alpha, power = self.alpha[near], self.beta_c[near]
            with np.errstate(over="ignore", invalid="ignore"):
                cost = np.where(alpha > 0.0, odds[asked, None] * alpha, 0.0)
            cost = np.minimum(cost, 4.0)  # above 1 a test loses anyway
            gain = (power - cost) + up * 4.0 * UNIT * np.maximum(cost, power * (alpha > 0.0))
            result[asked] = np.max(gain, axis=1)
        return result

    def _best_tests(self, least: float, most: float) -> slice:
        """Breakpoints that hold the maximum of power - odds alpha for all odds from `least` to `most`.

        Along a segment of larger odds than `most` that difference rises, along one of smaller odds than `least` it
        falls. So it is largest behind the segments at the beginning that rise and before those at the end that fall.
        `odds` errs by 5 units of roundoff, and the margin is far more.
        """
        with np.errstate(over="ignore"):
            rises, falls = self.odds > most * (1.0 + _MARGIN), self.odds < least * (1.0 - _MARGIN)
        first = rises.size if rises.all() else int(np.argmin(rises))
        last = 0 if falls.all() else falls.size - int(np.argmin(falls[::-1]))
        return slice(first, last + 1)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with delta(epsilon) <= delta.

        Args:
            delta: in [0, 1].

        Returns:
            At least that of the stored curve (UPPER), at most (LOWER); inf where f(0) < 1 - delta.
        """
        delta = PROBABILITY.check("delta", delta)
        room = self.beta_c - delta
        wins = room > 0.0
        if not wins.any():
            return 0.0
        room, alpha = room[wins], self.alpha[wins]
        with np.errstate(divide="ignore"):
            logs = np.log(room) - np.log(alpha)
        best = int(np.argmax(logs))
        value = float(logs[best])
        if np.isinf(value):
            return value
        slack = UNIT * (16.0 - 4.0 * float(np.log(room[best]) + np.log(alpha[best])))
        if value < 1.0:
            # The same number in a form that keeps its digits near 0.
            with np.errstate(over="ignore"):
                value = float(np.max(np.log1p((room - alpha) / alpha)))
            slack = 32.0 * UNIT
        return max(value + slack if self.side is Side.UPPER else value - slack, 0.0)

    # ------------------------------------------------------------------ operations

    def inverse(self) -> TradeoffCurve:
        """The curve of the swapped pair, T(P, Q) instead of T(Q, P). Exact."""
        return TradeoffCurve(*self.points.swapped(), self.side)

    def symmetrized(self) -> TradeoffCurve:
        """The largest convex symmetric curve below f and its inverse: both directions in one guarantee.

        Applying it twice changes nothing.
        """
        return TradeoffCurve(*Points.joined(self.points, self.points.swapped()).hull(self.side), self.side)

    @implements("dong2022:thm3.2")
    def tensor(self, other: TradeoffCurve) -> TradeoffCurve:
        """The curve of running both mechanisms: the product of the pairs, all pairs of atoms.

        Args:
            other: a curve of the same side.

        Returns:
            A curve of that side.

        Raises:
            InputError: the sides differ, or there are more than LARGEST_PRODUCT atoms.
        """
        side = self.side.same(other.side)
        p, q, p_inf, q_zero = self.atoms
        other_p, other_q, other_p_inf, other_q_zero = other.atoms
        if p.size * other_p.size > LARGEST_PRODUCT:
            raise InputError(
                f"Expected at most {LARGEST_PRODUCT} products of segments, got {p.size} x {other_p.size}. "
                "Compose privacy loss distributions on a grid (calipers.pld) instead of curves."
            )
        joint_p, joint_q = np.outer(p, other_p).ravel(), np.outer(q, other_q).ravel()
        joint_inf = p_inf + other_p_inf * float(self.beta[0])
        joint_zero = q_zero + other_q_zero * float(self.alpha[-1])
        return TradeoffCurve(*atom_points(joint_p, joint_q, joint_inf, joint_zero, side, 8.0 * UNIT), side)

    def is_below(self, other: TradeoffCurve) -> bool:
        """Whether f(alpha) <= other(alpha) at every alpha, decided without tolerance.

        Args:
            other: any curve.

        Returns:
            True if it is.
        """
        return lies_below(self.points, other.points)


def compare(first: TradeoffCurve, second: TradeoffCurve) -> str:
    """One of "equal", "first more private", "second more private" or "incomparable": the Blackwell order, exactly."""
    if first.is_below(second):
        return "equal" if second.is_below(first) else "second more private"
    return "first more private" if second.is_below(first) else "incomparable"
