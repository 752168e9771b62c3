"""`audit`: play the game, bound the leakage from below, and say what that means for a claim.

An audit runs a real implementation many times with and without one record, scores every run, and turns the scores
into lower bounds on what leaks (`calipers.auditing.bounds`), an attack curve that holds at every threshold at once
(`calipers.auditing.band`), and a verdict (`calipers.auditing.verdict`). Each number carries its confidence; each
holds on its own, the curve as a whole.

The number of trials is part of the statistics. Looking at the result and adding trials until the claim falls breaks the
confidence, like any optional stopping: decide on `trials` first, or audit again with a new seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calipers.auditing.band import Band, simultaneous_band
from calipers.auditing.bounds import DEFAULT_DELTA0, SELECTION_SHARE, LowerBound, SplitScores
from calipers.auditing.choosing import distinguisher_for
from calipers.auditing.distinguishers import Distinguisher
from calipers.auditing.game import Progress, Scores, play
from calipers.auditing.loading import as_target
from calipers.auditing.targets import OneRun, Target
from calipers.auditing.verdict import DEFAULT_VIOLATION, Claimed, Outcome, Profile, Verdict, judge, profile_of
from calipers.domains import OPEN_UNIT
from calipers.errors import InputError

DEFAULT_DELTAS = (1e-5,)
DEFAULT_EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0)

_RAMP = np.arange(4.0)

NOTES = (
    "Each lower bound holds with its confidence on its own and chooses its own test, so one may find leakage where "
    "another finds none; the curve holds at every threshold at once.",
    "An audit bounds the leakage of this pair of datasets under this attack from below. It never proves privacy.",
)


@dataclass(frozen=True, eq=False)
class AuditResult:
    """What an audit found. `claims` and `uppers` give the claimed and certified delta at the epsilons of `delta`."""

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
    claims: tuple[float, ...] | None
    uppers: tuple[float, ...] | None
    notes: tuple[str, ...] = NOTES

    @property
    def as_described(self) -> bool | None:
        """False if the audit exceeds the certified upper jaw: the implementation is not the run described.

        None without an upper jaw; True means only that nothing to the contrary was seen.
        """
        return None if self.upper_verdict is None else self.upper_verdict.outcome is not Outcome.FALSIFIED

    def to_dict(self) -> dict[str, object]:
        """The result as one JSON object, keys as in the output of `measure`."""
        rows: list[dict[str, object]] = []
        for number, bound in enumerate(self.delta):
            row = bound.to_dict()
            if self.claims is not None:
                row["claim"] = self.claims[number]
            if self.uppers is not None:
                row["upper"] = self.uppers[number]
            rows.append(row)
        curve = self.band.curve
        return {
            "target": self.target,
            "distinguisher": self.distinguisher,
            "trials": self.trials,
            "seed": self.seed,
            "confidence": self.confidence,
            "epsilon": [bound.to_dict() for bound in self.epsilon],
            "delta": rows,
            "gdp": self.mu.to_dict(),
            "curve": {
                "alpha": curve.alpha.tolist(),
                "beta": curve.beta.tolist(),
                "evidence": self.band.evidence.as_dict(),
            },
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "upper_verdict": None if self.upper_verdict is None else self.upper_verdict.to_dict(),
            "as_described": self.as_described,
            "notes": list(self.notes),
        }


def audit(
    target: Target | OneRun | str,
    distinguisher: Distinguisher | None = None,
    *,
    trials: int,
    seed: int,
    confidence: float = 0.95,
    deltas: Sequence[float] = DEFAULT_DELTAS,
    epsilons: Sequence[float] = DEFAULT_EPSILONS,
    delta0: float = DEFAULT_DELTA0,
    claim: Claimed | None = None,
    upper: Claimed | None = None,
    violation: float = DEFAULT_VIOLATION,
    selection_share: float = SELECTION_SHARE,
    jobs: int = 1,
    joblib_backend: str | None = None,
    chunk: int | None = None,
    ledger: Path | str | None = None,
    resume: bool = False,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Play `trials` runs for each hypothesis and bound the leakage of the target from below.

    `target` is a target, a function of one run (present, rng), or "module:function". Without a `distinguisher` the
    strongest that fits the target is taken (see `distinguisher_for`).
    `claim` is what should hold (see `profile_of`), `upper` a certified upper jaw of the run that the target is said to
    be. The last seven arguments are those of `play`.
    A target's attribute `notes`, sentences about what was played, is handed on to the result.
    Post-condition: every lower bound exceeds the truth with probability at most 1 - confidence.
    """
    # Wrong questions are refused before the game, which may take hours.
    confidence = OPEN_UNIT.check("confidence", confidence)
    profiles = _profiles(claim, upper)
    _probe(deltas, epsilons, delta0, confidence, selection_share, profiles, violation)
    target = as_target(target)
    if distinguisher is None:
        distinguisher = distinguisher_for(target, seed=seed, time_limit=time_limit)
    scores = play(
        target,
        distinguisher,
        trials=trials,
        seed=seed,
        jobs=jobs,
        joblib_backend=joblib_backend,
        chunk=chunk,
        ledger=ledger,
        resume=resume,
        time_limit=time_limit,
        progress=progress,
    )
    split = SplitScores(scores.absent, scores.present, confidence, selection_share)
    band = simultaneous_band(scores.absent, scores.present, confidence)
    claimed, certified = profiles

    def judged(profile: Profile | None, source: Claimed | None) -> Verdict | None:
        return None if profile is None else judge(split, band, profile, _epsilons(source, epsilons), violation)

    return AuditResult(
        target=target.identity(),
        distinguisher=distinguisher.identity(),
        trials=int(scores.absent.size),
        seed=seed,
        confidence=confidence,
        epsilon=tuple(split.epsilon(delta) for delta in deltas),
        delta=tuple(split.delta(epsilon) for epsilon in epsilons),
        mu=split.mu(delta0),
        band=band,
        verdict=judged(claimed, claim),
        upper_verdict=judged(certified, upper),
        claims=None if claimed is None else tuple(claimed.at(epsilon) for epsilon in epsilons),
        uppers=None if certified is None else tuple(certified.at(epsilon) for epsilon in epsilons),
        notes=(*NOTES, *getattr(target, "notes", ())),
    )


