"""The installed Opacus as something to probe: its loader and its step, behind `PrivacyEngine.make_private`.

Nothing is imitated. The batches come from the loader that `make_private` returns. A step is a forward and a
backward pass of a real model and a step of the optimizer that `make_private` returns; what is read is the
`grad` handed to the optimizer inside. Only the model is chosen for the purpose: its output for a record x is
<w, x>, so that the gradient of a record *is* the record, and any per-record gradient can be presented by
presenting it as data. w is split over two layers, which tells clipping by layer from clipping of the
whole. The learning rate is 0: every step starts from the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from calipers.adapters.opacus_library import PrivateLoop, one_thread, quiet_engine, torch_module
from calipers.numerics.types import FloatArray, IntArray

GRAD_SAMPLE_MODES = ("hooks", "functorch", "ew", "ghost")
SEEDS = 2**63 - 1


@dataclass(eq=False)
class OpacusConfiguration:
    """Opacus set up for one dataset size and batch size (see `calipers.probing.protocol`).

    The keywords after `dimension` are those of `PrivacyEngine.make_private`; `shuffle` and `drop_last` are
    those of the loader that is handed to it.
    """

    dataset_size: int
    batch_size: int
    _: KW_ONLY
    dimension: int = 1000
    noise_multiplier: float = 1.0
    max_grad_norm: float = 1.0
    loss_reduction: str = "mean"
    grad_sample_mode: str = "hooks"
    poisson_sampling: bool = True
    shuffle: bool = True
    drop_last: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        torch = self._torch = torch_module()
        self.layers = _layers(self.dimension)
        self._loop = PrivateLoop(
            self, _linear_model(self.dimension, torch), _output_criterion(torch, self.loss_reduction),
            _Indices(self.dataset_size, torch), poisson=self.poisson_sampling, batch_size=self.batch_size,
            shuffle=self.shuffle, drop_last=self.drop_last, collate_fn=torch.tensor,
        )  # fmt: skip
        self.steps_per_epoch = len(self._loop.loader)

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """The batches of the loader that Opacus returned."""
        self._loop.sampling.manual_seed(int(rng.integers(SEEDS)))
        with one_thread(), quiet_engine():
            for _ in range(epochs):
                for batch in self._loop.loader:
                    # Before the first record is seen, an empty batch comes as a list of one empty tensor.
                    yield np.asarray(batch[0] if isinstance(batch, list) else batch, dtype=np.int64)

    def update(self, gradients: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One step of Opacus on records whose gradients these are."""
        torch = self._torch
        self._loop.noise.manual_seed(int(rng.integers(SEEDS)))
        records = torch.tensor(gradients, dtype=torch.float32, device=self.device)
        with quiet_engine():
            released = self._loop.step(records, torch.zeros(len(records), device=self.device))
        return np.asarray(released.cpu(), dtype=np.float64)

    def accounted(self) -> tuple[float, float]:
        """(sample rate, noise multiplier) that one step adds to the accountant's history."""
        self.update(np.zeros((1, self.dimension)), np.random.default_rng(0))
        noise_multiplier, sample_rate, _ = self._loop.engine.accountant.history[-1]
        return float(sample_rate), float(noise_multiplier)


class _Indices:
    """A dataset whose records are their own indices, fetched a batch at a time."""

    def __init__(self, size: int, torch: Any) -> None:
        self._size, self._torch = size, torch

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[Any]:
        return (self._torch.tensor(index),)

    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


def _layers(dimension: int) -> tuple[int, int]:
    """The sizes of the two layers."""
    first = max(1, dimension // 3)
    return first, dimension - first


def _linear_model(dimension: int, torch: Any) -> Any:
    first, _ = _layers(dimension)

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = torch.nn.Linear(first, 1, bias=False)
            self.right = torch.nn.Linear(dimension - first, 1, bias=False)

        def forward(self, records: Any) -> Any:
            return self.left(records[:, :first]) + self.right(records[:, first:])

    return Linear()


def _output_criterion(torch: Any, loss_reduction: str) -> Any:
    """A loss that is the model's output; Opacus's ghost clipping switches its reduction off and on."""

    class Output(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reduction = loss_reduction

        def forward(self, outputs: Any, _: Any) -> Any:
            losses = outputs.reshape(-1)
            return {"mean": losses.mean, "sum": losses.sum}.get(self.reduction, lambda: losses)()

    return Output()
