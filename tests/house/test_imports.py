"""`import calipers` stays light: quick, and without the libraries that only some rooms need."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "calipers"

# Too slow to import for a command that answers in a blink, or not a dependency of the core at all.
HEAVY = ("dp_accounting", "fastapi", "jax", "matplotlib", "opacus", "scipy.optimize", "scipy.stats", "torch")

# The best of several runs is the time the work takes; the others measure what else the machine is doing.
ATTEMPTS = 5
IMPORT_SECONDS = 0.5
HELP_SECONDS = 1.0


def run_python(*arguments: str) -> str:
    """Standard output of a fresh interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_import_takes_less_than_half_a_second() -> None:
    """`import calipers`, timed from inside a fresh interpreter."""
    program = "import time; t = time.perf_counter(); import calipers; print(time.perf_counter() - t)"
    best = min(float(run_python("-c", program)) for _ in range(ATTEMPTS))
    assert best < IMPORT_SECONDS


def test_help_answers_in_a_blink() -> None:
    """`calipers --help`, timed from outside, the interpreter's start included."""
    times = []
    for _ in range(ATTEMPTS):
        began = time.perf_counter()
        shown = run_python("-m", "calipers", "--help")
        times.append(time.perf_counter() - began)
        assert "Usage" in shown
    assert min(times) < HELP_SECONDS


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("-c", "import calipers{tail}"), id="import"),
        pytest.param(
            (
                "-c",
                "import calipers.cli\ntry: calipers.cli.main(['--help'])\nexcept SystemExit: pass\nimport sys{tail}",
            ),
            id="help",
        ),
    ],
)
def test_heavy_libraries_stay_out(arguments: tuple[str, str]) -> None:
    """Neither the import nor the help page loads a library of `HEAVY`."""
    tail = f"; import sys; print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    shown = run_python(arguments[0], arguments[1].replace("{tail}", tail))
    assert shown.splitlines()[-1] == "LOADED []"


def imported_names(tree: ast.AST) -> set[str]:
    """Every dotted name the module imports, at any depth, `from a import b` counted as both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def slow_scipy(tree: ast.AST) -> set[str]:
    """Which of scipy.stats and scipy.optimize, or their contents, the module imports."""
    slow = ("scipy.stats", "scipy.optimize")
    return {name for name in imported_names(tree) if name.startswith(slow)}


def test_mathematics_uses_neither_scipy_stats_nor_scipy_optimize() -> None:
    """Only `papers`, which redraws what others computed with them, may import these two.

    And the one-run audit's linear program, inside its function: what the solver finds is computed again.
    """
    found = {
        str(path.relative_to(SOURCE)): names
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] != "papers" and (names := slow_scipy(ast.parse(path.read_text("utf-8"))))
    }
    assert found == {"auditing/one_run_curve.py": {"scipy.optimize"}}


@pytest.mark.parametrize(
    "line",
    ["import scipy.stats", "from scipy import optimize", "def f():\n    from scipy.stats import norm"],
)
def test_the_scipy_rule_sees_every_way_to_import(line: str) -> None:
    """Plain, from-, and function-level imports are all found; scipy.special is not."""
    assert slow_scipy(ast.parse(line))
    assert not slow_scipy(ast.parse("from scipy.special import ndtr"))
