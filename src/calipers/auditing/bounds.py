"""Lower bounds on leakage from the scores of an attack, each with a confidence that is true.

Scores of independent runs without the record (`absent`) and with it (`present`) turn into tests: say "present" when
the score exceeds a threshold, or when it does not (the reversed test, for a score whose sign is wrong). A test with
false positive rate alpha and false negative rate beta proves leakage by Equations (2) and (3) of Wang et al. (2026),
and its rates are binomial proportions. What can go wrong is the choice of the threshold: the best of a thousand
thresholds looks good on the data that chose it, leakage or not. So the trials are split.

1. On the first part of the trials every threshold, both orientations and several ways of sharing the error budget
   between the two rates are tried, and the combination is kept whose bound would be best if the rest looked alike.
   Bounds are compared before they are cut off at 0: where none promises much, the most promising is kept all the same.
2. On the rest, which the choice has never seen, the errors of this one test are counted. For epsilon and delta the
   hypothesis P(E) <= e^epsilon Q(E) + delta is tested itself (`calipers.auditing.exact`), in the direction that was
   chosen as well; for mu the two rates get Clopper-Pearson upper bounds that share the error. Given the first part,
   each bound is wrong with probability at most 1 - confidence.

Since step 1 happens before the counted trials, it costs no confidence, whatever it does; reversed tests and uneven
shares are free. Ties need no care: a threshold test is a test, whatever atoms the scores have. Scores of +-inf are
allowed.

Each bound makes its own choice, so **each bound holds with its confidence on its own**. Where all must hold at once,
read them off the simultaneous curve (`calipers.auditing.band`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from calipers.auditing.band import Band, attack_curve, checked_scores
from calipers.auditing.exact import EventCounts, exact_delta, exact_epsilon
from calipers.auditing.statistics import error_level, gains, upper_rate, wilson_upper
from calipers.bracket import Evidence, Kind
from calipers.citations import statement
from calipers.curves.gdp import gdp_mu
from calipers.domains import BELOW_ONE, OPEN_UNIT, POSITIVE_PROBABILITY, PROBABILITY
from calipers.numerics.types import FloatArray

SELECTION_SHARE = 0.25
"""The part of the trials that chooses the test. A quarter finds the threshold well and costs the rest little."""

DEFAULT_DELTA0 = 1e-10
_ERROR_SHARES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
_MOST_CANDIDATES = 1000
_TAIL_CANDIDATES = 50
_CAUTION = -float(special.ndtri(0.16))  # one standard deviation

Objective = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class ThresholdTest:
    """Say "present" if the score exceeds `threshold` (orientation "above") or if it does not ("below")."""

    threshold: float
    orientation: str

    def errors(self, absent: FloatArray, present: FloatArray) -> tuple[int, int]:
        """(false positives, false negatives) on these scores."""
        above_absent = int(np.count_nonzero(absent > self.threshold))
        above_present = int(np.count_nonzero(present > self.threshold))
        if self.orientation == "above":
            return above_absent, present.size - above_present
        return absent.size - above_absent, above_present


@dataclass(frozen=True)
class LowerBound:
    """quantity(at) >= value, with the confidence of the evidence.

    `fpr` and `fnr` are upper confidence bounds on the rates of `test` that hold together; `trials` are the (absent,
    present) runs that were counted, those that chose the test excluded. `claim` and `upper` are what is claimed and
    what is certified of the same quantity; infinite where that is no bound, None where there is nothing of the kind.
    """

    quantity: str
    at: float
    value: float
    test: ThresholdTest
    fpr: float
    fnr: float
    trials: tuple[int, int]
    evidence: Evidence
    claim: float | None = None
    upper: float | None = None

    def to_dict(self) -> dict[str, object]:
        """The bound as a JSON object."""
        given = {"epsilon": "delta", "delta": "epsilon", "mu": "delta0"}[self.quantity]
        record = {
            given: self.at,
            "lower": self.value,
            "threshold": self.test.threshold if np.isfinite(self.test.threshold) else str(self.test.threshold),
            "orientation": self.test.orientation,
            "fpr_upper": self.fpr,
            "fnr_upper": self.fnr,
            "trials": list(self.trials),
            "lower_evidence": self.evidence.to_dict(),
            "claim": self.claim,
            "upper": self.upper,
        }
        return {name: value for name, value in record.items() if value is not None}


class Candidates:
    """Tests tried on the choosing parts: a thousand thresholds or so at their scores, with the rates seen."""

    def __init__(self, absent: FloatArray, present: FloatArray) -> None:
        absent, present = np.sort(absent), np.sort(present)
        pooled = np.unique(np.concatenate((absent, present)))
        if pooled.size > _MOST_CANDIDATES:
            even = np.linspace(0, pooled.size - 1, _MOST_CANDIDATES).astype(np.int64)
            ends = np.arange(_TAIL_CANDIDATES)
            pooled = pooled[np.unique(np.concatenate((even, ends, pooled.size - 1 - ends)))]
        # Half a pseudo-count keeps an empty tail of the choosing part from promising a rate of zero.
        absent_above = absent.size - np.searchsorted(absent, pooled, side="right")
        present_above = present.size - np.searchsorted(present, pooled, side="right")
        alpha = (absent_above + 0.5) / (absent.size + 1.0)
        power = (present_above + 0.5) / (present.size + 1.0)
        self.threshold, self.above = np.tile(pooled, 2), np.repeat([True, False], pooled.size)
        self.fpr, self.fnr = np.concatenate((alpha, 1.0 - alpha)), np.concatenate((1.0 - power, power))


@dataclass(frozen=True)
class Chosen:
    """A test and its share of the error budget, with the rates that the first part saw and the bounds it expects."""

    test: ThresholdTest
    share: float
    seen: tuple[float, float]
    expected: tuple[float, float]


class SplitScores:
    """Scores of one audit, split into the part that chooses tests and the part that counts their errors.

    Bounds may be wrong with probability `spent` times 1 - confidence: all of it, unless several looks at the scores
    share it (`calipers.auditing.sequential`).
    """

    def __init__(
        self,
        absent: ArrayLike,
        present: ArrayLike,
        confidence: float = 0.95,
        selection_share: float = SELECTION_SHARE,
        spent: float = 1.0,
    ) -> None:
        share = OPEN_UNIT.check("selection_share", selection_share)
        self.confidence = OPEN_UNIT.check("confidence", confidence)
        self.spent = POSITIVE_PROBABILITY.check("spent", spent)
        self.error = error_level(self.confidence) * self.spent
        self.absent, self.present = checked_scores("absent", absent), checked_scores("present", present)
        # At least one run on each side of the split.
        cut_absent = min(max(int(share * self.absent.size), 1), self.absent.size - 1)
        cut_present = min(max(int(share * self.present.size), 1), self.present.size - 1)
        self._choosing = (self.absent[:cut_absent], self.present[:cut_present])
        self._counting = (self.absent[cut_absent:], self.present[cut_present:])

    @property
    def trials(self) -> tuple[int, int]:
        """(absent, present) runs in the part that counts."""
        return self._counting[0].size, self._counting[1].size

    @cached_property
    def band(self) -> Band:
        """What holds at every threshold at once; it needs no choice, and uses all trials."""
        return Band(self.absent, self.present, self.confidence, self.spent)

    @cached_property
    def candidates(self) -> Candidates:
        """What the first part has to choose from."""
        return Candidates(*self._choosing)

    @cached_property
    def _expected_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Expected upper bounds (fpr, fnr) of every candidate (rows) at every share of the error (columns).

        The best of many candidates was lucky. Taking its rates one standard deviation worse than they look keeps the
        choice out of tails in which the choosing part has seen nothing.
        """
        fpr = wilson_upper(self.candidates.fpr, self._choosing[0].size, _CAUTION)[:, None]
        fnr = wilson_upper(self.candidates.fnr, self._choosing[1].size, _CAUTION)[:, None]
        absent, present = self.trials
        upper_fpr = wilson_upper(fpr, absent, -special.ndtri(self.error * _ERROR_SHARES))
        return upper_fpr, wilson_upper(fnr, present, -special.ndtri(self.error * (1.0 - _ERROR_SHARES)))

    def choose(self, objective: Objective) -> Chosen:
        """The test and share where the expected bounds make `objective` largest; uses the first part only."""
        fpr, fnr = self._expected_bounds
        values = objective(fpr, fnr)
        row, column = np.unravel_index(int(np.argmax(values)), values.shape)
        tried = self.candidates
        orientation = "above" if tried.above[row] else "below"
        return Chosen(
            ThresholdTest(float(tried.threshold[row]), orientation),
            float(_ERROR_SHARES[column]),
            (float(tried.fpr[row]), float(tried.fnr[row])),
            (float(fpr[row, column]), float(fnr[row, column])),
        )

    def choose_for_delta(self, epsilon: float) -> Chosen:
        """The test whose expected bound on delta(epsilon) is largest: the one that `delta` counts."""
        return self.choose(lambda fpr, fnr: np.maximum(*gains(fpr, fnr, epsilon)))

    def rates(self, test: ThresholdTest, share: float) -> tuple[float, float]:
        """Upper confidence bounds on the test's (fpr, fnr) from the part that counts.

        Post-condition: given the first part, both hold together with probability at least `confidence`.
        """
        (absent, present), (false_positives, false_negatives) = self.trials, test.errors(*self._counting)
        fpr = float(upper_rate(false_positives, absent, self.error * share))
        return fpr, float(upper_rate(false_negatives, present, self.error * (1.0 - share)))

    def observed_rates(self, test: ThresholdTest) -> tuple[float, float]:
        """The shares of false positives and false negatives in the part that counts: estimates."""
        (absent, present), (false_positives, false_negatives) = self.trials, test.errors(*self._counting)
        return false_positives / absent, false_negatives / present

    def counts(self, choice: Chosen, forward: bool, odds: float) -> EventCounts:
        """How often the test said "present" (`forward`), or "absent", under both hypotheses, in the part that counts.

        `odds` is about e^epsilon, and decides how much either rate matters.
        """
        (absent, present), (false_positives, false_negatives) = self.trials, choice.test.errors(*self._counting)
        sides = ((present - false_negatives, present), (false_positives, absent))
        rates = (1.0 - choice.seen[1], choice.seen[0])
        if not forward:
            sides = ((absent - false_positives, absent), (false_negatives, present))
            rates = (1.0 - choice.seen[0], choice.seen[1])
        spread = [math.sqrt(rate * (1.0 - rate) / side[1]) for rate, side in zip(rates, sides, strict=True)]
        total = math.hypot(spread[0], odds * spread[1])
        return EventCounts(*sides, self.error, (spread[0] / total, odds * spread[1] / total))

    def largest_delta(self, choice: Chosen, epsilon: float, forward: bool) -> float:
        """The lower bound on delta(epsilon) from one test in one direction, both chosen on the first part."""
        return exact_delta(self.counts(choice, forward, math.exp(epsilon)), epsilon)

    def _bound(self, quantity: str, at: float, choice: Chosen, value: float, how: str, source: str) -> LowerBound:
        fpr, fnr = self.rates(choice.test, choice.share)
        chosen, counted = (" + ".join(str(part.size) for part in parts) for parts in (self._choosing, self._counting))
        text = f"A threshold test chosen on {chosen} runs; its errors counted on {counted} others, {how}"
        evidence = Evidence(Kind.STATISTICAL, text, source, self.confidence)
        return LowerBound(quantity, at, value, choice.test, fpr, fnr, self.trials, evidence)

    def epsilon(self, delta: float) -> LowerBound:
        """A lower bound on epsilon(delta).

        Post-condition: it exceeds the true epsilon(delta) with probability at most 1 - confidence.
        """
        delta = PROBABILITY.check("delta", delta)
        choice = self.choose(lambda fpr, fnr: np.maximum(*_ratios(fpr, fnr, delta)))
        expected = (np.array(choice.expected[0]), np.array(choice.expected[1]))
        forward, backward = (float(ratio) for ratio in _ratios(*expected, delta))
        counts = self.counts(choice, forward >= backward, max(forward, backward, 1.0))
        return self._bound("epsilon", delta, choice, exact_epsilon(counts, delta), _EXACTLY, _exact_source())

    def delta(self, epsilon: float) -> LowerBound:
        """A lower bound on delta(epsilon).

        Post-condition: it exceeds the true delta(epsilon) with probability at most 1 - confidence.
        """
        choice = self.choose_for_delta(epsilon)
        forward, backward = gains(*choice.expected, epsilon)
        value = self.largest_delta(choice, epsilon, bool(forward >= backward))
        return self._bound("delta", epsilon, choice, value, _EXACTLY, _exact_source())

    def mu(self, delta0: float = DEFAULT_DELTA0) -> LowerBound:
        """A lower bound on mu up to delta0: no smaller mu describes the pair by G_mu tensor f_(0, delta0).

        Post-condition: it exceeds the true mu (up to delta0, and so over all alpha) with probability at most
        1 - confidence.
        """
        delta0 = BELOW_ONE.check("delta0", delta0)
        choice = self.choose(lambda fpr, fnr: np.asarray(-special.ndtri(fpr) - special.ndtri(fnr), dtype=np.float64))
        value = gdp_mu(attack_curve(*self.rates(choice.test, choice.share)), delta0)
        how = "Clopper-Pearson bounds on the two rates sharing the error budget."
        return self._bound("mu", delta0, choice, value, how, str(statement("clopper1934:limits")))


_EXACTLY = "by an exact test of P(E) <= e^epsilon Q(E) + delta."


def _exact_source() -> str:
    return f"{statement('berger1994:p-value')}; {statement('buehler1957:limits')}"


def _ratios(fpr: FloatArray, fnr: FloatArray, delta: float) -> tuple[FloatArray, FloatArray]:
    """(1 - delta - rate)/other rate in both directions, forward first: e^epsilon of Equation (2), below 1 too."""
    return (1.0 - delta - fnr) / fpr, (1.0 - delta - fpr) / fnr
