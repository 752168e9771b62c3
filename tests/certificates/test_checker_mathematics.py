"""The checker's ingredients against independent oracles: mpmath, enumeration, closed forms of compositions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

import mpmath
import numpy as np
from flint import arb, ctx, fmpz

from calipers.certificates.rounds import covering
from calipers.numerics.types import FloatArray
from calipers.pld.allocation import batch_weights as measured
from calipers.pld.allocation import worst_case_term as hidden
from calipers_verify import attacks, pmfs, shuffled, stop_loss
from calipers_verify.reading import MOST_EFFORT, Refused, read, spend
from calipers_verify.rows import ONE, Row, product
from calipers_verify.steps import Phase, bound
from calipers_verify.stop_loss import (
    ball,
    displaced,
    gaussian,
    lognormal,
    moved,
    opposite,
    realized,
    turned,
)
from calipers_verify.sums import SumPlan, connected, summed
from calipers_verify.sums import stop_loss_of as call_of_sum


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    with ctx.workprec(stop_loss.PRECISION):
        yield


NOISE = np.linspace(-15.0, 17.0, 400_001)
"""Where integrals are summed: kinks cost about the square of the spacing, 1e-8."""


Z = np.linspace(-9.0, 11.0, 401)


def phi(z: FloatArray) -> FloatArray:
    return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def integral(values: FloatArray) -> float:
    return float(np.sum(values) * (NOISE[1] - NOISE[0]))


def near(value: arb, truth: float) -> bool:
    return abs(float(value.mid()) - truth) <= 1e-8


@pytest.mark.parametrize("x", [-0.4, -0.05, 0.0, 0.11, 0.7])
def test_closed_forms_of_one_step_are_the_divergences_of_their_densities(x: float) -> None:
    """Poisson steps, present, absent and replaced, by numerical integration of (p - k q)+."""
    q, r, k = 0.3, 0.8, math.exp(x)

    def mixed(mean: float) -> FloatArray:
        return (1 - q) * phi(NOISE) + q * phi(NOISE - mean)

    step = Phase("dealt", 1, Fraction(16, 25), False, Fraction(3, 10))
    for replaced, back, (p, other) in (
        (False, False, (mixed(r), mixed(0))),
        (False, True, (mixed(0), mixed(r))),
        (True, False, (mixed(r), mixed(-r))),
    ):
        found = bound(step._replace(replaced=replaced), Fraction(x), back, None)
        assert near(found, integral(np.maximum(p - k * other, 0.0))), (replaced, back)


def lognormals(shift: float) -> FloatArray:
    return np.exp(shift * NOISE - shift * shift / 2)


def call_of(term: FloatArray, c: float) -> float:
    return integral(phi(NOISE) * np.maximum(term - c, 0.0))


@pytest.mark.parametrize("c", [-2.0, -0.3, 0.0, 0.4, 3.0])
def test_calls_of_terms_are_integrals(c: float) -> None:
    """The four kinds of terms: E[(X - c)+] by summing over the noise."""
    r, k = 0.7, 1.3
    one, two = lognormals(r), lognormals(2 * r)
    ball_r, ball_k, ball_c = ball(Fraction(7, 10)), ball(Fraction(13, 10)), ball(Fraction(c))
    assert near(lognormal(ball_r)(ball_c), call_of(one, c))
    assert near(opposite(ball_r, ball_k)(ball_c), call_of(one - k * lognormals(-r), c))
    assert near(displaced(ball_r, ball_k, False)(ball_c), call_of(two - k * one if c >= 0 else 1 - k * one, c))
    assert near(displaced(ball_r, ball_k, True)(ball_c), call_of(two - k if c >= 0 else 1 - k * two, c))
    exchanged = turned(displaced(ball_r, 1 / ball_k, False), ball_k)
    assert near(exchanged(ball_c), call_of(one - k if c >= 0 else one - k * two, c))
    # Y is spread onto points, so the term of the middle control is a little above its double integral.
    for replaced, factor in ((False, 1.0), (True, math.sqrt(3.0))):
        along = one - k * lognormals(-r) if replaced else one - k
        across = np.exp(factor * r * Z - factor * factor * r * r / 2)
        exact = sum(w * y * call_of(along, c / y) for y, w in zip(across, phi(Z) * (Z[1] - Z[0]), strict=True))
        found = float(shuffled.middle(ball_r, ball_k, replaced)(ball_c).mid())
        assert exact - 1e-8 <= found <= exact + 0.02


def test_the_term_of_shuffled_batches_is_above_every_pair_of_gradients() -> None:
    """The call of X* is at least that of A - k B for shifts a, b on a line with |b| <= r and |a - b| <= r."""
    k, r = 1.2, 1.0
    call = displaced(ball(1), ball(Fraction(6, 5)), False)
    for a, b in ((2.0, 1.0), (0.0, 1.0), (1.0, 0.5), (-0.5, 0.5), (1.2, 0.4), (0.0, -1.0)):
        assert abs(b) <= r
        assert abs(a - b) <= r
        for c in (-1.5, -0.2, 0.3, 2.0):
            assert call_of(lognormals(a) - k * lognormals(b), c) <= float(call(ball(Fraction(c))).mid()) + 1e-8
    # Reaching further than that, the call may be exceeded: the bound is about these gradients, not all.
    assert call_of(lognormals(2.5) - k * lognormals(1.0), 0.3) > float(call(ball(Fraction(0.3))).mid())


def most_of_two_rounds(r: float, k: float, c: float, replaced: bool) -> float:
    """The largest E[(X1 + X2 - c)+] found over pairs of gradients in a plane, the second chosen when the first is seen.

    For the second round alone the worst term is attained strike by strike, so its call is the best reply.
    """
    reply = displaced(ball(Fraction(r)), ball(Fraction(k)), replaced)
    strikes = np.concatenate((-np.geomspace(2000.0, 0.01, 300), np.geomspace(0.01, 2000.0, 300)))
    replies = np.array([float(reply(ball(Fraction(strike)))) for strike in strikes])
    z = np.linspace(-8.0, 8.0, 161)
    weights = np.outer(phi(z), phi(z)) * (z[1] - z[0]) ** 2
    best, reach = 0.0, (2.0 if replaced else 1.0) * r
    for b in np.linspace(0.0, reach, 3):
        for length, angle in ((reach * step, turn) for step in (0.5, 1.0) for turn in np.linspace(0.0, math.pi, 9)):
            a = np.array([b + length * math.cos(angle), length * math.sin(angle)])
            if a @ a > 4.0 * r * r + 1e-12:
                continue
            first = np.exp(a[0] * z[:, None] + a[1] * z[None, :] - a @ a / 2) - k * np.exp(b * z - b * b / 2)[:, None]
            # The chord of a convex call is above it by about 1e-4 of it; the lattice of the block loses more.
            best = max(best, float(np.sum(weights * np.interp(c - first, strikes, replies))))
    return best


@pytest.mark.parametrize(("replaced", "k"), [(False, 1.2), (False, 0.8), (True, 1.2)])
def test_blocks_are_above_adaptive_adversaries_and_below_worst_terms(
    replaced: bool, k: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds: no pair of gradients pays more, whatever is replied; and less than a choice for every strike does."""
    r = Fraction(7, 10)
    monkeypatch.setattr(shuffled, "ROUNDS", 2)
    payoff = shuffled.block_stop_loss(shuffled.halves(ball(r), ball(Fraction(k)), replaced), Fraction(1, 16), 300)
    plan = SumPlan(Fraction(1, 64), (0, 0), (0, 0), 400, 400, -(1 << 14), 1 << 18)
    term = connected(displaced(ball(r), ball(Fraction(k)), replaced), plan)
    worst = call_of_sum(summed([(term, 2)], plan), plan.unit)
    gains = []
    for c in (-1.5, -0.4, 0.0, 0.6, 3.0):
        most, bound = most_of_two_rounds(float(r), k, c, replaced), float(payoff(ball(Fraction(c))))
        assert most <= bound <= 1.02 * float(worst(ball(Fraction(c))))
        gains.append(bound / float(worst(ball(Fraction(c)))))
    assert min(gains) < 0.995


