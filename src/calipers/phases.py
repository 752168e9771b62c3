"""Runs that follow one another on the same data, and the files that describe them.

A run file may hold `[[phase]]` tables: each inherits the keys at the top of the file, overrides some, and the phases
follow one another on the same data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from calipers.errors import InputError, UnsupportedError
from calipers.run import KEYS, Run
from calipers.run_keys import naming, read_phases, refuse_event
from calipers.samplers import scheme_of


def as_phases(runs: Run | Sequence[Run]) -> tuple[Run, ...]:
    """One run or several that follow one another, checked to be about the same pair of datasets."""
    refuse_event(runs)
    if hasattr(runs, "menu"):
        raise InputError(
            "Expected a Run, or several in a list, got an adaptive run: everything but `measure` and `certify` is "
            "about runs that were fixed in advance."
        )
    if isinstance(runs, (str, os.PathLike, Mapping)) or not isinstance(runs, (Run, Iterable)):
        raise InputError(
            f"Expected a Run, or several in a list, got {type(runs).__name__}; read a run file with load_runs, a "
            "dictionary with Run.from_dict."
        )
    phases = (runs,) if isinstance(runs, Run) else tuple(runs)
    if not phases:
        raise InputError("Expected at least one run, got none.")
    for position, phase in enumerate(phases, start=1):
        refuse_event(phase)
        if not isinstance(phase, Run):
            raise InputError(f"Expected phase {position} to be a Run, got {type(phase).__name__}.")
    (phases,) = with_one_adjacency([phases])
    for position, phase in enumerate(phases, start=1):
        for name in ("adjacency", "view", "dataset_size", "unit", "records_per_unit"):
            if getattr(phase, name) != getattr(phases[0], name):
                raise InputError(
                    f"The phases of one run share {name}, got {getattr(phases[0], name)} in phase 1 and "
                    f"{getattr(phase, name)} in phase {position}."
                )
    _check_neighbors(phases)
    return phases


def _check_neighbors(phases: tuple[Run, ...]) -> None:
    """Refuse add-remove where one phase has a finite epsilon for adding only, and another for removing only."""
    counted = {frozenset(scheme_of(phase).counted(phase)) for phase in phases}
    if phases[0].adjacency == "add-remove" and len(frozenset.union(*counted)) > max(map(len, counted)):
        raise UnsupportedError(
            f"Adding a {phases[0].unit_name} changes the number of batches in one phase and removing one in another, "
            "and whoever counts the steps sees it: no epsilon is finite. Name adjacency 'zero-out', a weaker promise, "
            "or 'substitute'."
        )


def with_one_adjacency(described: Sequence[tuple[Run, ...]]) -> list[tuple[Run, ...]]:
    """Several runs, those that name no adjacency with one that all of them have.

    It is the one that others name, if it is one; else add-remove if that is what all would have, and zero-out if not.
    """
    phases = [run for runs in described for run in runs]
    named = {run.adjacency for run in phases if "adjacency" not in run.assumed}
    own = {run.adjacency for run in phases if "adjacency" in run.assumed}
    if len(named) > 1 or not own:
        return list(described)
    (shared,) = named or {"add-remove" if own == {"add-remove"} else "zero-out"}

    def alike(run: Run) -> Run:
        return run if run.adjacency == shared else run.replace(adjacency=shared)

    return [tuple(map(alike, runs)) for runs in described]


def load_runs(
    path: str | os.PathLike[str], *, defaults: Mapping[str, object] | None = None, other_keys: Sequence[str] = ()
) -> tuple[Run, ...]:
    """The phases of a run file.

    Args:
        path: of the file.
        defaults: fills keys that the file leaves out.
        other_keys: are read by whoever names them.

    Returns:
        The phases in order; one, where the file has no `[[phase]]`.

    Raises:
        InputError: naming the file.
    """
    phases = read_phases(path, KEYS, defaults or {}, other_keys)
    with naming(path):
        return as_phases([Run.from_dict(phase) for phase in phases])


def comparable(runs: Sequence[Run]) -> bool:
    """Whether the claim of standard accounting, one record added or removed, is about the same neighbors as the run."""
    return all(run.adjacency != "substitute" and run.records_per_unit == 1 for run in runs)
