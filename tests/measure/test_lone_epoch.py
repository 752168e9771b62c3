"""What is proven of one participation is not said of two: sources that claim everything about a single one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from calipers.measure.bounds import Bounds
from calipers.measure.routes import evaluated
from calipers.mechanisms.gaussian import gaussian
from calipers.numerics.normal import gaussian_delta
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair, DominatingPair, TwoSidedPair
from calipers.samplers.analysis import Analysis, Attack, Proof, closed

MU, EPSILON, TOLERANCE = 0.7, 0.4, 1e-2
GAUSSIAN = gaussian(MU)


class Flattering:
    """One participation leaks nothing, and an attack on it shows everything."""

    def delta(self, epsilon: float) -> Any:
        return (1.0, 0.0) if self.pair else 0.0

    def best_delta(self, epsilon: float) -> tuple[float, bool]:
        return 1.0, False

    def __init__(self, pair: bool = False) -> None:
        self.pair = pair


class Proven(DominatingPair):
    """Laws of one Gaussian release; alone it claims to be perfect."""

    single_proof = Flattering()  # type: ignore[assignment]

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        return GAUSSIAN.upper(resolution, log_tail)


class Shown(AttainedPair):
    """Laws of one Gaussian release; alone it claims to show everything."""

    single_attack = Flattering()  # type: ignore[assignment]

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        return GAUSSIAN.lower(resolution, log_tail)


@dataclass(frozen=True)
class Both(TwoSidedPair):
    """Both; alone it claims both."""

    single_pair = Flattering(pair=True)  # type: ignore[assignment]

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        return GAUSSIAN.upper(resolution, log_tail)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        return GAUSSIAN.lower(resolution, log_tail)


def one_sided(count: int) -> Bounds:
    proof = Proof(Proven(), count, "calipers:shuffled", "The record takes part in")
    return evaluated([Analysis((proof,), Attack(Shown(), count, "calipers:shuffled", "All."))], adjacency="add-remove")


def attained(count: int) -> Bounds:
    return evaluated(
        [closed(Both(), count, "calipers:allocation", "The record takes part in", "All.")], adjacency="add-remove"
    )


def attacked(count: int) -> Bounds:
    proof = Proof(gaussian(3.0), count, "calipers:shuffled", "The record takes part in")
    return evaluated([Analysis((proof,), Attack(Both(), count, "calipers:allocation", "All."))], adjacency="add-remove")


@pytest.mark.parametrize("kind", [one_sided, attained])
@pytest.mark.parametrize("count", [2, 3])
def test_upper_bounds_of_several_are_those_of_their_composition(kind: Any, count: int) -> None:
    """At least the closed form of N(mu sqrt(T), 1), whatever is claimed of one."""
    exact = float(gaussian_delta(MU * math.sqrt(count), EPSILON))
    assert exact <= kind(count).upper.delta(EPSILON, TOLERANCE).value <= 1.02 * exact


@pytest.mark.parametrize("kind", [one_sided, attained, attacked])
@pytest.mark.parametrize("count", [2, 3])
def test_lower_bounds_of_several_are_those_of_their_composition(kind: Any, count: int) -> None:
    """At most the same closed form."""
    exact = float(gaussian_delta(MU * math.sqrt(count), EPSILON))
    assert 0.98 * exact <= kind(count).lower.delta(EPSILON, TOLERANCE).value <= exact


def test_of_a_single_one_what_is_sharper_is_taken() -> None:
    """Otherwise the sources above would test nothing."""
    assert one_sided(1).upper.delta(EPSILON, TOLERANCE).value == 0.0
    assert one_sided(1).lower.delta(EPSILON, TOLERANCE).value == 1.0
    assert attained(1).upper.delta(EPSILON, TOLERANCE).value == 0.0
    assert attacked(1).lower.delta(EPSILON, TOLERANCE).value == 1.0
