"""Calibration finds the smallest noise whose upper bound meets the target: it meets it, and a little less does not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from mpmath import mp
from oracles import contour, enumeration, pairs

from calipers.bracket import Bracket
from calipers.calibrate import calibrate, one_target, solve
from calipers.errors import InputError, UnsupportedError
from calipers.guarantee import Guarantee
from calipers.measure import CorrelatedNoise, JointRelease, Measurement, Selection, measure
from calipers.mechanisms import Patterns, TreeNoise
from calipers.reports.report import as_measured
from calipers.run import Run

POISSON = Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0)
FIXED = Run(dataset_size=10, batch_size=5, epochs=4, noise_multiplier=1.0, sampler="deterministic")
# The relative tolerance of `solve`: the noise is that close to the smallest whose target `measure` proves by default.
FINE = 1e-4

Reading = Callable[[Measurement], Bracket]
TARGETS: list[tuple[dict[str, float], Reading, float]] = [
    ({"epsilon": 2.0, "delta": 1e-5}, lambda m: m.epsilon(1e-5), 2.0),
    ({"mu": 0.5}, lambda m: m.gdp().mu, 0.5),
    ({"advantage": 0.1}, lambda m: m.advantage(), 0.1),
    ({"tpr": 0.05, "fpr": 0.01}, lambda m: m.tpr(0.01), 0.05),
]
NAMES = ["epsilon", "mu", "advantage", "tpr"]


def dealt(sampler: str, batches: int, epochs: int, noise: float = 1.0) -> Run:
    return Run(dataset_size=batches, batch_size=1, epochs=epochs, noise_multiplier=noise, sampler=sampler)


def upper_at(run: Run, noise: float, reading: Reading) -> float:
    return reading(measure(run.replace(noise_multiplier=noise))).upper


@pytest.mark.parametrize("run", [POISSON, FIXED], ids=["poisson", "deterministic"])
@pytest.mark.parametrize(("target", "reading", "value"), TARGETS, ids=NAMES)
def test_the_upper_bound_meets_the_target_and_less_noise_does_not(
    run: Run, target: dict[str, float], reading: Reading, value: float
) -> None:
    """A fresh measurement's upper bound is at most the target; three tolerances less noise exceed it."""
    found = solve(run, **target)
    assert upper_at(run, found.noise_multiplier, reading) <= value
    assert upper_at(run, found.noise_multiplier * (1.0 - 3.0 * FINE), reading) > value
    assert found.achieved.upper <= value
    assert found.achieved.lower >= 0.99 * value
    assert found.target == {**found.target, **target}
    assert found.run == run.replace(noise_multiplier=found.noise_multiplier)


@pytest.mark.parametrize(("sampler", "which"), [("balls-and-bins", 0), ("balls-and-bins", 2), ("shuffle", 0)])
def test_samplers_that_deal_records_out(sampler: str, which: int) -> None:
    """The same for balls-and-bins and for shuffling, whose upper bound is that of fixed batches."""
    target, reading, value = TARGETS[which]
    run = dealt(sampler, 10, 1)
    noise = solve(run, **target).noise_multiplier
    assert upper_at(run, noise, reading) <= value
    assert upper_at(run, noise * (1.0 - 3.0 * FINE), reading) > value


def test_the_true_epsilon_meets_the_target() -> None:
    """At the calibrated noise the contour integral is at most the target, and within two tolerances of it."""
    noise = calibrate(POISSON, epsilon=2.0, delta=1e-5).noise_multiplier
    truth = contour.epsilon(pairs.poisson_gaussian(0.01, noise), 1000, 1e-5)
    assert 2.0 * (1.0 - 1e-3) <= truth <= 2.0


# Four Gaussian releases with noise s are one of mu = 2/s: the noise each target demands, in closed form.


def smallest_noise(leakage: Callable[[mp.mpf], mp.mpf], value: float) -> mp.mpf:
    """Bisection on 2/s for a leakage that grows with mu."""
    low, high = mp.mpf("1e-3"), mp.mpf(50)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if leakage(middle) < value else (low, middle)
    return 2 / low


