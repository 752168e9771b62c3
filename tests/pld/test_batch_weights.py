"""The rule that says little about who made room: every step of its proof, by enumeration, quadrature or simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.numerics.normal import gaussian_delta
from calipers.pld.allocation import recursion
from calipers.pld.allocation.batch_weights import (
    Majorant,
    by_mean_weight,
    dynamic_program_with_first,
    find_majorant,
    first_payoff,
    loss_share,
    weights_of_records,
    worst_case_with_first,
)
from calipers.pld.allocation.full_epoch import FullEpoch
from calipers.pld.allocation.recursion import QUICK
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.allocation.worst_case_term import WorstCaseTerm, replaced, zeroed_out

Floats = NDArray[np.float64]


def record_weights(rest: Floats, later: Floats, noise: Floats) -> Floats:
    """Y_j = 1 / sum over the rest of the first batch and j of exp(<c_i, c_j> - <c_i, z> - |c_i|^2/2)."""
    everyone = np.exp(-rest @ noise - 0.5 * np.sum(rest**2, axis=1))
    own = np.exp(-later @ noise + 0.5 * np.sum(later**2, axis=1))
    return np.asarray(1.0 / (np.exp(later @ rest.T) @ everyone + own))


def populations(rng: np.random.Generator, count: int, width: float) -> list[Floats]:
    """First gradients: two clusters of several shares, orthogonal ones, a ball, a few that stand out."""
    line = [np.where(rng.random(count) < share, width, -width)[:, None] for share in (0.5, 0.2, 0.03)]
    ball = rng.standard_normal((count, 3))
    ball *= width * rng.random(count)[:, None] / np.linalg.norm(ball, axis=1)[:, None]
    return [*line, width * np.eye(count), ball]


@pytest.mark.parametrize("replacing", [False, True])
def test_the_rule_leaves_the_law_of_what_is_seen_as_it_is(replacing: bool) -> None:
    """N = 5, two batches of 2 and one of 1: summed over what is told, the densities are those of the epoch itself.

    Every arrangement against every base (the first batch with a hole, the others full), at random outputs.
    """
    rng = np.random.default_rng(5)
    sizes, others = (2, 2, 1), range(1, 5)
    for _ in range(10):
        gradients = rng.uniform(-1.0, 1.0, (3, 6))  # round x record; 0 is x, 5 its replacement
        seen = rng.normal(0.0, 1.5, 3)
        for record in (0, 5 if replacing else None):
            shown = gradients.copy()
            shown[:, 0] = 0.0 if record is None else gradients[:, record]
            arrangements = _arrangements(range(5), sizes)
            truth = np.mean([_density(f, shown, seen) for f in arrangements])
            told = [_told(b, shown, seen) for b in _arrangements(others, (sizes[0] - 1, *sizes[1:]))]
            assert sizes[0] / 5 * np.mean(told) == pytest.approx(truth, rel=1e-12)


def _arrangements(records: object, sizes: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    ends = np.cumsum((0, *sizes))
    orders = itertools.permutations(records)  # type: ignore[call-overload]
    return sorted({tuple(tuple(sorted(o[a:b])) for a, b in itertools.pairwise(ends)) for o in orders})


def _density(batches: tuple[tuple[int, ...], ...], shown: Floats, seen: Floats) -> float:
    sums = [shown[t, list(batch)].sum() for t, batch in enumerate(batches)]
    return math.exp(-0.5 * sum((s - m) ** 2 for s, m in zip(seen, sums, strict=True)))


def _told(base: tuple[tuple[int, ...], ...], shown: Floats, seen: Floats) -> float:
    """The density of the outputs and a base: x in the hole, or in place of j with the weight that the rule gives."""
    reference = _density(base, shown, seen)
    first, z = shown[0], seen[0] - shown[0, list(base[0])].sum()
    own = math.exp(first[0] * z - 0.5 * first[0] ** 2)
    total = reference * own
    rest = first[list(base[0])][:, None]
    for t in range(1, len(base)):
        left = seen[t] - shown[t, list(base[t])].sum()
        for j in base[t]:
            weight = float(record_weights(rest, np.array([[first[j]]]), np.array([z]))[0])
            moved = shown[t, 0] - shown[t, j]
            total += reference * weight * math.exp(moved * left - 0.5 * moved**2)
    return total


def test_losses_stay_below_their_tail_whatever_the_rates_are() -> None:
    """All subsets of 12 records as the rest of a first batch, for even, geometric and random rates. No tolerance."""
    rng = np.random.default_rng(2)
    count, members = 12, 5
    batch = members + 1
    for rates in (
        np.ones(count),
        3.0 ** np.arange(count),
        rng.lognormal(0.0, 2.0, count),
        1e6 ** rng.integers(0, 2, 12),
    ):
        losses = []
        for chosen in itertools.combinations(range(count), members):
            inside = np.isin(np.arange(count), chosen)
            outside = rates[~inside]
            losses.append(float(np.mean(outside / (rates[inside].sum() + outside))))
        assert np.mean(losses) == pytest.approx(1.0 / batch, rel=1e-12)
        for level in (0.2, 0.3, 0.5, 0.7):
            # As used: with one member of the rest set apart, which makes the rate smaller.
            assert np.mean(np.array(losses) > level) <= loss_share(level, 0.0, batch, count + 1)


def test_weights_of_records_stay_within_their_ratio_and_variance() -> None:
    """Random rests, noise and populations: largest weight and second moment, without tolerance."""
    rng = np.random.default_rng(8)
    width, batch, count = 0.9, 20, 400
    seen = 0.0
    for c in populations(rng, count, width):
        for _ in range(40):
            order = rng.permutation(count)
            rest, later = c[order[: batch - 1]], c[order[batch - 1 :]]
            z = rng.standard_normal(c.shape[1]) * 1.5 + c[order[0]]
            rates = np.exp(-c @ z - 0.5 * np.sum(c**2, axis=1))
            inside = rates[order[: batch - 1]].sum()
            loss = float(np.mean(rates[order[batch - 1 :]] / (inside + rates[order[batch - 1 :]])))
            weights = record_weights(rest, later, z)
            weights /= weights.mean()
            bound = weights_of_records(loss, width, batch)
            assert weights.max() <= bound.largest
            assert weights.var() <= bound.variance
            seen = max(seen, float(weights.var() / bound.variance))
    assert seen > 0.3  # and the bound is of the right size


def _majorized(weights: Floats, covered: Majorant) -> bool:
    """Whether all sums of the largest weights are at most those of the cover."""
    above = np.zeros(max(len(weights), covered.few + covered.many))
    above[: covered.few], above[covered.few : covered.few + covered.many] = covered.high, covered.low
    return bool(np.all(np.cumsum(np.sort(weights)[::-1]) <= np.cumsum(above)[: len(weights)] + 1e-9))


def test_batches_of_extreme_weights_are_covered() -> None:
    """Two values at the largest ratio, the share that varies most: 400 partitions, all covered."""
    rng = np.random.default_rng(4)
    width, batch, batches = 0.7, 60, 80
    covered = find_majorant(width, batch, batch * (batches + 1), 9.0)
    assert covered is not None
    assert covered.few * covered.high + covered.many * covered.low == pytest.approx(batches, rel=1e-12)
    ratio = math.exp(2.0 * width * width)
    share = 1.0 / (1.0 + ratio)
    records = np.where(np.arange(batch * batches) < share * batch * batches, ratio, 1.0)
    records /= records.mean()
    drawn = [rng.permutation(records).reshape(batches, batch).mean(axis=1) for _ in range(400)]
    assert all(_majorized(w, covered) for w in drawn)
    even = Majorant(batches - 1, batches / (batches - 1), 0, 1.0, 0.0)
    assert not any(_majorized(w, even) for w in drawn)


@pytest.mark.parametrize("kind", ["present", "absent", "replaced"])
@pytest.mark.parametrize("epsilon", [0.0, 0.8])
def test_the_payoff_of_the_first_batch_is_an_upper_bound(kind: str, epsilon: float) -> None:
    """E[(X_1 + h s)+] for random populations and the record against, with or across them, simulated; E[h] = 1."""
    rng = np.random.default_rng(12)
    sigma, batch, count, draws, k = 1.2, 12, 120, 500, math.exp(epsilon)
    r = 1.0 / sigma
    term: WorstCaseTerm = (
        replaced(sigma, epsilon) if kind == "replaced" else zeroed_out(sigma, epsilon, kind == "absent")
    )
    known = float(gaussian_delta(term.width, epsilon)) * (1.0 + 1e-9)
    places, values = first_payoff(term, known)
    for c in populations(rng, count, r)[:4]:
        x = np.zeros(c.shape[1])
        x[0] = r
        shifts = {"present": (x, 0.0 * x), "absent": (0.0 * x, x), "replaced": (x, -x)}[kind]
        gains, means = np.zeros((draws, 9)), np.zeros(draws)
        asked = np.array([-60.0, -10.0, -3.0, -1.0, 0.0, 0.5, 2.0, 10.0, 60.0])
        for i in range(draws):
            order = rng.permutation(count)
            z = rng.standard_normal(c.shape[1])
            means[i] = batch * float(record_weights(c[order[: batch - 1]], c[order[batch - 1 :]], z).mean())
            a, b = (math.exp(float(v @ z) - 0.5 * float(v @ v)) for v in shifts)
            gains[i] = np.maximum(a - k * b + means[i] * asked, 0.0)
        assert abs(means.mean() - 1.0) <= 5.0 * means.std() / math.sqrt(draws)
        bound = np.interp(asked, places, values)
        assert np.all(gains.mean(axis=0) - 5.0 * gains.std(axis=0) / math.sqrt(draws) <= bound)
    assert bound[0] < known < bound[-1] < 60.0 + known * (1.0 + 1e-9)


def test_an_adversary_who_is_told_who_made_room_stays_below_the_bound() -> None:
    """The adversary of the proof, simulated: base told, first gradients in two clusters, later ones against the record.

    40,000 epochs of 10 batches of 60; the record is gone in one world.
    """
    rng = np.random.default_rng(21)
    sigma, batch, batches, epsilon, epochs = 1.5, 60, 10, 0.5, 40_000
    size, r, k = batch * batches, 1.0 / sigma, math.exp(epsilon)
    z = rng.standard_normal(epochs)
    # Clusters of a quarter and three quarters: how many of each the rest of the first batch and the others hold.
    signs = np.where(np.arange(size - 1) < size // 4, r, -r)
    plus = np.stack([rng.permutation(signs) > 0 for _ in range(400)])
    first = plus[:, : batch - 1].sum(axis=1)
    later = plus[:, batch - 1 :].reshape(len(plus), batches - 1, batch).sum(axis=2)
    pick = rng.integers(len(plus), size=epochs)
    m, p = first[pick], later[pick]
    rate = {s: np.exp(-s * r * z - 0.5 * r * r) for s in (1, -1)}
    near, across = math.exp(r * r), math.exp(-r * r)
    y_plus = 1.0 / (near * (m + 1) * rate[1] + across * (batch - 1 - m) * rate[-1])
    y_minus = 1.0 / (across * m * rate[1] + near * (batch - m) * rate[-1])
    weights = p * y_plus[:, None] + (batch - p) * y_minus[:, None]
    x = rng.standard_normal((epochs, batches - 1))
    terms = np.exp(2.0 * r * x - 2.0 * r * r) - k * np.exp(r * x - 0.5 * r * r)
    own = np.exp(r * z - 0.5 * r * r) - k
    gains = np.maximum(own + (weights * terms).sum(axis=1), 0.0) / batches
    mean, error = float(gains.mean()), float(gains.std()) / math.sqrt(epochs)
    bound = FullEpoch(sigma, batches, 1.0, False, batch, size).delta(epsilon)
    assert mean - 5.0 * error <= bound < 0.8 * float(gaussian_delta(r, epsilon))


def test_leaving_nothing_over_costs_little_with_large_batches() -> None:
    """At least the sum of worst terms with one record left over, and at most some percent more."""
    for substituted, most in ((False, 1.16), (True, 1.25)):
        full = FullEpoch(1.1, 250, 1.0, substituted, 240, 60_000)
        dropped = ShuffledEpoch(1.1, 250, 1.0, substituted)
        for epsilon in (0.0, 1.0):
            least = dropped.node(epsilon, False, 0.2, -40.0)[1]
            assert least <= full.node(epsilon, False, 0.2, -40.0)[1] <= most * least
    assert FullEpoch(2.0, 100, 1.0, False, 100, 10_000).epsilon(1e-6) < 1.1


@pytest.mark.parametrize("kind", ["forward", "reversed", "replaced"])
def test_sums_are_paid_what_simulated_ones_are(kind: str) -> None:
    """Thirty light batches and three heavy ones at three epsilons: at least the mean of 40,000 draws, not far more."""
    rng = np.random.default_rng(23)
    terms = [
        replaced(1.2, epsilon) if kind == "replaced" else zeroed_out(1.2, epsilon, kind == "reversed")
        for epsilon in (0.1, 0.3, 0.6)
    ]
    known = [float(gaussian_delta((2.0 if kind == "replaced" else 1.0) / 1.2, term.epsilon)) for term in terms]
    covered = Majorant(30, 0.9, 3, 1.8, 0.0)
    payoffs = [first_payoff(term, at_most) for term, at_most in zip(terms, known, strict=True)]
    found = [
        worst_case_with_first(term, payoff, covered, 0.01, 0.1, -30.0)
        for term, payoff in zip(terms, payoffs, strict=True)
    ]
    z = rng.standard_normal((40_000, 33))
    for term, (places, payoff), (node, value) in zip(terms, payoffs, found, strict=True):
        x = term.value(z)
        sums = 0.9 * x[:, :30].sum(axis=1) + 1.8 * x[:, 30:].sum(axis=1)
        paid = np.interp(sums, places, payoff)
        mean, error = float(paid.mean()), float(paid.std()) / math.sqrt(len(paid))
        assert term.epsilon <= node <= term.epsilon + 1e-12
        assert mean - 4.0 * error <= 100.0 * value <= 1.12 * mean + 4.0 * error


def test_weights_may_be_raised_if_what_they_lose_is_added() -> None:
    """Weights 1.9 and 0.1 of two batches lie below 1.9 twice and 1.8 (k - 1) more: by quadrature, without tolerance."""
    epoch, raised, epsilon = FullEpoch(2.0, 3, 1.0, False, 100, 300), Majorant(1, 1.9, 1, 1.9, 0.0), 0.8
    term = epoch.term(epsilon, False)
    value = epoch.with_majorant(raised, epsilon, False, 0.1, -40.0)[1]
    z = np.linspace(-8.0, 8.0, 801)
    mass = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    sums = 1.9 * term.value(z)[:, None] + 0.1 * term.value(z)
    paid = mass @ np.interp(sums, *first_payoff(term, epoch.known(epsilon))) @ mass / 3.0
    assert paid <= value <= 6.0 * paid
    # Whatever they add up to, J is asked 1.8 (k - 1) farther out.
    at = np.array([-5.0, -2.0, -0.5, 0.0, 1.0])
    farther = np.interp(at + 1.8 * math.expm1(epsilon), *first_payoff(term, epoch.known(epsilon)))
    assert np.all(np.interp(at, *epoch.payoff(epsilon, False, raised)) >= farther * (1.0 - 1e-12))


def test_pairs_of_sums_are_paid_what_transforms_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where transforms have no digits every pair of a block and a heavy term is looked at: the same value."""
    term, covered = zeroed_out(2.0, 0.3, False), Majorant(8, 1.02, 1, 1.1, 0.0)
    payoff = first_payoff(term, float(gaussian_delta(0.5, 0.3)))
    by_fourier = dynamic_program_with_first(term, payoff, covered, 0.1, -40.0, QUICK)
    monkeypatch.setattr(recursion, "payoff_by_fourier", lambda *_, **__: None)
    assert dynamic_program_with_first(term, payoff, covered, 0.1, -40.0, QUICK) == pytest.approx(by_fourier, rel=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "spread", [(1.0, 1.0, 1.0, 1.0, 1.0), (1.0, 1.0, -1.0, 0.3, -0.6), (-1.0, -1.0, -1.0, -1.0, -1.0)]
)
def test_mean_weights_bound_what_an_enumerated_first_batch_shows(spread: tuple[float, ...], reverse: bool) -> None:
    """Five others on a line, batches of two, every base, the record for and against: quadrature, no tolerance."""
    r, k, sizes = 1.0, math.exp(0.3), np.array([0.1, 0.5, 1.0, 3.0, 10.0])
    z = np.linspace(-10.0, 10.0, 4_001)
    density = np.exp(-0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    below, above = by_mean_weight(zeroed_out(1.0 / r, 0.3, reverse), sizes)
    closest = 0.0
    for x in (r, -r):
        with_record = np.exp(x * z - 0.5 * x * x)
        term = 1.0 - k * with_record if reverse else with_record - k
        shown = np.zeros((2, len(sizes)))
        for i, c in enumerate(spread):
            later = np.array(spread[:i] + spread[i + 1 :])
            inverse = np.exp(-np.outer(later, z) - 0.5 * later[:, None] ** 2) * np.exp(later[:, None] ** 2)
            weights = 1.0 / (np.exp(c * later)[:, None] * np.exp(-c * z - 0.5 * c * c) + inverse)
            moved = np.outer(sizes, 2.0 * weights.mean(axis=0))
            shown += [np.maximum(sign * term - moved, 0.0) @ density / 5.0 for sign in (1.0, -1.0)]
        assert np.all(shown <= (below, above))
        closest = max(closest, float(np.max(shown / (below, above))))
    assert closest > 0.5
