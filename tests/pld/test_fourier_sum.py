"""Expected payoffs by transforms, against sums of products of positive numbers."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.numerics.types import FloatArray
from calipers.pld.allocation import fourier_sum
from calipers.pld.allocation.fourier_sum import CyclicWindow, Outlook, RepeatedTerms, payoff_by_fourier

STEP = 0.25


def terms(places: list[int], masses: list[float], count: int) -> RepeatedTerms:
    return RepeatedTerms(np.array(places), np.array(masses) / sum(masses), STEP, 1e-15, count)


def summed(parts: list[RepeatedTerms]) -> tuple[FloatArray, FloatArray]:
    """Values and masses of the sum, by one convolution after the other: relative errors of 1e-12 at most."""
    low, pmf = 0, np.ones(1)
    for part in parts:
        one = np.zeros(int(part.places.max() - part.places.min()) + 1)
        np.add.at(one, part.places - part.places.min(), part.masses)
        for _ in range(part.count):
            low, pmf = low + int(part.places.min()), np.convolve(pmf, one)
    return (low + np.arange(len(pmf))) * STEP, pmf


LIGHT = terms([-2, -1, 0, 1, 2], [1.0, 3.0, 5.0, 2.0, 1.0], 60)
HEAVY = terms([-9, -1, 0, 1, 40, 160], [1e-3, 2.0, 3.0, 2.0, 1e-2, 1e-4], 60)
FEW = terms([-6, -3, 0, 5, 90], [1e-2, 1.0, 2.0, 1.0, 1e-3], 7)


@pytest.mark.parametrize("parts", [[LIGHT], [HEAVY], [LIGHT, FEW], [HEAVY, FEW]])
@pytest.mark.parametrize("strike", [0.0, 4.0, 12.0])
@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_an_expected_payoff_is_not_below_the_sum_and_close_to_it(
    parts: list[RepeatedTerms], strike: float, floor: float
) -> None:
    """Calls, and payoffs that stay above 0 on the left."""

    def payoff(sums: FloatArray) -> FloatArray:
        return np.maximum(sums - strike, 0.0) + floor / (1.0 + np.maximum(strike - sums, 0.0))

    values, masses = summed(parts)
    exact = float(masses @ payoff(values))
    found = payoff_by_fourier(parts, payoff, strike, everywhere=floor > 0.0)
    if found is None:  # where all that counts lies to the left no tilt helps
        assert floor > 0.0
        assert parts == [LIGHT]
        return
    assert exact * (1.0 - 1e-11) <= found <= exact * (1.0 + 2e-3)


@pytest.mark.parametrize("first", [-400, -60, -20])
@pytest.mark.parametrize("size", [120, 300, 1000])
@pytest.mark.parametrize("tilt", [0.01, 0.1, 0.3])
def test_what_a_short_window_lacks_is_charged(
    first: int, size: int, tilt: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever window and tilt are taken: at least the truth, or nothing."""
    strike = 6.0
    values, masses = summed([HEAVY])
    monkeypatch.setattr(fourier_sum, "chosen_window", lambda *_: CyclicWindow(first, size, tilt))
    monkeypatch.setattr(fourier_sum, "_MOST_ADDED", 1e300)
    for floor in (0.0, 0.5):

        def payoff(sums: FloatArray, floor: float = floor) -> FloatArray:
            return np.maximum(sums - strike, 0.0) + floor

        found = payoff_by_fourier([HEAVY], payoff, strike)
        # A window that sees nothing of what is asked has no answer.
        assert found is None or found >= float(masses @ payoff(values)) * (1.0 - 1e-11)


def test_an_outlook_bounds_both_ends() -> None:
    """Chernoff's bounds, of probabilities and of payoffs beyond an end."""
    values, masses = summed([HEAVY, FEW])
    outlook = Outlook.of([HEAVY, FEW])
    for end in (-40.0, -20.0, 10.0, 60.0, 150.0):
        assert outlook.before(end) >= float(masses[values < end].sum())
        for worth in (0.5, 20.0):
            beyond = values > end
            assert outlook.beyond(end, worth) >= float(masses[beyond] @ (worth + values[beyond] - end))
