"""Scores fitted to pilot runs, for a target of which nothing is known.

Half of the pilot fits several scores: Gaussians, and what is left of features that predict each other
(`calipers.auditing.residuals`: noise that was used twice). The other half says which of them tells more; that one is
fitted again to all pilot runs. The pilot's random numbers are never used again, so the audit that follows is as honest
as with any other score.
"""

from __future__ import annotations

import functools
import hashlib
import math

import numpy as np
from scipy import special

from calipers.auditing.bounds import SplitScores
from calipers.auditing.distinguishers import Plain
from calipers.auditing.residuals import Residuals, residual_scores
from calipers.auditing.targets import Target, TargetError, failure, within
from calipers.domains import COUNT_FROM_ZERO, Domain
from calipers.errors import InputError
from calipers.numerics.types import BoolArray, FloatArray

# No pilot below this: a variance has to be fitted for each hypothesis.
PILOT = Domain(10, 10**9, integer=True)
# The pilot's seeds: no chunk of a game reaches this number.
PILOT_KEY = 2**62


class Fitted:
    """The log likelihood ratio of two Gaussians, fitted to pilot runs of both hypotheses, rows (runs, features).

    With x the outputs, each feature divided by its `scale` (the pooled deviation of the pilot), the score is
    log phi(x; m1, v1 I) - log phi(x; m0, v0 I). The means differ only along features whose difference exceeds what the
    pilot's own noise explains (about three features in a thousand pass by chance), and along all the others where these
    together do (by chance in about one pilot of a hundred); the two variances are common to all features, which is what
    a divisor that depends on the data changes.
    """

    def __init__(self, absent: FloatArray, present: FloatArray) -> None:
        sides, self.pilot = (absent, present), len(absent)
        means = np.array([rows.mean(axis=0) for rows in sides])
        variances = np.array([rows.var(axis=0, ddof=1) for rows in sides])
        pooled = variances.mean(axis=0)
        gaps, noise = means[1] - means[0], 2 * pooled / self.pilot
        differs = np.abs(gaps) > BELIEVED * np.sqrt(noise)
        differs |= _differ_together(gaps, noise, ~differs & (noise > 0))
        # A feature that never varied has no scale of its own; 1 leaves it as it is.
        self.scale = np.where(pooled > 0, np.sqrt(pooled), 1.0)
        self.absent_mean, self.present_mean = np.where(differs, means, means.mean(axis=0)) / self.scale
        spread = np.maximum((variances / self.scale**2).mean(axis=1), np.finfo(np.float64).tiny)
        self.absent_variance, self.present_variance = map(float, spread)

    @property
    def blind(self) -> str:
        """What it cannot see."""
        return (
            f"what a score fitted to more than {self.pilot} + {self.pilot} pilot runs (--pilot) would find, small "
            "differences of the means included; to differences that are neither in the means nor in all standard "
            "deviations by the same factor; to noise whose values depend on one another otherwise than the pilot runs "
            "were checked for (correlated pairs, regressions on a few numbers)"
        )

    @property
    def name(self) -> str:
        """What it is."""
        return f"Gaussians fitted to {self.pilot} + {self.pilot} pilot runs"

    def identity(self) -> dict[str, object]:
        """The digest of the fitted numbers."""
        variances = [self.absent_variance, self.present_variance]
        numbers = np.concatenate([self.scale, self.absent_mean, self.present_mean, variances]).astype("<f8")
        digest = hashlib.sha256(numbers.tobytes()).hexdigest()
        return {"distinguisher": "fitted", "pilot": self.pilot, "digest": digest}

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The fitted log likelihood ratio."""
        rows = np.asarray(outputs, dtype=np.float64).reshape(len(outputs), -1)
        if rows.shape[1] != self.absent_mean.size:
            raise InputError(f"Fitted to {self.absent_mean.size} features, got {rows.shape[1]}.")
        rows = rows / self.scale
        absent = np.square(rows - self.absent_mean).sum(axis=1) / self.absent_variance
        present = np.square(rows - self.present_mean).sum(axis=1) / self.present_variance
        scale = rows.shape[1] * math.log(self.absent_variance / self.present_variance)
        return np.asarray(0.5 * (absent - present + scale), dtype=np.float64)


def _differ_together(gaps: FloatArray, noise: FloatArray, among: BoolArray) -> BoolArray:
    """Those among the features, where their squared differences add up to more than the pilot's own noise explains."""
    count = int(among.sum())
    excess = float((np.square(gaps[among]) / noise[among]).sum()) - count
    return among & (excess > BELIEVED * math.sqrt(2 * count))


