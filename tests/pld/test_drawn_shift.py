"""A Gaussian whose shift is drawn: one line is the worst case, and dp_accounting's mixture is the same pair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import contour, plane
from oracles.pairs import poisson_gaussian
from scipy import special, stats

from calipers.errors import UnsupportedError
from calipers.numerics.binomial import hypergeometric, log_binomial
from calipers.pld.composition.product import Product
from calipers.pld.composition.renyi import renyi
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.part_algebra import revealed
from calipers.samplers.units import binomial_shifts


def binomial(trials, rate):
    return [math.comb(trials, j) * rate**j * (1 - rate) ** (trials - j) for j in range(trials + 1)]


@pytest.mark.parametrize("seed", range(4))
def test_no_directions_show_more_than_one_line(seed):
    """Vectors of the same lengths, pointing anywhere, against nothing and against others: both orders."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(4))
    lengths = np.concatenate(([0.0], np.sort(rng.uniform(0.3, 2.0, 3))))
    shifts = Shifts.of(lengths, weights)
    vectors, others = (lengths[:, None] * _directions(4, rng) for _ in range(2))
    pmf = drawn_shift(shifts).upper(0.01, -40.0)
    both = drawn_shift(shifts, opposite=True).upper(0.01, -40.0)
    nothing = (np.ones(1), np.zeros((1, 2)))
    for eps in (0.0, 0.4, 1.2):
        assert plane.divergence(weights, vectors, *nothing, eps) <= pmf.delta(eps) * (1 + 5e-4) + 1e-9
        assert plane.divergence(*nothing, weights, vectors, eps) <= pmf.reverse().delta(eps) * (1 + 5e-4) + 1e-9
        assert plane.divergence(weights, vectors, weights, others, eps) <= both.delta(eps) * (1 + 5e-4) + 1e-9


def _directions(count, rng):
    angle = rng.uniform(0.0, 2.0 * math.pi, count)
    return np.stack((np.cos(angle), np.sin(angle)), axis=1)


@pytest.mark.parametrize("opposite", [False, True])
def test_the_pair_is_the_integral(opposite):
    """Against a sum over a fine grid of the two densities on the line."""
    weights, lengths = binomial(3, 0.3), [0.0, 0.5, 1.0, 1.5]
    pair = drawn_shift(Shifts.of(lengths, weights), opposite=opposite)
    means = np.array([(length, 0.0) for length in lengths])
    against = (np.array(weights), -means) if opposite else (np.ones(1), np.zeros((1, 2)))
    for eps in (0.0, 0.3, 1.0):
        exact = plane.divergence(np.array(weights), means, *against, eps)
        assert pair.lower(0.01, -40.0).delta(eps) <= exact + 1e-7
        assert exact <= pair.upper(0.01, -40.0).delta(eps) + 1e-7
        assert pair.upper(0.01, -40.0).delta(eps) == pytest.approx(exact, rel=1e-3)


def test_shifts_that_are_left_out_count_as_infinite():
    """The rarest shift tells the datasets apart: its whole probability is delta, at any epsilon. No tolerance."""
    rare = 1e-80
    shifts = Shifts.of([0.0, 1.0, 300.0], [0.5, 0.5, rare])
    assert shifts.beyond == rare
    pmf = drawn_shift(shifts).upper(0.05, -200.0)
    assert rare <= pmf.delta(1000.0) < 1.001 * rare
    both = drawn_shift(shifts, opposite=True).upper(0.05, -200.0)
    assert rare <= min(both.delta(1000.0), both.reverse().delta(1000.0))


@pytest.mark.parametrize(("trials", "rate"), [(2, 0.5), (200, 1e-6), (300, 0.9), (20_000, 1e-4), (20_000, 0.01)])
def test_successes_that_are_never_built_are_too_rare_to_tell(trials, rate):
    """Of trials in their thousands as of all of their numbers of successes: not a bit less is left out."""
    j = np.arange(trials + 1.0)
    every = Shifts.of(0.5 * j, np.exp(log_binomial(j, trials, rate)))
    found = binomial_shifts(trials, rate, 0.5)
    assert (found.lengths, found.weights) == (every.lengths, every.weights)
    assert every.beyond <= found.beyond <= every.beyond * (1 + 1e-12)


