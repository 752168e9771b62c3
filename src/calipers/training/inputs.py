"""Records as models take them: a tensor, several of them, or tensors by name; one row of each is one record.

    model(x)                                records is a tensor
    model(x, mask)                          records is a tuple or a list
    model(input_ids=..., attention_mask=...)  records is a dictionary (a Hugging Face model reads it without a wrapper)

Everything done to records here is done to every row alone: rows are taken, joined and moved, never mixed. Rows of
different shapes are refused. Padding a batch to its longest record would let one record change what all others get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calipers.errors import InputError
from calipers.training.torch_library import torch_module

Form = Any
"""How tensors are nested; None stands for a tensor."""


def leaves(records: Any) -> list[Any]:
    """The tensors, in an order that depends on the form alone."""
    if isinstance(records, Mapping):
        return [leaf for name in sorted(records) for leaf in leaves(records[name])]
    if isinstance(records, list | tuple):
        return [leaf for part in records for leaf in leaves(part)]
    return [records]


def form(records: Any) -> Form:
    """How the tensors are nested."""
    if isinstance(records, Mapping):
        return {name: form(records[name]) for name in sorted(records)}
    return tuple(form(part) for part in records) if isinstance(records, list | tuple) else None


def like(nested: Form, tensors: Sequence[Any]) -> Any:
    """The tensors, nested as the form says."""
    remaining = iter(tensors)

    def build(part: Form) -> Any:
        if isinstance(part, Mapping):
            return {name: build(inner) for name, inner in part.items()}
        return tuple(build(inner) for inner in part) if isinstance(part, tuple) else next(remaining)

    return build(nested)


def mapped(function: Callable[[Any], Any], records: Any) -> Any:
    """The function of every tensor, nested as they were."""
    return like(form(records), [function(tensor) for tensor in leaves(records)])


def count(records: Any) -> int:
    """How many records there are, or `InputError` if the tensors do not agree."""
    found = {len(tensor) for tensor in leaves(records)}
    if len(found) != 1:
        raise InputError(f"Expected tensors with one row for each record, got {sorted(found)} rows.")
    return int(found.pop())


def joined(parts: Sequence[Any]) -> Any:
    """The records of all parts, one after the other; `InputError` where shapes or names differ."""
    torch, first = torch_module(), parts[0]
    if any(form(part) != form(first) for part in parts):
        raise InputError("Expected records with the same names and tensors; some have others.")
    columns = list(zip(*(leaves(part) for part in parts), strict=True))
    for column in columns:
        shapes = {(tuple(tensor.shape[1:]), tensor.dtype) for tensor in column}
        if len(shapes) > 1:
            reported = sorted({str(shape) for shape, _ in shapes} | {str(dtype) for _, dtype in shapes})
            raise InputError(
                f"Expected records of one shape, got {', '.join(reported[:4])}. Pad all records to one length: padding "
                "a batch to its longest record lets that record change the gradients of all others."
            )
    return like(form(first), [torch.cat(column) for column in columns])


def gathered(records: Any, rows: Any) -> Any:
    """The records with these numbers, or in this slice, or where this mask is true."""
    return mapped(lambda tensor: tensor[rows], records)


def called(model: Callable[..., Any], records: Any) -> Any:
    """What the model gives for the records: by name for a dictionary, by position for several."""
    if isinstance(records, Mapping):
        return model(**records)
    return model(*records) if isinstance(records, list | tuple) else model(records)


class OverRecords:
    """`function(*shared, *records)` with one record each time; results are stacked along a new first dimension.

    `shared`: how many of the arguments are the same for all records. All records at once where PyTorch can, else one
    after the other: `torch.func.vmap` runs the function once with tensors that stand for all records. It cannot follow
    code that looks at values (`if mask.all():`, as models of Hugging Face do with their attention masks), and a few
    operations it does not know. Such a function is called for one record after the other: the same numbers, more
    slowly. Either way the function sees one record, so that nothing can mix two; and whether it can be mapped depends
    on its code, not on the records. `failing`: what `vmap` may raise; of errors in PyTorch those that name it, and of
    others all.
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
        results = [self._function(*shared, *gathered(records, row)) for row in range(count(records))]
        columns = zip(*(leaves(result) for result in results), strict=True)
        return like(form(results[0]), [torch_module().stack(column) for column in columns])
