"""What a function does, as far as its text and its settings tell: so that a run is not resumed with another one.

A loss or a preparation of the records is a function of the user's. Its fingerprint is its name and a digest of

- its source text (its byte code where there is no text), without regard to where it stands in the file;
- what it has bound: defaults, variables of the enclosing function, the arguments of a `functools.partial`, the object
  of a method: numbers, texts and arrays by value, functions by their own fingerprint, everything else by its type;
- what it takes from its own module, and what that takes: functions and classes of the user's by their text, numbers,
  texts, arrays and containers of them by value, unless the function itself sets or fills them; of objects of the user's
  the attributes, unless methods set them later;
- a module of PyTorch: the text it prints, which shows its settings, and its class.

`model_fingerprint` is the same for a model: the layers it prints, and the classes of the user's among them. Modules
that are imported count as a whole (`calipers.user_code`). A change that was seen is refused; what no text shows is left
to `calipers.training.sampled`.
"""

from __future__ import annotations

import argparse
import dataclasses
import dis
import functools
import hashlib
import inspect
import os
import re
import textwrap
import types
from collections.abc import Callable
from typing import Any

from calipers.user_code import MAIN, is_users

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_FILLED = (dict, list, set)
_FILLING = {"add", "append", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
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
    """What functions, classes and objects of the user's are reached from these by names of their modules, as text."""
    waiting, seen, texts = list(things), set[int](), []
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, functools.partial):
            waiting += [thing.func, *_parts([*thing.args, *thing.keywords.values()])]
            texts.append(_described(thing, 0))
        if inspect.ismethod(thing):
            waiting.append(thing.__self__)
            thing = thing.__func__
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            thing = inspect.unwrap(thing)  # what `functools.lru_cache` keeps the results of
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if inspect.isclass(thing) or inspect.isfunction(thing):
            if not _is_users(thing):
                continue
            found, more = _of_class(thing) if inspect.isclass(thing) else _of_function(thing)
        else:
            found, more = _attributes(thing), [type(thing)]
        texts += [f"{name} = {_described(value, 0)}" for name, value in found if _has_value(value)]
        waiting += [*more, *(part for _, value in found for part in _parts(value))]
        if inspect.isfunction(thing):
            texts.append(f"{_name(thing)}: {_function(thing, 0)}")
    return "\n".join(sorted(set(texts)))


_Found = tuple[list[tuple[str, Any]], list[Any]]


def _of_function(function: Any) -> _Found:
    """The names that it finds in its module with their values, and what else it is bound to."""
    return _names(function), [part for part in _bound(function) if callable(part)]


def _of_class(kind: Any) -> _Found:
    """The values that stand in a class, and its functions and bases."""
    values = [(f"{kind.__qualname__}.{name}", value) for name, value in vars(kind).items() if not name.startswith("__")]
    return values, [*kind.__bases__, *_methods(kind)]


def _methods(kind: Any) -> list[Any]:
    """The functions of a class: methods of any kind, and what stands behind properties."""
    found: list[Any] = []
    for member in vars(kind).values():
        parts = [member]
        if isinstance(member, property):
            parts = [member.fget, member.fset]
        elif isinstance(member, functools.cached_property):
            parts = [member.func]
        inner = (part if inspect.isfunction(part) else inspect.unwrap(part) for part in parts)
        found += filter(inspect.isfunction, inner)
    return found


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    """What an object of the user's was given, but for what its methods set later."""
    kind = type(thing)
    if hasattr(thing, "named_parameters") or not _is_users(kind):
        return []
    methods = [one for base in kind.__mro__ if _is_users(base) for one in _methods(base)]
    later = [one for one in methods if one.__name__ not in ("__init__", "__new__", "__post_init__")]
    own = {name for one in later for name in _used(one, "STORE_ATTR")}
    fixed = [(name, value) for name, value in getattr(thing, "__dict__", {}).items() if name not in own]
    return [(f"{kind.__qualname__}.{name}", value) for name, value in fixed if not _may_fill(value, later)]


def _has_value(thing: Any) -> bool:
    """Whether it counts by what is in it."""
    return isinstance(thing, (*_PLAIN, tuple, *_FILLED)) or (
        not inspect.isclass(thing) and hasattr(thing, "dtype") and hasattr(thing, "shape")
    )


def _parts(value: Any) -> list[Any]:
    """What has to be looked into: the members of a container, else the thing itself."""
    if isinstance(value, dict):
        return [part for part in value.values() if not _has_value(part)]
    if isinstance(value, list | tuple | set | frozenset):
        return [part for part in value if not _has_value(part)]
    return [] if _has_value(value) else [value]


def _may_fill(value: Any, functions: list[Any]) -> bool:
    """Whether it is a container that these functions may put something into: what they remember is no setting."""
    if not isinstance(value, _FILLED):
        return False
    return any("STORE_SUBSCR" in _operations(one) or _FILLING & _used(one) for one in functions)


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
    """What a function finds in its module by name, but for what it sets or fills there itself.

    Of settings that stand in a namespace, as those of a command line, it is what the function names.
    """
    used, known = _used(function), function.__globals__
    found = []
    for name in sorted(used - _used(function, "STORE_GLOBAL")):
        value = known.get(name)
        if isinstance(value, _NAMESPACES):
            found += [(f"{name}.{part}", vars(value)[part]) for part in sorted(used & vars(value).keys())]
        elif name in known and not _may_fill(value, [function]):
            found.append((name, value))
    return found


def _codes(function: Any) -> list[Any]:
    """The code of a function and of those written in it."""
    waiting, found = [function.__code__], []
    while waiting:
        found.append(code := waiting.pop())
        waiting += [constant for constant in code.co_consts if inspect.iscode(constant)]
    return found


def _used(function: Any, operation: str = "") -> set[str]:
    """The names in a function's code; those of one operation alone, if it is given."""
    if not operation:
        return {name for code in _codes(function) for name in code.co_names}
    lines = (one for code in _codes(function) for one in dis.get_instructions(code))
    return {one.argval for one in lines if one.opname == operation}


def _operations(function: Any) -> set[str]:
    return {one.opname for code in _codes(function) for one in dis.get_instructions(code)}


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
