"""The questions put to a measurement and its answers, asked once and rendered in several forms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calipers.bracket import Bracket, Evidence
from calipers.domains import BELOW_ONE, NON_NEGATIVE, RESOLVED
from calipers.errors import CertificationError, InputError
from calipers.guarantee import GuaranteeSubject
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.phases import comparable
from calipers.reports.readings import Claimed, Reading, claimed, is_claimed_run
from calipers.reports.relations import NeighborRelation, relations
from calipers.run import Run
from calipers.samplers import scheme_of
from calipers.scope import in_units

if TYPE_CHECKING:
    from calipers.measure import Measurement

LARGEST_EPSILON = 20.0
"""Beyond this an epsilon has no meaning left: e^20 is 485 million."""
NOTHING_HIDDEN = 0.99
DEFAULT_DELTAS = (1e-5,)
DEFAULT_FPRS = (0.1, 0.01, 0.001)
DEFAULT_DELTA0 = 1e-10


@dataclass(frozen=True)
class Questions:
    """At which delta, epsilon and false positive rate to read a measurement, and mu up to which delta0."""

    deltas: tuple[float, ...] = DEFAULT_DELTAS
    epsilons: tuple[float, ...] = ()
    fprs: tuple[float, ...] = DEFAULT_FPRS
    delta0: float = DEFAULT_DELTA0
    delta_assumed: bool = False
    """Whether nobody named a delta, so that the usual one is taken."""

    def __post_init__(self) -> None:
        for delta in self.deltas:
            RESOLVED.check("delta", delta)
        for epsilon in self.epsilons:
            NON_NEGATIVE.check("epsilon", epsilon)
        for fpr in self.fprs:
            RESOLVED.check("fpr", fpr)
        BELOW_ONE.check("delta0", self.delta0, "It is the part of delta that mu is allowed to leave unexplained.")

    @classmethod
    def asked(
        cls,
        deltas: tuple[float, ...] = (),
        epsilons: tuple[float, ...] = (),
        fprs: tuple[float, ...] = (),
        delta0: float = DEFAULT_DELTA0,
    ) -> Questions:
        """The same, with the usual deltas and false positive rates where none is named."""
        return cls(deltas or DEFAULT_DELTAS, epsilons, fprs or DEFAULT_FPRS, delta0, delta_assumed=not deltas)


@dataclass(frozen=True)
class Answers:
    """Every number of one report, unrounded, as a list of readings; the regret is that of the proven mu."""

    runs: tuple[Run, ...]
    readings: tuple[Reading, ...]
    delta0: float
    regret: float
    notes: tuple[str, ...] = ()
    closes: bool = False
    """Whether one pair is both proven and attained, and every bracket is as narrow as asked."""
    stated: GuaranteeSubject | None = None
    """What was measured, where it was no run."""
    relations: tuple[NeighborRelation, ...] = ()
    """Epsilon at the first delta for every neighboring relation, where that was asked for."""
    delta_assumed: bool = False
    """Whether nobody named a delta."""
    executed: str = ""
    """What was executed, where the runs are not that, but reveal at least as much."""
    watched: str = ""
    """The library in which a record watched the training, if one did."""
    accounted: tuple[Run, ...] = ()
    """The phases that the claim of standard accounting is about."""
    dataset_sizes: tuple[int, int] | None = None
    """The range of dataset sizes that the numbers are about the worst of, where one was named."""

    @property
    def described(self) -> tuple[Run, ...]:
        """The runs that were described, of which the best of several may be what was measured."""
        return self.stated.runs if self.stated is not None else self.runs

    @property
    def alone(self) -> bool:
        """Whether a record of the training says that nothing is proven for adding or removing one, as the claim is."""
        refused = any(one.adjacency == "add-remove" and one.epsilon is None for one in self.relations)
        return refused and bool(self.watched)

    @property
    def as_accounted(self) -> bool:
        """Whether standard accounting describes exactly what was measured."""
        return is_claimed_run(self.runs, self.accounted)

    @property
    def epsilon(self) -> tuple[Claimed, ...]:
        """epsilon at the deltas asked for, next to the claim of standard accounting."""
        return self._claimed("epsilon")

    @property
    def assumed_deltas(self) -> tuple[float, ...]:
        """The deltas at which epsilon is given although nobody named them."""
        return tuple(row.at for row in self.epsilon) if self.delta_assumed else ()

    @property
    def delta(self) -> tuple[Claimed, ...]:
        """delta at the epsilons asked for, next to the claim of standard accounting."""
        return self._claimed("delta")

    @property
    def tpr(self) -> tuple[tuple[float, Bracket], ...]:
        """True positive rates at the false positive rates asked for."""
        return tuple((r.at, r.bracket) for r in self.readings if r.quantity == "tpr" and r.at is not None)

    @property
    def mu(self) -> Bracket:
        """mu up to delta0."""
        return self._only("mu")

    @property
    def advantage(self) -> Bracket:
        """The largest TPR - FPR of any attack."""
        return self._only("advantage")

    @property
    def separation(self) -> Bracket:
        """The advantage as a distance."""
        return self._only("separation")

    @property
    def leading(self) -> Reading:
        """What the verdict is about: epsilon at the first delta, or mu where no delta was asked for."""
        return next((r for r in self.readings if r.quantity == "epsilon"), self.readings[-1])

    def _claimed(self, quantity: str) -> tuple[Claimed, ...]:
        return tuple(r for r in self.readings if r.quantity == quantity and isinstance(r, Claimed))

    def _only(self, quantity: str) -> Bracket:
        return next(reading.bracket for reading in self.readings if reading.quantity == quantity)

    def evidence(self) -> dict[Evidence, list[str]]:
        """Which ends each piece of evidence proves or shows, in the order of first use."""
        used: dict[Evidence, list[str]] = {}
        for reading in self.readings:
            used.setdefault(reading.bracket.upper_evidence, []).append(f"{reading.name} (upper)")
            used.setdefault(reading.bracket.lower_evidence, []).append(f"{reading.name} (lower)")
        return used


def answer(measurement: Measurement, questions: Questions, *, with_relations: bool = False) -> Answers:
    """Ask everything once. Whatever cannot be answered raises: a report never leaves a gap unsaid.

    With relations the run is measured for all neighboring relations, at the first delta.
    """
    own = measurement.stated.number("delta") if measurement.stated is not None else None
    if own and questions.delta_assumed:  # a stated (epsilon, delta) is read at its own delta
        questions = dataclasses.replace(questions, deltas=(own,), delta_assumed=False)
    runs, claim = measurement.runs, measurement.claim
    gdp = measurement.gdp(delta0=questions.delta0)
    readings = (
        *(claimed("epsilon", d, measurement.epsilon(d), claim.epsilon(d), runs) for d in questions.deltas),
        *(claimed("delta", e, measurement.delta(e), claim.delta(e), runs) for e in questions.epsilons),
        *(Reading("tpr", fpr, measurement.tpr(fpr)) for fpr in questions.fprs),
        Reading("advantage", None, measurement.advantage()),
        Reading("separation", None, measurement.separation()),
        Reading("mu", gdp.delta0, gdp.mu),
    )
    answers = Answers(
        runs,
        readings,
        gdp.delta0,
        gdp.regret,
        closes=measurement.closes,
        stated=measurement.stated,
        delta_assumed=questions.delta_assumed,
        executed=measurement.executed,
        watched=measurement.watched.library if measurement.watched else "",
        accounted=claim.runs,
        dataset_sizes=measurement.dataset_sizes,
    )
    if with_relations and questions.deltas and not measurement.executed:
        answers = dataclasses.replace(answers, relations=relations(measurement, questions.deltas[0]))
    sizes = _worst_size(measurement, questions)
    return _with_notes(answers, [*_refuted(answers), *meaningless(answers), *measurement.notes, *sizes])


def meaningless(answers: Answers) -> Iterator[str]:
    """Where a number is true and says little: a delta that lets records out, an epsilon too large, nothing hidden."""
    yield from large_deltas(answers.runs, [row.at for row in answers.epsilon])
    if any(math.isinf(row.bracket.lower) for row in answers.epsilon):
        yield (
            "Everything may be shown with a probability above delta, so that no epsilon is finite there; at a larger "
            "delta one may be."
        )
    elif any(row.bracket.upper > LARGEST_EPSILON for row in answers.epsilon):
        yield (
            f"An epsilon above {LARGEST_EPSILON:g} says next to nothing by itself: odds may change by a factor of "
            f"e^{LARGEST_EPSILON:g}, hundreds of millions. What is still promised is in the rows TPR at FPR."
        )
    stated = answers.stated is not None and answers.stated.is_guarantee  # then the attack is on some other mechanism
    if answers.advantage.lower >= NOTHING_HIDDEN and not stated:
        several = [run.unit_name for run in answers.runs[:1] if run.records_per_unit > 1]
        whose = f"the records of a {several[0]} were" if several else "a record was"
        yield (
            f"Next to nothing is hidden: on data that suit it, an attack tells whether {whose} used with an advantage "
            f"of at least {floor_digits(answers.advantage.lower)} (1 is certainty)."
        )
    if any(run.rate == 1 for run in answers.runs) and not answers.executed:
        yield "Every record is in every batch, so drawing batches hides nothing; the noise alone does."


def large_deltas(runs: Sequence[Run], deltas: Sequence[float]) -> Iterator[str]:
    """A note for each delta clearly above a tenth of 1/N."""
    size = runs[0].dataset_size if runs else None
    for delta in deltas:
        if size is not None and delta * size > 0.11:
            better = 10.0 ** math.floor(math.log10(0.1 * (1 + 1e-9) / size))
            yield (
                f"delta = {setting(delta)} is {'not' if delta * size >= 1 else 'not far'} below 1/N = "
                f"1/{size:,}: it allows publishing a record outright now and then; ask for a "
                f"tenth of 1/N or less, such as delta = {setting(better)}."
            )


def _worst_size(measurement: Measurement, questions: Questions) -> Iterator[str]:
    """Where the divisor is a floor, what it does to datasets of another size."""
    if len(measurement.runs) != 1 or not questions.deltas:
        return
    (run,) = measurement.runs
    floored = run.normalization == "floor" and scheme_of(run).independent and run.adjacency == "add-remove"
    if floored and run.dimension is None and measurement.dataset_sizes is None:
        yield (
            "What floor(N q) does to datasets of another size was not looked for, since the number of trained "
            "parameters (dimension) was not given: a size at which it jumps may leak far more."
        )
    # A range of sizes that was named is measured as a whole.
    if floored and run.dimension is not None and measurement.dataset_sizes is None:
        from calipers.measure import measure  # numpy and scipy, which a command's help does not need

        assert run.dataset_size is not None
        low, high = max(run.dataset_size // 2, math.ceil(1.0 / run.rate) + 1), 2 * run.dataset_size
        try:
            of_all = measure(run, dataset_sizes=(low, high), tolerance=measurement.tolerance)
            bracket = of_all.epsilon(questions.deltas[0])
        except CertificationError as error:  # the run itself is measured; what other sizes leak is a note on it
            yield f"What floor(N q) does to datasets of another size could not be measured: {error}"
            return
        except InputError:  # floor(N q) is the same for all of them
            return
        yield (
            f"Other dataset sizes may leak more: where N is between {low} and {high} (the rate and the steps stay), "
            f"the largest epsilon is between {floor_digits(bracket.lower)} and {ceil_digits(bracket.upper)} at "
            f"delta = {setting(questions.deltas[0])}."
        )


def _refuted(answers: Answers) -> Iterator[str]:
    """How far the claim is off, where an attack shows more than it allows."""
    if not comparable(answers.runs) or answers.as_accounted:  # else the claim is about other neighbors
        return
    for row in answers.epsilon:
        if 0 < row.claim < row.bracket.lower:
            yield (
                f"At delta = {setting(row.at)} an explicit attack shows an epsilon of "
                f"{floor_digits(row.bracket.lower)}, {floor_digits(row.bracket.lower / row.claim, 3)} times the "
                f"{ceil_digits(row.claim)} that accounting for Poisson sampling of an undivided sum gives."
            )


def noted(runs: Sequence[Run], measured: Sequence[str]) -> list[str]:
    """What was noted, then the notes of the runs, about the unit."""
    notes = [*measured, *(note for run in runs for note in run.notes)]
    return list(dict.fromkeys(in_units(note, runs[0]) if runs else note for note in notes))


def _with_notes(answers: Answers, measured: Sequence[str]) -> Answers:
    """The notes of the measurement, then those of the runs, then one for every end that is not finite."""
    notes = noted(answers.runs, measured)
    infinite = (reading for reading in answers.readings if math.isinf(reading.bracket.upper))
    stated = answers.stated is not None and answers.stated.is_guarantee
    attacked = "Some mechanism with this guarantee has no finite {}." if stated else "No {} is finite (attack)."
    notes += [
        attacked.format(reading.name)
        if math.isinf(reading.bracket.lower)
        else f"No finite upper bound on {reading.name} is proven."
        for reading in infinite
    ]
    return dataclasses.replace(answers, notes=tuple(dict.fromkeys(notes)))
