"""What a loader says about its draws before anything is drawn, and the `Run` that so many steps with it amount to.

Opacus replaces the loader of a script by one that draws by Poisson sampling at one over the number of batches, or
leaves it alone (`poisson_sampling=False`). Four kinds of loaders are distinguished, by the exact types of their
samplers:

- "poisson": Opacus's own sampler, on one process or on several;
- "allocated": PyTorch's `BatchSampler` over a shuffled, a fixed or a random order; a record comes at most once in a
  pass, unless the order draws with replacement or goes around more than once;
- "calipers": `calipers.adapters.torch_sampler`, which states its distribution;
- "other": anything else. Such draws may depend on the records (weights from labels, buckets from lengths), so they are
  refused unless somebody states that they do not.

Opacus forgets the batch size that the script gave its loader, and whether it dropped the last batch. Both decide
whether the sample rate moves when the dataset grows by one record (see `calipers.opacus_releases`); left out, every
batch size that could have made this loader must lead to the same run.

A distribution is read again at every draw (`settings_of`), since a loop can change it. One record can be behind several
rows of a dataset (`rows_behind`): a `Subset` that names it twice, a `ConcatDataset` of one dataset with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calipers.adapters.loader_settings import loader_behind, own_type, rows_behind
from calipers.adapters.opacus_batch_sizes import batch_count, batch_sizes, forgotten
from calipers.adapters.opacus_library import installed_opacus, opacus_module, torch_module
from calipers.adapters.torch_sampler import TorchBatches
from calipers.adapters.watched_release import Divided
from calipers.errors import InputError, UnsupportedError
from calipers.opacus_releases import VERSIONS, run_keys
from calipers.samplers import SAMPLERS, Sampler, scheme_named
from calipers.samplers.analysis import Scheme


@dataclass(frozen=True)
class LoaderLaw:
    """The distribution of a loader's draws, as far as it can be read off.

    `dataset_size` counts the records that can be drawn, `indices` all of the dataset, `batches` those of one pass;
    `sample_rate` is that of Opacus's own sampler, and its `batch_size` what somebody said the loader before it had.
    `order` is "shuffle" or "deterministic" for allocated batches, `once` whether a record comes at most once in a pass,
    `whole` whether a pass holds every record (but those that `drop_last` leaves out). `copies` is the largest number
    of rows that one record is behind.
    """

    kind: str
    name: str
    dataset_size: int
    indices: int
    batches: int
    sample_rate: float | None = None
    batch_size: int | None = None
    drop_last: bool = False
    order: str = ""
    once: bool = False
    whole: bool = False
    ranks: int = 1
    sampler: Sampler | None = None
    copies: int = 1

    @property
    def scheme(self) -> Scheme | None:
        """What is registered about batches drawn so; None for draws that have no name."""
        word = {"calipers": self.name, "dealt": self.order}.get(self.kind, self.kind)
        return scheme_named(word) if word in SAMPLERS else None

    @property
    def by_coins(self) -> bool:
        """Whether every record enters every batch by its own coin, whoever tosses it."""
        return self.scheme is not None and self.scheme.independent

    @property
    def stepwise(self) -> bool:
        """Whether nothing ties batches together, so that any number of them is a run."""
        return self.scheme is not None and self.scheme.stepwise

    @property
    def repeats(self) -> bool:
        """Whether one of our own samplers deals the batches of its first epoch again and again."""
        return self.sampler is not None and self.sampler.repeats

    @property
    def shuffled(self) -> bool:
        """Whether batches are allocated in an order that was drawn."""
        return self.kind == "dealt" and self.scheme is not None and self.scheme.revealed is not None

    @property
    def in_known_order(self) -> bool:
        """Whether batches are allocated in the order of the dataset."""
        return self.kind == "dealt" and not self.shuffled


def source_of(data_loader: Any, *, batch_size: int | None = None, observed: bool = False) -> LoaderLaw:
    """What the loader draws; `UnsupportedError` for what nothing can be proven about.

    `batch_size` is the one of the loader that Opacus replaced; `observed` states that the draws of an unknown sampler
    do not depend on the records.
    """
    data, uniform = torch_module("torch.utils.data"), opacus_module("opacus.utils.uniform_sampler")
    data_loader = loader_behind(data_loader)
    batches = getattr(data_loader, "batch_sampler", None)
    if batches is None or isinstance(getattr(data_loader, "dataset", None), data.IterableDataset):
        raise UnsupportedError(
            f"{type(data_loader).__name__} draws no batches of indices (batch_size=None, or a dataset that is a stream)"
            ", so nobody can see which records a step used. Use a map-style dataset and a batch size."
        )
    if not getattr(data_loader, "in_order", True):
        raise UnsupportedError("in_order=False delivers batches in another order than they were drawn; leave it out.")
    indices, kind = len(data_loader.dataset), own_type(batches)
    name = kind.__name__
    behind = rows_behind(data_loader.dataset)
    copies = 1 if behind is None else int(np.bincount(behind).max())
    if kind is uniform.UniformWithReplacementSampler:
        rate, size = float(batches.sample_rate), int(batches.num_samples)
        return LoaderLaw("poisson", name, size, indices, len(batches), rate, batch_size, copies=copies)
    if kind is uniform.DistributedUniformWithReplacementSampler:
        size, rate, ranks = int(batches.total_size), float(batches.sample_rate), int(batches.num_replicas)
        return LoaderLaw("poisson", name, size, indices, len(batches), rate, batch_size, ranks=ranks, copies=copies)
    if kind is TorchBatches:
        law = batches.sampler.law()
        once = scheme_named(law.sampler).whole_epochs and copies == 1
        return LoaderLaw(
            "calipers", law.sampler, law.dataset_size, indices, len(batches), sampler=batches.sampler, once=once,
            copies=copies,
        )  # fmt: skip
    if kind is data.BatchSampler:
        found = _allocated(data, batches, indices, copies)
        if found is not None:
            return found
        name = f"{name} over {type(batches.sampler).__name__}"
    if not observed:
        raise UnsupportedError(
            f"{installed_opacus()} hands out batches by {name}, whose distribution is not known and may depend on "
            "the records: "
            "Calipers reads Opacus's Poisson sampler, shuffle=True, shuffle=False, RandomSampler, SubsetRandomSampler "
            "and TorchBatches (and enters BatchMemoryManager after attach). If its draws do not depend on what is in "
            "the records, say observed=True: the batches are then measured as they came."
        )
    return LoaderLaw("other", name, indices, indices, len(batches), copies=copies)


def _allocated(data: Any, batches: Any, indices: int, copies: int) -> LoaderLaw | None:
    """PyTorch's own orders; None for another."""
    order, name = batches.sampler, type(batches.sampler).__name__
    if type(order) is data.SequentialSampler:
        size, word, once, whole = len(order.data_source), "deterministic", True, True
    elif type(order) is data.RandomSampler:
        size, word = len(order.data_source), "shuffle"
        once = not order.replacement and order.num_samples <= size
        whole = once and order.num_samples == size
    elif type(order) is data.SubsetRandomSampler:
        size = len(order.indices)
        word, once = "shuffle", len(set(map(int, order.indices))) == size
        whole = once
    else:
        return None
    return LoaderLaw(
        "dealt", name, size, indices, len(batches), batch_size=int(batches.batch_size),
        drop_last=bool(batches.drop_last), order=word, once=once and copies == 1, whole=whole, copies=copies,
    )  # fmt: skip


