"""How a callback derives from a class of a library that is not imported before somebody asks for the callback.

Each framework wants an instance of its own base class. Importing `calipers.callbacks.lightning` must not import
Lightning; `from calipers.callbacks.lightning import PrivacyBudget` does. A module says, once and for all:

    __getattr__ = on_demand(__name__, _LightningStopping, _base)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

NAME = "PrivacyBudget"


def on_demand(module: str, behavior: type[Any], base: Callable[[], Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module in which `PrivacyBudget` is the behavior, derived from the library's own base."""

    @functools.lru_cache(maxsize=1)
    def derived() -> type[Any]:
        return type(NAME, (behavior, base()), {"__doc__": behavior.__doc__, "__module__": module})

    def attribute(name: str) -> Any:
        if name == NAME:
            return derived()
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute
