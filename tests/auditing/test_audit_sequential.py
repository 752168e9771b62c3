"""The sequential audit: its confidence holds over all looks, and it shows no less than an audit of fixed size did."""

from __future__ import annotations

from math import comb, exp
from pathlib import Path

import numpy as np
import pytest

from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.bounds import SplitScores
from calipers.auditing.distinguishers import Plain
from calipers.auditing.ledger import LedgerError
from calipers.auditing.sequential import Look, planned_looks
from calipers.auditing.statistics import gains
from calipers.auditing.verdict import AuditOutcome, Profile, judge, profile_of
from calipers.bracket import Side
from calipers.curves.gdp import gaussian_curve
from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta

CONFIDENCE = 0.95
EPSILONS = (0.0, 1.0)
TRUE = profile_of(gaussian_curve(1.0, Side.UPPER))


class Shift:
    """Gaussian noise, shifted when the record is present."""

    chunk = 100
    name = "shift"

    def __init__(self, mu: float) -> None:
        self.mu = mu
        self.runs = 0

    def identity(self) -> dict[str, object]:
        return {"target": "shift", "mu": self.mu}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> np.ndarray:
        self.runs += count
        return rng.normal(self.mu * present, 1.0, (count, 1))


def tail(count: int, repeats: int, error: float) -> float:
    """P[Bin(repeats, error) >= count]."""
    return sum(comb(repeats, i) * error**i * (1 - error) ** (repeats - i) for i in range(count, repeats + 1))


def falsified(absent: np.ndarray, present: np.ndarray, claim: Profile, looks: tuple[Look, ...]) -> int | None:
    """The trials after which a sequential audit of these scores falsifies the claim; None if it never does."""
    for look in looks:
        parts = absent[: look.trials], present[: look.trials]
        split = SplitScores(*parts, CONFIDENCE, spent=look.spent)
        if judge(split, claim, EPSILONS).outcome is AuditOutcome.FALSIFIED:
            return look.trials
    return None


def two_intervals(absent: np.ndarray, present: np.ndarray, claim: Profile) -> bool:
    """The audit of fixed size as it was: Clopper-Pearson bounds on both rates of the test chosen on a quarter."""
    split = SplitScores(absent, present, CONFIDENCE)
    best = -np.inf, 0.0
    for epsilon in EPSILONS:
        chosen = split.choose_for_delta(epsilon)
        seen, expected = (
            float(np.max(gains(*rates, epsilon))) - claim.at(epsilon) for rates in (chosen.seen, chosen.expected)
        )
        best = max(best, (seen / (seen - expected), epsilon))
    chosen = split.choose_for_delta(best[1])
    return float(np.max(gains(*split.rates(chosen.test, chosen.share), best[1]))) > claim.at(best[1])


def test_looks_are_planned_once_and_for_all() -> None:
    """A later end adds looks and changes none; their parts of the error never exceed one; all are whole chunks."""
    short, long = planned_looks(1000, 1000, 20), planned_looks(1000, 10**6, 20)
    assert long[: len(short)] == short
    assert short[-1] == Look(1000, 0.85)
    assert [look.trials for look in long] == sorted({look.trials for look in long})
    assert sum(look.spent for look in long) <= 1.0
    assert all(look.trials % 20 == 0 for look in long)
    assert short[0].trials >= 100
    assert long[-1].trials == 512_000
    assert planned_looks(50, 50, 7) == (Look(56, 0.85),)
    assert peeked(1000, 5000, 20) == planned_looks(1000, 5000, 20)
    with pytest.raises(InputError, match="most_trials"):
        planned_looks(100, 99, 1)


def peeked(trials: int, most: int, chunk: int) -> tuple[Look, ...]:
    """All looks of somebody who stops after every chunk, sees what is due, and goes on for one chunk more."""
    seen: dict[Look, None] = {}
    for played in range(chunk, most + 1, chunk):
        due = planned_looks(trials, max(trials, played), chunk)
        seen |= {look: None for look in due if look.trials <= played}
    return tuple(seen)


def repeated(repeats: int, trials: int, seed: int) -> int:
    """How often a true and tight claim falls when somebody looks after every chunk, up to four times the trials."""
    rng = np.random.default_rng(seed)
    looks = peeked(trials, 4 * trials, 50)
    wrong = 0
    for _ in range(repeats):
        absent, present = rng.normal(size=looks[-1].trials), rng.normal(1.0, size=looks[-1].trials)
        wrong += falsified(absent, present, TRUE, looks) is not None
    return wrong


def test_a_true_claim_rarely_falls_however_often_one_looks() -> None:
    """60 repeats of a unit shift against mu = 1, up to four times the planned trials."""
    assert tail(repeated(60, 200, seed=3), 60, 0.05) > 1e-3


@pytest.mark.slow
def test_a_true_claim_falls_in_at_most_one_of_twenty_sequential_audits() -> None:
    """400 repeats, peeked at after every chunk: the count does not contradict 5 % (exact binomial test)."""
    assert tail(repeated(400, 200, seed=5), 400, 0.05) > 0.01


@pytest.mark.slow
def test_looks_without_a_plan_falsify_a_true_claim_too_often() -> None:
    """The same test rejects 5 % where every look spends the whole error."""
    rng = np.random.default_rng(6)
    greedy = tuple(Look(look.trials, 1.0) for look in planned_looks(3000, 3000, 50))
    wrong = sum(
        falsified(rng.normal(size=3000), rng.normal(1.0, size=3000), TRUE, greedy) is not None for _ in range(400)
    )
    assert tail(wrong, 400, 0.05) < 0.01


