"""The example repository: its own CI script passes as it is, and fails when its loader shuffles."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.opacus


def play(folder: Path) -> subprocess.CompletedProcess[str]:
    """ci.sh as a person runs it; the plugin is named only where this installation does not register it."""
    known = importlib.metadata.entry_points(group="pytest11", name="calipers")
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTEST_ADDOPTS": "" if known else "-p calipers.pytest_plugin",
        "PYTHONWARNINGS": "ignore",
    }
    return subprocess.run([str(folder / "ci.sh")], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / "gated", tmp_path / "project"))


def test_the_script_passes_as_it_is(project: Path) -> None:
    """Poisson sampling keeps the budget, in the test and in the receipt of the training."""
    result = play(project)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "within the budget" in result.stdout
    record = json.loads((project / "run.receipt.json").read_text())
    assert record["executed"]["how"] == "attached"
    facts = {one["fact"]: one["value"] for one in record["executed"]["facts"]}
    assert (facts["sampler"], facts["steps"], facts["clipping norm"], facts["divisor"]) == ("poisson", 55, 1.0, "none")
    assert {"torch", "opacus"} <= set(record["libraries"]["training"])
    assert "epsilon_at_most" in result.stdout


def test_the_script_fails_when_the_loader_shuffles(project: Path) -> None:
    """One word in the training, nothing else: an attack exceeds the budget, and nothing is trained."""
    script = project / "train.py"
    text = script.read_text()
    assert text.count("POISSON_SAMPLING = True") == 1
    script.write_text(text.replace("POISSON_SAMPLING = True", "POISSON_SAMPLING = False"))
    result = play(project)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "is exceeded: an explicit attack shows" in result.stdout
    assert 'sampler = "shuffle"' in result.stdout
    assert not (project / "run.receipt.json").exists()
