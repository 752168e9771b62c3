"""An Opacus training script, measured as it ran.

Two lines turn a script that trains with Opacus into one that ends with a bracket: one after
`make_private`, one at the end::

    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, ...)
    record = attach(optimizer, loader, batch_size=128)
    ...                                                   # train as before
    print(record.epsilon(delta=1e-5))

`attach` looks at what was really configured and counts the steps that are really taken:

- the loader says how batches are drawn: Opacus's Poisson sampler at its own rate, or the loader of the script
  (shuffled, in fixed order, or by `calipers.adapters.torch_sampler`) when `poisson_sampling=False`;
- the optimizer says the noise multiplier, step by step (schedulers change it), the number of parameters, and
  what the noisy sum is divided by: with `loss_reduction="mean"` a number that Opacus computes from the size of
  the dataset, with "sum" nothing.

`batch_size` is the one the script gave its loader. Opacus forgets it, but it decides whether the sample rate
moves when the dataset grows by one record (see `calipers.opacus_releases`); left out, every batch size
that could have made this loader must lead to the same run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from calipers.adapters.opacus_library import opacus_module, torch_module
from calipers.adapters.torch_sampler import TorchBatches
from calipers.bracket import Bracket
from calipers.domains import choice
from calipers.errors import InputError, UnsupportedError
from calipers.measure import Measurement, measure
from calipers.opacus_releases import VERSIONS, run_keys
from calipers.run import ADJACENCIES, Run
from calipers.samplers.stream import AnySampler

__all__ = ["Attachment", "attach", "run_of"]

# What releases from 1.0 on compute; whether the installed one agrees is checked on the objects themselves.
_ARITHMETIC = VERSIONS[-1]


def run_of(
    optimizer: Any,
    data_loader: Any,
    *,
    steps: int,
    batch_size: int | None = None,
    noise_multiplier: float | None = None,
    adjacency: str = "add-remove",
    public_rate: bool = False,
) -> Run:
    """The run that `steps` steps of a configured optimizer and loader amount to.

    `noise_multiplier` replaces the optimizer's present one. `public_rate` reads a sample rate that moves
    with the size of the dataset as a public constant; without it such a run is refused.
    """
    _check_optimizer(optimizer)
    choice("adjacency", adjacency, ADJACENCIES)
    noise = float(optimizer.noise_multiplier) if noise_multiplier is None else noise_multiplier
    shared: dict[str, object] = {
        "noise_multiplier": noise,
        "dimension": sum(parameter.numel() for parameter in optimizer.params),
        "adjacency": adjacency,
    }
    own = getattr(data_loader, "batch_sampler", None)
    if isinstance(own, TorchBatches):
        return _drawn_here(own.sampler, optimizer, shared | {"steps": steps})
    poisson = _poisson_rate(data_loader)
    if poisson is None:
        return Run.from_dict(shared | _dealt_keys(optimizer, data_loader, steps))
    size = len(data_loader.dataset)
    keys = _poisson_keys(optimizer, data_loader, poisson, size, steps, batch_size, public_rate)
    return Run.from_dict(shared | keys)


def _check_optimizer(optimizer: Any) -> None:
    optimizers = opacus_module("opacus.optimizers")
    if not isinstance(optimizer, optimizers.DPOptimizer):
        raise InputError(
            f"Expected the optimizer that PrivacyEngine.make_private returned, got {type(optimizer).__name__}."
        )
    name = type(optimizer).__name__
    if "AdaClip" in name:
        raise UnsupportedError(
            "Adaptive clipping cannot be described as a Run: its clipping norm is learned from the data by a second "
            "noisy release in every step. Use clipping='flat'."
        )
    if "Distributed" in name or "FSDP" in name:
        raise UnsupportedError("Distributed optimizers cannot be described as a Run yet; train on one process.")


def _poisson_rate(data_loader: Any) -> float | None:
    """The rate of Opacus's Poisson sampler, or None for any other loader."""
    sampler = getattr(data_loader, "batch_sampler", None)
    uniform = opacus_module("opacus.utils.uniform_sampler")
    if isinstance(sampler, uniform.UniformWithReplacementSampler):
        return float(sampler.sample_rate)
    if isinstance(sampler, uniform.DistributedUniformWithReplacementSampler):
        raise UnsupportedError("Distributed samplers cannot be described as a Run yet; train on one process.")
    return None


