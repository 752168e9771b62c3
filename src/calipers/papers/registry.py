"""Which items there are, and how one is reproduced.

A paper joins by a package `calipers.papers.KEY` with its `items.toml`, and by its key in `PAPERS`.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Iterator
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from calipers._version import __version__
from calipers.domains import looked_up
from calipers.errors import InputError
from calipers.papers.drawing import drawn
from calipers.papers.items import Item, ItemProgress, Views
from calipers.papers.sheets import Computed, rows_of
from calipers.papers.storage import Result, read_result, write_outcome

PAPERS = ("gomez2025", "chua2024", "ertan2026", "vandijk2026", "wang2026")


@cache
def list_items() -> tuple[Item, ...]:
    """Every item of every paper, in the order of the papers."""
    return tuple(item for paper in PAPERS for item in _items_of(paper))


def described(source: str) -> dict[str, dict[str, Any]]:
    """What `items.toml` next to a paper's code says of each item, by its name."""
    text = resources.files(f"calipers.papers.{source}").joinpath("items.toml").read_text("utf-8")
    content = tomllib.loads(text)
    # What several items have in common is written once, and they are `like` it.
    return {entry["name"]: content.get(entry.get("like", ""), {}) | entry for entry in content["item"]}


def _items_of(source: str) -> Iterator[Item]:
    for name, entry in described(source).items():
        about = entry["title"], entry["place"], entry["reproduces"]
        compute = partial(_computed, source, entry)
        yield Item(f"{source}-{name}", source, *about, compute, "slow" if entry.get("slow") else "quick")


def _computed(source: str, entry: dict[str, Any], progress: ItemProgress) -> Views:
    module, function = entry["compute"].split(".")
    compute = getattr(importlib.import_module(f"calipers.papers.{source}.{module}"), function)
    heard = {"progress": progress} if "progress" in inspect.signature(compute).parameters else {}
    computed = compute(**heard, **entry.get("with", {}))
    progress(1, 1)
    return viewed(source, entry, computed)


def viewed(source: str, entry: dict[str, Any], found: Computed) -> Views:
    """The views of what was found that the item's description asks for: rows, remarks, CSV files, picture."""
    published = importlib.import_module(f"calipers.papers.{source}").published
    names = {**vars(published), **entry.get("with", {}), **found.facts, "title": entry["title"]}
    rows = tuple(rows_of(entry.get("rows", ()), found, names))
    remarks = tuple(text.format_map(names) for text in entry.get("remarks", ()))
    return Views(rows, remarks, found.data, drawn(entry["picture"], found, names) if "picture" in entry else None)


def find_item(name: str) -> Item:
    """The item of that name, or `InputError` with the names most like it."""
    return looked_up("item", name, {item.name: item for item in list_items()}, "calipers reproduce --list")


def reproduce(name: str, out_dir: Path, progress: ItemProgress | None = None) -> list[Path]:
    """Compute the item and write its files; the last of them, NAME.json, is the result that `load` reads."""
    item = find_item(name)
    outcome = item.compute(progress or (lambda done, total: None))
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
