"""What an honest reader must know about a measurement, in plain words."""

from __future__ import annotations

from calipers.run import Run
from calipers.schemes import scheme_of


def notes_of(phases: tuple[Run, ...]) -> tuple[str, ...]:
    """Notes on the samplers, the divisor and the adjacency of the phases, in this order."""
    notes = [note for run in phases for note in scheme_of(run).notes(run)]
    if any(run.normalization == "none" for run in phases):
        notes.append(
            "The released quantity is the noisy sum. Dividing it by a public constant changes nothing; dividing it by "
            "a number that depends on the data (dataset size, realized batch size) does."
        )
    if phases[0].adjacency == "substitute":
        notes.append("Substitution compares two datasets of equal size; the claim is for adding or removing a record.")
    return tuple(dict.fromkeys(notes))
