"""`audit`: play the game, bound the leakage from below, and say what that means for a claim.

An audit runs a real implementation many times with and without one record, scores every run, and turns the scores
into lower bounds on what leaks (`calipers.auditing.bounds`), an attack curve that holds at every threshold at once
(`calipers.auditing.band`), and a verdict (`calipers.auditing.verdict`). Each number carries its confidence; each
holds on its own, the curve as a whole.

The number of trials is part of the statistics. Looking at the result and adding trials until the claim falls breaks the
confidence, like any optional stopping; so does auditing again with a new seed because the claim stood, for the errors
of all these audits add up. `sequential=True` plans for that (`calipers.auditing.sequential`): its confidence holds for
all its looks together, it ends at the first that falsifies the claim, and it may go on beyond `trials`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from calipers.auditing.band import Band
from calipers.auditing.bounds import DEFAULT_DELTA0, SELECTION_SHARE, LowerBound, SplitScores
from calipers.auditing.builtin import SIMULATIONS
from calipers.auditing.choosing import distinguisher_for, pilot_for
from calipers.auditing.distinguishers import Distinguisher, blind_spots
from calipers.auditing.game import Game, HowToPlay, Playing, Scores, chunk_size, game_of, play_in_stages
from calipers.auditing.loading import as_target
from calipers.auditing.sequential import Look, planned_looks
from calipers.auditing.targets import OneRun, Target
from calipers.auditing.verdict import (
    DEFAULT_VIOLATION,
    AuditOutcome,
    Claimed,
    Profile,
    Verdict,
    allowed,
    judge,
    profile_of,
)
from calipers.display import PrintedDisplay, as_record, plain
from calipers.domains import COUNT, OPEN_UNIT
from calipers.errors import InputError
from calipers.measure.measurement import Measurement

DEFAULT_DELTAS = (1e-5,)
DEFAULT_EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0)

_RAMP = np.arange(4.0)

NOTES = (
    "Each lower bound holds with its confidence on its own and chooses its own test, so one may find leakage where "
    "another finds none. An attack curve that holds at every threshold at once is the key curve of --json, and "
    "band.curve of the result in Python.",
    "An audit bounds the leakage of this pair of datasets under this attack from below. It never proves privacy.",
)


@dataclass(frozen=True, eq=False)
class AuditResult(PrintedDisplay):
    """What an audit found; each bound on epsilon and delta has also what is claimed and certified there.

    `looks` lists the looks of a sequential audit; all numbers are those of the last. `target_name` and `scored_by` say
    in words what `target` and `distinguisher` identify.
    """

    target: dict[str, object]
    distinguisher: dict[str, object]
    trials: int
    seed: int
    confidence: float
    epsilon: tuple[LowerBound, ...]
    delta: tuple[LowerBound, ...]
    mu: LowerBound
    band: Band
    verdict: Verdict | None
    upper_verdict: Verdict | None
    notes: tuple[str, ...] = NOTES
    looks: tuple[Look, ...] = ()
    target_name: str = ""
    scored_by: str = ""

    @property
    def as_described(self) -> bool | None:
        """False if the audit exceeds the certified upper bound: the implementation is not the run described.

        None without an upper bound; True means only that nothing to the contrary was seen.
        """
        return None if self.upper_verdict is None else self.upper_verdict.outcome is not AuditOutcome.FALSIFIED

    @property
    def simulated(self) -> bool:
        """Whether Calipers' own simulation of a run was played (a built-in target), and nobody's training code."""
        return self.target.get("target") in SIMULATIONS

    def to_dict(self) -> dict[str, object]:
        """The result as one JSON object, keys as in the output of `measure`."""
        record = as_record(self, "notes", "looks", "target_name", "scored_by", mu="gdp", band="curve")
        record |= {"as_described": self.as_described, "notes": list(self.notes)}
        return record | ({"looks": plain(self.looks)} if self.looks else {})


class AuditOptions(HowToPlay, total=False):
    """What is asked of the scores, and how the game is played (`HowToPlay`).

    `claim` is what should hold (see `profile_of`), `upper` a certified upper bound of the run that the target is said
    to be, `violation` by how much a claim must be exceeded for CONSISTENT to be wrong, `selection_share` the share of
    the runs that choose the test.
    """

    confidence: float
    deltas: Sequence[float]
    epsilons: Sequence[float]
    delta0: float
    claim: Claimed | None
    upper: Claimed | None
    violation: float
    selection_share: float


def audit(
    target: Target | OneRun | str,
    distinguisher: Distinguisher | None = None,
    *,
    trials: int,
    seed: int,
    sequential: bool = False,
    most_trials: int | None = None,
    **options: Unpack[AuditOptions],
) -> AuditResult:
    """Play `trials` runs for each hypothesis and bound the leakage of the target from below.

    Args:
        target: a target, a function of one run (present, rng), or "module:function". Its attribute `notes`, sentences
            about what was played, is handed on to the result.
        distinguisher: what scores an output; left out, the strongest that fits the target (`distinguisher_for`).
        trials: runs for each hypothesis.
        seed: of all random numbers; the same seed gives the same result.
        sequential: look at the scores several times, end when the claim is refuted, and go on to `most_trials` if it is
            not; with a ledger and a larger `most_trials` the audit may be taken up again.
        most_trials: by default `trials`.
        options: those of `AuditOptions`: what is asked (confidence, deltas, epsilons, claim, ...) and how to play
            (jobs, ledger, time_limit, ...).

    Returns:
        Lower bounds, each of which exceeds the truth with probability at most 1 - confidence.

    Raises:
        InputError: a question or setting that makes no sense; before anything is played.
    """
    # Wrong questions are refused before the game, which may take hours.
    given: dict[str, Any] = {**options}
    asked = _AuditQuestions(
        **{field.name: given.pop(field.name) for field in fields(_AuditQuestions) if field.name in given}
    )
    playing = Playing(**given)
    asked.check()
    target = as_target(target)
    looks = _looks(asked, COUNT.check_int("trials", trials), most_trials, chunk_size(target, playing.chunk), sequential)
    if distinguisher is None:
        distinguisher = distinguisher_for(target, seed=seed, pilot=pilot_for(trials), time_limit=playing.time_limit)
    game = game_of(target, distinguisher, looks[-1].trials, seed, playing)
    if sequential:
        game = replace(game, planned=trials)
    blind = blind_spots(distinguisher)
    seen: list[Look] = []
    for look, scores in zip(looks, play_in_stages(game, [look.trials for look in looks], playing), strict=False):
        split = asked.split(scores, look.spent)
        verdicts = asked.judged(split, blind)
        decisive = next((verdict for verdict in verdicts if verdict is not None), None)
        seen.append(replace(look, outcome=None if decisive is None else decisive.outcome.value))
        if decisive is not None and decisive.outcome is AuditOutcome.FALSIFIED:
            break
    result = asked.answered(game, split, verdicts)
    if not sequential:
        return result
    last = result.verdict or result.upper_verdict
    seen[-1] = replace(seen[-1], outcome=None if last is None else last.outcome.value)
    return replace(result, looks=tuple(seen))


def _looks(
    asked: _AuditQuestions, trials: int, most_trials: int | None, chunk: int, sequential: bool
) -> tuple[Look, ...]:
    """One look that has all of the error, or those of a sequential audit."""
    if not sequential:
        if most_trials is not None:
            raise InputError("most_trials is about a sequential audit; add sequential=True (--sequential).")
        return (Look(trials, 1.0),)
    if asked.claim is None and asked.upper is None:
        raise InputError("A sequential audit ends when a claim falls: give a claim, or describe the run it should be.")
    return planned_looks(trials, trials if most_trials is None else most_trials, chunk)


@dataclass(frozen=True)
class _AuditQuestions:
    """What is asked of the scores."""

    confidence: float = 0.95
    deltas: Sequence[float] = DEFAULT_DELTAS
    epsilons: Sequence[float] = DEFAULT_EPSILONS
    delta0: float = DEFAULT_DELTA0
    claim: Claimed | None = None
    upper: Claimed | None = None
    violation: float = DEFAULT_VIOLATION
    selection_share: float = SELECTION_SHARE

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", OPEN_UNIT.check("confidence", self.confidence))
        object.__setattr__(self, "deltas", tuple(self.deltas))
        object.__setattr__(self, "epsilons", tuple(self.epsilons))

    @cached_property
    def profiles(self) -> tuple[Profile | None, Profile | None]:
        """What is claimed and what is certified, as functions of epsilon."""
        claimed = None if self.claim is None else profile_of(self.claim, "claim")
        return claimed, None if self.upper is None else profile_of(self.upper, "upper bound", certified=True)

    def split(self, scores: Scores, spent: float) -> SplitScores:
        """The scores, to be looked at with this part of the error."""
        return SplitScores(scores.absent, scores.present, self.confidence, self.selection_share, spent)

    def judged(self, split: SplitScores, blind: str) -> tuple[Verdict | None, Verdict | None]:
        """The verdicts on claim and upper bound."""

        def verdict(profile: Profile | None, source: Claimed | None) -> Verdict | None:
            if profile is None:
                return None
            return judge(split, profile, _epsilons(source, self.epsilons), self.violation, blind)

        return verdict(self.profiles[0], self.claim), verdict(self.profiles[1], self.upper)

    def answered(self, game: Game, split: SplitScores, verdicts: tuple[Verdict | None, Verdict | None]) -> AuditResult:
        """All bounds on these scores."""
        epsilons = tuple(self._next_to(split.epsilon(delta)) for delta in self.deltas)
        mu = replace(split.mu(self.delta0), upper=self._mu_of_run)
        claim, upper = (found and found.held_against((*epsilons, mu)) for found in verdicts)
        return AuditResult(
            target=game.target.identity(),
            distinguisher=game.distinguisher.identity(),
            trials=int(split.absent.size),
            seed=game.seed,
            confidence=self.confidence,
            epsilon=epsilons,
            delta=tuple(self._next_to(split.delta(epsilon)) for epsilon in self.epsilons),
            mu=mu,
            band=split.band,
            verdict=claim,
            upper_verdict=upper,
            notes=(*NOTES, *getattr(game.target, "notes", ())),
            target_name=game.target.name,
            scored_by=game.distinguisher.name,
        )

    @property
    def _mu_of_run(self) -> float | None:
        """mu of the run described."""
        return self.upper.gdp(self.delta0).mu.upper if isinstance(self.upper, Measurement) else None

    def _next_to(self, bound: LowerBound) -> LowerBound:
        """The bound with what claim and upper bound allow of its quantity."""
        claim, upper = (allowed(profile, bound.quantity, bound.at) for profile in self.profiles)
        return replace(bound, claim=claim, upper=upper)

    def check(self) -> None:
        """Ask every question of four made-up scores, so that what would be refused is refused now."""
        if not self.epsilons:
            raise InputError("Expected at least one epsilon, got none. epsilons=(0,) asks for the advantage alone.")
        split = self.split(Scores(_RAMP, _RAMP + 1.0), 1.0)
        for delta in self.deltas:
            split.epsilon(delta)
        for epsilon in self.epsilons:
            split.delta(epsilon)
        split.mu(self.delta0)
        self.judged(split, "")


def _epsilons(claim: Claimed | None, epsilons: Sequence[float]) -> tuple[float, ...]:
    """The grid of a comparison; a single (epsilon, delta) says most at its own epsilon."""
    own = (claim[0],) if isinstance(claim, tuple) else ()
    return tuple(sorted({*own, *epsilons}))
