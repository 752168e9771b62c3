"""Special functions, loaded in half the time.

`scipy.special` copies the whole namespace of numpy for its array interface, and so imports everything that numpy itself
loads only on demand: a Fortran compiler's front end and a test framework, a fifth of the CPU time of a short command.
A command computes and ends; nothing in it looks for them there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_UNNEEDED = frozenset({"ctypeslib", "f2py", "testing"})


def load_special() -> None:
    """Import `scipy.special` without those parts of numpy; they are still there for whoever imports them."""
    if "scipy.special" not in sys.modules:
        with _kept_out():
            import scipy.special  # noqa: F401


@contextmanager
def _kept_out() -> Iterator[None]:
    """Within the block numpy does not list the parts that are not needed, so that copying it leaves them alone."""
    import numpy as np

    listed, directory = np.__all__, np.__dir__
    np.__all__ = [name for name in listed if name not in _UNNEEDED]
    np.__dir__ = lambda: [name for name in directory() if name not in _UNNEEDED]  # type: ignore[method-assign]
    try:
        yield
    finally:
        np.__all__, np.__dir__ = listed, directory  # type: ignore[method-assign]
