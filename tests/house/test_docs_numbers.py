"""Every decimal number in the sentences and tables of the documentation is accounted for, one by one.

`docs_numbers.toml` has a table for each page. Every number outside of code is in it once:

- `given`: what somebody chose (noise, rates, confidence), a version, a theorem's number, a constant of a proof;
- `compared`: what `calipers measure` answers, which a test here asks for again and compares to the last digit;
- `certified`: what `calipers certify` states, digit by digit, and how much larger that is than what is measured;
- `tested`: a number that a test or a record of the repository holds in the same digits, whose file is named;
- `cited`: somebody else's number, with its source;
- `observed`: seen with a library or on a machine that a test cannot ask; by which script or file, or how.

A number that is not there fails; so does a line that no page needs any longer. Brackets of pages that
`said_numbers.toml` lists are compared by `test_readme_numbers`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import tomllib
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calipers.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.parts)
KEPT: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "docs_numbers.toml").read_text("utf-8"))
SAID = tomllib.loads((Path(__file__).parent / "said_numbers.toml").read_text("utf-8"))
NUMBER = re.compile(r"(?<![\w./^_])(?<!\w-)\d[\d,]*\.\d+(?:e[+-]?\d+)?(?!\w|\.\d)")
BRACKET = re.compile(r"\[(?=[^\]]*\.)\d+\.?\d*, \d+\.?\d*\]")
NO_PROSE = re.compile(r"^```.*?^```|\$\$.*?\$\$|`[^`\n]*`|\$[^$\n]*\$|(?<=\])\([^)\n]*\)", re.M | re.S)
KINDS = {"given", "compared", "certified", "tested", "cited", "observed"}
CERTIFIED = [(page, row) for page, kept in KEPT.items() for row in kept.get("certified", [])]
COMPARED = [(page, row) for page, kept in KEPT.items() for row in kept.get("compared", [])]


def numbers(page: str) -> set[str]:
    """Every decimal number in the page's text, without code, formulas and links."""
    text = NO_PROSE.sub(" ", (ROOT / "docs" / page).read_text("utf-8"))
    if f"docs/{page}" in SAID["pages"]:
        text = BRACKET.sub(" ", text)
    return set(NUMBER.findall(text))


def listed(kept: dict[str, Any]) -> list[str]:
    """The numbers of a page's table."""
    rows = [row for kind in sorted(KINDS - {"given"}) for row in kept.get(kind, [])]
    over = [row["over"] for row in rows if "over" in row]
    return [*kept.get("given", []), *over, *(number for row in rows for number in row["said"])]


def shown(said: str, lower: float, upper: float) -> bool:
    """Whether a bound rounds to what is said, outward or to the nearest; five digits may differ by one in the last."""
    last = Decimal(1).scaleb(int(Decimal(said).as_tuple().exponent))
    ends = [(lower, ROUND_FLOOR), (upper, ROUND_CEILING), (lower, ROUND_HALF_EVEN), (upper, ROUND_HALF_EVEN)]
    found = [Decimal(end).quantize(last, way) for end, way in ends if math.isfinite(end)]
    slack = last if len(said.replace(".", "").lstrip("0")) > 4 else 0
    return any(abs(Decimal(said) - value) <= slack for value in found)


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT / "docs")) for page in PAGES])
def test_every_number_of_a_page_is_accounted_for(page: str) -> None:
    assert numbers(page) == set(listed(KEPT.get(page, {})))


@pytest.mark.parametrize("page", sorted(KEPT))
def test_every_line_is_about_a_page_and_names_its_source(page: str) -> None:
    """A file that holds a number holds it in these digits."""
    kept = KEPT[page]
    assert (ROOT / "docs" / page).is_file()
    assert set(kept) <= KINDS
    for row in kept.get("tested", []):
        held = (ROOT / row["by"]).read_text("utf-8")
        assert [said for said in row["said"] if said not in held] == []
    for row in (*kept.get("cited", []), *kept.get("observed", [])):
        assert row["by"]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "row"), COMPARED, ids=[f"{page}-{row['said'][0]}" for page, row in COMPARED])
def test_a_number_in_a_sentence_is_what_the_program_answers(page: str, row: dict[str, Any]) -> None:
    """Epsilon of a run that `calipers measure` describes, both ends of which may be said."""
    result = CliRunner().invoke(main, ["measure", *row["measured"].split(), "--json"])
    assert result.exit_code == 0, result.stderr
    measured = json.loads(result.stdout)["epsilon"][0]
    wrong = [said for said in row["said"] if not shown(said, measured["lower"], measured["upper"])]
    assert not wrong, (wrong, measured["lower"], measured["upper"])


@pytest.mark.slow
@pytest.mark.parametrize(("page", "row"), CERTIFIED, ids=[row["said"][1] for _, row in CERTIFIED])
def test_a_certified_number_in_a_table_is_what_is_certified(page: str, row: dict[str, Any], tmp_path: Path) -> None:
    """All seven digits, give or take the last one, and the quotient to its last digit."""
    pytest.importorskip("flint")
    place = str(tmp_path / "run.cert.json")
    result = CliRunner().invoke(main, ["certify", *row["certified"].split(), "-o", place])
    assert result.exit_code == 0, result.stderr
    found = {claim["jaw"]: claim["epsilon"] for claim in json.loads(Path(place).read_text("utf-8"))["claims"]}
    for said, certified in zip(row["said"], (found["lower"], found["upper"]), strict=True):
        assert abs(Decimal(said) - Decimal(certified)) <= Decimal(1).scaleb(int(Decimal(certified).as_tuple().exponent))
    measured = CliRunner().invoke(main, ["measure", *row["certified"].split(), "--json"])
    quotient = float(found["upper"]) / json.loads(measured.stdout)["epsilon"][0]["upper"]
    assert shown(row["over"], quotient, quotient), quotient


@pytest.mark.parametrize(
    ("said", "lower", "upper", "right"),
    [
        ("1.83", 1.8271, 1.8283, True),
        ("1.8283", 1.8271, 1.82824, True),
        ("1.8285", 1.8271, 1.82824, False),
        ("1.84", 1.8271, 1.8283, False),
        ("14.7", 14.698, 14.706, True),
        ("11.675", 11.45, 11.593, False),
        ("11.6", 11.45, math.inf, False),
    ],
)
def test_what_rounds_to_a_number(said: str, lower: float, upper: float, right: bool) -> None:
    assert shown(said, lower, upper) is right


def test_the_speeds_of_training_are_those_that_were_saved() -> None:
    """Every cell of the table, and the shares of compiled SGD in its order, from the stretches that were measured."""
    page = (ROOT / "docs" / "howto" / "train.md").read_text("utf-8")
    saved = json.loads((ROOT / "benchmarks" / "results" / "training.json").read_text("utf-8"))
    of_compiled = []
    for case in saved["cases"]:
        speed = {who: statistics.median(found["stretches"]) for who, found in case["speeds"].items()}
        cells = [f"{median:,.0f} ({median / speed['plain SGD']:.2f})" for median in speed.values()]
        assert f"| {case['model']}, {case['batch']:,} | {' | '.join(cells)} |" in page
        of_compiled.append(f"{speed['Calipers, poisson'] / speed['compiled SGD']:.2f}")
    assert "reach {} (small CNN), {} (ResNet-18), {} (ViT-Tiny) and {} (Transformer-Tiny)".format(*of_compiled) in page