def described_keys(
    source: LoaderLaw,
    divided: Divided,
    steps: int,
    public_rate: bool,
    reshuffle: str = "every-epoch",
) -> dict[str, object]:
    """The keys of the `Run` of `steps` steps, each on a batch of its own; refuses what no `Run` says.

    `public_rate`: both neighbors share the rate and the divisor, since the number of records is public or the same.
    """
    unit: dict[str, object] = {"unit": "record", "records_per_unit": source.copies} if source.copies > 1 else {}
    if source.sampler is not None:
        return _drawn_here(source.sampler, divided, steps) | unit
    if source.sample_rate is not None:
        return _poisson_keys(source, divided, steps, public_rate) | unit
    if not source.whole:
        raise UnsupportedError(
            f"A pass over {source.name} is no permutation of the dataset (num_samples, replacement, or an order of its "
            "own), and no Run describes that."
        )
    assert source.batch_size is not None
    if not public_rate and divided.reduction == "mean":
        _refuse_moving_divisor(source, divided)
    kept: dict[str, object] = {"last_batch": "drop" if source.drop_last else "keep"}
    if source.shuffled:
        kept["reshuffle"] = reshuffle
    word = "none" if divided.reduction == "sum" else "constant"
    usual = divided.divisor == _divisors(source)[1] == source.dataset_size // source.batches
    if word == "constant" and usual and not public_rate:
        word = "floor"
    return (
        kept
        | unit
        | {
            "dataset_size": source.dataset_size,
            "batch_size": source.batch_size,
            "sampler": source.order,
            # Any divisor is a constant where neighbors have the same number of records.
            "normalization": word,
        }
        | _length(steps, source.batches)
    )


