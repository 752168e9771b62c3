"""Which items there are, and how one is reproduced.

A paper joins by a package `calipers.papers.KEY` with its `items.toml`, and by its key in `PAPERS`.
"""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from calipers._version import __version__
from calipers.errors import InputError
from calipers.papers.items import Item, Progress, items_of
from calipers.papers.storage import Result, read_result, write_outcome

PAPERS = ("gomez2025", "chua2024", "ertan2026", "vandijk2026", "wang2026")


@cache
def list_items() -> tuple[Item, ...]:
    """Every item of every paper, in the order of the papers."""
    return tuple(item for paper in PAPERS for item in items_of(paper))


def find_item(name: str) -> Item:
    """The item of that name, or `InputError` with the names most like it."""
    items = {item.name: item for item in list_items()}
    if name not in items:
        near = difflib.get_close_matches(name, items, n=3)
        remedy = f"did you mean {' or '.join(near)}?" if near else f"there are {len(items)}."
        raise InputError(f"No item is called {name!r}; {remedy} `calipers reproduce --list` shows all names.")
    return items[name]


def reproduce(name: str, out_dir: Path, progress: Progress | None = None) -> list[Path]:
    """Compute the item and write its files; the last of them, NAME.json, is the result that `load` reads."""
    item = find_item(name)
    outcome = item.compute(progress if progress is not None else _unheard)
    return write_outcome(item, outcome, Path(out_dir))


def load(name: str, out_dir: Path) -> Result:
    """The result that `reproduce` left in the folder, or `InputError`."""
    return read_result(find_item(name).name, Path(out_dir))


def finished(name: str, out_dir: Path) -> bool:
    """Whether the folder holds a complete result of this version of Calipers."""
    try:
        return load(name, out_dir).version == __version__
    except InputError:
        return False


def _unheard(done: int, total: int) -> None:
    """Progress that nobody watches."""
