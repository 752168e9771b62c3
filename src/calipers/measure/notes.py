"""What an honest reader must know about a measurement, in plain words."""

from __future__ import annotations

from calipers.run import Run


def notes_of(phases: tuple[Run, ...]) -> tuple[str, ...]:
    """Notes on the samplers, the divisor and the adjacency of the phases, in this order."""
    samplers = {run.sampler for run in phases}
    notes: list[str] = []
    for sampler in ("poisson", "deterministic", "shuffle", "balls-and-bins"):
        if sampler in samplers:
            notes.extend(_sampler_notes(sampler, phases[0]))
    if any(run.normalization == "none" for run in phases):
        notes.append(
            "The released quantity is the noisy sum. Dividing it by a public constant changes nothing; dividing it by "
            "a number that depends on the data (dataset size, realized batch size) does."
        )
    if phases[0].adjacency == "substitute":
        notes.append("Substitution compares two datasets of equal size; the claim is for adding or removing a record.")
    return tuple(notes)


def _sampler_notes(sampler: str, run: Run) -> list[str]:
    """What an honest reader must know about a sampler, in plain words."""
    empty_place = (
        "Fixed batches have no add-remove neighbor of their own: removing a record is read as leaving its place empty "
        "(zero-out). A loader that re-packs the remaining records is not covered."
    )
    fixed = [empty_place] if run.adjacency == "add-remove" and sampler in ("deterministic", "shuffle") else []
    if sampler == "poisson":
        return [
            "The upper jaw holds only if batches were really drawn by Poisson sampling, every record independently in "
            "every step. If the data were shuffled, say sampler = 'shuffle'."
        ]
    if sampler == "deterministic":
        return [
            "Fixed batches hide nothing about when a record is used: there is no amplification by sampling, and the "
            "Poisson claim does not apply to this run.",
            *fixed,
        ]
    if sampler == "balls-and-bins":
        return [
            "Every record is drawn into one batch of the epoch independently of all others, so nothing the others do "
            "gives it away: one pair is both proven and attained. A loader that shuffles and cuts equal batches is not "
            "this sampler."
        ]
    if run.view == "isolated":
        return [
            "The isolated view assumes an adversary who sees only the record's own noisy contribution. One who knows "
            "the other records of a batch of fixed size can learn where the record is: see view = 'worst-case'.",
            *fixed,
        ]
    return [
        "The bracket is open: with batches of fixed size the other records tell something about where this one is, and "
        "nobody has proven how much that is worth. The truth lies between the attack, which anybody can run, and the "
        "proof, which gives the record no credit for being hidden.",
        "Drawing every record into a random batch independently of the others (sampler = 'balls-and-bins') makes as "
        "many steps over as much data and closes the bracket; only the batch sizes vary.",
        *fixed,
    ]
