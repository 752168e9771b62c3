"""Canaries in a training loop of one's own: pairs of examples, of which a fair coin lets one in.

    pairs = Pairs(400)
    dataset = real records and pairs.chosen(candidates)         # 800 candidates, of which 400 are trained on
    ...                                                         # train as before
    found = pairs.scores(-losses)                               # of all 800, by the finished model

Candidates i and m + i are a pair. Whatever the coins say, m of the 2 m are in: the dataset keeps its size, and so do
batches, steps and divisors, which a loop computes from it. Turning one coin around *substitutes* one record; that is
the neighboring relation under which the run has to be measured. The difference of two scores says which of the pair was
in, with what both have in common (how hard an example is) gone.

The audit of `calipers.auditing.one_run_game` holds for fair, independent coins and scores that do not look at them.
What `scores` is given may be anything the adversary sees: minus the losses of the finished model (black-box), or
evidence gathered on the way by `learn` (white-box: products of noisy sums with the candidates' gradients).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calipers.auditing.one_run_game import CANARIES, NOTES, CanaryScores, OneRunResult, audit_one_run
from calipers.bracket import Bracket
from calipers.errors import InputError
from calipers.measure import Measurement
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.numerics.types import IntArray

_NOTE = (
    "The bound holds for fair, independent coins, scores that do not look at the coins, and one record substituted by "
    "another as the neighboring relation. It says nothing about records that are no canaries."
)


class Pairs:
    """`count` pairs of candidates and their coins, of the system's entropy unless a seed is given."""

    def __init__(self, count: int, *, seed: int | None = None) -> None:
        self.count = CANARIES.check_int("pairs", count, "Fewer say nothing.")
        self.included = np.random.default_rng(np.random.SeedSequence(seed)).random(self.count) < 0.5
        self._evidence = np.zeros(2 * self.count)
        self._learned = False

    @property
    def rows(self) -> IntArray:
        """Which candidates are trained on: of every pair the first where its coin says so, else the second."""
        first = np.arange(self.count)
        return np.where(self.included, first, first + self.count)

    def chosen(self, candidates: Any) -> Any:
        """The candidates that are trained on; an array, a tensor or a list of 2 count of them."""
        if len(candidates) != 2 * self.count:
            raise InputError(f"Expected {2 * self.count} candidates for {self.count} pairs, got {len(candidates)}.")
        return [candidates[row] for row in self.rows] if isinstance(candidates, list) else candidates[self.rows]

    def learn(self, evidence: Any) -> None:
        """Add to what is known of every candidate, larger where it seems to be in."""
        self._evidence += self._checked(evidence)
        self._learned = True

    def scores(self, seen: Any = None) -> CanaryScores:
        """Of the pairs, from one number for every candidate (larger: in), or from what was learned."""
        if seen is None and not self._learned:
            raise InputError("Nothing is known of the candidates; give a number for each, or learn during training.")
        known = self._evidence if seen is None else self._checked(seen)
        source = "pairs of examples, " + ("white-box" if seen is None else "black-box")
        return CanaryScores(known[: self.count] - known[self.count :], self.included, source)

    def _checked(self, numbers: Any) -> Any:
        found = np.asarray(numbers, dtype=np.float64).ravel()
        if found.size != 2 * self.count or not np.isfinite(found).all():
            raise InputError(f"Expected a finite number for each of {2 * self.count} candidates, got {found.size}.")
        return found

    def state_dict(self) -> dict[str, Any]:
        """Coins and evidence, for a checkpoint: a secret until the audit."""
        return {"included": self.included.tolist(), "evidence": self._evidence.tolist(), "learned": self._learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the coins of a checkpoint."""
        if len(state["included"]) != self.count:
            raise InputError(f"The checkpoint has {len(state['included'])} pairs, and there are {self.count}.")
        self.included = np.array(state["included"], dtype=np.bool_)
        self._evidence, self._learned = np.array(state["evidence"]), bool(state["learned"])


def certified_words(certified: Bracket, delta: float) -> str:
    """The first two of the three numbers with which audits of a training end."""
    return (
        f"epsilon at delta = {setting(delta)}: at most {ceil_digits(certified.upper)} (certified), an adversary gets "
        f"at least {floor_digits(certified.lower)} (certified)"
    )


@dataclass(frozen=True)
class ThreeNumbers:
    """Certified above, certified for the adversary below, and observed in one run, with its confidence."""

    certified: Bracket
    observed: OneRunResult
    delta: float

    def sentence(self) -> str:
        """The three numbers, in words."""
        bound = self.observed.epsilon[0]
        return (
            f"{certified_words(self.certified, self.delta)}; this run was seen to leak at "
            f"least {floor_digits(bound.epsilon_lower)} with confidence {setting(self.observed.confidence)} "
            f"({bound.correct} of {bound.guesses} guesses about {bound.canaries} canaries right; "
            f"{self.observed.source})."
        )

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        bracket = {"delta": self.delta, "lower": self.certified.lower, "upper": self.certified.upper}
        return {"certified": bracket, "observed": self.observed.to_dict()}


def audit_pairs(
    found: CanaryScores, measurement: Measurement, *, delta: float, confidence: float = 0.95
) -> ThreeNumbers:
    """The three numbers of a run whose `measurement` is that for substituted records."""
    observed = audit_one_run(found, deltas=(delta,), confidence=confidence, upper=measurement)
    return ThreeNumbers(measurement.epsilon(delta=delta), replace(observed, notes=(_NOTE, *NOTES[1:])), delta)
