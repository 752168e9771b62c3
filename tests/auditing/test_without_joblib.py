"""joblib is no part of the core: one process works without it, several say what to install."""

from __future__ import annotations

import sys

import pytest

from calipers.auditing.audit import audit
from calipers.auditing.builtin import NoisySums
from calipers.auditing.choosing import distinguisher_for
from calipers.errors import MissingExtraError
from calipers.run import Run


@pytest.fixture
def without_joblib(monkeypatch):
    """What an import finds where joblib is not installed."""
    import importlib.util

    for name in [name for name in sys.modules if name.partition(".")[0] == "joblib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "joblib", None)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "joblib" else real(name, *more)
    )


def played(jobs: int):
    target = NoisySums.of_run(Run(dataset_size=5, sample_rate=0.5, steps=1, noise_multiplier=1.0))
    return audit(target, distinguisher_for(target, "auto", seed=0, pilot=50), trials=200, seed=0, jobs=jobs)


def test_one_process_needs_no_joblib(without_joblib):
    assert played(1).trials == 200


def test_several_processes_say_what_to_install(without_joblib):
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[parallel\]'.*jobs=1"):
        played(2)
