"""The published guarantees of division, composed: membership revealed, in both orders, for one and for many rounds."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.numerics.types import FloatArray
from calipers.pld.composition.one_sided import ProofProduct
from calipers.pld.core.source import DominatingPair
from calipers.pld.division.cells import MixedCells
from calipers.pld.division.hidden_membership import HiddenMembershipPair, best_tests
from calipers.pld.division.scale import scale_pair


class ToldBit(HiddenMembershipPair):
    """Theorems 3.6 and A.3: the membership is told as well, so each branch chooses its own alpha."""

    def cells(self, sizes: FloatArray, weights: FloatArray, x: FloatArray) -> MixedCells:
        first, second = (best_tests(means, self.divisor, x) for means in self.means(sizes))
        nodes = np.concatenate((first.log_ratio, second.log_ratio))
        masses = np.concatenate((first.log_mass, second.log_mass))
        return MixedCells(np.concatenate(((1.0 - self.rate) * weights, self.rate * weights)), nodes, masses)


def divided(others: int, divisor: int, rounds: int, *, revealed: bool) -> ProofProduct:
    pair = (ToldBit if revealed else HiddenMembershipPair)(10.0, 0.005, others, divisor)
    pairs: list[tuple[DominatingPair, int]] = [(pair, rounds)]
    return ProofProduct([*pairs, (scale_pair(rounds * 26_009, divisor), 1)])


@pytest.mark.parametrize(
    ("others", "divisor", "rounds", "published"),
    [(59_999, 59_999, 200, 0.576783), (59_999, 59_999, 1, 0.171063), (140_199, 700, 200, 31.5234)],
)
def test_the_published_guarantee_is_what_its_formula_gives(
    others: int, divisor: int, rounds: int, published: float
) -> None:
    """sigma = 10, q = 0.005, n = 26,010, delta = 1e-5: at most 2e-3 above the value found elsewhere, not below it."""
    found = divided(others, divisor, rounds, revealed=True).epsilon(1e-5, 1e-3)
    assert published * (1.0 - 1e-5) <= found <= published * (1.0 + 2e-3)


@pytest.mark.parametrize(("others", "divisor", "rounds"), [(59_999, 59_999, 200), (140_199, 700, 200), (4, 4, 3)])
def test_hiding_the_membership_never_costs(others: int, divisor: int, rounds: int) -> None:
    """Both orders are in a product; each branch choosing its own alpha can only help an adversary."""
    hidden = divided(others, divisor, rounds, revealed=False)
    revealed = divided(others, divisor, rounds, revealed=True)
    assert hidden.epsilon(1e-5, 1e-3) <= revealed.epsilon(1e-5, 1e-3)
    assert hidden.delta(0.05, 1e-3) <= revealed.delta(0.05, 1e-3) * (1.0 + 1e-3)
