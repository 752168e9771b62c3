"""One function per published statement: conditions checked, direction stated.

`evaluate(name, **parameters)` calls a statement by its name; `THEOREMS` lists those of every file here.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from calipers.theorems.registry import THEOREMS, Parameter, Relation, Theorem, TheoremValue, evaluate, find, theorem

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["THEOREMS", "Parameter", "Relation", "Theorem", "TheoremValue", "evaluate", "find", "theorem"]