GAUSSIAN_TARGETS: list[tuple[dict[str, float], Callable[[mp.mpf], mp.mpf], float]] = [
    ({"epsilon": 2.0, "delta": 1e-5}, lambda mu: enumeration.gaussian(mu, 2), 1e-5),
    ({"epsilon": 0.1, "delta": 1e-9}, lambda mu: enumeration.gaussian(mu, mp.mpf(0.1)), 1e-9),
    ({"mu": 0.5}, lambda mu: mu, 0.5),
    ({"advantage": 0.1}, lambda mu: 2 * mp.ncdf(mu / 2) - 1, 0.1),
    ({"tpr": 0.05, "fpr": 0.01}, lambda mu: mp.ncdf(mu + mp.sqrt(2) * mp.erfinv(2 * mp.mpf(0.01) - 1)), 0.05),
]


@pytest.mark.parametrize(("target", "leakage", "value"), GAUSSIAN_TARGETS)
def test_gaussian_runs_have_the_analytic_noise(
    target: dict[str, float], leakage: Callable[[mp.mpf], mp.mpf], value: float
) -> None:
    """The noise is at least the analytic one, and larger by at most 2e-4."""
    found, least = solve(FIXED, **target).noise_multiplier, smallest_noise(leakage, value)
    assert least <= found * (1 + mp.mpf(10) ** -15)  # the bisection ends there
    assert found <= least * (1 + mp.mpf("2e-4"))


@pytest.mark.parametrize(
    "targets",
    [
        [{"epsilon": eps, "delta": 1e-5} for eps in (0.5, 1.0, 4.0)],
        [{"epsilon": 1.0, "delta": delta} for delta in (1e-9, 1e-6, 1e-3)],
        [{"advantage": value} for value in (0.05, 0.2, 0.5)],
    ],
    ids=["epsilon", "delta", "advantage"],
)
def test_a_stricter_target_needs_more_noise(targets: list[dict[str, float]]) -> None:
    noises = [calibrate(POISSON, **target).noise_multiplier for target in targets]
    assert noises == sorted(noises, reverse=True)
    assert len(set(noises)) == len(noises)


def test_where_the_search_starts_does_not_matter() -> None:
    """Starting points from far too little to far too much noise end within the tolerance of each other."""
    noises = [
        calibrate(POISSON.replace(noise_multiplier=start), epsilon=2.0, delta=1e-5).noise_multiplier
        for start in (0.02, 0.9, 300.0)
    ]
    assert max(noises) / min(noises) <= 1.0 + 2.0 * FINE


def test_progress_sees_every_measurement() -> None:
    """The callback gets noise and upper bound each time, the final pair among them."""
    seen: list[tuple[float, float]] = []
    found = solve(FIXED, epsilon=1.0, delta=1e-5, progress=lambda noise, upper: seen.append((noise, upper)))
    assert len(seen) == found.measurements
    assert (found.noise_multiplier, found.achieved.upper) in seen


@pytest.mark.parametrize(
    "target",
    [{"epsilon": 8.0, "delta": 1e-6}, {"mu": 0.5}, {"tpr": 0.2, "fpr": 0.01}, {"epsilon": 5e-4, "delta": 1e-5}],
)
def test_few_measurements_from_noise_that_says_nothing(target: dict[str, float]) -> None:
    """A guess replaces a noise multiplier far off; half of the measurements would only walk from there."""
    assert solve(POISSON.replace(noise_multiplier=1e6), **target).measurements <= 9


