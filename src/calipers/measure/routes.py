"""Which statements license the jaws of a run.

The scheme of a sampler says how a run exposes a record; `calipers.measure.evaluation` evaluates exposures together.
Division by a number that depends on the data is a route of its own. A combination for which nothing is proven is
refused, with what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from calipers.domains import OPEN_UNIT
from calipers.errors import UnsupportedError
from calipers.measure.backends import Backend
from calipers.measure.dataset_sizes import divided_backend, divisor_notes, sized_backend
from calipers.measure.divisors import is_divided, rate_moves
from calipers.measure.evaluation import evaluated
from calipers.measure.grouped import GroupedBackend
from calipers.measure.measurement import Claim, Measurement
from calipers.measure.notes import notes_of
from calipers.run import Run, as_phases
from calipers.schemes import ASSUMED, scheme_of


def measure(
    run: Run | Sequence[Run], *, tolerance: float = 1e-3, dataset_sizes: tuple[int, int] | None = None
) -> Measurement:
    """The certified bracket of what was executed.

    `run` is one run or a sequence of phases on the same data. `tolerance` is the relative width
    aimed for: upper - lower <= tolerance * upper for epsilon. Nothing is computed before a quantity
    is asked for.

    `dataset_sizes` = (low, high): where the divisor moves with the dataset size, which is known only to lie in this
    range, every number is about the worst of these sizes.
    """
    phases = as_phases(run)
    tolerance = OPEN_UNIT.check("tolerance", tolerance)
    for phase in phases:
        _refuse_unproven(phase)
    backend = _backend(phases) if dataset_sizes is None else sized_backend(phases, dataset_sizes)
    claim = Claim(_claimed_backend(phases), tolerance)
    notes = (*notes_of(phases), *divisor_notes(phases, dataset_sizes))
    return Measurement(phases, backend, claim, tolerance, notes, dataset_sizes=dataset_sizes)


def _refuse_unproven(run: Run) -> None:
    remedy = "With so little noise nothing is private; with so much, nothing is left to resolve."
    scheme_of(run).noise_range(run).check("noise_multiplier", run.noise_multiplier, remedy)


def _backend(phases: tuple[Run, ...]) -> Backend:
    records = phases[0].records_per_unit
    if any(is_divided(run) or rate_moves(run) for run in phases):
        if records > 1:
            raise UnsupportedError(
                f"Nothing is proven for a {phases[0].unit_name} of {records} records whose number changes a divisor or "
                "a rate: divide by a public constant, or not at all, and use a public rate."
            )
        return divided_backend(phases)
    if records > 1 and not all(run.adjacency in scheme_of(run).counts_units for run in phases):
        alone = tuple(run.replace(unit=None, records_per_unit=None) for run in phases)
        return GroupedBackend(_backend(alone), records, phases[0].unit_name)
    return evaluated([scheme_of(run).exposure(run) for run in phases], phases[0].adjacency == "substitute")


def _claimed_backend(phases: tuple[Run, ...]) -> Backend:
    """What an accountant reports that assumes Poisson sampling of the undivided sum."""
    assumed = tuple(
        Run(sampler=ASSUMED, sample_rate=run.mean_rate, steps=run.total_steps, noise_multiplier=run.noise_multiplier)
        for run in phases
    )
    return _backend(assumed)
