"""Every example in the documentation runs, and every number it shows is the one that comes out.

A page is played from top to bottom in an empty folder: `{code-block}`s with a caption become files of that name, Python
blocks are executed in one namespace, and commands (`$ calipers ...`) run in this process. Output is compared word by
word, and every number to its last digit, give or take one: processors round exp differently, and bounds are rounded
outward after that. "..." stands for anything. A line `% needs: opacus` before a block means that
it runs only beside that library.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import json
import re
import shlex
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from oracles.json_schema import complaints

from calipers.cli import main
from calipers.reports.schema import schema_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "generated" not in page.parts]

FENCE = re.compile(
    r"^(?:% needs: (?P<needs>[\w, ]+)\n)?(?P<ticks>```+)(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=ticks)[ ]*$",
    re.M | re.S,
)
RUN = {"python", "pycon", "console"}
SHOWN = {"bash", "toml", "json", "text"}
# What a page may need, and the marker of the tests that have it.
MARKERS = {
    "opacus": pytest.mark.opacus,
    "torch": pytest.mark.torch,
    "jax_privacy": pytest.mark.jax_privacy,
    "dp_accounting": pytest.mark.dp_accounting,
    "flwr": pytest.mark.flower,
    "pfl": pytest.mark.pfl,
    "nvflare": pytest.mark.nvflare,
}
FOREIGN = pytest.mark.filterwarnings("ignore")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file it is to be saved as, what it needs, and its text."""

    language: str
    text: str
    caption: str | None = None
    needs: frozenset[str] = frozenset()


def blocks(markdown: str) -> Iterator[Block]:
    """The code blocks of a page in order; directives that hold no code are left out."""
    for found in FENCE.finditer(markdown):
        language, body, caption = found["language"].strip(), found["body"], None
        if language.startswith("{code-block}"):
            language = language.removeprefix("{code-block}").strip()
            option, _, body = body.partition("\n\n")
            caption = option.removeprefix(":caption:").strip()
        elif language.startswith("{"):
            continue
        needs = frozenset(word.strip() for word in (found["needs"] or "").split(",") if word.strip())
        yield Block(language, body, caption, needs)


def split_words(text: str) -> list[str]:
    """Words; rules drawn in tables count as one sign each, however long."""
    return [re.sub("─+", "─", word) for word in text.split()]


def agrees(shown: str, printed: str) -> bool:
    """Whether the printed text is what is shown, "..." standing for any words."""
    pieces: list[list[str]] = [[]]
    for word in split_words(shown):
        if word == "...":
            pieces.append([])
        else:
            pieces[-1].append(word)
    words = split_words(printed)
    if len(pieces) == 1:
        return len(words) == len(pieces[0]) and matches(pieces[0], words, 0)
    if not matches(pieces[0], words, 0):
        return False
    place = len(pieces[0])
    for piece in pieces[1:-1]:
        starts = [start for start in range(place, len(words)) if matches(piece, words, start)]
        if not starts:
            return False
        place = starts[0] + len(piece)
    last = len(words) - len(pieces[-1])
    return last >= place and matches(pieces[-1], words, last)


def matches(piece: list[str], words: list[str], start: int) -> bool:
    part = words[start : start + len(piece)]
    return len(part) == len(piece) and all(map(same, piece, part))


DECIMAL = re.compile(r"\d+\.\d+(?:e-?\d+)?|\d+e-?\d+|\d+")


def same(shown: str, printed: str) -> bool:
    """Whether two words are one, or differ by one in the last digit of a number that is not whole."""
    if shown == printed:
        return True
    first, second = DECIMAL.findall(shown), DECIMAL.findall(printed)
    if DECIMAL.sub("#", shown) != DECIMAL.sub("#", printed) or not any("." in one for one in first + second):
        return False
    for one, other in zip(map(Decimal, first), map(Decimal, second), strict=True):
        last = min(one.as_tuple().exponent, other.as_tuple().exponent)
        if abs(one - other) > Decimal(1).scaleb(last):
            return False
    return True


