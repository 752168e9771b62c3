"""Runs under the further samplers, and units of several records: values, order, refusals, random runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.bracket import Side
from calipers.curves.gdp import gaussian_curve
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.measure.units import _largest, grouped_curve
from calipers.numerics.normal import gaussian_epsilon
from calipers.run import Run

MNIST = {"dataset_size": 60_000, "batch_size": 256, "steps": 14_040, "noise_multiplier": 1.1}


def epsilon(delta=1e-5, **keys):
    return measure(Run(**keys)).epsilon(delta)


@pytest.mark.parametrize("epochs", [15, 29, 294])
def test_a_record_that_stays_in_its_bin_and_is_replaced_has_a_bracket_however_little_noise_there_is(epochs):
    """Ratios of single rounds leave the range of doubles: then the bin counts as known."""
    keys = {"dataset_size": 7852, "batch_size": 378, "noise_multiplier": 0.639, "epochs": epochs}
    found = epsilon(**keys, sampler="balls-and-bins", adjacency="substitute", reshuffle="once")
    known = gaussian_epsilon(2.0 * math.sqrt(epochs) / 0.639, 1e-5)
    assert 40.0 < found.lower <= found.upper <= known * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("keys", "delta", "least", "most"),
    [
        (MNIST | {"sampler": "without-replacement"}, 1e-5, 14.69, 14.71),
        (
            {"dataset_size": 10**6, "batch_size": 1000, "steps": 10**4, "noise_multiplier": 0.8}
            | {"sampler": "without-replacement"},
            1e-6,
            15.24,
            15.26,
        ),
        (
            {
                "sampler": "balls-and-bins",
                "reshuffle": "once",
                "sample_rate": 0.01,
                "epochs": 10,
                "noise_multiplier": 1,
            },
            1e-5,
            13.251,
            13.252,
        ),
        ({"sampler": "balls-and-bins", "sample_rate": 0.01, "epochs": 10, "noise_multiplier": 1}, 1e-5, 1.70, 1.702),
        (
            {"sampler": "random-allocation", "steps": 391, "participations": 5, "noise_multiplier": 0.55},
            1.25e-5,
            6.62,
            7.33,
        ),
    ],
)
def test_values_that_were_asked_for(keys, delta, least, most):
    bracket = epsilon(delta, **keys)
    assert least <= bracket.lower <= bracket.upper <= most


def test_an_epsilon_far_beyond_the_first_guess_is_found():
    """Places that a record may take many times over: the search for epsilon ends at infinity, not in an overflow."""
    keys = {"dataset_size": 221, "batch_size": 58, "steps": 17, "noise_multiplier": 0.881}
    bracket = epsilon(7.8e-7, **keys, sampler="with-replacement")
    assert 107.0 < bracket.lower <= bracket.upper < 107.4


def test_a_cyclic_run_is_the_poisson_run_of_one_group():
    """14,040 steps in ten groups are 1404 steps at ten times the rate."""
    cyclic = epsilon(**MNIST, sampler="cyclic-poisson", cycle=10)
    one = epsilon(sample_rate=2560 / 60_000, steps=1404, noise_multiplier=1.1)
    assert (cyclic.lower, cyclic.upper) == pytest.approx((one.lower, one.upper), rel=1e-3)
    assert measure(Run(**MNIST, sampler="cyclic-poisson", cycle=10)).claim.epsilon(1e-5) == pytest.approx(
        2.3796, rel=1e-3
    )


def test_a_unit_of_one_record_changes_nothing_and_more_records_show_more():
    plain = epsilon(**MNIST)
    assert epsilon(**MNIST, unit="user", records_per_unit=1) == plain
    found = [epsilon(**MNIST, unit="user", records_per_unit=g) for g in (2, 3, 5)]
    assert plain.upper < found[0].lower < found[0].upper < found[1].lower < found[1].upper < found[2].lower


def test_a_unit_in_fixed_batches_is_one_larger_release():
    """Two records in one batch of two epochs: mu = 2 sqrt(2) / sigma; three in batches of two: sqrt(4 + 1)."""
    keys = {"sampler": "deterministic", "dataset_size": 600, "epochs": 2, "noise_multiplier": 8.0, "unit": "user"}
    exact = gaussian_epsilon(2 * math.sqrt(2) / 8.0, 1e-5)
    assert epsilon(**keys, batch_size=60, records_per_unit=2).upper == pytest.approx(exact, rel=1e-9)
    exact = gaussian_epsilon(math.sqrt(5) * math.sqrt(2) / 8.0, 1e-5)
    assert epsilon(**keys, batch_size=2, records_per_unit=3).upper == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("mu", "records"), [(0.5, 2), (0.3, 5), (0.1, 12)])
def test_group_privacy_on_curves_is_exact_for_gaussians(mu, records):
    """Dong, Roth and Su: a group of g has mu g. Never below, within a percent above."""
    curve = grouped_curve(gaussian_curve(mu, Side.UPPER), records)
    for delta in (1e-3, 1e-5, 1e-7):
        exact = gaussian_epsilon(mu * records, delta)
        assert exact <= curve.epsilon(delta) <= 1.01 * exact


@pytest.mark.parametrize("odds", [1, 2, 37, 400])
def test_the_largest_gain_is_that_of_all_breakpoints(odds):
    """By looking at every one of them, also where what is reached is no concave function of the rate."""
    rng = np.random.default_rng(odds)
    alpha, reached, some = (np.sort(rng.random(n)) for n in (300, 300, odds))
    every = np.max(reached - np.multiply.outer(4.0 * some, alpha), axis=1)
    assert _largest(reached, alpha, 4.0 * some) == pytest.approx(every, abs=1e-15)


@pytest.mark.parametrize("sampler", ["balls-and-bins", "shuffle"])
def test_other_samplers_say_that_they_use_group_privacy(sampler):
    run = Run(sampler=sampler, dataset_size=1005, batch_size=100, epochs=1, noise_multiplier=4.0)
    one, several = measure(run), measure(run.replace(unit="user", records_per_unit=3))
    bracket = several.epsilon(1e-5)
    assert "Group privacy" in bracket.upper_evidence.statement
    assert one.epsilon(1e-5).lower <= bracket.lower < bracket.upper
    assert one.epsilon(1e-5).upper < bracket.upper
    assert not several.closes


def test_truncation_lies_between_poisson_and_a_batch_of_fixed_size():
    """A larger limit proves less leakage, down to Poisson sampling itself."""
    keys = {"dataset_size": 2000, "batch_size": 20, "steps": 300, "noise_multiplier": 1.5}
    poisson = epsilon(**keys)
    found = [epsilon(**keys, sampler="truncated-poisson", max_batch_size=most) for most in (20, 30, 40, 90)]
    uppers = [bracket.upper for bracket in found]
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[-1] == pytest.approx(poisson.upper, rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (MNIST | {"sampler": "truncated-poisson"}, "needs max_batch_size"),
        (MNIST | {"sampler": "cyclic-poisson"}, "needs cycle"),
        (MNIST | {"sampler": "random-allocation"}, "needs participations"),
        (MNIST | {"max_batch_size": 300}, "max_batch_size=300 is the largest batch"),
        (MNIST | {"sampler": "poisson", "reshuffle": "once"}, "reshuffle='once'"),
        (MNIST | {"records_per_unit": 2}, "needs a unit"),
        (MNIST | {"unit": "user\n"}, "short name"),
        (MNIST | {"unit": "user", "records_per_unit": 60_001}, "records_per_unit <= dataset_size"),
        (
            MNIST | {"sampler": "without-replacement", "batch_size": 60_000, "adjacency": "add-remove"},
            "no batch of 60000 can be drawn",
        ),
        (
            {"sampler": "without-replacement", "sample_rate": 0.1, "steps": 3, "noise_multiplier": 1},
            "give dataset_size",
        ),
        (MNIST | {"sampler": "cyclic-poisson", "cycle": 300}, "lower batch_size or cycle"),
        (
            {
                "sampler": "random-allocation",
                "epochs": 3,
                "sample_rate": 0.1,
                "participations": 3,
                "noise_multiplier": 1,
            },
            "give steps",
        ),
        (
            {"sampler": "random-allocation", "steps": 3, "participations": 4, "noise_multiplier": 1},
            "participations <= steps",
        ),
        (MNIST | {"sampler": "random-allocation", "participations": 5}, "leave batch_size out"),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(keys, message):
    with pytest.raises(InputError, match=message):
        Run(**keys)


def test_a_unit_and_a_divisor_that_moves_are_refused():
    run = Run(**MNIST, unit="user", records_per_unit=2, normalization="realized", dimension=10)
    with pytest.raises(UnsupportedError, match="Nothing is proven"):
        measure(run)
