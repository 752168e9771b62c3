"""What a reader must know about runs that were drawn and divided so."""

from __future__ import annotations

from collections.abc import Iterator

from calipers.run import Run
from calipers.samplers import scheme_of
from calipers.scope import FIXED


def notes_of(phases: tuple[Run, ...]) -> tuple[str, ...]:
    """What a reader must know about runs drawn and divided so.

    Args:
        phases: runs one after the other, of one adjacency.

    Returns:
        Notes on the samplers, the divisor and the adjacency of the phases, in this order, each once.
    """
    notes = [note for run in phases for note in scheme_of(run).notes(run)]
    notes += [FIXED, *_about_divisor(phases)]
    if phases[0].adjacency == "substitute":
        notes.append("Substitution keeps the dataset's size; standard accounting is for adding or removing a record.")
    return tuple(dict.fromkeys(notes))


def _about_divisor(phases: tuple[Run, ...]) -> Iterator[str]:
    """Which divisors the numbers hold for. Where neighbors have the same size, one computed from it is the same."""
    sizes_differ = phases[0].adjacency == "add-remove"
    if any(run.normalization == "none" for run in phases):
        released = "What counts as released is every noisy sum, also where only the trained model is published. "
        if sizes_differ:
            yield (
                f"{released}Dividing it by a public constant changes nothing. Where it is divided by a number that "
                "depends on the data (dataset size, realized batch size), as the library Opacus does by default, these "
                "numbers may not hold: describe the divisor (normalization)."
            )
        else:
            yield (
                f"{released}Dividing it by a number that both datasets share, the dataset's size among them, changes "
                "nothing. Where it is divided by the realized batch size these numbers may not hold: describe that "
                "(normalization = 'realized'; not every sampler has a proof then)."
            )
    if sizes_differ and any(run.normalization == "constant" for run in phases):
        yield (
            "The noisy sum is divided by a constant: a number that is written down, not computed from the data. Where "
            "a script computes it from its data (rate x number of records, number of records / number of batches, the "
            "size of the batch), one record may change the scale of noise, and these numbers may not hold: describe "
            "that divisor (normalization = 'expected', 'floor' or 'realized')."
        )