class Checker(doctest.OutputChecker):
    """Doctest's comparison, by words and digits."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return agrees(want, got)


@dataclass
class Player:
    """A page being played in the current folder."""

    page: str
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    played: int = 0

    def play(self, block: Block) -> None:
        self.played += 1
        if block.caption is not None:
            Path(block.caption).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, f"{self.page}, block {self.played}", "exec"), self.names)
        elif block.language == "pycon":
            self._session(block.text)
        elif block.language == "console":
            for command, shown in commands(block.text):
                self._command(command, shown)

    def _session(self, text: str) -> None:
        test = doctest.DocTestParser().get_doctest(text, {}, self.page, None, None)
        assert test.examples
        test.globs = self.names
        report = io.StringIO()
        runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
        failed, _ = runner.run(test, out=report.write, clear_globs=False)
        assert not failed, report.getvalue()

    def _command(self, command: str, shown: str) -> None:
        program, *arguments = shlex.split(command)
        assert program == "calipers"
        result = CliRunner().invoke(main, arguments)
        raised = "".join(traceback.format_exception(result.exception)) if result.exception else ""
        assert result.exit_code == 0, f"{command}\n{result.stderr}\n{raised}"
        assert agrees(shown, result.stdout), f"{command}\nshown:\n{shown}\nprinted:\n{result.stdout}"


def commands(text: str) -> list[tuple[str, str]]:
    """(command, what is shown after it) for each `$ ...` line, continuations joined."""
    parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.M)
    assert not parts[0].strip(), "a console block starts with a command"
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts[1:]]


@contextlib.contextmanager
def empty_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in the folder; modules that were imported from it are forgotten afterwards."""
    path, known = list(sys.path), set(sys.modules)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def played() -> list[object]:
    """A test for each page, and one more for each library that some of its blocks need."""
    found: list[object] = []
    for page in PAGES:
        listed = list(blocks(page.read_text("utf-8")))
        wanted = sorted({block.needs for block in listed}, key=sorted)
        name = str(page.relative_to(DOCS))
        for needs in wanted if listed else []:
            if any(block.needs <= needs and block.language in RUN for block in listed):
                # What other libraries warn of is theirs to mend.
                marks = [MARKERS[library] for library in needs] + [FOREIGN] * bool(needs)
                found.append(pytest.param(page, needs, id=" with ".join([name, *sorted(needs)]), marks=marks))
    return found


