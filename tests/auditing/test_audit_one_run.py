"""One-run auditing: the p-value is the exact worst case, and no more is concluded than it allows."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy import optimize, stats

from calipers.auditing.one_run import (
    LOG_TAIL_ERROR,
    one_run_audit,
    one_run_p_value,
    rejected_epsilon,
    right_guesses,
)
from calipers.errors import ConditionError, InputError


def worst_mechanism(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """max P[at least `correct` right] over *all* (epsilon, delta)-private mechanisms: a linear program.

    Nothing is assumed about symmetry: one variable for each input and each row of guesses, and for every ordered pair
    of neighbors the positive parts of M(t|s) - e^epsilon M(t|s').
    """
    inputs = list(itertools.product((-1, 1), repeat=canaries))
    outputs = [t for t in itertools.product((-1, 0, 1), repeat=canaries) if sum(map(abs, t)) == guesses]
    pairs = [
        (a, b) for a in range(len(inputs)) for b in range(len(inputs)) if np.sum(np.array(inputs[a]) != inputs[b]) == 1
    ]
    mass, slack = len(inputs) * len(outputs), len(pairs) * len(outputs)
    rows, limits = [], []
    for number, (a, b) in enumerate(pairs):
        total = np.zeros(mass + slack)
        for t in range(len(outputs)):
            row = np.zeros(mass + slack)
            row[a * len(outputs) + t], row[b * len(outputs) + t] = 1.0, -math.exp(epsilon)
            row[mass + number * len(outputs) + t] = -1.0
            total[mass + number * len(outputs) + t] = 1.0
            rows.append(row)
            limits.append(0.0)
        rows.append(total)
        limits.append(delta)
    sums = np.zeros((len(inputs), mass + slack))
    gain = np.zeros(mass + slack)
    for a, s in enumerate(inputs):
        sums[a, a * len(outputs) : (a + 1) * len(outputs)] = 1.0
        for t, guess in enumerate(outputs):
            if sum(g == bit for g, bit in zip(guess, s, strict=True)) >= correct:
                gain[a * len(outputs) + t] = -1.0 / len(inputs)
    solved = optimize.linprog(gain, np.array(rows), limits, sums, np.ones(len(inputs)), bounds=(0, None))
    return -float(solved.fun)


def symmetric_worst(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The same among mechanisms that depend on the number of right guesses alone; reaches larger numbers."""
    size, odds = guesses + 1, math.exp(epsilon)
    rows = []
    for c in range(size):
        up, down = np.zeros(3 * size), np.zeros(3 * size)
        up[c], up[size + c] = c / guesses, -1.0
        down[c], down[2 * size + c] = (guesses - c) / guesses, -1.0
        if c > 0:
            up[c - 1] = -odds * (guesses - c + 1) / guesses
        if c < guesses:
            down[c + 1] = -odds * (c + 1) / guesses
        rows += [up, down]
    rows.append(np.repeat([0.0, 1.0, 1.0], size))
    limits = [0.0] * (2 * size) + [delta * canaries / guesses]
    gain = np.zeros(3 * size)
    gain[correct:size] = -1.0
    total = np.repeat([1.0, 0.0, 0.0], size)[None, :]
    return -float(optimize.linprog(gain, np.array(rows), limits, total, [1.0], bounds=(0, None)).fun)


@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_p_value_is_the_worst_case_over_all_mechanisms(canaries: int, guesses: int, epsilon: float) -> None:
    """Equal to the linear program over every private mechanism, symmetric or not."""
    for correct in range(1, guesses + 1):
        for delta in (0.0, 0.01, 0.2):
            exact = worst_mechanism(canaries, guesses, correct, epsilon, delta)
            found = one_run_p_value(correct, guesses, canaries, epsilon, delta)
            assert found == pytest.approx(min(exact, 1.0), abs=2e-6)


@pytest.mark.parametrize(("canaries", "guesses"), [(10, 10), (50, 12), (40, 40)])
def test_p_value_is_the_worst_case_for_more_canaries(canaries: int, guesses: int) -> None:
    """Equal to the linear program over symmetric mechanisms, which lose nothing."""
    for correct, epsilon, delta in itertools.product(
        (guesses // 2 + 1, guesses - 1, guesses), (0.5, 2.0), (1e-3, 0.05)
    ):
        exact = symmetric_worst(canaries, guesses, correct, epsilon, delta)
        found = one_run_p_value(correct, guesses, canaries, epsilon, delta)
        assert found == pytest.approx(min(exact, 1.0), abs=2e-6)


def published(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """f(v) + 2 m delta max over i of (f(v - i) - f(v))/i, with f a binomial tail."""
    p = 1 / (1 + math.exp(-epsilon))
    f = [float(stats.binom.sf(v - 1, guesses, p)) for v in range(correct + 1)]
    return f[correct] + 2 * canaries * delta * max((f[correct - i] - f[correct]) / i for i in range(1, correct + 1))


def test_worst_case_is_no_larger_than_the_published_bound_where_audits_reject() -> None:
    """Below 1/2 the bound of Steinke et al. lies above the worst case; near 1 it does not, so it is not used."""
    for guesses, factor in itertools.product((1, 2, 5, 30, 200), (1, 10)):
        for correct, epsilon, delta in itertools.product(
            {guesses, (4 * guesses + 4) // 5, guesses // 2 + 1}, (0.0, 0.5, 1.0, 2.0, 4.0), (1e-6, 1e-4, 1e-2)
        ):
            found = one_run_p_value(correct, guesses, factor * guesses, epsilon, delta)
            if found < 0.5:
                assert found <= published(correct, guesses, factor * guesses, epsilon, delta) * (1 + 8 * LOG_TAIL_ERROR)
    assert worst_mechanism(2, 2, 1, 2.0, 0.1) > published(1, 2, 2, 2.0, 0.1) + 0.005


def test_pure_privacy_is_a_binomial_tail() -> None:
    """delta = 0: P[Bin(r, e^eps/(1 + e^eps)) >= v], whatever the number of abstentions; never rounded below it."""
    for correct, guesses, epsilon in ((9, 10, 1.0), (600, 1000, 0.2), (52_000, 100_000, 0.05)):
        exact = float(stats.binom.sf(correct - 1, guesses, 1 / (1 + math.exp(-epsilon))))
        found = one_run_p_value(correct, guesses, 100_000, epsilon)
        assert exact * (1 - 1e-12) <= found <= exact * (1 + 8 * LOG_TAIL_ERROR)


def test_bounds_are_the_edge_of_rejection() -> None:
    """At the returned epsilon the p-value is at most the error, just above it no longer."""
    epsilon = rejected_epsilon(90, 100, 1000, 1e-5, 0.05)
    assert one_run_p_value(90, 100, 1000, epsilon, 1e-5) <= 0.05 < one_run_p_value(90, 100, 1000, epsilon + 1e-6, 1e-5)
    assert rejected_epsilon(55, 100, 100, 0.0, 0.05) == 0.0
    assert rejected_epsilon(100, 100, 100, 0.0, 0.05) == pytest.approx(-math.log(0.05 ** (-1 / 100) - 1), rel=1e-6)


def test_guesses_are_the_extreme_scores_and_ties_go_by_position() -> None:
    """The largest are called included, the smallest excluded; equal scores in the order of the canaries."""
    scores = np.array([3.0, 1.0, 2.0, 0.0])
    included = np.array([True, True, False, False])
    assert right_guesses(scores, included, 1, 1) == 2
    assert right_guesses(scores, included, 2, 2) == 2
    assert right_guesses(np.zeros(4), included, 2, 2) == 4


def test_more_numbers_of_guesses_cost_confidence() -> None:
    """The error is shared: listing useless pairs lowers the bound; the record is valid JSON."""
    rng = np.random.default_rng(1)
    included = rng.random(500) < 0.5
    scores = 3.0 * included + rng.normal(size=500)
    one = one_run_audit(scores, included, guesses=[(100, 100)], delta=1e-5)
    many = one_run_audit(scores, included, guesses=[(100, 100), (1, 0), (0, 1), (1, 1)], delta=1e-5)
    assert 1.0 < many.epsilon_lower < one.epsilon_lower
    assert json.loads(json.dumps(one.to_dict(), allow_nan=False))["correct"] == one.correct


def test_coins_that_are_not_fair_are_refused() -> None:
    """All canaries included is no experiment."""
    with pytest.raises(ConditionError, match="fair"):
        one_run_audit(np.arange(100.0), np.ones(100, dtype=bool), guesses=[(10, 10)], delta=0.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: one_run_p_value(11, 10, 10, 1.0),
        lambda: one_run_p_value(5, 11, 10, 1.0),
        lambda: one_run_p_value(5, 10, 10, -1.0),
        lambda: one_run_p_value(5, 10, 10, 1.0, 1.5),
        lambda: one_run_audit([1.0, 2.0], [True, False], guesses=[(1, 1)], delta=0.0, confidence=1.0),
        lambda: one_run_audit([1.0, 2.0], [True, False], guesses=[], delta=0.0),
        lambda: one_run_audit([1.0, 2.0], [1, 0], guesses=[(1, 1)], delta=0.0),
        lambda: one_run_audit([1.0, np.nan], [True, False], guesses=[(1, 1)], delta=0.0),
        lambda: one_run_audit([1.0, 2.0], [True, False], guesses=[(2, 1)], delta=0.0),
    ],
)
def test_impossible_counts_are_refused(call: object) -> None:
    """More right than guessed, more guessed than canaries, integers for coins, NaN: InputError."""
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