def _length(steps: int, batches: int) -> dict[str, object]:
    """One whole pass is an epoch: a loop over the loader takes as many steps as a neighbor's loader has batches."""
    return {"epochs": 1} if steps == batches else {"steps": steps}


def _refuse_moving_divisor(source: LoaderLaw, divided: Divided) -> None:
    """Where batches are allocated and a record is really added or removed: the divisor must not move with their
    number.
    """
    around = _divisors(source)
    if divided.realized or (divided.divisor == around[1] and len(set(around)) > 1):
        moved = "the size of each batch" if divided.realized else f"{around} for one record fewer, as many, one more"
        raise UnsupportedError(
            f"Opacus divides the noisy sum by a number that depends on the number of records ({moved}), and nothing "
            f"is proven of that for adding or removing one. {_divisor_advice(source)}, or ask for adjacency='zero-out'."
        )


def _divisor_advice(source: LoaderLaw) -> str:
    """Sums, unless one record makes another number of batches: then they help for one of adding and removing."""
    assert source.batch_size is not None
    size, batch = source.dataset_size, source.batch_size
    fewer, here, more = (batch_count(number, batch, source.drop_last) for number in (size - 1, size, size + 1))
    if fewer == here == more:
        return SUMMED
    which = "one record more makes another batch" if more > here else "one record fewer makes one batch less"
    only = "removing" if fewer == here else "adding" if more == here else ""
    sums = f"loss_reduction='sum' helps only for {only} one" if only else "loss_reduction='sum' does not help"
    return (
        "Use a batch size with which one record more or less leaves the number of batches as it is (with "
        f"B = {batch} {which}, and {sums})"
    )


def _divisors(source: LoaderLaw) -> list[int]:
    """What make_private divides the sums of allocated batches by, for one record fewer, as many, one more."""
    assert source.batch_size is not None
    found = []
    for size in (source.dataset_size - 1, source.dataset_size, source.dataset_size + 1):
        count = batch_count(size, source.batch_size, source.drop_last)
        found.append(int(size * (1 / count)) if count else 0)
    return found


SUMMED = (
    "Use loss_reduction='sum' with a criterion that sums too (reduction='sum'; else gradients are divided before they "
    "are clipped), and let the learning rate divide"
)


def _poisson_keys(source: LoaderLaw, divided: Divided, steps: int, public_rate: bool) -> dict[str, object]:
    size, batch_size = source.dataset_size, source.batch_size
    assert source.sample_rate is not None
    count = round(1 / source.sample_rate)
    if source.sample_rate != 1 / count:
        if public_rate and divided.reduction == "sum":
            return {"dataset_size": size, "sample_rate": source.sample_rate, "steps": steps}
        raise UnsupportedError(
            f"The loader samples at {source.sample_rate!r}, which is not one over a number of batches, so make_private "
            "did not choose it. With public_rate=True it is taken for a constant that does not depend on the dataset. "
            f"{SUMMED}."
        )
    candidates = batch_sizes(size, count)
    if batch_size is not None:
        candidates = [(batch_size, drop) for drop in (False, True) if batch_count(size, batch_size, drop) == count]
        if not candidates:
            raise InputError(
                f"batch_size={batch_size} makes {batch_count(size, batch_size, False)} batches of {size} records, the "
                f"loader has {count}."
            )
    word = "none" if divided.reduction == "sum" else "floor"
    if divided.reduction == "mean":
        if divided.realized:
            word = "realized"
        elif divided.divisor * source.ranks != int(size * (1 / count_taken(source))):
            word = "constant"  # Not the number that make_private computes: somebody chose it.
    if source.copies > 1:
        _refuse_moving_copies(source, candidates, word, public_rate)
    found = {}
    for candidate in candidates:
        try:
            keys = _keys(size, candidate, steps, "mean" if word == "floor" else "sum", public_rate)
            found[candidate] = keys if word == "floor" else keys | {"normalization": word}
        except UnsupportedError as error:
            if len(candidates) == 1 or batch_size is not None:
                raise
            raise UnsupportedError(
                f"With batches of {candidate[0]}{' (drop_last=True)' * candidate[1]}: {error} {forgotten(candidates)}"
            ) from error
    return found[candidates[0]]


