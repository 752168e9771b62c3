"""How much memory a step of private training holds beside plain SGD: counted, on no device.

The model and its batch are `meta` tensors, which have a shape and no numbers; every piece of memory that PyTorch would
take is counted when it comes and when it goes. What the libraries of a GPU take for themselves is not in it
(`benchmarks.training --device cuda` measures that).

    python -m benchmarks.memory
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.training_steps import CUDA_CASES, dataset
from calipers.training import build_model
from calipers.training.gradients import GradientSum
from calipers.training.layer_products import Accuracy, norms_of

CASES = (
    *((case.model, case.shape, case.batch) for case in CUDA_CASES),
    ("wideresnet-16-4", (3, 32, 32), 256),
    ("wideresnet-28-10", (3, 32, 32), 64),
)


class Counting(TorchDispatchMode):
    """Bytes that are alive, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    def count(self, tensor: Any) -> None:
        """Count the memory of a tensor until it is let go."""
        storage = tensor.untyped_storage()
        if storage not in self._seen:
            self._seen[storage] = True
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._gone, storage.nbytes())

    def _gone(self, size: int) -> None:
        self.now -= size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operation passes here."""
        found = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self.count(tensor)
        return found


def peaks(name: str, shape: tuple[int, ...], records: int) -> tuple[int, int]:
    """(bytes at the peak of plain SGD's gradient, at the peak of the clipped sum as a GPU with TF32 computes it)."""
    data = dataset(shape, 2)
    model = build_model(name, data, seed=0).to("meta")
    one = data.prepare(torch.as_tensor(data.records[:1]))
    inputs = torch.empty((records, *one.shape[1:]), dtype=one.dtype, device="meta")
    labels = torch.zeros(records, dtype=torch.long, device="meta")

    def plain() -> None:
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()

    found = _peak(plain, model, inputs)
    model.zero_grad(set_to_none=True)
    clipped = GradientSum(model, max_grad_norm=1.0)
    counted = torch.ones(records, dtype=torch.bool, device="meta")
    short = Accuracy(2.0**-22, 2.0**-10 + 2.0**-22, short=True)

    def norms(flat: Any, blocks: bool) -> Any:
        return norms_of(flat, blocks=True)

    with (
        patch.object(Accuracy, "of", lambda *_: short),
        patch("calipers.training.gradients.norms_of", norms),
        patch("calipers.training.layer_products.norms_of", norms),
        patch("calipers.training.gradients.low_precision", lambda *_: contextlib.nullcontext()),
    ):
        return found, _peak(lambda: clipped._clipped(inputs, labels, counted), model, inputs)


def _peak(work: Callable[[], object], model: Any, inputs: Any) -> int:
    with Counting() as counting:
        for tensor in (*model.parameters(), inputs):
            counting.count(tensor)
        work()
    return counting.peak


def main() -> None:
    """One line for every model."""
    print(f"{'model':20}{'batch':>8}{'plain, MB':>12}{'clipped, MB':>13}{'ratio':>8}")
    for name, shape, records in CASES:
        plain, clipped = peaks(name, shape, records)
        print(f"{name:20}{records:8}{plain / 1e6:12,.0f}{clipped / 1e6:13,.0f}{clipped / plain:8.2f}")


if __name__ == "__main__":
    main()
