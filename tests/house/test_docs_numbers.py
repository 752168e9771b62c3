"""Every number that README and the documentation state outside of code is held by something that can fail.

`oracles.page_numbers` finds them: all numbers but those that a few rules recognize as settings and references, and
those that stand in code on the same page. `docs_numbers.toml` has the rest, page by page, each in one of these ways:

- `compared`: what `calipers measure` answers, which a test here asks for again and compares to the last digit;
- `certified`: what `calipers certify` states, digit by digit, and how much larger that is than what is measured;
- `tested`: a number that a test, or the program, holds in the same digits; the file is named;
- `saved`: seen once by a script; a file in `benchmarks/results`, whose first line is the command, has these digits;
- `worked`: follows from other numbers by an expression that is evaluated here;
- `cited`: somebody else's number, with its source.

Sentences in `made` are put together from results that are saved, and must be on the page word by word. A number without
any of these fails; so does a line that no page needs any longer. Brackets of pages that `said_numbers.toml` lists are
compared by `test_readme_numbers`.
"""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from oracles.page_numbers import NUMBER, covered, in_code, numbers_in, plain, prose, stated

from calipers.cli import main

ROOT = Path(__file__).parents[2]
BESIDE = ["README.md", "CONTRIBUTING.md", "tests/MUTATIONS.md", "tests/RANDOM.md"]
PAGES = [*BESIDE, *(str(page.relative_to(ROOT / "docs")) for page in sorted((ROOT / "docs").rglob("*.md")))]
PAGES = [page for page in PAGES if not page.startswith("generated")]
KEPT: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "docs_numbers.toml").read_text("utf-8"))
SAID = tomllib.loads((Path(__file__).parent / "said_numbers.toml").read_text("utf-8"))
BRACKET = re.compile(r"\[(?=[^\]]*\.)\d+\.?\d*, \d+\.?\d*\]")
KINDS = {"compared", "certified", "tested", "saved", "worked", "cited"}
CERTIFIED = [(page, row) for page, kept in KEPT.items() for row in kept.get("certified", [])]
COMPARED = [(page, row) for page, kept in KEPT.items() for row in kept.get("compared", [])]
WORKED = [(page, row) for page, kept in KEPT.items() for row in kept.get("worked", [])]
MATH = {"Phi": statistics.NormalDist().cdf, "exp": math.exp, "log": math.log, "pi": math.pi, "sqrt": math.sqrt}


def place_of(page: str) -> Path:
    """Some pages stand beside the documentation."""
    return ROOT / page if page in BESIDE else ROOT / "docs" / page


def text_of(page: str) -> str:
    """The page without brackets that are compared elsewhere."""
    place = place_of(page)
    text = place.read_text("utf-8")
    if str(place.relative_to(ROOT)) in SAID["pages"]:
        text = BRACKET.sub(lambda found: " " * len(found[0]), text)
    return text


def listed(page: str) -> list[str]:
    """What the page's table holds, number by number and phrase by phrase."""
    rows = [row for kind in sorted(KINDS) for row in KEPT.get(page, {}).get(kind, [])]
    return [*(row["over"] for row in rows if "over" in row), *(said for row in rows for said in row["said"])]


def digits(said: str) -> list[str]:
    """The numbers in a line of the table."""
    return [plain(found) for found in NUMBER.findall(said)]


def shown(said: str, lower: float, upper: float) -> bool:
    """Whether a bound rounds to what is said, outward or to the nearest; five digits may differ by one in the last."""
    last = Decimal(1).scaleb(int(Decimal(said).as_tuple().exponent))
    ends = [(lower, ROUND_FLOOR), (upper, ROUND_CEILING), (lower, ROUND_HALF_EVEN), (upper, ROUND_HALF_EVEN)]
    found = [Decimal(end).quantize(last, way) for end, way in ends if math.isfinite(end)]
    slack = last if len(said.replace(".", "").lstrip("0")) > 4 else 0
    return any(abs(Decimal(said) - value) <= slack for value in found)