@pytest.mark.parametrize("advantage", [0.1, 0.9, 0.99, 0.99999, 0.9999999])
def test_few_measurements_find_the_noise(advantage: float) -> None:
    """Up to the advantage where nearly every record is found, which falls with noise as 1 - advantage grows."""
    assert solve(FIXED, advantage=advantage).measurements <= 13


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"epsilon": 1.0},
        {"delta": 1e-5},
        {"tpr": 0.1},
        {"fpr": 0.1},
        {"epsilon": 1.0, "delta": 1e-5, "mu": 1.0},
        {"mu": 1.0, "advantage": 0.1},
        {"delta": 1e-5, "fpr": 0.1},
        {"tpr": 0.1, "fpr": 0.1},
        {"tpr": 0.05, "fpr": 0.1},
        {"tpr": math.nan, "fpr": 0.1},
        {"tpr": 0.1, "fpr": math.nan},
        {"tpr": 0.1, "fpr": 0.0},
        {"tpr": 1.0, "fpr": 0.1},
        {"epsilon": math.nan, "delta": 1e-5},
        {"epsilon": math.inf, "delta": 1e-5},
        {"epsilon": 0.0, "delta": 1e-5},
        {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": "1", "delta": 1e-5},
        {"mu": math.nan},
        {"mu": -1.0},
        {"mu": True},
        {"mu": 1.0, "delta0": math.nan},
        {"mu": 1.0, "tolerance": 0.0},
        {"advantage": math.nan},
        {"advantage": 1.0},
    ],
    ids=str,
)
def test_targets_that_say_nothing_are_refused(target: dict[str, Any]) -> None:
    """Missing halves, two targets at once, guessing as a target, and numbers outside their domains."""
    with pytest.raises(InputError):
        solve(FIXED, **target)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({}, "Name a target: epsilon with delta, or mu, or advantage, or tpr with fpr."),
        ({"mu": 1.0, "delta": 1e-5}, "delta and mu contradict each other: they are different targets; name one."),
        ({"tpr": 0.3}, "tpr needs fpr as well."),
    ],
)
def test_a_refused_target_is_named_as_it_was_written(target: dict[str, float], said: str) -> None:
    """In Python by its keyword, and as whoever asks for another spelling has it: the command line by its option."""
    with pytest.raises(InputError) as refusal:
        solve(FIXED, **target)
    assert str(refusal.value) == said
    with pytest.raises(InputError) as refusal:
        one_target(target, "<{}>")
    assert re.sub("[<>]", "", str(refusal.value)) == said
    assert all(f"<{name}>" in str(refusal.value) for name in target)


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ({"epsilon": 1e-12, "delta": 1e-300}, "too strict"),
        ({"advantage": 1e-12}, "too strict"),
        ({"epsilon": 1e9, "delta": 0.5}, "too weak"),
        ({"mu": 1e6}, "too weak"),
    ],
)
def test_targets_out_of_reach_are_refused(target: dict[str, float], word: str) -> None:
    with pytest.raises(InputError, match=word):
        solve(FIXED, **target)


@pytest.mark.parametrize(("epsilon", "said"), [(0.1, "the reason is the divisor"), (1e-12, "too strict")])
def test_a_target_that_the_divisor_puts_out_of_reach(epsilon: float, said: str) -> None:
    """In 10^10 coordinates the scale of the noise shows N q at any noise; undivided, only 1e-12 is too strict."""
    run = Run(dataset_size=100, batch_size=50, steps=2, noise_multiplier=1, normalization="expected", dimension=10**10)
    with pytest.raises(InputError, match=said):
        solve(run, epsilon=epsilon, delta=1e-5 if epsilon == 0.1 else 1e-300)


@pytest.mark.parametrize(
    ("batches", "epochs", "target", "start"),
    [(2, 400, {"advantage": 0.2}, 30.0), (2, 1, {"epsilon": 15.0, "delta": 1e-5}, 0.4)],
    ids=["much-noise", "little-noise"],
)
def test_an_answer_within_reach_is_found_from_afar(
    batches: int, epochs: int, target: dict[str, float], start: float
) -> None:
    """Balls-and-bins is measured for noise from 0.1 to 100; an answer in between is found from noise 1 too."""
    near = calibrate(dealt("balls-and-bins", batches, epochs, start), tolerance=1e-2, **target).noise_multiplier
    assert 0.1 < near < 100.0
    far = calibrate(dealt("balls-and-bins", batches, epochs), tolerance=1e-2, **target).noise_multiplier
    assert abs(far / near - 1.0) <= 2e-2


