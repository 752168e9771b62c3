"""The gallery: what `calipers reproduce` makes of the papers, every item of it.

Quick items are computed while the documentation is built; what an earlier build of the same version left in
`generated/` is shown again, and removing that folder computes it anew. Slow items are shown from the results that are
kept in the repository (see `_generate.kept`), each with the command that made it; one that is not kept fails the build.
CALIPERS_GALLERY=none computes nothing, for a quick look at the text.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from _generate.kept import Made, read_kept
from _generate.text import paper_heading, plain, short_authors
from calipers.citations import SOURCES
from calipers.cli.reproduce import difference, ours
from calipers.errors import InputError
from calipers.papers.items import Agreement, Item, Row
from calipers.papers.registry import finished, list_items, load, reproduce
from calipers.papers.storage import Result

INTRODUCTION = """# Gallery

Tables, figures and quoted numbers of the papers, computed again. Each item shows the picture and, beside every
number the paper prints, the bracket that Calipers gets. *Agrees* means that every value of the bracket rounds to the
printed number, *differs* that none does, *undecided* that some do. "≈" marks an estimate; its note is among the files
under the picture.

Most items were computed when this page was built. Those that take minutes, or another library, were computed once and
kept; they say so, with command, version and date.
"""


def pages(folder: Path) -> dict[str, str]:
    """gallery.md and one page for each paper; pictures and data go to `folder`."""
    choice = os.environ.get("CALIPERS_GALLERY", "quick")
    if choice not in ("quick", "none"):
        raise InputError(f"Expected CALIPERS_GALLERY to be quick or none, got {choice!r}.")
    items = list_items()
    computed = sorted(item.name for item in items if choice == "quick" and item.cost == "quick")
    _compute(computed, folder)
    by_source: dict[str, list[Item]] = {}
    for item in items:
        by_source.setdefault(item.source, []).append(item)
    found = {f"gallery-{key}.md": _paper(key, members, computed, folder) for key, members in by_source.items()}
    contents = "\n".join(["```{toctree}", ":maxdepth: 2", "", *(name.removesuffix(".md") for name in found), "```", ""])
    small = ["::::{container} thumbnails", "", *_thumbnails(items, computed, folder), "::::", ""]
    return {"gallery.md": "\n".join([INTRODUCTION, *small, contents]), **found}


def _thumbnails(items: tuple[Item, ...], computed: list[str], folder: Path) -> Iterator[str]:
    """Every picture in small, a link to the page of its paper."""
    for item in items:
        kept = item.cost == "slow"
        if not kept and item.name not in computed:
            continue
        result, place = (read_kept(item.name)[0], "../gallery") if kept else (load(item.name, folder), "gallery")
        if f"{item.name}.png" not in [path.name for path in result.files]:
            continue
        source = SOURCES[item.source]
        named = f"{short_authors(source)} ({source.year}), {plain(item.place)}"
        yield (
            f"```{{figure}} {place}/{item.name}.png\n:alt: {item.place}: {plain(item.title)}\n"
            f":target: gallery-{item.source}.html\n\n{named}\n```\n"
        )


def _compute(names: list[str], folder: Path) -> None:
    """Compute what the folder does not hold yet, on two processors."""
    missing = [name for name in names if not finished(name, folder)]
    if missing:
        from joblib import Parallel, delayed

        Parallel(n_jobs=min(2, os.cpu_count() or 1), batch_size=1)(delayed(reproduce)(name, folder) for name in missing)


def _paper(key: str, items: list[Item], computed: list[str], folder: Path) -> str:
    parts = [paper_heading(SOURCES[key])]
    for item in items:
        if item.cost == "slow":
            result, made = read_kept(item.name)
            parts += _item(item, result, "../gallery", _kept_note(result, made))
        elif item.name in computed:
            note = f"`calipers reproduce {item.name}` computes it again."
            parts += _item(item, load(item.name, folder), "gallery", note)
        else:
            parts.append(f"{_heading(item)}\nNot computed: `calipers reproduce {item.name}` does it.\n")
    return "\n".join(parts)


def _heading(item: Item) -> str:
    return f"## {plain(item.place)}: {plain(item.title)}\n\n{plain(item.reproduces)}\n"


def _kept_note(result: Result, made: Made) -> str:
    return (
        f"A kept result: `{made.command}` made it on {made.date} with Calipers {result.version} ({made.libraries}) "
        "and makes it again."
    )


def _item(item: Item, result: Result, place: str, note: str) -> Iterator[str]:
    """Heading, picture, how many numbers agree, where the result comes from, its files, remarks and rows."""
    yield _heading(item)
    files = [path.name for path in result.files]
    if f"{item.name}.png" in files:
        yield f"![{item.place}: {plain(item.title)}]({place}/{item.name}.png)\n"
    links = [f"{{download}}`{name} <{place}/{name}>`" for name in files if not name.endswith(".png")]
    yield f"{_counted(result.rows)} {note}\n\nFiles: {', '.join(links)}\n"
    yield from (f"- {plain(remark)}" for remark in result.remarks)
    yield ""
    compared = [row for row in result.rows if row.published is not None]
    if compared:
        yield '<details class="rows"><summary>Number by number</summary>\n'
        yield "| quantity | printed | ours | difference | |\n|---|---|---|---|---|"
        yield from (_cells(row) for row in compared)
        yield "\n</details>\n"


def _counted(rows: tuple[Row, ...]) -> str:
    counts = Counter(row.verdict for row in rows)
    printed = sum(count for verdict, count in counts.items() if verdict is not Agreement.NOT_PRINTED)
    if not printed:
        return "The paper prints no number of this one."
    words = {Agreement.AGREES: "agree", Agreement.DIFFERS: "differ", Agreement.UNDECIDED: "undecided"}
    parts = [f"{counts[verdict]} {word}" for verdict, word in words.items() if counts[verdict]]
    return f"Printed numbers compared: {printed} ({', '.join(parts)})."


def _cells(row: Row) -> str:
    assert row.published is not None
    cells = (row.quantity, row.published.text, ours(row), difference(row), row.verdict.value)
    return "| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |"