def test_blocks_and_the_rounds_left_over_make_the_sum() -> None:
    """31 rounds as a block and 15 terms: above an attack that is played, below 31 worst terms; 15 are no block."""
    phase = Phase("dropping", 1, Fraction(1, 4), False, Fraction(31, 32), 31, True, 320, 10)
    plan = SumPlan(Fraction(1, 32), (0,) * 5, (0, 0, 1, 1, 2), 90, 28, -(1 << 12), 1 << 16)
    some, x = (Fraction(1, 10), 160), Fraction(0)
    worst, found = (bound(phase, x, False, (plan, each, None)) for each in (None, some))
    z = np.random.default_rng(3).standard_normal((60_000, 31))
    terms = np.exp(z - 0.5) - np.exp(0.5 * z - 0.125)  # shifts (2r, r) in every round, k = 1
    shown = np.maximum(terms.sum(axis=1) / 32, 0.0)
    assert shown.mean() - 4 * shown.std() / math.sqrt(len(shown)) <= float(found)
    assert found < worst < gaussian(phase.mu, ball(x))
    with pytest.raises(Refused, match="longer than the epoch"):
        bound(phase._replace(rounds=15), x, False, (plan, some, None))


def gaussian_law(spacing: Fraction, mu: Fraction, last: int) -> pmfs.LatticePmf:
    """The split of one Gaussian, built here by slopes of its call, and checked by the checker."""

    def call(x: Fraction) -> arb:
        return gaussian(ball(mu), ball(x))

    places = list(range(-last, last + 1))
    k = [ball(place * spacing).exp() for place in places]
    heights = [call(place * spacing) for place in places]
    falls = [
        (1 - heights[0]) / k[0],
        *((heights[i] - heights[i + 1]) / (k[i + 1] - k[i]) for i in range(2 * last)),
        arb(0),
    ]
    masses = [
        int((k[i] * (falls[i] - falls[i + 1]) * ONE).upper().ceil().unique_fmpz()) + 1 for i in range(len(places))
    ]
    infinity = int((heights[-1] * ONE).upper().ceil().unique_fmpz()) + 1
    return pmfs.dominating((places, masses, infinity), spacing, heights)


