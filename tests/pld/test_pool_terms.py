"""Every term of the bounds on a pool of batches, evaluated anew from the statements of docs/mathematics, section 9."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp
from numpy.typing import NDArray

from calipers.numerics.normal import gaussian_delta
from calipers.pld.allocation import batch_weights
from calipers.pld.allocation.batch_weights import (
    Majorant,
    _excess,
    _pooled,
    by_mean_weight,
    dynamic_program_with_first,
    find_majorant,
    first_payoff,
)
from calipers.pld.allocation.recursion import QUICK
from calipers.pld.allocation.worst_case_sum import WorstCaseSum
from calipers.pld.allocation.worst_case_term import replaced, zeroed_out

Floats = NDArray[np.float64]


def moment(width: float, pool: int, order: int) -> mp.mpf:
    """E[(L_1 + ... + L_l)^m] of independent lognormals of mean one, one after the other."""
    if pool == 0:
        return mp.mpf(order == 0)
    one = [mp.exp(mp.mpf(width) ** 2 * j * (j - 1) / 2) for j in range(order + 1)]
    return mp.fsum(mp.binomial(order, j) * one[j] * moment(width, pool - 1, order - j) for j in range(order + 1))


def excess(width: float, pool: int, y: float) -> float:
    """e(y) as the docs bound it: of one lognormal, or (p - 1)^(p - 1) p^-p y^(1 - p) E[G_l^(p + 1)]."""
    x = mp.mpf(y)
    single = mp.exp(width**2) * mp.ncdf(1.5 * width - mp.log(x) / width) - x * mp.ncdf(0.5 * width - mp.log(x) / width)
    several = [
        mp.mpf(p - 1) ** (p - 1) / mp.mpf(p) ** p * x ** (1 - p) * moment(width, pool, p + 1) / mp.mpf(pool) ** (p + 1)
        for p in (range(2, 7) if pool > 1 else ())
    ]
    return float(min([single, *several]))


@pytest.mark.parametrize(("width", "pool"), [(3.0, 2), (1.0, 3), (0.5, 1)])
def test_excesses_are_those_of_the_statement(width: float, pool: int) -> None:
    """Moments of low orders decide with so little noise, or near y = 1."""
    for y in (0.7, 1.0, 1.5):
        found = float(_excess(width, pool, np.array([y]))[0])
        assert found == pytest.approx(excess(width, pool, y), rel=1e-9)


def calls(kind: str, width: float, k: float, above: bool, c: Floats) -> Floats:
    """E[(A - k B - c)+], or of k B - A - c, by a sum over the noise of one release."""
    z = np.linspace(-8.0, 8.0, 2_001)
    density = np.exp(-0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    ratio, opposite, none = np.exp(width * z - 0.5 * width**2), np.exp(-width * z - 0.5 * width**2), np.ones_like(z)
    a, b = {"present": (ratio, none), "absent": (none, ratio), "replaced": (ratio, opposite)}[kind]
    return np.maximum((k * b - a if above else a - k * b) - c[:, None], 0.0) @ density


@pytest.mark.parametrize("kind", ["present", "absent", "replaced"])
@pytest.mark.parametrize("pool", [1, 3])
def test_mean_weights_are_those_of_the_statement(kind: str, pool: int) -> None:
    """l C(s/(l y)) + s e(y)/y^2 at its best y, calls by quadrature, to four digits."""
    width, epsilon, sizes = 0.6, 0.3, np.array([0.05, 0.4, 2.0, 9.0])
    term = replaced(1.0 / width, epsilon) if kind == "replaced" else zeroed_out(1.0 / width, epsilon, kind == "absent")
    for i, found in enumerate(by_mean_weight(term, sizes, pool)):
        for size, value in zip(sizes.tolist(), found.tolist(), strict=True):
            y = np.geomspace(0.5, math.exp(6.0 * width + 1.0), 64)
            terms = calls(kind, width, math.exp(epsilon), i == 1, size / (pool * y))
            exact = float(np.min(pool * terms + size * _excess(width, pool, y) / y**2))
            assert value == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("kind", ["present", "absent", "replaced"])
def test_the_payoff_of_a_pool_is_that_of_the_statement(kind: str) -> None:
    """Vertices: l known at 0; at most l known, or what mean weights leave, on either side, with the drift."""
    pool, epsilon = 3, 0.3
    term = replaced(2.0, epsilon) if kind == "replaced" else zeroed_out(2.0, epsilon, kind == "absent")
    known = float(gaussian_delta(1.0 if kind == "replaced" else 0.5, epsilon))
    places, values = first_payoff(term, known, pool)
    sizes = np.abs(places[places != 0.0])
    below, above = (
        np.interp(np.abs(places), np.sort(sizes), part) for part in by_mean_weight(term, np.sort(sizes), pool)
    )
    drift = pool * (1.0 - math.exp(epsilon))
    stated = np.where(places < 0.0, np.minimum(pool * known, below), np.minimum(pool * known, drift + above) + places)
    stated[places == 0.0] = pool * known
    assert np.allclose(values, stated, rtol=1e-9, atol=0.0)
    assert places[0] < 0.0 < places[-1]
    assert float(np.interp(0.0, places, values)) >= pool * known
    assert values[0] < 1e-3 * known
    assert values[-1] >= places[-1] + drift


@pytest.mark.parametrize("setting", [(0.3, 40, 6, 9.0), (0.5, 10, 12, 7.0)])
def test_what_a_pool_exposes_is_two_events_and_three(setting: tuple[float, int, int, float]) -> None:
    """2 e^-x of the deal of later records, and what the lemma of the pool's records leaves."""
    width, batch, pool, exponent = setting
    ((_, shown),) = _pooled(width, batch, pool, exponent)
    found = find_majorant(width, batch, 400 * batch, exponent, pool)
    assert found is not None
    assert found.exposed == pytest.approx(2.0 * math.exp(-exponent) + shown.exposed, rel=1e-9)
    assert (found.pool, found.alone) == (pool, shown.alone)


