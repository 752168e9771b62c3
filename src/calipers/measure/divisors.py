"""When a divisor is post-processing, and what it is where it is not.

Dividing the noisy sum by a public number changes nothing. "expected" (N q) and "floor" (floor(N q)) are public where
the dataset size is, that is under zero-out and substitution; "realized" is public where all batches have one fixed
size. Under add-remove the neighbors have N - 1, N and N + 1 records, and the divisor tells them apart: nothing is
proven but what `calipers.measure.divided` states for Poisson sampling.
"""

from __future__ import annotations

from collections.abc import Sequence

from calipers.domains import Domain
from calipers.errors import InputError, UnsupportedError
from calipers.run import DATA_DEPENDENT, Run
from calipers.run_fields import divisor_of
from calipers.samplers import scheme_of

REMEDY = (
    "Divide by a public constant, or not at all (in Opacus: loss_reduction='sum', with a criterion that sums too, "
    "reduction='sum': else gradients are divided before they are clipped), and scale the learning rate instead: the "
    "plain guarantee comes back at no cost in accuracy."
)
SIZE = Domain(2, 2**53, integer=True)
_SEEN = 1e-15
"""Probabilities below this are below every delta that people ask for."""
_ONE_SIZE = (
    "These numbers are about datasets of your size and its neighbors. A guarantee of the mechanism has to hold for "
    "every dataset size, and smaller datasets usually leak more; if yours is known only to within a range, name it "
    "(--dataset-size-range, or dataset_sizes in Python) and the numbers hold for all of it."
)


def moves(run: Run, size: int) -> bool:
    """Whether the divisor of a run differs, in a way that shows, between datasets of `size` and `size` + 1 records."""
    if run.normalization not in DATA_DEPENDENT or not scheme_of(run).independent or run.adjacency != "add-remove":
        return False
    if rate_moves(run):
        return False
    return run.normalization != "floor" or divisor_of(run, size) != divisor_of(run, size + 1)


def rate_moves(run: Run) -> bool:
    """Whether one record changes the rate at which all others are drawn."""
    return run.derived_rate == "moving" and run.adjacency == "add-remove"


def moving_pairs(run: Run) -> tuple[int, ...]:
    """Sizes N of the smaller dataset of every neighboring pair whose divisors differ: of N - 1 and N, those that
    count.
    """
    assert run.dataset_size is not None
    return tuple(size for size in (run.dataset_size - 1, run.dataset_size) if moves(run, size))


def public_because(run: Run) -> str | None:
    """Why the divisor of a run is post-processing, or None where it is not. Raises where nothing is proven."""
    if run.normalization not in DATA_DEPENDENT:
        return None
    if rate_moves(run):
        if run.normalization == "realized":
            raise UnsupportedError(
                "Nothing is proven for dividing by the realized batch size when the rate moves with the dataset too "
                f"(derived_rate = 'moving'): use a public rate. {REMEDY}"
            )
        return f"N q = N (B/N) is the batch size {run.batch_size} whatever N is: dividing by it is post-processing."
    if scheme_of(run).equal_batches:
        from calipers.samplers.equal_batches import size_neighbors  # with its analysis, which Poisson runs do not need

        found = size_neighbors(run) if run.normalization == "floor" and scheme_of(run).whole_epochs else None
        if found is not None and run.adjacency == "add-remove":  # where it moves, the analysis refuses
            less, more = found.size - found.records * found.removing, found.size + found.records * found.adding
            divided = f"floor(N / number of batches) = {found.size // run.steps_per_epoch:,}"
            return _happens_to_stay(divided, sorted({less, found.size, more}))
        return (
            "Every noisy sum is divided by a public number that is the same for both datasets, which is "
            "post-processing: the plain guarantee holds."
        )
    if run.normalization != "realized" and run.adjacency != "add-remove":
        return (
            f"Under {run.adjacency} adjacency the dataset size is public, so dividing by it (times the rate) is "
            "post-processing: the plain guarantee holds. It does not under add-remove adjacency."
        )
    if not scheme_of(run).independent or run.adjacency != "add-remove":
        what = "the realized batch size" if run.normalization == "realized" else "a multiple of the dataset size"
        raise UnsupportedError(
            f"Calipers has no bound for dividing by {what} with sampler={run.sampler!r} under {run.adjacency} "
            f"adjacency. {REMEDY}"
        )
    if run.normalization == "floor" and not moving_pairs(run):
        size = run.dataset_size
        assert size is not None
        return _happens_to_stay(f"floor(N q) = {divisor_of(run, size):,}", (size - 1, size, size + 1))
    return None