def _profiles(claim: Claimed | None, upper: Claimed | None) -> tuple[Profile | None, Profile | None]:
    claimed = None if claim is None else profile_of(claim, "claim")
    return claimed, None if upper is None else profile_of(upper, "upper jaw", certified=True)


def _epsilons(claim: Claimed | None, epsilons: Sequence[float]) -> tuple[float, ...]:
    """The grid of a comparison; a single (epsilon, delta) says most at its own epsilon."""
    own = (claim[0],) if isinstance(claim, tuple) else ()
    return tuple(sorted({*own, *epsilons}))


def _probe(
    deltas: Sequence[float],
    epsilons: Sequence[float],
    delta0: float,
    confidence: float,
    selection_share: float,
    profiles: tuple[Profile | None, Profile | None],
    violation: float,
) -> None:
    """Ask every question of four made-up scores, so that what would be refused is refused now."""
    if not epsilons:
        raise InputError("Expected at least one epsilon, got none. epsilons=(0,) asks for the advantage alone.")
    scores = Scores(*(_RAMP + shift for shift in (0.0, 1.0)))
    split = SplitScores(scores.absent, scores.present, confidence, selection_share)
    band = simultaneous_band(scores.absent, scores.present, confidence)
    for delta in deltas:
        split.epsilon(delta)
    for epsilon in epsilons:
        split.delta(epsilon)
    split.mu(delta0)
    for profile in profiles:
        if profile is not None:
            judge(split, band, profile, tuple(epsilons), violation)
