"""Every test runs somewhere regularly: with `make test`, with its library, in the browser, or in a share by commit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from drivers.mutations import table

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def steps() -> dict[str, list[str]]:
    """The tests that each `make` target of CI asks for, as pytest's `-m` reads them."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    default = next(option.removeprefix("-m=") for option in options["addopts"] if option.startswith("-m="))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = {}
    for target in re.findall(r"^step \S+ make (test\S*)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M):
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.M)
        assert recipe, f"the Makefile has no {target}"
        lines = [line for line in recipe[1].splitlines() if "-m pytest" in line]
        choices = [re.search(r'pytest .*?-m ("[^"]*"|\S+)', line) for line in lines]
        found[target] = [choice[1].strip('"') if choice else default for choice in choices]
    return found


def forgotten(marks: dict[str, frozenset[str]], choices: list[str]) -> list[str]:
    """The tests that none of the choices takes."""
    compiled = [Expression.compile(choice) for choice in choices]
    return [
        test
        for test, names in marks.items()
        if not any(choice.evaluate(lambda name, names=names, **_: name in names) for choice in compiled)
    ]


def suite(config: pytest.Config):
    """The suite's own `tests/conftest.py`, which shares the tests out."""
    return next(plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "group_of"))


def test_ci_forgets_no_test(request: pytest.FixtureRequest) -> None:
    """Every test collected beside this one is taken by a step of `.ci/run`."""
    marks = request.config.stash[suite(request.config).MARKS]
    assert request.node.nodeid in marks
    assert forgotten(marks, [choice for choices in steps().values() for choice in choices]) == []


MARKED = [
    frozenset[str](),
    *({name} for name in ("slow", "heavy", "dp_accounting", "opacus", "torch", "dask", "jax_privacy")),
    *({name} for name in ("callbacks", "explorer")),
    *({"slow", name} for name in ("opacus", "torch", "jax_privacy", "callbacks", "explorer", "dp_accounting", "dask")),
    *({name} for name in ("flower", "pfl", "nvflare")),
    *({"slow", name} for name in ("flower", "pfl", "nvflare")),
    {"heavy", "opacus"},
    {"opacus", "jax_privacy"},
]


def test_every_kind_of_test_has_its_step() -> None:
    """Whatever a new test needs, and however long it takes; one step less would lose some."""
    marks = {" ".join(sorted(names)): frozenset(names) for names in MARKED}
    assert forgotten(marks, [choice for choices in steps().values() for choice in choices]) == []
    assert "slow" in forgotten(
        marks, [choice for name, some in steps().items() if name != "test-share" for choice in some]
    )
    assert "" in forgotten(marks, steps()["test-adapters"])


def test_each_slow_test_has_its_turn(request: pytest.FixtureRequest) -> None:
    """The shares are as many as the seeds name, none is empty, and a commit names one of them."""
    found = suite(request.config)
    tests = [f"tests/room/test_file.py::test_{index}" for index in range(200)]
    sizes = [sum(found.group_of(test) == share for test in tests) for share in range(found.SHARES)]
    assert sum(sizes) == len(tests)
    assert min(sizes) > 20
    assert {found.share_of(f"{number:x}") for number in range(50)} == set(range(found.SHARES))
    assert found.share_of("ceffc557aa0b1d9e0c2f6f0f8a6b5d4c3b2a1908") in range(found.SHARES)


EXAMPLE = """
import pytest

def test_quick():
    pass

def test_measured():
    pass

@pytest.mark.slow
def test_marked():
    pass

@pytest.mark.opacus
def test_foreign():
    pass

def test_skipped():
    pytest.skip("no such device")
"""

BUSY = """
import time

def test_busy():
    began = time.process_time()
    while time.process_time() < began + 0.7:
        pass
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository of five tests with this one's settings; one of them was measured at two seconds."""
    for name in ("pyproject.toml", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests" / "test_few.py").write_text(EXAMPLE, encoding="utf-8")
    (tmp_path / "tests" / "durations.txt").write_text("2.0 tests/test_few.py::test_measured\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("parallel", [(), ("-n", "1")], ids=["one-process", "xdist"])
def test_a_run_says_what_it_left_out(small: Path, parallel: tuple[str, ...]) -> None:
    """Slow by its mark, slow as measured, and what needs a library; and the reason of what was skipped."""
    printed = run_pytest(small, *parallel)
    assert "1 passed, 1 skipped" in printed
    assert re.search(r"^ +2 slow: .*make test-share", printed, re.M), printed
    assert re.search(r"^ +1 opacus: .*make test-adapters", printed, re.M), printed
    assert re.search(r"SKIPPED \[1\] .*no such device", printed), printed


def test_durations_are_written_and_what_did_not_run_keeps_its_line(small: Path) -> None:
    """A test that sleeps takes nothing of a core; one that computes does."""
    (small / "tests" / "test_busy.py").write_text(BUSY, encoding="utf-8")
    run_pytest(small, "--write-durations", "tests/durations.txt")
    lines = (small / "tests" / "durations.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"(0\.[789]|1\.\d) tests/test_busy.py::test_busy", lines[0]), lines
    assert lines[1] == "2.0 tests/test_few.py::test_measured"


def run_pytest(folder: Path, *arguments: str) -> str:
    """What a run over the folder prints; it must pass."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_mutation_fits_the_line_it_breaks() -> None:
    """A table that no longer fits the code would be skipped line by line, and nobody would notice."""
    counts = {row.key: (ROOT / "src" / row.file).read_text("utf-8").count(row.old) for row in table()}
    assert {key: count for key, count in counts.items() if count != 1} == {}