def _happens_to_stay(divisor: str, sizes: Sequence[int]) -> str:
    """That a divisor does not move at this size, which is no property of the mechanism."""
    *first, last = (f"{size:,}" for size in sizes)
    return (
        f"{divisor} is the same for {', '.join(first)} and {last} records, so here the plain guarantee holds; it does "
        "not for every dataset size."
    )


def is_divided(run: Run) -> bool:
    """Whether the divisor of a run depends on the data in a way that shows."""
    return run.normalization in DATA_DEPENDENT and public_because(run) is None


def check_moving_rate(run: Run) -> None:
    """Refuse a run whose number of steps, counted in epochs, gives the record away."""
    assert run.dataset_size is not None
    assert run.batch_size is not None
    size, batch = run.dataset_size, run.batch_size
    if batch >= size - 1:
        raise InputError(
            f"At batch_size {batch} nobody stays away from a dataset of {size - 1} records, so a record that does is "
            "proof of a larger one, and no epsilon is finite: use a smaller batch, or derived_rate = 'public'."
        )
    if run.epochs is None:
        return
    counts = [max(1, near // batch) for near in (size - 1, size, size + 1)]
    if len(set(counts)) > 1:
        raise InputError(
            f"An epoch of floor(N/B) steps has {counts[0]}, {counts[1]} and {counts[2]} of them for N = {size - 1}, "
            f"{size} and {size + 1}: whoever counts the steps knows whether the record is there, and no epsilon is "
            "finite. Give the number of steps, if it is public."
        )


def check_divided(run: Run) -> None:
    """Refuse what a divided run must have and lacks: a dimension, and divisors that are not 0."""
    if run.dimension is None:
        raise InputError(
            f"normalization={run.normalization!r} scales the noise of every coordinate, so dimension is needed: add "
            "the number of trained parameters."
        )
    assert run.dataset_size is not None
    smallest = run.dataset_size - 1
    if run.normalization == "expected" and smallest < 1:
        raise InputError(
            "Expected dataset_size >= 2 with normalization='expected', got dataset_size=1: its neighbor is empty and "
            "divides by 0."
        )
    if run.normalization == "floor" and divisor_of(run, smallest) < 1:
        raise InputError(
            f"normalization='floor' divides by floor({smallest} * {run.rate:g}) = 0 on a neighbor with {smallest} "
            "records: in practice the update is infinite or not a number. Raise sample_rate or dataset_size."
        )
    if run.normalization == "realized" and smallest < 1:
        raise InputError("Expected dataset_size >= 2 with normalization='realized', got dataset_size=1.")


def divisor_notes(phases: tuple[Run, ...], sizes: tuple[int, int] | None = None) -> list[str]:
    """What a reader must know about the divisors of the phases."""
    if sizes is not None:
        explanation = (
            f"The dataset size is known to lie between {sizes[0]:,} and {sizes[1]:,}: every upper value holds for "
        )
        return [f"{explanation}all these sizes and their neighbors. The divisor depends on the data. {REMEDY}"]
    derived = [run for run in phases if run.batch_size is not None and run.adjacency == "add-remove"]
    notes = [note for run in derived for note in scheme_of(run).derived(run)]  # where the rate comes from
    for run in phases:
        reason = public_because(run)
        if reason is not None:
            notes.append(reason)
        elif is_divided(run):
            notes.extend(_moving_notes(run))
    if any(is_divided(run) for run in phases):
        notes.append(
            f"Standard accounting (Poisson) is about another mechanism: here the divisor depends on the data. {REMEDY}"
        )
    return list(dict.fromkeys(notes))


def _moving_notes(run: Run) -> list[str]:
    if run.normalization == "realized":
        assert run.dataset_size is not None
        divided = (
            "The noisy sum is divided by the number of records in the batch; an empty batch is read as divided by 1. "
            "A loop that skips empty batches says how many it skipped, which the proof covers."
        )
        full = run.total_steps * run.rate**run.dataset_size
        if full > _SEEN:
            divided += (
                " A batch may hold every record, and the proof, which reveals its size, gives no finite epsilon at a "
                f"delta below {min(1.0, full):.2g}; lower sample_rate."
            )
        return [divided, _ONE_SIZE]
    if run.normalization == "floor":
        moving = moving_pairs(run)
        sizes = " and ".join(f"{size} to {size + 1}" for size in moving)
        return [
            f"floor(N q) changes from {sizes} records, so one record changes the scale of all noise. For other dataset "
            "sizes it may not, or may matter more: a guarantee of the mechanism has to hold for every N; name a range "
            "(--dataset-size-range, or dataset_sizes in Python), and the numbers hold for all of it."
        ]
    return ["N q changes with every record, so one record changes the scale of all noise.", _ONE_SIZE]
