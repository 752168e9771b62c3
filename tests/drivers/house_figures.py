"""Figures of the source: how much the next reader has to know.

Prints a table of what is in ``src/calipers`` now, and checks nothing: the figures are signs, not the aim::

    PYTHONPATH=src OMP_NUM_THREADS=1 python tests/drivers/house_figures.py     # or: make house

`--circles` and `--types` list what is counted; `--constants` lists every chosen number of `pld` with its value and its
effect, as its docstring says it.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "calipers"
INNER = ("pld", "measure", "samplers")
"""The rooms whose mathematics a successor has to read."""
CACHES = ("lru_cache", "cache")
"""Decorators that keep answers for the whole process."""
OWNED = ("kept", "memoize", "cached_property")
"""Decorators whose answers live as long as the object they are about."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One file of the package: its dotted name and its syntax tree."""

    def __init__(self, path: Path) -> None:
        self.path, text = path, path.read_text("utf-8")
        self.lines, self.tree = len(text.splitlines()), ast.parse(text)
        relative = path.relative_to(SOURCE.parent).with_suffix("")
        self.name = ".".join(relative.parts).removesuffix(".__init__")
        self.room = path.relative_to(SOURCE).parts[0]

    def functions(self) -> Iterator[Function]:
        """Functions and methods."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def chosen(self) -> list[tuple[list[str], str, str]]:
        """Assignments of numbers to names in capitals: the names, the value, and the docstring that follows."""
        found = []
        for node, after in zip(self.tree.body, [*self.tree.body[1:], None], strict=True):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            leaves = [leaf for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)]
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)]
            names = [name for name in names if name.isupper()]
            if names and any(type(leaf.value) in (int, float) for leaf in leaves):
                documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                said = " ".join(str(after.value.value).split()) if documented else ""  # type: ignore[union-attr]
                found.append((names, ast.unparse(node.value), said))
        return found

    def constants(self) -> list[str]:
        """Names in capitals that the module gives numbers, or collections of numbers, each name counted."""
        return [name for names, _, _ in self.chosen() for name in names]

    def decorated(self, wanted: tuple[str, ...], methods_too: bool = True) -> int:
        """How many functions have such a decorator."""
        places = self.functions() if methods_too else (node for node in self.tree.body if isinstance(node, Function))
        return sum(
            any(ast.unparse(decorator).split("(")[0].split(".")[-1] in wanted for decorator in node.decorator_list)
            for node in places
        )

    def mutable(self) -> list[str]:
        """Empty collections at module level: something will be put there."""
        return [
            ast.unparse(node)
            for node in self.tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and node.value is not None
            and ast.unparse(node.value).split("(")[0]
            in ("{}", "[]", "dict", "list", "set", "OrderedDict", "defaultdict")
            and not any(isinstance(leaf, ast.Constant) for leaf in ast.walk(node.value))
        ]

    def documented(self) -> tuple[int, int]:
        """(public functions that say what they take and give back, public functions with arguments)."""
        public = [node for node in self.functions() if not node.name.startswith("_") and node.args.args]
        said = [node for node in public if "Returns:" in (ast.get_docstring(node) or "")]
        return len(said), len(public)


def modules() -> list[Module]:
    """All files of the package."""
    return [Module(path) for path in sorted(SOURCE.rglob("*.py"))]


def imported(module: Module, known: set[str]) -> set[str]:
    """The files of the package that a file imports anywhere, those only for types included."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def circles(listed: list[Module]) -> list[str]:
    """Pairs of files that import each other."""
    known = {module.name for module in listed}
    edges = {module.name: imported(module, known) for module in listed}
    return sorted(f"{a} <-> {b}" for a in edges for b in edges[a] if a < b and a in edges[b])