def _pilot_runs(target: Target, present: bool, pilot: int, seed: int, time_limit: float | None) -> FloatArray:
    """Rows of `pilot` runs, or a `TargetError` that names the chunk and the seed."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PILOT_KEY, int(present))))
    size = getattr(target, "chunk", None) or pilot
    rows: list[FloatArray] = []
    for number, start in enumerate(range(0, pilot, size)):
        count = min(size, pilot - start)
        try:
            outputs = within(time_limit, functools.partial(target.outputs, present, count, rng))
            found = np.asarray(outputs, dtype=np.float64).reshape(count, -1)
            if not np.isfinite(found).all():
                run = int((~np.isfinite(found).all(axis=1)).argmax())
                raise TargetError(f"returned NaN or infinity in run {run}, which nothing can be fitted to")
            if rows and found.shape[1] != rows[0].shape[1]:
                raise TargetError(f"shows {rows[0].shape[1]} numbers in one chunk and {found.shape[1]} in another")
        except Exception as error:
            where = f"Pilot, record {'present' if present else 'absent'}, chunk {number}, seed {seed}, {count} runs."
            raise failure(target.name, error, where, number, seed) from error
        rows.append(found)
    return np.concatenate(rows)


# |difference| / its standard deviation beyond which a feature's mean is believed to differ.
BELIEVED = 3.0


# A score of residuals replaces the Gaussians only where it is clearly better: two standard errors of the comparison.
MARGIN = 0.3


def fit(target: Target, *, pilot: int, seed: int, time_limit: float | None = None) -> Plain | Fitted | Residuals:
    """A distinguisher from `pilot` runs of each hypothesis; `Plain` where there is one feature and its mean rises.

    The pilot uses seeds that `play` never uses, so the fitted score is independent of the audited runs. It is played in
    the target's chunks, each within `time_limit` seconds.
    """
    pilot = PILOT.check_int("pilot", pilot, "Too few runs fit nothing.")
    seed = COUNT_FROM_ZERO.check_int("seed", seed)
    absent, present = (_pilot_runs(target, side, pilot, seed, time_limit) for side in (False, True))
    if absent.shape != present.shape:
        raise TargetError(
            f"{target.name} shows {absent.shape[1]} numbers without the record and {present.shape[1]} with it."
        )
    half = pilot // 2

    def tells(score: Plain | Fitted | Residuals) -> float:
        return _tells(score, absent[half:], present[half:])

    chosen = max(residual_scores(absent[:half], present[:half]), key=tells, default=None)
    if chosen is None or tells(chosen) <= tells(_gaussians(absent[:half], present[:half])) + MARGIN:
        return _gaussians(absent, present)
    again = [found for found in residual_scores(absent, present) if found.reading == chosen.reading]
    return again[0] if again else chosen


def _tells(score: Plain | Fitted | Residuals, absent: FloatArray, present: FloatArray) -> float:
    """How well the score tells the rows apart, as a shift of unit Gaussians: an estimate.

    The larger of what one threshold shows with confidence (for rare and clear effects), and what the ranks suggest.
    """
    without, with_ = score.scores(absent), score.scores(present)
    above = np.searchsorted(np.sort(without), with_, side="left") + np.searchsorted(
        np.sort(without), with_, side="right"
    )
    area = float(np.clip(above.mean() / (2.0 * without.size), 1e-3, 1.0 - 1e-3))
    ranked = abs(math.sqrt(2.0) * float(special.ndtri(area)))
    return max(SplitScores(without, with_, 0.9).mu(0.0).value, ranked)


def _gaussians(absent: FloatArray, present: FloatArray) -> Plain | Fitted:
    """Two Gaussians fitted to the rows of both hypotheses; one feature whose mean rises is its own score."""
    found = Fitted(absent, present)
    return Plain() if absent.shape[1] == 1 and found.present_mean[0] > found.absent_mean[0] else found
