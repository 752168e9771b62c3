"""The enumerated adversary of shuffled batches reproduces what is known without it."""

from __future__ import annotations

import math

import pytest
from scipy.special import ndtr

from oracles.shuffled_adversary import Shuffled, disc, line


def gaussian(mu: float, epsilon: float) -> float:
    """The divergence of N(mu, 1) from N(0, 1)."""
    return float(ndtr(0.5 * mu - epsilon / mu) - math.exp(epsilon) * ndtr(-0.5 * mu - epsilon / mu))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_one_batch_is_the_gaussian_mechanism(replaced: bool, reverse: bool) -> None:
    """With one batch of all records nothing is hidden: shift 1/sigma if zeroed out, 2/sigma if replaced, within 1 %."""
    exact = gaussian(2.0 if replaced else 1.0, 0.5)
    found = Shuffled(2, 2, 1, 1.0, replaced=replaced).divergence(math.exp(0.5), line(3), reverse)
    assert 0.99 * exact <= found <= exact


@pytest.mark.parametrize(
    ("sigma", "epsilon", "supremum"),
    [(2.0, 0.5, 0.016384), (1.0, 0.5, 0.141425), (1.0, 1.0, 0.073307), (2.0, 0.0, 0.111627)],
)
def test_three_records_of_which_one_is_dropped(sigma: float, epsilon: float, supremum: float) -> None:
    """Another enumeration, by quadrature, found these suprema (rounded up here); cells stay below by at most 0.3 %."""
    epoch = Shuffled(3, 1, 2, sigma)
    found = epoch.divergence(math.exp(epsilon), line(3))
    assert 0.997 * supremum <= found <= supremum
    assert epoch.divergence(math.exp(epsilon), line(5)) == pytest.approx(found, rel=1e-9)  # corners are enough


def test_two_batches_of_two_exceed_the_conjectured_pair() -> None:
    """N = 4, B = 2, sigma 2, epsilon 1/2: above .03333, the value of Conjecture 3.2 of Chua et al., below .035293."""
    found = Shuffled(4, 2, 2, 2.0).divergence(math.exp(0.5), line(3))
    assert 0.0352 < found < 0.035293
    assert Shuffled(4, 2, 2, 2.0).divergence(math.exp(0.5), line(3), reverse=True) < found


def test_finer_reading_and_more_gradients_never_hurt() -> None:
    """The supremum grows with what the adversary may do; a plane holds the line."""
    k = math.exp(0.5)
    coarse = Shuffled(3, 1, 2, 2.0, width=0.8)
    assert coarse.divergence(k, line(3)) <= coarse.divergence(k, disc(4)) + 1e-11
    assert coarse.divergence(k, line(3)) < Shuffled(3, 1, 2, 2.0, width=0.4).divergence(k, line(3))
