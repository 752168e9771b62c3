"""The notebooks of the documentation: executed in a real kernel, compared with what they show, and turned into pages.

    python docs/_generate/notebooks.py --check       run every notebook; fail where another output comes out
    python docs/_generate/notebooks.py --write       run every notebook and keep what comes out

Both need the group notebooks, and Opacus for one of the notebooks. Pages are made from what is kept, without a kernel.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"
_NUMBER = re.compile(r"\d+\.\d+(?:e-?\d+)?")


def pages() -> dict[str, str]:
    """A page for every notebook, in their order."""
    return {f"notebook-{path.stem}.md": page(json.loads(path.read_text("utf-8")), path) for path in found()}


def found() -> list[Path]:
    """The notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def page(notebook: dict[str, Any], path: Path) -> str:
    """Its cells in Markdown, with what they printed and showed."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    place = f"{{download}}`the notebook <../notebooks/{path.name}>`"
    return "\n\n".join([parts[0], f"This page is {place}, as it was executed.", *parts[1:]]) + "\n"


def _shown(output: dict[str, Any]) -> str:
    html = output.get("data", {}).get("text/html")
    if html is not None:
        return f"````{{raw}} html\n{''.join(html)}\n````"
    return f"```text\n{printed(output).rstrip()}\n```"


def printed(output: dict[str, Any]) -> str:
    """What an output says as text."""
    text = output.get("text", output.get("data", {}).get("text/plain", ""))
    return text if isinstance(text, str) else "".join(text)


def executed(path: Path) -> Any:
    """The notebook after all its cells ran in a new kernel, in an empty folder; a cell that raises ends it."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=120, kernel_name="python3", coalesce_streams=True, resources=place)
        client.execute()
    for cell in notebook.cells:
        cell.metadata = {}  # times and kernels, which differ from run to run
    return notebook


def differences(kept: dict[str, Any], ran: dict[str, Any]) -> Iterator[str]:
    """Cells that print something else; a number may differ by one in its last digit, as processors round exp."""
    for number, (old, new) in enumerate(zip(kept["cells"], ran["cells"], strict=True), start=1):
        if old["cell_type"] == "code":
            first, second = ("".join(map(printed, cell["outputs"])) for cell in (old, new))
            if not agrees(first, second):
                yield f"cell {number} shows {first!r}, but {second!r} comes out"


def agrees(first: str, second: str) -> bool:
    """Whether two texts are one, but for the last digits of numbers."""
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", second):
        return False
    for one, other in zip(map(Decimal, _NUMBER.findall(first)), map(Decimal, _NUMBER.findall(second)), strict=True):
        if abs(one - other) > Decimal(1).scaleb(min(one.as_tuple().exponent, other.as_tuple().exponent)):  # type: ignore[type-var]
            return False
    return True


def main() -> None:
    """Check them, or keep what comes out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--check", action="store_true")
    way.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    bad = []
    for path in found():
        ran = executed(path)
        if asked.write:
            path.write_text(json.dumps(ran, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
        else:
            bad += [f"{path.name}: {text}" for text in differences(json.loads(path.read_text("utf-8")), ran)]
        print(path.name, flush=True)
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main()
