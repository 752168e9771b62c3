"""Verdicts, the audit that ties them to a game, and the self-test."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.band import Band
from calipers.auditing.bounds import SplitScores
from calipers.auditing.distinguishers import Plain
from calipers.auditing.self_test import self_test
from calipers.auditing.targets import TargetError
from calipers.auditing.verdict import AuditOutcome, Claimed, Verdict, judge, profile_of
from calipers.bracket import Side
from calipers.curves.gdp import gaussian_curve
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import InputError
from calipers.measure.routes import measure
from calipers.numerics.normal import gaussian_delta
from calipers.run import Run


class Shift:
    """Gaussian noise, and a shift of the mean when the record is present."""

    chunk = 2000

    def __init__(self, mu: float) -> None:
        self.mu = mu
        self.name = "shift"
        self.calls = 0

    def identity(self) -> dict[str, object]:
        return {"target": "shift", "mu": self.mu}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> np.ndarray:
        self.calls += 1
        return rng.normal(self.mu * present, 1.0, (count, 1))


class SharedNoise(Shift):
    """A broken target: all runs of one call share most of their noise."""

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> np.ndarray:
        return rng.normal() + 0.1 * rng.normal(self.mu * present, 1.0, (count, 1))


def verdict_on(mu: float, claim: Claimed, trials: int = 4000, violation: float = 0.05, seed: int = 2) -> Verdict:
    rng = np.random.default_rng(seed)
    absent, present = rng.normal(size=trials), rng.normal(mu, size=trials)
    split = SplitScores(absent, present)
    return judge(split, profile_of(claim), (0.0, 0.5, 1.0), violation)


def test_the_three_outcomes() -> None:
    """A broken claim is falsified, a generous one consistent, and between them it takes more trials to tell."""
    broken = verdict_on(1.0, gaussian_curve(0.5, Side.UPPER))
    assert broken.outcome is AuditOutcome.FALSIFIED
    assert broken.delta_lower > broken.delta_claimed
    assert broken.evidence.confidence == 0.95
    generous = verdict_on(0.2, gaussian_curve(1.0, Side.UPPER))
    assert generous.outcome is AuditOutcome.CONSISTENT
    assert generous.excluded < 0.0
    assert "even reaches the delta that the claim allows at epsilon = 0, 0.5 or 1, the only ones" in generous.message
    assert "'consistent' only means" not in generous.message
    close = verdict_on(1.0, gaussian_curve(0.95, Side.UPPER), trials=500)
    assert close.outcome is AuditOutcome.CANNOT_TELL
    assert close.trials_estimate is not None
    assert close.trials_estimate > 500
    open_ = r"above the delta that the claim allows by more than \S+ at epsilon = 0, 0.5 or 1, the only ones tested"
    assert re.search(
        rf"{open_} .*a new audit with about \S+ trials .* would usually decide \(an estimate", close.message
    )


def test_the_lines_between_the_outcomes_are_where_they_are_said_to_be() -> None:
    """FALSIFIED exactly if the bound exceeds the claim; otherwise CONSISTENT exactly if enough is excluded."""
    base = verdict_on(1.0, lambda epsilon: 0.38)
    for factor in np.linspace(0.9, 1.1, 21):
        found = verdict_on(1.0, lambda epsilon, allowed=factor * base.delta_lower: allowed, violation=1e-6)
        assert (found.outcome is AuditOutcome.FALSIFIED) == (found.delta_lower > found.delta_claimed)
    fair = gaussian_curve(0.8, Side.UPPER)
    excluded = verdict_on(0.8, fair).excluded
    assert verdict_on(0.8, fair, violation=1.001 * excluded).outcome is AuditOutcome.CONSISTENT
    assert verdict_on(0.8, fair, violation=0.999 * excluded).outcome is AuditOutcome.CANNOT_TELL


@pytest.mark.parametrize(("mu", "claimed", "trials"), [(0.25, 0.25, 1000), (0.05, 0.3, 300), (0.3, 0.25, 1000)])
def test_a_new_audit_of_the_estimated_size_usually_decides(mu: float, claimed: float, trials: int) -> None:
    """Whether the claim is exact, generous or exceeded: three of four decide, with a twentieth half at most."""
    claim, decided, too_few = gaussian_curve(claimed, Side.UPPER), [], []
    for seed in range(8):
        first = verdict_on(mu, claim, trials, seed=seed)
        if first.outcome is AuditOutcome.CANNOT_TELL:
            assert first.trials_estimate is not None
            for found, size in ((decided, first.trials_estimate), (too_few, first.trials_estimate // 20)):
                found.append(verdict_on(mu, claim, size, seed=100 + seed).outcome is not AuditOutcome.CANNOT_TELL)
    assert len(decided) >= 6
    assert np.mean(decided) >= 0.75
    assert np.mean(too_few) <= 0.5


def test_consistent_says_what_it_leaves_open() -> None:
    """An upper bound on the true excess, at which epsilons, and what is allowed there: a claim as it was made."""
    found = verdict_on(0.25, (1.0, 2e-4))
    assert found.outcome is AuditOutcome.CONSISTENT
    assert found.tested[-1] == (1.0, 2e-4)
    for words in (
        "has TPR - e^epsilon FPR above the delta that the claim allows by more than",
        "at epsilon = 0, 0.5 or 1, the only ones tested.",
        "That is an upper confidence bound, not what was seen",
        "at most 0.05, which may be far above the delta that is allowed (2e-4 at epsilon = 1)",
        "Other datasets, or a better score, might exceed it by more. This audit was blind to other datasets and to all",
    ):
        assert words in found.message
    alone = judge(SplitScores(*np.random.default_rng(0).normal(size=(2, 9000))), profile_of((1.0, 2e-4)), (1.0,))
    assert "at epsilon = 1, the only one tested." in alone.message
    assert "tested" not in found.to_dict()


def test_a_pair_of_numbers_is_a_claim() -> None:
    """(epsilon, delta) is what it says at its own epsilon, and what it implies below; beyond it delta stays."""
    claim = profile_of((1.0, 1e-3))
    # To the last digit: a table that shows 1.0001e-3 for it would show a claim that nobody made.
    assert claim.at(1.0) == claim.at(2.0) == claim.backward(1.0) == 1e-3
    assert claim.at(1.0 - 1e-9) >= 1e-3
    assert claim.at(0.0) == pytest.approx(1 - (1 - 1e-3) * 2 / (1 + np.e), abs=1e-9)


def test_an_asymmetric_curve_keeps_its_directions() -> None:
    """A claim that allows leakage in one direction only is read by direction, not by the larger of the two."""
    one_sided = TradeoffCurve.from_atoms([0.3], [1.0], p_inf=0.7, q_zero=0.0, side=Side.UPPER)
    claim = profile_of(one_sided)
    assert claim.forward(1.0) == pytest.approx(0.7, abs=1e-12)
    assert claim.backward(2.0) == pytest.approx(0.0, abs=1e-12)
    # Mass 0.6 of "present" where "absent" never is: allowed forward. The reverse is forbidden at epsilon = 2.
    half = np.where(np.arange(4000) % 10 < 6, 1.0, 0.0)
    nothing = np.zeros(4000)
    allowed = judge(SplitScores(nothing, half), claim, (2.0,))
    forbidden = judge(SplitScores(half, nothing), claim, (2.0,))
    assert allowed.outcome is not AuditOutcome.FALSIFIED
    assert forbidden.outcome is AuditOutcome.FALSIFIED
    turned = profile_of(one_sided.inverse())
    assert judge(SplitScores(nothing, half), turned, (2.0,)).outcome is (AuditOutcome.FALSIFIED)
    assert judge(SplitScores(half, nothing), turned, (2.0,)).outcome is not (AuditOutcome.FALSIFIED)


def test_consistent_takes_the_stricter_direction_of_an_asymmetric_claim() -> None:
    """A claim that allows much forward and nothing backward: what may go backward is not excluded, so nobody can tell.

    Read by the direction that allows more, the same scores would be called consistent.
    """
    generous = TradeoffCurve.from_atoms([0.15], [1.0], p_inf=0.85, q_zero=0.0, side=Side.UPPER)
    rng = np.random.default_rng(0)
    absent, present = rng.normal(size=60), rng.normal(size=60)
    split = SplitScores(absent, present)
    for curve in (generous, generous.inverse()):
        claim = profile_of(curve)
        assert max(claim.forward(2.0), claim.backward(2.0)) > split.band.largest_delta(2.0)
        found = judge(split, claim, (2.0,))
        assert found.outcome is AuditOutcome.CANNOT_TELL
        assert found.excluded == pytest.approx(split.band.largest_delta(2.0), abs=1e-9)


def test_a_measurement_gives_its_claim_or_its_certified_jaw() -> None:
    """One full-batch Gaussian step: both agree with the exact profile from above, the bound within its tolerance."""
    run = Run(dataset_size=10, batch_size=10, steps=1, noise_multiplier=1.0)
    measured = measure(run)
    exact = float(gaussian_delta(1.0, 1.0))
    assert profile_of(measured, certified=True).at(1.0) == measured.delta(1.0).upper
    assert exact <= profile_of(measured, certified=True).at(1.0) <= 1.01 * exact
    assert profile_of(measured).at(1.0) == measured.claim.delta(1.0) == profile_of(measured.claim).at(1.0)


def test_what_is_no_claim_is_refused() -> None:
    """An attack curve, a word, and a function that returns no probability."""
    with pytest.raises(InputError, match=r"Side\.UPPER"):
        profile_of(gaussian_curve(1.0, Side.LOWER))
    with pytest.raises(InputError, match="TradeoffCurve"):
        profile_of("private")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="delta"):
        profile_of(lambda epsilon: 2.0).at(0.0)


@pytest.fixture(scope="module")
def result() -> AuditResult:
    half, unit = gaussian_curve(0.5, Side.UPPER), gaussian_curve(0.6, Side.UPPER)
    return audit(Shift(1.0), Plain(), trials=4000, seed=1, claim=half, upper=unit, deltas=(1e-5, 1e-2))


def test_audit_reports_bounds_verdict_and_a_run_that_is_not_the_one_described(result: AuditResult) -> None:
    """A unit shift against the claim mu = 0.5 and a jaw certified for mu = 0.6: both fall, and are told apart."""
    assert result.verdict is not None
    assert result.upper_verdict is not None
    assert result.verdict.outcome is AuditOutcome.FALSIFIED
    assert result.as_described is False
    assert "not the run described" in result.upper_verdict.message
    assert "not the run described" not in result.verdict.message
    assert 0.7 < result.mu.value < 1.0


@pytest.mark.parametrize(
    ("mu", "claim", "trials"),
    [
        (1.0, gaussian_curve(0.5, Side.UPPER), 2000),
        (0.3, gaussian_curve(0.25, Side.UPPER), 400),
        (0.05, gaussian_curve(0.5, Side.UPPER), 100),
        (2.0, lambda epsilon: 0.9 if epsilon < 1.5 else 1e-4, 500),
    ],
    ids=["falsified", "close", "generous", "large epsilon"],
)
def test_a_verdict_judges_a_row_of_the_table(mu: float, claim: Claimed, trials: int) -> None:
    """The bound in the verdict is the bound on delta at that epsilon, to the last digit, falsified or not."""
    for seed in range(5):
        found = audit(Shift(mu), Plain(), trials=trials, seed=seed, claim=claim)
        assert found.verdict is not None
        rows = {bound.at: bound for bound in found.delta}
        assert rows[found.verdict.epsilon].value == found.verdict.delta_lower
        assert rows[found.verdict.epsilon].test == found.verdict.test


def test_the_most_promising_test_is_kept_where_none_promises_leakage() -> None:
    """A weak score of 60 runs: the expected bound is negative at every threshold, and the middle is still chosen."""
    rng = np.random.default_rng(3)
    chosen = SplitScores(rng.normal(size=60), rng.normal(0.5, size=60)).choose_for_delta(0.0)
    assert 1.0 - sum(chosen.expected) < 0.0
    assert max(chosen.seen) < 0.9


def test_epsilons_whose_exponential_is_no_double_are_refused() -> None:
    """e^701 is still one, but nothing that large is claimed in earnest."""
    scores = np.arange(4.0)
    with pytest.raises(InputError, match="epsilon"):
        SplitScores(scores, scores).delta(701.0)
    with pytest.raises(InputError, match="epsilon"):
        Band(scores, scores).largest_delta(701.0)


def test_audit_result_is_json(result: AuditResult) -> None:
    """Every number survives a strict round trip; claims and jaws stand beside the bounds."""
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["verdict"]["outcome"] == "falsified"
    assert record["delta"][0]["lower"] > record["delta"][0]["claim"]
    # The advantage of N(mu, 1) against N(0, 1), and its epsilon at both deltas, for mu = 0.5 and 0.6.
    for name, advantage, epsilons in (
        ("claim", 0.197413, (1.99309, 0.919458)),
        ("upper", 0.235823, (2.44492, 1.17215)),
    ):
        assert record["delta"][0][name] == pytest.approx(advantage, rel=1e-3)
        assert [row[name] for row in record["epsilon"]] == pytest.approx(epsilons, rel=1e-2)
    assert [row["delta"] for row in record["epsilon"]] == [1e-5, 1e-2]
    assert record["epsilon"][0]["lower_evidence"]["kind"] == "statistical"


def test_audit_repeats_bit_for_bit(result: AuditResult) -> None:
    """The same seed gives the same bounds; without a claim there is no verdict."""
    again = audit(Shift(1.0), Plain(), trials=4000, seed=1, deltas=(1e-5, 1e-2))
    assert again.epsilon == tuple(replace(bound, claim=None, upper=None) for bound in result.epsilon)
    assert again.verdict is None
    assert again.as_described is None


@pytest.mark.parametrize(
    "wrong",
    [{"confidence": 1.0}, {"deltas": (2.0,)}, {"epsilons": ()}, {"epsilons": (-1.0,)}, {"violation": 0.0},
     {"delta0": 1.0}, {"selection_share": 0.0}, {"claim": "private"}],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_wrong_questions_are_refused_before_the_game(wrong: dict[str, object]) -> None:
    """Not one run is played for a question that has no answer."""
    target = Shift(1.0)
    with pytest.raises(InputError):
        audit(target, Plain(), trials=100, seed=1, **{"claim": (1.0, 1e-5), **wrong})  # type: ignore[arg-type]
    assert target.calls == 0


def test_self_test_finds_nothing_on_an_honest_target() -> None:
    """With the record ignored a leaking target leaks nothing, and the audits say so."""
    found = self_test(Shift(3.0), Plain(), repeats=40, trials=200, seed=5)
    assert found.calibrated
    assert max(found.found.values()) <= 6
    json.dumps(found.to_dict(), allow_nan=False)


def test_self_test_catches_runs_that_are_not_independent() -> None:
    """Shared noise makes every statistic cry wolf, and the exact binomial test says so."""
    found = self_test(SharedNoise(0.0), Plain(), repeats=20, trials=200, seed=5)
    assert not found.calibrated
    assert min(found.p_value.values()) < 1e-6


def test_self_test_is_shared_out_without_changing_the_counts() -> None:
    """Audits in processes of their own count what audits in this one count; progress is told after each."""
    seen: list[tuple[int, int]] = []
    alone = self_test(Shift(1.0), Plain(), repeats=6, trials=100, seed=5, progress=lambda *done: seen.append(done))
    assert seen == [(done, 6) for done in range(1, 7)]
    assert self_test(Shift(1.0), Plain(), repeats=6, trials=100, seed=5, jobs=2) == alone


def test_self_test_refuses_a_target_that_cannot_be_repeated() -> None:
    """The first audit plays its first chunk twice, as every game does."""

    class Clock(Shift):
        def outputs(self, present: bool, count: int, rng: np.random.Generator) -> np.ndarray:
            self.calls += 1
            return rng.normal(size=(count, 1)) + self.calls

    with pytest.raises(TargetError, match="take all randomness from rng"):
        self_test(Clock(0.0), Plain(), repeats=2, trials=50, seed=0)


class Clear(Shift):
    """Noise alone, but in one run of a hundred the record is shown in the clear."""

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> np.ndarray:
        scores = rng.normal(size=(count, 1))
        return np.where(present & (rng.random((count, 1)) < 0.01), 100.0, scores)


@pytest.mark.parametrize("against", ["claim", "upper"])
def test_nothing_is_consistent_that_another_number_of_the_audit_exceeds(against: str) -> None:
    """At epsilon 0 a share of a hundredth is too little to see; epsilon at delta 1e-5 is far above what is allowed."""
    held = {against: gaussian_curve(0.3, Side.UPPER)}
    found = audit(Clear(0.0), Plain(), trials=10_000, seed=1, epsilons=(0.0,), deltas=(1e-5,), **held)
    verdict = found.verdict if against == "claim" else found.upper_verdict
    assert verdict is not None
    assert verdict.excluded < verdict.violation
    assert verdict.outcome is AuditOutcome.CANNOT_TELL
    assert f"{'the claim' if against == 'claim' else 'the proof'} allows" in verdict.message
    assert "epsilon at delta = 1e-5 is at least" in verdict.message
    stands = replace(verdict, outcome=AuditOutcome.CONSISTENT, beyond="")
    assert stands.held_against([replace(found.epsilon[0], value=0.1)]) is stands
