"""The numbers in README's and the docs' sentences are those that the commands print, to the last digit.

Examples are compared by `test_docs_examples`. Here are brackets in running text and tables: each has a line in
`said_numbers.toml` that says how it is measured, and a bracket without one fails.
"""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.numerics.decimals import ceil_digits, floor_digits

ROOT = Path(__file__).parents[2]
SAID = tomllib.loads((Path(__file__).parent / "said_numbers.toml").read_text("utf-8"))
PAGES = SAID["pages"]
BRACKET = re.compile(r"\[(?=[^\]]*\.)\d+\.?\d*, \d+\.?\d*\]")
DECIMAL = re.compile(r"\d+\.\d+")


def prose(page: str) -> str:
    """The page without its code blocks, whose numbers are compared elsewhere."""
    return re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)


def near(printed: str) -> list[str]:
    """The number, and those beside it: processors round exp differently, and bounds are rounded outward after that."""
    last = Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent))
    return [f"{(Decimal(printed) + step * last).normalize():f}" for step in (0, -1, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("row", SAID["bracket"], ids=lambda row: row["said"])
def test_a_bracket_in_a_sentence_is_the_one_measured(row: dict[str, str]) -> None:
    """Rounded outward as everywhere, and none is left from an older engine."""
    result = CliRunner().invoke(main, ["measure", *row["measured"].split(), "--json"])
    assert result.exit_code == 0, result.stderr
    measured = json.loads(result.stdout)["epsilon"][0]
    lows, highs = near(floor_digits(measured["lower"])), near(ceil_digits(measured["upper"]))
    assert row["said"] in {f"[{low}, {high}]" for low in lows for high in highs}, (lows[0], highs[0])


@pytest.mark.parametrize("page", PAGES)
def test_every_bracket_in_a_sentence_is_measured_by_a_test(page: str) -> None:
    """Its line says how."""
    listed = {row["said"] for row in SAID["bracket"]}
    assert {found[0] for found in BRACKET.finditer(prose(page))} <= listed


def test_every_line_is_said_somewhere() -> None:
    """No line outlives its sentence."""
    texts = " ".join(prose(page) for page in PAGES)
    assert [row["said"] for row in SAID["bracket"] if row["said"] not in texts] == []


@pytest.mark.slow
def test_the_pictures_of_the_documentation_show_the_numbers_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they showed is kept beside them; `docs/_generate/pictures.py --documentation` takes them anew."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    pictures = importlib.import_module("_generate.pictures")
    kept = json.loads((ROOT / "docs" / "_static" / "pictures.json").read_text("utf-8"))
    today = pictures.printed()
    assert set(kept) == set(today) | {"sha256"}
    for name, sentences in today.items():
        for what, sentence in sentences.items():
            assert DECIMAL.sub("#", kept[name][what]) == DECIMAL.sub("#", sentence)
            for one, other in zip(DECIMAL.findall(kept[name][what]), DECIMAL.findall(sentence), strict=True):
                assert other in near(one)


def test_the_numbers_that_are_kept_belong_to_these_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of the script takes the pictures and writes down what they show."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    kept = json.loads((ROOT / "docs" / "_static" / "pictures.json").read_text("utf-8"))
    assert {"sha256": kept["sha256"]} == importlib.import_module("_generate.pictures").taken()


def test_the_drawing_of_the_swap_names_the_sections_that_prove_it() -> None:
    """Those with a dropped remainder and with every record used."""
    drawing = (ROOT / "docs" / "_static" / "swap.svg").read_text("utf-8")
    headings = (ROOT / "docs" / "theory" / "shuffling.md").read_text("utf-8")
    named = dict(re.findall(r"Section (\d+): ([\w ]+)", drawing))
    assert named == {"8": "a remainder is dropped", "9": "every record is used"}
    assert re.search(r"^## 8\. Shuffled batches with a dropped remainder", headings, flags=re.M)
    assert re.search(r"^## 9\. Shuffled batches without a remainder", headings, flags=re.M)


def test_the_readme_has_at_most_700_words() -> None:
    """A stranger reads it to the end."""
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 700
