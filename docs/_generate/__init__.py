"""Pages that the program writes about itself, so that they cannot drift from it.

Each module has a function `pages() -> {file name: text}`; the gallery also draws pictures. Nothing here needs Sphinx.
"""

from __future__ import annotations

from pathlib import Path

from _generate import commands, coverage, gallery, notebooks, statements

__all__ = ["write_pages"]


def write_pages(folder: Path) -> None:
    """Write every generated page. A page that did not change is left alone, so that Sphinx need not read it again."""
    folder.mkdir(exist_ok=True)
    texts = {**commands.pages(), **statements.pages(), **coverage.pages(), **notebooks.pages()}
    texts |= gallery.pages(folder / "gallery")
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
