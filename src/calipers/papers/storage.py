"""Results on disk: every file appears whole or not at all, and the result file comes last.

A file is written next to its place and then moved there, which file systems do in one step. The result
(`NAME.json`) is written after all others, so that its presence means: this item is finished.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calipers._version import __version__
from calipers.errors import InputError
from calipers.papers.items import Item, Picture, Published, Row, Views
from calipers.provenance import sealed
from calipers.reports.files import write_whole
from calipers.reports.plots import empty_figure, saved
from calipers.reports.points import csv_text

ROW_HEADER = ("quantity", "published", "lower", "upper", "difference", "verdict", "basis", "note")


@dataclass(frozen=True)
class Result:
    """A finished item as read back from its folder."""

    item: str
    version: str
    rows: tuple[Row, ...]
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


def write_outcome(item: Item, outcome: Views, folder: Path) -> list[Path]:
    """Write CSV, pictures, and the result file last. Returns the files written, the result among them."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {f"{item.name}.csv": csv_text(ROW_HEADER, map(_row_cells, outcome.rows)).encode()}
    for table in outcome.data:
        contents[f"{item.name}-{table.name}.csv"] = csv_text(table.header, table.rows).encode()
    if outcome.picture is not None:
        for kind, picture in rendered(outcome.picture).items():
            contents[f"{item.name}.{kind}"] = picture
    record = {
        "item": item.name,
        "version": __version__,
        "title": item.title,
        "rows": [_row_record(row) for row in outcome.rows],
        "remarks": list(outcome.remarks),
        "files": list(contents),
    }
    text = json.dumps(sealed(record), indent=1, ensure_ascii=False, allow_nan=False)
    contents[f"{item.name}.json"] = text.encode()
    for name, content in contents.items():
        write_whole(folder / name, content)
    return [folder / name for name in contents]


def read_result(name: str, folder: Path) -> Result:
    """The finished item, or `InputError` when its result file is absent, damaged or misses one of its files."""
    path = folder / f"{name}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(_row_of(entry) for entry in record["rows"])
        files = tuple(folder / file for file in record["files"])
        result = Result(record["item"], record["version"], rows, tuple(record["remarks"]), (*files, path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds no result of {name!r}; compute it again.") from error
    if result.item != name or not all(file.is_file() for file in result.files):
        raise InputError(f"{path} is not a complete result of {name!r}; compute it again.")
    return result


def rendered(picture: Picture) -> dict[str, bytes]:
    """The picture as {"png": ..., "svg": ...}, drawn without touching matplotlib's global state."""
    figure = empty_figure(picture.size)
    picture.draw(figure)
    return {"png": saved(figure, "png", {}), "svg": saved(figure, "svg", {"Date": None})}


def _row_cells(row: Row) -> list[object]:
    published = row.published.text if row.published is not None else ""
    difference = "" if row.difference is None else row.difference
    return [row.quantity, published, row.lower, row.upper, difference, row.verdict.value, row.basis, row.note]


def _row_record(row: Row) -> dict[str, object]:
    record = asdict(row) | {"difference": row.difference, "verdict": row.verdict.value}
    said = record["published"] and {name: _jsonable(value) for name, value in record["published"].items()}
    return {name: _jsonable(record[name]) for name in ROW_HEADER} | {"published": said}


def _row_of(record: dict[str, Any]) -> Row:
    """The row of a record; the difference and the verdict follow from the rest."""
    said = record["published"]
    published = said and Published(said["text"], float(said["low"]), float(said["high"]), said["value"])
    lower, upper = float(record["lower"]), float(record["upper"])
    return Row(str(record["quantity"]), published, lower, upper, record["basis"], str(record["note"]))


def _jsonable(value: Any) -> Any:
    """JSON has no infinities; their names read back as floats."""
    return str(value) if isinstance(value, float) and math.isinf(value) else value
