"""The counterexample to Conjecture 3.2: its two numbers bound what quadrature and enumeration give."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.theorems import evaluate
from calipers.theorems.shuffle_conjecture import two_batches

sys.path.append(str(Path(__file__).resolve().parents[1]))
from oracles.shuffled_adversary import Shuffled, line


def by_quadrature(sigma: float, epsilon: float, adaptive: bool) -> float:
    """E[(S_1 + S_2)+]/2 as a plain sum over a grid of both observations, spaced by h = 0.005.

    The integrand is continuous with bounded slopes where it has a kink, so the sum errs by about h^2/10 < 3e-6.
    """
    r, k, h = 1.0 / sigma, math.exp(epsilon), 0.005
    x = np.arange(-8.0, 8.0 + 2.0 * r, h)
    weight = h * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    opposing = np.exp(2.0 * r * x - 2.0 * r * r) - k * np.exp(r * x - 0.5 * r * r)
    agreeing = 1.0 - k * np.exp(r * x - 0.5 * r * r)
    total = 0.0
    for s, w in zip(opposing, weight, strict=True):
        second = agreeing if adaptive and s > 0.0 else opposing
        total += w * float(np.sum(weight * np.maximum(s + second, 0.0)))
    return 0.5 * total


def test_both_numbers_at_sigma_two() -> None:
    """sigma 2, epsilon 1/2: the attack has .0352905 and the pair .0333260; the bounds are within 3e-6 of them."""
    found = evaluate("chua-conj-3.2-counterexample", epsilon=0.5, noise_multiplier=2.0)
    attack, pair = by_quadrature(2.0, 0.5, True), by_quadrature(2.0, 0.5, False)
    assert attack - 6e-6 <= found.value <= attack + 3e-6
    assert pair - 3e-6 <= found.values["conjectured"] <= pair + 6e-6
    assert found.value == pytest.approx(0.03529, abs=5e-6)
    assert found.values["conjectured"] == pytest.approx(0.03333, abs=5e-6)


@pytest.mark.parametrize(("sigma", "epsilon"), [(1.0, 0.0), (3.0, 0.3), (20.0, 0.05), (100.0, 0.01), (2.0, 2.0)])
def test_the_conjecture_fails_for_much_noise(sigma: float, epsilon: float) -> None:
    """The attack shows more than the conjectured pair can leak in either direction."""
    found = two_batches(epsilon, sigma)
    assert found.delta > found.conjectured > 0.0


def test_no_adversary_of_two_single_records_does_better() -> None:
    """N = 2, B = 1: the enumerated supremum over all gradients, read in cells, is the attack's own, within 0.5 %."""
    supremum = Shuffled(2, 1, 2, 2.0).divergence(math.exp(0.5), line(3))
    found = two_batches(0.5, 2.0)
    assert 0.995 * found.delta <= supremum <= 1.0001 * found.delta


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_the_reversed_direction_is_counted(epsilon: float) -> None:
    """D(Q||P) of the pair, by quadrature of the put, is at most what is said of both directions."""
    r, k = 0.5, math.exp(epsilon)
    x = np.arange(-8.0, 9.0, 0.01)
    weight = 0.01 * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    gain = np.exp(r * x - 0.5 * r * r) - k * np.exp(2.0 * r * x - 2.0 * r * r)
    reversed_ = 0.5 * float(weight @ np.maximum(gain[:, None] + gain[None, :], 0.0) @ weight)
    assert reversed_ <= two_batches(epsilon, 2.0).conjectured + 1e-5


def test_little_noise_is_refused() -> None:
    """Below sigma = 1/4 doubles run out, and the pair is as good as the attack."""
    with pytest.raises(InputError, match="noise_multiplier"):
        two_batches(0.5, 0.1)