def power(repeats: int, mu: float, claim: Profile, trials: int, seed: int) -> tuple[int, int, float]:
    """(sequential audits that falsify, audits by two intervals that do, mean trials of the former)."""
    rng = np.random.default_rng(seed)
    looks = planned_looks(trials, trials, 20)
    ours = theirs = played = 0
    for _ in range(repeats):
        absent, present = rng.normal(size=trials), rng.normal(mu, size=trials)
        end = falsified(absent, present, claim, looks)
        ours += end is not None
        played += trials if end is None else end
        theirs += two_intervals(absent, present, claim)
    return ours, theirs, played / repeats


def test_it_finds_what_two_intervals_find_and_ends_early_where_much_leaks() -> None:
    """A shift of 1 against mu = 0.7: more often falsified at the same number of trials. Against 0.1: after a third."""
    ours, theirs, _ = power(40, 1.0, profile_of(gaussian_curve(0.7, Side.UPPER)), 600, seed=7)
    assert ours > theirs
    ours, theirs, played = power(10, 1.0, profile_of(gaussian_curve(0.1, Side.UPPER)), 3000, seed=8)
    assert ours == theirs == 10
    assert played < 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mu", "claim"),
    [
        (1.0, gaussian_curve(0.8, Side.UPPER)),
        (3.0, lambda epsilon: min(1.0, float(gaussian_delta(2.7, epsilon)))),
        (1.0, lambda epsilon: 0.335 if epsilon < 1 else 0.0925),
        (0.3, gaussian_curve(0.1, Side.UPPER)),
    ],
    ids=["middle", "strong", "large epsilon", "weak"],
)
def test_at_equal_trials_it_is_at_least_as_powerful(mu: float, claim: object) -> None:
    """200 repeats in four regimes where two intervals falsify sometimes: the sequential audit does so no less often."""
    ours, theirs, _ = power(200, mu, profile_of(claim), 1000, seed=11)  # type: ignore[arg-type]
    assert 0 < theirs < 200
    assert ours >= theirs


def test_a_sequential_audit_says_when_it_looked(tmp_path: Path) -> None:
    """It stops at the falsifying look, plays no run more, and every look is reported; evidence keeps the confidence."""
    target = Shift(2.0)
    found = audit(target, Plain(), trials=4000, seed=1, claim=(0.5, 1e-3), sequential=True)
    assert found.verdict is not None
    assert found.verdict.outcome is AuditOutcome.FALSIFIED
    assert [look.outcome for look in found.looks[:-1]] == ["cannot tell"] * (len(found.looks) - 1)
    assert found.looks[-1].outcome == "falsified"
    assert found.trials == found.looks[-1].trials <= 600
    assert target.runs == 2 * found.trials + 2 * target.chunk  # the first chunk is played twice
    assert found.verdict.evidence.confidence == 0.95
    told = [{"trials": look.trials, "spent": look.spent, "outcome": look.outcome} for look in found.looks]
    assert found.to_dict()["looks"] == told


def fair(seed: int, ledger: Path | None = None, **more: object) -> AuditResult:
    claim = gaussian_curve(1.0, Side.UPPER)
    return audit(Shift(1.0), Plain(), trials=500, seed=seed, claim=claim, ledger=ledger, sequential=True, **more)  # type: ignore[arg-type]


def test_it_may_be_taken_up_again_with_the_same_ledger(tmp_path: Path) -> None:
    """Going on to 2000 trials gives what one audit up to 2000 gives; a fixed audit does not take over its ledger."""
    ledger = tmp_path / "sequential.ledger"
    first = fair(4, ledger)
    assert first.trials == 500
    longer = fair(4, ledger, resume=True, most_trials=2000)
    at_once = fair(4, most_trials=2000)
    assert longer.trials == 2000
    assert longer.delta == at_once.delta
    assert longer.looks[: len(first.looks)] == first.looks
    assert fair(4, ledger, resume=True).delta == first.delta
    with pytest.raises(LedgerError, match="sequential"):
        audit(Shift(1.0), Plain(), trials=500, seed=4, ledger=ledger, resume=True)


def test_bounds_of_a_look_use_its_part_of_the_error() -> None:
    """The bound at the planned look is that of an audit whose whole error is 0.85 of the stated one."""
    scores = np.random.default_rng(1)
    absent, present = scores.normal(size=800), scores.normal(1.0, size=800)
    part = SplitScores(absent, present, 0.95, spent=0.85).delta(0.0).value
    whole = SplitScores(absent, present, 1.0 - 0.05 * 0.85).delta(0.0).value
    assert part == pytest.approx(whole, rel=1e-9)
    assert part < SplitScores(absent, present, 0.95).delta(0.0).value
    assert exp(0.0) * part < float(gaussian_delta(1.0, 0.0)) + 0.05


def test_what_makes_no_sense_is_refused() -> None:
    """Without a claim there is nothing to end for; a longest audit is about sequential ones."""
    with pytest.raises(InputError, match="ends when a claim falls"):
        audit(Shift(1.0), Plain(), trials=100, seed=1, sequential=True)
    with pytest.raises(InputError, match="sequential"):
        audit(Shift(1.0), Plain(), trials=100, seed=1, most_trials=200)
