"""Shuffled batches in words: the attack that anybody can run, and what an honest reader must know."""

from __future__ import annotations

from calipers.run_fields import RunFields
from calipers.schemes.scheme import EMPTY_PLACE

_BETWEEN = (
    "The truth lies between the attack, which anybody can run, and the proof, which holds for every dataset and for "
    "gradients chosen adaptively."
)


def attack_scene(run: RunFields) -> str:
    """Everybody's gradients, and the score of what is seen."""
    replaced, share = run.adjacency == "substitute", run.kept_share
    present, absent = ("mean_t U_t", "mean_t V_t")
    if share < 1.0:
        present, absent = "(1 - r + r mean_t U_t)", "(1 - r + r mean_t V_t)"
    score = f"log {present}" if replaced else f"log({present} / {absent})"
    weights = "U_t = exp(2 x_t/sigma - 2/sigma^2)" + ("" if replaced else ", V_t = exp(x_t/sigma - 1/(2 sigma^2))")
    rate = "" if share == 1.0 else f", r = {share:.10g} the share of records an epoch keeps"
    shown = "is u, or -u once it is replaced" if replaced else "is u, or zero once it is zeroed out"
    return (
        f"All other clipped gradients are -u, a unit vector, and the record's {shown}; so batches sum to -B along u, "
        "except where the record is. With x_t = (sum of batch t along u + B)/sigma the score of an epoch is "
        f"{score}, {weights}{rate}."
    )


def shuffled_notes(run: RunFields) -> tuple[str, ...]:
    """What an honest reader must know."""
    empty = (EMPTY_PLACE,) if run.adjacency == "add-remove" else ()
    if run.view == "isolated":
        return (
            "The isolated view assumes an adversary who sees only the record's own noisy contribution. One who knows "
            "the other records of a batch of fixed size can learn where the record is: see view = 'worst-case'.",
            *empty,
        )
    return (_hidden(run), *empty)


def _hidden(run: RunFields) -> str:
    """What shuffled batches hide from an adversary who knows all other records."""
    if run.reshuffle == "once":
        return (
            "One order is kept for all epochs, so a record sits in the same batch every time: the attack sees one "
            "epoch at noise sigma / sqrt(epochs), and above nothing better than fixed batches is proven. Draw a new "
            "order every epoch (reshuffle = 'every-epoch')."
        )
    if run.sizes is None:
        return (
            "Without dataset_size and batch_size it is not known whether an epoch leaves a record over, so the upper "
            "jaw is that of fixed batches, which gives the record no credit for being hidden. Give both."
        )
    if run.left_over:
        left = "1 record" if run.left_over == 1 else f"{run.left_over:,} records"
        return f"Every epoch leaves {left} over, which is enough to prove that shuffling hides something. {_BETWEEN}"
    size, batch = run.sizes
    smaller = leaving_some_over(size, batch)
    advice = (
        "Drop the last batch (last_batch = 'drop')"
        if run.last_batch == "keep" and size % batch
        else f"Use batches of {smaller} and drop what does not fill one"
        if smaller
        else "Draw every record into a batch independently (sampler = 'balls-and-bins')"
    )
    return (
        "Every record is used in every epoch, so the record that makes room for this one is seen elsewhere, and less "
        f"is proven than where at least one record is left over. {_BETWEEN} {advice}, and the proof comes down to the "
        "attack."
    )


def leaving_some_over(dataset_size: int, batch_size: int) -> int | None:
    """The largest smaller batch size that does not divide the dataset, or None."""
    return next((size for size in range(batch_size - 1, 1, -1) if dataset_size % size), None)
