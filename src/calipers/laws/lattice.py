"""Tilted laws on a lattice: the form in which laws are multiplied.

Adding independent log ratios is a convolution, and an FFT wants a common lattice hZ. Putting a
law there has a direction:

- UPPER: an atom at x between a = h floor(x/h) and b = a + h is split onto a and b, keeping
  its Q-mass and its P-mass (a mean preserving spread of L).
- LOWER: an atom gets the integer score round(x/h). Any score is a test statistic, so only its
  exact law under P and under Q matters: two measures on the lattice.

Tilting. A plain FFT has an absolute error near 1e-16, so small tails drown. Multiplying the
masses by e^(theta x), normalising, convolving, and dividing out afterwards commutes with
convolution and moves the tail of interest to the centre. With theta at the saddle point of the
epsilon asked for, the tail comes out with *relative* accuracy at any depth.

Window. The lattice is a circle of n points. `chernoff_window` returns an interval that holds all
of the sum but a mass `escape`, which is charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.laws.law import Law
from calipers.numerics.types import FloatArray, IntArray

_CHERNOFF_STEPS = np.array([0.35, 0.7, 1.2, 2.0, 3.2, 4.6, 6.2, 8.0])


@dataclass(frozen=True)
class LatticeMeasure:
    """A tilted, normalised measure on hZ: weights at integer positions, and the log of its norm.

    The untilted mass at position i is `exp(log_norm - tilt * h * i) * weight_i`; `count` copies of
    it enter the sum. `error` bounds the 2-norm of the error of the weights, `escape` the mass
    that they miss or hold in excess.
    """

    positions: IntArray
    weights: FloatArray
    log_norm: float
    count: int
    error: float = 0.0
    escape: float = 0.0

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the position."""
        mean = float(self.weights @ self.positions)
        spread = self.positions - mean
        return mean, float(self.weights @ (spread * spread))

    def fold(self, n: int) -> FloatArray:
        """The weights on the circle Z/n."""
        return np.bincount(np.mod(self.positions, n), weights=self.weights, minlength=n)


def _normalised(positions: IntArray, log_weights: FloatArray, count: int) -> LatticeMeasure:
    peak = float(log_weights.max())
    weights = np.exp(log_weights - peak)
    total = float(weights.sum())
    return LatticeMeasure(positions, weights / total, peak + math.log(total), count)


