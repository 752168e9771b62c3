"""A simultaneous band: bounds on the error rates of every threshold test at once, and the curve they give.

The four rates of a threshold t, P[absent > t], P[absent <= t], P[present > t] and P[present <= t], each get an upper
bound that holds at all t together. Each of the four has a quarter of the error budget, and spends half of it on
either of

- **Dvoretzky-Kiefer-Wolfowitz with Massart's constant**: rate <= share + sqrt(log(1/e)/(2n)) at every t, with error e.
  Good in the middle, useless in the tails, where the addend swamps the rate.
- **Order statistics.** If at most k of n scores exceed t, the (k+1)-th largest score x is at most t, so
  P[X > t] <= P[X > x], and P[X > x] is at most a Beta(k+1, n-k) variable (exactly one if X has no atoms, stochastically
  less if it has). Its quantile is the Clopper-Pearson bound of k successes. One fixed grid of k, dense at both ends,
  shares the error; a count between two grid values is rounded up. Good in the tails.

Both hold for scores with atoms and ties, and neither looks at the data to choose anything, so no trial is given up.
An upper bound on P[X <= t] is 1 minus a lower bound on P[X > t], so the band is two-sided: it also says how much
a threshold test on this score can *at most* achieve.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from calipers.auditing.statistics import EPSILON, TRIALS, error_level, upper_rate
from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements, statement
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import OPEN_UNIT, POSITIVE_PROBABILITY
from calipers.errors import InputError
from calipers.numerics.types import FloatArray, IntArray

_RATIO = 1.25
_TAIL_SHARE = 0.25
_ROUNDOFF = 8.0 * 2.0**-53


def checked_scores(name: str, values: ArrayLike) -> FloatArray:
    """One row of at least two scores without NaN, or `InputError`."""
    scores = np.asarray(values)
    if scores.dtype.kind not in "iuf" or scores.ndim != 1 or scores.size < 2:
        raise InputError(
            f"Expected {name} as one row of at least 2 scores, got shape {scores.shape} of {scores.dtype}."
        )
    scores = scores.astype(np.float64)
    if np.isnan(scores).any():
        raise InputError(f"Expected {name} without NaN: a run whose score is unknown must not be dropped or guessed.")
    return scores


def attack_curve(fpr: ArrayLike, fnr: ArrayLike) -> TradeoffCurve:
    """The attack curve of tests with rates at most these. Post-condition: f >= the pair's curve (Side.LOWER)."""
    alpha, beta = np.atleast_1d(np.asarray(fpr, dtype=np.float64)), np.atleast_1d(np.asarray(fnr, dtype=np.float64))
    return TradeoffCurve.from_tests(alpha, 1.0 - beta, 1.0 - alpha, beta, side=Side.LOWER)


def _grid(trials: int) -> IntArray:
    """Counts 0, 1, 2, ..., then growing by a quarter, up to a quarter of the trials; the same from the other end."""
    counts = [0]
    while counts[-1] < _TAIL_SHARE * trials:
        counts.append(max(counts[-1] + 1, int(_RATIO * counts[-1])))
    near = np.array(counts, dtype=np.int64)
    both = np.unique(np.concatenate((near, trials - near)))
    return both[(both >= 0) & (both < trials)]


@implements("massart1990:cor1", "clopper1934:limits")
@lru_cache(maxsize=4)  # both hypotheses, and every repetition of an audit, ask for the same table
def simultaneous_rates(trials: int, error: float) -> FloatArray:
    """u[k], k = 0, ..., trials: an upper bound on P[X > t] wherever k of the scores exceed t, and likewise for X <= t.

    Post-condition: for every distribution of X, u[number of scores above t] >= P[X > t] at all t at once, except with
    probability at most `error`. u does not decrease.
    """
    trials = TRIALS.check_int("trials", trials)
    error = OPEN_UNIT.check("error", error)
    counts = np.arange(trials + 1)
    # Half of an error below 1 is below 1/2, where Massart's one-sided constant holds.
    addend = math.sqrt(math.log(2.0 / error) / (2.0 * trials))
    bound = np.minimum((counts / trials + addend) * (1.0 + _ROUNDOFF), 1.0)
    grid = _grid(trials)
    in_tail = upper_rate(grid, trials, 0.5 * error / grid.size)
    rounded_up = np.searchsorted(grid, counts, side="left")
    reached = rounded_up < grid.size
    bound[reached] = np.minimum(bound[reached], in_tail[rounded_up[reached]])
    bound.flags.writeable = False
    return bound


class Band:
    """Upper bounds on the four rates at every threshold; all hold together with probability at least `confidence`.

    Between two thresholds, which are all scores that occurred, nothing changes. Every trial is used. `spent`: the part
    of the error that it may cost. Post-condition: all four rates at all thresholds lie below their bounds, except with
    probability at most `spent` times 1 - confidence.
    """

    def __init__(self, absent: ArrayLike, present: ArrayLike, confidence: float = 0.95, spent: float = 1.0) -> None:
        without, with_ = np.sort(checked_scores("absent", absent)), np.sort(checked_scores("present", present))
        error = 0.25 * error_level(confidence) * POSITIVE_PROBABILITY.check("spent", spent)
        self.confidence, self.threshold = confidence, np.unique(np.concatenate((without, with_)))
        self.absent_above, self.absent_below = self._rates(without, error)
        self.present_above, self.present_below = self._rates(with_, error)

    def _rates(self, scores: FloatArray, error: float) -> tuple[FloatArray, FloatArray]:
        bound = simultaneous_rates(scores.size, error)
        below = np.searchsorted(scores, self.threshold, side="right")
        return bound[scores.size - below], bound[below]

    @property
    def curve(self) -> TradeoffCurve:
        """The attack curve of all threshold tests in both orientations, null hypothesis "absent".

        Post-condition: with probability at least `confidence` it lies at or above the pair's trade-off curve at every
        alpha, so every epsilon, delta and mu read off it is a lower bound, all of them at once.
        """
        fpr = np.concatenate((self.absent_above, self.absent_below))
        fnr = np.concatenate((self.present_below, self.present_above))
        useful = fpr + fnr < 1.0
        return attack_curve(fpr[useful], fnr[useful])

    def largest_delta(self, epsilon: float) -> float:
        """The most that any threshold test on this score can gain, max of power - e^epsilon fpr, in either direction.

        Post-condition: at least that maximum, at all epsilon at once, with probability at least `confidence`. It bounds
        this score, not the mechanism: a better score may gain more.
        """
        odds = math.exp(EPSILON.check("epsilon", epsilon))
        gains = [
            gain - odds * (1.0 - other)
            for gain, other in (
                (self.present_above, self.absent_below),
                (self.present_below, self.absent_above),
                (self.absent_above, self.present_below),
                (self.absent_below, self.present_above),
            )
        ]
        largest = max(float(np.max(gain)) for gain in gains)
        return min(max(largest + _ROUNDOFF * odds, 0.0), 1.0)

    @property
    def evidence(self) -> Evidence:
        """The evidence behind the curve."""
        text = "Error rates of all thresholds at once: Dvoretzky-Kiefer-Wolfowitz-Massart and order statistics."
        source = f"{statement('massart1990:cor1')}; {statement('clopper1934:limits')}"
        return Evidence(Kind.STATISTICAL, text, source, self.confidence)

    def to_dict(self) -> dict[str, object]:
        """The curve as a JSON object."""
        curve, evidence = self.curve, self.evidence.to_dict()
        return {"alpha": curve.alpha.tolist(), "beta": curve.beta.tolist(), "evidence": evidence}
