"""Independent terms of one kind on a lattice, and the window that their sum rarely leaves.

The lattice is a circle of n points that covers an interval which the sum rarely leaves, by
Chernoff's bound: P(S > m) <= exp(log E e^(sS) - s m) for every s > 0. Single steps that are too
large for any useful s, and too rare to matter, are left out of the bound and their mass is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.errors import CertificationError
from calipers.numerics.elementary import log_sums_at
from calipers.numerics.fourier import CyclicFactor
from calipers.numerics.types import FloatArray
from calipers.pld.composition.lattice import LatticeMeasure, Window

_CHERNOFF_STEPS = np.array([0.5, 1.2, 2.2, 3.5, 5.0, 6.5])
"""Where Chernoff bounds are tried, in units of 1 / deviation."""
_FURTHER = 20.0
"""Where single steps reach so many deviations of the sum, a window is as long as they are."""


@dataclass(frozen=True)
class Factor:
    """`count` independent terms, each distributed as `sum over k of terms[k] * jump^(*k)`, of mass about 1.

    A jump is a step of `jump`, or of `large` where large steps are distinguished
    (`calipers.pld.composition.large_steps`).
    """

    terms: tuple[LatticeMeasure, ...]
    jump: LatticeMeasure | None
    count: int
    log_norm: float
    mean: float
    variance: float
    escape: float = 0.0
    large: LatticeMeasure | None = None

    @classmethod
    def plain(cls, measure: LatticeMeasure, count: int, large: LatticeMeasure | None = None) -> Factor:
        """A factor without jumps, except for steps that are `large`."""
        mean, variance = measure.moments(large)
        unit = LatticeMeasure(np.zeros(1, dtype=np.int64), np.ones(1), 0.0)
        terms = (measure,) if large is None else (measure, unit)
        return cls(terms, None, count, measure.log_norm, mean, variance, measure.escape, large)

    def jumps(self) -> list[LatticeMeasure]:
        """The measures of a single jump."""
        return [measure for measure in (self.jump, self.large) if measure is not None]

    def cyclic(self, n: int) -> CyclicFactor:
        """The factor on the circle Z/n."""
        jump, large = (None if measure is None else measure.fold(n) for measure in (self.jump, self.large))
        mass = math.fsum(float(measure.weights.sum()) for measure in self.jumps())
        # Folding w wraps of the circle onto each other can raise the 2-norm of an error by sqrt(w).
        wraps = [math.sqrt(math.ceil(len(term.positions) / n)) for term in self.terms]
        errors = [term.error * w for term, w in zip(self.terms, wraps, strict=True)]
        error = math.fsum(each * mass**k for k, each in enumerate(errors))
        rare = 0.0 if self.large is None else float(self.large.weights.sum())
        large_error = rare * math.fsum(k * each * mass ** (k - 1) for k, each in enumerate(errors) if k)
        return CyclicFactor(tuple(term.fold(n) for term in self.terms), self.count, error, jump, large, large_error)

    def trimmed(self, log_loose: float) -> tuple[Factor, float]:
        """The factor without its most distant positions, and their mass times count (at most e^log_loose)."""
        measure = self.terms[0]
        if self.jumps() or measure.error > 0:
            return self, 0.0
        distance, weights = np.abs(measure.positions - self.mean), self.count * measure.weights
        allowed = math.exp(log_loose)
        # Nothing is dropped up to the farthest position that is too heavy by itself: few are left to be sorted.
        far = np.flatnonzero(distance > np.max(distance, where=weights > allowed, initial=-1.0))
        order = far[np.argsort(-distance[far])]
        mass = np.cumsum(weights[order])
        dropped = int(np.searchsorted(mass, allowed))
        if dropped == 0:
            return self, 0.0
        kept = np.ones(len(distance), dtype=bool)
        kept[order[:dropped]] = False
        return replace(self, terms=(measure.restricted(kept),)), float(mass[dropped - 1])

    def log_mgf(self, rates: FloatArray) -> FloatArray:
        """At least log E exp(s (X - mean)) for one term, at every s of `rates`."""
        total = _log_mgf(self.terms[0], self.mean, rates)
        if self.jumps():
            jump = np.logaddexp.reduce([_log_mgf(measure, 0.0, rates) for measure in self.jumps()])
            for k, term in enumerate(self.terms[1:], start=1):
                total = np.logaddexp(total, _log_mgf(term, self.mean, rates) + k * jump)
        return total


def _log_mgf(measure: LatticeMeasure, mean: float, rates: FloatArray) -> FloatArray:
    """At least the log of the sum of w e^(s (x - mean)), the error of the weights included."""
    positive = measure.weights > 0  # what is not positive is FFT noise, and covered by the error
    values = np.full(len(rates), -math.inf)  # of no mass at all: that of jumps may be too small for a float
    if np.any(positive):
        values = log_sums_at(rates, measure.positions[positive] - mean, np.log(measure.weights[positive]))
    if measure.error > 0:  # Cauchy-Schwarz: sum |error_i| e^(s x_i) <= error times the 2-norm of e^(s x_i)
        if measure.dense:  # a geometric series
            ends, growth = measure.positions[[0, -1]] - mean, 2.0 * np.abs(rates)
            everywhere = np.max(2.0 * np.multiply.outer(rates, ends), axis=1)
            everywhere += np.log(np.expm1(-growth * len(measure.positions)) / np.expm1(-growth)) + 1e-12
        else:
            everywhere = log_sums_at(2.0 * rates, measure.positions - mean, 0.0)
        values = np.logaddexp(values, math.log(measure.error) + 0.5 * everywhere)
    return values


@dataclass(frozen=True)
class _MomentOutlook:
    """Log moment functions of a sum around its center, at a few rates, without its rarest terms."""

    center: float
    variance: float
    rates: FloatArray
    below: FloatArray
    above: FloatArray
    loose: float

    @classmethod
    def of(cls, factors: Sequence[Factor], log_escape: float) -> _MomentOutlook:
        """Terms of total mass up to e^(log_escape - 6) are left out, as `loose`."""
        kept, loose = [], 0.0
        for factor in factors:
            small, mass = factor.trimmed(log_escape - 6.0 - math.log(len(factors)))
            kept.append(small)
            loose += mass
        variance = math.fsum(f.count * f.variance for f in kept)
        # Where single steps reach far beyond the deviation of the sum, the useful rates are smaller.
        furthest = max(float(np.max(np.abs(f.terms[0].positions - f.mean))) for f in kept)
        reach = max((float(np.max(np.abs(f.large.positions))) for f in kept if f.large is not None), default=0.0)
        usual, far = _rates(variance), furthest > _FURTHER * math.sqrt(variance)
        rates = np.append(usual, np.array([2.0, 6.0, 14.0, 24.0][: 4 if far else 2]) / (furthest + 1.0))
        if reach > _FURTHER * math.sqrt(variance):
            rates = np.append(rates, np.array([2.0, 6.0, 14.0, 24.0]) / reach)
        both = np.sum([f.count * f.log_mgf(np.append(-rates, rates)) for f in kept], axis=0)
        below, above = np.split(both, 2)
        return cls(math.fsum(f.count * f.mean for f in kept), variance, rates, below, above, loose)

    def window(self, log_escape: float) -> Window:
        """Where the sum lives."""
        return _chernoff(self.center, self.rates, self.below, self.above, log_escape, self.loose)


def window_of(factors: Sequence[Factor], log_escape: float) -> Window:
    """Where the sum of all terms lives."""
    return _MomentOutlook.of(factors, log_escape).window(log_escape)


def upper_window(factors: Sequence[Factor], log_escape: float, decay: float) -> Window:
    """A shorter window for an UPPER measure whose tail sums have weights e^(-decay distance).

    Mass that goes around the circle only adds to an upper bound, so nothing is added for it; the circle
    is just made long enough that it adds little. Mass beyond the right end is added, but with the
    weight it has there. We look from a point `ahead` of the center, where the answer may lie:

    - beyond the right end at distance d: P(S > d) e^(-decay (d - ahead)) <= e^log_escape;
    - from below, a circle of n points lets in e^(-decay n) E[e^(-decay (S - ahead))];
    - from above, at most P(S > n).
    """
    outlook = _MomentOutlook.of(factors, log_escape)
    plain = outlook.window(log_escape)
    if decay <= 0.0 or decay * decay * outlook.variance > 400.0:
        return plain
    spread, center = math.sqrt(outlook.variance), outlook.center
    ahead = 1.2 * spread
    rates, above = outlook.rates, outlook.above
    below = math.fsum(f.count * float(f.log_mgf(np.array([-decay]))[0]) for f in factors)
    distances = (above - log_escape + decay * ahead) / (rates + decay)
    j = int(np.argmin(distances))
    distance = max(float(distances[j]), 2.5 * spread)
    length = max((below + decay * ahead - log_escape) / decay, plain.high - center) + ahead
    low, high = math.floor(center + distance - length), math.ceil(center + distance) + 1
    low = max(plain.low, min(low, math.floor(center - 2.0 * spread)))
    if high >= plain.high:
        return plain
    # P(S > high + m) <= e^(above - rate (high - center + m)).
    beyond = float(above[j]) - float(rates[j]) * (high - center)
    return Window(low, high, beyond, plain.rate_below, float(rates[j]), outlook.loose)


def _rates(variance: float) -> FloatArray:
    """A few Chernoff parameters around the useful one."""
    return np.asarray(_CHERNOFF_STEPS / max(math.sqrt(variance), 1e-3))


def _chernoff(
    center: float, rates: FloatArray, below: FloatArray, above: FloatArray, log_escape: float, loose: float
) -> Window:
    """The window that the best rate on either side gives, from log moment functions around `center`."""
    lows, highs = (below - log_escape) / rates, (above - log_escape) / rates
    i, j = int(np.argmin(lows)), int(np.argmin(highs))
    if not math.isfinite(float(lows[i]) + float(highs[j])):  # tilted weights beyond all numbers
        raise CertificationError("The lattice is too coarse for so large a tilt. Ask for a larger delta.")
    low, high = math.floor(center - float(lows[i])) - 1, math.ceil(center + float(highs[j])) + 1
    return Window(low, high, log_escape, float(rates[i]), float(rates[j]), loose)


def window_of_powers(measure: LatticeMeasure, powers: range, log_escape: float) -> Window:
    """One window for sums of `power` terms of the same measure, for every power listed."""
    mean, variance = measure.moments()
    one, loose = Factor((measure,), None, powers[-1], 0.0, mean, variance).trimmed(log_escape - 6.0)
    rates = _rates(powers[-1] * variance)
    above, below = one.log_mgf(rates), one.log_mgf(-rates)
    found = _chernoff(powers[0] * mean, rates, powers[0] * below, powers[0] * above, log_escape, loose)
    for power in powers[1:]:
        found = joined(found, _chernoff(power * mean, rates, power * below, power * above, log_escape, loose))
    return found


def joined(first: Window, second: Window) -> Window:
    """A window that serves two sums (P and Q of an optimistic PLD): the weaker statement of both."""
    return Window(
        min(first.low, second.low),
        max(first.high, second.high),
        max(first.log_escape, second.log_escape),
        min(first.rate_below, second.rate_below),
        min(first.rate_above, second.rate_above),
        max(first.loose, second.loose),
    )
