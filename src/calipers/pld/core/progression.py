"""Sums of many Gaussian exponentials whose means are multiples of one number, at many points at once.

sum over j of w_j e^(m_j z - m_j^2/2) with m_j = n_j s, n_j whole, is a polynomial in e^(s z) with positive
coefficients: one exponential a point and a multiplication a term, where adding term by term takes an exponential each.
Points are taken in stretches around a center c, so that with x = e^(s (z - c)) no power leaves the range of doubles,
and terms that are nowhere in the stretch more than e^-60 of the one that is largest at c are left out. The fewer terms
are left, the longer a stretch may be. Stretches of equally many points are rows of one matrix, computed together.

Where the unit s is large, stretches would be many and hold a few terms each. If log w_j bends nowhere upward by as much
as s^2, the logs of the terms at one point bend downward everywhere, by b = s^2 less that: there is one largest term,
its i-th neighbor is smaller by a factor of e^(-b i (i - 1)/2) at least, and a few neighbors are all that counts.

Rounding: x errs by a share of 2 |s (z - c)| u + u, so its powers, up to the n-th, by 2 _STRETCH u + n u; a polynomial
with positive terms adds 2 n u. `share_error` is at least that. The exponent of a coefficient is rounded as that of a
single term is, which is not counted here.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from calipers.numerics.types import FloatArray

_STRETCH = 80.0
"""Within a stretch no power of x is farther from 1 than e to this."""
_NOTHING = -60.0
_MOST_POWERS, _SPARSEST = 1024, 8
"""Of all terms, and for every term: a polynomial has those between too."""
_MOST_NEIGHBORS = 4
"""On either side of the largest term: then a few terms are added at every point."""
_LEAST_POINTS = 300
"""Of fewer points all terms are added as they are: there is more to set up than to compute."""
_MOST_POINTS = 250
"""For every term. With more of them stretches are long, however few their terms are, and take fewer exponentials."""
_AT_ONCE = 1 << 15
"""Points that are looked at together."""


@dataclass(frozen=True)
class Progression:
    """Terms with logs of their weights at multiples `powers` (increasing) of `unit`."""

    log_weights: FloatArray
    powers: FloatArray
    unit: float

    @classmethod
    def of(cls, log_weights: FloatArray, means: FloatArray) -> Progression | None:
        """None where the means are few, or no multiples of one number, up to the rounding of a product."""
        if len(means) < 5:
            return None
        order = np.argsort(means)
        means, log_weights = means[order], log_weights[order]
        steps = np.diff(means)
        if float(np.min(steps)) <= 0.0:
            return None
        least, most = float(np.min(steps)), float(np.max(steps))
        far = int(np.argmax(np.abs(means)))
        # Of lengths in groups, steps are so many units or one more.
        for unit in (least, most - least):
            if unit * min(_MOST_POWERS, _SPARSEST * len(means)) < abs(means[far]):
                return None
            powers = np.rint(means / unit)
            unit = float(means[far] / powers[far])
            if np.all(np.abs(means - powers * unit) <= 4e-16 * np.abs(means)):
                return cls(log_weights, powers, unit)
        return None

    @property
    def share_error(self) -> float:
        """At least the relative error of a sum, next to that of an exponent that is rounded once."""
        return 1.2e-16 * (2.0 * _STRETCH + 3.0 * float(self.powers[-1] - self.powers[0]) + 8.0)

    def log_sums(self, z: FloatArray) -> FloatArray:
        """log of the sum at every point."""
        if len(z) < _LEAST_POINTS or not bool(np.all(z[1:] >= z[:-1])):
            return log_sum_exp(self.log_weights, self.powers * self.unit, z)
        if self._neighbors <= _MOST_NEIGHBORS and len(z) < _MOST_POINTS * len(self.powers):
            return self._few_terms(z, self._neighbors)
        return np.concatenate([self._rows(z[None, i : i + _AT_ONCE])[0] for i in range(0, len(z), _AT_ONCE)])

    @functools.cached_property
    def _neighbors(self) -> int:
        """How many terms on either side of the largest may be more than e^-60 of it; many, where that is not known."""
        if float(np.max(np.diff(self.powers))) > 1.0:
            return len(self.powers)
        bend = self.unit**2 - max(0.0, float(np.max(np.diff(self.log_weights, 2))))
        if bend <= 0.1:
            return len(self.powers)
        # The next one is smaller by e^(-b i (i + 1)/2), and so it is where rounding takes one of two equals for larger.
        return math.ceil(math.sqrt(0.25 - 2.0 * _NOTHING / bend) - 0.5)

    def _few_terms(self, z: FloatArray, neighbors: int) -> FloatArray:
        """The sums at any points, of the largest term at each and its neighbors."""
        means, last = self.powers * self.unit, len(self.powers) - 1
        logs = self.log_weights - 0.5 * means * means
        largest = np.searchsorted((logs[:-1] - logs[1:]) / self.unit, z)
        peak = logs[largest] + means[largest] * z
        total = np.ones_like(z)
        for away in (*range(-neighbors, 0), *range(1, neighbors + 1)):
            other = np.clip(largest + away, 0, last)
            term = np.exp(logs[other] + means[other] * z - peak)
            total += np.where(other == largest + away, term, 0.0)
        return np.asarray(peak + np.log(total))

    @functools.cached_property
    def _dense(self) -> tuple[FloatArray, FloatArray]:
        """Logs of weights at all multiples of the unit from the first power to the last, and these means."""
        logs = np.full(int(self.powers[-1] - self.powers[0]) + 1, -np.inf)
        logs[(self.powers - self.powers[0]).astype(np.intp)] = self.log_weights
        return logs, self.unit * (self.powers[0] + np.arange(len(logs)))

    def _rows(self, z: FloatArray) -> FloatArray:
        """The sums at rows of increasing points; those of a row in which they are too far apart by quarters of it."""
        weights, means = self._dense
        center, half = 0.5 * (z[:, :1] + z[:, -1:]), 0.5 * (z[:, -1:] - z[:, :1])
        logs = weights + means * (center - 0.5 * means)
        largest = np.argmax(logs, axis=1)[:, None]
        peak = np.take_along_axis(logs, largest, axis=1)
        logs -= peak
        # From the center to an end no term grows by more than this against the one that was largest there.
        kept = logs + np.abs(means - means[largest]) * half > _NOTHING
        first, last = np.argmax(kept, axis=1), len(means) - 1 - np.argmax(kept[:, ::-1], axis=1)
        steepest = self.unit * half[:, 0]
        near = steepest * (last - first) <= _STRETCH
        degree = int(np.max((last - first)[near], initial=0))
        near &= steepest * degree <= _STRETCH
        found = np.empty_like(z)
        if not np.all(near):
            quarter = -(-z.shape[1] // 4)
            parts = np.pad(z[~near], ((0, 0), (0, 4 * quarter - z.shape[1])), mode="edge").reshape(-1, quarter)
            found[~near] = self._rows(parts).reshape(-1, 4 * quarter)[:, : z.shape[1]]
        first = np.minimum(first[near], len(means) - 1 - degree)[:, None]
        coefficients = np.exp(np.take_along_axis(logs[near], first + np.arange(degree + 1), axis=1))
        away = self.unit * (z[near] - center[near])
        total = np.repeat(coefficients[:, -1:], z.shape[1], axis=1)
        x = np.exp(away) if degree else away  # of one term alone nobody asks how far away it is
        for k in range(degree - 1, -1, -1):
            total *= x
            total += coefficients[:, k : k + 1]
        found[near] = peak[near] + (self.powers[0] + first) * away + np.log(total)
        return found


def log_sum_exp(log_w: FloatArray, means: FloatArray, z: FloatArray) -> FloatArray:
    """log of the sum of w e^(m z - m^2/2), many terms at once."""
    terms = (log_w - 0.5 * means * means)[:, None] + means[:, None] * z.ravel()
    peak = terms.max(axis=0)
    terms -= peak
    return np.asarray((peak + np.log(np.exp(terms, out=terms).sum(axis=0))).reshape(z.shape))
