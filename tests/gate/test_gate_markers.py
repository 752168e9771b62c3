"""A marker of the pytest plugin may be stricter than the budget of its project, as a run file may, and never looser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = """
import pytest
from calipers.run import Run

RUN = Run(sample_rate=0.01, steps=3, noise_multiplier=2.0)
"""
TEST = """
@pytest.mark.calipers(as_executed=True, {options})
def test_{name}(calipers_gate):
    calipers_gate.declare(RUN)
"""
PROJECT = "[tool.calipers]\nepsilon = 3\ndelta = 1e-6\nadjacency = 'add-remove'\n"
LOOSER = {
    "epsilon": "epsilon=30",
    "delta": "delta=1e-5",
    "both": "epsilon=30, delta=1e-7",
    "adjacency": "adjacency='zero-out'",
    "view": "view='isolated'",
}
STRICTER = {
    "epsilon": "epsilon=1",
    "same": "epsilon=3, delta=1e-6",
    "named": "adjacency='add_remove', view='worst-case'",
}


def outcomes(folder: Path, project: str, tests: dict[str, str], run: str = "RUN") -> tuple[dict[str, str], str]:
    """What became of each test, and all that pytest said."""
    (folder / "pyproject.toml").write_text(project)
    marked = "".join(TEST.format(name=name, options=given) for name, given in tests.items())
    suite = f"{HEAD}RUN = {run}\n{marked}"
    (folder / "test_privacy.py").write_text(suite)
    here = {"PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "calipers.pytest_plugin", "-rA"]
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **here}, capture_output=True, text=True, check=False
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::test_(\w+)", result.stdout, flags=re.M)
    return {name: word for word, name in found}, " ".join(result.stdout.split())


def test_a_marker_cannot_loosen_the_budget_of_its_project(tmp_path: Path) -> None:
    """epsilon=30 in the marker passed where pyproject.toml says 3."""
    found, said = outcomes(tmp_path, PROJECT, LOOSER)
    assert found == dict.fromkeys(LOOSER, "ERROR"), said
    assert (
        "test_epsilon: the marker allows epsilon up to 30, and the project's budget in pyproject.toml up to 3" in said
    )
    assert "A marker may only be stricter" in said
    assert "the marker says adjacency = 'zero-out', but the budget is given elsewhere" in said
    assert "the marker says view = 'isolated', but the budget is given elsewhere" in said


def test_a_marker_may_be_stricter_or_stand_alone(tmp_path: Path) -> None:
    """Also where there is no project's budget, and then it says everything."""
    assert outcomes(tmp_path, PROJECT, STRICTER)[0] == dict.fromkeys(STRICTER, "PASSED")
    alone = {"alone": "epsilon=30, delta=1e-5, adjacency='add-remove'"}
    assert outcomes(tmp_path, "", alone)[0] == {"alone": "PASSED"}


def test_a_pass_under_a_relation_that_nobody_named_says_which(tmp_path: Path) -> None:
    """Shuffled batches were green without a word: for zeroed-out records, where add-remove has no finite epsilon."""
    shuffled = "Run(dataset_size=100, batch_size=10, epochs=2, noise_multiplier=2.0, sampler='shuffle')"
    budget = {"alone": "epsilon=30, delta=1e-5"}
    found, said = outcomes(tmp_path, "", budget, shuffled)
    assert found == {"alone": "PASSED"}
    assert "within the budget, which names no adjacency" in said
    assert "test_alone: Within the budget of epsilon = 30" in said
    assert "so the numbers are for zero-out" in said
    assert "names no adjacency" not in outcomes(tmp_path, "", budget)[1]
