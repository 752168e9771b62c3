"""The floors of the house, as written in pyproject.toml, hold for the source as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with the repository's contracts over the package found in `source`."""
    command = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    return subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module", autouse=True)
def _import_linter() -> None:
    pytest.importorskip("importlinter", reason="import-linter comes with the group dev; `make layers` runs it always")


def test_every_room_imports_only_from_the_floors_below() -> None:
    """All contracts of [tool.importlinter] are kept."""
    result = lint_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("room", "line", "contract"),
    [
        ("errors", "import calipers.bracket", "floors below it"),
        ("domains", "import calipers.citations", "floors below it"),
        ("bracket", "import calipers", "imports the facade"),
        ("bracket", "def f():\n    import torch", "Foreign libraries"),
        ("numerics", "import matplotlib.pyplot", "Foreign libraries"),
    ],
)
def test_the_contracts_reject_a_named_wrong_import(room: str, line: str, contract: str, tmp_path: Path) -> None:
    """A package with one forbidden import breaks the contract that forbids it: the check has teeth."""
    package = tmp_path / "calipers"
    package.mkdir()
    for name in ("__init__", "__main__", "_version", "bracket", "citations", "domains", "errors", "numerics"):
        (package / f"{name}.py").write_text("", encoding="utf-8")
    (package / f"{room}.py").write_text(line + "\n", encoding="utf-8")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    broken = [row for row in result.stdout.splitlines() if row.rstrip().endswith("BROKEN")]
    assert len(broken) == 1
    assert contract in broken[0]
