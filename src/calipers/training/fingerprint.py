"""What a function does, as far as its text and its settings tell: so that a run is not resumed with another one.

A loss or a preparation of the records is a function of the user's. Its fingerprint is its name and a digest of

- its source text (its byte code where there is no text), without regard to where it stands in the file;
- what it has bound: defaults, variables of the enclosing function, the arguments of a `functools.partial`, the object
  of a method: numbers, texts and arrays by value, functions by their own fingerprint, everything else by its type;
- what it takes from its own module, and what that takes: functions and classes of the user's by their text, numbers,
  texts and arrays by value, unless the function itself sets them;
- a module of PyTorch: the text it prints, which shows its settings, and its class.

`model_fingerprint` is the same for a model: the layers it prints, and the classes of the user's among them. Modules
that are imported count as a whole (`calipers.user_code`). A change that was seen is refused; what no text shows is left
to `calipers.training.sampled`.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import inspect
import os
import re
import textwrap
from collections.abc import Callable
from typing import Any

from calipers.user_code import MAIN, is_users

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEEPEST = 4


def fingerprint(function: Callable[..., Any] | None) -> str:
    """The function's name and digest; "none" for no function."""
    if function is None:
        return "none"
    digest = hashlib.sha256(f"{_described(function, 0)}{_behind([function])}".encode()).hexdigest()[:16]
    return f"{_name(function)}, {digest}"


def model_fingerprint(model: Any) -> str:
    """The model's name, and a digest of its layers and of the user's code among them."""
    classes = list(dict.fromkeys(type(layer) for layer in model.modules()))
    printed = re.sub(r"\b0x[0-9a-fA-F]+", "", repr(model))
    digest = hashlib.sha256(f"{printed}{_behind(classes)}".encode()).hexdigest()[:16]
    return f"{type(model).__qualname__}, {digest}"


def _behind(things: list[Any]) -> str:
    """What functions and classes of the user's are reached from these by names of their modules, as text."""
    waiting, seen, texts = list(things), set[int](), []
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, functools.partial):
            waiting += [thing.func, *thing.args, *thing.keywords.values()]
        if inspect.ismethod(thing):
            thing = thing.__func__
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            thing = type(thing)
        if id(thing) in seen or not _is_users(thing):
            continue
        seen.add(id(thing))
        if inspect.isclass(thing):
            waiting += [*thing.__bases__, *filter(inspect.isfunction, vars(thing).values())]
        else:
            texts.append(f"{_name(thing)}: {_function(thing, 0)}")
            waiting += [part for part in _bound(thing) if callable(part)]
            for name, value in _names(thing):
                if inspect.isclass(value) or inspect.isfunction(value):
                    waiting.append(value)
                elif isinstance(value, (*_PLAIN, tuple)) or (hasattr(value, "dtype") and hasattr(value, "shape")):
                    texts.append(f"{name} = {_described(value, 0)}")
    return "\n".join(sorted(set(texts)))


def _is_users(thing: Any) -> bool:
    """Whether a function or class is of the user's: by its file, or by having none that Python or a package owns."""
    try:
        path = inspect.getsourcefile(thing)
    except (TypeError, OSError):
        path = None
    if path is not None and os.path.isfile(path):
        return is_users(path)
    return getattr(thing, "__module__", None) == MAIN


def _names(function: Any) -> list[tuple[str, Any]]:
    """What a function finds in its module by name, but for what it sets there itself."""
    codes, used, own = [function.__code__], set[str](), set[str]()
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
        used.update(code.co_names)
        own.update(one.argval for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL")
    known = function.__globals__
    return [(name, known[name]) for name in sorted(used - own) if name in known]


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
    given = [function.__defaults__, function.__kwdefaults__]
    return f"{text} with {_described([*given, *_bound(function)], depth)}"


def _bound(function: Any) -> list[Any]:
    """The variables of the enclosing function; None for one that is not yet filled."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(None)
    return found


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
