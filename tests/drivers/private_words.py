"""Words that only Calipers used, where people read them: README, docs, help, messages, reports and their data files.

    python tests/drivers/private_words.py

prints a line for each, with its place and what the field says instead, and ends with status 1 if there is any. The
glossary lists the words under "Words of earlier releases", which is not searched. Code is not searched either: what
stands in backquotes, blocks of Python and TOML, comments, and docstrings of what the documentation does not show.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("src/calipers", "src/calipers_verify")
DEFINED = "## Words of earlier releases"
# Where the name of the program is explained.
NAMED = "as calipers hold a thing between two jaws"

PRIVATE = {
    r"jaws?": "upper bound, lower bound",
    r"strikes?": "threshold e^epsilon of the hockey-stick divergence",
    r"ladders?|rungs?": "multi-resolution grid, level",
    r"told|telling": "revealed, given, distinguished",
    r"dealt": "allocated",
    r"(?:loud|faint)(?:er|ly|ness)?": "low noise, high noise",
    r"lone": "single",
    r"beside": "joint release, additional query; next to, in addition to",
    r"left over|leav(?:e|es|ing) (?:an? \w+ |nothing )?over": "remainder",
    r"cells? of controls": "the adversary's dynamic program",
    r"hidden (?:terms?|sums?)|worst terms?": "worst-case term, worst-case sum",
    r"(?<!collection\s)exposures?": "sampler analysis, composition factor",
    r"scenes?": "attack description",
    r"switching": "adaptive sign attack",
    r"charged (?:upward|to whom|to the)|what is charged|every charge": "added to the upper bound",
    r"usual (?:claims?|accounting)|accounting as usual": "standard accounting (Poisson)",
    r"brackets? (?:is|are|stays?|that is) (?:open|closed)|(?:bracket|release|pair|gap)s? closes?"
    r"|closes the (?:bracket|gap)|(?:open|closed) brackets?": "the bounds do not meet, agree to x %",
    r"licens(?:es|ed|ing)|licen[cs]e (?:every|each|the|a|it)": "the proof or attack behind a number",
    r"laws?(?! of (?:large|total|the iterated))": "distribution; privacy loss distribution",
    r"in the isolation of|noisy sums released in total": "number of optimizer steps",
}
WORDS = {
    # A line may break between two words.
    re.compile(rf"(?<![\w`./-])(?:{form.replace(' ', chr(92) + 's+')})(?![\w`/-]|\.\w)", re.IGNORECASE): said
    for form, said in PRIVATE.items()
}
# What holds none of these holds no private word: most texts are passed over at once.
ANY = re.compile("|".join(form.replace(" ", r"\s+") for form in PRIVATE), re.IGNORECASE)

# `code`, which a line may break, but not the fences of a block.
QUOTED = re.compile(r"(?<!`)(`{1,2})(?!`)(?:(?!\n\n)[^`])+\1(?!`)")
CODE_BLOCK = re.compile(
    r"^(```+)(?:python|toml|json|\{code-block\}|\{literalinclude\}|\{eval-rst\}).*?^\1", re.M | re.S
)
# Names of classes are not read by people.
MARKUP = re.compile(r"<(?:path|svg|g|text|rect|line|circle|a|span|div)\b[^>]*(?:>|$)")
# Where the software's own names stand in links: [text](explanation/name.md).
TARGET = re.compile(r"\]\([^)]*\)")


@dataclass(frozen=True)
class Found:
    """A private word, where it stands, and what to say instead."""

    place: str
    line: int
    word: str
    instead: str
    around: str

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.word!r} ({self.instead}): {self.around}"


def blank(found: re.Match[str]) -> str:
    """As many lines of nothing, so that line numbers stay."""
    return "\n" * found[0].count("\n")


def found_in(text: str, place: str, first_line: int = 1) -> Iterator[Found]:
    """Every private word of a text; what stands in backquotes is code."""
    if not ANY.search(text):
        return
    text = MARKUP.sub(blank, text)
    text = QUOTED.sub(lambda quoted: re.sub(r"[^\n]", "`", quoted[0]), text)
    for form, instead in WORDS.items():
        for word in form.finditer(text):
            around = " ".join(text[max(0, word.start() - 50) : word.end() + 40].split())
            yield Found(place, first_line + text.count("\n", 0, word.start()), word[0], instead, around)


def of_page(path: Path) -> Iterator[Found]:
    """A Markdown page without its code and the glossary's list of old words."""
    text = path.read_text("utf-8")
    if path.name == "glossary.md":
        before, heading, after = text.partition(DEFINED)
        rest = re.search(r"^## ", after, re.M)
        hidden = heading + (after[: rest.start()] if rest else after)
        text = before + "\n" * hidden.count("\n") + (after[rest.start() :] if rest else "")
    text = text.replace(NAMED, "")
    text = TARGET.sub("]", CODE_BLOCK.sub(blank, text))
    yield from found_in(text, str(path.relative_to(ROOT)))


