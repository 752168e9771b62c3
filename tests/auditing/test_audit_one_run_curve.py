"""One run against whole profiles: a bound for every mechanism, never above what is valid, and close to the best."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import optimize, stats

from calipers.auditing import one_run_curve
from calipers.auditing.one_run import one_run_p_value, right_guesses
from calipers.auditing.one_run_curve import (
    EPSILONS,
    gaussian_up,
    one_run_curve_audit,
    one_run_curve_p_value,
    one_run_mu,
)
from calipers.errors import InputError


def worst_mechanism(canaries: int, guesses: int, correct: int, points: dict[float, float]) -> float:
    """max P[at least `correct` right] over all mechanisms that keep every (epsilon, delta) of `points`.

    A linear program over M(t|s), all coins s and all rows of guesses t, and positive parts for every pair of neighbors
    and every epsilon; no symmetry is assumed.
    """
    inputs = list(itertools.product((-1, 1), repeat=canaries))
    outputs = [t for t in itertools.product((-1, 0, 1), repeat=canaries) if sum(map(abs, t)) == guesses]
    near = [(a, b) for a, s in enumerate(inputs) for b, u in enumerate(inputs) if sum(np.not_equal(s, u)) == 1]
    cases = [(a, b, epsilon) for a, b in near for epsilon in points]
    mass, width = len(inputs) * len(outputs), len(outputs)
    rows, limits = [], []
    for number, (a, b, epsilon) in enumerate(cases):
        total = np.zeros(mass + len(cases) * width)
        for t in range(width):
            row = np.zeros_like(total)
            row[a * width + t], row[b * width + t] = 1.0, -math.exp(epsilon)
            row[mass + number * width + t] = -1.0
            total[mass + number * width + t] = 1.0
            rows.append(row)
            limits.append(0.0)
        rows.append(total)
        limits.append(points[epsilon])
    sums, gain = np.zeros((len(inputs), len(total))), np.zeros(len(total))
    for a, s in enumerate(inputs):
        sums[a, a * width : (a + 1) * width] = 1.0
        for t, row in enumerate(outputs):
            if sum(x == y for x, y in zip(s, row, strict=True)) >= correct:
                gain[a * width + t] = 1.0 / len(inputs)
    found = optimize.linprog(-gain, A_ub=np.array(rows), b_ub=limits, A_eq=sums, b_eq=np.ones(len(inputs)))
    return float(-found.fun)


@pytest.mark.parametrize(("canaries", "guesses", "correct"), [(2, 2, 2), (2, 2, 1), (2, 1, 1), (3, 3, 3), (3, 2, 2)])
@pytest.mark.parametrize("points", [{0.0: 0.2, 1.0: 0.04, 2.0: 0.01}, {0.5: 0.1, 2.0: 0.002}])
def test_no_mechanism_of_the_profile_does_better(canaries, guesses, correct, points, monkeypatch) -> None:
    """The worst of all mechanisms, found without any symmetry, is within the bound, and the bound is not far."""
    monkeypatch.setattr(one_run_curve, "EPSILONS", tuple(points))
    one_run_curve._program.cache_clear()
    found = one_run_curve_p_value(correct, guesses, canaries, points.__getitem__)
    one_run_curve._program.cache_clear()
    worst = worst_mechanism(canaries, guesses, correct, points)
    assert worst <= found + 1e-9  # the oracle's own error
    assert found <= worst + 1e-6 or found <= 1.1 * worst
    assert found <= min(one_run_p_value(correct, guesses, canaries, *point) for point in points.items())


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_independent_gaussians_stay_within_the_bound(mu) -> None:
    """Every canary behind noise of its own, all guessed: right guesses are binomial with Phi(mu/2). No tolerance."""
    for correct in (25, 32, 38, 40):
        exact = stats.binom.sf(correct - 1, 40, stats.norm.cdf(mu / 2))
        assert exact <= one_run_curve_p_value(correct, 40, 40, lambda at: gaussian_up(mu, at))


@cache
def p_value(correct, guesses, mu):
    return one_run_curve_p_value(correct, guesses, 200, lambda at: gaussian_up(mu, at))


def rejects(seen, mu):
    """Whether the profile of mu is rejected at 0.05, shared by two numbers of guesses."""
    return any(p_value(c, r, mu) <= 0.025 for c, r in seen)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_coverage_on_a_null_target_and_on_gaussians(mu) -> None:
    """200 runs: above the truth no more often than the confidence allows, and mostly above what is far below it."""
    rng, guesses = np.random.default_rng(5), [(10, 10), (20, 20)]
    exceeded = falsified = 0
    for _ in range(200):
        included = rng.random(200) < 0.5
        scores = mu * included + rng.normal(size=200)
        seen = [(right_guesses(scores, included, *pair), sum(pair)) for pair in guesses]
        exceeded += rejects(seen, mu)
        falsified += rejects(seen, 0.1)
    assert exceeded <= int(stats.binom.ppf(0.999, 200, 0.05))
    assert (falsified > 100) == (mu > 0.5)


@pytest.mark.slow
def test_whole_profiles_say_more_than_their_points() -> None:
    """198 of 200 right of 1000 canaries: mu above 1.26, by single epsilons 1.16; and p-values grow with mu."""
    found = one_run_mu(198, 200, 1000, 0.05)
    assert 1.2 < found < 1.35
    by_points = max(
        mu
        for mu in np.arange(0.5, 2.0, 0.02)
        if min(one_run_p_value(198, 200, 1000, at, gaussian_up(mu, at)) for at in EPSILONS) <= 0.05
    )
    assert one_run_mu(198, 200, 1000, 0.05, program=False) == pytest.approx(by_points, abs=0.02)
    assert by_points < found - 0.05
    values = [one_run_curve_p_value(198, 200, 1000, lambda at, mu=mu: gaussian_up(mu, at)) for mu in (1.0, 1.3, 1.6)]
    assert values == sorted(values)
    assert values[0] < 0.05 < values[1]


def test_an_audit_names_its_choice_and_tests_a_certified_profile() -> None:
    rng = np.random.default_rng(1)
    included = rng.random(400) < 0.5
    scores = 2.0 * included + rng.normal(size=400)
    found = one_run_curve_audit(scores, included, guesses=[(10, 10), (20, 20)], upper=lambda at: gaussian_up(0.5, at))
    assert 0.5 < found.mu_lower < 2.0
    assert found.upper_p_value < 0.01
    kept = one_run_curve_audit(scores, included, guesses=[(20, 20)], upper=lambda at: gaussian_up(2.0, at))
    assert kept.upper_p_value > 0.05
    assert found.to_dict(1e-5)["gaussian_epsilon"] > 1.0
    assert "2 numbers of guesses" in str(found.evidence.to_dict())
    with pytest.raises(InputError, match="at least one pair"):
        one_run_curve_audit(scores, included, guesses=[])
    nothing = one_run_curve_audit(-scores, included, guesses=[(20, 20)])
    assert nothing.mu_lower == 0.0
    assert nothing.gaussian_epsilon(1e-5) == 0.0
