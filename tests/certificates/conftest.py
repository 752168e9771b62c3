"""A certificate that is quick to check, and ways to alter one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")
sys.path.append(str(Path(__file__).resolve().parents[1]))

from drivers.certified_runs import wide_cells

from calipers.adaptive import AdaptiveRun
from calipers.certificates import Certificate, certify
from calipers.mechanisms import gaussian
from calipers.run import Run
from calipers_verify.reading import digest

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def coarse() -> Iterator[None]:
    """Wide cells for one test."""
    with wide_cells():
        yield


@pytest.fixture(scope="session")
def small() -> Certificate:
    """Twenty Poisson steps: both jaws, a few hundred numbers."""
    with wide_cells():
        return certify(Run(sample_rate=0.1, steps=20, noise_multiplier=2.0), delta=1e-3)


@pytest.fixture(scope="session")
def hidden() -> Certificate:
    """Two epochs of balls-and-bins: sums, plans and bins."""
    with wide_cells():
        return certify(Run(sample_rate=0.25, epochs=2, noise_multiplier=2.0, sampler="balls-and-bins"), delta=1e-3)


@pytest.fixture(scope="session")
def moving() -> Certificate:
    """A rate that moves: two pairs of neighbors, two factors each."""
    keys = {"dataset_size": 100, "batch_size": 10, "steps": 8, "noise_multiplier": 3.0}
    with wide_cells():
        return certify(Run(**keys, derived_rate="moving"), delta=1e-3)


@pytest.fixture(scope="session")
def kept() -> Certificate:
    """A shuffled epoch of which nothing is left over: weights that cover those of the later batches."""
    keys = {"dataset_size": 2020, "batch_size": 200, "epochs": 1, "noise_multiplier": 3.0, "adjacency": "zero-out"}
    with wide_cells():
        return certify(Run(**keys, sampler="shuffle", last_batch="keep"), delta=1e-3)


@pytest.fixture(scope="session")
def removed() -> Certificate:
    """Two shuffled epochs that drop a remainder, a record really added or removed."""
    keys = {"dataset_size": 43, "batch_size": 10, "epochs": 2, "noise_multiplier": 8.0, "adjacency": "add-remove"}
    with wide_cells():
        return certify(Run(**keys, sampler="shuffle", last_batch="drop"), delta=1e-3)


@pytest.fixture(scope="session")
def chosen() -> Certificate:
    """A menu of a block of Poisson steps and a Gaussian release."""
    menu = [Run(sample_rate=0.1, steps=4, noise_multiplier=2.0), gaussian(0.125)]
    with wide_cells():
        return certify(AdaptiveRun(menu, [2, 1], 4), delta=1e-3)


@pytest.fixture(scope="session")
def altered() -> Callable[[Certificate, Change], bytes]:
    """The certificate after a change, with a digest that fits: what a dishonest producer would hand out."""

    def made(certificate: Certificate, change: Change) -> bytes:
        record = json.loads(certificate.to_json())
        change(record)
        record["digest"] = digest(record)
        return json.dumps(record).encode()

    return made