def of_code(path: Path) -> Iterator[Found]:
    """The sentences in a Python file: string constants with a space that are not docstrings, which are for readers of
    code; what the reference shows of them is searched with it.
    """
    tree = ast.parse(path.read_text("utf-8"))
    loose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    place = str(path.relative_to(ROOT))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in loose:
            continue
        # "Run | Selection" is a type.
        if " " in node.value.strip() and " | " not in node.value:
            yield from found_in(node.value, place, node.lineno)


def of_data(path: Path) -> Iterator[Found]:
    """The sentences in TOML, JSON, HTML and JavaScript: what stands in quotes, or between tags."""
    text = path.read_text("utf-8")
    place = str(path.relative_to(ROOT))
    if path.suffix == ".html":
        yield from found_in(re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", blank, text, flags=re.S), place)
        return
    pattern = (
        r'"""(?:.*?)"""|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`'
        if path.suffix != ".js"
        else (r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')
    )
    for quoted in re.finditer(pattern, text, re.S):
        if " " in quoted[0]:
            yield from found_in(quoted[0].strip('"`'), place, 1 + text.count("\n", 0, quoted.start()))


def of_help() -> Iterator[Found]:
    """What `--help` of the program and of each command prints."""
    import click

    from calipers.cli import main

    top = click.Context(main, info_name="calipers")
    yield from found_in(main.get_help(top), "calipers --help")
    for name in main.list_commands(top):
        command = main.get_command(top, name)
        assert command is not None
        printed = command.get_help(click.Context(command, info_name=name, parent=top))
        yield from found_in(printed, f"calipers {name} --help")


def of_reference() -> Iterator[Found]:
    """The docstrings that the reference of the Python interface shows."""
    import inspect
    from importlib import import_module

    page = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    for name, rest in re.findall(r"^\.\. auto\w+:: ([\w.]+).*\n((?:   :.*\n)*)", page, re.M):
        parts = name.split(".")
        owner: object = import_module(parts[0])
        for index, part in enumerate(parts[1:], start=2):
            owner = getattr(owner, part, None) or import_module(".".join(parts[:index]))
        yield from found_in(inspect.getdoc(owner) or "", f"docstring of {name}")
        members = re.search(r":members:(.*)", rest)
        for member in [] if members is None else members[1].replace(",", " ").split() or public(owner):
            yield from found_in(inspect.getdoc(getattr(owner, member)) or "", f"docstring of {name}.{member}")


def public(owner: object) -> list[str]:
    """The names that a class itself defines for others."""
    return [name for name in vars(owner) if not name.startswith("_")]


def of_pages() -> Iterator[Found]:
    """README and the documentation."""
    yield from of_page(ROOT / "README.md")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "generated" not in page.parts:
            yield from of_page(page)
    for kept in sorted((ROOT / "docs" / "gallery").glob("*.json")):
        yield from of_data(kept)


def of_messages() -> Iterator[Found]:
    """What the program may print or write: messages, reports, the explorer, statements of theorems."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".py":
                yield from of_code(path)
            elif path.suffix in (".toml", ".json", ".html", ".js"):
                yield from of_data(path)
            elif path.suffix == ".md" and path.name != "README.md":  # those of folders name the files in them
                yield from of_page(path)


REPORTED = (
    "--sample-rate 0.01 --steps 100 --noise-multiplier 1",
    "--dataset-size 1005 --batch-size 100 --epochs 2 --noise-multiplier 2 --sampler shuffle --last-batch drop",
    "--dataset-size 1000 --batch-size 100 --epochs 2 --noise-multiplier 2 --normalization floor --dimension 10",
    "--guarantee 2,1e-5",
)


def of_reports() -> Iterator[Found]:
    """Whole reports of a few runs: on the terminal, as HTML and as Markdown."""
    from click.testing import CliRunner

    from calipers.cli import main

    with tempfile.TemporaryDirectory() as folder:
        for run in REPORTED:
            files = [Path(folder, f"report{ending}") for ending in (".html", ".md")]
            for file in files:
                done = CliRunner().invoke(main, ["measure", *run.split(), "--explain", "--report", str(file)])
                assert done.exit_code == 0, done.output
                yield from found_in(done.stdout, f"calipers measure {run} --explain")
            page = re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", blank, files[0].read_text("utf-8"), flags=re.S)
            yield from found_in(page, f"report.html of {run}")
            yield from found_in(files[1].read_text("utf-8"), f"report.md of {run}")


def everywhere() -> list[Found]:
    """All of them."""
    return [*of_pages(), *of_help(), *of_reference(), *of_messages(), *of_reports()]


def main() -> int:
    """Print them and how many there are."""
    found = everywhere()
    for one in found:
        print(one)
    print(f"{len(found)} private words" if found else "No private word.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
