"""Does the audit cry wolf? Repeated audits of a target that ignores the record.

If the record changes nothing, every "leak" that an audit finds is an error, and it may make one with probability at
most 1 - confidence. So: take the target, never show it the record, audit it again and again with fresh randomness,
and count how often each statistic claims leakage. The count is compared with Bin(repeats, 1 - confidence) by its
exact tail. A small p-value means that the stated confidence is false for this target and score: runs that are not
independent (a cache, a seed used twice, a score fitted on the same runs) are the usual reason.

"sequential" is the verdict of an audit that looks several times. "one-run" takes each pair of runs for a canary: a coin
decides which of the two scores it has, and the coins are guessed (`calipers.auditing.one_run`).

Shared budgets keep the true error below 1 - confidence, so a healthy audit finds leakage rarely here; the test looks in
the direction that harms.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np

from calipers.auditing.bounds import SplitScores
from calipers.auditing.distinguishers import Distinguisher
from calipers.auditing.game import Game, HowToPlay, Playing, Scores, game_of, play
from calipers.auditing.one_run_game import CanaryScores, SelfTest, audit_one_run
from calipers.auditing.parallel import each_played
from calipers.auditing.sequential import Look, planned_looks
from calipers.auditing.targets import Target
from calipers.auditing.verdict import AuditOutcome, Profile, judge, profile_of
from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import COUNT, OPEN_UNIT
from calipers.numerics.types import FloatArray

STATISTICS = ("epsilon", "delta", "mu", "curve", "verdict", "sequential", "one-run")


class IgnoresRecord:
    """A target whose runs never contain the record, whichever hypothesis is asked for."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = f"{target.name}, record ignored"
        self.chunk = getattr(target, "chunk", None)

    def identity(self) -> dict[str, object]:
        """The target's identity, marked."""
        return {"ignores_record": True, **self.target.identity()}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """Runs without the record. `present` changes nothing, which is the point."""
        return self.target.outputs(False, count, rng)


def leakage_found(
    absent: FloatArray, present: FloatArray, confidence: float, chunk: int, coins: np.random.Generator
) -> dict[str, bool]:
    """Which statistics claim leakage on these scores, at the stated confidence."""
    included = coins.random(absent.size) < 0.5
    canaries = CanaryScores(np.where(included, present, absent), included, "pairs of runs")
    split = SplitScores(absent, present, confidence)
    nothing = profile_of(TradeoffCurve.perfect_privacy(Side.UPPER), "perfect privacy")
    return {
        "epsilon": split.epsilon(0.0).value > 0.0,
        "delta": split.delta(0.0).value > 0.0,
        "mu": split.mu(0.0).value > 0.0,
        "curve": float(split.band.curve.delta(0.0)) > 0.0,
        "verdict": judge(split, nothing, (0.0, 1.0)).outcome is AuditOutcome.FALSIFIED,
        "sequential": any(_falls(absent, present, confidence, look, nothing) for look in _looks(absent.size, chunk)),
        "one-run": audit_one_run(canaries, deltas=(0.0,), confidence=confidence).epsilon[0].epsilon_lower > 0.0,
    }


def _looks(trials: int, chunk: int) -> tuple[Look, ...]:
    """The looks of a sequential audit of so many trials; the last chunk may be a part of one."""
    return tuple(replace(look, trials=min(look.trials, trials)) for look in planned_looks(trials, trials, chunk))


def _falls(absent: FloatArray, present: FloatArray, confidence: float, look: Look, profile: Profile) -> bool:
    split = SplitScores(absent[: look.trials], present[: look.trials], confidence, spent=look.spent)
    return judge(split, profile, (0.0, 1.0)).outcome is AuditOutcome.FALSIFIED


def _one_game(games: Game, number: int) -> Scores:
    """One whole game without the record, with a seed of its own; runs in a worker."""
    seed = int(np.random.SeedSequence(games.seed, spawn_key=(number,)).generate_state(1, np.uint64)[0])
    return play(
        games.target,
        games.distinguisher,
        trials=games.trials,
        seed=seed,
        chunk=games.chunk,
        time_limit=games.time_limit,
        repeat_first=number == 0,
    )


def self_test(
    target: Target,
    distinguisher: Distinguisher,
    *,
    repeats: int,
    trials: int,
    seed: int,
    confidence: float = 0.95,
    **how: Unpack[HowToPlay],
) -> SelfTest:
    """Audit the target `repeats` times with the record ignored, and test the count of false alarms.

    `jobs`, `chunk` and `time_limit` are those of `play`; `progress(done, repeats)` is called after every audit.
    Post-condition: if audits hold what they promise, each p-value is at most u with probability at most u.
    """
    repeats = COUNT.check_int("repeats", repeats)
    confidence = OPEN_UNIT.check("confidence", confidence)
    playing = Playing(**how)
    games = game_of(IgnoresRecord(target), distinguisher, trials, seed, playing)
    found = dict.fromkeys(STATISTICS, 0)
    work = partial(_one_game, games)
    for done, (number, scores) in enumerate(each_played(work, games.lost, range(repeats), playing.jobs, None), 1):
        coins = np.random.default_rng(np.random.SeedSequence(games.seed, spawn_key=(number, 1)))
        for name, claimed in leakage_found(scores.absent, scores.present, confidence, games.chunk, coins).items():
            found[name] += claimed
        if playing.progress is not None:
            playing.progress(done, repeats)
    return SelfTest(repeats, trials, confidence, found)
