"""Whether tensors are what they were a moment ago, without a copy of them."""

from __future__ import annotations

import hashlib
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
        writes, norms = self._look(self._tensors)
        compared = norms is not None and self._seen[1] is not None  # else they were moved between devices, or are there
        return writes != self._seen[0] or (compared and norms != self._seen[1])

    @staticmethod
    def _look(tensors: list[Any]) -> tuple[tuple[int | None, ...], bytes | None]:
        writes = tuple([None if tensor is None else tensor._version for tensor in tensors])
        if not tensors or None in writes or not all(tensor.is_cpu for tensor in tensors):
            return writes, None
        torch = torch_module()
        with torch.no_grad():
            norms = torch.stack(torch._foreach_norm(tensors))
        return writes, norms.numpy().tobytes()


def weights_digest(optimizer: Any) -> str:
    """A hash of the values of all parameters of an optimizer, bit by bit, in its order."""
    torch, found = torch_module(), hashlib.blake2b(digest_size=16)
    for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
        values = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found.update(values.numpy().tobytes())
    return found.hexdigest()
