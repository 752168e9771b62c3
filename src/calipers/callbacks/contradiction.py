"""How a loader contradicts the run that was declared, as far as PyTorch's loaders let anybody see.

Only what is certain is said. A shuffled or fixed order is no Poisson sampling, and the other way around. Batches of one
size, whoever fills them, are no sampling in which the size is random. Sample rate, batch size, number of records and
the last batch are those that the loader has, and a batch is what a **step** uses: gradients of several batches that are
accumulated, or of several processes, are one batch of all of their records.

A generator, a function or a batch sampler with a rule of its own shows nothing; then the description is believed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calipers.run import Run
from calipers.samplers import scheme_of

_COINS = ("UniformWithReplacementSampler", "DistributedUniformWithReplacementSampler")
_ORDERS = {"RandomSampler": "shuffle", "SubsetRandomSampler": "shuffle", "SequentialSampler": "deterministic"}
_WAY_OUT = (
    "Set the accumulation to 1 and let the loader draw the whole batch of a step; where memory is short, Opacus's "
    "BatchMemoryManager splits such a batch."
)


@dataclass(frozen=True)
class Shown:
    """What is visible of a loader, and how many of its batches a step uses.

    `drawn` is the sampler's word in a run, `size` the number of records of every batch but the last; None where nobody
    can see it. `order` fills the batches, and has `length` records. `accumulated` batches of each of `processes`
    processes make a step.
    """

    name: str
    batches: Any
    order: Any
    drawn: str | None
    size: int | None
    length: int | None
    per_pass: int | None
    accumulated: int
    processes: int

    @property
    def together(self) -> int:
        """Batches of one step."""
        return self.accumulated * self.processes

    @property
    def dropped(self) -> bool:
        """Whether a last, shorter batch is left out."""
        return bool(getattr(self.batches, "drop_last", False))


def accumulation_of(data_loader: Any) -> int:
    """How many batches make a step, as far as a loader knows: those that Accelerate prepared do."""
    return int(getattr(getattr(data_loader, "gradient_state", None), "num_steps", 1) or 1)


def shown(data_loader: Any, accumulation: int = 1, per_pass: float | None = None) -> Shown:
    """What is visible of this loader.

    Args:
        data_loader: whatever a loop iterates.
        accumulation: batches whose gradients are added up for one step, by the word of a trainer.
        per_pass: batches of a pass, by the word of a trainer; the length of the loader if left out.
    """
    batches: Any = getattr(data_loader, "batch_sampler", None)
    if batches is None:  # batch_size=None: the sampler draws whole batches, or single records
        single: Any = getattr(data_loader, "sampler", None)
        batches = single if _iterates(single) in ("BatchSampler", "TorchBatches", *_COINS) else None
    processes = 1
    while hasattr(batches, "batch_sampler"):  # Accelerate wraps them
        processes *= 1 if getattr(batches, "split_batches", False) else int(getattr(batches, "num_processes", 1))
        batches = batches.batch_sampler
    order = getattr(batches, "sampler", None)
    size = getattr(data_loader, "batch_size", None)
    if size is None and _iterates(batches) == "BatchSampler":
        size = getattr(batches, "batch_size", None)
    sampler = type(batches if order is None else order).__name__
    return Shown(
        name=type(data_loader).__name__ if sampler.startswith("_") else sampler,
        batches=batches,
        order=order,
        drawn=_drawn(batches, order),
        size=size,
        length=_length(order),
        per_pass=_length(data_loader) if per_pass is None else int(per_pass) if math.isfinite(per_pass) else None,
        accumulated=max(accumulation, accumulation_of(data_loader)),
        processes=processes * int(getattr(order, "num_replicas", 1)),
    )


def _iterates(thing: Any) -> str:
    """The name of the class that says how this is iterated."""
    return next((kind.__name__ for kind in type(thing).__mro__ if "__iter__" in vars(kind)), "")


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except TypeError:
        return None


def _drawn(batches: Any, order: Any) -> str | None:
    """The sampler's word in a run; None where nobody can see it."""
    if type(batches).__name__ == "TorchBatches":
        return str(order.law().sampler)
    if getattr(order, "replacement", False):
        return "with-replacement"
    names = {kind.__name__ for thing in (batches, order) for kind in type(thing).__mro__}
    words = dict.fromkeys(_COINS, "poisson") | _ORDERS
    return next((word for name, word in words.items() if name in names), None)


def contradiction(run: Run, seen: Shown) -> str | None:
    """How what is visible contradicts the run, in a sentence; None where it does not visibly."""
    if seen.drawn not in (None, run.sampler):
        return (
            f"The run is described with sampler={run.sampler!r}, and the loader draws by {seen.name} "
            f"({seen.drawn!r}); describe what is executed."
        )
    if seen.size is not None and not scheme_of(run).equal_batches:
        return (
            f"The run is described with sampler={run.sampler!r}, where the size of a batch is random, and the loader "
            f"({seen.name}) makes batches of {seen.size}; describe what is executed."
        )
    if seen.accumulated > 1:
        sentence = _accumulated(run, seen)
        if sentence is not None:
            return sentence
    for key, said, found in _compared(run, seen):
        if said is not None and found is not None and said != found:
            several = f", {seen.together} batches of {seen.size} in each step" if seen.together > 1 else ""
            return (
                f"The run is described with {key}={said!r}, and the loader ({seen.name}) has {found!r}"
                f"{several if key == 'batch_size' else ''}; describe what is executed."
            )
    return None


def _accumulated(run: Run, seen: Shown) -> str | None:
    """Why no run describes steps on several batches; None where they are the equal batches of whole epochs."""
    several = f"Gradients of {seen.accumulated} batches make one step, and"
    scheme = scheme_of(run)
    if scheme.stepwise or not (scheme.whole_epochs and scheme.equal_batches):
        return f"{several} no Run with sampler={run.sampler!r} describes that: a record may be in several. {_WAY_OUT}"
    if seen.size is None or seen.per_pass is None or run.batch_size is None:
        return f"{several} nobody can see how many records that is: the loader hides its sizes. {_WAY_OUT}"
    short = not seen.dropped and bool((seen.length or 0) % seen.size)
    if seen.per_pass % seen.accumulated or short:
        return (
            f"{several} a pass has {seen.per_pass} batches{', the last one shorter' if short else ''}: the last step "
            f"of an epoch would be smaller than the others, and no Run describes that. Let a pass have a multiple of "
            f"{seen.accumulated} whole batches (another batch size, drop_last=True), or set the accumulation to 1."
        )
    return None


def _compared(run: Run, seen: Shown) -> Iterator[tuple[str, object, object]]:
    """(key, as declared, as the loader has it) for what both say; None where one of them does not."""
    batches = seen.batches
    if type(batches).__name__ == "TorchBatches":
        law = seen.order.law()
        yield "dataset_size", run.dataset_size, law.dataset_size
        yield "sample_rate", run.rate, law.rate
        return
    if run.sampler == "poisson":
        yield "dataset_size", run.dataset_size, getattr(batches, "total_size", getattr(batches, "num_samples", None))
        yield "sample_rate", run.rate, getattr(batches, "sample_rate", None)
        return
    length = None if seen.drawn is None else seen.length
    size = None if seen.size is None else seen.size * seen.together
    yield "dataset_size", run.dataset_size, length
    yield "batch_size", run.batch_size, size
    if length and size and length % size:
        yield "last_batch", run.last_batch, "drop" if seen.dropped else "keep"
