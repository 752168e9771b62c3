"""One training run, audited from its canaries: who tosses the coins, what is asked, and what is said about a claim.

    # mine.py
    def train(included, rng):
        model = fit(records + canaries[included], seed=int(rng.integers(2**63)))
        return -losses(model, canaries)            # one score for each canary, larger where it seems to be in

The coins are tossed here, before training, and the numbers of guesses are fixed before the scores are seen: both are
assumptions of the bound (`calipers.auditing.one_run`). The scores must be made from what training gave away, and not
from `included`: nothing here can check that. `one_run_self_test` checks the rest: it shows the training other coins
than those it is judged by, and then hardly anything may be found.

Canaries that were scored elsewhere come as a file: a CSV with the columns `included` (0 or 1) and `score`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calipers.auditing.game import GameProgress, checked_seed
from calipers.auditing.one_run import OneRunBound, one_run_audit
from calipers.auditing.statistics import at_least, error_level
from calipers.auditing.targets import TargetError, described, within
from calipers.auditing.verdict import AuditOutcome, Claimed, allowed, profile_of
from calipers.display import as_record
from calipers.domains import COUNT, OPEN_UNIT, Domain
from calipers.errors import InputError
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.numerics.types import FloatArray

Training = Callable[[NDArray[np.bool_], np.random.Generator], object]

CANARIES = Domain(20, 10**8, integer=True)
NOTES = (
    "The bound holds for fair, independent coins, scores that do not look at the coins, and one canary more or less as "
    "the neighboring relation. It says nothing about records that are no canaries.",
    "An audit bounds leakage from below. It never proves privacy.",
)
_CALIBRATED_ABOVE = 1e-3


@dataclass(frozen=True)
class CanaryScores:
    """The canaries' scores and coins, and where they come from."""

    scores: FloatArray
    included: NDArray[np.bool_]
    source: str


@dataclass(frozen=True)
class OneRunResult:
    """What one run shows: a bound at each delta, and verdicts where something was claimed or proven.

    Verdicts are judged at the first delta; with the others there would be several chances to be wrong.
    """

    source: str
    confidence: float
    epsilon: tuple[OneRunBound, ...]
    verdicts: tuple[tuple[str, AuditOutcome, str], ...]
    notes: tuple[str, ...] = NOTES

    def to_dict(self) -> dict[str, object]:
        """The result as one JSON object."""
        said = {against: {"outcome": outcome.value, "message": text} for against, outcome, text in self.verdicts}
        verdicts = {"verdict": said.get("claim"), "upper_verdict": said.get("upper bound"), "notes": list(self.notes)}
        return {"one_run": True, **as_record(self, "verdicts", "notes", source="target"), **verdicts}


