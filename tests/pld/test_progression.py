"""Sums of many Gaussian exponentials as polynomials, against sums in exact arithmetic."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from calipers.numerics.binomial import log_binomial
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.progression import Progression


def exact(log_weights, means, z):
    with mp.workdps(60):
        total = sum(
            mp.exp(mp.mpf(w) + mp.mpf(m) * (mp.mpf(z) - mp.mpf(m) / 2)) for w, m in zip(log_weights, means, strict=True)
        )
        return mp.log(total)


@pytest.mark.parametrize(
    ("unit", "count", "rate"),
    [(0.9, 20, 0.004), (4.0, 60, 0.3), (1e-3, 200, 0.5), (2.5, 7, 1e-9), (0.21, 400, 0.4), (1.0, 200, 0.2)],
)
def test_a_progression_adds_up_to_its_stated_error(unit, count, rate):
    """Far beyond the last mean, and far below the first."""
    log_weights = log_binomial(np.arange(count + 1.0), count, rate)
    means = unit * np.arange(count + 1.0)
    found = Progression.of(log_weights, means)
    assert found is not None
    z = np.linspace(-15.0, float(means[-1]) + 15.0, 3000)
    sums = found.log_sums(z)
    for place in range(0, 3000, 211):
        truth = exact(log_weights, means, z[place])
        largest = float(np.max(np.abs(log_weights) + means * (abs(z[place]) + 0.5 * means)))
        # Beside the stated share the exponents of the terms are rounded, a few times each.
        assert abs(float(mp.mpf(float(sums[place])) - truth)) <= found.share_error + 5e-16 * largest


def test_points_may_be_near_here_and_far_there():
    """Rows of as many points as others, but much longer, are divided; and so are groups of two and of three lengths."""
    j = np.flatnonzero(np.arange(700) % 5 % 3 == 0)
    log_weights, means = log_binomial(j.astype(float), 700, 0.3), 0.4 * j
    found = Progression.of(log_weights, means)
    assert found is not None
    z = np.sort(np.concatenate((np.linspace(70.0, 90.0, 5000), np.linspace(-20.0, 300.0, 300))))
    sums = found.log_sums(z)
    for place in [*range(0, len(z), 331), *np.flatnonzero(np.diff(z) > 0.5)[::40]]:
        truth = exact(log_weights, means, z[place])
        largest = float(np.max(np.abs(log_weights) + means * (abs(z[place]) + 0.5 * means)))
        assert abs(float(mp.mpf(float(sums[place])) - truth)) <= found.share_error + 5e-16 * largest


def test_weights_with_two_humps_add_up_too():
    """Where every other weight is tiny the largest term at a point is not beside the next largest."""
    log_weights = np.log(np.where(np.arange(9) % 4 == 0, 1.0 / 3.0, 1e-200))
    means = 4.0 * np.arange(9.0)
    found = Progression.of(log_weights, means)
    assert found is not None
    z = np.linspace(-5.0, 40.0, 1000)
    sums = found.log_sums(z)
    for place in range(0, 1000, 37):
        assert abs(float(mp.mpf(float(sums[place])) - exact(log_weights, means, z[place]))) <= 1e-12


def test_points_in_any_order_and_few_points_have_the_same_sums():
    log_weights, means = log_binomial(np.arange(21.0), 20, 0.01), 0.7 * np.arange(21.0)
    found = Progression.of(log_weights, means)
    assert found is not None
    z = np.linspace(-9.0, 25.0, 2000)
    many = found.log_sums(z)
    assert np.allclose(found.log_sums(z[::-1])[::-1], many, rtol=0.0, atol=1e-12)
    assert np.allclose(found.log_sums(z[:900]), many[:900], rtol=0.0, atol=1e-12)


def test_what_is_no_progression_is_none():
    log_weights = np.log(np.full(6, 1 / 6))
    assert Progression.of(log_weights, np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.1])) is None
    assert Progression.of(log_weights, np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5e3])) is None
    assert Progression.of(log_weights[:3], np.arange(3.0)) is None


def test_a_log_ratio_of_many_terms_errs_by_no_more_than_is_charged():
    """A small rate: the ratio is next to 1, where a difference of logs would have no digits."""
    count, rate, unit = 20, 1e-6, 0.5
    weights = np.exp(log_binomial(np.arange(count + 1.0), count, rate))
    means = unit * np.arange(count + 1.0)
    part = gaussian_mixture_part(tuple(weights), tuple(means), (1.0,), (0.0,))
    assert part.ratio_error is not None
    z = np.linspace(-6.0, 5.0, 3000)
    ratio, charged = part.log_ratio(z), part.ratio_error(-6.0, 5.0)
    assert charged < 1e-15
    with mp.workdps(60):
        logs = [mp.log(mp.mpf(w)) for w in weights]
        for place in range(0, 3000, 149):
            terms = [
                mp.exp(w + mp.mpf(m) * (mp.mpf(z[place]) - mp.mpf(m) / 2))
                for w, m in zip(logs[1:], means[1:], strict=True)
            ]
            truth = mp.log1p(sum(terms) - sum(mp.exp(w) for w in logs[1:]))
            assert abs(float(mp.mpf(float(ratio[place])) - truth)) <= charged
