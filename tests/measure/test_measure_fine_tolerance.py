"""A small tolerance asks for tighter, slower laws of proofs that have some."""

from __future__ import annotations

import pytest

from calipers.measure.composed import FINE_TOLERANCE, ComposedProof
from calipers.pld.allocation.full_epoch import FullEpoch
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.composition.one_sided import ProofProduct


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, pytest.param(2, marks=pytest.mark.heavy)])
def test_a_small_tolerance_lowers_the_upper_bound(epochs: int) -> None:
    """Three batches with a remainder, noise 3: epsilon and delta fall, and stay where the tolerance is larger."""
    epoch = ShuffledEpoch(3.0, 3, 6 / 7)
    proof = ComposedProof(ProofProduct([(epoch, epochs)]), "", "calipers:shuffled", epoch if epochs == 1 else None)
    usual, fine = (proof.epsilon(1e-3, tolerance).value for tolerance in (2.0 * FINE_TOLERANCE, FINE_TOLERANCE))
    assert 0.97 * usual < fine < usual == proof.epsilon(1e-3, 1e-3).value
    assert proof.delta(0.3, FINE_TOLERANCE).value < proof.delta(0.3, 1e-3).value


def test_finest_laws_and_those_without_finer_ones_stay_as_they_are() -> None:
    """There is one step, for epochs with a remainder."""
    assert ShuffledEpoch(3.0, 3, 6 / 7, fine=True).finer is None
    assert FullEpoch(3.0, 3, 1.0, False, 2, 6).finer is None
