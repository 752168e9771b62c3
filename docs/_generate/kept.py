"""Results that are kept in the repository: what takes minutes to compute, or another library, is computed once.

    PYTHONPATH=docs:src python -m _generate                 # every slow item that this version has not kept yet
    PYTHONPATH=docs:src python -m _generate ITEM ...        # these, whether kept or not

An item is kept as `gallery/NAME.json`, which `calipers.papers` reads like any other result, with one key more: "made"
says by which command, when and with which libraries. Beside it lie its data and its picture, the latter with a palette
of 64 colors, which no eye tells from the full one and which takes a quarter of the space. The rows are in the JSON
file already, and the SVG picture is the PNG picture again; neither is kept.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from calipers.papers.registry import reproduce
from calipers.papers.storage import Result, read_result

FOLDER = Path(__file__).parents[1] / "gallery"
LIBRARIES = ("numpy", "scipy", "opacus", "torch")
COLORS = 64


@dataclass(frozen=True)
class Made:
    """How a kept result came about."""

    command: str
    date: str
    libraries: str


def read_kept(name: str, folder: Path = FOLDER) -> tuple[Result, Made]:
    """The kept result and how it was made, or `InputError` where there is none."""
    result = read_result(name, folder)
    made = json.loads((folder / f"{name}.json").read_text("utf-8"))["made"]
    return result, Made(made["command"], made["date"], made["libraries"])


def keep(name: str, folder: Path = FOLDER) -> None:
    """Compute the item and put what is worth keeping into the folder, the result last."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        *_, result = reproduce(name, Path(scratch))
        record = json.loads(result.read_text("utf-8"))
        record["files"] = [file for file in record["files"] if file != f"{name}.csv" and not file.endswith(".svg")]
        for file in record["files"]:
            if file.endswith(".png"):
                (folder / file).write_bytes(with_palette(Path(scratch, file).read_bytes()))
            else:
                shutil.copyfile(Path(scratch, file), folder / file)
    today = datetime.now(UTC).date().isoformat()
    # The folder itself is nobody's business; that it was named decides which images were audited.
    data = "CALIPERS_DATA=FOLDER " if about_opacus(name) and "CALIPERS_DATA" in os.environ else ""
    record["made"] = {"command": f"{data}calipers reproduce {name}", "date": today, "libraries": _libraries(name)}
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def with_palette(picture: bytes) -> bytes:
    """The same PNG picture in 64 colors of its own."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as full:
        full.convert("RGB").quantize(COLORS).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def about_opacus(name: str) -> bool:
    """Whether the item runs Opacus, on images if there are some."""
    return name.endswith("-opacus")


def _libraries(name: str) -> str:
    """Python and the libraries that computed the item; Opacus and PyTorch only where the item is about them."""
    found = [f"Python {platform.python_version()}"]
    for library in LIBRARIES:
        if library in ("numpy", "scipy") or about_opacus(name):
            found.append(f"{library} {importlib.metadata.version(library)}")
    return ", ".join(found)
