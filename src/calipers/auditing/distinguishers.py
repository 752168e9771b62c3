"""Distinguishers: one score for each run, larger where the record seems present.

A distinguisher may be clever or naive; the statistics that follow hold for any score, because they compare how often
scores of the two hypotheses exceed a threshold. The score decides only how much of the leakage is found, and by
Neyman and Pearson nothing finds more than the likelihood ratio. So:

- `LikelihoodRatio`, for built-in targets: log p(y | present) - log p(y | absent), exact over all batches.
- `MatchedFilter`: the noisy sums' projection on the record's gradient, added up. Best where only the mean differs.
- `MaximumTest`, for samplers that use the record once an epoch: the largest round of each epoch.
- `Plain`: the output is the score already (one number for each run).
- `ScoreFunction`, a canary's own score: any function of the outputs.

Gaussians fitted to pilot runs have their own module, `calipers.auditing.fitted`, and so has the normality test of
Wang et al. (2026), `calipers.auditing.normality`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from calipers.auditing.builtin import NoisySums
from calipers.auditing.mixtures import Mixture
from calipers.auditing.targets import described, source_digest
from calipers.citations import implements
from calipers.errors import InputError
from calipers.numerics.types import FloatArray


@runtime_checkable
class Distinguisher(Protocol):
    """The adversary of the privacy game."""

    @property
    def name(self) -> str:
        """A short name for reports."""

    def identity(self) -> dict[str, object]:
        """Everything that changes the scores, as JSON."""

    def scores(self, outputs: FloatArray) -> FloatArray:
        """One number for each run, larger = more likely present; finite or infinite, never NaN."""


def blind_spots(distinguisher: Distinguisher) -> str:
    """What this score cannot see, for the sentence of a verdict that found nothing.

    A distinguisher says so in an attribute `blind`; of one that does not, nothing is known.
    """
    return str(getattr(distinguisher, "blind", "whatever its score leaves out"))


def projections(target: NoisySums, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(<y, e>, |y|^2) of a built-in target's outputs, each of shape (count, rounds)."""
    features = target.dimension if target.vectors else 2
    expected = (target.epochs * target.rounds, features)
    if outputs.ndim != 3 or outputs.shape[1:] != expected:
        raise InputError(f"Expected outputs of shape (count, {expected[0]}, {expected[1]}), got {outputs.shape}.")
    projection = outputs[..., 0]
    if target.vectors:
        return projection, np.einsum("crn,crn->cr", outputs, outputs)
    return projection, np.square(projection) + outputs[..., 1]


@implements("calipers:audit-likelihood")
@dataclass(frozen=True)
class LikelihoodRatio:
    """The most powerful score there is for a built-in target.

    Post-condition: the score is log p(outputs | present) - log p(outputs | absent), with both densities exact mixtures
    over the batches (see `calipers.auditing.mixtures` for the round-off). At each false positive rate no other score
    reaches a larger true positive rate against this target.
    """

    target: NoisySums
    name: ClassVar[str] = "exact likelihood ratio"
    blind: ClassVar[str] = ""  # no score sees more of these two datasets

    def identity(self) -> dict[str, object]:
        """The distribution whose ratio it is."""
        return {"distinguisher": "likelihood-ratio", "of": self.target.identity()}

    @cached_property
    def _mixtures(self) -> tuple[Mixture, Mixture]:
        return Mixture(self.target, present=False), Mixture(self.target, present=True)

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The sum of the epochs' log likelihood ratios."""
        target = self.target
        projection, square = (
            part.reshape(-1, target.rounds) for part in projections(target, np.asarray(outputs, dtype=np.float64))
        )
        absent, present = (side.log_density(projection, square) for side in self._mixtures)
        return np.asarray((present - absent).reshape(-1, target.epochs).sum(axis=1), dtype=np.float64)


@dataclass(frozen=True)
class MatchedFilter:
    """Projection of the outputs on the record's gradient, added over rounds.

    `direction` is that gradient's direction among the features; None is the first feature, where built-in targets
    have it.
    """

    direction: tuple[float, ...] | None = None
    name: ClassVar[str] = "matched filter"
    blind: ClassVar[str] = "everything but the sum of the outputs along one direction"

    def identity(self) -> dict[str, object]:
        """The direction."""
        return {"distinguisher": "matched-filter", "direction": list(self.direction) if self.direction else None}

    def scores(self, outputs: FloatArray) -> FloatArray:
        """Inner products with the direction."""
        found = np.asarray(outputs, dtype=np.float64)
        if self.direction is None:
            along = found[..., 0]
        elif found.shape[-1] != len(self.direction):
            raise InputError(f"Expected {len(self.direction)} features, as the direction has, got {found.shape[-1]}.")
        else:
            along = found @ np.asarray(self.direction, dtype=np.float64)
        return np.asarray(along.reshape(len(found), -1).sum(axis=1), dtype=np.float64)


@implements("chua2024:max-test")
@dataclass(frozen=True)
class MaximumTest:
    """The largest projection among the rounds of an epoch, added over epochs.

    Against shuffled batches with all other gradients opposite (v = -1), the record's batch stands out by 2 when it is
    present and by 1 when it is zeroed out; the maximum finds it without knowing where it is.
    """

    rounds: int
    name: ClassVar[str] = "maximum over the rounds of an epoch"
    blind: ClassVar[str] = "everything but the largest output of each epoch along one direction"

    def identity(self) -> dict[str, object]:
        """The rounds of an epoch."""
        return {"distinguisher": "maximum", "rounds": self.rounds}

    def scores(self, outputs: FloatArray) -> FloatArray:
        """Sum over epochs of the maximum over rounds of the first feature."""
        found = np.asarray(outputs, dtype=np.float64)
        if found.ndim != 3 or found.shape[1] % self.rounds:
            raise InputError(f"Expected outputs of shape (count, epochs * {self.rounds}, features), got {found.shape}.")
        epochs = found[..., 0].reshape(len(found), -1, self.rounds)
        return np.asarray(epochs.max(axis=2).sum(axis=1), dtype=np.float64)


@dataclass(frozen=True)
class Plain:
    """The output as it is, for targets that show one number in each run."""

    name: ClassVar[str] = "the output itself"
    blind: ClassVar[str] = "differences that no threshold on the output shows (a changed spread)"

    def identity(self) -> dict[str, object]:
        """Nothing to choose."""
        return {"distinguisher": "plain"}

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The one feature."""
        found = np.asarray(outputs, dtype=np.float64)
        if found.size != len(found):
            raise InputError(f"Expected one number for each run, got outputs of shape {found.shape}; add a score.")
        return found.ravel()


@dataclass(frozen=True)
class ScoreFunction:
    """Any function from outputs to scores: the loss of a canary, a shadow model, whatever the auditor knows."""

    function: Callable[..., object]
    label: str | None = None
    blind: ClassVar[str] = "everything that the score of your own leaves out"

    @property
    def name(self) -> str:
        """Where the function lives."""
        return self.label if self.label is not None else described(self.function)

    def identity(self) -> dict[str, object]:
        """The name, and the digest of the file the function is written in."""
        return {"distinguisher": "function", "name": self.name, "source": source_digest(self.function)}

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The function's scores; their shape is checked by the game."""
        return np.asarray(self.function(outputs), dtype=np.float64)