def split_positions(ratio: FloatArray, step: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Lower lattice neighbours, and logs of the shares of Q-mass sent to lower and upper neighbour."""
    scaled = ratio / step
    below = np.floor(scaled)
    part = scaled - below
    width = -math.expm1(-step)
    with np.errstate(divide="ignore"):
        log_down = np.log(-np.expm1((part - 1.0) * step)) - math.log(width)
        log_up = np.log(-np.expm1(-part * step)) + (part - 1.0) * step - math.log(width)
    return below.astype(np.int64), log_down, log_up


def split_law(law: Law, step: float, tilt: float, count: int) -> LatticeMeasure:
    """Q-masses times L^tilt of an UPPER law, split onto step Z."""
    below, log_down, log_up = split_positions(law.log_ratio, step)
    positions = np.concatenate((below, below + 1))
    log_q = np.concatenate((law.log_q + log_down, law.log_q + log_up))
    present = np.isfinite(log_q)
    positions, log_q = positions[present], log_q[present]
    return _normalised(positions, log_q + tilt * step * positions, count)


def score_law(law: Law, step: float, tilt: float, count: int) -> tuple[LatticeMeasure, LatticeMeasure]:
    """The scores round(x/step) of a LOWER law: under P (tilted by tilt - 1) and under Q (by tilt)."""
    scores = np.rint(law.log_ratio / step).astype(np.int64)
    under_p = _normalised(scores, law.log_p + (tilt - 1.0) * step * scores, count)
    under_q = _normalised(scores, law.log_q + tilt * step * scores, count)
    return under_p, under_q


def resplit(measure: LatticeMeasure, step: float, coarse: float, tilt: float, count: int) -> LatticeMeasure:
    """A tilted UPPER measure on step Z, split again onto the coarser lattice coarse Z."""
    values = measure.positions * step
    below, log_down, log_up = split_positions(values, coarse)
    part = values - below * coarse
    down = measure.weights * np.exp(log_down - tilt * part)
    up = measure.weights * np.exp(log_up + tilt * (coarse - part))
    gain = np.exp(log_down - tilt * part) + np.exp(log_up + tilt * (coarse - part))
    low = int(below[0])
    size = int(below[-1]) - low + 2
    weights = np.bincount(below - low, weights=down, minlength=size)
    weights += np.bincount(below - low + 1, weights=up, minlength=size)
    crowd = np.bincount(below - low, minlength=size).max() + 1
    return _regrouped(measure, low, weights, count, float(gain.max()), float(crowd))


def rescore(measure: LatticeMeasure, step: float, coarse: float, tilt: float, count: int) -> LatticeMeasure:
    """A tilted LOWER measure on step Z, with scores rounded to the coarser lattice coarse Z."""
    scores = np.rint(measure.positions * (step / coarse)).astype(np.int64)
    gain = np.exp(tilt * (scores * coarse - measure.positions * step))
    low = int(scores[0])
    size = int(scores[-1]) - low + 1
    weights = np.bincount(scores - low, weights=measure.weights * gain, minlength=size)
    crowd = np.bincount(scores - low, minlength=size).max()
    return _regrouped(measure, low, weights, count, float(gain.max()), float(crowd))


def _regrouped(
    measure: LatticeMeasure, low: int, weights: FloatArray, count: int, gain: float, crowd: float
) -> LatticeMeasure:
    # A non-negative matrix with column sums <= gain and row sums <= gain * 2 crowd has 2-norm at most
    # gain sqrt(2 crowd); mass grows by at most gain.
    total = float(weights.sum())
    return LatticeMeasure(
        np.arange(low, low + len(weights)),
        weights / total,
        measure.log_norm + math.log(total),
        count,
        error=measure.error * gain * math.sqrt(2.0 * crowd) / total,
        escape=measure.escape * gain / total,
    )


def chernoff_window(measures: Sequence[LatticeMeasure], log_escape: float) -> tuple[int, int]:
    """[low, high] with P(sum < low) <= e^log_escape and P(sum > high) <= e^log_escape.

    The sum has `count` independent terms of every measure. For any s > 0,
    P(S > m) <= exp(sum count log E e^(s X) - s m); we take the best of a few s.
    """
    moments = [measure.moments() for measure in measures]
    centre = math.fsum(m.count * mean for m, (mean, _) in zip(measures, moments, strict=True))
    spread = math.sqrt(math.fsum(m.count * var for m, (_, var) in zip(measures, moments, strict=True)))
    rates = _CHERNOFF_STEPS / max(spread, 1e-3)
    best = {1.0: math.inf, -1.0: math.inf}
    parts = [_mgf_parts(measure) for measure in measures]
    for sign in best:
        bound = np.zeros(len(rates))
        for measure, (mean, _), part in zip(measures, moments, parts, strict=True):
            bound += measure.count * _log_mgf(part, mean, sign * rates)
        best[sign] = float(np.min((bound - log_escape) / rates))
    return math.floor(centre - best[-1.0]) - 1, math.ceil(centre + best[1.0]) + 1


def _mgf_parts(measure: LatticeMeasure) -> tuple[FloatArray, FloatArray, float]:
    # Weights at or below zero are FFT noise; what they stand for is within the error charged in _log_mgf.
    positive = measure.weights > 0
    return measure.positions[positive].astype(float), np.log(measure.weights[positive]), measure.error


def _log_mgf(part: tuple[FloatArray, FloatArray, float], mean: float, rates: FloatArray) -> FloatArray:
    """At least log E exp(s (X - mean)) for every s of `rates`, the error of the weights included."""
    positions, log_weights, error = part
    exponents = np.outer(rates, positions - mean)
    values = _row_logsumexp(exponents + log_weights)
    if error > 0:  # Cauchy-Schwarz: the sum of |error_i| e^(s x_i) is at most error times the 2-norm of e^(s x_i)
        values = np.logaddexp(values, math.log(error) + 0.5 * _row_logsumexp(2.0 * exponents))
    return values


def _row_logsumexp(rows: FloatArray) -> FloatArray:
    peak = rows.max(axis=1)
    total: FloatArray = peak + np.log(np.exp(rows - peak[:, None]).sum(axis=1))
    return total
