"""The questions put to a measurement and its answers, asked once and rendered in several forms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calipers.bracket import Bracket, Evidence
from calipers.domains import NON_NEGATIVE, OPEN_UNIT, Domain
from calipers.errors import CertificationError
from calipers.reports.format import ceil_digits, floor_digits
from calipers.run import Run
from calipers.stated import Stated

if TYPE_CHECKING:
    from calipers.measure import Measurement

PUBLIC = ("none", "constant")
"""Divisors that do not depend on the data."""
DEFAULT_DELTAS = (1e-5,)
DEFAULT_FPRS = (0.1, 0.01, 0.001)
DEFAULT_DELTA0 = 1e-10
DELTA0 = Domain(0.0, 1.0, high_open=True)


@dataclass(frozen=True)
class Questions:
    """At which delta, epsilon and false positive rate to read a measurement, and mu up to which delta0."""

    deltas: tuple[float, ...] = DEFAULT_DELTAS
    epsilons: tuple[float, ...] = ()
    fprs: tuple[float, ...] = DEFAULT_FPRS
    delta0: float = DEFAULT_DELTA0

    def __post_init__(self) -> None:
        for delta in self.deltas:
            OPEN_UNIT.check("delta", delta)
        for epsilon in self.epsilons:
            NON_NEGATIVE.check("epsilon", epsilon)
        for fpr in self.fprs:
            OPEN_UNIT.check("fpr", fpr)
        DELTA0.check("delta0", self.delta0, "It is the part of delta that mu is allowed to leave unexplained.")


@dataclass(frozen=True)
class Claimed:
    """A bracket beside what mainstream accounting would report for the run."""

    at: float
    bracket: Bracket
    claim: float


@dataclass(frozen=True)
class Answers:
    """Every number of one report. The brackets are the measurement's own, unrounded; without runs, `stated` is measured."""

    runs: tuple[Run, ...]
    epsilon: tuple[Claimed, ...]
    delta: tuple[Claimed, ...]
    tpr: tuple[tuple[float, Bracket], ...]
    mu: Bracket
    delta0: float
    regret: float
    advantage: Bracket
    separation: Bracket
    notes: tuple[str, ...]
    stated: Stated | None = None

    def brackets(self) -> Iterator[tuple[str, Bracket]]:
        """Every bracket with the name of its quantity, in the order of the report."""
        for row in self.epsilon:
            yield f"epsilon at delta = {row.at:.12g}", row.bracket
        for row in self.delta:
            yield f"delta at epsilon = {row.at:.12g}", row.bracket
        for fpr, bracket in self.tpr:
            yield f"TPR at FPR = {fpr:.12g}", bracket
        yield f"mu up to delta0 = {self.delta0:.12g}", self.mu
        yield "advantage", self.advantage
        yield "separation", self.separation

    def evidence(self) -> dict[Evidence, list[str]]:
        """Which ends each piece of evidence licenses, in the order of first use."""
        used: dict[Evidence, list[str]] = {}
        for name, bracket in self.brackets():
            used.setdefault(bracket.upper_evidence, []).append(f"{name} (upper)")
            used.setdefault(bracket.lower_evidence, []).append(f"{name} (lower)")
        return used


def answer(measurement: Measurement, questions: Questions) -> Answers:
    """Ask everything once. Whatever cannot be answered raises: a report never leaves a gap unsaid."""
    claim = measurement.claim
    gdp = measurement.gdp(delta0=questions.delta0)
    answers = Answers(
        runs=measurement.runs,
        epsilon=tuple(Claimed(d, measurement.epsilon(d), claim.epsilon(d)) for d in questions.deltas),
        delta=tuple(Claimed(e, measurement.delta(e), claim.delta(e)) for e in questions.epsilons),
        tpr=tuple((fpr, measurement.tpr(fpr)) for fpr in questions.fprs),
        mu=gdp.mu,
        delta0=gdp.delta0,
        regret=gdp.regret,
        advantage=measurement.advantage(),
        separation=measurement.separation(),
        notes=(),
        stated=measurement.stated,
    )
    sizes = _worst_size(measurement, questions)
    return _with_notes(answers, [*measurement.notes, *_refuted(answers), *sizes])


def _worst_size(measurement: Measurement, questions: Questions) -> Iterator[str]:
    """Where the divisor is a floor, what it does to datasets of another size."""
    if not measurement.runs:
        return
    run = measurement.runs[0]
    floored = run.normalization == "floor" and run.sampler == "poisson" and run.adjacency == "add-remove"
    if not floored or measurement.dataset_sizes is not None:  # a range that was named is measured as a whole
        return
    if len(measurement.runs) == 1 and run.dimension is not None and questions.deltas:
        from calipers.measure import worst_dataset_size  # numpy and scipy, which a command's help does not need

        try:
            found = worst_dataset_size(run, delta=questions.deltas[0], tolerance=measurement.tolerance)
        except CertificationError as error:  # the run itself is measured; what other sizes leak is a note on it
            yield f"What floor(N q) does to datasets of another size could not be measured: {error}"
            return
        if found is not None:
            yield found.note


def _refuted(answers: Answers) -> Iterator[str]:
    """How far the claim is off, where an attack shows more than it allows."""
    comparable = all(run.adjacency != "substitute" for run in answers.runs)  # else the claim is about other neighbors
    if not comparable or all(run.sampler == "poisson" and run.normalization in PUBLIC for run in answers.runs):
        return
    for row in answers.epsilon:
        if 0 < row.claim < row.bracket.lower:
            yield (
                f"At delta = {row.at:.12g} an explicit attack shows an epsilon of {floor_digits(row.bracket.lower)}, "
                f"{floor_digits(row.bracket.lower / row.claim, 3)} times the {ceil_digits(row.claim)} that "
                "accounting for Poisson sampling of an undivided sum claims."
            )


def _with_notes(answers: Answers, measured: Sequence[str]) -> Answers:
    """The notes of the measurement, then those of the runs, then one for every end that is not finite."""
    notes = [*measured, *(note for run in answers.runs for note in run.notes)]
    notes += [f"No finite upper bound on {name} is proven." for name, b in answers.brackets() if math.isinf(b.upper)]
    return dataclasses.replace(answers, notes=tuple(dict.fromkeys(notes)))
