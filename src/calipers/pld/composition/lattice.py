"""Tilted PLDs on a lattice: the form in which PLDs are multiplied.

Adding independent log ratios is a convolution, and an FFT wants a common lattice hZ. Putting a
PLD there has a direction:

- UPPER: an atom at x between a = h floor(x/h) and b = a + h is split onto a and b, keeping
  its Q-mass and its P-mass (a mean preserving spread of L).
- LOWER: an atom gets the integer score round(x/h). Any score is a test statistic, so only its
  exact PLD under P and under Q matters: two measures on the lattice.

Tilting. A plain FFT has an absolute error near 1e-16, so small tails drown. Multiplying the
masses by e^(theta x), normalizing, convolving, and dividing out afterwards commutes with
convolution and moves the tail of interest to the center. With theta at the saddle point of the
epsilon asked for, the tail comes out with *relative* accuracy at any depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.errors import CertificationError
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.core.pmf import PrivacyLossPmf


def weighted_counts(index: IntArray, weights: FloatArray, size: int) -> FloatArray:
    """Sum of the weights at every index 0 .. size-1."""
    return np.asarray(np.bincount(index.astype(np.intp), weights=weights, minlength=size), dtype=np.float64)


@dataclass(frozen=True)
class Window:
    """An interval of positions that a sum rarely leaves.

    P(sum > high + m) <= e^(log_escape - rate_above m) and P(sum < low - m) <= e^(log_escape - rate_below m)
    for every m >= 0, apart from a mass `loose` that may lie anywhere.
    """

    low: int
    high: int
    log_escape: float
    rate_below: float
    rate_above: float
    loose: float


@dataclass(frozen=True)
class LatticeMeasure:
    """A tilted measure on hZ: weights at integer positions, and the log of the factor taken out.

    The untilted mass at position i is `exp(log_norm - tilt h i) weight_i`. `error` bounds the
    2-norm of the error of the weights, `escape` the mass that may be misplaced anywhere, and
    `window` what is known of the mass beyond the two ends. `dense`: positions follow one another without gaps.
    """

    positions: IntArray
    weights: FloatArray
    log_norm: float
    error: float = 0.0
    escape: float = 0.0
    window: Window | None = None
    dense: bool = False

    def moments(self, *others: LatticeMeasure | None) -> tuple[float, float]:
        """Mean and variance of the position under the normalized weights, those of other parts included."""
        parts = [self, *(other for other in others if other is not None)]
        weights, positions = (np.concatenate([getattr(p, name) for p in parts]) for name in ("weights", "positions"))
        total = float(weights.sum())
        mean = float(np.sum(weights * positions)) / total
        spread = positions - mean
        return mean, float(np.sum(weights * spread * spread)) / total

    def fold(self, n: int) -> FloatArray:
        """The weights on the circle Z/n."""
        if self.dense:
            first = int(self.positions[0]) % n
            around = np.zeros(-(-(first + len(self.weights)) // n) * n)
            around[first : first + len(self.weights)] = self.weights
            return around if len(around) == n else np.asarray(around.reshape(-1, n).sum(axis=0))
        return weighted_counts(np.mod(self.positions, n), self.weights, n)

    def restricted(self, inside: np.ndarray) -> LatticeMeasure:
        """The part of the measure on the positions where `inside` holds."""
        return LatticeMeasure(self.positions[inside], self.weights[inside], self.log_norm, self.error, self.escape)


def _normalized(positions: IntArray, log_weights: FloatArray) -> LatticeMeasure:
    peak = float(log_weights.max())
    weights = np.exp(log_weights - peak)
    total = float(weights.sum())
    return LatticeMeasure(positions, weights / total, peak + math.log(total))


def _split_positions(ratio: FloatArray, step: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Lower lattice neighbors, and the shares of Q-mass sent to the lower and the upper neighbor."""
    scaled = ratio / step
    _refuse_far(scaled)
    below = np.floor(scaled)
    part = scaled - below
    width = -math.expm1(-step)
    short = -np.expm1((part - 1.0) * step)
    # e^((part - 1) step) = 1 - short keeps its digits unless the step is wide.
    relative = 1.0 - short if step < 0.1 else np.exp((part - 1.0) * step)
    return below.astype(np.int64), short / width, -np.expm1(-part * step) * relative / width


