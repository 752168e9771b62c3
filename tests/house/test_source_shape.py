"""The shape of the source: short files, short functions, docstrings, one spelling, one word per thing.

Each rule is a function from a syntax tree to the offences it holds; it is shown once a text that offends.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivers.house_figures import modules

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "calipers"
FILES = sorted(SOURCE.rglob("*.py"))

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70

Function = ast.FunctionDef | ast.AsyncFunctionDef

BRITISH = re.compile(
    r"(normalis|discretis|optimis|minimis|maximis|randomis|quantis|summaris|initialis|parametris|realis(e|ed|ation)(_|$)"
    r"|neighbour|behaviour|colour|centre(_|$)|licence)",
    re.IGNORECASE,
)

# The word on the right is the one DESIGN chose; rooms that face foreign code must use foreign names.
ONE_WORD = {
    "noise_mult": "noise_multiplier",
    "noise_scale": "noise_multiplier",
    "sampling_rate": "sample_rate",
    "sampling_probability": "sample_rate",
    "sampling_prob": "sample_rate",
    "subsampling_rate": "sample_rate",
    "num_steps": "steps",
    "n_steps": "steps",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "batchsize": "batch_size",
    "clip_norm": "max_grad_norm",
    "clipping_norm": "max_grad_norm",
    "eps": "epsilon",
    "random_state": "rng",
}
FOREIGN_ROOMS = {"adapters", "training"}


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def long_functions(tree: ast.AST) -> list[str]:
    """Functions that span more lines, decorators and docstring excluded, than allowed.

    A kernel of Triton names all that it is compiled for, a line each, and these lines are not counted.
    """
    found = []
    for node in functions(tree):
        body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
        compiled = any("constexpr" in ast.unparse(arg.annotation) for arg in node.args.args if arg.annotation)
        header = 1 if compiled else node.body[0].lineno - node.lineno
        length = header + (body[-1].end_lineno or 0) - body[0].lineno + 1
        if length > MAX_FUNCTION_LINES:
            found.append(f"{node.name}: {length} lines")
    return found


def without_docstring(tree: ast.AST) -> list[str]:
    """Public modules, classes, functions and methods without a docstring (dunder methods need none)."""
    found = [] if ast.get_docstring(tree) else ["module"]  # type: ignore[arg-type]

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If | ast.Try):
                visit(child, prefix)
            if not isinstance(child, ast.ClassDef | Function) or child.name.startswith("_"):
                continue
            overload = any("overload" in ast.unparse(decorator) for decorator in child.decorator_list)
            if not ast.get_docstring(child) and not overload:
                found.append(prefix + child.name)
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")

    visit(tree, "")
    return found


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name the module writes, plus option strings like '--normalization'."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.ClassDef | Function):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"--[a-z-]+", node.value):
            yield node.value


def british_identifiers(tree: ast.AST) -> list[str]:
    """Identifiers in British spelling: code is written the American way, prose as its author likes."""
    return sorted({name for name in identifiers(tree) if BRITISH.search(name)})


def second_words(tree: ast.AST) -> list[str]:
    """Public parameters that use another word than the one chosen for the thing."""
    found = []
    for node in functions(tree):
        if node.name.startswith("_"):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        found += [f"{node.name}({a.arg}): say {ONE_WORD[a.arg]}" for a in arguments if a.arg in ONE_WORD]
    return found


def unsorted_all(tree: ast.AST) -> list[str]:
    """`__all__` lists out of order, in the order ruff keeps: CONSTANTS, Classes, then the rest, each by name.

    Names that another table of the module lists (`*TABLE`) are in that table's order.
    """
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or "__all__" not in [ast.unparse(target) for target in node.targets]:
            continue
        assert isinstance(node.value, ast.List)
        names = [ast.literal_eval(name) for name in node.value.elts if not isinstance(name, ast.Starred)]
        order = sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))
        if list(names) != order or len(set(names)) != len(names):
            found.append(f"__all__ should be {order}")
    return found


def unfinished(text: str) -> list[str]:
    """Marks of unfinished work, whole words only."""
    return re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b|\bNotImplementedError\b", text)


RULES: list[tuple[Callable[[ast.AST], list[str]], str, str]] = [
    (long_functions, "def f():\n" + "    x = 1\n" * 80, "def f():\n    '''" + "a\n" * 80 + "'''\n    return 1"),
    (without_docstring, "'''M.'''\nclass A:\n    '''A.'''\n    def b(self): ...", "'''M.'''\ndef _a(): ..."),
    (british_identifiers, "def f(normalisation): ...", "def f(normalization): 'normalisation'"),
    (second_words, "def f(noise_scale): ...", "def f(noise_multiplier): ..."),
    (unsorted_all, "__all__ = ['b', 'a']", "__all__ = ['LIMIT', 'Bracket', 'audit']"),
]
RULE_NAMES = [rule.__name__ for rule, _, _ in RULES]


@pytest.mark.parametrize(("rule", "bad", "good"), RULES, ids=RULE_NAMES)
def test_each_rule_rejects_a_bad_text_and_accepts_a_good_one(
    rule: Callable[[ast.AST], list[str]], bad: str, good: str
) -> None:
    """A rule that finds nothing anywhere would pass forever."""
    assert rule(ast.parse(bad))
    assert not rule(ast.parse(good))


@pytest.mark.parametrize("rule", [rule for rule, _, _ in RULES], ids=RULE_NAMES)
def test_the_source_keeps_the_rule(rule: Callable[[ast.AST], list[str]]) -> None:
    """No file under src offends."""
    offences = {}
    for path in FILES:
        room = path.relative_to(SOURCE).parts[0]
        if rule is second_words and room in FOREIGN_ROOMS:
            continue
        if found := rule(ast.parse(path.read_text("utf-8"))):
            offences[str(path.relative_to(SOURCE))] = found
    assert offences == {}


def test_there_is_a_source_to_look_at() -> None:
    """The rules above see the real package."""
    assert SOURCE / "bracket.py" in FILES


def test_files_are_short() -> None:
    """No file has more than 400 lines."""
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_file_is_called_utils() -> None:
    """A name that fits everything tells nothing."""
    vague = re.compile(r"^_?(utils?|helpers?|misc|common)$")
    assert [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if vague.match(path.stem)] == []


def test_nothing_is_left_unfinished() -> None:
    """No marks of unfinished work in the source."""
    found = {str(path.relative_to(SOURCE)): marks for path in FILES if (marks := unfinished(path.read_text("utf-8")))}
    assert found == {}
    assert unfinished("# TODO: later") == ["TODO"]


def test_test_files_have_unique_names() -> None:
    """Two test files of one name would be told apart only by their folder in every failure message."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_chosen_number_says_its_effect() -> None:
    """`house_figures.py --constants` lists them with it."""
    silent = [f"{m.name}: {', '.join(names)}" for m in modules() for names, _, effect in m.chosen() if not effect]
    assert not [line for line in silent if line.startswith("calipers.pld.")]
