"""The worst term lies above every term that an adversary can choose, in convex order; sums are computed from above."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles.hidden_calls import STRIKES, call_of_shifts
from scipy.special import ndtr

from calipers.pld.allocation.worst_case_sum import divergence
from calipers.pld.allocation.worst_case_term import WorstCaseTerm, opposite, replaced, zeroed_out


def call_of_term(term: WorstCaseTerm, strike: float) -> float:
    """E[(X* - c)+] by the same rule."""
    grid = np.linspace(-11.0, 11.0, 60_001)
    density = np.exp(-0.5 * grid * grid) / math.sqrt(2.0 * math.pi) * (grid[1] - grid[0])
    return float(np.sum(np.maximum(term.value(grid) - strike, 0.0) * density))


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
@pytest.mark.parametrize(("kind", "largest"), [("zeroed", 1.0), ("reverse", 1.0), ("replaced", 2.0)])
def test_no_choice_of_shifts_exceeds_the_worst_term(kind: str, largest: float, epsilon: float) -> None:
    """200 random pairs of shifts in the plane: every call is below that of X*; some come within a thousandth of it.

    Zeroed out: |b| <= r, |a - b| <= r. Replaced: |a|, |b|, |a - b| <= 2r. The rules are accurate to 1e-5 here.
    """
    rng = np.random.default_rng(20 + len(kind))
    sigma, k = 1.3, math.exp(epsilon)
    term = replaced(sigma, epsilon) if kind == "replaced" else zeroed_out(sigma, epsilon, kind == "reverse")
    calls = {strike: call_of_term(term, strike) for strike in STRIKES}
    closest = 0.0
    corners = [((2.0, 0.0), (1.0, 0.0)), ((0.0, 0.0), (1.0, 0.0)), ((2.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (2.0, 0.0))]
    draws = [(np.array(a), np.array(b)) for a, b in corners]
    draws += [(rng.uniform(-2.0, 2.0, 2), rng.uniform(-2.0, 2.0, 2)) for _ in range(200)]
    for first, second in draws:
        a, b = (second, first) if kind == "reverse" else (first, second)
        ghost, gap = (a if kind == "reverse" else b), np.hypot(*(first - second))
        allowed = gap <= largest + 1e-12 and (
            np.hypot(*ghost) <= 1.0 + 1e-12 if kind != "replaced" else max(np.hypot(*first), np.hypot(*second)) <= 2.0
        )
        if not allowed:
            continue
        strike = STRIKES[rng.integers(len(STRIKES))]
        for c in {strike, 0.3, -0.3}:
            found = call_of_shifts(a / sigma, b / sigma, k, c)
            assert found <= calls[c] + 1e-5
            closest = max(closest, found / calls[c])
    assert closest > 0.999


class negated:  # reads like a function: minus the term
    """-X*, with the same interface as far as `call_of_term` needs it."""

    def __init__(self, term: WorstCaseTerm) -> None:
        self.value = lambda z: -term.value(z)


def test_the_worst_term_has_the_mean_of_every_term() -> None:
    """E[X*] = 1 - k: convex order needs equal means."""
    for epsilon in (0.0, 0.7, 2.0):
        for term in (zeroed_out(1.1, epsilon, False), zeroed_out(1.1, epsilon, True), replaced(1.4, epsilon)):
            mean = call_of_term(term, 0.0) - call_of_term(negated(term), 0.0)
            assert mean == pytest.approx(1.0 - math.exp(epsilon), abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_values_and_preimages_agree(epsilon: float) -> None:
    """X*(z) = s has the solutions it claims, on both branches, and is flat in between."""
    s = np.array([-40.0, -2.0, -0.1, 0.1, 2.0, 40.0])
    ways = [(zeroed_out(0.8, epsilon, reverse), 0.8) for reverse in (False, True)]
    for term, sigma in [*ways, (replaced(1.5, epsilon), 1.5)]:
        assert term.value(term.preimages(s)) == pytest.approx(s, rel=1e-9)
        left, right = term.flat
        assert right - left == pytest.approx(2.0 / sigma, rel=1e-12)
        assert np.all(term.value(np.linspace(left, right, 9)) == 0.0)
    pair = opposite(0.8, epsilon)
    assert pair.flat[0] == pytest.approx(pair.flat[1], abs=1e-12)
    assert pair.value(pair.preimages(s)) == pytest.approx(s, rel=1e-9)


def brute_force(term: WorstCaseTerm, rounds: int, share: float) -> float:
    """r/M E[(sum - strike)+] by convolving a fine histogram; accurate to about 1e-4 relative.

    Values beyond `reach` are cut, and their excess is added: a sum with such a term is positive anyhow.
    """
    step, reach = 0.004, 200.0
    z = (np.arange(400_000) + 0.5) * (2.0 * 9.0 / 400_000) - 9.0
    weight = np.exp(-0.5 * z * z)
    places = np.clip(np.round(term.value(z) / step), -reach / step, reach / step).astype(int)
    masses = np.bincount(places - places.min(), weights=weight / weight.sum())
    size = 1 << int(np.ceil(np.log2(rounds * len(masses))))
    total = np.fft.irfft(np.fft.rfft(masses, size) ** rounds, size)[: rounds * (len(masses) - 1) + 1]
    values = (np.arange(len(total)) + rounds * places.min()) * step
    strike = rounds * (1.0 - share) * math.expm1(term.epsilon) / share
    cut = rounds * float(np.sum(np.maximum(term.value(z) - reach, 0.0) * weight) / weight.sum())
    return share / rounds * (float(np.sum(np.maximum(values - strike, 0.0) * total)) + cut)


@pytest.mark.parametrize("share", [1.0, 0.9])
@pytest.mark.parametrize(("sigma", "rounds", "epsilon"), [(2.0, 2, 0.5), (1.5, 9, 0.3), (3.0, 33, 0.1)])
def test_sums_of_terms_match_a_histogram(sigma: float, rounds: int, epsilon: float, share: float) -> None:
    """The ladder agrees with a plain convolution, and a finer ladder gives less, never less than the histogram."""
    for term in (zeroed_out(sigma, epsilon, False), zeroed_out(sigma, epsilon, True), replaced(2.0 * sigma, epsilon)):
        direct = brute_force(term, rounds, share)
        node, fine = divergence(term, rounds, share, 0.02, -50.0)
        _, rough = divergence(term, rounds, share, 0.3, -50.0)
        assert node == pytest.approx(epsilon, abs=1e-11)
        assert fine == pytest.approx(direct, rel=6e-4)
        assert fine <= rough


def test_one_round_is_the_gaussian_mechanism() -> None:
    """M = 1, always there: D_k of one Gaussian release of shift r (zeroed out) or 2r (replaced), from above."""
    for epsilon in (0.0, 1.0, 3.0):
        for term, mu in ((zeroed_out(1.2, epsilon, False), 1 / 1.2), (replaced(1.2, epsilon), 2 / 1.2)):
            exact = float(ndtr(0.5 * mu - epsilon / mu) - math.exp(epsilon) * ndtr(-0.5 * mu - epsilon / mu))
            _, found = divergence(term, 1, 1.0, 0.02, -60.0)
            assert exact <= found * (1.0 + 1e-13)
            assert found <= exact * (1.0 + 1e-3)
