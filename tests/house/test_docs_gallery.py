"""The gallery shows every item of every paper: quick ones computed, slow ones as kept, figures with their picture."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from pathlib import Path

import pytest
from oracles.page_numbers import numbers_in, plain, prose, stated

from calipers.errors import InputError
from calipers.papers import registry
from calipers.papers.items import Item, Row
from calipers.papers.registry import list_items

DOCS = Path(__file__).parents[2] / "docs"
PAPERS = DOCS.parent / "src" / "calipers" / "papers"
SLOW = [item for item in list_items() if item.cost == "slow"]
LARGEST_PICTURE = 100_000
# One of each paper that is computed again, chosen for its time: a few seconds each, and no other library.
# Numbers of remarks that follow from others, by an expression, or that a file of the repository holds.
FOLLOWS = {
    ("chua2024-figure-4", "16"): 100 * (0.03455 / 0.0297767 - 1),
    ("vandijk2026-settings", "2729"): 2730 - 1,
    ("vandijk2026-settings", "11.4"): 10 * 1.140369,
    ("vandijk2026-settings", "2735"): 273_500 / 100,
    ("vandijk2026-settings", "418"): 1_140_369 / 2730,
    ("vandijk2026-table-1", "21"): 21,  # the number of an equation
    ("wang2026-figure-3-normality", "9.2"): math.log(10_000),
    ("wang2026-figure-3", "7.8"): math.log(2_500),
    ("wang2026-figure-7", "701"): 700 + 1,
    ("ertan2026-figure-1", "5.2"): 5.2,  # the number of a definition
    ("ertan2026-figure-2", "0.4085"): 1 / math.sqrt(2 * math.log(20)),
    ("ertan2026-model-sizes", "7.7"): 30_000 * 256 / 1e6,
}
HELD = {
    ("chua2024-figure-5", "1.652"): "tests/papers/test_papers_chua2024.py",
    ("gomez2025-table-1", "64"): "src/calipers/papers/gomez2025/settings.py",
    ("wang2026-statements", "2.5"): "src/calipers/papers/wang2026/items.toml",
}
AGAIN = ("gomez2025-rule-of-thumb", "chua2024-figure-5", "ertan2026-table-3", "vandijk2026-table-1")


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch):
    """The modules that write the pages."""
    monkeypatch.syspath_prepend(str(DOCS))
    return lambda name: importlib.import_module(f"_generate.{name}")


def sections(pages: dict[str, str]) -> dict[str, str]:
    """What the gallery says of each item, by the name in its command."""
    found = {}
    for text in pages.values():
        for section in re.split(r"^## ", text, flags=re.M)[1:]:
            name = re.search(r"calipers reproduce ([\w-]+)", section)
            assert name, section[:200]
            found[name[1]] = section
    return found


def pictures(section: str) -> list[str]:
    return re.findall(r"!\[.*?\]\((\S+)\)", section)


def is_figure(item: Item) -> bool:
    return "-figure-" in item.name


@pytest.mark.parametrize("item", SLOW, ids=lambda item: item.name)
def test_every_slow_item_is_kept_whole(item: Item, generate) -> None:
    """Rows, how it was made, and for a figure a picture of moderate size."""
    result, made = generate("kept").read_kept(item.name)
    assert result.rows
    assert made.command.endswith(f"calipers reproduce {item.name}")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", made.date)
    assert ("opacus" in made.libraries) is item.name.endswith("-opacus")
    drawn = [path for path in result.files if path.suffix == ".png"]
    assert len(drawn) == 1 or not is_figure(item)
    assert all(path.stat().st_size < LARGEST_PICTURE for path in drawn)


def test_the_folder_holds_what_is_registered_and_nothing_else(generate) -> None:
    """A result whose item is gone, or a file that no result names, is dead weight."""
    kept = generate("kept")
    named = {path.name for item in SLOW for path in kept.read_kept(item.name)[0].files}
    assert {path.name for path in kept.FOLDER.iterdir()} == named


def test_slow_items_are_shown_from_what_is_kept(tmp_path: Path, generate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every item has its section; a slow figure has a picture that exists, and says when and by what it was made."""
    monkeypatch.setenv("CALIPERS_GALLERY", "none")
    shown = sections(generate("gallery").pages(tmp_path))
    assert set(shown) == {item.name for item in list_items()}
    for item in SLOW:
        assert "A kept result" in shown[item.name]
        assert bool(pictures(shown[item.name])) or not is_figure(item)
        for picture in pictures(shown[item.name]):
            assert (DOCS / "generated" / picture).resolve().is_file()