def _poisson_keys(
    optimizer: Any,
    data_loader: Any,
    rate: float,
    size: int,
    steps: int,
    batch_size: int | None,
    public_rate: bool,
) -> dict[str, object]:
    reduction = str(optimizer.loss_reduction)
    count = round(1 / rate)
    if rate != 1 / count:
        raise UnsupportedError(
            f"The loader samples at {rate!r}, which is not one over a number of batches, so make_private did not "
            "choose it; describe the run by hand with Run(sample_rate=..., steps=..., noise_multiplier=...)."
        )
    if batch_size is not None and math.ceil(size / batch_size) != count:
        raise InputError(
            f"batch_size={batch_size} makes {math.ceil(size / batch_size)} batches, the loader has {count}."
        )
    if reduction == "mean" and optimizer.expected_batch_size != int(size * (1 / len(data_loader))):
        # Not the number that make_private computes: somebody chose it.
        found = _keys(size, math.ceil(size / count), steps, "sum", True)
        return found | {"normalization": "constant"}
    candidates = _batch_sizes(size, count) if batch_size is None else [batch_size]
    described = [_keys(size, candidate, steps, reduction, public_rate) for candidate in candidates]
    return described[0]


def _keys(size: int, batch_size: int, steps: int, reduction: str, public_rate: bool) -> dict[str, object]:
    return run_keys(
        _ARITHMETIC,
        dataset_size=size,
        batch_size=batch_size,
        steps=steps,
        loss_reduction=reduction,
        public_rate=public_rate,
    )


def _batch_sizes(size: int, count: int) -> list[int]:
    """Batch sizes that make `count` batches of `size` records: the extreme ones, at which a neighbor's count differs.

    ceil(size/b) = count for b from ceil(size/count) to ceil(size/(count-1)) - 1. A record more makes another batch
    only at b = size/count, the least; a record fewer saves one only at b = (size-1)/(count-1), the greatest.
    """
    least = math.ceil(size / count)
    greatest = size if count == 1 else math.ceil(size / (count - 1)) - 1
    return sorted({least, greatest})


def _drawn_here(sampler: AnySampler, optimizer: Any, keys: dict[str, object]) -> Run:
    """A loader whose batches one of our own samplers draws: its law says what there is to say."""
    law = sampler.law()
    summed = optimizer.loss_reduction == "sum"
    if not summed and not law.fixed_batch_size:
        raise UnsupportedError(
            "Opacus divides by a number that it computes from the lengths of the dataset and of the loader, which is "
            "not the mean batch of this sampler; say loss_reduction='sum' and let the learning rate divide."
        )
    if law.sampler == "poisson" or sampler.batch_size is None:
        size: dict[str, object] = {"sample_rate": law.rate if law.sampler == "poisson" else 1.0 / law.rounds}
    elif law.rounds == law.dataset_size // int(sampler.batch_size):
        size = {"batch_size": int(sampler.batch_size)}
    else:
        raise UnsupportedError(
            f"{sampler!r} makes {law.rounds} batches an epoch, which no Run describes; leave rounds out, or choose a "
            "batch size that divides the dataset."
        )
    described = {
        "dataset_size": law.dataset_size,
        "sampler": law.sampler,
        "normalization": "none" if summed else "constant",
    }
    return Run.from_dict(keys | size | described)


