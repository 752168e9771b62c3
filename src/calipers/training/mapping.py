"""A function of one record, for many records: all at once where PyTorch can, else one after the other.

`torch.func.vmap` runs the function once with tensors that stand for all records. It cannot follow code that looks at
values (`if mask.all():`, as models of Hugging Face do with their attention masks), and a few operations it does not
know. Such a function is called for one record after the other: the same numbers, more slowly. Either way the function
sees one record, so that nothing can mix two; and whether it can be mapped depends on its code, not on the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calipers.training.inputs import count, gathered
from calipers.training.torch_library import torch_module


class OverRecords:
    """`function(*shared, *records)` with one record each time; results are stacked along a new first dimension.

    `shared`: how many of the arguments are the same for all records. `failing`: what `vmap` may raise; of errors in
    PyTorch those that name it, and of others all.
    """

    def __init__(self, function: Callable[..., Any], shared: int, failing: type[Exception] = RuntimeError) -> None:
        self._function, self._shared, self._failing = function, shared, failing
        self.refused: str | None = None
        """Why records are taken one after the other, if so."""

    def __call__(self, *arguments: Any) -> Any:
        """The function of every record; of one record at least."""
        shared, records = arguments[: self._shared], arguments[self._shared :]
        if self.refused is None:
            places = (None,) * len(shared) + (0,) * len(records)
            # "different": layers that draw random numbers draw them per record.
            mapped = torch_module("torch.func").vmap(self._function, in_dims=places, randomness="different")
            try:
                return mapped(*arguments)
            except self._failing as problem:
                if self._failing is RuntimeError and "vmap" not in str(problem):
                    raise
                self.refused = str(problem).partition("\n")[0] or type(problem).__name__
        return stacked([self._function(*shared, *gathered(records, row)) for row in range(count(records))])


def stacked(results: Sequence[Any]) -> Any:
    """The results of all records as one, nested as each of them."""
    first = results[0]
    if isinstance(first, Mapping):
        return {name: stacked([result[name] for result in results]) for name in first}
    if isinstance(first, list | tuple):
        parts = [stacked(list(column)) for column in zip(*results, strict=True)]
        return parts if isinstance(first, list) else tuple(parts)
    return torch_module().stack(list(results))
