"""One training run with canaries: coins, scores, files, verdicts, and the self-test."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from calipers.auditing.one_run import one_run_audit
from calipers.auditing.one_run_game import (
    CanaryScores,
    audit_one_run,
    default_guesses,
    one_run_self_test,
    play_one_run,
    read_canaries,
)
from calipers.auditing.targets import TargetError
from calipers.auditing.verdict import AuditOutcome
from calipers.errors import ConditionError, InputError
from calipers.measure import measure
from calipers.run import Run


def leaky(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 2.0 * included + rng.normal(size=included.size)


def test_coins_are_fair_repeatable_and_out_of_the_trainings_reach() -> None:
    """The same seed tosses the same coins; a training that writes into what it was shown changes nothing."""

    def vandal(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        found = leaky(included, rng)
        included[:] = True
        return found

    first, again = (play_one_run(training, canaries=500, seed=7) for training in (leaky, vandal))
    np.testing.assert_array_equal(first.included, again.included)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert 200 < first.included.sum() < 300
    assert play_one_run(leaky, canaries=500, seed=8).included.tolist() != first.included.tolist()


def test_a_result_is_the_bound_of_the_one_run_audit_and_judges_the_first_delta() -> None:
    """A shift of 2 among 1000 canaries: epsilon above 3, so the claim (1, 1e-5) falls, and (8, 1e-5) does not."""
    found = play_one_run(leaky, canaries=1000, seed=0)
    result = audit_one_run(found, deltas=(1e-3,), claim=(1.0, 1e-5))
    exact = one_run_audit(found.scores, found.included, guesses=default_guesses(1000), delta=1e-5)
    assert result.epsilon[0] == dataclasses.replace(exact, claim=1.0)
    assert [bound.delta for bound in result.epsilon] == [1e-5, 1e-3]
    assert result.verdicts[0][:2] == ("claim", AuditOutcome.FALSIFIED)
    assert [bound.claim for bound in result.epsilon] == pytest.approx((1.0, 1.0 - 1e-3), abs=0.02)
    assert audit_one_run(found, claim=(8.0, 1e-5)).verdicts[0][1] is AuditOutcome.CANNOT_TELL
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_described_run_is_judged_by_its_claim_and_its_jaw() -> None:
    """A shift of 2 is no Gaussian mechanism with noise 2; it is one with noise 1/2."""
    found = play_one_run(leaky, canaries=2000, seed=1)
    for noise, expected in ((2.0, AuditOutcome.FALSIFIED), (0.5, AuditOutcome.CANNOT_TELL)):
        measured = measure(Run(sample_rate=1.0, steps=1, noise_multiplier=noise))
        result = audit_one_run(found, claim=measured.claim, upper=measured)
        assert [outcome for _, outcome, _ in result.verdicts] == [expected, expected]
        assert result.epsilon[0].upper == pytest.approx(measured.epsilon(1e-5).upper, rel=1e-2)


def test_a_file_of_canaries_is_read_and_judged(tmp_path: Path) -> None:
    """What was written is what is audited; true and false are coins as well."""
    found = play_one_run(leaky, canaries=400, seed=2)
    path = tmp_path / "canaries.csv"
    lines = [f"{int(coin)},{score!r}" for coin, score in zip(found.included, found.scores.tolist(), strict=True)]
    path.write_text("\n".join(["included,score", *lines]))
    assert audit_one_run(read_canaries(path)).epsilon == audit_one_run(found).epsilon
    path.write_text("score,included,x\n1.5,True,\n-inf,false,\n")
    assert read_canaries(path).scores.tolist() == [1.5, -np.inf]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a line for each canary"),
        ("included,score\n", "a line for each canary"),
        ("in,score\n1,2\n", "columns included and score"),
        ("included,score\n2,1.0\n", "0 or 1"),
        ("included,score\n1,high\n", "a number as score"),
        ("included,score\n1\n", "every line"),
    ],
)
def test_what_is_no_file_of_canaries_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_canaries(tmp_path / "c.csv")
    with pytest.raises(InputError, match="Cannot read"):
        read_canaries(tmp_path / "missing.csv")


def test_unfair_coins_and_useless_scores_are_refused() -> None:
    """All canaries in; scores of another number; a training that fails, or returns no numbers."""
    with pytest.raises(ConditionError, match="fair"):
        audit_one_run(CanaryScores(np.arange(100.0), np.ones(100, dtype=bool), "mine"))
    for training, message in (
        (lambda included, rng: included[:-1] + 0.0, "499 scores for 500"),
        (lambda included, rng: np.full(500, np.nan), "one number for each"),
        (lambda included, rng: 1 / 0, "ZeroDivisionError"),
        (lambda included, rng: "well", "no array of scores"),
    ):
        with pytest.raises(TargetError, match=message):
            play_one_run(training, canaries=500, seed=0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="canaries"):
        play_one_run(leaky, canaries=3, seed=0)


def test_the_self_test_finds_nothing_unless_the_scores_know_the_coins() -> None:
    """Coins that training was not shown cannot be guessed; a training that tosses them again is caught."""
    honest = one_run_self_test(leaky, repeats=40, canaries=100, seed=3)
    assert honest.calibrated
    assert honest.found["one-run"] <= 6

    def knows(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        entropy = rng.bit_generator.seed_seq.entropy  # type: ignore[attr-defined]
        return (np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(0,))).random(100) < 0.5) + 0.0

    cheating = one_run_self_test(knows, repeats=20, canaries=100, seed=3)
    assert not cheating.calibrated
    assert cheating.found == {"one-run": 20}
