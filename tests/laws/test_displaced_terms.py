"""Every term of the bound for full epochs with a random displaced record, evaluated anew from the statement."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from calipers.laws.allocated.displaced import (
    DisplacedEpoch,
    blocks_of_two_or_more,
    largest_moment,
    sample_moment,
    seen_early,
)
from calipers.laws.allocated.first_batch import cover, hidden_with_first
from calipers.laws.allocated.hidden_term import HiddenTerm, replaced, zeroed_out

Floats = NDArray[np.float64]
Z = np.linspace(-9.0, 9.0, 3001)
WEIGHTS = np.exp(-0.5 * Z * Z) * (Z[1] - Z[0]) / math.sqrt(2.0 * math.pi)
SPARSE = slice(None, None, 3)
KINDS = ("present", "absent", "replaced")


def worst_term(z: Floats, kind: str, r: float, k: float) -> Floats:
    """X* from the table of its shifts: positive part of one pair, negative part of the other."""
    right, left = {
        "present": ((2 * r, r), (0.0, r)),
        "absent": ((r, 0.0), (r, 2 * r)),
        "replaced": ((2 * r, 0.0), (0.0, 2 * r)),
    }[kind]

    def value(shifts: tuple[float, float], u: Floats) -> Floats:
        a, b = shifts
        return np.asarray(np.exp(a * u - a * a / 2) - k * np.exp(b * u - b * b / 2))

    return np.asarray(np.maximum(value(right, z), 0.0) + np.minimum(value(left, -z), 0.0))


def term_of(kind: str, sigma: float, epsilon: float) -> HiddenTerm:
    return replaced(sigma, epsilon) if kind == "replaced" else zeroed_out(sigma, epsilon, kind == "absent")


def fixed_batches(kind: str, r: float, epsilon: float) -> float:
    """D at e^epsilon of one Gaussian release."""
    mu = 2 * r if kind == "replaced" else r
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def zeta(kind: str, r: float, epsilon: float, first: float) -> float:
    """E[(p X'+ + (1 - p) X)+] - (1 - p) E[X+], by the trapezoidal rule in both."""
    x = worst_term(Z[SPARSE], kind, r, math.exp(epsilon))
    w = 3.0 * WEIGHTS[SPARSE]
    both = np.maximum(first * np.maximum(x, 0.0)[:, None] + (1.0 - first) * x, 0.0)
    return float(w @ both @ w) - (1.0 - first) * float(w @ np.maximum(x, 0.0))


def equal_rounds(kind: str, r: float, epsilon: float) -> float:
    """U_2(k) = E[(X*_1 + X*_2)+] / 2."""
    x, w = worst_term(Z[SPARSE], kind, r, math.exp(epsilon)), 3.0 * WEIGHTS[SPARSE]
    return float(w @ np.maximum(x[:, None] + x, 0.0) @ w) / 2.0


@functools.cache
def blocks(order: int) -> dict[int, int]:
    """How many partitions of so many things into blocks of two or more have so many blocks, by enumeration."""
    found: dict[int, int] = {}
    partitions: list[list[list[int]]] = [[]]
    for thing in range(order):
        partitions = [
            [*part[:i], [*part[i], thing], *part[i + 1 :]] if i < len(part) else [*part, [thing]]
            for part in partitions
            for i in range(len(part) + 1)
        ]
    for part in partitions:
        if all(len(block) > 1 for block in part):
            found[len(part)] = found.get(len(part), 0) + 1
    return found


def moment_bound(order: int, r: float) -> float:
    """The largest M_p over 4,001 angles theta."""
    p, t = order, np.linspace(0.0, 1.0, 4001)
    far = np.expm1(p * (p - 1) * (1 + t) ** 2 * r**2 / 2)
    return float(np.max(np.exp((p - 1) * (1 - t**2) * r**2 / 2) * (1 + (1 - t) / (1 + t) * far)))


def weight_moment(order: int, r: float, batch: int) -> float:
    """E[(w - 1)^p] at most, from the statement."""
    largest = moment_bound(order, r)
    return math.fsum(
        count * float(batch) ** (number - order) * (largest ** ((order - number) / (order - 1)) - 1)
        for number, count in blocks(order).items()
    )


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_partitions_are_those_that_are_listed(order: int) -> None:
    """All partitions of up to eight things, one by one."""
    found = {number: blocks_of_two_or_more(order, number) for number in range(order + 1)}
    assert {number: count for number, count in found.items() if count} == blocks(order)


@pytest.mark.parametrize("order", [2, 4, 6])
def test_moments_of_weights_are_those_of_the_statement(order: int) -> None:
    """Never less than the formula, and at most a few percent more."""
    for r, batch in ((0.3, 5), (0.8, 40)):
        assert moment_bound(order, r) <= largest_moment(order, r) <= 1.02 * moment_bound(order, r)
        least = weight_moment(order, r, batch)
        assert least <= sample_moment(order, r, batch) <= 1.05 * least


def test_moments_of_weights_hold_for_every_batch_of_a_small_population() -> None:
    """Ten records in two clusters, batches of three, all 120 of them and the noise summed: E[(w - 1)^2]."""
    r, count, batch = 0.5, 10, 3
    for plus in range(1, count):
        signs = np.where(np.arange(count) < plus, r, -r)
        ratios = np.exp(signs[:, None] * Z - 0.5 * r * r)
        batches = [list(chosen) for chosen in itertools.combinations(range(count), batch)]
        weights = np.stack([ratios[chosen].mean(axis=0) for chosen in batches]) / ratios.mean(axis=0)
        # Under the mean of all shifts, which is what is seen of the first batch.
        seen = WEIGHTS * ratios.mean(axis=0)
        assert float(np.mean((weights - 1.0) ** 2, axis=0) @ seen) <= sample_moment(2, r, batch)


@pytest.mark.parametrize(("batch", "size", "rounds"), [(40, 240, 2), (200, 1210, 3), (60, 600, 2)])
def test_what_is_exposed_is_markov_s_inequality_of_the_best_order(batch: int, size: int, rounds: int) -> None:
    """kappa = min over p of Omega / (Omega - 1)^p E[(w - 1)^p], and a short last batch counts as a full one."""
    epoch = DisplacedEpoch(4.0, -(-size // batch), 1.0, False, batch, size)
    omega = size / (batch * rounds)
    short = (-(-size // batch) - 1) * batch / (size - batch)
    least = short * min(omega / (omega - 1) ** p * weight_moment(p, 0.25, batch) for p in (2, 4, 6, 8))
    assert 0.0 < least <= epoch.exposed(rounds) <= 1.05 * least < 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_what_is_seen_early_is_at_least_zeta(kind: str, epsilon: float) -> None:
    """Against a double sum over both terms; and never more than the first batch could show by itself."""
    for r, first in ((0.5, 1 / 6), (1.0, 1 / 40)):
        known = fixed_batches(kind, r, epsilon) * (1.0 + 1e-9)
        found = seen_early(term_of(kind, 1.0 / r, epsilon), first, known)
        least = zeta(kind, r, epsilon, first)
        assert 0.0 < least <= found <= first * known
        assert found <= 2.5 * least + 0.01 * first * known


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_the_sum_of_its_three_terms(kind: str) -> None:
    """U_2(k) + kappa D_k + zeta, each evaluated here: the bound is at least their sum, and at most 5 % more."""
    r, batch, size = 0.3, 3, 18
    epoch = DisplacedEpoch(1.0 / r, 6, 1.0, kind == "replaced", batch, size)
    omega = 3.0
    exposed = min(omega / (omega - 1.0) ** p * weight_moment(p, r, batch) for p in (2, 4, 6, 8))
    for epsilon in (0.05, 0.2):
        parts = (
            equal_rounds(kind, r, epsilon),
            exposed * fixed_batches(kind, r, epsilon),
            zeta(kind, r, epsilon, batch / size),
        )
        ((node, found),) = epoch.with_rounds(2, [epsilon], kind == "absent", 0.05, -40.0)
        assert epsilon <= node <= epsilon + 1e-12
        assert sum(parts) <= found <= 1.05 * sum(parts)
        assert min(parts) > 0.02 * found  # none of them is lost in what is rounded up


def test_covered_weights_add_what_they_expose() -> None:
    """`with_cover` of the same epoch is at least exposed times D_k of fixed batches above what it hides."""
    epoch = DisplacedEpoch(2.0, 20, 1.0, False, 100, 2000)
    covered = cover(0.5, 100, 2000, 5.0)
    assert covered is not None
    known = fixed_batches("present", 0.5, 0.3)
    ((_, hidden),) = hidden_with_first([zeroed_out(2.0, 0.3, False)], [known], covered, 0.05, 0.2, -30.0)
    ((_, found),) = epoch.with_cover(5.0, [0.3], False, 0.2, -30.0)
    assert hidden + covered.exposed * known <= found <= 1.001 * (hidden + covered.exposed * known)
