"""How long the typical question about every sampler, unit and noise takes: benchmarks/samplers.py lists them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("rich")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.clock import empty_caches
from benchmarks.samplers import ASKED_SECONDS, TYPICAL, answered

_SLOWER = 4.0
"""How much slower than a quiet machine the one that runs this may be."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPICAL)
def test_a_typical_question_is_answered_in_time(name: str) -> None:
    empty_caches()
    before = time.process_time()
    answered(name)
    assert time.process_time() - before < _SLOWER * ASKED_SECONDS
