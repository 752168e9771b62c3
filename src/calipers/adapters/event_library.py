"""The library dp_accounting, imported when an event is read or written."""

from __future__ import annotations

import importlib
from typing import Any

from calipers.errors import MissingExtraError


def library() -> Any:
    """The module dp_accounting, or `MissingExtraError` with the line to type."""
    try:
        return importlib.import_module("dp_accounting")
    except ImportError as error:
        raise MissingExtraError(
            "Reading and writing events needs the library dp-accounting: pip install '.[dp-accounting]' in the clone."
        ) from error