@pytest.mark.parametrize("parts", [(1,), (7,), (16,), (9, 3)])
def test_products_of_gaussians_are_above_the_gaussian_of_all_and_close(parts: tuple[int, ...]) -> None:
    """T Gaussians compose to one with mu sqrt(T): the bound is never below, and close, coarsened or not, in phases."""
    law, count = gaussian_law(Fraction(1, 64), Fraction(1, 4), 160), sum(parts)
    total = pmfs.power([(law, part) for part in parts], ONE >> 60)
    assert total.spacing == law.spacing * (2 if max(parts) >= 8 else 1)
    for epsilon in (Fraction(0), Fraction(1, 3), Fraction(1), Fraction(2)):
        bound = pmfs.delta_bound(total, epsilon)
        truth = gaussian(ball(Fraction(1, 4)) * arb(count).sqrt(), ball(epsilon))
        assert bound >= truth
        assert float(bound.mid()) <= 1.02 * float(truth.mid()) + 1e-12


def test_trimming_and_coarsening_only_add() -> None:
    """V grows at every k, and a law that is moved left instead falls below somewhere."""
    law = gaussian_law(Fraction(1, 32), Fraction(1, 2), 200)
    coarse, cut = pmfs.coarsened(law), pmfs.trimmed(law, ONE // 1000)
    left = law._replace(row=law.row._replace(low=law.row.low - 1))
    assert cut.infinity > law.infinity
    worse = []
    for epsilon in (Fraction(n, 37) for n in range(-60, 60)):
        value = pmfs.delta_bound(law, epsilon)
        assert pmfs.delta_bound(coarse, epsilon) >= value - ball(Fraction(1, 10**70))
        assert pmfs.delta_bound(cut, epsilon) >= value - ball(Fraction(1, 10**70))
        worse.append(bool(pmfs.delta_bound(left, epsilon) < value))
    assert any(worse)


def test_integer_products_round_every_mass_the_same_way() -> None:
    """Against exact fractions: up, no mass is below the exact one or more than a unit above; down, the mirror image."""
    first, second = [fmpz(3), fmpz(ONE // 3), fmpz(7)], [fmpz(ONE // 7), fmpz(5)]
    for up in (True, False):
        found = product(Row(-3, first), Row(5, second), up)
        assert found.low == 2
        for n, value in enumerate(found.masses):
            exact = Fraction(sum(int(first[i]) * int(second[n - i]) for i in range(3) if 0 <= n - i < 2), ONE)
            assert exact <= int(value) <= exact + 1 if up else exact - 1 < int(value) <= exact


PLAN = SumPlan(Fraction(1, 64), (64, 128, 256), (0, 0, 1), 400, 60, 0, 64 * 4000)


@pytest.mark.parametrize("terms", [1, 2, 3, 5])
def test_sums_of_lognormals_are_above_the_truth_and_close(terms: int) -> None:
    """One term against the closed form, two against a double integral, more against the mean (the call at 0)."""
    r = ball(Fraction(1, 2))
    total = call_of_sum(summed([(connected(lognormal(r), PLAN), terms)], PLAN), PLAN.unit)
    assert total(arb(0)) >= terms
    assert float(total(arb(0)).mid()) <= terms * (1 + 1e-9)
    if terms > 2:
        return
    for c in (Fraction(1, 2), Fraction(terms), Fraction(2 * terms), Fraction(12)):
        if terms == 1:
            truth = float(lognormal(r)(ball(c)).mid())
        else:
            grid = np.linspace(-9.0, 9.0, 3001)
            inner = [float(lognormal(r)(arb(float(c) - math.exp(z / 2 - 1 / 8))).mid()) for z in grid]
            truth = float(np.sum(phi(grid) * inner) * (grid[1] - grid[0]))
        found = float(total(ball(c)).mid())
        assert truth - 1e-6 <= found <= truth * 1.001 + 1e-6


def test_caps_lose_nothing() -> None:
    """What lies beyond the caps is charged: with tight caps the call is still above the truth, at every strike."""
    r = ball(Fraction(1))
    plan = PLAN._replace(low=32, high=128)
    total = call_of_sum(connected(lognormal(r), plan), plan.unit)
    for c in (Fraction(0), Fraction(1, 4), Fraction(1), Fraction(3), Fraction(50)):
        assert total(ball(c)) >= lognormal(r)(ball(c))


def test_a_test_shows_no_more_than_there_is_and_nearly_all() -> None:
    """Rounded log ratios of eight Gaussians with mu 1/4: at most the closed form, and more than 99 % of it."""
    cuts = [Fraction(n, 16) for n in range(-96, 100)]
    factor = (cuts, list(range(len(cuts) + 1)), (), ())
    rows = attacks.tested([factor], [Phase("dealt", 8, Fraction(1, 16), False)], False, ONE >> 80)
    truth = float(gaussian(ball(Fraction(1, 4)) * arb(8).sqrt(), ball(Fraction(1, 2))).mid())
    low, count = rows[0].low, len(rows[0].masses)
    values = [float(attacks.delta_shown(rows, t, Fraction(1, 2)).mid()) for t in range(low, low + count)]
    assert 0.99 * truth < max(values) <= truth
    assert int(sum(rows[0].masses)) <= ONE


def test_an_epoch_s_test_agrees_with_enumeration() -> None:
    """Two rounds, two cells each: all outcomes by hand, p below and q above the exact probabilities."""
    phase = Phase("dealt", 1, Fraction(1), True, Fraction(9, 10), 2)
    total = attacks.epoch([Fraction(1, 2)], [0, 1], phase, False, 0)

    def high(mean: float) -> float:
        return float(mpmath.ncdf(mean - 0.5))

    for (_, masses), mean, below in ((total[0], 1.0, True), (total[1], -1.0, False)):
        noise, marked = high(0.0), high(mean)
        for score in range(3):
            plain = [(1 - noise) ** 2, 2 * noise * (1 - noise), noise**2][score]
            shown = [(1 - noise) * (1 - marked), noise * (1 - marked) + marked * (1 - noise), noise * marked][score]
            truth = 0.9 * shown + 0.1 * plain
            assert abs(int(masses[score]) / ONE - truth) < 1e-12
        # Nothing was cut, so all that is missing or too much is rounding, and that has a direction.
        assert int(sum(masses)) < ONE if below else int(sum(masses)) > ONE


def test_the_round_of_the_record_is_not_always_the_last_one() -> None:
    """Coins that coarsen sums treat rounds differently: the marked row must average over the record's place.

    Five rounds, scores 0 and 1, halved before the third doubling: four of them as a sum of sums, one alone. With the
    record in a random round the exact law is a mean over places, which differs from that of the record at the end.
    """
    phase = Phase("dealt", 1, Fraction(9), False, Fraction(1), 5)
    total = attacks.epoch([Fraction(0)], [0, 1], phase, False, 0)
    noise, marked = 0.5, float(mpmath.ncdf(3))

    def halves(law: dict[int, float]) -> dict[int, float]:
        out: dict[int, float] = {}
        for score, mass in law.items():
            for place in {score // 2} if score % 2 == 0 else {score // 2, score // 2 + 1}:
                out[place] = out.get(place, 0.0) + (mass if score % 2 == 0 else mass / 2)
        return out

    def plus(*laws: dict[int, float]) -> dict[int, float]:
        out = {0: 1.0}
        for law in laws:
            out = {
                s: sum(out.get(s - j, 0.0) * mass for j, mass in law.items()) for s in range(max(out) + max(law) + 1)
            }
        return out

    plain, shown = {0: 1 - noise, 1: noise}, {0: 1 - marked, 1: marked}
    alone = plus(halves(shown), halves(plus(plain, plain, plain, plain)))
    among = plus(halves(plain), halves(plus(plain, plain, plain, shown)))
    for score in range(4):
        truth = alone.get(score, 0.0) / 5 + 4 * among.get(score, 0.0) / 5
        assert abs(int(total[0].masses[score - total[0].low]) / ONE - truth) < 1e-12
    assert max(abs(alone[score] - among[score]) for score in range(4)) > 1e-3


def test_effort_is_limited() -> None:
    """More work than the limit is refused rather than done."""
    spend(MOST_EFFORT, anew=True)
    with pytest.raises(Refused, match="operations"):
        spend(1)
    spend(0, anew=True)


@pytest.mark.parametrize("k", [1.3, 0.8])
def test_size_and_sum_is_the_divergence_of_its_pair(k: float) -> None:
    """Six records: every size and the noise summed by hand; splitting sizes onto fewer only adds, and little."""
    n, q, r = 6, 0.4, 0.5
    b = [math.comb(n, j) * q**j * (1 - q) ** (n - j) for j in range(n + 1)] + [0.0]
    truth = q ** (n + 1)
    for j in range(n + 1):
        shown = (1 - q) * b[j] * phi(NOISE) + q * (b[j - 1] if j else 0.0) * phi(NOISE - 2 * r)
        truth += integral(np.maximum(shown - k * b[j] * phi(NOISE), 0.0))
    found = realized(n, Fraction(2, 5), ball(Fraction(1, 2)))(ball(Fraction(k)))
    assert near(found, truth)
    many = realized(4000, Fraction(1, 2), ball(Fraction(1, 2)))(ball(Fraction(k)))
    sizes, weights = np.arange(4001.0), binomial(4000, 0.5)
    odds = 0.5 * sizes / (4001.0 - sizes)
    exact = sum(w * max_call(0.5, o, k) for w, o in zip(weights, odds, strict=True) if w > 1e-14)
    assert exact - 1e-9 <= float(many.mid()) <= 1.002 * exact


def binomial(n: int, q: float) -> FloatArray:
    logs = [math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in range(n + 1)]
    j = np.arange(n + 1.0)
    return np.exp(np.array(logs) + j * math.log(q) + (n - j) * math.log1p(-q))


def max_call(rest: float, weight: float, k: float) -> float:
    """E[(rest + weight Y - k)+] with Y = exp(z - 1/2), by the formula of Black and Scholes."""
    if weight == 0.0 or k <= rest:
        return max(0.0, rest + weight - k)
    strike = (k - rest) / weight
    z = math.log(strike) + 0.5
    return weight * (float(mpmath.ncdf(1 - z)) - strike * float(mpmath.ncdf(-z)))


@pytest.mark.parametrize("k", [0.7, 0.95, 1.0, 1.1, 2.0])
def test_a_moving_rate_shows_two_binomials(k: float) -> None:
    """Fifty others, ten of them drawn: sums of (p - k q)+ over all sizes."""
    p, q = binomial(50, 10 / 51), binomial(50, 10 / 50)
    truth = float(np.sum(np.maximum(p - k * q, 0.0)))
    assert near(moved(50, 10)(ball(Fraction(k))), truth)


@pytest.mark.parametrize("pool", [1, 5])
@pytest.mark.parametrize(("replaced", "back"), [(False, False), (False, True), (True, False)])
def test_a_batch_of_the_pool_is_above_its_term_and_what_measure_charges(replaced: bool, back: bool, pool: int) -> None:
    """J(s) against E[(l X_u + s)+] of gradients along one line (h = 1), and against measure's own mean weights."""
    x, r = 0.375, 0.5
    term = hidden.replaced(1 / r, x) if replaced else hidden.zeroed_out(1 / r, x, back)
    known = float(gaussian(ball(Fraction(2 * r if replaced else r)), ball(Fraction(x))).mid())
    call = shuffled.first_batch_stop_loss(Fraction(x), ball(Fraction(r)), replaced, back, pool)
    shifts = (r, -r) if replaced else (0.0, r) if back else (r, 0.0)
    present, absent = (np.exp(shift * NOISE - shift**2 / 2) for shift in shifts)
    first = pool * (present - math.exp(x) * absent)
    for s in (-300.0, -20.0, -2.0, -0.5, -0.05, 0.0, 0.05, 0.7, 3.0, 40.0):
        found = float(call(ball(Fraction(-s))).mid())
        below, above = (float(each[0]) for each in measured.by_mean_weight(term, np.array([abs(s) or 1e-9]), pool))
        other = min(pool * known, below if s <= 0.0 else above + pool * (1.0 - math.exp(x))) + max(s, 0.0)
        assert integral(phi(NOISE) * np.maximum(first + s, 0.0)) <= found + 1e-9
        assert found <= pool * known + max(s, 0.0) + 1e-12
        assert 0.98 * other - 1e-6 <= found <= 1.1 * other + 1e-6


@pytest.mark.parametrize("pool", [1, 4, 12])
def test_the_excess_of_a_mean_of_lognormals_is_above_draws(pool: int) -> None:
    """E[G (G - y)+] from 400,000 draws, less four deviations; and close where one lognormal is all there is."""
    r, rng = 0.6, np.random.default_rng(2)
    means = np.exp(r * rng.standard_normal((400_000 // pool, pool)) - r * r / 2).mean(axis=1)
    for y in (0.6, 1.0, 1.3, 2.0, 3.0):
        draws = means * np.maximum(means - y, 0.0)
        drawn, error = float(draws.mean()), float(draws.std()) / math.sqrt(len(draws))
        found = float(shuffled.excess(ball(Fraction(r)), pool, ball(Fraction(y))).mid())
        assert drawn - 4.0 * error <= found
        assert pool > 1 or found <= drawn + 4.0 * error


@pytest.mark.parametrize(("width", "batch", "size", "exponent"), [(1 / 3, 200, 6000, 9.0), (0.9, 240, 60_000, 14.0)])
def test_weights_are_those_of_measure_and_nothing_less_is_accepted(
    width: float, batch: int, size: int, exponent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(low, high, exposed) in balls against floating point; constants that do not cover are refused.

    Measure takes fewer heavy weights, as it knows less of their terms, which the checker does not.
    """
    monkeypatch.setattr(measured, "_WORSE", 1.0)
    record = covering(width, batch, size, exponent)
    assert record is not None
    shift, constants = Fraction(width) ** 2, read(record, shuffled.WEIGHTS, "cover")
    low, high, exposed, alone = (float(each.mid()) for each in shuffled.weights(size, batch, shift, constants))
    assert alone == 0.0
    known = measured.find_majorant.__wrapped__(width, batch, size, exponent)
    assert known is not None
    assert abs(high - known.high) < 1e-4
    assert abs(exposed / known.exposed - 1) < 1e-3
    many, few = constants[-2:]
    assert abs(many * low + few * high - (size / batch - 1)) < 1e-9
    assert (many, few) == (known.many, known.few)
    names, level = list(shuffled.WEIGHTS), constants[4]
    for name, value in (
        ("few", few - 1),
        ("many", many + 2),
        ("level", level + 1),
        ("level", Fraction(999, 1000)),
        ("depth", Fraction(10**5)),
        ("pool", size // batch),
        ("power", Fraction(1)),
    ):
        changed = list(constants)
        changed[names.index(name)] = value
        if changed[-1] > 0:
            with pytest.raises(Refused):
                shuffled.weights(size, batch, shift, tuple(changed))
    with pytest.raises(Refused):
        shuffled.weights(batch + 1, batch, shift, constants)


@pytest.mark.parametrize(
    ("width", "batch", "size", "exponent", "pool"), [(0.5, 10, 10_000, 9.0, 15), (0.3, 1, 5_000, 7.0, 20)]
)
def test_weights_after_a_pool_are_those_of_measure(
    width: float, batch: int, size: int, exponent: float, pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """High, exposed and alone in balls against floating point; what covers less is refused."""
    monkeypatch.setattr(measured, "_WORSE", 1.0)
    record = covering(width, batch, size, exponent, pool)
    assert record is not None
    depth = Fraction(exponent + measured._DEEPER)
    ratio, loss, exposed, alone = (
        float(each.mid()) for each in shuffled.records(size, batch, Fraction(width) ** 2, pool, depth)
    )
    ((weights, shown),) = measured._pooled(width, batch, pool, exponent)
    assert abs(ratio / (1 - loss) / weights.largest - 1) < 0.01
    assert abs(exposed / shown.exposed - 1) < 1e-6
    assert abs(alone / shown.alone - 1) < 0.1
    constants = read(record, shuffled.WEIGHTS, "cover")
    low, high, _, _ = (float(each.mid()) for each in shuffled.weights(size, batch, Fraction(width) ** 2, constants))
    known = measured.find_majorant.__wrapped__(width, batch, size, exponent, pool)
    assert known is not None
    assert abs(high / known.high - 1) < 0.05
    many, few = constants[-2:]
    assert abs(many * low + few * high - (size / batch - pool)) < 1e-8
    for name, value in (("many", 2 * many), ("pool", size // batch)):
        changed = list(constants)
        changed[list(shuffled.WEIGHTS).index(name)] = value
        with pytest.raises(Refused):
            shuffled.weights(size, batch, Fraction(width) ** 2, tuple(changed))


def test_random_weights_after_a_pool_are_covered() -> None:
    """Weights of records drawn as the proof has them, gradients of both signs: ratio and losses hold, nearly always."""
    width, batch, size, pool, depth = 0.5, 10, 2_000, 12, Fraction(6)
    shown = shuffled.records(size, batch, Fraction(1, 4), pool, depth)
    ratio, loss = (float(each.mid()) for each in shown[:2])
    rng, misses = np.random.default_rng(7), 0
    for _ in range(400):
        noise, signs = rng.standard_normal(pool), rng.choice([-width, width], size)
        order = rng.permutation(size)
        rest, others, later = order[: batch - 1], order[batch : pool * batch], order[pool * batch :]
        draws = np.repeat(noise[1:], batch)
        seen = np.exp(-signs[others] * draws - width**2 / 2).sum()
        own = np.exp(-signs * noise[0] - width**2 / 2)
        inverse = seen + np.exp(np.outer(signs[later], signs[rest])) @ own[rest] + np.exp(width**2) * own[later]
        weights = 1 / inverse
        misses += bool(weights.max() / weights.mean() > ratio / (1 - loss))
    assert misses <= 2


def test_random_weights_of_batches_are_covered() -> None:
    """Weights drawn as the proof has them are majorized by the constants, nearly always; by even ones hardly ever."""
    width, batch, size, exponent = 0.5, 50, 1000, 5.0
    record = covering(width, batch, size, exponent)
    assert record is not None
    constants = read(record, shuffled.WEIGHTS, "cover")
    low, high, exposed, _ = (float(each.mid()) for each in shuffled.weights(size, batch, Fraction(1, 4), constants))
    bound = np.sort([low] * constants[-2] + [high] * constants[-1])[::-1].cumsum()
    rng, misses, uneven = np.random.default_rng(5), 0, 0
    for _ in range(400):
        z, signs = rng.standard_normal(), rng.choice([-width, width], size)
        ratios, first = np.exp(-signs * z - width**2 / 2), rng.permutation(size)
        rest, later = first[: batch - 1], first[batch:]
        weights = 1 / (np.exp(np.outer(signs[later], signs[rest])) @ ratios[rest] + np.exp(width**2) * ratios[later])
        batches = (weights / weights.mean()).reshape(-1, batch).mean(axis=1)
        sums = np.sort(batches)[::-1].cumsum()
        misses += bool(np.any(sums[: len(bound)] > bound[: len(sums)] + 1e-9))
        uneven += bool(sums[0] > 1.001)
    assert misses <= 400 * exposed + 3 * math.sqrt(400 * exposed)
    assert uneven > 300
