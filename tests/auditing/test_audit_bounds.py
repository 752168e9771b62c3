"""Lower bounds from scores: what they are made of, and that they find what is there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calipers.auditing.band import Band, simultaneous_rates
from calipers.auditing.bounds import SplitScores, ThresholdTest
from calipers.bracket import Kind, Side
from calipers.curves.gdp import gdp_mu
from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon, gaussian_tradeoff
from calipers.theorems.division_guarantees import audited_delta, audited_epsilon


def shifted(mu: float, trials: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=trials), rng.normal(mu, size=trials)


@pytest.fixture(scope="module")
def large() -> SplitScores:
    return SplitScores(*shifted(1.0, 40_000, seed=11))


def test_bounds_come_close_to_the_truth(large: SplitScores) -> None:
    """40,000 runs of a unit shift: delta and mu within 5 % of the truth, epsilon at 1e-2 within a fifth, all below."""
    truth = float(gaussian_delta(1.0, 0.0))
    assert 0.95 * truth < large.delta(0.0).value < truth
    assert 0.95 < large.mu().value < 1.0
    exact = gaussian_epsilon(1.0, 1e-2)
    assert 0.8 * exact < large.epsilon(1e-2).value < exact


def test_a_score_with_the_wrong_sign_is_used_the_other_way_round() -> None:
    """Reversed tests are tried: negated scores prove about as much as the scores themselves."""
    absent, present = shifted(1.0, 4000, seed=3)
    upright, reversed_ = SplitScores(absent, present).delta(0.0), SplitScores(-absent, -present).delta(0.0)
    assert reversed_.test.orientation == "below"
    assert reversed_.value == pytest.approx(upright.value, abs=0.02)
    assert float(Band(-absent, -present).curve.delta(0.0)) > 0.3


def test_the_counted_part_cannot_influence_the_choice() -> None:
    """Changing the later runs changes the bound, never the test."""
    absent, present = shifted(1.0, 1000, seed=5)
    other = present.copy()
    other[250:] = -50.0
    first, second = SplitScores(absent, present).epsilon(1e-3), SplitScores(absent, other).epsilon(1e-3)
    assert first.test == second.test
    assert first.value != second.value
    assert second.fnr == 1.0


def test_bounds_lie_between_the_equations_at_bounded_and_at_observed_rates(large: SplitScores) -> None:
    """The exact test shows more than joint bounds on the two rates do, and less than the rates that were seen."""
    bound = large.epsilon(1e-3)
    seen = large.observed_rates(bound.test)
    assert audited_epsilon(bound.fpr, bound.fnr, 1e-3) < bound.value < audited_epsilon(*seen, 1e-3)
    found = large.delta(0.7)
    seen = large.observed_rates(found.test)
    assert audited_delta(found.fpr, found.fnr, 0.7) < found.value < audited_delta(*seen, 0.7)
    assert found.evidence.kind is Kind.STATISTICAL
    assert found.evidence.confidence == 0.95


def test_the_two_rates_share_the_error_as_chosen() -> None:
    """Exact counts: with share s the tail at the bounded fpr is s times the error, at the bounded fnr 1 - s times."""
    absent, present = shifted(1.0, 400, seed=9)
    split = SplitScores(absent, present)
    test = ThresholdTest(0.5, "above")
    false_positives, false_negatives = test.errors(absent[100:], present[100:])
    for share in (0.1, 0.5, 0.9):
        fpr, fnr = split.rates(test, share)
        assert stats.binom.cdf(false_positives, 300, fpr) == pytest.approx(0.05 * share, rel=1e-6)
        assert stats.binom.cdf(false_negatives, 300, fnr) == pytest.approx(0.05 * (1 - share), rel=1e-6)


def test_errors_of_a_test_are_counted_with_ties() -> None:
    """A score equal to the threshold is not above it."""
    absent, present = np.array([0.0, 1.0, 1.0, 2.0]), np.array([1.0, 2.0, 2.0, np.inf])
    assert ThresholdTest(1.0, "above").errors(absent, present) == (1, 1)
    assert ThresholdTest(1.0, "below").errors(absent, present) == (3, 3)


def test_infinite_scores_are_scores() -> None:
    """A run that gives the record away (+inf) counts fully."""
    absent = np.zeros(2000)
    present = np.where(np.arange(2000) % 2 == 0, np.inf, 0.0)
    assert SplitScores(absent, present).delta(3.0).value > 0.3
    assert float(Band(absent, present).curve.delta(0.0)) > 0.45


def test_band_covers_and_brackets_the_gaussian_curve() -> None:
    """The curve lies above the true one and near it; the largest delta lies above the truth and near it."""
    absent, present = shifted(1.0, 20_000, seed=17)
    band = Band(absent, present)
    curve = band.curve
    assert curve.side is Side.LOWER
    assert np.all(curve.beta >= gaussian_tradeoff(1.0, curve.alpha))
    assert 0.93 < gdp_mu(curve) < 1.0
    for epsilon in (0.0, 1.0, 3.0):
        exact = float(gaussian_delta(1.0, epsilon))
        assert float(curve.delta(epsilon)) < exact < band.largest_delta(epsilon) < exact + 0.06


def test_simultaneous_rates_are_ordered_and_beat_either_half() -> None:
    """Non-decreasing; in the tail far below DKW, in the middle about DKW."""
    bound = simultaneous_rates(10_000, 0.0125)
    assert np.all(np.diff(bound) >= 0.0)
    assert np.all(bound >= np.arange(10_001) / 10_000)
    assert bound[0] < 0.002
    assert bound[5000] - 0.5 < 0.02


@pytest.mark.parametrize("trials", [2, 3, 5, 20])
def test_few_trials_prove_little_and_break_nothing(trials: int) -> None:
    """Bounds exist from two runs on, and two runs prove nothing."""
    split = SplitScores(np.zeros(trials), np.ones(trials))
    assert split.epsilon(1e-5).value >= 0.0
    assert split.mu().value >= 0.0
    curve = Band(np.zeros(trials), np.ones(trials)).curve
    assert trials > 3 or (split.delta(0.0).value == 0.0 and float(curve.delta(0.0)) == 0.0)


@pytest.mark.parametrize(
    ("absent", "present"),
    [
        ([0.0], [1.0, 2.0]),
        ([0.0, np.nan], [1.0, 2.0]),
        ([[0.0, 1.0]], [1.0, 2.0]),
        ([True, False], [1.0, 2.0]),
        (["a", "b"], [1.0, 2.0]),
    ],
)
def test_what_is_no_row_of_scores_is_refused(absent: list[object], present: list[float]) -> None:
    """One run, NaN, tables, booleans and words raise InputError."""
    with pytest.raises(InputError, match="absent"):
        SplitScores(np.array(absent), np.array(present))


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan"), True])
def test_confidence_lies_strictly_between_zero_and_one(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence"):
        SplitScores(np.zeros(4), np.ones(4), confidence)