def count_taken(source: LoaderLaw) -> int:
    """The number of batches by which make_private computes its divisor."""
    assert source.sample_rate is not None
    return int(1 / source.sample_rate)


def _refuse_moving_copies(source: LoaderLaw, loaders: list[tuple[int, bool]], word: str, public_rate: bool) -> None:
    """A record behind several rows takes them all along; nothing else may move then."""
    sizes = range(max(1, source.dataset_size - source.copies), source.dataset_size + source.copies + 1)
    moving = any(len({batch_count(size, *loader) for size in sizes}) > 1 for loader in loaders)
    if word in ("floor", "realized") or (moving and not public_rate):
        raise UnsupportedError(
            f"Some records are behind {source.copies} rows of the dataset, and removing one moves the divisor or the "
            f"sample rate with it. {SUMMED}, and say public_rate=True if the number of records is public."
        )


def forgotten_batch_size(source: LoaderLaw) -> str:
    """Which batch sizes a script's own loader may have had, of which Opacus keeps the rate alone; "" if it is known."""
    if source.sample_rate is None or source.batch_size is not None:
        return ""
    return forgotten(batch_sizes(source.dataset_size, round(1 / source.sample_rate)))


def _keys(size: int, loader: tuple[int, bool], steps: int, reduction: str, public_rate: bool) -> dict[str, object]:
    batch_size, drop_last = loader
    installed = str(opacus_module().__version__)
    # All releases since 1.0 compute alike; whether a newer one does too is checked on the objects themselves.
    read_as = installed if installed in VERSIONS else VERSIONS[-1]
    try:
        return run_keys(
            read_as,
            dataset_size=size,
            batch_size=batch_size,
            drop_last=drop_last,
            steps=steps,
            loss_reduction=reduction,
            public_rate=public_rate,
        )
    except UnsupportedError as error:
        if installed == read_as:
            raise
        raise UnsupportedError(f"{error} (Opacus {installed} is installed, and read like {read_as}.)") from error


def _drawn_here(sampler: Sampler, divided: Divided, steps: int) -> dict[str, object]:
    """A loader whose batches one of our own samplers draws: its distribution says what there is to say."""
    law, scheme = sampler.law(), scheme_named(sampler.law().sampler)
    if not scheme.stepwise and not scheme.whole_epochs:
        raise UnsupportedError(
            f"{sampler!r} ties all of its steps together, and who watches step by step does not know whether they "
            "will all be taken: measure the run that its plan describes (calipers.training.run_of)."
        )
    summed = divided.reduction == "sum"
    if not summed and not (law.fixed_batch_size and scheme.whole_epochs):
        raise UnsupportedError(
            f"{installed_opacus()} divides by a number that it computes from the lengths of the dataset and of the "
            "loader, which is not the mean batch of this sampler. "
            f"{SUMMED}."
        )
    own = sampler.run_keys()
    kept: dict[str, object] = {key: own[key] for key in ("reshuffle", "last_batch", "max_batch_size") if key in own}
    drops = kept.get("last_batch", "drop") == "drop"
    if sampler.batch_size is None or (scheme.stepwise and not scheme.equal_batches):
        size: dict[str, object] = {"sample_rate": law.rate}
    elif scheme.stepwise or law.rounds == batch_count(law.dataset_size, int(sampler.batch_size), drops):
        size = {"batch_size": int(sampler.batch_size)}
    else:
        raise UnsupportedError(
            f"{sampler!r} makes {law.rounds} batches an epoch, which no Run describes; leave rounds out, or choose a "
            "batch size that divides the dataset."
        )
    cut = scheme.equal_batches and not scheme.stepwise
    return (
        size
        | kept
        | _length(steps, law.rounds if cut else 0)
        | {
            "dataset_size": law.dataset_size,
            "sampler": law.sampler,
            "normalization": "none" if summed else "constant",
        }
    )
