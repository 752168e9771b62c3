"""Which statements license the jaws of a run.

The scheme of a sampler says how a run exposes a record; `calipers.measure.evaluation` evaluates exposures together.
Division by a number that depends on the data is a route of its own. A combination for which nothing is proven is
refused, with what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from calipers.domains import OPEN_UNIT
from calipers.errors import InputError, UnsupportedError
from calipers.measure.beside import Beside
from calipers.measure.correlated import CorrelatedNoise
from calipers.measure.dataset_sizes import divided_evaluation, divisor_notes, sized
from calipers.measure.divisors import is_divided, rate_moves
from calipers.measure.evaluation import evaluated
from calipers.measure.grouped import GroupedProof, OneOfUnit
from calipers.measure.jaw import Evaluation, Jaw
from calipers.measure.measurement import Claim, Measurement
from calipers.measure.notes import notes_of
from calipers.measure.released import Mechanism, described, is_mechanism, measure_mechanism, stated_measurement
from calipers.measure.selection import Selection, selected
from calipers.run import Run, as_phases
from calipers.schemes import ASSUMED, scheme_of
from calipers.stated import Stated


def measure(
    run: Run | Sequence[Run] | Mechanism | Selection | CorrelatedNoise | Beside | Sequence[Mechanism],
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
    tolerance = OPEN_UNIT.check("tolerance", tolerance)
    if isinstance(run, Selection):
        return _selected(run, tolerance)
    if isinstance(run, Beside):
        return run.noted(measure(run.runs, tolerance=tolerance, dataset_sizes=dataset_sizes))
    if isinstance(run, CorrelatedNoise):
        return run.measured(tolerance)
    if is_mechanism(run) or (isinstance(run, list | tuple) and any(_released(part) for part in run)):
        if dataset_sizes is not None:
            raise InputError("dataset_sizes is about runs whose divisor moves with the data; leave it out.")
        return measure_mechanism(run, tolerance)
    phases = as_phases(run)  # type: ignore[arg-type]  # no mechanism, so runs or something that is refused
    for phase in phases:
        _refuse_unproven(phase)
    found = _evaluation(phases) if dataset_sizes is None else sized(phases, dataset_sizes)
    claimed = _claimed(phases)
    # Where the very steps that are claimed were executed, both are computed once.
    claim = Claim(found.above if claimed == found.above else claimed, tolerance)
    notes = (*notes_of(phases), *divisor_notes(phases, dataset_sizes))
    return Measurement(phases, found, claim, tolerance, notes, dataset_sizes=dataset_sizes)


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


def _refuse_unproven(run: Run) -> None:
    remedy = "With so little noise nothing is private; with so much, nothing is left to resolve."
    scheme_of(run).noise_range(run).check("noise_multiplier", run.noise_multiplier, remedy)


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
        alone = tuple(run.replace(unit=None, records_per_unit=None) for run in phases)
        unit, shown = phases[0].unit_name, _evaluation(_shown_of_units(alone)).below
        return Evaluation(GroupedProof(_evaluation(alone).above, records, unit), OneOfUnit(shown, unit))
    return evaluated([scheme_of(run).exposure(run) for run in phases], phases[0].adjacency == "substitute")


def _shown_of_units(alone: tuple[Run, ...]) -> tuple[Run, ...]:
    """Runs whose attacks on one record are attacks on a unit of which it is a part.

    Replaced records may stay what all others are. Records that are zeroed out or removed have gradient zero before,
    lest they show where they were: so the attack must be one in which all other gradients are zero.
    """
    if alone[0].adjacency == "substitute":
        return alone
    if not all(scheme_of(run).isolates for run in alone):
        raise UnsupportedError(
            "No attack on units of several records is known for phases of these samplers together; measure the phases "
            "one by one."
        )
    return tuple(run.replace(view="isolated") for run in alone)


def _claimed(phases: tuple[Run, ...]) -> Jaw:
    """What an accountant reports that assumes Poisson sampling of the undivided sum."""
    assumed = tuple(
        Run(sampler=ASSUMED, sample_rate=run.mean_rate, steps=run.total_steps, noise_multiplier=run.noise_multiplier)
        for run in phases
    )
    return _evaluation(assumed).above
