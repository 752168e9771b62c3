"""What a function does, as far as its text and its settings tell: so that a run is not resumed with another one.

A loss or a preparation of the records is a function of the user's. Its fingerprint is its name and a digest of

- its source text (its byte code where there is no text), without regard to where it stands in the file;
- what it has bound: defaults, variables of the enclosing function, the arguments of a `functools.partial`, the object
  of a method: numbers, texts and arrays by value, functions by their own fingerprint, everything else by its type;
- a module of PyTorch: the text it prints, which shows its settings, and its class.

Two functions with one fingerprint may still differ in what they call. A change that was seen is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEEPEST = 4


def fingerprint(function: Callable[..., Any] | None) -> str:
    """The function's name and digest; "none" for no function."""
    if function is None:
        return "none"
    digest = hashlib.sha256(_described(function, 0).encode()).hexdigest()[:16]
    return f"{_name(function)}, {digest}"


def _name(thing: Any) -> str:
    while isinstance(thing, functools.partial):
        thing = thing.func
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def _described(thing: Any, depth: int) -> str:
    if isinstance(thing, _PLAIN):
        return repr(thing)
    if depth > _DEEPEST:
        return type(thing).__qualname__
    if isinstance(thing, list | tuple | set | frozenset):
        parts = [_described(part, depth + 1) for part in thing]
        return f"{type(thing).__name__}({', '.join(sorted(parts) if isinstance(thing, set | frozenset) else parts)})"
    if isinstance(thing, dict):
        pairs = [f"{_described(key, depth + 1)}: {_described(value, depth + 1)}" for key, value in thing.items()]
        return f"dict({', '.join(sorted(pairs))})"
    if isinstance(thing, functools.partial):
        return f"partial({_described([thing.func, thing.args, thing.keywords], depth + 1)})"
    if inspect.ismethod(thing):
        return f"{_described(thing.__func__, depth + 1)} of {_object(thing.__self__, depth + 1)}"
    if inspect.isfunction(thing):
        return _function(thing, depth + 1)
    if inspect.isclass(thing) or inspect.isbuiltin(thing) or inspect.ismodule(thing):
        return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing.__name__)}"
    return _object(thing, depth + 1)


def _function(function: Any, depth: int) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        text = f"{function.__code__.co_code.hex()} {function.__code__.co_names} {function.__code__.co_consts!r}"
    bound = [function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        try:
            bound.append(cell.cell_contents)
        except ValueError:  # not yet filled
            bound.append(None)
    return f"{text} with {_described(bound, depth)}"


def _object(thing: Any, depth: int) -> str:
    """Arrays and tensors by value, settings of dataclasses, what a module of PyTorch prints, and the class."""
    kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if hasattr(thing, "detach"):
        thing = thing.detach().cpu().numpy()
    if hasattr(thing, "tobytes") and hasattr(thing, "shape"):
        return f"{kind} {thing.dtype} {thing.shape} {hashlib.sha256(thing.tobytes()).hexdigest()}"
    if dataclasses.is_dataclass(thing):
        # Records are in the checkpoint's own digest of the data; here settings count.
        values = [(field.name, getattr(thing, field.name)) for field in dataclasses.fields(thing)]
        return f"{kind} {[(name, value) for name, value in values if isinstance(value, _PLAIN)]!r}"
    if hasattr(thing, "named_parameters"):
        return f"{kind} {thing!r}"
    return kind
