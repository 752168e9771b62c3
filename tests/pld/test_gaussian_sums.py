"""Sums of many Gaussian exponentials, against sums in exact arithmetic."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from calipers.numerics.binomial import log_binomial
from calipers.pld.core.gaussian_part import gaussian_mixture_part, log_sum_exp


def exact(log_weights, means, z):
    with mp.workdps(60):
        total = sum(
            mp.exp(mp.mpf(w) + mp.mpf(m) * (mp.mpf(z) - mp.mpf(m) / 2)) for w, m in zip(log_weights, means, strict=True)
        )
        return mp.log(total)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    ("unit", "count", "rate"),
    [(0.9, 20, 0.004), (4.0, 60, 0.3), (1e-3, 200, 0.5), (2.5, 7, 1e-9), (0.21, 400, 0.4), (1.0, 200, 0.2)],
)
def test_sums_of_many_terms_err_by_no_more_than_a_pair_charges(unit, count, rate, ordered):
    """Far beyond the last mean, and far below the first; points in order, or anywhere in a block."""
    log_weights = log_binomial(np.arange(count + 1.0), count, rate)
    means = unit * np.arange(count + 1.0)
    z = np.linspace(-15.0, float(means[-1]) + 15.0, 3000)
    if not ordered:
        z = np.random.default_rng(1).permutation(z)
    sums = log_sum_exp(log_weights, means, z)
    for place in range(0, 3000, 211):
        truth = exact(log_weights, means, z[place])
        assert abs(float(mp.mpf(float(sums[place])) - truth)) <= 8e-16 * (30.0 + abs(float(truth)))


def test_weights_with_two_humps_add_up_too():
    """Where every other weight is tiny the largest term at a point is not next to the second largest."""
    log_weights = np.log(np.where(np.arange(9) % 4 == 0, 1.0 / 3.0, 1e-200))
    means = 4.0 * np.arange(9.0)
    z = np.linspace(-5.0, 40.0, 3000)
    sums = log_sum_exp(log_weights, means, z)
    for place in range(0, 3000, 137):
        assert abs(float(mp.mpf(float(sums[place])) - exact(log_weights, means, z[place]))) <= 1e-13


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
