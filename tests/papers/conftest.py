"""Makes the independent oracles of `tests/oracles` importable from here, and gives each item's result once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from calipers.papers import registry  # the path above is for the oracles


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """Compute an item once; the result has rows, remarks and files."""
    folder = tmp_path_factory.mktemp("reproduced")
    results = {}

    def get(name: str):
        full = f"gomez2025-{name}"
        if name not in results:
            registry.reproduce(full, folder)
            results[name] = registry.load(full, folder)
        return results[name]

    return get


@pytest.fixture(scope="session")
def rows_of(reproduced):
    """The rows of an item by their quantity."""
    return lambda name: {row.quantity: row for row in reproduced(name).rows}