def test_a_pool_has_no_weights_where_its_tail_is_not_chernoffs() -> None:
    """Lemma 9.5 needs 2 y' (l - 1) >= r^2, y' = exponent + 2.5: with less, E[e^Z; Z > y] exceeds e^(y - y')."""
    assert _pooled(3.0, 10**14, 2, 2.0)
    assert _pooled(3.0, 10**14, 2, 1.9) == []


def test_the_recursion_is_charged_for_heavy_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the heavy terms lose, where light ones count too, their rounding, and the largest slope: by hand."""
    covered, epsilon, steps = Majorant(12, 1.1, 2, 1.4, 0.0, 2), 0.4, []
    charged = []

    def terms(self: WorstCaseSum, plan, step: float):  # type: ignore[no-untyped-def]
        steps.append(plan.step)
        return "terms", 0.01, 0.02

    def payoff(term, rounds, scale, worth, heavy, effort):  # type: ignore[no-untyped-def]
        assert (rounds, scale) == (12, 1.1)
        charged.append(heavy(0.7)[1])
        return 0.25

    monkeypatch.setattr(WorstCaseSum, "terms", terms)
    monkeypatch.setattr(WorstCaseSum, "left_out", lambda self, moment: 3.0 * moment)
    monkeypatch.setattr(WorstCaseSum, "rounding", property(lambda self: 1e-3))
    monkeypatch.setattr(batch_weights, "recursion_payoff", payoff)
    vertices = np.array([-9.0, 0.0, 9.0]), np.array([0.0, 0.3, 14.7])
    found = dynamic_program_with_first(zeroed_out(2.0, epsilon, False), vertices, covered, 0.1, -40.0, QUICK)
    k, slope = math.exp(epsilon), (14.7 - 0.3) / 9.0
    assert steps == [pytest.approx(0.7 / 1.4, rel=1e-9)]
    others = 1.1 * 12 * (1.0 + k) * 0.02
    assert charged == [pytest.approx(1.4 * 0.06 + 2.0 * 0.3 * 0.01 / slope + others, rel=1e-9)]
    assert found == pytest.approx(0.1 * (slope * 0.25 + 1e-3 * 4.0 * 2 * 1.4 * (1.0 + k)), rel=1e-9)
