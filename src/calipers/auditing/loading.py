"""Targets by name: "module:function", looked up in the current folder first, then among installed packages.

    # mine.py
    def target(present, rng):
        return rng.normal(loc=1.0 if present else 0.0)

    calipers audit mine:target --trials 10000

The function takes one run: whether the record is present, and the generator for all its randomness. If it has an
attribute `scores`, that function turns the outputs of many runs, shape (count, features), into `count` scores, larger
where the record seems present; without it a distinguisher is fitted to pilot runs.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import cast

from calipers.auditing.targets import FunctionTarget, OneRun, Target
from calipers.errors import InputError


class LoadedTarget(FunctionTarget):
    """A `FunctionTarget` that travels to other processes by its name and is imported again there.

    Raises `InputError` saying what is wrong with the address.
    """

    def __init__(self, address: str, folder: str | None = None) -> None:
        self.address = address
        self.folder = os.getcwd() if folder is None else folder
        function = load_function(address, self.folder)
        check_called(
            function,
            (True, None),
            f"{address} cannot be called as target(present, rng): {{error}}. A target takes whether the record is "
            "present, and the random generator.",
        )
        super().__init__(cast(OneRun, function), name=address)

    def __reduce__(self) -> tuple[type[LoadedTarget], tuple[str, str]]:
        return type(self), (self.address, self.folder)


def as_target(given: Target | OneRun | str) -> Target:
    """A target as it is, a function of one run wrapped, "module:function" loaded."""
    if isinstance(given, str):
        return LoadedTarget(given)
    if isinstance(given, Target):
        return given
    if callable(given):
        return FunctionTarget(given)
    raise InputError(
        f"Expected a target, a function of (present, rng) or 'module:function', got a {type(given).__name__}."
    )


def load_function(address: object, folder: str | None = None) -> Callable[..., object]:
    """The callable at "module:function"; dots after the colon reach into classes and objects."""
    if not isinstance(address, str) or address.count(":") != 1:
        raise InputError(f"Expected a target of the form module:function, got {address!r}.")
    module_name, _, path = address.partition(":")
    if not module_name or not path:
        raise InputError(f"Expected a target of the form module:function, got {address!r}; both parts are needed.")
    if module_name.endswith(".py") or "/" in module_name or os.sep in module_name:
        bare = module_name.removesuffix(".py").replace(os.sep, "/").strip("./").replace("/", ".")
        raise InputError(f"{address!r} names a file; name the module instead: {bare}:{path}.")
    found: object = _module(module_name, os.getcwd() if folder is None else folder)
    for name in path.split("."):
        if not hasattr(found, name):
            raise InputError(f"{module_name} has no {path!r}; it offers {_offers(sys.modules[module_name])}.")
        found = getattr(found, name)
    if not callable(found):
        raise InputError(f"{address} is a {type(found).__name__}, not a function; name a function of (present, rng).")
    return found


def check_called(function: Callable[..., object], arguments: tuple[object, ...], refusal: str) -> None:
    """Raise `InputError` where a function cannot be called with these; `{error}` in the refusal is Python's reason."""
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:  # some builtins have no signature to look at; the first call will tell
        pass
    except TypeError as error:
        raise InputError(refusal.format(error=error)) from error


def _module(name: str, folder: str) -> object:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(f"Importing {name} failed: it needs {error.name}, which is not installed.") from error
        raise InputError(
            f"There is no module {name!r} in {folder} or among the installed packages; run from the folder that holds "
            "it, or install it."
        ) from error
    except Exception as error:
        raise InputError(f"Importing {name} failed with {type(error).__name__}: {error}.") from error


def _offers(module: ModuleType) -> str:
    functions = inspect.getmembers(module, inspect.isfunction)
    own = [name for name, found in functions if found.__module__ == module.__name__ and not name.startswith("_")]
    return ", ".join(own) or "no functions"
