"""Several curves in one picture: each line is a bound of the run it is named after."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from calipers.measure import measure
from calipers.reports.overlays import overlays
from calipers.run import Run

# Fixed batches are Gaussian mechanisms: mu = sqrt(epochs)/noise_multiplier, and every curve has a closed form.
NOISES = {"quiet": 2.0, "loud": 1.0}


@pytest.fixture(scope="module")
def measured():
    return [
        measure(Run(sample_rate=0.5, steps=4, noise_multiplier=noise, sampler="deterministic"))
        for noise in NOISES.values()
    ]


def overlay(view, measured):
    (found,) = [figure for figure in overlays(list(NOISES), measured) if figure.picture.name == view]
    return found


def jaws(figure, name):
    """Proof and attack of one run as arrays (x, y)."""
    found = {line.label: np.array([line.x, line.y]) for line in figure.picture.lines}
    return found[f"{name}, proof"], found[f"{name}, attack"]


def mu_of(name):
    return math.sqrt(2) / NOISES[name]


@pytest.mark.parametrize("name", NOISES)
def test_the_true_trade_off_curve_lies_between(measured, name):
    """Proof below, attack above, and both within a hundredth of the truth."""
    (x, proof), (_, attack) = jaws(overlay("tradeoff", measured), name)
    truth = ndtr(-ndtri(x) - mu_of(name))
    assert np.all(proof <= truth + 1e-15)
    assert np.all(truth <= attack + 1e-15)
    assert np.max(attack - proof) < 0.01


@pytest.mark.parametrize("name", NOISES)
def test_the_true_power_lies_between(measured, name):
    """Attack below, proof above, down to a false positive rate of 1e-5."""
    (x, proof), (_, attack) = jaws(overlay("low-rates", measured), name)
    assert x[0] == pytest.approx(1e-5)
    truth = ndtr(ndtri(x) + mu_of(name))
    assert np.all(attack <= truth * (1 + 1e-12))
    assert np.all(truth <= proof * (1 + 1e-12))
    assert np.max(proof / attack) < 1.01


@pytest.mark.parametrize("name", NOISES)
def test_the_true_profile_lies_between(measured, name):
    """Attack below, proof above, as far as the picture reaches."""
    (x, proof), (_, attack) = jaws(overlay("profile", measured), name)
    mu = mu_of(name)
    truth = ndtr(mu / 2 - x / mu) - np.exp(x) * ndtr(-mu / 2 - x / mu)
    shown = truth > 1e-8
    assert shown.sum() > 50
    assert np.all(attack[shown] <= truth[shown] * (1 + 1e-6))
    assert np.all(truth[shown] <= proof[shown] * (1 + 1e-6))
    assert np.max(proof[shown] / attack[shown]) < 1.02


@pytest.mark.parametrize("view", ["tradeoff", "low-rates", "profile"])
def test_the_table_says_which_way_each_number_is_a_bound(measured, view):
    """For every run a column "at least" and one "at most", in order, at every place."""
    table = overlay(view, measured).table
    assert table.columns[1:] == ("quiet, at least", "quiet, at most", "loud, at least", "loud, at most")
    for place, *cells in table.rows:
        assert [cell.direction for cell in cells] == ["at least", "at most"] * 2
        for name, low, high in zip(NOISES, cells[::2], cells[1::2], strict=True):
            assert low.exact * (1 - 1e-6) <= truth_at(view, place.exact, mu_of(name)) <= high.exact * (1 + 1e-6)
            assert high.exact <= low.exact + 0.01


def truth_at(view, x, mu):
    """What the picture is about, in closed form."""
    if view == "profile":
        with mpmath.workdps(40):  # far out two nearly equal numbers are subtracted
            x, mu = mpmath.mpf(x), mpmath.mpf(mu)
            return float(mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu))
    return ndtr(-ndtri(x) - mu) if view == "tradeoff" else ndtr(ndtri(x) + mu)
