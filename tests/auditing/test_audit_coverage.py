"""The stated confidence is true: repeated audits of known leakage exceed the truth no more often than they may.

Every statistic is repeated 200 times at confidence 0.95; the number of times it exceeds the exact truth is compared
with Bin(200, 0.05) by its exact tail. The same check rejects an audit that chooses its threshold on the data it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb, log

import numpy as np
import pytest

from calipers.auditing.band import Band
from calipers.auditing.bounds import SplitScores
from calipers.auditing.one_run import one_run_audit
from calipers.auditing.statistics import upper_rate
from calipers.auditing.verdict import AuditOutcome, judge, profile_of
from calipers.bracket import Side
from calipers.curves.gdp import gaussian_curve, gdp_mu
from calipers.curves.tradeoff import TradeoffCurve
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon

REPEATS = 200
TRIALS = 400
CONFIDENCE = 0.95

Scores = tuple[np.ndarray, np.ndarray]
Drawer = Callable[[np.random.Generator], Scores]


def tail(count: int, repeats: int, error: float) -> float:
    """P[Bin(repeats, error) >= count], summed term by term."""
    return sum(comb(repeats, i) * error**i * (1 - error) ** (repeats - i) for i in range(count, repeats + 1))


def exceeds_its_right(count: int, repeats: int = REPEATS) -> bool:
    """Whether so many errors contradict the confidence, at the level 1e-4."""
    return tail(count, repeats, 1 - CONFIDENCE) < 1e-4


def gaussian_shift(mu: float) -> Drawer:
    return lambda rng: (rng.normal(size=TRIALS), rng.normal(mu, size=TRIALS))


def response(epsilon: float) -> Drawer:
    """Randomised response: two atoms, nothing but ties, and an exact epsilon."""
    truth = 1 / (1 + np.exp(-epsilon))
    return lambda rng: (1.0 * (rng.random(TRIALS) > truth), 1.0 * (rng.random(TRIALS) < truth))


def binned_shift(rng: np.random.Generator) -> Scores:
    """A unit shift whose scores are rounded to whole numbers: its leakage is at most that of the shift."""
    return np.round(rng.normal(size=TRIALS)), np.round(rng.normal(1.0, size=TRIALS))


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (gaussian_shift(0.0), {"epsilon": 0.0, "delta": 0.0, "delta1": 0.0, "mu": 0.0, "curve": 0.0}),
        (
            gaussian_shift(1.0),
            {
                "epsilon": gaussian_epsilon(1.0, 0.05),
                "delta": float(gaussian_delta(1.0, 0.0)),
                "delta1": float(gaussian_delta(1.0, 1.0)),
                "mu": 1.0,
                "curve": 1.0,
            },
        ),
        pytest.param(
            binned_shift,
            {
                "epsilon": gaussian_epsilon(1.0, 0.05),
                "delta": float(gaussian_delta(1.0, 0.0)),
                "delta1": float(gaussian_delta(1.0, 1.0)),
                "mu": 1.0,
                "curve": 1.0,
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["null", "shift", "binned"],
)
def test_lower_bounds_exceed_the_truth_no_more_often_than_stated(draw: Drawer, truth: dict[str, float]) -> None:
    """epsilon, delta at 0 and at 1, mu, and the mu of the whole curve."""
    rng = np.random.default_rng(20260101)
    errors = dict.fromkeys(truth, 0)
    for _ in range(REPEATS):
        absent, present = draw(rng)
        split = SplitScores(absent, present, CONFIDENCE)
        found = {
            "epsilon": split.epsilon(0.05).value,
            "delta": split.delta(0.0).value,
            "delta1": split.delta(1.0).value,
            "mu": split.mu().value,
            "curve": gdp_mu(Band(absent, present, CONFIDENCE).curve),
        }
        for name, value in found.items():
            errors[name] += value > truth[name]
    assert {name: count for name, count in errors.items() if exceeds_its_right(count)} == {}


def test_bounds_on_randomized_response_are_valid_and_not_vacuous() -> None:
    """Two atoms, epsilon exactly log 3: right at least as often as stated, and on average above half of it."""
    rng = np.random.default_rng(7)
    found = np.array([SplitScores(*response(log(3))(rng), CONFIDENCE).epsilon(0.0).value for _ in range(REPEATS)])
    assert not exceeds_its_right(int(np.count_nonzero(found > log(3))))
    assert found.mean() > 0.5 * log(3)


def greedy_epsilon(absent: np.ndarray, present: np.ndarray, bounds: np.ndarray) -> float:
    """The tempting mistake: the best threshold of all, judged by Clopper-Pearson on the runs that chose it."""
    pooled = np.unique(np.concatenate((absent, present)))
    above_absent = TRIALS - np.searchsorted(np.sort(absent), pooled, side="right")
    above_present = TRIALS - np.searchsorted(np.sort(present), pooled, side="right")
    upright = bounds[above_absent], bounds[TRIALS - above_present]
    turned = bounds[TRIALS - above_absent], bounds[above_present]
    with np.errstate(divide="ignore"):  # a rate of 1 leaves no room
        values = [np.log(1.0 - own) - np.log(other) for a, b in (upright, turned) for own, other in ((a, b), (b, a))]
    return max(0.0, *(float(found.max()) for found in values))


def test_the_coverage_check_rejects_a_threshold_chosen_on_the_counted_runs() -> None:
    """Power: on null data the uncorrected audit finds leakage more often than one time in twenty, and is caught."""
    rng = np.random.default_rng(20260101)
    bounds = upper_rate(np.arange(TRIALS + 1), TRIALS, 0.5 * (1 - CONFIDENCE))
    errors = sum(greedy_epsilon(*gaussian_shift(0.0)(rng), bounds) > 0.0 for _ in range(2 * REPEATS))
    assert exceeds_its_right(errors, 2 * REPEATS)


@pytest.mark.parametrize("law", ["continuous", "atoms"])
def test_the_band_holds_at_every_threshold_at_once(law: str) -> None:
    """All four rates of all thresholds against the exact ones, with and without ties; errors no more than stated."""
    rng = np.random.default_rng(99)
    errors = 0
    for _ in range(REPEATS):
        absent, present = rng.random(TRIALS), rng.random(TRIALS) ** 2
        if law == "atoms":
            absent, present = np.floor(5 * absent) / 5, np.floor(5 * present) / 5
        band = Band(absent, present, CONFIDENCE)
        t = band.threshold
        # P[X <= t]: t and sqrt(t) for the continuous pair; an atom at j/5 stands for [j/5, (j+1)/5).
        below = np.round(5 * t + 1) / 5 if law == "atoms" else t
        missed = np.any(band.absent_below < below) or np.any(band.absent_above < 1 - below - 1e-15)
        below = np.sqrt(below)
        missed = missed or np.any(band.present_below < below) or np.any(band.present_above < 1 - below - 1e-15)
        errors += bool(missed)
    assert not exceeds_its_right(errors)


def test_a_true_claim_is_rarely_falsified_and_a_false_one_often() -> None:
    """The claim mu = 1 of a unit shift falls no more often than stated; the claim mu = 0.3 falls nearly always."""
    rng = np.random.default_rng(4)
    honest = profile_of(gaussian_curve(1.0, Side.UPPER))
    dishonest = profile_of(gaussian_curve(0.3, Side.UPPER))
    private = profile_of(TradeoffCurve.perfect_privacy(Side.UPPER))
    wrong = right = alarms = 0
    for _ in range(REPEATS):
        absent, present = gaussian_shift(1.0)(rng)
        split = SplitScores(absent, present, CONFIDENCE)
        wrong += judge(split, honest, (0.0, 0.5, 1.0, 2.0)).outcome is AuditOutcome.FALSIFIED
        right += judge(split, dishonest, (0.0, 0.5, 1.0, 2.0)).outcome is AuditOutcome.FALSIFIED
        absent, present = gaussian_shift(0.0)(rng)
        split = SplitScores(absent, present, CONFIDENCE)
        alarms += judge(split, private, (0.0, 1.0)).outcome is AuditOutcome.FALSIFIED
    assert not exceeds_its_right(wrong)
    assert not exceeds_its_right(alarms)
    assert right > 0.9 * REPEATS


def test_consistent_is_rarely_said_of_a_violation_of_the_stated_size() -> None:
    """A shift that exceeds the claim by just over the stated violation: CONSISTENT no more often than stated."""
    rng = np.random.default_rng(8)
    exact = float(gaussian_delta(1.0, 0.0))
    violation = 0.25
    wrong = 0
    for _ in range(REPEATS):
        absent, present = gaussian_shift(1.0)(rng)
        split = SplitScores(absent, present, CONFIDENCE)
        claim = profile_of(lambda epsilon: exact - violation - 1e-6)
        wrong += judge(split, claim, (0.0,), violation).outcome is AuditOutcome.CONSISTENT
    assert not exceeds_its_right(wrong)


def test_one_run_bounds_exceed_the_truth_no_more_often_than_stated() -> None:
    """epsilon from 200 canaries with their own Gaussian noise, one run each time; also without leakage."""
    rng = np.random.default_rng(31)
    for mu, delta in ((2.0, 1e-3), (0.0, 0.0)):
        exact = gaussian_epsilon(mu, delta) if mu else 0.0
        errors = 0
        for _ in range(REPEATS):
            included = rng.random(200) < 0.5
            scores = mu * included + rng.normal(size=200)
            found = one_run_audit(scores, included, guesses=[(20, 20), (60, 60)], delta=delta, confidence=CONFIDENCE)
            errors += found.epsilon_lower > exact
        assert not exceeds_its_right(errors)
