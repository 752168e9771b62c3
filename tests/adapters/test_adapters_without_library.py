"""Without dp-accounting the adapter says what to install, and importing it needs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calipers.adapters import dp_accounting as adapter
from calipers.errors import MissingExtraError
from calipers.run import Run

RUN = Run(sample_rate=0.01, steps=10, noise_multiplier=1.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda: adapter.measurement_of(object()),
        lambda: adapter.event_of(RUN),
        lambda: adapter.neighboring_relation_of(RUN),
    ],
    ids=["measurement_of", "event_of", "neighboring_relation_of"],
)
def test_a_missing_library_is_named_with_the_line_to_type(use: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent dp_accounting is a MissingExtraError, which is an ImportError."""
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert callable(use)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[dp-accounting\]'") as caught:
        use()
    assert isinstance(caught.value, ImportError)


def test_importing_the_adapter_loads_no_foreign_library() -> None:
    """dp_accounting, which brings scipy.stats with it, is imported on first use only."""
    program = (
        "import sys, calipers.adapters.dp_accounting\n"
        "print([m for m in ('dp_accounting', 'attr', 'scipy.stats') if m in sys.modules])"
    )
    source = str(Path(__file__).parents[2] / "src")
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.strip() == "[]"