def _dealt_keys(optimizer: Any, data_loader: Any, steps: int) -> dict[str, object]:
    """A loader that deals every record out once per epoch; the batch size it was given is its own."""
    data = torch_module("torch.utils.data")
    order = getattr(data_loader, "sampler", None)
    names = {data.RandomSampler: "shuffle", data.SequentialSampler: "deterministic"}
    if type(order) not in names or getattr(order, "replacement", False) or data_loader.batch_size is None:
        raise UnsupportedError(
            f"The loader's sampler {type(order).__name__} is not known: Calipers reads Opacus's Poisson sampler, "
            "shuffle=True, shuffle=False and TorchBatches. Describe the run by hand."
        )
    size, batch_size = len(data_loader.dataset), int(data_loader.batch_size)
    if size % batch_size and not data_loader.drop_last:
        raise UnsupportedError(
            f"The last batch of an epoch holds {size % batch_size} records instead of {batch_size}, which no Run "
            "describes; say drop_last=True, or let Opacus sample (poisson_sampling=True)."
        )
    return {
        "dataset_size": size,
        "batch_size": batch_size,
        "steps": steps,
        "sampler": names[type(order)],
        # Batches of fixed size exist only for a fixed number of records: the divisor is then the same for neighbors.
        "normalization": "none" if optimizer.loss_reduction == "sum" else "constant",
    }


class Attachment:
    """Counts the steps of an Opacus optimizer; see `attach`."""

    def __init__(self, optimizer: Any, data_loader: Any, batch_size: int | None) -> None:
        self._optimizer, self._loader, self._batch_size = optimizer, data_loader, batch_size
        self._stretches: list[tuple[float, int]] = []

    @property
    def steps(self) -> int:
        """Noisy sums released so far."""
        return sum(count for _, count in self._stretches)

    def count(self, optimizer: Any) -> None:
        """One step, with the optimizer's present noise multiplier."""
        if optimizer.accumulated_iterations != 1:
            raise UnsupportedError(
                "Several batches were accumulated into one step; a record may be in it more than once, and no Run "
                "describes that. Split large batches with opacus.utils.batch_memory_manager instead."
            )
        noise = float(optimizer.noise_multiplier)
        if self._stretches and self._stretches[-1][0] == noise:
            self._stretches[-1] = (noise, self._stretches[-1][1] + 1)
        else:
            self._stretches.append((noise, 1))

    def runs(self, *, adjacency: str = "add-remove", public_rate: bool = False) -> tuple[Run, ...]:
        """What was executed so far: one run for each stretch of equal noise, in order."""
        if not self._stretches:
            raise InputError("No step was taken yet; ask after training.")
        return tuple(
            run_of(
                self._optimizer,
                self._loader,
                steps=count,
                batch_size=self._batch_size,
                noise_multiplier=noise,
                adjacency=adjacency,
                public_rate=public_rate,
            )
            for noise, count in self._stretches
        )

    def measure(self, *, tolerance: float = 1e-3, **reading: Any) -> Measurement:
        """The measurement of `runs(**reading)`; refuses what has no proven bound."""
        return measure(self.runs(**reading), tolerance=tolerance)

    def epsilon(self, delta: float, **reading: Any) -> Bracket:
        """epsilon(delta) of what was executed so far: lower <= truth <= upper."""
        return self.measure(**reading).epsilon(delta)


def attach(optimizer: Any, data_loader: Any, *, batch_size: int | None = None) -> Attachment:
    """Count the steps of a private optimizer from now on; the accountant of the engine stays in place.

    `optimizer` and `data_loader` are those that `PrivacyEngine.make_private` returned, `batch_size` the one
    the script gave its own loader.
    """
    _check_optimizer(optimizer)
    record = Attachment(optimizer, data_loader, batch_size)
    earlier: Callable[[Any], None] | None = optimizer.step_hook

    def hook(stepping: Any) -> None:
        if earlier is not None:
            earlier(stepping)
        record.count(stepping)

    optimizer.attach_step_hook(hook)
    return record