def split_pmf(pmf: PrivacyLossPmf, step: float, tilt: float) -> LatticeMeasure:
    """Q-masses times L^tilt of a pessimistic PLD, split onto step Z."""
    below, down, up = _split_positions(pmf.log_ratio, step)
    positions = np.concatenate((below, below + 1))
    with np.errstate(divide="ignore"):
        log_down, log_up = np.log(down), np.log(up)
    # The share that goes up may be too small for a double though its likelihood ratio makes it all of the P-mass.
    part = pmf.log_ratio / step - below
    faded = (up < _FADED) & (part > 0.0)
    log_up[faded] = (part[faded] - 1.0) * step + np.log(np.expm1(-part[faded] * step) / math.expm1(-step))
    log_q = np.concatenate((pmf.log_q + log_down, pmf.log_q + log_up))
    present = np.isfinite(log_q)
    positions, log_q = positions[present], log_q[present]
    return _normalized(positions, log_q + tilt * step * positions)


_FADED = 1e-290
"""Smaller products have lost their digits."""
_FARTHEST, _WIDEST = 2.0**52, 2.0**24
"""Places from 0 that whole numbers count exactly, and places side by side that are held."""


def score_pmf(pmf: PrivacyLossPmf, step: float, tilt: float) -> tuple[LatticeMeasure, LatticeMeasure]:
    """The scores round(x/step) of an optimistic PLD: under P (tilted by tilt - 1) and under Q (by tilt)."""
    scores = np.rint(pmf.log_ratio / step)
    _refuse_far(scores)
    scores = scores.astype(np.int64)
    return (
        _normalized(scores, pmf.log_p + (tilt - 1.0) * step * scores),
        _normalized(scores, pmf.log_q + tilt * step * scores),
    )


def resplit(measure: LatticeMeasure, step: float, coarse: float, tilt: float) -> LatticeMeasure:
    """A tilted UPPER measure on step Z, split again onto the coarser lattice coarse Z."""
    values = np.asarray(measure.positions * step, dtype=np.float64)
    below, down, up = _split_positions(values, coarse)
    part = values - below * coarse
    down = down * in_range(-tilt * part)
    up = up * in_range(tilt * (coarse - part))
    return _regrouped(measure, (below, down), (below + 1, up))


def rescore(measure: LatticeMeasure, step: float, coarse: float, tilt: float) -> LatticeMeasure:
    """A tilted LOWER measure on step Z, with scores rounded to the coarser lattice coarse Z."""
    scores = np.rint(measure.positions * (step / coarse)).astype(np.int64)
    gain = in_range(tilt * (scores * coarse - measure.positions * step))
    return _regrouped(measure, (scores, gain))


def _refuse_far(places: FloatArray) -> None:
    """Refuse places on a lattice that whole numbers do not count."""
    if not float(np.max(np.abs(places))) < _FARTHEST:
        raise CertificationError(
            "The log likelihood ratios of these steps are too large to be counted on a lattice: so little noise hides "
            "nothing, and no bound is computed for it. Use a larger noise_multiplier."
        )


def in_range(exponents: FloatArray) -> FloatArray:
    """e^exponents, where that is a number."""
    if float(np.max(exponents)) > 700.0:
        raise CertificationError(
            "The log likelihood ratios of these steps are so large that their rounding alone is beyond e^700: so "
            "little noise hides nothing, and no bound is computed for it. Use a larger noise_multiplier."
        )
    return np.asarray(np.exp(exponents))


def _regrouped(measure: LatticeMeasure, *parts: tuple[IntArray, FloatArray]) -> LatticeMeasure:
    """Every weight times its gain at its new place, of which there may be several."""
    low = int(parts[0][0].min())
    size = int(parts[-1][0].max()) - low + 1
    _refuse_far(np.array(size * (_FARTHEST / _WIDEST)))
    first = parts[0][0] - low
    weights, most = weighted_counts(first, measure.weights * parts[0][1], size), parts[0][1]
    for places, gains in parts[1:]:
        weights, most = weights + weighted_counts(places - low, measure.weights * gains, size), most + gains
    # A non-negative matrix with column sums <= gain and row sums <= 2 gain crowd has 2-norm at most
    # gain sqrt(2 crowd); mass grows by at most gain.
    gain, crowd = float(most.max()), float(np.bincount(first.astype(np.intp)).max())
    return LatticeMeasure(
        np.arange(low, low + len(weights)),
        weights,
        measure.log_norm,
        error=measure.error * gain * math.sqrt(2.0 * crowd),
        escape=measure.escape * gain,
        dense=True,
    )
