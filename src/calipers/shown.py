"""How objects show themselves: `print(m)` and the rich display of a notebook.

What a measurement looks like is decided in `calipers.reports`, floors above the objects themselves. So they name that
room here, by its name only: it is loaded when somebody looks, and `import calipers` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

RENDERER = "calipers.reports.notebook"


def as_text(thing: object) -> str:
    """The object as `calipers measure` would print it."""
    return cast(str, import_module(RENDERER).text(thing))


def as_html(thing: object) -> str:
    """The object as a piece of a page, with its own style."""
    return cast(str, import_module(RENDERER).html(thing))