def repeated_types(listed: list[Module]) -> dict[str, list[str]]:
    """Classes and aliases in capitals whose name is defined in several files."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in listed:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(module.name)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id.lstrip("_")
                alias = isinstance(node.value, ast.Subscript) and name[:1].isupper() and not name.isupper()
                if alias:
                    found[name].append(module.name)
    return {name: sorted(places) for name, places in sorted(found.items()) if len(set(places)) > 1}


def passed(keys: dict[str, object]) -> tuple[int, int]:
    """(files that a number passes, deepest stack) between `measure(run)` and epsilon(1e-5)."""
    from calipers.measure import measure
    from calipers.run import Run

    files, deepest = set(), 0

    def seen(frame: FrameType, event: str, _: object) -> None:
        nonlocal deepest
        if event != "call" or not frame.f_code.co_filename.startswith(str(SOURCE)):
            return
        files.add(frame.f_code.co_filename)
        depth, back = 0, frame
        while back is not None:
            depth += back.f_code.co_filename.startswith(str(SOURCE))
            back = back.f_back
        deepest = max(deepest, depth)

    run = Run(**keys)  # type: ignore[arg-type]
    sys.setprofile(seen)
    try:
        measure(run).epsilon(1e-5)
    finally:
        sys.setprofile(None)
    return len(files), deepest


def table(listed: list[Module]) -> list[tuple[str, object]]:
    """What is printed."""
    lines: dict[str, int] = defaultdict(int)
    for module in listed:
        lines[module.room] += module.lines
    laws = [module for module in listed if module.room == "pld"]
    inner = [module for module in listed if module.room in INNER]
    floats = sum(
        isinstance(node, ast.Constant) and type(node.value) is float for m in laws for node in ast.walk(m.tree)
    )
    searches = [f for m in listed if m.room in (*INNER, "curves") for f in m.functions() if f.name == "epsilon"]
    said, public = (sum(column) for column in zip(*(m.documented() for m in inner), strict=True))
    mnist = {"dataset_size": 60_000, "batch_size": 256, "noise_multiplier": 1.1}
    poisson = passed({**mnist, "epochs": 60})
    shuffled = passed({**mnist, "epochs": 10, "sampler": "shuffle", "adjacency": "zero-out"})
    return [
        ("lines of src/calipers", sum(lines.values())),
        ("lines of pld + measure + samplers", sum(lines[room] for room in INNER)),
        *((f"  {room}", lines[room]) for room in INNER),
        ("files a number passes, Poisson / shuffled", f"{poisson[0]} / {shuffled[0]}"),
        ("deepest stack, Poisson / shuffled", f"{poisson[1]} / {shuffled[1]}"),
        ("named numeric constants in pld", sum(len(m.constants()) for m in laws)),
        ("floats in pld", floats),
        ("functions cached for the process: src / pld", _both(listed, laws, CACHES)),
        ("methods cached with their object: src / pld", _both(listed, laws, OWNED)),
        ("collections filled at module level in pld", sum(len(m.mutable()) for m in laws)),
        ("functions called epsilon in pld, measure, samplers, curves", len(searches)),
        ("type names defined more than once", len(repeated_types(listed))),
        ("import circles (pairs of files)", len(circles(listed))),
        ("public functions with Returns in pld, measure, samplers", f"{said} of {public}"),
        ("folders of src/calipers with a README", len(list(SOURCE.rglob("README.md")))),
    ]


def _both(listed: list[Module], laws: list[Module], wanted: tuple[str, ...]) -> str:
    return " / ".join(str(sum(module.decorated(wanted) for module in some)) for some in (listed, laws))


def main() -> None:
    """Print the table, or what is counted in it."""
    options = argparse.ArgumentParser(description="figures of the source")
    for name in ("circles", "types", "constants"):
        options.add_argument(f"--{name}", action="store_true")
    chosen, listed = options.parse_args(), modules()
    if chosen.circles:
        print("\n".join(circles(listed)))
    if chosen.types:
        print("\n".join(f"{name}: {', '.join(places)}" for name, places in repeated_types(listed).items()))
    if chosen.constants:
        for module in listed:
            if module.room == "pld" and module.constants():
                print(f"{module.name}")
                for names, value, effect in module.chosen():
                    print(f"  {', '.join(names)} = {value[:60]}: {effect}")
    if not (chosen.circles or chosen.types or chosen.constants):
        for label, value in table(listed):
            print(f"| {label} | {value} |")


if __name__ == "__main__":
    main()