def test_correlated_noise_and_what_is_beside_a_gradient_are_calibrated() -> None:
    """The noise that is found meets the target, and one percent less does not; a guarantee has no noise."""
    tree = CorrelatedNoise(TreeNoise(100), 1.0, Patterns(100))
    joint = JointRelease(Run(sample_rate=0.05, steps=20, noise_multiplier=1.0), (20.0,))
    for what in (tree, joint):
        found = calibrate(what, epsilon=2.0, delta=1e-5)
        assert type(found) is type(what)
        assert 1.99 <= measure(found).epsilon(1e-5).upper <= 2.0
    less = tree.replace(noise_multiplier=0.99 * calibrate(tree, epsilon=2.0, delta=1e-5).noise_multiplier)
    assert measure(less).epsilon(1e-5).lower > 2.0
    with pytest.raises(InputError, match="no noise that could be changed"):
        calibrate(Selection(Guarantee(mu=1.0), 5.0), epsilon=2.0, delta=1e-5)


def test_a_unit_is_calibrated() -> None:
    """Five records of a user need more noise than one, and the noise that is found is enough for all of them."""
    one = Run(sample_rate=0.05, steps=20, noise_multiplier=1.0, unit="user", records_per_unit=1)
    several = calibrate(one.replace(records_per_unit=5), epsilon=2.0, delta=1e-5)
    assert several.noise_multiplier > calibrate(one, epsilon=2.0, delta=1e-5).noise_multiplier
    assert measure(several).epsilon(1e-5).upper <= 2.0


@pytest.mark.parametrize(("epsilon", "delta"), [(4.0, 1e-6), (1.0, 1e-5)])
def test_measure_proves_what_was_calibrated(epsilon: float, delta: float) -> None:
    """Asked as people ask, without a tolerance: not 4.0001 for a target of 4."""
    run = Run(dataset_size=120_000, batch_size=512, epochs=5, noise_multiplier=1.0)
    found = calibrate(run, epsilon=epsilon, delta=delta)
    assert measure(found).epsilon(delta).upper <= epsilon


def test_a_search_of_many_minutes_is_refused_with_a_way_out() -> None:
    """Ten million shuffled batches of one record: one measurement takes ten seconds; with a remainder it is quick."""
    many = Run(
        sampler="shuffle",
        dataset_size=10_000_000,
        batch_size=1,
        epochs=10,
        noise_multiplier=1.0,
        adjacency="zero-out",
    )
    with pytest.raises(UnsupportedError, match=r"10,000,000 shuffled batches .* measure a few values"):
        calibrate(many, mu=1.0)
    with pytest.raises(UnsupportedError, match=r"1,000 shuffled batches .* measure a few values"):
        calibrate(many.replace(dataset_size=1000, epochs=2), advantage=0.01)


def test_a_delta_that_promises_nothing_is_no_target() -> None:
    """At 1 - 1e-16 a search took more than half a minute."""
    with pytest.raises(InputError, match=r"delta in \[1e-300, 0\.99\]"):
        solve(Run(sample_rate=0.3, steps=100, noise_multiplier=0.7), epsilon=0.3, delta=1.0 - 2.0**-53)


@pytest.mark.slow
def test_a_delta_where_sums_have_no_normal_doubles_gives_no_warning() -> None:
    """At delta = 1e-300 sums of decayed weights underflow where weights are not scaled; warnings are errors here."""
    run = Run(sample_rate=1e-12, steps=10, noise_multiplier=0.3)
    assert measure(solve(run, epsilon=1e-3, delta=1e-300).run).epsilon(1e-300).upper <= 1e-3


def test_a_report_of_a_calibration_has_each_number_once():
    """The search stops at a wider measurement than the page's: it said 3.9973 above and 3.9984 below."""
    found = solve(Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0), epsilon=4.0, delta=1e-6)
    finer = found.measured(1e-5)
    said = as_measured(found, finer)
    assert said.achieved == finer.epsilon(1e-6)
    assert said.achieved.lower > found.achieved.lower
    assert said.noise_multiplier == found.noise_multiplier
    assert isinstance(found.run, Run)
    assert as_measured(found, measure(found.run.replace(noise_multiplier=0.5))) is found
