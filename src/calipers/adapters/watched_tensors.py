"""Whether tensors are what they were a moment ago, without a copy of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calipers.adapters.opacus_library import torch_module


class Fingerprint:
    """Some tensors at one moment: which objects they are, how often each was written to, and their norms.

    PyTorch counts writes to a tensor, but not those through `.data`; these show in a norm. Norms are compared on the
    CPU alone: on another device reading them would wait for it.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._tensors = list(tensors)
        self._seen = self._look(self._tensors)

    def changed(self, now: Sequence[Any] | None = None) -> bool:
        """Whether they were written to since, or `now` are others."""
        if now is not None and [id(tensor) for tensor in now] != [id(tensor) for tensor in self._tensors]:
            return True
        return self._look(self._tensors) != self._seen

    @staticmethod
    def _look(tensors: list[Any]) -> tuple[object, ...]:
        writes = tuple([None if tensor is None else tensor._version for tensor in tensors])
        if not tensors or None in writes or not all(tensor.is_cpu for tensor in tensors):
            return writes
        torch = torch_module()
        with torch.no_grad():
            norms = torch.stack(torch._foreach_norm(tensors))
        return (*writes, norms.numpy().tobytes())
