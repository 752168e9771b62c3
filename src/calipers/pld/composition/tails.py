"""What a composed PLD says about its right tail, with every error added.

`UpperTail` holds nodes (eps_i, delta_i) with D_{e^eps_i}(P||Q) <= delta_i. The true profile is
convex in k = e^eps, so the chord between two nodes bounds it as well.

`LowerTail` holds tests: reject when the score exceeds t. Each has power at least `power_t` under
P and false positive rate at most `alpha_t` under Q, hence D_k(P||Q) >= power_t - k alpha_t for
every k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calipers.numerics.fourier import UNIT_ROUNDOFF, decayed_tail_sums, strided_tail_sums, weight_norm
from calipers.numerics.types import BoolArray, FloatArray, IntArray
from calipers.pld.composition.lattice import LatticeMeasure, in_range
from calipers.pld.core.pmf import PrivacyLossPmf

_NODES = 2048
"""About how many thresholds of a composed PLD are looked at."""


@dataclass(frozen=True)
class UpperTail:
    """Nodes of an upper bound of the profile, eps increasing; beyond them only delta <= 1 is known."""

    epsilon_nodes: FloatArray
    log_delta_nodes: FloatArray

    @classmethod
    def least(cls, tails: Sequence[UpperTail]) -> UpperTail:
        """The nodes of all of them. The profile decreases, so a bound at one node holds at every later one."""
        nodes = np.concatenate([tail.epsilon_nodes for tail in tails])
        order = np.argsort(nodes, kind="stable")
        values = np.concatenate([tail.log_delta_nodes for tail in tails])[order]
        return cls(nodes[order], np.minimum.accumulate(values))

    def taken(self, kept: IntArray | BoolArray) -> UpperTail:
        """Some of its nodes."""
        return UpperTail(self.epsilon_nodes[kept], self.log_delta_nodes[kept])

    @cached_property
    def _values(self) -> FloatArray:
        return np.exp(np.minimum(0.0, self.log_delta_nodes))

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        """At least the true delta at every epsilon (1 below the first node, the last value beyond the last)."""
        nodes, values = self.epsilon_nodes, self._values
        if len(nodes) == 1:
            return np.where(epsilon < nodes[0], 1.0, values[0])
        j = np.clip(np.searchsorted(nodes, epsilon, side="right") - 1, 0, len(nodes) - 2)
        gap = nodes[j + 1] - nodes[j]
        # (e^eps - e^a) / (e^b - e^a) for eps in [a, b], written so that wide gaps do not overflow
        within = np.clip(epsilon, nodes[j], nodes[j + 1])
        part = np.exp(within - nodes[j + 1]) * -np.expm1(nodes[j] - within)
        share = np.divide(part, -np.expm1(-gap), out=np.zeros_like(part), where=gap > 0)
        chord = np.minimum(1.0, (values[j] + share * (values[j + 1] - values[j])) * (1.0 + 1e-14))
        inside = np.where(epsilon >= nodes[-1], values[-1], chord)
        return np.where(epsilon < nodes[0], 1.0, inside)

    def delta(self, epsilon: float) -> float:
        """At least the true delta at epsilon."""
        return float(self.deltas(np.array([epsilon]))[0])

    def epsilon(self, delta: float) -> float:
        """An epsilon >= 0 with D <= delta at that epsilon (inf where the nodes reach no such value)."""
        log_delta = math.log(delta) if delta > 0 else -math.inf
        good = np.flatnonzero(self.log_delta_nodes <= log_delta)
        if len(good) == 0:
            return math.inf
        j = int(good[0])
        right = float(self.epsilon_nodes[j])
        if j == 0:
            return max(0.0, right)
        left = float(self.epsilon_nodes[j - 1])
        high, low = math.exp(min(0.0, self.log_delta_nodes[j - 1])), math.exp(self.log_delta_nodes[j])
        if not low < delta < high:  # nodes too close, or numbers too small, for the digits of a double
            return max(0.0, right)
        share = min(1.0, (high - delta) / (high - low) * (1.0 + 1e-14))
        if share == 1.0 or right - left > 500.0:
            return max(0.0, right)
        value = left + math.log1p(share * math.expm1(right - left))
        return max(0.0, min(right, value + 4e-16 * abs(value)))


@dataclass(frozen=True)
class LowerTail:
    """Explicit tests, by increasing threshold of the score."""

    thresholds: FloatArray
    log_power: FloatArray
    log_alpha: FloatArray

    def _best(self, epsilon: float) -> int:
        gains = np.exp(self.log_power) - np.exp(np.minimum(self.log_alpha + epsilon, 1.0))  # above e^1: useless anyway
        return int(np.argmax(gains))

    def rates(self, epsilon: float) -> tuple[float, float]:
        """(power, false positive rate) of the test that shows most at epsilon; of never rejecting where none does."""
        if len(self.log_power) == 0 or self.delta(epsilon) == 0.0:
            return 0.0, 0.0
        j = self._best(epsilon)
        return math.exp(self.log_power[j]), math.exp(self.log_alpha[j])

    def best_test(self, epsilon: float) -> tuple[float, float]:
        """(delta, threshold) of the test that shows most at epsilon; delta <= the true one."""
        if len(self.log_power) == 0:
            return 0.0, math.inf
        j = self._best(epsilon)
        gain = math.exp(self.log_power[j]) - math.exp(min(self.log_alpha[j] + epsilon, 1.0))
        value = gain - 1e-15 * math.exp(self.log_power[j])
        return max(0.0, value), float(self.thresholds[j])

    def delta(self, epsilon: float) -> float:
        """At most the true delta at epsilon."""
        return self.best_test(epsilon)[0]

    def epsilon(self, delta: float) -> float:
        """An epsilon >= 0 that is at most the true epsilon at delta."""
        excess = np.exp(self.log_power) * (1.0 - 1e-15) - delta
        usable = excess > 0
        if not np.any(usable):
            return 0.0
        best = float(np.max(np.log(excess[usable]) - self.log_alpha[usable]))
        return max(0.0, best - 1e-15 * (1.0 + abs(best)))


@dataclass(frozen=True)
class ErrorTerms:
    """What all factors together owe: log mass error, shift of log L, and P-mass at infinity."""

    log_mass: float
    shift: float
    infinite_upper: float
    infinite_lower: float

    @classmethod
    def of(cls, factors: list[tuple[PrivacyLossPmf, int]], tilt: float = 1.0) -> ErrorTerms:
        """Sums over factors with multiplicity; tilting rounds an exponent of size tilt |log L| once per factor."""
        log_none = math.fsum(count * math.log1p(-pmf.p_inf) for pmf, count in factors if pmf.p_inf < 1)
        anywhere = 1.0 if any(pmf.p_inf >= 1 for pmf, _ in factors) else -math.expm1(log_none)
        masses = math.fsum(count * (pmf.rounding + 1e-15 * tilt * pmf.reach) for pmf, count in factors)
        return cls(
            masses * 1.01,
            math.fsum(count * pmf.shift_error for pmf, count in factors),
            infinite_mass(factors) * (1.0 + 1e-12),
            anywhere * (1.0 - 1e-12),
        )


def infinite_mass(factors: list[tuple[PrivacyLossPmf, int]]) -> float:
    """At least the P-mass that a product of pessimistic PLDs has at infinity.

    Replacing the factors of the truth by their PLDs one after the other, an infinite ratio in factor i costs p_inf_i
    times the finite P-mass F_j of the PLDs before it: sum over i of p_inf_i F_1 ... F_(i-1). With F = 1 - p_inf that is
    1 - prod(1 - p_inf); but a pessimistic PLD charges its tails on top of the mass it keeps, so F may exceed 1 a
    little, and then it is the union bound.
    """
    total, log_before = 0.0, 0.0
    for pmf, count in factors:
        log_finite = math.log(float(np.exp(pmf.log_p).sum())) + pmf.rounding + 1e-15 * (30.0 + math.log(pmf.size))
        growth = count * log_finite
        in_range(np.array(growth))
        if pmf.p_inf > 0.0:
            # sum of F^i for i < count
            powers = math.expm1(growth) / math.expm1(log_finite) if abs(growth) > 1e-9 else count * (1.0 + 1e-9)
            total += pmf.p_inf * math.exp(log_before) * powers
        log_before += growth
    return total


def decay_norm(rate: float, n: int) -> float:
    """At least the 2-norm of exp(-rate m), m = 0 .. n-1."""
    if rate <= 0:
        return math.sqrt(n)
    return math.sqrt(min(float(n), -1.0 / math.expm1(-2.0 * rate))) * (1.0 + 1e-12)


def _missed(measure: LatticeMeasure, rate: float, index: FloatArray) -> FloatArray:
    """What each tail sum may miss: mass beyond the last position, with weights at most e^(-rate distance)."""
    window = measure.window
    if window is None:
        return np.full(len(index), measure.escape)
    ahead = len(measure.positions) - 1 - index
    # A bound that says nothing may be larger than any number.
    return np.asarray(measure.escape + np.exp(np.minimum(window.log_escape - rate * ahead, 700.0)))


def _returned(measure: LatticeMeasure, rate: float, index: FloatArray) -> FloatArray:
    """What each tail sum may hold in excess: mass from beyond one end reappears at the other.

    From above: to count at position i it must lie i - low beyond the end, a further factor
    e^(-rate_above (i - low)). From below: mass m beyond the end lands m short of the last
    position; summing by parts, weights e^(-rate distance) against tails e^(-rate_below m) give at
    most max(e^(-rate M), e^(-rate_below M)) (1 + rate M), M the distance from i to the last
    position. The factor 2 covers mass that goes around more than once.
    """
    window = measure.window
    if window is None:
        return np.full(len(index), measure.escape)
    ahead = len(measure.positions) - 1 - index
    from_above = np.exp(-window.rate_above * np.maximum(index, 0.0))
    from_below = np.exp(-min(rate, window.rate_below) * ahead) * (1.0 + rate * ahead)
    return np.asarray(measure.escape + 2.0 * math.exp(window.log_escape) * (from_above + from_below))


@dataclass(frozen=True)
class TailFocus:
    """Where a tail will be read: at one delta, or at one epsilon. Lattice points are dense there."""

    delta: float | None = None
    epsilon: float | None = None

    def upper_index(self, epsilon: FloatArray, log_delta: FloatArray) -> int:
        """The first node beyond the point of interest."""
        if self.epsilon is not None:
            return int(np.searchsorted(epsilon, self.epsilon))
        assert self.delta is not None
        return int(np.searchsorted(-np.minimum.accumulate(log_delta), -math.log(self.delta)))

    def lower_index(self, log_power: FloatArray, log_alpha: FloatArray) -> int:
        """The test that shows most."""
        if self.epsilon is not None:
            return int(np.argmax(np.exp(log_power) - np.exp(np.minimum(log_alpha + self.epsilon, 1.0))))
        assert self.delta is not None
        excess = np.exp(log_power) - self.delta
        with np.errstate(divide="ignore", invalid="ignore"):
            return int(np.argmax(np.where(excess > 0, np.log(excess) - log_alpha, -np.inf)))


class _TailSums:
    """Decayed tail sums of one measure at every stride-th position, and at all positions of a short stretch."""

    def __init__(self, measure: LatticeMeasure, rate: float, stride: int) -> None:
        self.weights, self.rate = measure.weights, rate
        self.index, self.values = strided_tail_sums(measure.weights, rate, stride)

    def between(self, first: int, last: int) -> FloatArray:
        """The sums at all positions strictly between nodes `first` and `last`."""
        stretch = self.weights[int(self.index[first]) + 1 : int(self.index[last]) + 1]
        inside = decayed_tail_sums(np.append(stretch, 0.0), self.rate)[:-1]
        beyond = self.values[last] * np.exp(-self.rate * np.arange(len(stretch) - 1, -1, -1))
        return np.asarray((inside + beyond)[:-1])


def _around(index: FloatArray, j: int) -> tuple[int, int, FloatArray]:
    """Nodes that enclose node j, and the positions strictly between them."""
    first, last = max(j - 2, 0), min(j + 1, len(index) - 1)
    return first, last, np.arange(index[first] + 1, index[last])


def _inserted(nodes: FloatArray, first: int, last: int, inner: FloatArray) -> FloatArray:
    return np.concatenate((nodes[: first + 1], inner, nodes[last:]))


def upper_tail(
    measure: LatticeMeasure, step: float, tilt: float, error_terms: ErrorTerms, focus: TailFocus | None = None
) -> UpperTail:
    """The profile nodes of a composed UPPER measure tilted by tilt >= 1.

    At a lattice point x, D = sum over y > 0 of (e^y - 1) q(x + y), and with the tilt divided out
    the weight of W(x + y) is g(y) = e^(-(tilt-1) y) - e^(-tilt y), at most sup g <= 1. Mass that
    came around the circle only adds to D, so what may be missing is all that must be added.
    Nodes are some of the lattice points, and all of them around the `focus`: between nodes the chord
    is used, which costs accuracy only where nobody looks.
    """
    n = len(measure.weights)
    stride = max(1, n // _NODES)
    rate = (tilt - 1.0) * step
    peak = math.exp(-(tilt - 1.0) * math.log(tilt / (tilt - 1.0))) / tilt if tilt > 1 else 1.0
    peak = min(peak, -math.expm1(-n * step))  # inside the window y < n step, so g(y) <= 1 - e^(-y)
    spread = min(decay_norm(rate, n), peak * math.sqrt(n), weight_norm(tilt, step))  # at least the 2-norm of g

    def nodes(index: FloatArray, above: FloatArray, below: FloatArray) -> tuple[FloatArray, FloatArray]:
        # Of sums below the smallest normal double a rounding is no share: it is charged as a number.
        rounding = 16.0 * (n + 300) * (UNIT_ROUNDOFF * np.abs(above) + np.finfo(float).tiny)
        with_error = above - below + rounding + spread * measure.error + _missed(measure, rate, index)
        x = (measure.positions[0] + index) * step
        # If log L is low by s, D(eps) = E[(L - k)+] <= e^s D'(eps - s).
        log_delta = np.log(with_error) + (
            measure.log_norm + error_terms.log_mass + error_terms.shift - (tilt - 1.0) * x
        )
        if error_terms.infinite_upper > 0:
            log_delta = np.logaddexp(log_delta, math.log(error_terms.infinite_upper))
        return x + error_terms.shift, log_delta + 1e-13

    above, below = _TailSums(measure, rate, stride), _TailSums(measure, tilt * step, stride)
    epsilon, log_delta = nodes(above.index, above.values, below.values)
    if focus is not None and stride > 1:
        first, last, inner = _around(above.index, focus.upper_index(epsilon, log_delta))
        fine = nodes(inner, above.between(first, last), below.between(first, last))
        epsilon, log_delta = _inserted(epsilon, first, last, fine[0]), _inserted(log_delta, first, last, fine[1])
    return UpperTail(epsilon, log_delta)


def lower_tail(
    under_p: LatticeMeasure,
    under_q: LatticeMeasure,
    step: float,
    tilt: float,
    error_terms: ErrorTerms,
    focus: TailFocus | None = None,
) -> LowerTail:
    """The tests {score > t} of a composed LOWER pair on one window, tilted by tilt >= 1, at some thresholds."""
    n = len(under_p.weights)
    stride = max(1, n // _NODES)
    p_rate, q_rate = (tilt - 1.0) * step, tilt * step

    def tests(index: FloatArray, p_sums: FloatArray, q_sums: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        x = (under_p.positions[0] + index) * step
        rounding = 8.0 * (n + 300) * UNIT_ROUNDOFF
        p_error = decay_norm(p_rate, n) * under_p.error + _returned(under_p, p_rate, index)
        q_error = decay_norm(q_rate, n) * under_q.error + _missed(under_q, q_rate, index)
        p_sums = p_sums - rounding * np.abs(p_sums) - p_error
        q_sums = q_sums + rounding * np.abs(q_sums) + q_error
        # A test whose power is not certified to be positive shows nothing.
        with np.errstate(divide="ignore", invalid="ignore"):
            log_p = np.where(p_sums > 0, np.log(np.where(p_sums > 0, p_sums, 1.0)), -np.inf)
        log_power = log_p + (under_p.log_norm - error_terms.log_mass - (tilt - 1.0) * x)
        if error_terms.infinite_lower > 0:
            log_power = np.logaddexp(log_power, math.log(error_terms.infinite_lower))
        log_alpha = np.log(q_sums) + (under_q.log_norm + error_terms.log_mass - tilt * x)
        return x, log_power - 1e-13, log_alpha + 1e-13

    p, q = _TailSums(under_p, p_rate, stride), _TailSums(under_q, q_rate, stride)
    x, log_power, log_alpha = tests(p.index, p.values, q.values)
    if focus is not None and stride > 1:
        first, last, inner = _around(p.index, focus.lower_index(log_power, log_alpha) + 1)
        fine = tests(inner, p.between(first, last), q.between(first, last))
        x, log_power, log_alpha = (
            _inserted(coarse, first, last, dense) for coarse, dense in zip((x, log_power, log_alpha), fine, strict=True)
        )
    kept = np.isfinite(log_power)
    return LowerTail(x[kept], log_power[kept], log_alpha[kept])


def _log_after(log_masses: FloatArray) -> FloatArray:
    """log of the mass strictly after every atom (-inf after the last); safe where masses underflow."""
    upto = np.logaddexp.accumulate(log_masses[::-1])[::-1]
    return np.append(upto[1:], -np.inf)


def _single(pmf: PrivacyLossPmf) -> tuple[ErrorTerms, FloatArray, float]:
    """The charges of one PLD that needs no convolution, log Q after each atom, and what that may err by."""
    error_terms = ErrorTerms.of([(pmf, 1)])
    # Running sums of logs: each of the `size` steps rounds a number of the size of the log mass.
    deepest = float(np.max(np.abs(pmf.log_q), initial=1.0)) + float(np.max(np.abs(pmf.log_p), initial=1.0))
    log_rounding = 4.0 * pmf.size * UNIT_ROUNDOFF * (1.0 + deepest) + error_terms.log_mass + 1e-13
    return error_terms, _log_after(pmf.log_q), log_rounding


def single_lower_tail(pmf: PrivacyLossPmf) -> LowerTail:
    """The tests of one optimistic PLD: thresholds at its atoms."""
    error_terms, log_q, log_rounding = _single(pmf)
    kept = np.isfinite(log_q)
    log_power = _log_after(pmf.log_p)[kept] - log_rounding
    if error_terms.infinite_lower > 0:
        log_power = np.logaddexp(log_power, math.log(error_terms.infinite_lower))
    return LowerTail(pmf.log_ratio[kept], log_power, log_q[kept] + log_rounding)


def single_upper_tail(pmf: PrivacyLossPmf) -> UpperTail:
    """The nodes of one pessimistic PLD are its atoms."""
    error_terms, log_q, log_rounding = _single(pmf)
    with np.errstate(divide="ignore"):
        rise = pmf.log_ratio[1:] + np.log(-np.expm1(-np.diff(pmf.log_ratio))) + log_q[:-1]
        last = math.log(error_terms.infinite_upper) if error_terms.infinite_upper > 0 else -math.inf
    # D at atom i is the sum over later gaps of (e^(x_l+1) - e^(x_l)) Q(after l), plus what is at infinity.
    log_delta = np.logaddexp.accumulate(np.append(rise, -np.inf)[::-1])[::-1] + log_rounding + error_terms.shift
    return UpperTail(pmf.log_ratio + error_terms.shift, np.logaddexp(log_delta, last))
