"""How records become gradients, and gradients steps; and what happens along the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from calipers.domains import COUNT, Domain, choice
from calipers.training.losses import Loss, cross_entropy
from calipers.training.torch_library import PRECISIONS

StepProgress = Callable[[int, int], None]
"""Called with (steps done, steps in all) after every step, and first with the place where a run is taken up again.

Of several processes, rank 0's is called.
"""

WORKERS = Domain(0, 1024, integer=True)


@dataclass(frozen=True, kw_only=True)
class Handling:
    """How a plan is applied to records and a model.

    `prepare` turns rows on the device into the model's inputs; datasets of PyTorch (`calipers.training.records`) are
    read by `workers` processes. `loss`: of one record (`calipers.training.losses`); `optimizer`, `schedule`: instead of
    the plan's (`calipers.training.updates`). `precision` "bf16": products of 8 bits. `tf32`: whether CUDA may round
    factors of products to 11 bits, which the clipping accounts for.
    """

    prepare: Callable[[Any], Any] | None = None
    loss: Loss = cross_entropy
    optimizer: Any = None
    schedule: Callable[[Any], Any] | None = None
    precision: str = "full"
    workers: int = 0
    device: str = "auto"
    tf32: bool = True

    def check(self) -> None:
        """Refuse what no training can do."""
        WORKERS.check_int("workers", self.workers)
        choice("precision", self.precision, PRECISIONS)


@dataclass(frozen=True, kw_only=True)
class Along:
    """What happens along the way of a training.

    A checkpoint is written every `checkpoint_every` steps and at the end. Nobody else may use the file meanwhile.
    `evaluation(model, step)` is called every `evaluate_every` steps (None: once, at the end) and returns numbers.
    """

    checkpoint: str | Path | None = None
    checkpoint_every: int = 100
    progress: StepProgress | None = None
    evaluation: Callable[[Any, int], Any] | None = None
    evaluate_every: int | None = None

    def check(self) -> None:
        """Refuse what is no number of steps."""
        COUNT.check_int("checkpoint_every", self.checkpoint_every)
        if self.evaluate_every is not None:
            COUNT.check_int("evaluate_every", self.evaluate_every)

    @property
    def path(self) -> Path | None:
        """The file of the checkpoint."""
        return None if self.checkpoint is None else Path(self.checkpoint)


class HowToTrain(TypedDict, total=False):
    """The fields of `Handling`, by name."""

    prepare: Callable[[Any], Any] | None
    loss: Loss
    optimizer: Any
    schedule: Callable[[Any], Any] | None
    precision: str
    workers: int
    device: str
    tf32: bool


class TrainingOptions(HowToTrain, total=False):
    """What `calipers.training.train` takes: the fields of `Handling` and `Along`, and a trainer's `identity`."""

    checkpoint: str | Path | None
    checkpoint_every: int
    progress: StepProgress | None
    evaluation: Callable[[Any, int], Any] | None
    evaluate_every: int | None
    identity: Mapping[str, Any] | None