def test_a_billion_places_are_as_quick_as_ten():
    """With a mean of a third, j is nearly Poisson, and nothing of the size of the batch is built."""
    found = binomial_shifts(10**9, 3e-10, 1.0)
    assert len(found.lengths) < 100
    assert sum(found.weights) == pytest.approx(1.0, rel=1e-12)
    assert stats.poisson.sf(len(found.lengths) - 1, 0.3) == pytest.approx(found.beyond, rel=1e-6)


def test_one_record_is_the_poisson_pair():
    """The contour integral of the Poisson pair, an independent route."""
    pair = drawn_shift(Shifts.of([0.0, 1.0], [0.99, 0.01]))
    bounds = Product([(pair, 1000)]).epsilon(1e-5)
    assert bounds.lower <= contour.epsilon(poisson_gaussian(0.01, 1.0), 1000, 1e-5) <= bounds.upper


def test_more_shifts_than_can_be_told_apart_are_bracketed():
    """With 400 records the shifts are grouped: from above and from below, around the sum over a fine grid."""
    weights = stats.binom.pmf(np.arange(401), 400, 0.3)
    shifts = Shifts.of(np.arange(401) / 400.0, weights / weights.sum())
    assert not shifts.exact
    bounds = Product([(drawn_shift(shifts), 1)]).delta(0.5)
    means = np.stack((np.arange(401) / 400.0, np.zeros(401)), axis=1)
    likely = weights > 1e-15
    exact = plane.divergence(weights[likely], means[likely], np.ones(1), np.zeros((1, 2)), 0.5)
    assert bounds.lower <= exact + 1e-7
    assert exact - 1e-7 <= bounds.upper <= 1.2 * bounds.lower


def test_weights_that_are_no_law_are_refused():
    from calipers.errors import InputError

    for lengths, weights in (([0.0, 1.0], [0.5, 0.4]), ([0.0, -1.0], [0.5, 0.5]), ([0.0], [1.0])):
        with pytest.raises(InputError):
            drawn_shift(Shifts.of(lengths, weights))


@pytest.mark.parametrize(("population", "marked", "draws"), [(10, 3, 4), (60_000, 20, 256), (7, 7, 3), (5, 2, 5)])
def test_hypergeometric_probabilities_are_exact(population, marked, draws):
    """Against integer arithmetic."""
    found, error = hypergeometric(population, marked, draws)
    total = math.comb(population, draws)
    for k, value in enumerate(found):
        ways = math.comb(marked, k) * math.comb(population - marked, draws - k) if k <= draws else 0
        exact = ways / total
        assert abs(value - exact) <= error * exact + 1e-300
    assert error < 1e-10


@pytest.mark.dp_accounting
def test_dp_accountings_mixture_of_gaussians_is_this_pair():
    """Three records of a unit, ten steps: their pessimistic estimate lies above ours by its discretization only."""
    dp_accounting = pytest.importorskip("dp_accounting")
    weights = binomial(3, 0.1)
    event = dp_accounting.dp_event.MixtureOfGaussiansDpEvent(2.0, list(range(4)), weights)
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(event, 10)
    bounds = Product([(drawn_shift(Shifts.of([j / 2.0 for j in range(4)], weights)), 10)]).epsilon(1e-5)
    theirs = accountant.get_epsilon(1e-5)
    assert bounds.lower <= theirs
    assert bounds.upper == pytest.approx(theirs, rel=5e-3)


def test_what_revealed_parts_leave_out_counts_as_infinite_and_has_no_moment():
    """200 records at rate 1e-3: counts rarer than 1e-70 are left out, and of E[L^2] the rarest of all decides."""
    counts = np.arange(201.0)
    log_weights = special.gammaln(201.0) - special.gammaln(counts + 1.0) - special.gammaln(201.0 - counts)
    log_weights += counts * math.log(1e-3) + (200.0 - counts) * math.log1p(-1e-3)
    pair = drawn_shift(Shifts.of(list(counts), list(np.exp(log_weights))))
    both = revealed("two", [(pair, 0.5), (pair, 0.5)])
    assert 0.0 < pair.beyond == both.beyond <= both.upper(0.05, -200.0).p_inf
    assert both.lower(0.05, -40.0).p_inf == 0.0
    # What is kept has a moment that is far too small: E[L^2] = sum over j, k of w_j w_k e^(j k).
    kept = np.count_nonzero(log_weights > math.log(1e-70))
    assert 2.0 * log_weights[kept - 1] + (kept - 1.0) ** 2 < 0.1 * (2.0 * log_weights[-1] + 200.0**2)
    with pytest.raises(UnsupportedError, match="No finite Renyi divergence"):
        renyi(Product([(both, 1)]), 2.0)
