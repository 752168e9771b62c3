"""Masses that laws and pairs must not lose: at infinity, at zero, and where the ratio is one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.bracket import Side
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.subsampling.fixed_size import fixed_size_proof


def pmf(p_inf: float, q_zero: float) -> PrivacyLossPmf:
    """Two finite outcomes, and what only one of the datasets shows."""
    p, q = np.array([0.3, 0.7]) * (1.0 - p_inf), np.array([0.6, 0.4]) * (1.0 - q_zero)
    return PrivacyLossPmf(np.log(p / q), np.log(p), np.log(q), Side.UPPER, p_inf, q_zero)


def test_a_mixture_keeps_what_only_one_dataset_shows() -> None:
    """Far beyond all ratios delta is the P-mass at infinity, and reversed the Q-mass at zero, each mixed."""
    mixed = PrivacyLossPmf.mixture([pmf(0.1, 0.0), pmf(0.02, 0.3)], [0.25, 0.75])
    assert 0.25 * 0.1 + 0.75 * 0.02 <= mixed.delta(30.0) <= (0.25 * 0.1 + 0.75 * 0.02) * (1.0 + 1e-9)
    assert 0.75 * 0.3 <= mixed.reverse().delta(30.0) <= 0.75 * 0.3 * (1.0 + 1e-9)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "substitute"])
@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_pairs_of_a_batch_of_fixed_size_have_mass_one(adjacency: str, rate: float) -> None:
    """Both datasets' probabilities, those at ratio one included, add up to one."""
    found = fixed_size_proof(rate, 0.8, adjacency).lower(0.05, -40.0)
    for logs, beyond in ((found.log_p, found.p_inf), (found.log_q, found.q_zero)):
        assert float(np.exp(logs).sum()) + beyond == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_a_zeroed_out_record_of_a_full_batch_shows_what_its_attacks_do(rate: float) -> None:
    """Present against zeroed out at 2r against r, the other order at 0 against -r, by sums over the line."""
    r, z = 0.8, np.arange(-9.0, 10.0, 5e-4)
    pair = fixed_size_proof(rate, r, "zero-out").upper(0.02, -40.0)

    def hidden(mean: float) -> np.ndarray:
        density = (1 - rate) * np.exp(-0.5 * z * z) + rate * np.exp(-0.5 * (z - mean) ** 2)
        return np.asarray(density * 5e-4 / math.sqrt(2 * math.pi))

    for epsilon in (0.0, 0.2, 0.7):
        forward = float(np.sum(np.maximum(hidden(2 * r) - math.exp(epsilon) * hidden(r), 0.0)))
        back = float(np.sum(np.maximum(hidden(r) - math.exp(epsilon) * hidden(0.0), 0.0)))
        assert forward - 1e-9 <= pair.delta(epsilon) <= 1.001 * forward + 1e-7
        shown = max(back, float(np.sum(np.maximum(hidden(-r) - math.exp(epsilon) * hidden(0.0), 0.0))))
        assert pair.reverse().delta(epsilon) <= 1.001 * shown + 1e-7
