"""Libraries that not everybody has installed, imported when they are needed."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from calipers.errors import MissingExtraError, UnsupportedError


def library(name: str, missing: str, known: str = "") -> Any:
    """The module called `name`.

    A library that is not there is a `MissingExtraError` that says `missing`, the line to type. One that is there and
    cannot be imported, or lacks the module, is an `UnsupportedError` that names its version, what went wrong, and the
    releases that are `known`.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever goes wrong inside a library while it is imported
        from importlib.util import find_spec

        installed = name.partition(".")[0]
        if isinstance(error, ImportError) and find_spec(installed) is None:
            raise MissingExtraError(missing) from error
        said = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(". ")
        raise UnsupportedError(
            f"{installed} {_version(installed)} is installed, but importing {name} fails: {said}.{known}"
        ) from error


def _version(installed: str) -> str:
    from importlib import metadata

    loaded = sys.modules.get(installed)
    if loaded is not None and hasattr(loaded, "__version__"):
        return str(loaded.__version__)
    try:
        return metadata.version(installed)
    except metadata.PackageNotFoundError:
        return "of unknown version"
