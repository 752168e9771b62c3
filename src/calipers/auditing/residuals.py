"""Noise that is used twice: scores that subtract one output from another before they look.

Noise hides a record only if it is drawn anew for every number that is shown. A loop that seeds its generator again for
each layer, or draws one noise vector for all steps, adds the *same* noise to several numbers: a difference of two of
them contains none, and the record is plain to see, though every number on its own looks as noisy as it should.

From pilot runs without the record, each feature is predicted from others, and what is left over is looked at instead:

- with few features from all before it (regression), so that any linear dependence of the noise is found;
- with more from the one before it that it is most correlated with (differences across layers and steps);
- with very many, where pairs cannot be listed, from the feature at a fixed distance, for the distances at which the
  outputs resemble themselves (one step, one layer): their autocorrelation shows these distances.

A residual is measured in units of its own deviation without the record. Two scores read the residuals:

- `"largest"`: the logarithm of the largest one. Where noise was repeated, it is astronomically large.
- `"whitened"`: the residuals weighted by how their means differ: the matched filter for correlated noise.

The pilot's random numbers are never used again, and a score is only a score: what follows is as honest as with any.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from scipy import fft

from calipers.errors import InputError
from calipers.numerics.types import FloatArray, IntArray

MOST_PAIRED = 2000
"""Features up to which all pairs are compared."""

_RUNS_PER_FEATURE = 4  # a regression on more features than this allows fits the pilot's own noise
_MOST_REGRESSED = 80
_CORRELATED = 0.6  # far above what a pilot's chance correlations reach
_LAGS = 6
_LEAST = 1e-9  # of a feature's deviation: what rounding leaves of noise that was subtracted
_BELIEVED = 3.0
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Residuals:
    """Scores of what is left of `feature` after `weight` times `others` is subtracted; all in units of `scale`.

    `shift` is how the means differ, 0 where the pilot does not say so. Shapes: (residuals,) and, for `others` and
    `weight`, (residuals, predictors).
    """

    reading: str
    mean: FloatArray
    feature: IntArray
    others: IntArray
    weight: FloatArray
    scale: FloatArray
    shift: FloatArray
    pilot: int
    blind = (
        "noise whose values depend on one another in ways that were not looked for, to effects the pilot did not show"
    )

    @property
    def name(self) -> str:
        """What it is."""
        what = "largest residual" if self.reading == "largest" else "whitened differences"
        return f"{what} of features that predict each other in {self.pilot} pilot runs"

    def identity(self) -> dict[str, object]:
        """The digest of the fitted numbers."""
        numbers = [self.mean, self.feature, self.others, self.weight, self.scale, self.shift]
        parts = [np.ascontiguousarray(part, dtype="<f8").tobytes() for part in numbers]
        digest = hashlib.sha256(b"".join(parts)).hexdigest()
        return {"distinguisher": f"residuals-{self.reading}", "pilot": self.pilot, "digest": digest}

    def residuals(self, rows: FloatArray) -> FloatArray:
        """What is left of each feature, in units of its scale; shape (runs, residuals)."""
        centered = rows - self.mean
        found = centered[:, self.feature]
        for column in range(self.others.shape[1]):
            found = found - self.weight[:, column] * centered[:, self.others[:, column]]
        return np.asarray(found / self.scale, dtype=np.float64)

    def scores(self, outputs: FloatArray) -> FloatArray:
        """One number for each run, larger where the record seems present."""
        rows = np.asarray(outputs, dtype=np.float64).reshape(len(outputs), -1)
        if rows.shape[1] != self.mean.size:
            raise InputError(f"Fitted to {self.mean.size} features, got {rows.shape[1]}.")
        found = self.residuals(rows)
        if self.reading == "largest":
            return np.asarray(np.log(np.maximum(np.abs(found).max(axis=1), _TINY)), dtype=np.float64)
        return np.asarray(found @ self.shift, dtype=np.float64)


def residual_scores(absent: FloatArray, present: FloatArray) -> list[Residuals]:
    """Both scores, fitted to rows of pilot runs; none where no feature predicts another."""
    mean, deviation = absent.mean(axis=0), absent.std(axis=0)
    runs, size = absent.shape
    if size < 2 or not np.isfinite(absent).all():
        return []
    standard = (absent - mean) / np.where(deviation > 0.0, deviation, 1.0)
    few = size <= min(_MOST_REGRESSED, runs // _RUNS_PER_FEATURE)
    if few:
        others, weight = _regressed(standard)
    else:
        others, weight = _paired(standard) if size <= MOST_PAIRED else _lagged(standard)
    predicted = np.any(weight != 0.0, axis=1)
    # A feature that never varies without the record has no noise at all; nothing need be subtracted from it.
    if not (predicted | (deviation == 0.0)).any():
        return []
    unit = np.where(deviation > 0.0, deviation, 1.0)
    weight = weight * unit[:, None] / unit[others]
    whole = Residuals("whitened", mean, np.arange(size), others, weight, np.ones(size), np.zeros(size), runs)
    left = whole.residuals(absent)
    # A pilot that has fitted the weights sees less left over than there is.
    freedom = np.maximum(runs - 1 - (weight != 0.0).sum(axis=1), 1)
    scale = np.sqrt(np.square(left).sum(axis=0) / freedom)
    scale = np.maximum(scale, _LEAST * np.maximum(unit, np.abs(mean)))
    shift = whole.residuals(present).mean(axis=0) / scale
    # Of few differences all are kept; among many, those that the pilot's own noise explains would drown the others.
    believed = np.abs(shift) > (0.0 if few else _BELIEVED * np.sqrt(2.0 / runs))
    looked = predicted | (deviation == 0.0)

    def reading(name: str, chosen: FloatArray) -> Residuals:
        return Residuals(
            name, mean, np.flatnonzero(chosen), others[chosen], weight[chosen], scale[chosen],
            np.where(believed, shift, 0.0)[chosen], runs,
        )  # fmt: skip

    scores = [reading("largest", looked)]
    return [*scores, reading("whitened", np.ones(size, dtype=np.bool_))] if believed.any() else scores


def _regressed(standard: FloatArray) -> tuple[IntArray, FloatArray]:
    """Each feature from all before it, by least squares; only where that explains most of it."""
    size = standard.shape[1]
    others = np.tile(np.arange(size - 1), (size, 1))
    weight = np.zeros((size, size - 1))
    for feature in range(1, size):
        before = standard[:, :feature]
        found = np.linalg.lstsq(before, standard[:, feature], rcond=1e-10)[0]
        left = standard[:, feature] - before @ found
        if np.square(left).sum() < (1.0 - _CORRELATED**2) * np.square(standard[:, feature]).sum():
            weight[feature, :feature] = found
    return others, weight


def _paired(standard: FloatArray) -> tuple[IntArray, FloatArray]:
    """Each feature from the one before it that it is most correlated with."""
    correlation = np.triu(standard.T @ standard / len(standard), k=1)
    others = np.abs(correlation).argmax(axis=0)
    weight = correlation[others, np.arange(len(others))]
    return others[:, None], np.where(np.abs(weight) >= _CORRELATED, weight, 0.0)[:, None]


def _lagged(standard: FloatArray) -> tuple[IntArray, FloatArray]:
    """Each feature from the one at the first of a few distances that it is correlated with."""
    runs, size = standard.shape
    padded = fft.next_fast_len(2 * size, real=True)
    spectrum = np.zeros(padded // 2 + 1)
    for row in standard:
        spectrum += np.square(np.abs(fft.rfft(row, padded)))
    likeness = np.abs(fft.irfft(spectrum, padded)[1:size])
    others, weight = np.zeros(size, dtype=np.int64), np.zeros(size)
    for lag in np.argsort(likeness)[::-1][:_LAGS] + 1:
        found = np.einsum("rf,rf->f", standard[:, lag:], standard[:, :-lag]) / runs
        better = np.abs(found) > np.maximum(np.abs(weight[lag:]), _CORRELATED)
        others[lag:] = np.where(better, np.arange(size - lag), others[lag:])
        weight[lag:] = np.where(better, found, weight[lag:])
    return others[:, None], weight[:, None]
