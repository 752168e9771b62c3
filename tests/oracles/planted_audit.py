"""The planted loops as targets of an audit: whole runs, with and without one record whose gradient is large.

11 others have small gradients, all alike; the differing record's is a hundred clipping norms long and has a part in
every coordinate, so that a rule of clipping that lets anything through shows it. What the adversary sees is every
released vector of one epoch (two where batches are the mistake, since some repeat only then). The claim is what the
loop's own accountant says; for a loop without a mistake that is Poisson sampling at 1/6 with noise multiplier 2.

Mistakes in the batches or in the accounting are played with a quarter of the noise in ten coordinates: much noise hides
how often a record took part, and the lines that are wrong do not depend on it. The claim is that of a quarter of
the noise then, too.

Three scores compete on pilot runs, and the one that tells most is audited on runs of its own: what `calipers audit`
fits by itself (Gaussians, or residuals where noise repeats), the likelihood ratio of the loop without a mistake, and
the lengths of the released vectors, which show a divisor.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.fitted import _tells as tells
from calipers.auditing.fitted import fit
from calipers.auditing.targets import FunctionTarget
from calipers.measure import Measurement, measure
from calipers.run import Run
from oracles.planted import Array, Bug, Generator, Right

OTHERS, BATCH, RATE, PILOT = 11, 2, 1 / 6, 300
QUIETER = 4.0
# Where the mistake is not in a step: the subjects of a probe.
NOT_IN_A_STEP = ("sampler", "accounting", "accounted noise", "neighbors")


def played(bug: Bug) -> type[Right]:
    """The loop as it is audited."""
    if bug.subject not in NOT_IN_A_STEP:
        return bug.loop
    return quieter(bug.loop)


def quieter(loop: type[Right]) -> type[Right]:
    """The same lines with a quarter of the noise, said and added, in ten coordinates."""

    class Quieter(loop):  # type: ignore[misc, valid-type]
        noise_multiplier = loop.noise_multiplier / QUIETER
        layers, dimension = (4, 4, 2), 10

        def accounted(self) -> tuple[float, float]:
            said = loop(self.size, self.batch).accounted()
            return said[0], said[1] / QUIETER

    return Quieter


def gradients(loop: type[Right]) -> tuple[Array, Array]:
    """(those of the others, that of the record)."""
    crowd = np.full(loop.dimension, 0.1 * loop.max_grad_norm / np.sqrt(loop.dimension))
    record = np.linspace(1.0, 2.0, loop.dimension)
    return crowd, record * 100 * loop.max_grad_norm / np.linalg.norm(record)


class PlantedTarget:
    """`function(present, rng)` of one run, as `calipers.auditing.targets` wants it."""

    def __init__(self, loop: type[Right], epochs: int) -> None:
        crowd, record = gradients(loop)
        self.loop, self.epochs = loop, epochs
        self.gradients = np.vstack([np.tile(crowd, (OTHERS, 1)), record])

    def __call__(self, present: bool, rng: Generator) -> Array:
        loop = self.loop(OTHERS + present, BATCH)
        return np.array([loop.update(self.gradients[batch], rng) for batch in loop.batches(self.epochs, rng)])


class KnownLaw:
    """The likelihood ratio of the loop without a mistake, along the record's gradient."""

    name, blind = "likelihood ratio of the right loop", "whatever is not along the record's gradient"

    def __init__(self, loop: type[Right]) -> None:
        self.loop = loop

    def identity(self) -> dict[str, object]:
        return {"distinguisher": "known law"}

    def scores(self, outputs: Array) -> Array:
        crowd, record = gradients(self.loop)
        direction = record / np.linalg.norm(record)
        steps = outputs.reshape(len(outputs), -1, self.loop.dimension)
        along = (BATCH * steps @ direction - OTHERS * RATE * (crowd @ direction)) / self.loop.max_grad_norm
        ratio = (along - 0.5) / self.loop.noise_multiplier**2
        return np.asarray(np.logaddexp(np.log1p(-RATE), np.log(RATE) + ratio).sum(axis=1))


class Lengths:
    """How short the released vectors are: a divisor that counts the record makes them shorter."""

    name, blind = "lengths of the released vectors", "whatever does not change their lengths"

    def __init__(self, loop: type[Right]) -> None:
        self.loop = loop

    def identity(self) -> dict[str, object]:
        return {"distinguisher": "lengths"}

    def scores(self, outputs: Array) -> Array:
        steps = outputs.reshape(len(outputs), -1, self.loop.dimension)
        return np.asarray(-np.log(np.maximum(np.linalg.norm(steps, axis=2), 1e-12)).sum(axis=1))


def best_score(target: PlantedTarget, seed: int) -> Any:
    """The score that tells most on pilot runs."""
    function = FunctionTarget(target)
    rows = [function.outputs(side, PILOT, np.random.default_rng([seed, side, 99])) for side in (False, True)]
    scores = [fit(function, pilot=PILOT, seed=seed), KnownLaw(target.loop), Lengths(target.loop)]
    return max(scores, key=lambda score: tells(score, *rows))


def epochs_of(bug: Bug) -> int:
    return 2 if bug.subject == "sampler" else 1


@functools.cache
def claimed(sample_rate: float, noise_multiplier: float, epochs: int) -> Measurement:
    return measure(Run(sample_rate=sample_rate, steps=6 * epochs, noise_multiplier=noise_multiplier))


def audited(loop: type[Right], epochs: int, trials: int = 2000, seed: int = 1) -> AuditResult:
    """What the best of the three scores finds."""
    target = PlantedTarget(loop, epochs)
    claim = claimed(*loop(OTHERS + 1, BATCH).accounted(), epochs).claim
    return audit(target, best_score(target, seed), trials=trials, seed=seed, claim=claim)