def outward(said: str, text: str, lower: float, upper: float) -> bool:
    """Ends of a bracket are rounded away from what lies between, give or take one in the last of five digits."""
    last = Decimal(1).scaleb(int(Decimal(said).as_tuple().exponent))
    slack = last if len(said.replace(".", "").lstrip("0")) > 4 else 0
    is_lower, is_upper = f"[{said}, " in text, f", {said}]" in text
    low, high = Decimal(lower).quantize(last, ROUND_FLOOR), Decimal(upper).quantize(last, ROUND_CEILING)
    return not (is_lower or is_upper) or any(
        abs(Decimal(said) - end) <= slack for end, meant in ((low, is_lower), (high, is_upper)) if meant
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_number_of_a_page_is_accounted_for(page: str) -> None:
    """Each is covered by a line of the table or a sentence made of results, and each line covers one."""
    text = text_of(page)
    found = {said: covered(text, said) for said in (*listed(page), *made(page))}
    assert [said for said, spans in found.items() if not spans] == []
    spans = [span for places in found.values() for span in places]
    words = prose(text)
    left = [one for one in stated(text) if not any(start <= one[0] and one[1] <= end for start, end in spans)]
    assert [words[max(0, start - 40) : end + 20] for start, end in left] == []


@pytest.mark.parametrize("page", sorted(KEPT))
def test_every_line_is_about_a_page_and_names_its_source(page: str) -> None:
    """A file that holds a number holds it in these digits; a saved result may have more of them."""
    kept = KEPT[page]
    assert place_of(page).is_file()
    assert set(kept) <= KINDS
    for row in kept.get("tested", []):
        held = {one.removesuffix(".0") for one in numbers_in((ROOT / row["by"]).read_text("utf-8"))}
        assert [said for said in row["said"] if not {one.removesuffix(".0") for one in digits(said)} <= held] == []
    for row in kept.get("saved", []):
        assert row["by"].startswith("benchmarks/results/")
        saved = [Decimal(one) for one in numbers_in((ROOT / row["by"]).read_text("utf-8"))]
        for number in (one for said in row["said"] for one in digits(said)):
            last = Decimal(1).scaleb(int(Decimal(number).as_tuple().exponent))
            assert any(one.quantize(last, ROUND_HALF_EVEN) == Decimal(number) for one in saved if one < 1e20), number
    assert all(row["by"] for row in kept.get("cited", []))


@pytest.mark.parametrize("saved", sorted((ROOT / "benchmarks" / "results").glob("*.txt")), ids=lambda path: path.stem)
def test_a_saved_result_names_the_script_that_wrote_it(saved: Path) -> None:
    command = saved.read_text("utf-8").partition("\n")[0]
    assert command.startswith("# ")
    assert [word for word in command.split() if word.endswith(".py") and (ROOT / word).is_file()]


@pytest.mark.parametrize(("page", "row"), WORKED, ids=[f"{page}-{row['said'][0]}" for page, row in WORKED])
def test_what_follows_from_other_numbers_follows(page: str, row: dict[str, Any]) -> None:
    """Decimals in the expression are on the page, in text or code."""
    value = eval(row["by"], {"__builtins__": {}}, MATH)
    if isinstance(value, bool):
        assert value
        return
    for number in (one for said in row["said"] for one in digits(said)):
        assert shown(number, value, value), value
    text = place_of(page).read_text("utf-8")
    known = in_code(text) | {plain(one) for one in NUMBER.findall(text)}
    assert {one for one in numbers_in(row["by"]) if "." in one} <= known


def made(page: str) -> Iterator[str]:
    """Sentences of the page on training, from results that are saved."""
    if page != "howto/train.md":
        return
    saved = json.loads((ROOT / "benchmarks" / "results" / "training.json").read_text("utf-8"))
    of_compiled, spread, memory = [], [], defaultdict(list)
    for case in saved["cases"]:
        plain = case["speeds"]["plain SGD"]
        speed, cells = {}, []
        for who, found in case["speeds"].items():
            if found["problem"]:
                cells.append("fails")
                continue
            speed[who] = statistics.median(found["stretches"])
            spread.append((max(found["stretches"]) - min(found["stretches"])) / speed[who])
            memory[who].append(found["memory"] / plain["memory"])
            cells.append(f"{speed[who]:,.0f} ({speed[who] / statistics.median(plain['stretches']):.2f})")
        yield f"| {case['model']}, {case['batch']:,} | {' | '.join(cells)} |"
        of_compiled.append(f"{speed['Calipers, poisson'] / speed['compiled SGD']:.2f}")
    names = "reach {} (small CNN), {} (ResNet-18), {} (ViT-Tiny), {} (Transformer-Tiny) and {} (Transformer-Base)"
    yield names.format(*of_compiled)
    yield f"differed by up to {100 * max(spread):.0f} percent"
    held = {who: f"{min(found):.1f} to {max(found):.1f} times" for who, found in memory.items()}
    yield f"{held['Calipers, shuffle']} for shuffled batches, {held['Calipers, poisson']} for Poisson batches"
    yield f"{held['Opacus, Poisson']} for Opacus"
    (slow,) = json.loads((ROOT / "benchmarks" / "results" / "training-cpu.json").read_text("utf-8"))["cases"]
    took = [slow["records"] / statistics.median(found["stretches"]) for found in slow["speeds"].values()]
    yield "an epoch takes {:.1f} s by Calipers, {:.1f} s with secure noise, {:.1f} s by Opacus,".format(*took)
    yield "{:.1f} s in its ghost mode and {:.1f} s by plain SGD".format(*took[3:])
    cifar, cifar_long, news, news_long = (lost_points(*which) for which in LOST)
    yield f"loses {math.floor(min(cifar))} to {math.ceil(max(cifar))} points of accuracy after ten epochs"
    yield f"and {math.floor(min(cifar_long))} to {math.ceil(max(cifar_long))} after twenty-five"
    yield f"AG News {statistics.fmean(news):.0f} in one epoch and {statistics.fmean(news_long):.0f} in twenty-five"


LOST = (("cifar10", 10), ("cifar10", 25), ("ag-news", 1), ("ag-news", 25))


def lost_points(dataset: str, epochs: int) -> list[float]:
    """What noise costs, in points of accuracy at batches of 512: shuffled, and Poisson."""
    with (ROOT / "src" / "calipers" / "papers" / "ertan2026" / "trained.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["part"], row["batch_size"]) == ("table", "512")]
    found = []
    for sampler in ("shuffle", "poisson"):
        chosen = [
            row for row in rows if (row["dataset"], row["epochs"], row["sampler"]) == (dataset, str(epochs), sampler)
        ]
        clean, noisy = ([float(r["accuracy"]) for r in chosen if r["regime"] == regime] for regime in ("clean", "dp"))
        found.append(100 * (statistics.fmean(clean) - statistics.fmean(noisy)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("page", "row"), COMPARED, ids=[f"{page}-{row['said'][0]}" for page, row in COMPARED])
def test_a_number_in_a_sentence_is_what_the_program_answers(page: str, row: dict[str, Any]) -> None:
    """Epsilon of a run that `calipers measure` describes, both ends of which may be said."""
    result = CliRunner().invoke(main, ["measure", *row["measured"].split(), "--json"])
    assert result.exit_code == 0, result.stderr
    measured = json.loads(result.stdout)["epsilon"][0]
    text, ends = text_of(page), (measured["lower"], measured["upper"])
    numbers = [one for said in row["said"] for one in digits(said)]
    assert [one for one in numbers if not (shown(one, *ends) and outward(one, text, *ends))] == [], ends


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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("In the corpus are 2,100 forged certificates.", ["2,100"]),
        ("It took 53 s and 251 MB, 3 times as long, within 2 % of it.", ["53", "251", "3", "2"]),
        ("39 of the 66 are falsified, 8 in the end.", ["39", "66", "8"]),
        ("The answer is epsilon = 3 and ε = 2.5, or mu = 7.", ["3", "2.5", "7"]),
        ("| one | 12 | 0 |", ["12", "0"]),
        ("N = 60,000, batches of 256, 60 epochs, noise multiplier 1.1 and delta = 1e-5, at 1/234.", []),
        ("## 3. Section 4, Theorem 2.1 (Chua et al. 2024), 2026-11-17, [opacus 80](x), Opacus 1.6", []),
        ("| 1e-3 | in (0, 1] | k > 0, N - 1 |", []),
        ("Falls to 0, and 1 at most.", []),
        ("`--steps 314` takes 314, or 315.", ["315"]),
        ("```text\n314\n```\n314 runs", ["314"]),
    ],
)
def test_which_numbers_are_stated(text: str, found: list[str]) -> None:
    """Results are, settings and references are not."""
    assert [prose(text)[start:end] for start, end in stated(text)] == found


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_states_no_number_that_its_cells_do_not_have(notebook: Path) -> None:
    """Its cells are run, and compared with what is kept, by `make notebooks`."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    words = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    shown = json.dumps([cell for cell in cells if cell["cell_type"] == "code"])
    found = [plain(prose(words)[start:end]) for start, end in stated(words)]
    assert set(found) <= set(numbers_in(shown))


@pytest.mark.parametrize("page", ["README.md", "index.md", "tutorial.md"])
def test_a_new_result_is_noticed(page: str) -> None:
    """A sentence with a count at the end of a page has no line."""
    text = text_of(page) + "\nOf all, 4,711 were wrong.\n"
    assert prose(text)[slice(*stated(text)[-1])] == "4,711"
