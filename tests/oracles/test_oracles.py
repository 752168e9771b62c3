"""The oracles agree with each other where their routes share nothing, and with published numbers."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from math import exp, inf, log, log1p, sqrt
from pathlib import Path

import mpmath as mp
import pytest

from oracles import contour, contour_mp, enumeration, pairs

REFERENCE = json.loads(Path(__file__).with_name("reference.json").read_text())["entries"]


def relative_gap(value: float, truth: mp.mpf) -> float:
    return abs(float(value / truth - 1))


@pytest.mark.parametrize("steps", [1, 10, 10**6])
@pytest.mark.parametrize("eps", [0.0, 0.1, 1.0, 4.0])
def test_contour_reproduces_the_composed_gaussian(steps: int, eps: float) -> None:
    """T Gaussians of noise sigma are one of mu = sqrt(T)/sigma; delta from 0.13 down to 1e-34, relative 1e-12."""
    sigma = 3.0 * sqrt(steps)
    mu = mp.sqrt(steps) / mp.mpf(sigma)
    for direction in ("PQ", "QP"):
        found = contour.delta(pairs.gaussian(sigma), steps, eps, direction)
        assert relative_gap(found, enumeration.gaussian(mu, eps)) < 1e-12


def test_contour_reaches_delta_1e_40_and_one_half() -> None:
    """Relative accuracy does not depend on the size of delta."""
    for target in (0.5, 1e-40):
        mu = 1.5
        eps = contour.epsilon(pairs.gaussian(1 / mu), 1, target)
        assert relative_gap(target, enumeration.gaussian(mu, eps)) < 1e-10


TWO_STEPS = [
    (0.01, 1.0, 2.0, "PQ"),
    (0.3, 0.5, 2.0, "PQ"),
    (0.9, 5.0, 1.0, "QP"),
]


@pytest.mark.parametrize(("q", "sigma", "eps", "direction"), TWO_STEPS)
def test_contour_equals_one_integral_for_two_steps(q: float, sigma: float, eps: float, direction: str) -> None:
    """Two steps are the worst case of the contour (slow decay, smooth cut-off) and one plain integral in mpmath."""
    truth = enumeration.poisson_two_steps(q, sigma, eps, direction)
    assert relative_gap(contour.delta(pairs.poisson_gaussian(q, sigma), 2, eps, direction), truth) < 1e-10


def test_contour_keeps_its_digits_next_to_the_largest_loss() -> None:
    """delta = 1.1e-42 at a gap of 1e-4 below the largest loss; the gap itself carries 1e-12 of rounding."""
    eps = -2 * log1p(-0.01) * (1 - 1e-4)
    truth = enumeration.poisson_two_steps(0.01, 1.0, eps, "QP")
    assert relative_gap(contour.delta(pairs.poisson_gaussian(0.01, 1.0), 2, eps, "QP"), truth) < 1e-10


def test_contour_equals_its_plain_version_in_mpmath() -> None:
    """Fixed steps and 30 digits against adaptive panels in doubles, both directions, T = 1000."""
    pair = pairs.poisson_gaussian(0.01, 1.0)
    for direction, theta in (("PQ", 8.0), ("QP", 14.0)):
        plain = contour_mp.poisson_delta(0.01, 1.0, 1000, 1.8, direction, theta, 30, 180, 0.2, 25)
        finer = contour_mp.poisson_delta(0.01, 1.0, 1000, 1.8, direction, theta, 36, 240, 0.16, 25)
        assert relative_gap(float(plain), finer) < 1e-12
        assert relative_gap(contour.delta(pair, 1000, 1.8, direction), finer) < 1e-11


def test_one_step_closed_form_equals_quadrature() -> None:
    """The call and the put on 1 - q + q Y, against the integral of (p - k q)+ over x."""
    q, sigma, eps = mp.mpf("0.1"), mp.mpf("0.7"), mp.mpf("0.05")

    def log_q(x: mp.mpf) -> mp.mpf:
        return mp.log(mp.npdf(x, 0, sigma))

    def log_p(x: mp.mpf) -> mp.mpf:
        return mp.log((1 - q) * mp.npdf(x, 0, sigma) + q * mp.npdf(x, 1, sigma))

    def crossing(ratio: mp.mpf) -> mp.mpf:
        return sigma**2 * mp.log((ratio - 1 + q) / q) + mp.mpf("0.5")

    up, down = crossing(mp.exp(eps)), crossing(mp.exp(-eps))
    forward = enumeration.one_step_by_quadrature(log_p, log_q, eps, [-14, down, up, 2, 6, 14])
    backward = enumeration.one_step_by_quadrature(log_q, log_p, eps, [-14, -6, -2, down, up, 14])
    assert relative_gap(forward, enumeration.poisson_one_step(q, sigma, eps, "PQ")) < 1e-20
    assert relative_gap(backward, enumeration.poisson_one_step(q, sigma, eps, "QP")) < 1e-20


def test_substitute_pair_is_symmetric_and_gaussian_at_full_sampling() -> None:
    """With q = 1 the pair is N(1) against N(-1), mu = 2/sigma; for any q the two directions agree."""
    full = contour.delta(pairs.poisson_substitute(1.0, 40.0), 100, 1.0)
    assert relative_gap(full, enumeration.gaussian(2 * mp.sqrt(100) / 40, 1)) < 1e-11
    pair = pairs.poisson_substitute(0.05, 1.3)
    forward, backward = contour.delta(pair, 200, 1.0, "PQ"), contour.delta(pair, 200, 1.0, "QP")
    assert relative_gap(forward, backward) < 1e-11
    assert forward > contour.delta(pairs.poisson_gaussian(0.05, 1.3), 200, 1.0, "max")


def test_substitute_pair_equals_quadrature_for_one_step() -> None:
    """One step, sign change found on the monotone log-ratio."""
    q, sigma, eps = 0.4, 0.9, 0.7

    def density(x: mp.mpf, sign: int) -> mp.mpf:
        return mp.log((1 - mp.mpf(q)) * mp.npdf(x, 0, sigma) + mp.mpf(q) * mp.npdf(x, sign, sigma))

    turn = mp.findroot(lambda x: density(x, 1) - density(x, -1) - eps, 0.5)
    truth = enumeration.one_step_by_quadrature(lambda x: density(x, 1), lambda x: density(x, -1), eps, [turn, 2, 5, 15])
    assert relative_gap(contour.delta(pairs.poisson_substitute(q, sigma), 1, eps), truth) < 1e-10


def test_product_of_different_steps() -> None:
    """5 Gaussians of noise 2 and 7 of noise 3 are one Gaussian of mu^2 = 5/4 + 7/9."""
    mixed = pairs.product((pairs.gaussian(2.0), 5), (pairs.gaussian(3.0), 7))
    mu = mp.sqrt(mp.mpf(5) / 4 + mp.mpf(7) / 9)
    assert relative_gap(contour.delta(mixed, 1, 2.0), enumeration.gaussian(mu, 2)) < 1e-12


def test_laplace_enumeration() -> None:
    """One Laplace step is 1 - exp((eps - 1/b)/2); beyond T/b nothing is left; many steps agree with the contour."""
    assert relative_gap(enumeration.laplace(2, 1, 0.2), 1 - mp.exp((mp.mpf("0.2") - mp.mpf("0.5")) / 2)) < 1e-15
    assert enumeration.laplace(2, 3, 1.5) == 0
    for steps, eps in ((2, 1.3), (5, 3.1)):
        truth = enumeration.laplace(0.8, steps, eps)
        assert relative_gap(contour.delta(pairs.laplace(0.8), steps, eps), truth) < 1e-10


def test_finite_laws() -> None:
    """Enumeration of all outcomes equals the binomial sum, exactly, and obeys E_Q[L] = 1."""
    truth, k = Fraction(3, 4), Fraction(5, 2)
    p, q = [truth, 1 - truth], [1 - truth, truth]
    for steps in (1, 2, 7):
        expected = enumeration.randomized_response(truth, steps, k)
        assert enumeration.finite_profile(p, q, steps, k, "PQ") == expected
        assert enumeration.finite_profile(p, q, steps, k, "QP") == expected
    law, lost = enumeration.product_law(
        [Fraction(1, 2), Fraction(1, 2), Fraction(0)], [Fraction(1, 4), Fraction(0), Fraction(3, 4)], 3
    )
    assert lost == 1 - Fraction(1, 8)
    assert sum(ratio * mass for ratio, mass in law.items()) == 1 - lost
    assert sum(law.values()) == 1


def test_discrete_gaussian_tends_to_the_gaussian() -> None:
    """One step by hand; wide steps differ from a Gaussian only by the rounding of the threshold to the lattice."""
    one = enumeration.discrete_gaussian(1, 1, 1)
    masses = {n: mp.exp(-mp.mpf(n * n) / 2) for n in range(-30, 31)}
    norm = sum(masses.values())
    by_hand = sum(max(mp.mpf(0), masses[n - 1] - mp.e * masses[n]) for n in range(-29, 31)) / norm
    assert relative_gap(one, by_hand) < 1e-15
    wide = enumeration.discrete_gaussian(20, 4, 0.2)
    assert relative_gap(wide, enumeration.gaussian(mp.mpf(2) / 20, 0.2)) < 2e-3


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta", "published"),
    [
        (0.01, 1.0, 1000, 1e-5, 1.82824),
        (256 / 60000, 1.1, 14040, 1e-5, 2.37955),
        (1e-4, 0.5, 10000, 1e-6, 1.95322),
        (16384 / 50000, 9.4, 2000, 1e-5, 7.42438),
        (1e-3, 0.8, 10**6, 1e-6, 10.6824),
    ],
)
def test_published_reference_values(q: float, sigma: float, steps: int, delta: float, published: float) -> None:
    """The table holds the five converged reference values, to their printed digits, and the oracle reproduces it."""
    key = (q, sigma, steps, delta)
    (row,) = [r for r in REFERENCE if (r["sample_rate"], r["noise_multiplier"], r["steps"], r["delta"]) == key]
    assert abs(row["epsilon"] - published) <= 0.6e-5 * (10 if published > 10 else 1)
    at_it = contour.delta(pairs.poisson_gaussian(q, sigma), steps, row["remove"], "PQ")
    assert abs(log(at_it / delta)) < 1e-8


def test_table_is_in_order() -> None:
    """Epsilon is the larger direction, grows with q and T, and shrinks with sigma and delta."""
    for row in REFERENCE:
        if row["epsilon"] is not None:
            assert row["epsilon"] == max(row["remove"], row["add"])
    names = ("sample_rate", "noise_multiplier", "steps", "delta")
    known = [row for row in REFERENCE if row["epsilon"] is not None or row.get("above_700")]
    assert len(known) >= len(REFERENCE) - 3
    compared = 0
    for index, sign in ((0, 1), (1, -1), (2, 1), (3, -1)):
        for a, b in itertools.permutations(known, 2):
            same = all(a[n] == b[n] for i, n in enumerate(names) if i != index)
            if same and a[names[index]] < b[names[index]]:
                low, high = (inf if r["epsilon"] is None else r["epsilon"] for r in (a, b))
                assert sign * low <= sign * high
                compared += 1
    assert compared > 500


def test_epsilon_edges() -> None:
    """Above delta(0) epsilon is 0, above the limit it is inf; the reverse direction stops at -T log(1-q)."""
    pair = pairs.poisson_gaussian(1e-3, 5.0)
    assert contour.epsilon(pair, 100, 0.4) == 0.0
    assert contour.epsilon(pairs.gaussian(0.01), 10, 1e-5) == inf
    rare, top = pairs.poisson_gaussian(0.1, 1.0), -20 * log1p(-0.1)
    assert contour.log_delta(rare, 20, top * (1 + 1e-12), "QP") == -inf
    found = contour.epsilon(rare, 20, 1e-40, "QP")
    assert 0.9 < found / top < 1
    assert relative_gap(contour.delta(rare, 20, found, "QP"), mp.mpf(1e-40)) < 1e-6
    assert exp(contour.log_delta(rare, 20, 0.1, "max")) == contour.delta(rare, 20, 0.1, "PQ")
