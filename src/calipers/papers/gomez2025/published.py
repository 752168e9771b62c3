"""The printed numbers: `published.toml`, name by name."""

from __future__ import annotations

from typing import Any

from calipers.papers.published import published_in


def __getattr__(name: str) -> Any:
    try:
        return published_in(__name__.rpartition(".")[0])[name]
    except KeyError:
        raise AttributeError(f"The paper prints nothing that is called {name!r} here.") from None
