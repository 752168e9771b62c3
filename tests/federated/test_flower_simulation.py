"""The example with a dozen clients: Flower's own simulation, from the first round to the bracket."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower comes with the extra flower; run with `make test-federated`")
pytest.importorskip("ray", reason="Flower's simulation needs Ray: pip install 'flwr[simulation]'")
ROOT = Path(__file__).parents[2]


@pytest.mark.flower
@pytest.mark.slow
def test_the_simulation_ends_with_its_bracket(tmp_path) -> None:
    """Ten rounds of 4 of 12 clients, noise 2: measured as executed, confirmed by its receipt."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "federated" / "flower_simulation.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.splitlines()
    assert "clients connected: [12]" in printed
    assert "rounds released: 10" in printed
    assert "epsilon at delta = 0.01 for one client, add-remove: [3.5282, 3.5303]" in printed
    assert printed[-1].startswith("receipt: confirmed")