@pytest.mark.parametrize(("page", "needs"), played())
def test_examples_are_true(page: Path, needs: frozenset[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example of the page runs and shows what comes out."""
    for library in needs:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"needs {library}")
    player = Player(str(page.relative_to(ROOT)))
    with empty_folder(tmp_path, monkeypatch):
        for block in blocks(page.read_text("utf-8")):
            if block.needs <= needs:
                player.play(block)
    assert player.played


def test_the_commands_that_the_readme_shows_print_what_it_shows() -> None:
    """Its other commands are typed by `tests/cli/test_first_five_minutes.py`."""
    player = Player("README.md")
    for block in blocks((ROOT / "README.md").read_text("utf-8")):
        if block.language == "console":
            player.play(block)
    assert player.played


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_block_is_either_run_or_not_code(page: Path) -> None:
    """A block has a language that is run, or one that is only shown; a shown one holds no `calipers` command."""
    for block in blocks(page.read_text("utf-8")):
        assert block.language in RUN | SHOWN or not block.language
        assert block.needs <= set(MARKERS)
        if block.language == "bash":
            assert not re.search(r"^(\$ )?calipers ", block.text, flags=re.M)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("epsilon 1.8282", "epsilon   1.8282", True),
        ("epsilon 1.83", "epsilon 1.8282", False),
        ("epsilon 1.8282", "epsilon 1.8283", True),
        ("epsilon 1.8282", "epsilon 1.8284", False),
        ("[1.6999, 1.7007]", "[1.7, 1.7007]", True),
        ("[1.6999, 1.7007]", "[1.7009, 1.7007]", False),
        ("[1.827, 1.828]", "[1.8271, 1.8283]", False),
        ("1,000 steps", "1,001 steps", False),
        ("at delta = 1e-5", "at delta = 1e-6", False),
        ("a ... d", "a b c d", True),
        ("a ... d", "a b c", False),
        ("... b", "a b c", False),
        ("──── x", "─ x", True),
    ],
)
def test_words_and_numbers_are_compared_exactly(shown: str, printed: str, same: bool) -> None:
    """A shorter number is another one; spaces, the length of a rule and one in the last digit do not count."""
    assert agrees(shown, printed) is same


@pytest.mark.parametrize(
    "options",
    [
        "--sample-rate 0.01 --steps 100 --noise-multiplier 1 --epsilon 1",
        "--sample-rate 0.1 --epochs 1 --noise-multiplier 2 --sampler shuffle --epsilon 1",
        "--sample-rate 1 --steps 1 --noise-multiplier 1 --adjacency substitute",
    ],
)
def test_the_published_schema_describes_what_is_printed(options: str) -> None:
    """`measure --json` prints an object of the schema that is shipped, and the schema refuses another."""
    schema = schema_of("measure")
    result = CliRunner().invoke(main, ["measure", *options.split(), "--json"])
    record = json.loads(result.stdout)
    assert complaints(record, schema, schema) == []
    del record["gdp"]["regret"]
    record["epsilon"][0]["lower"] = "much"
    assert len(complaints(record, schema, schema)) == 2


def test_generated_pages_leave_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command and statement has its place, and the examples on generated pages are true."""
    monkeypatch.syspath_prepend(str(DOCS))
    commands_page, statements = (importlib.import_module(f"_generate.{name}") for name in ("commands", "statements"))
    from calipers.citations import STATEMENTS

    written = commands_page.pages()["commands.md"]
    assert all(f"## calipers {name}\n" in written for name in main.list_commands(click.Context(main)))
    written = statements.pages()["theorems.md"]
    assert sum(line.startswith(": ") for line in written.splitlines()) == len(STATEMENTS)
    for block in blocks(statements.INTRODUCTION):
        Player("theorems").play(block)
    from calipers.papers.coverage import coverage

    written = importlib.import_module("_generate.coverage").pages()["coverage.md"]
    assert all(f"| {row.place} |" in written for row in coverage())
    assert written.count("\n| ") == len(coverage()) + written.count("\n| place |")


NEIGHBORS = re.compile("neighbour", re.IGNORECASE)


def test_neighbors_are_spelled_one_way() -> None:
    """What people read says "neighbors" everywhere: pages, messages, docstrings."""
    assert NEIGHBORS.search("Neighbours differ by one record.")
    endings = {".py", ".md", ".html", ".js", ".json", ".toml"}
    files = [file for place in ("src", "docs", "examples") for file in (ROOT / place).rglob("*")]
    files += ROOT.glob("*.md")
    assert [
        str(file.relative_to(ROOT))
        for file in files
        if file.suffix in endings and "generated" not in file.parts and NEIGHBORS.search(file.read_text("utf-8"))
    ] == []


def test_the_first_page_leads_everywhere() -> None:
    """Every page is linked from the index, in its text and in its contents; generated pages included."""
    text = (DOCS / "index.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([\w/-]+)\.md\)", text))
    listed = {line for block in re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.S) for line in block.split()}
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES} - {"index"}
    generated = {f"generated/{name}" for name in ("commands", "theorems", "gallery", "coverage")}
    generated |= {f"generated/notebook-{path.stem}" for path in (DOCS / "notebooks").glob("*.ipynb")}
    assert linked == pages | generated
    assert pages | generated <= listed
