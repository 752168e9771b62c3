"""Tests on the residue of a sum: never better than the best test there is, and nearly as good."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from calipers.numerics.fourier import one_of_another_kind
from calipers.pld.allocation.cyclic_tests import cyclic_tests
from calipers.pld.allocation.shuffle_attack import ShuffleAttack

SIZE = 16
"""A fast length, so that nothing is padded."""
Law = dict[int, Fraction]


def _law(rng: np.random.Generator) -> tuple[np.ndarray, Law]:
    """Masses at a few places of the circle, as doubles and exactly."""
    masses = np.zeros(SIZE)
    masses[rng.choice(SIZE, 5, replace=False)] = rng.dirichlet(np.ones(5)) * 0.999
    return masses, {int(i): Fraction(float(masses[i])) for i in np.flatnonzero(masses)}


def _moved(state: Law, step: Law) -> Law:
    moved: Law = {}
    for (a, p), (b, q) in itertools.product(state.items(), step.items()):
        moved[(a + b) % SIZE] = moved.get((a + b) % SIZE, Fraction(0)) + p * q
    return moved


def _row(pmf: Law) -> np.ndarray:
    return np.array([float(pmf.get(i, Fraction(0))) for i in range(SIZE)])


def test_the_error_of_a_power_with_one_of_another_kind_is_charged() -> None:
    """In exact arithmetic the products lie within the 2-norm that is stated, which is tiny."""
    rng = np.random.default_rng(7)
    (base, exact), (other, exact_other) = _law(rng), _law(rng)
    found, error = one_of_another_kind(base, 9, [base, other])
    power: Law = {0: Fraction(1)}
    for _ in range(9):
        power = _moved(power, exact)
    for row, last in zip(found, (exact, exact_other), strict=True):
        assert float(np.linalg.norm(row - _row(_moved(power, last)))) <= error < 1e-12


@pytest.mark.parametrize(("tuned", "shift"), [(0.0, 1.5), (0.4, 1.5), (-0.3, 1.5), (1.0, 4.0)])
def test_no_test_of_a_gaussian_sum_beats_the_best_one(tuned: float, shift: float) -> None:
    """Scores that are observations add up to a normal sum, whose best tests have a closed form: size to power."""
    rounds, ends = 12, np.linspace(-11.0, 13.0, 3001)
    middle = 0.5 * (ends[1:] + ends[:-1])
    rows = np.stack([np.diff(ndtr(ends - mean)) for mean in (0.0, shift, 0.0)])
    found = cyclic_tests(middle, rows, 1e-13, rounds, 1.0, tuned, 0.05)
    assert found is not None
    for tests in found:
        assert len(tests.alpha) > 500
        best = ndtr(ndtri(np.minimum(tests.alpha, 1.0)) + shift / math.sqrt(rounds))
        assert np.all(tests.power <= best)
        usual = (tests.alpha > 1e-5) & (tests.alpha < 0.5)
        assert np.all(tests.power[usual] >= best[usual] * (1.0 - 2e-3))


def test_rare_events_are_left_to_ladders() -> None:
    """Where transforms have no digits there are no tests rather than wrong ones."""
    ends = np.linspace(-11.0, 13.0, 3001)
    middle = 0.5 * (ends[1:] + ends[:-1])
    rows = np.stack([np.diff(ndtr(ends - mean)) for mean in (0.0, 1.5, 0.0)])
    assert cyclic_tests(middle, rows, 1e-13, 12, 1.0, 9.0, 0.05) is None
    assert cyclic_tests(middle, rows, 1e-13, 1, 1.0, 0.0, 0.05) is None


@pytest.mark.parametrize(("epsilon", "kept"), [(0.0, 0.08436761), (0.7, 5.251816e-3), (3.0, 9.474796e-6)])
def test_what_ladders_showed_is_still_shown(epsilon: float, kept: float) -> None:
    """delta of 234 shuffled batches at noise 1.1, 96 of 60,000 records left over, as ladders at 0.05 gave it."""
    attack = ShuffleAttack(1.1, 234, 0.9984)
    shown = attack.families(epsilon, -39.0, 0.05)[0].best(epsilon)[0]
    assert kept * (1.0 - 1e-4) <= shown <= kept * 1.002


def test_a_law_made_of_circles_and_ladders_shows_what_ladders_alone_showed() -> None:
    """600 rounds at noise 0.7: the profile of one epoch as a ladder for every one of all epsilons gave it."""
    pmf = ShuffleAttack(0.7, 600, 0.999).lower(0.05, -40.0)
    kept = {0.0: 0.229595, 0.2: 0.182056, 1.5: 0.0489891, 4.0: 0.00251966, 8.0: 1.02372e-7}
    for epsilon, before in kept.items():
        assert before * (1.0 - 1.5e-3) <= pmf.delta(epsilon) <= before * 1.001
    for epsilon, before in {0.2: 0.135264, 0.5: 0.0356023, 1.5: 6.59317e-11}.items():
        assert before * (1.0 - 1e-3) <= pmf.reverse().delta(epsilon) <= before * 1.001
