"""Totals that are told apart by one test, or that no lattice holds: against Gaussians in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from calipers.bracket import Side
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon_bounds
from calipers.pld.composition.low_noise import LEAST, Chebyshev, hides_nothing, log_errors, of_one_test
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.gaussian_part import gaussian_pair
from calipers.pld.core.pmf import PrivacyLossPmf


@pytest.mark.parametrize(("mu", "steps"), [(0.3, 500), (4.0, 300), (2.0, 2000)])
def test_both_errors_are_at_least_those_of_the_best_test(mu, steps):
    """Of a Gaussian the best test that errs equally often errs with probability Phi(-mu sqrt(T)/2)."""
    found = log_errors([(gaussian_pair(mu).lower(0.05, -60.0), steps)])
    best = float(stats.norm.logsf(0.5 * mu * math.sqrt(steps)))
    assert best <= found <= 0.98 * best + 5.0


def test_outcomes_that_a_law_leaves_out_count_as_errors():
    """Two outcomes decide nearly everything and are too rare under one of both to be listed; a third one is listed."""
    p, q, steps = (0.999999, 1e-6), (1e-20, 1.0), 20
    pmf = PrivacyLossPmf.observed(np.log([1e-30]), np.log([1e-30]), 1e-14)
    counts = np.arange(steps + 1.0)
    under_p, under_q = (counts * math.log(one) + (steps - counts) * math.log(other) for one, other in (p, q))
    choices = special.gammaln(steps + 1) - special.gammaln(counts + 1) - special.gammaln(steps - counts + 1)
    # Of any test the larger error is at least a half of what both have in common.
    least = float(special.logsumexp(choices + np.minimum(under_p, under_q))) - math.log(2.0)
    assert log_errors([(pmf, steps)]) >= least


def test_a_curve_of_one_test_is_where_its_errors_are():
    for log_error in (-3.0, -200.0, -1e6):
        curve, rate = of_one_test(log_error), math.exp(max(log_error, LEAST))
        assert curve.side is Side.LOWER
        assert float(curve(rate)) == pytest.approx(rate, rel=1e-9)
        assert float(curve(0.5 * rate)) > rate


def test_what_hides_something_is_not_called_bare():
    """1 - delta at the largest e^epsilon there is, in closed form."""
    for steps in (10, 100, 2000, 20_000):
        mu = math.sqrt(steps)
        log_kept = float(stats.norm.logcdf(710.0 / mu - 0.5 * mu))
        if hides_nothing([(gaussian_pair(1.0).upper(0.2, -60.0), steps)]):
            assert log_kept < -745.0
    assert hides_nothing([(gaussian_pair(1.0).upper(0.2, -60.0), 20_000)])


@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.4])
@pytest.mark.parametrize(("mu", "steps"), [(40.0, 1000), (300.0, 30_000)])
def test_chebyshev_shows_less_than_there_is(mu, steps, delta):
    """And no more than a few deviations less."""
    total = mu * math.sqrt(steps)
    found = Chebyshev.of([(gaussian_pair(mu).lower(0.05, -60.0), steps)])
    truth = gaussian_epsilon_bounds(total, delta, 0.0)[0]
    assert truth - 9.0 * total - 1e-3 * truth <= found.epsilon(delta) <= truth
    for epsilon in (0.5 * total**2 - 3.0 * total, 0.4 * total**2):
        assert 0.0 <= found.delta(epsilon) <= float(gaussian_delta(total, epsilon)) + 1e-12
    assert found.delta(0.25 * total**2) > 0.9
    assert found.delta(2.0 * total**2) == 0.0


def test_a_wide_law_holds_all_mass_and_shows_no_more_than_there_is():
    """Two lengths far apart: what is shown at an epsilon beyond the first is the chance of the second."""
    pair = drawn_shift(Shifts.of([0.0, 300.0, 600.0], [0.25, 0.5, 0.25]))
    pmf = pair.lower(0.2, -60.0)
    for masses in (pmf.log_p, pmf.log_q):
        assert float(np.exp(masses).sum()) == pytest.approx(1.0, rel=1e-9)
    center = 0.25 * 0.0 + 0.5 * 0.5 * 300.0**2 + 0.25 * 0.5 * 600.0**2
    found = Chebyshev.of([(pmf, 1)])
    assert center * (1.0 - 1e-3) <= found.mean <= center
    assert pmf.delta(0.5 * 300.0**2 + 20.0 * 300.0) == pytest.approx(0.25, abs=1e-9)
    assert pmf.delta(0.5 * 300.0**2 - 20.0 * 300.0) == pytest.approx(0.75, abs=1e-9)