def test_a_slow_item_that_is_not_kept_fails_the_build(
    tmp_path: Path, generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure that is registered and not kept cannot be left out silently."""
    kept, gallery = generate("kept"), generate("gallery")
    shutil.copytree(kept.FOLDER, tmp_path / "gallery")
    (tmp_path / "gallery" / "chua2024-figure-4.png").unlink()
    monkeypatch.setenv("CALIPERS_GALLERY", "none")
    monkeypatch.setattr(gallery, "read_kept", lambda name: kept.read_kept(name, tmp_path / "gallery"))
    with pytest.raises(InputError, match="chua2024-figure-4"):
        gallery.pages(tmp_path)


def test_what_is_kept_can_be_read_back(tmp_path: Path, generate) -> None:
    """Keeping an item leaves its rows, its data and a smaller picture of the same size."""
    from PIL import Image

    kept = generate("kept")
    kept.keep("gomez2025-figure-6", tmp_path / "gallery")
    registry.reproduce("gomez2025-figure-6", tmp_path / "full")
    full = registry.load("gomez2025-figure-6", tmp_path / "full")
    result, made = kept.read_kept("gomez2025-figure-6", tmp_path / "gallery")
    assert (result.rows, result.remarks) == (full.rows, full.remarks)
    assert made.command == "calipers reproduce gomez2025-figure-6"
    small, large = (tmp_path / place / "gomez2025-figure-6.png" for place in ("gallery", "full"))
    assert small.stat().st_size < large.stat().st_size / 2
    with Image.open(small) as one, Image.open(large) as other:
        assert one.size == other.size


@pytest.mark.slow
@pytest.mark.parametrize("name", AGAIN)
def test_what_is_kept_is_what_comes_out(name: str, tmp_path: Path, generate) -> None:
    """Computed again, every row says the same: same quantity, same verdict, brackets that share a value."""
    result, _ = generate("kept").read_kept(name)
    registry.reproduce(name, tmp_path)
    again = registry.load(name, tmp_path)
    assert [(row.quantity, row.published, row.verdict) for row in again.rows] == [
        (row.quantity, row.published, row.verdict) for row in result.rows
    ]
    assert all(map(overlap, again.rows, result.rows))


def overlap(one: Row, other: Row) -> bool:
    """Whether the brackets meet, up to what rounding on another machine does to a closed form."""
    apart = max(one.lower, other.lower) - min(one.upper, other.upper)
    return apart <= 1e-9 * max(1.0, abs(one.lower), abs(other.lower))


@pytest.mark.slow
def test_every_figure_has_its_picture(tmp_path: Path, generate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gallery as `make docs` builds it: each registered figure is there with a picture that exists."""
    monkeypatch.setenv("CALIPERS_GALLERY", "quick")
    shown = sections(generate("gallery").pages(tmp_path / "gallery"))
    assert set(shown) == {item.name for item in list_items()}
    for item in list_items():
        assert bool(pictures(shown[item.name])) or not is_figure(item), item.name
        if item.cost == "quick":
            assert all((tmp_path / picture).is_file() for picture in pictures(shown[item.name]))


def unexplained(name: str, remarks: list[str], files: list[Path]) -> list[str]:
    """Numbers of two digits or more in an item's remarks that no result or published value rounds to."""
    texts = [(PAPERS / name.partition("-")[0] / "published.toml").read_text("utf-8")]
    for file in files:
        text = file.read_text("utf-8") if file.suffix in (".json", ".csv") else ""
        if file.suffix == ".json":
            text = json.dumps({key: value for key, value in json.loads(text).items() if key != "remarks"})
        texts.append(text.replace(",", " ") if file.suffix == ".csv" else text)
    known = [Decimal(number) for text in texts for number in numbers_in(text)]
    found = []
    for remark in remarks:
        words = prose(remark)
        numbers = (plain(words[start:end]) for start, end in stated(remark))
        found += [
            one for one in numbers if len(one.replace(".", "").lstrip("0")) > 1 and not explained(name, one, known)
        ]
    return found


def explained(name: str, number: str, known: list[Decimal]) -> bool:
    """Whether it is a rounding of something known, follows from it, or is held elsewhere in these digits."""
    if (name, number) in HELD:
        return number in {
            one.removesuffix(".0") for one in numbers_in((DOCS.parent / HELD[name, number]).read_text("utf-8"))
        }
    value = Decimal(number)
    last = Decimal(1).scaleb(int(value.as_tuple().exponent))
    if (name, number) in FOLLOWS:
        return Decimal(FOLLOWS[name, number]).quantize(last, ROUND_HALF_EVEN) == value
    ways = (ROUND_HALF_EVEN, ROUND_FLOOR, ROUND_CEILING)
    return any(one.quantize(last, way) == value for one in known if one <= 2 * value for way in ways)


@pytest.mark.parametrize("item", SLOW, ids=lambda item: item.name)
def test_numbers_in_remarks_are_among_what_is_kept(item: Item, generate) -> None:
    """Remarks are written by hand; a number in them that no result has is an old one."""
    result, _ = generate("kept").read_kept(item.name)
    files = [generate("kept").FOLDER / f"{item.name}.json", *result.files]
    assert unexplained(item.name, result.remarks, files) == []


@pytest.mark.slow
@pytest.mark.parametrize("item", [item for item in list_items() if item.cost == "quick"], ids=lambda item: item.name)
def test_numbers_in_remarks_are_among_what_is_computed(item: Item, tmp_path: Path) -> None:
    """The same of items that are computed when the documentation is built."""
    registry.reproduce(item.name, tmp_path)
    remarks = list(registry.load(item.name, tmp_path).remarks)
    templates = numbers_in((PAPERS / item.name.partition("-")[0] / "items.toml").read_text("utf-8"))
    left = unexplained(item.name, remarks, sorted(tmp_path.iterdir()))
    assert [number for number in left if number in templates] == []  # the others are written by the program
