"""Shuffled batches in words: the attack that anybody can run, and what an honest reader must know."""

from __future__ import annotations

from calipers.run_fields import RunFields

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
    if run.view == "isolated":
        return (
            "The isolated view assumes an adversary who sees only the record's own noisy contribution. One who knows "
            "the other records of a batch of fixed size can learn where the record is: see view = 'worst-case'.",
        )
    return (_displaced(run) if run.adjacency == "add-remove" else _hidden(run),)


def _displaced(run: RunFields) -> str:
    """What really adding or removing a record shows."""
    if run.last_batch == "keep":
        return (
            "Adding or removing a record changes the size of the kept last batch in every epoch, and shuffling does "
            "not hide that: the run leaks at least as much as batches in a fixed order do. Drop the last batch "
            "(drop_last=True), draw batches by balls-and-bins or Poisson sampling, or state a guarantee for zeroed-out "
            "records (adjacency = 'zero-out'). Divisor and learning rate must not depend on the number of records."
        )
    return (
        "A record that is added to batches of fixed size takes the place of another one, so a sum moves by up to twice "
        "the clipping norm. This holds where the divisor and the learning rate do not depend on the number of records. "
        "A guarantee for zeroed-out records (adjacency = 'zero-out') is about a place that stays empty."
    )


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
            "Without dataset_size and batch_size it is not known whether an epoch drops a remainder, so the upper "
            "bound is that of fixed batches, which gives the record no credit for being hidden. Give both."
        )
    if run.left_over:
        left = "1 record" if run.left_over == 1 else f"{run.left_over:,} records"
        return f"Every epoch drops a remainder of {left}, which is enough to prove that shuffling hides. {_BETWEEN}"
    size, batch = run.sizes
    smaller = leaving_some_over(size, batch)
    advice = (
        "Drop the last batch (last_batch = 'drop')"
        if run.last_batch == "keep" and size % batch
        else f"Use batches of {smaller} and drop the remainder"
        if smaller
        else "Draw every record into a batch independently (sampler = 'balls-and-bins')"
    )
    return (
        "Every record is used in every epoch, so the record that makes room for this one is seen elsewhere, and less "
        f"is proven than where a remainder is dropped. {_BETWEEN} {advice}, and the upper bound comes down to the "
        "attack."
    )


def leaving_some_over(dataset_size: int, batch_size: int) -> int | None:
    """The largest smaller batch size that does not divide the dataset, or None."""
    return next((size for size in range(batch_size - 1, 1, -1) if dataset_size % size), None)
