"""Rounds of federated learning as runs: the unit is one client, a step is one noisy aggregate of clients' updates.

A round draws clients, clips the update of each to a norm C, and releases the sum (or the mean over a known number of
clients) with Gaussian noise. The noise multiplier of a round is the deviation of the noise on the *sum* divided by C.

- **Drawn rounds.** Clients are drawn anew in every round by a sampler of `calipers.samplers`.
- **Known rounds.** It is known who takes part, or cannot be excluded: every round is one Gaussian release. A client
  that is replaced moves the sum by up to 2C, one whose update is zeroed out by up to C.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

from calipers.adapters.watched_phases import unproven
from calipers.bracket import Bracket
from calipers.errors import InputError, UnsupportedError
from calipers.measure import CorrelatedNoise, Measurement, measure
from calipers.measure.bounds import Bounds
from calipers.measure.measurement import Claim
from calipers.measure.watched import OtherNeighbors, Watched
from calipers.run import ADJACENCIES, Run
from calipers.scope import FIXED

UNIT = "client"
FAILURES = ("any", "by-chance")
"""How clients that are drawn and contribute nothing are read: as anybody may fail, or as one fails like the other."""
BY_CHANCE = "As stated, every drawn client fails with the same probability, independently of who it is and of its data."

WHOLE_UPDATE = (
    "A client's whole contribution to a round is its clipped update. Metrics that clients report (losses, accuracies, "
    "numbers of examples) are released without noise and are not covered."
)
GENERATORS = (
    "Nobody knows the state of the random generators that draw the clients and the noise. Floating-point rounding is "
    "not counted."
)


@dataclasses.dataclass(frozen=True)
class FederatedRun:
    """What a configuration, or a training that was watched, executes; `runs` is empty where nothing is proven.

    Attributes:
        runs: phases whose certified upper bound holds for what was executed, or correlated noise.
        conditions: what has to hold outside of what was read.
        attained: whether attacks on `runs` are attacks on what was executed; else the lower bound is 0.
        reasons: why nothing, or only an upper bound, is proven.
        failure: with at most this probability some round had less noise than `runs` say; it is added to delta.
    """

    runs: tuple[Run, ...] | CorrelatedNoise
    conditions: tuple[str, ...] = ()
    attained: bool = True
    reasons: tuple[str, ...] = ()
    failure: float = 0.0

    def measure(self, *, tolerance: float = 1e-3) -> Measurement:
        """Measure it.

        Args:
            tolerance: how far apart the bounds may be, relative to epsilon.

        Returns:
            A measurement with lower <= truth <= upper for every quantity; [0, inf] for epsilon where nothing is proven.

        Raises:
            UnsupportedError: the runs hold with a failure probability only; `epsilon` counts it.
        """
        if self.failure:
            raise UnsupportedError(
                "The runs hold with a failure probability, which is added to delta: ask epsilon(delta)."
            )
        why = " ".join(self.reasons)
        if self.runs == ():
            nothing = unproven(why)
            return Measurement((), nothing, Claim(nothing.upper, tolerance), tolerance, self.reasons)
        measured = measure(self.runs, tolerance=tolerance)
        evaluation = measured.evaluation
        if not self.attained:
            evaluation = Bounds(evaluation.upper, unproven(why).lower)
        conditions = (*self.reasons, *self.conditions, *measured.conditions, FIXED)
        return dataclasses.replace(measured, evaluation=evaluation, conditions=conditions)

    def epsilon(self, delta: float) -> Bracket:
        """epsilon(delta) for one client: lower <= truth <= upper."""
        if not delta > self.failure:
            raise InputError(
                f"Expected delta above {self.failure:g}, with which noise may be too small; got {delta:g}."
            )
        return dataclasses.replace(self, failure=0.0).measure().epsilon(delta - self.failure)


class FederatedRecord(ABC):
    """What every record of a watched training answers, from the rounds that it saw."""

    @abstractmethod
    def described(self, adjacency: str | None = None) -> FederatedRun:
        """The rounds that released something, as a run; no runs where nothing is proven."""

    def why_not(self, adjacency: str | None = None) -> tuple[str, ...]:
        """Why the training is no described run, a sentence each; nothing if it is one."""
        return self.described(adjacency).reasons

    def attained(self, adjacency: str | None = None) -> bool:
        """Whether attacks on `runs()` are attacks on what was executed."""
        found = self.described(adjacency)
        return bool(found.runs) and found.attained

    def runs(self, adjacency: str | None = None) -> tuple[Run, ...]:
        """What was executed: one run for each kind of round; none where nothing is proven."""
        found = self.described(adjacency).runs
        assert isinstance(found, tuple)
        return found

    def measure(self, *, tolerance: float = 1e-3, adjacency: str | None = None) -> Measurement:
        """The measurement of the rounds that were released: lower <= truth <= upper."""
        found = self.described(adjacency).measure(tolerance=tolerance)
        return dataclasses.replace(found, watched=Watched("", tuple(self._others()))) if found.runs else found

    def _others(self) -> Iterator[tuple[str, OtherNeighbors]]:
        """What is known of the same training for each relation."""
        for adjacency in ADJACENCIES:
            try:
                found = self.described(adjacency)
            except UnsupportedError as error:
                found = FederatedRun((), reasons=(str(error),))
            runs = found.runs if isinstance(found.runs, tuple) else ()
            yield adjacency, OtherNeighbors(runs, found.attained, " ".join(found.reasons))

    def epsilon(self, delta: float, adjacency: str | None = None) -> Bracket:
        """epsilon(delta) for one client: lower <= truth <= upper; [0, inf] where nothing is proven."""
        return self.measure(adjacency=adjacency).epsilon(delta)


def drawn_rounds(sampler: str, clients: int, drawn: int, noise_multiplier: float, rounds: int, adjacency: str) -> Run:
    """So many rounds, each with `drawn` of `clients` clients (in expectation, under Poisson sampling)."""
    return Run(
        sampler=sampler, dataset_size=clients, batch_size=drawn, steps=rounds, noise_multiplier=noise_multiplier,
        adjacency=adjacency, unit=UNIT, records_per_unit=1,
    )  # fmt: skip


def known_rounds(clients: int, noise_multiplier: float, rounds: int, adjacency: str) -> Run:
    """So many rounds in which the client takes part at known times."""
    return Run(
        sampler="deterministic", dataset_size=clients, batch_size=clients, steps=rounds,
        noise_multiplier=noise_multiplier, adjacency=adjacency, unit=UNIT, records_per_unit=1,
    )  # fmt: skip


def scaled_noise(noise_multiplier: float, numerator: float, denominator: float) -> float:
    """noise_multiplier * numerator / denominator, never rounded up; exact where both are equal."""
    if numerator == denominator:
        return noise_multiplier
    return math.nextafter(noise_multiplier * numerator / denominator * (1.0 - 2.0**-51), 0.0)
