"""Without Flower, pfl or NVFlare the adapters say what to install, and importing them needs none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calipers.adapters.flower import read_local, read_strategy
from calipers.adapters.flower_target import FlowerTarget
from calipers.adapters.flower_watch import watch
from calipers.adapters.nvflare import read_filter, read_ledger
from calipers.adapters.pfl import read_backend
from calipers.adapters.pfl_target import PflTarget
from calipers.adapters.pfl_watch import watch as watch_pfl
from calipers.errors import MissingExtraError


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("flower", lambda: read_strategy(object(), clients=10, rounds=3)),
        ("flower", lambda: read_local(object(), rounds=3)),
        ("flower", lambda: watch(object())),
        ("flower", lambda: FlowerTarget().name),
        ("pfl", lambda: read_backend(object(), cohort_size=10, rounds=3)),
        ("pfl", lambda: watch_pfl(object())),
        ("pfl", lambda: PflTarget().name),
        ("nvflare", lambda: read_filter(object(), parameters=10, messages=1)),
        ("nvflare", lambda: read_ledger(object())),
    ],
)
def test_a_missing_library_is_named_with_the_line_to_type(library, use, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("flwr", "pfl", "nvflare")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "pfl", None)
    monkeypatch.setitem(sys.modules, "nvflare", None)
    with pytest.raises(MissingExtraError, match=rf"pip install '\.\[{library}\]'"):
        use()


def test_importing_the_adapters_loads_neither() -> None:
    program = (
        "import sys, calipers.adapters.flower_accountant, calipers.adapters.pfl_target, calipers.adapters.nvflare\n"
        "print([name for name in ('flwr', 'pfl', 'nvflare', 'torch', 'opacus') if name in sys.modules])"
    )
    source = str(Path(__file__).parents[2] / "src")
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "[]"
