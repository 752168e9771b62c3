"""What an honest reader must know about a measurement, in plain words."""

from __future__ import annotations

from calipers.measure.participation import left_over
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
    return [*_shuffled_notes(run), *fixed]


def _shuffled_notes(run: Run) -> list[str]:
    """What shuffled batches hide from an adversary who knows all other records."""
    if run.reshuffle == "once":
        return [
            "One order is kept for all epochs, so a record sits in the same batch every time: the attack sees one "
            "epoch at noise sigma / sqrt(epochs), and above nothing better than fixed batches is proven. Draw a new "
            "order every epoch (reshuffle = 'every-epoch')."
        ]
    rest = left_over(run)
    if rest is None:
        return [
            "Without dataset_size and batch_size it is not known whether an epoch leaves a record over, so the upper "
            "jaw is that of fixed batches, which gives the record no credit for being hidden. Give both."
        ]
    between = (
        "The truth lies between the attack, which anybody can run, and the proof, which holds for every dataset and "
        "for gradients chosen adaptively."
    )
    if rest:
        return [f"Every epoch leaves {rest} of the records over, and with that shuffling is proven to hide. {between}"]
    assert run.dataset_size is not None
    assert run.batch_size is not None
    smaller = leaving_some_over(run.dataset_size, run.batch_size)
    advice = (
        "Drop the last batch (last_batch = 'drop')"
        if run.last_batch == "keep" and run.dataset_size % run.batch_size
        else f"Use batches of {smaller} and drop what does not fill one"
        if smaller
        else "Draw every record into a batch independently (sampler = 'balls-and-bins')"
    )
    return [
        "Every record is used in every epoch, so the record that makes room for this one is seen elsewhere, and less "
        f"is proven than where at least one record is left over. {between} {advice}, and the proof comes down to the "
        "attack."
    ]


def leaving_some_over(dataset_size: int, batch_size: int) -> int | None:
    """The largest smaller batch size that does not divide the dataset, or None."""
    return next((size for size in range(batch_size - 1, 1, -1) if dataset_size % size), None)
