"""A certificate that is quick to check, and ways to alter one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

from calipers.certificates import Certificate, certify
from calipers.run import Run
from calipers_verify.reading import digest

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="session")
def small() -> Certificate:
    """Twenty Poisson steps: both jaws, a few hundred numbers."""
    return certify(Run(sample_rate=0.1, steps=20, noise_multiplier=2.0), delta=1e-3)


@pytest.fixture(scope="session")
def hidden() -> Certificate:
    """Two epochs of balls-and-bins: sums, plans and bins."""
    return certify(Run(sample_rate=0.25, epochs=2, noise_multiplier=2.0, sampler="balls-and-bins"), delta=1e-3)


@pytest.fixture(scope="session")
def altered() -> Callable[[Certificate, Change], bytes]:
    """The certificate after a change, with a digest that fits: what a dishonest producer would hand out."""

    def made(certificate: Certificate, change: Change) -> bytes:
        record = json.loads(certificate.to_json())
        change(record)
        record["digest"] = digest(record)
        return json.dumps(record).encode()

    return made
