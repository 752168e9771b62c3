"""Which statements license the bounds of a run.

The scheme of a sampler says how a run exposes a record; `calipers.measure.evaluation` evaluates exposures together.
Division by a number that depends on the data is a route of its own. A combination for which nothing is proven is
refused, with what is missing.

**Worst size.** For which dataset size does a divisor that moves with the data hurt most? "My N does not jump" is
luck, not a guarantee: a mechanism is private if it is so for every dataset, hence for every N. `worst_dataset_size`
measures some sizes of a stated range: the smaller the divisor, the larger its relative change, so the first size (for
a floor, the first jump) is among them, and a few more to see the trend. The result is a bad size with its own
certified bracket: its lower jaw is a lower jaw of the mechanism on the range. An upper jaw for all sizes of the range
at once is what `measure(run, dataset_sizes=(low, high))` proves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from calipers.bracket import Bracket
from calipers.domains import TOLERANCE
from calipers.errors import CalipersError, InputError, UnsupportedError
from calipers.measure.beside import Beside
from calipers.measure.choice import greatest, least
from calipers.measure.closed import gaussians
from calipers.measure.dataset_sizes import SIZE, divided_attack, divided_evaluation, divisor_notes, sized
from calipers.measure.divisors import divisor_of, is_divided, public_because, rate_moves
from calipers.measure.evaluation import evaluated, shown_by
from calipers.measure.grouped import GroupedProof, OneOfUnit
from calipers.measure.jaw import Evaluation, Jaw
from calipers.measure.measurement import Claim, Measurement
from calipers.measure.released import Mechanism, described, is_mechanism, measure_mechanism, stated_measurement
from calipers.measure.selection import Selection, selected
from calipers.measure.success import others_are_zero
from calipers.measure.told import DealtProof
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.run import DATA_DEPENDENT, Run, as_phases
from calipers.schemes import ASSUMED, scheme_of
from calipers.scope import FIXED
from calipers.stated import Stated


@runtime_checkable
class Measurable(Protocol):
    """What brings its own measurement."""

    def measured(self, tolerance: float) -> Measurement:
        """Certified bounds from both sides."""


def measure(
    run: Run | Sequence[Run] | Mechanism | Selection | Measurable | Beside | Sequence[Mechanism],
    *,
    tolerance: float = 1e-3,
    dataset_sizes: tuple[int, int] | None = None,
) -> Measurement:
    """The certified bracket of what was executed.

    `run` is one run or a sequence of phases on the same data; or a mechanism, a `Guarantee`, or a sequence of
    mechanisms that are composed. `tolerance` is the relative width
    aimed for: upper - lower <= tolerance * upper for epsilon. Nothing is computed before a quantity
    is asked for.

    `dataset_sizes` = (low, high): where the divisor moves with the dataset size, which is known only to lie in this
    range, every number is about the worst of these sizes.
    """
    tolerance = TOLERANCE.check("tolerance", tolerance)
    if isinstance(run, Selection):
        return _selected(run, tolerance)
    if isinstance(run, Beside):
        return run.noted(measure(run.runs, tolerance=tolerance, dataset_sizes=dataset_sizes))
    if isinstance(run, Measurable):  # correlated noise, adaptive runs
        return run.measured(tolerance)
    if is_mechanism(run) or (isinstance(run, list | tuple) and any(_released(part) for part in run)):
        if dataset_sizes is not None:
            raise InputError("dataset_sizes is about runs whose divisor moves with the data; leave it out.")
        return measure_mechanism(run, tolerance)
    phases = as_phases(run)  # type: ignore[arg-type]  # no mechanism, so runs or something that is refused
    _refuse_missing_neighbors(phases, tolerance)
    for phase in phases:
        remedy = "With so little noise nothing is private; with so much, nothing is left to resolve."
        scheme_of(phase).noise_range(phase).check("noise_multiplier", phase.noise_multiplier, remedy)
    found = _evaluation(phases) if dataset_sizes is None else sized(phases, dataset_sizes)
    claimed = _claimed(phases)
    # Where the very steps that are claimed were executed, both are computed once.
    claim = Claim(claimed.sharing(found.above), tolerance)
    notes = (*notes_of(phases), *divisor_notes(phases, dataset_sizes))
    alone = dataset_sizes is None and all(map(others_are_zero, phases))
    return Measurement(phases, found, claim, tolerance, notes, dataset_sizes=dataset_sizes, others_zero=alone)


_USUAL_DELTA = 1e-5


def _refuse_missing_neighbors(phases: tuple[Run, ...], tolerance: float) -> None:
    """Refuse an adjacency that a phase does not have, with what others give."""
    try:
        for run in phases:
            scheme_of(run).check_neighbors(run)
    except UnsupportedError as error:
        given = []
        for adjacency in ("zero-out", "substitute"):
            try:
                found = measure([run.replace(adjacency=adjacency) for run in phases], tolerance=tolerance)
                bracket = found.epsilon(_USUAL_DELTA)
            except CalipersError:
                continue
            ends = f"{floor_digits(bracket.lower)} to {ceil_digits(bracket.upper)}"
            given.append(f"{adjacency} {ends}")
        also = f" Epsilon at delta = {setting(_USUAL_DELTA)}: {', '.join(given)}." if given else ""
        raise UnsupportedError(f"{error}{also}") from error


def _selected(selection: Selection, tolerance: float) -> Measurement:
    """The best of several runs: its runs are those of one trial, and its claim is that of one trial."""
    one = measure(selection.of, tolerance=tolerance)
    words = f"{selection.law.words[0].upper()}{selection.law.words[1:]}, each of them: {described(one)}"
    keys: tuple[tuple[str, object], ...] = (("trials", selection.trials), ("mean", selection.mean))
    keys += () if selection.shape is None else (("shape", selection.shape),)
    adjacency = one.runs[0].adjacency if one.runs else one.stated.adjacency if one.stated is not None else "its own"
    found = selected(one.evaluation, selection.law)
    return stated_measurement(Stated(words, keys, adjacency, "selection"), found, tolerance, one.conditions)


def _released(part: object) -> bool:
    """A mechanism, or one with its count."""
    return is_mechanism(part) or (isinstance(part, tuple) and bool(part) and is_mechanism(part[0]))


def _evaluation(phases: tuple[Run, ...]) -> Evaluation:
    records = phases[0].records_per_unit
    if any(is_divided(run) or rate_moves(run) for run in phases):
        if records > 1:
            raise UnsupportedError(
                f"Nothing is proven for a {phases[0].unit_name} of {records} records whose number changes a divisor or "
                "a rate: divide by a public constant, or not at all, and use a public rate."
            )
        return divided_evaluation(phases)
    if records > 1 and not all(run.adjacency in scheme_of(run).counts_units for run in phases):
        unit, shown = phases[0].unit_name, _evaluation(_shown_of_units(phases)).below.alone
        chained = tuple(_one_record(run, scheme_of(run).sizes_of_units(run), 1) for run in phases)
        attack, chain = OneOfUnit((shown,), unit), GroupedProof(_evaluation(chained).above, records, unit)
        above = least([*_told(phases), chain])
        together = [equal for run in phases if (equal := scheme_of(run).unit_attack(run)) is not None]
        if len(together) < len(phases):
            return Evaluation(above, attack)
        return Evaluation(above, greatest([attack, shown_by(together, phases[0].adjacency == "substitute")]))
    return evaluated([scheme_of(run).exposure(run) for run in phases], phases[0].adjacency == "substitute")


def _told(phases: tuple[Run, ...]) -> list[Jaw]:
    """What is proven of units where whoever looks is told which batches their records are in."""
    dealt = [found for run in phases if (found := scheme_of(run).dealt(run)) is not None]
    if len(dealt) < len(phases):
        return []
    reason = (
        f"Which batches the records of the {phases[0].unit_name} are in is revealed; at worst they fill whole batches, "
        "and all batches together are one Gaussian release."
    )
    return [
        gaussians([(unit.full * unit.shift, times) for unit, times in dealt], reason).above,
        DealtProof(tuple(dealt)),
    ]


def _one_record(run: Run, sizes: tuple[int, int] | None, which: int) -> Run:
    """The run about one record, in a dataset of the size that counts for it."""
    alone = {"unit": None, "records_per_unit": None, "adjacency": run.adjacency}
    if sizes is None:
        return run.replace(**alone)
    return run.replace(**alone, dataset_size=sizes[which], steps=run.total_steps, last_batch=run.last_batch)


def _shown_of_units(phases: tuple[Run, ...]) -> tuple[Run, ...]:
    """Runs whose attacks on one record are attacks on a unit of which it is a part.

    Replaced records may stay what all others are, and so may records that are removed from batches of fixed size (in a
    kept last batch all gradients together move the sum by one). Elsewhere records that are zeroed out or removed have
    gradient zero before, lest they show where they were: so the attack must be one in which all other gradients are
    zero.
    """
    found = []
    for run in phases:
        sizes = scheme_of(run).sizes_of_units(run)
        alone = _one_record(run, sizes, 0)
        if run.adjacency != "substitute" and sizes is None:
            if not scheme_of(run).isolates:
                raise UnsupportedError(
                    "No attack on units of several records is known for phases of these samplers together; measure the "
                    "phases one by one."
                )
            alone = alone.replace(view="isolated")
        found.append(alone)
    return tuple(found)


def _claimed(phases: tuple[Run, ...]) -> Jaw:
    """What an accountant reports that assumes Poisson sampling of the undivided sum."""
    assumed = tuple(
        Run(sampler=ASSUMED, sample_rate=run.mean_rate, steps=run.total_steps, noise_multiplier=run.noise_multiplier)
        for run in phases
    )
    return _evaluation(assumed).above


def notes_of(phases: tuple[Run, ...]) -> tuple[str, ...]:
    """Notes on the samplers, the divisor and the adjacency of the phases, in this order."""
    notes = [note for run in phases for note in scheme_of(run).notes(run)]
    notes.append(FIXED)
    if any(run.normalization == "none" for run in phases):
        notes.append(
            "The released quantity is the noisy sum. Dividing it by a public constant changes nothing; dividing it by "
            "a number that depends on the data (dataset size, realized batch size) does."
        )
    if phases[0].adjacency == "substitute":
        notes.append("Substitution compares two datasets of equal size; the claim is for adding or removing a record.")
    return tuple(dict.fromkeys(notes))


_MEASURED, _MOST_NARROW = 4, 2
_ROUGHLY = 0.05


@dataclass(frozen=True)
class WorstSize:
    """The size with the largest lower bound among those measured, out of sizes `smallest` .. `largest`."""

    dataset_size: int
    epsilon: Bracket
    delta: float
    smallest: int
    largest: int
    measured: tuple[int, ...]
    what: str = "jumps of floor(N q)"

    @property
    def note(self) -> str:
        """The finding in words."""
        return (
            f"A guarantee has to hold for every dataset size: of sizes {self.smallest} to {self.largest}, N = "
            f"{self.dataset_size} is the worst of {len(self.measured)} {self.what} measured, with "
            f"epsilon between {floor_digits(self.epsilon.lower)} and {ceil_digits(self.epsilon.upper)} at "
            f"delta = {setting(self.delta)}."
        )


def worst_dataset_size(
    run: Run, *, delta: float, smallest: int | None = None, largest: int | None = None, tolerance: float = 1e-3
) -> WorstSize | None:
    """The worst size found for N in [smallest, largest], by default [N/2, 2N]; None if floor(N q) jumps nowhere in it.

    The rate, the steps and the noise stay those of `run`.
    """
    if run.normalization not in DATA_DEPENDENT or not scheme_of(run).independent or run.adjacency != "add-remove":
        raise InputError(
            "worst_dataset_size is about normalization 'expected', 'floor' or 'realized' with sampler='poisson' under "
            f"add-remove adjacency, got {run.normalization!r}, {run.sampler!r}, {run.adjacency!r}."
        )
    assert run.dataset_size is not None
    low = SIZE.check_int("smallest", smallest if smallest is not None else max(2, run.dataset_size // 2))
    high = SIZE.check_int("largest", largest if largest is not None else 2 * run.dataset_size)
    if low > high:
        raise InputError(f"Expected smallest <= largest, got smallest={low} and largest={high}.")
    floor = run.normalization == "floor"
    sizes = _jumps(run, low, high) if floor else _spread(low, high)
    if not sizes:
        return None

    # A rough attack on every size; both bounds where that leaves open which is the worst.
    rough = {size: divided_attack(_resized(run, size)).roughly(delta) for size in sizes}
    worst = sorted(sizes, key=lambda size: -rough[size])[:_MOST_NARROW]
    least = rough[worst[0]] * (1.0 - _ROUGHLY)
    narrow = {
        size: measure(_resized(run, size), tolerance=tolerance).epsilon(delta) for size in worst if rough[size] >= least
    }
    chosen = max(narrow, key=lambda size: narrow[size].lower)
    what = "jumps of floor(N q)" if floor else "sizes"
    return WorstSize(chosen, narrow[chosen], delta, low, high, tuple(sizes), what)


def _spread(low: int, high: int) -> list[int]:
    """Up to `_MEASURED` sizes from low to high, dense at the low end."""
    return sorted({round(low * (high / low) ** ((i / (_MEASURED - 1)) ** 2)) for i in range(_MEASURED)})


def _resized(run: Run, size: int) -> Run:
    return run.replace(dataset_size=size, sample_rate=run.rate, steps=run.total_steps)


def _jumps(run: Run, low: int, high: int) -> list[int]:
    """Up to `_MEASURED` sizes, from the first jump on, at which floor(N q) jumps between N - 1 and N and is not 0
    before.
    """
    first = max(2, math.floor((low - 1) * run.rate) + 1)
    last = math.floor(high * run.rate)
    if last < first:
        return []
    divisors = sorted({round(first * (last / first) ** (i / (_MEASURED - 1))) for i in range(_MEASURED)})
    sizes = []
    for divisor in divisors:
        size = math.ceil(divisor / run.rate)
        while divisor_of(_resized(run, size), size) < divisor:
            size += 1
        while size > 2 and math.floor((size - 1) * run.rate) >= divisor:
            size -= 1
        if low <= size <= high and public_because(_resized(run, size)) is None:
            sizes.append(size)
    return sizes
