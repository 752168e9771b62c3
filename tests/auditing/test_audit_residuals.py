"""Noise that is used twice is found: by the command that everybody uses, without a hint."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.distinguishers import MatchedFilter
from calipers.auditing.fitted import fit
from calipers.auditing.residuals import MOST_PAIRED, Residuals, residual_scores
from calipers.auditing.targets import FunctionTarget
from calipers.auditing.verdict import AuditOutcome
from calipers.measure import measure
from calipers.run import Run

RUN = Run(sample_rate=0.5, steps=4, noise_multiplier=2.0)
LAYERS = (30, 12, 12)


def loop(kind: str, dimension: int = 54, steps: int = 4):
    """A DP-SGD loop on ten records that are everybody else's zeros and one unit gradient, with a way to draw noise."""

    def target(present: bool, rng: np.random.Generator) -> np.ndarray:
        shown: list[np.ndarray] = []
        noises: list[np.ndarray] = []
        shared = rng.normal(scale=2.0, size=dimension)
        noise = np.zeros(dimension)
        for _ in range(steps):
            gradient = np.zeros(dimension)
            if present and rng.random() < 0.5:
                gradient = np.arange(1.0, dimension + 1.0)
                gradient /= np.linalg.norm(gradient)
            fresh = rng.normal(scale=2.0, size=dimension)
            if kind == "honest":
                noise = fresh
            elif kind == "one vector for all steps":
                noise = shared
            elif kind == "seeded again for each layer":
                seed = int(rng.integers(2**63))
                noise = np.concatenate([np.random.default_rng(seed).normal(scale=2.0, size=size) for size in LAYERS])
            elif kind == "autoregressive":
                noise = 0.95 * noise + np.sqrt(1 - 0.95**2) * fresh
            elif kind == "the last step undoes the others":
                noise = fresh if len(shown) < steps - 1 else -np.sum(noises, axis=0)
            noises.append(noise)
            shown.append(gradient + noise)
        return np.array(shown)

    return target


def audited(kind: str, trials: int = 1000, **more: int) -> AuditResult:
    measured = measure(RUN)
    return audit(loop(kind, **more), trials=trials, seed=1, claim=measured.claim, upper=measured, epsilons=(0.0, 1.0))


@pytest.mark.parametrize("kind", ["one vector for all steps", "seeded again for each layer"])
def test_repeated_noise_is_falsified_by_the_ordinary_audit(kind: str) -> None:
    """delta(0) of the claim is 0.15; differences show the record in 14 or 15 of 16 runs."""
    found = audited(kind)
    assert found.verdict is not None
    assert found.verdict.outcome is AuditOutcome.FALSIFIED
    assert found.as_described is False
    assert str(found.distinguisher["distinguisher"]).startswith("residuals")
    assert found.delta[0].value > 0.8


def test_noise_that_sums_to_zero_is_falsified() -> None:
    """Four numbers, of which no two are correlated: the regression of each on all others finds the dependence."""
    found = audited("the last step undoes the others", dimension=4)
    assert found.verdict is not None
    assert found.verdict.outcome is AuditOutcome.FALSIFIED


def test_an_honest_loop_is_not_falsified_and_the_verdict_says_what_was_not_seen() -> None:
    """Fresh noise: no score of residuals is preferred, the claim stands, and the blind spots are named."""
    found = audited("honest", trials=6000)
    assert found.distinguisher["distinguisher"] == "fitted"
    assert found.verdict is not None
    assert found.verdict.outcome is AuditOutcome.CONSISTENT
    for words in ("was blind to", "other datasets", "does not return", "depend on one another"):
        assert words in found.verdict.message


def rows(kind: str, count: int, dimension: int, seed: int, present: bool = False) -> np.ndarray:
    target = FunctionTarget(loop(kind, dimension=dimension))
    return target.outputs(present, count, np.random.default_rng(seed))


def test_steps_that_repeat_their_noise_are_found_among_very_many_features() -> None:
    """More features than can be paired: the distance of one step shows in the autocorrelation."""
    dimension = MOST_PAIRED
    scores = residual_scores(
        rows("one vector for all steps", 60, dimension, 1),
        rows("one vector for all steps", 60, dimension, 2, present=True),
    )
    assert scores[0].reading == "largest"
    assert scores[0].feature.tolist() == list(range(dimension, 4 * dimension))
    absent, present = (
        scores[0].scores(rows("one vector for all steps", 30, dimension, 3, side)) for side in (False, True)
    )
    # In one of eight runs the record is in all steps or in none, and no difference shows it.
    assert np.mean(present > absent.max() + 5) > 0.6


def test_correlated_noise_is_whitened() -> None:
    """A shift of all steps under noise that hardly changes: differences remove it, and the whitened score says so."""

    def target(present: bool, rng: np.random.Generator) -> np.ndarray:
        noise = [rng.normal()]
        for _ in range(9):
            noise.append(0.98 * noise[-1] + np.sqrt(1 - 0.98**2) * rng.normal())
        return np.array(noise) + present * np.arange(10) / 10

    score = fit(FunctionTarget(target), pilot=500, seed=3)
    assert isinstance(score, Residuals)
    found = audit(target, score, trials=1500, seed=4)
    plain = audit(target, MatchedFilter(tuple(np.arange(10.0))), trials=1500, seed=4)
    assert found.delta[0].value > plain.delta[0].value + 0.2


def test_fresh_noise_has_no_residuals_worth_looking_at() -> None:
    """No feature predicts another by chance, with few features, many, and very many."""
    rng = np.random.default_rng(0)
    for size in (20, 400, MOST_PAIRED + 1):
        assert residual_scores(rng.normal(size=(250, size)), rng.normal(size=(250, size))) == []


def test_a_feature_without_noise_is_looked_at() -> None:
    """Constant without the record: whatever it shows with the record shows the record."""
    rng = np.random.default_rng(0)
    absent = np.column_stack([rng.normal(size=200), np.full(200, 7.0)])
    present = np.column_stack([rng.normal(size=200), 7.0 + 0.01 * (rng.random(200) < 0.3)])
    score = residual_scores(absent, present)[0]
    assert score.feature.tolist() == [1]
    assert score.scores(absent).max() < score.scores(present).max() - 5