def default_guesses(canaries: int) -> tuple[tuple[int, int], ...]:
    """A twentieth, a tenth and a quarter of the canaries called in, and as many called out: three chances, shared."""
    return tuple((max(canaries // part, 1),) * 2 for part in (20, 10, 4))


def play_one_run(
    training: Training, *, canaries: int, seed: int, time_limit: float | None = None, shown_other_coins: bool = False
) -> CanaryScores:
    """Toss the coins, train once, take the scores. Chunks 0 and 1 of the seed: coins, and the training's generator.

    With `shown_other_coins` the training sees coins that have nothing to do with those returned.
    """
    count = CANARIES.check_int("canaries", canaries, "Fewer say nothing.")
    children = [np.random.default_rng(np.random.SeedSequence(checked_seed(seed), spawn_key=(i,))) for i in range(3)]
    included = children[0].random(count) < 0.5
    shown = children[2].random(count) < 0.5 if shown_other_coins else included.copy()
    name = described(training)
    try:
        returned = within(time_limit, lambda: training(shown, children[1]))
    except TargetError as error:
        raise TargetError(f"{name} {error}.") from error
    except Exception as error:
        raise TargetError(f"{name} raised {type(error).__name__}: {error}. (One run, seed {seed}.)") from error
    try:
        scores = np.asarray(returned, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise TargetError(f"{name} returned {type(returned).__name__}, no array of scores.") from error
    if scores.size != count or np.isnan(scores).any():
        raise TargetError(f"{name} returned {scores.size} scores for {count} canaries; return one number for each.")
    return CanaryScores(scores, included, name)


def read_canaries(path: Path) -> CanaryScores:
    """Scores and coins from a CSV file with the columns `included` and `score`, or `InputError`."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV file in UTF-8.") from error
    if not rows or not {"included", "score"} <= rows[0].keys():
        raise InputError(f"Expected {path} with a line for each canary and the columns included and score.")
    coins = [row["included"].strip().lower() if row["included"] else "" for row in rows]
    known = {"0": False, "1": True, "false": False, "true": True}
    try:
        included = np.array([known[coin] for coin in coins], dtype=np.bool_)
        scores = np.array([float(row["score"]) for row in rows])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"Expected included 0 or 1 and a number as score in every line of {path}: {error}.") from error
    return CanaryScores(scores, included, str(path))


def audit_one_run(
    found: CanaryScores,
    *,
    deltas: Sequence[float] = (1e-5,),
    confidence: float = 0.95,
    guesses: Sequence[tuple[int, int]] | None = None,
    claim: Claimed | None = None,
    upper: Claimed | None = None,
) -> OneRunResult:
    """Bound epsilon at each delta from below, and judge claim and upper bound at the first.

    Post-condition: each bound exceeds the truth, and each verdict is FALSIFIED wrongly, with probability at most
    1 - confidence.
    """
    confidence = OPEN_UNIT.check("confidence", confidence)
    chosen = default_guesses(found.scores.size) if guesses is None else tuple(guesses)
    if isinstance(claim, tuple):
        deltas = (claim[1], *(delta for delta in deltas if delta != claim[1]))
    if not deltas:
        raise InputError("Expected at least one delta, got none.")
    claimed = None if claim is None else profile_of(claim)
    certified = None if upper is None else profile_of(upper, "upper bound", certified=True)
    bounds = []
    for delta in deltas:
        bound = one_run_audit(found.scores, found.included, guesses=chosen, delta=delta, confidence=confidence)
        claims, proves = (allowed(profile, "epsilon", delta) for profile in (claimed, certified))
        bounds.append(replace(bound, claim=claims, upper=proves))
    said = (claimed.words if claimed is not None else "") or "the claim"
    given = (("claim", said, bounds[0].claim), ("upper bound", "the upper bound", bounds[0].upper))
    verdicts = tuple(
        _judged(name, words, bounds[0], value, confidence) for name, words, value in given if value is not None
    )
    return OneRunResult(found.source, confidence, tuple(bounds), verdicts)


def _judged(
    against: str, words: str, bound: OneRunBound, allowed: float, confidence: float
) -> tuple[str, AuditOutcome, str]:
    guessed = f"{bound.correct} of {bound.guesses} guesses were right"
    if bound.epsilon_lower > allowed:
        start = "Falsified" if against == "claim" else "The implementation is not the run described"
        text = (
            f"{start}: with confidence {setting(confidence)}, epsilon at delta = {setting(bound.delta)} is at least "
            f"{floor_digits(bound.epsilon_lower)}, but {words} allows {ceil_digits(allowed)}; {guessed}."
        )
        return against, AuditOutcome.FALSIFIED, text
    text = (
        f"Cannot tell: {guessed}, which a run as private as {words} says may well show. One run cannot say that "
        "a guarantee holds."
    )
    return against, AuditOutcome.CANNOT_TELL, text


@dataclass(frozen=True)
class SelfTest:
    """How often audits of nothing found something, by the name of the statistic that did.

    `one_run`: what was tried are runs that were shown other coins, with so many canaries (`trials`) each.
    """

    repeats: int
    trials: int
    confidence: float
    found: dict[str, int]
    one_run: bool = False

    @property
    def p_value(self) -> dict[str, float]:
        """Of the counts; each is at most u with probability at most u if audits hold what they promise."""
        error = error_level(self.confidence)
        return {name: float(at_least(count, self.repeats, error)) for name, count in self.found.items()}

    @property
    def calibrated(self) -> bool:
        """Whether the counts agree with the stated confidence.

        A sound audit is called uncalibrated with probability at most 1 in 1000 for each statistic.
        """
        return min(self.p_value.values()) > _CALIBRATED_ABOVE

    def to_dict(self) -> dict[str, object]:
        """The self-test as a JSON object."""
        counts = as_record(self, "one_run", **({"trials": "canaries"} if self.one_run else {}))
        marked: dict[str, object] = {"one_run": True} if self.one_run else {}
        return marked | counts | {"p_value": self.p_value, "calibrated": self.calibrated}


def one_run_self_test(
    training: Training,
    *,
    repeats: int,
    canaries: int,
    seed: int,
    confidence: float = 0.95,
    guesses: Sequence[tuple[int, int]] | None = None,
    time_limit: float | None = None,
    progress: GameProgress | None = None,
) -> SelfTest:
    """Train `repeats` times with coins that have nothing to do with those judged, and count the audits that find leaks.

    Post-condition: if scores depend on the coins through training alone, the p-value is at most u with probability at
    most u.
    """
    repeats, seed = COUNT.check_int("repeats", repeats), checked_seed(seed)
    alarms = 0
    for number in range(repeats):
        own = int(np.random.SeedSequence(seed, spawn_key=(number, 3)).generate_state(1, np.uint64)[0])
        found = play_one_run(training, canaries=canaries, seed=own, time_limit=time_limit, shown_other_coins=True)
        result = audit_one_run(found, deltas=(0.0,), confidence=confidence, guesses=guesses)
        alarms += result.epsilon[0].epsilon_lower > 0.0
        if progress is not None:
            progress(number + 1, repeats)
    return SelfTest(repeats, canaries, confidence, {"one-run": alarms}, one_run=True)
