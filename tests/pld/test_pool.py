"""A pool of several batches hides who made room: every step of its proof, by enumeration, quadrature or simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.numerics.normal import gaussian_delta
from calipers.pld.allocation.batch_weights import (
    Majorant,
    _excess,
    _pooled,
    by_mean_weight,
    dynamic_program_with_first,
    find_majorant,
    first_payoff,
    worst_case_with_first,
)
from calipers.pld.allocation.full_epoch import FullEpoch
from calipers.pld.allocation.recursion import QUICK
from calipers.pld.allocation.worst_case_term import replaced, zeroed_out

Floats = NDArray[np.float64]


def normal(points: int, end: float = 9.0) -> tuple[Floats, Floats]:
    """Equally spaced points and normal weights."""
    z = np.linspace(-end, end, points)
    weights = np.exp(-0.5 * z * z)
    return z, weights / weights.sum()


@pytest.mark.parametrize(("batches", "size", "pool"), [(3, 2, 1), (3, 2, 2), (4, 1, 2), (4, 1, 3)])
@pytest.mark.parametrize("replacing", [False, True])
def test_the_rule_leaves_the_law_of_what_is_seen_as_it_is(batches: int, size: int, pool: int, replacing: bool) -> None:
    """All arrangements against all bases with a hole in the pool, adaptive gradients, at random outputs."""
    rng = np.random.default_rng(3)
    count = batches * size
    for _ in range(3):
        slopes, seen = rng.uniform(-0.5, 0.5, (batches, count + 1)), rng.normal(0.0, 1.5, batches)
        starts = rng.uniform(-0.5, 0.5, (batches, count + 1))
        before = np.concatenate(([0.0], np.tanh(np.cumsum(seen))[:-1]))  # gradients depend on earlier outputs
        gradients = starts + slopes * before[:, None]  # record 0 is x, the last one its replacement
        for other in (0, count if replacing else None):
            shown = gradients.copy()
            shown[:, 0] = 0.0 if other is None else gradients[:, other]
            truth = np.mean([_density(a, shown, seen) for a in _dealt(range(count), (size,) * batches)])
            told, bases = 0.0, 0
            for u in range(pool):
                sizes = tuple(size - (t == u) for t in range(batches))
                for base in _dealt(range(1, count), sizes):
                    told += _told(base, u, pool, shown, seen)
                    bases += 1
            assert pool * size / count * told / bases == pytest.approx(truth, rel=1e-12)


def _dealt(records: range, sizes: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    ends = np.cumsum((0, *sizes))
    orders = itertools.permutations(records)
    return sorted({tuple(tuple(sorted(o[a:b])) for a, b in itertools.pairwise(ends)) for o in orders})


def _density(batches: tuple[tuple[int, ...], ...], shown: Floats, seen: Floats) -> float:
    sums = [shown[t, list(batch)].sum() for t, batch in enumerate(batches)]
    return math.exp(-0.5 * sum((s - m) ** 2 for s, m in zip(seen, sums, strict=True)))


def _told(base: tuple[tuple[int, ...], ...], u: int, pool: int, shown: Floats, seen: Floats) -> float:
    """The density of the outputs and a base: x in the hole, or in place of j, who then is in the hole."""
    reference = _density(base, shown, seen)
    noise = [seen[t] - shown[t, list(base[t])].sum() for t in range(len(base))]

    def inverse(i: int, t: int, z: float) -> float:
        return math.exp(-shown[t, i] * z - 0.5 * shown[t, i] ** 2)

    total = reference * math.exp(shown[u, 0] * noise[u] - 0.5 * shown[u, 0] ** 2)
    others = sum(inverse(i, t, noise[t]) for t in range(pool) if t != u for i in base[t])
    for t in range(pool, len(base)):
        for j in base[t]:
            # Y_j as in the theorem.
            own = sum(math.exp(shown[u, i] * shown[u, j]) * inverse(i, u, noise[u]) for i in base[u])
            weight = 1.0 / (others + own + math.exp(shown[u, j] ** 2) * inverse(j, u, noise[u]))
            moved = shown[t, 0] - shown[t, j]
            total += reference * weight * math.exp(moved * noise[t] - 0.5 * moved**2)
    return total


def drawn_pools(
    rng: np.random.Generator, draws: int, width: float, batch: int, later: int, pool: int
) -> tuple[Floats, Floats, Floats]:
    """Weights of later records over their mean, h, and A_u of a record against the pool, for clusters of some shares.

    The gradients of a pool batch change their sign with what the batch before it showed.
    """
    weights, means, ratios = np.zeros((draws, later)), np.zeros(draws), np.zeros(draws)
    for i in range(draws):
        share = (0.5, 0.1, 0.02, 1.0)[i % 4]
        signs = np.where(rng.random(later + pool * batch - 1) < share, width, -width)
        hole, z = int(rng.integers(pool)), rng.standard_normal(pool)
        turns = np.sign(np.concatenate(([1.0], z[:-1])))
        members = np.split(rng.permutation(signs), np.cumsum([batch - (t == hole) for t in range(pool)]))
        inverse = [np.exp(-turns[t] * members[t] * z[t] - 0.5 * width**2) for t in range(pool)]
        own, c = turns[hole] * members[hole], turns[hole] * members[pool]
        others = sum(float(each.sum()) for t, each in enumerate(inverse) if t != hole)
        last = np.exp(c * c) * np.exp(-c * z[hole] - 0.5 * width**2)
        y = 1.0 / (others + np.exp(np.outer(c, own)) @ inverse[hole] + last)
        means[i] = pool * batch * y.mean()
        weights[i], ratios[i] = y / y.mean(), math.exp(-width * z[hole] - 0.5 * width**2)
    return weights, means, ratios


@pytest.mark.parametrize(("width", "batch", "pool"), [(0.5, 4, 5), (0.8, 1, 8), (0.9, 10, 3)])
def test_weights_of_a_pool_are_covered_but_for_what_is_exposed(width: float, batch: int, pool: int) -> None:
    """Weights pass their bounds no more often than the bounds on E[h] and E[A_u] say, at shallow exponents."""
    rng = np.random.default_rng(17)
    later, batches = 40 * batch, 40
    weights, means, ratios = drawn_pools(rng, 1000, width, batch, later, pool)
    assert abs(means.mean() - 1.0) <= 5.0 * means.std() / math.sqrt(len(means))
    for exponent in (-1.0, 0.0, 1.0):
        found = find_majorant(width, batch, (batches + pool) * batch, exponent, pool)
        if found is None:
            continue
        ((bound, shown),) = _pooled(width, batch, pool, exponent)
        outside = (weights.max(axis=1) > bound.largest) | (weights.var(axis=1) > bound.variance)
        for values, most in ((means, shown.exposed), (ratios, shown.alone)):
            gained = values * outside
            assert gained.mean() - 5.0 * gained.std() / math.sqrt(len(gained)) <= most
    assert found is not None


@pytest.mark.parametrize(
    ("width", "batch", "pool", "exponent"), [(0.5, 10, 12, 11.0), (0.9, 4, 20, 3.0), (0.3, 40, 2, 7.0)]
)
def test_constants_of_a_pool_are_those_of_the_lemma(width: float, batch: int, pool: int, exponent: float) -> None:
    """Written down from docs/mathematics with calls by quadrature, on a finer grid of c, which makes a smaller."""
    z, weights = normal(20_001, 14.0)
    ratios, square, deep = np.exp(width * z - 0.5 * width**2), width**2, exponent + 2.5

    def call(c: float) -> float:
        return float(weights @ np.maximum(ratios - c, 0.0))

    levels = np.geomspace(0.05, 60.0, 900)
    calls = np.array([call(c) for c in levels])
    a, y = float(np.min(levels + math.exp(deep) * calls)), width * math.sqrt(2.0 * deep / (pool - 1))
    least = batch * (pool - 1) * math.exp(-0.5 * square - y)  # of H_o
    ratio = (least + math.exp(square) * (batch - 1) * a) / (least + math.exp(-square) * (batch - 1) * a)
    loss = math.exp(square) * a / (least + math.exp(square) * a)
    exposed = 3.0 * pool / (pool - 1) * math.exp(0.5 * square + y - deep)
    below = levels < a * math.exp(-square)
    alone = math.exp(-deep) + 2.0 * float(np.min(calls[below] / (a * math.exp(-square) - levels[below])))
    ((found, shown),) = _pooled(width, batch, pool, exponent)
    variance = (ratio + 1.0) ** 2 / (4.0 * ratio * (1.0 - loss)) - 1.0
    pairs = (
        (found.largest, ratio / (1.0 - loss)),
        (found.variance, variance),
        (shown.exposed, exposed),
        (shown.alone, alone),
    )
    for value, exact in pairs:
        assert 0.9 * exact <= value <= 1.1 * exact
    assert (shown.pool, found.batch_size) == (pool, batch)


@pytest.mark.parametrize(("width", "pool"), [(0.5, 3), (1.0, 2), (0.2, 30)])
def test_excesses_of_a_mean_of_lognormals_are_bounded(width: float, pool: int) -> None:
    """E[G (G - y)+] against 40,000 draws, and no more than that of one lognormal, by quadrature."""
    rng = np.random.default_rng(29)
    y = np.array([0.8, 1.0, 1.3, 2.0, 4.0])
    drawn = np.exp(width * rng.standard_normal((40_000, pool)) - 0.5 * width**2).mean(axis=1)
    gains = drawn[:, None] * np.maximum(drawn[:, None] - y, 0.0)
    z, weights = normal(20_001, 14.0)
    one = np.exp(width * z - 0.5 * width**2)
    bound = _excess(width, pool, y)
    assert np.all(gains.mean(axis=0) - 5.0 * gains.std(axis=0) / math.sqrt(len(gains)) <= bound)
    assert np.all(bound <= (1.0 + 1e-6) * (weights * one) @ np.maximum(one[:, None] - y, 0.0) + 1e-12)
    assert bound[2] < 0.9 * _excess(width, 1, y)[2]


def test_what_is_exposed_is_charged() -> None:
    """The share of fixed batches, and the record alone in the pool: both by hand, on top of the payoff."""
    epoch, covered = FullEpoch(2.0, 50, 1.0, False, 4, 200), Majorant(40, 1.1, 2, 1.4, 1e-3, 3, 1e-4)
    plain = covered._replace(exposed=0.0, alone=0.0)
    (_, value), (_, less) = (epoch.with_majorant(each, 0.3, False, 0.2, -40.0) for each in (covered, plain))
    added = 1e-3 * float(gaussian_delta(0.5, 0.3)) + 3 * 4 / 200 * 1e-4
    assert added <= value - less <= added * (1.0 + 1e-4)


@pytest.mark.parametrize("kind", ["present", "absent", "replaced"])
@pytest.mark.parametrize("pool", [2, 3])
def test_mean_weights_of_a_pool_bound_what_an_enumerated_one_shows(kind: str, pool: int) -> None:
    """Batches of one, four others on a line, every base, the record for and against: quadrature, no tolerance."""
    r, k, sizes = 1.0, math.exp(0.3), np.array([0.1, 0.5, 1.0, 3.0, 10.0])
    term = replaced(1.0 / r, 0.3) if kind == "replaced" else zeroed_out(1.0 / r, 0.3, kind == "absent")
    bounds = np.stack(by_mean_weight(term, sizes, pool))
    z, weights = normal(121 if pool == 2 else 33, 6.5)
    grids = np.meshgrid(*[z] * pool, indexing="ij")
    density = np.prod(np.meshgrid(*[weights] * pool, indexing="ij"), axis=0)
    spread, closest = (1.0, 1.0, -1.0, 0.3), 0.0
    for x in (r, -r):
        shown, bases = np.zeros((2, len(sizes))), 0
        for order in sorted(set(itertools.permutations(spread))):
            rest, later = order[: pool - 1], order[pool - 1 :]
            # The hole is in the first batch of the pool; the others of the pool have one member each.
            others = sum(np.exp(-c * g - 0.5 * c * c) for c, g in zip(rest, grids[1:], strict=True))
            h = pool * np.mean([1.0 / (others + np.exp(0.5 * c * c - c * grids[0])) for c in later], axis=0)
            ratio, opposite = np.exp(x * grids[0] - 0.5 * r * r), np.exp(-x * grids[0] - 0.5 * r * r)
            first = {"present": ratio - k, "absent": 1.0 - k * ratio, "replaced": ratio - k * opposite}[kind]
            for i, sign in enumerate((1.0, -1.0)):
                shown[i] += [float(np.sum(density * np.maximum(sign * pool * first - h * s, 0.0))) for s in sizes]
            bases += 1
        assert np.all(shown / bases <= bounds)
        closest = max(closest, float(np.max(shown / bases / bounds)))
    assert closest > 0.4


def test_the_recursion_pays_no_less_than_an_adversary_and_no_more_than_worst_terms() -> None:
    """Twelve light batches, two heavy ones, a pool of two: against simulated opposition, and against worst terms."""
    rng = np.random.default_rng(5)
    sigma, epsilon, r = 2.0, 0.4, 0.5
    covered = Majorant(12, 1.1, 2, 1.4, 0.0, 2)
    term, known = zeroed_out(sigma, epsilon, False), float(gaussian_delta(r, epsilon))
    places, payoff = first_payoff(term, known, 2)
    found = dynamic_program_with_first(term, (places, payoff), covered, 1.0, -40.0, QUICK)
    worst = worst_case_with_first(term, (places, payoff), covered, 1.0, 0.1, -40.0)[1]
    z = rng.standard_normal((40_000, 14))
    x = np.exp(2.0 * r * z - 2.0 * r * r) - math.exp(epsilon) * np.exp(r * z - 0.5 * r * r)
    sums = 1.1 * x[:, :12].sum(axis=1) + 1.4 * x[:, 12:].sum(axis=1)
    paid = np.interp(sums, places, payoff)
    assert paid.mean() - 4.0 * paid.std() / 200.0 <= found < worst
