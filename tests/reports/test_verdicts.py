"""A run is called more private only when its proof beats the other's attack everywhere."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from calipers.bracket import Side
from calipers.measure import measure
from calipers.reports.answers import Questions, answer
from calipers.reports.comparison import Order, nowhere_below, order_of, somewhere_above
from calipers.reports.standing import verdict
from calipers.run import Run

RUN = Run(sample_rate=0.1, steps=1, noise_multiplier=1.0)


def line(*points: tuple[float, float]) -> SimpleNamespace:
    alpha, beta = zip(*points, strict=True)
    return SimpleNamespace(alpha=np.array(alpha), beta=np.array(beta))


def measured(run: Run, upper: SimpleNamespace, lower: SimpleNamespace) -> SimpleNamespace:
    described = SimpleNamespace(runs=(run,), stated=None)
    return SimpleNamespace(answers=described, curve=lambda side: upper if side is Side.UPPER else lower)


PERFECT = line((0, 1), (1, 0))
WEAK = line((0, 1), (0.2, 0.2), (1, 0))
STEEP = line((0, 1), (0.1, 0.5), (1, 0))
FLAT = line((0, 1), (0.5, 0.1), (1, 0))


def test_curves_that_cross_are_in_no_order():
    """FLAT exceeds STEEP at STEEP's only inner breakpoint and falls below it at its own."""
    assert nowhere_below(PERFECT, WEAK)
    assert not nowhere_below(WEAK, PERFECT)
    assert not nowhere_below(FLAT, STEEP)
    assert not nowhere_below(STEEP, FLAT)


@pytest.mark.parametrize(("dip", "accepted"), [(1e-12, True), (0.99e-9, True), (1.01e-9, False), (1e-8, False)])
def test_the_slack_is_what_the_verdict_says_it_is(dip, accepted):
    """A proof that dips by more than 1e-9 below the attack proves nothing."""
    dipping = line((0, 1), (0.5, 0.5 - dip), (1, 0))
    assert nowhere_below(dipping, PERFECT) is accepted


@given(mus=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)), sizes=st.tuples(st.integers(2, 40), st.integers(2, 40)))
def test_the_breakpoints_of_the_upper_curve_decide(mus, sizes):
    """The verdict on two Gaussian curves drawn with chords is that of looking everywhere."""
    alphas = [np.linspace(0, 1, size) for size in sizes]
    first, second = (
        SimpleNamespace(alpha=alpha, beta=ndtr(-ndtri(alpha) - mu)) for alpha, mu in zip(alphas, mus, strict=True)
    )
    everywhere = np.concatenate((*alphas, np.linspace(0, 1, 5001)))
    gap = np.interp(everywhere, first.alpha, first.beta) - np.interp(everywhere, second.alpha, second.beta)
    assert nowhere_below(first, second) == bool(gap.min() >= -1e-9)


def test_a_jump_at_zero_counts_as_the_lower_value():
    """Mass at infinity: the curve starts at (0, 0.9), whether or not (0, 1) is listed as well."""
    jump = line((0, 1), (0, 0.9), (1, 0))
    assert not nowhere_below(jump, PERFECT)
    assert nowhere_below(line((0, 0.95), (1, 0)), jump)


def test_the_upper_end_of_a_jump_at_zero_crosses_nothing():
    """The attack shows (0, 0.95) or less; of the proof's jump from (0, 1) to (0, 0.9) only the lower end is proven."""
    jump = line((0, 1), (0, 0.9), (1, 0))
    assert not somewhere_above(jump, line((0, 0.95), (1, 0)))
    assert somewhere_above(line((0, 0.95), (0.5, 0.475), (1, 0)), jump)


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        ((PERFECT, PERFECT), (WEAK, WEAK), Order.FIRST),
        ((WEAK, WEAK), (PERFECT, PERFECT), Order.SECOND),
        ((STEEP, STEEP), (FLAT, FLAT), Order.CROSSING),
        # The truths may well be PERFECT and WEAK, but the bounds are too wide to tell.
        ((WEAK, PERFECT), (WEAK, PERFECT), Order.OPEN),
        # The first has the better proof and the better attack line; neither proves the order.
        ((FLAT, PERFECT), (WEAK, PERFECT), Order.OPEN),
        ((PERFECT, PERFECT), (PERFECT, PERFECT), Order.SAME),
    ],
)
def test_order_of_two_runs(first, second, order):
    other = RUN.replace(noise_multiplier=2.0)
    assert order_of(measured(RUN, *first), measured(other, *second)) is order


def test_equal_runs_are_the_same_however_wide_their_jaws():
    assert order_of(measured(RUN, WEAK, PERFECT), measured(RUN, WEAK, PERFECT)) is Order.SAME


@pytest.mark.parametrize("change", [{"adjacency": "substitute"}, {"view": "isolated"}])
def test_different_questions_are_not_compared(change):
    other = RUN.replace(**change)
    assert order_of(measured(RUN, PERFECT, PERFECT), measured(other, WEAK, WEAK)) is Order.INCOMPARABLE


def test_what_only_bounds_the_executed_says_that_adding_and_removing_are_left_open() -> None:
    """A pass that broke off is bounded for zeroed-out records: the first sentence says for what nothing is proven."""
    run = Run(dataset_size=100, batch_size=10, epochs=1, noise_multiplier=2, sampler="deterministic")
    answers = answer(measure(run), Questions())
    said = "for adding or removing one record nothing is proven here"
    assert said not in verdict(answers, 1e-3)
    assert said in verdict(dataclasses.replace(answers, executed="7 steps of shuffled batches"), 1e-3)
