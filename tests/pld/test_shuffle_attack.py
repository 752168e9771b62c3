"""The attack on shuffled batches: below the exact value where that is known, above the published event everywhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon
from calipers.pld.allocation import shuffle_attack
from calipers.pld.allocation.average_tests import EventFamily, MaximumTests
from calipers.pld.allocation.lattice_segment import LatticeSegment
from calipers.pld.allocation.multi_resolution import MultiResolutionSum, multiplied
from calipers.pld.allocation.pmf_of_tests import pmf_of_tests
from calipers.pld.allocation.shuffle_attack import ShuffleAttack, ShuffleTest
from calipers.pld.composition.one_sided import AttackProduct
from calipers.theorems.samplers_gap import (
    shuffle_delta_lower,
    shuffle_delta_upper,
    shuffle_epsilon_lower,
)


def two_batches(sigma: float, epsilon: float, reverse: bool, participation: float = 1.0) -> float:
    """The exact divergence for T = 2: given x_1 the event is an interval of V_2, the rest is one trapezoidal sum.

    p - k q > 0 reads e^(-v^2) V^2 - k V > c with c depending on x_1, a quadratic inequality for V_2 (reversed: the
    opposite one). The integrand has square root kinks, so 400,001 points on [-12, 12 + 2v] leave an error below 1e-8.
    """
    v, k, r = 1.0 / sigma, math.exp(epsilon), participation
    factor = 1.0 / k if reverse else k
    x = np.linspace(-12.0, 12.0 + 2.0 * v, 400_001)
    v_1 = np.exp(v * x - 0.5 * v * v)
    u_1 = v_1 * v_1 * math.exp(-v * v)
    c = 2.0 * (1.0 - r) * (factor - 1.0) / r - (u_1 - factor * v_1)
    root = factor * factor + 4.0 * math.exp(-v * v) * c
    middle, half = 0.5 * factor * math.exp(v * v), 0.5 * np.sqrt(np.maximum(root, 0.0)) * math.exp(v * v)
    with np.errstate(divide="ignore"):
        ends = [(np.log(np.maximum(middle + s * half, 0.0)) + 0.5 * v * v) / v for s in (-1.0, 1.0)]
    inside = [np.where(root > 0, ndtr(ends[1] - m) - ndtr(ends[0] - m), 0.0) for m in (0.0, v, 2.0 * v)]
    event = inside if reverse else [1.0 - value for value in inside]
    noise = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    present = r * 0.5 * (u_1 * event[0] + event[2]) + (1.0 - r) * event[0]
    absent = r * 0.5 * (v_1 * event[0] + event[1]) + (1.0 - r) * event[0]
    gain = absent - k * present if reverse else present - k * absent
    return float(np.sum(gain * noise) * (x[1] - x[0]))


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
def test_one_batch_is_the_gaussian_mechanism(sigma: float) -> None:
    """With T = 1 the record is not hidden: P = N(2/s, 1), Q = N(1/s, 1), and the attack finds nearly all of delta."""
    attack = ShuffleAttack(sigma, 1)
    for epsilon in (0.0, 0.5, 1.5):
        exact = float(gaussian_delta(1.0 / sigma, epsilon))
        if exact > 1e-12:
            assert 0.999 * exact <= attack.best_test(epsilon).delta <= exact


@pytest.mark.parametrize("participation", [1.0, 0.7])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.5])
def test_two_batches_against_quadrature(sigma: float, participation: float) -> None:
    """With T = 2 the attack and its law stay below the exact divergence, within 0.5% and 2% of it.

    With records left out log L is bounded below; near that end the law's few tests lose up to 15% of the reversed
    divergence, which is the smaller one.
    """
    least = 0.98 if participation == 1.0 else 0.85
    attack = ShuffleAttack(sigma, 2, participation)
    pmf = attack.lower()
    for epsilon in (0.0, 0.3, 1.0):
        forward, backward = (two_batches(sigma, epsilon, reverse, participation) for reverse in (False, True))
        exact = max(forward, backward)
        found = attack.best_test(epsilon)
        assert 0.995 * exact - 1e-8 <= found.delta <= exact + 1e-8
        assert 0.98 * forward - 1e-8 <= pmf.delta(epsilon) <= forward + 1e-8
        assert least * backward - 1e-8 <= pmf.reverse().delta(epsilon) <= backward + 1e-8


@pytest.mark.parametrize("participation", [1.0, 0.8])
def test_the_described_test_does_what_is_claimed(participation: float) -> None:
    """T = 20, sigma = 0.9: a million runs of the plain test show at least the certified delta, within 5 errors."""
    sigma, rounds, epsilon, runs = 0.9, 20, 0.4, 1_000_000
    rng = np.random.default_rng(11)
    found = ShuffleAttack(sigma, rounds, participation).best_test(epsilon)
    assert found.statistic == "sum"
    k, v = math.exp(epsilon), 1.0 / sigma
    factor = 1.0 / k if found.reversed else k
    rates = []
    for mean in (2.0 * v, v):
        rejected = 0
        for _ in range(20):
            x = rng.standard_normal((runs // 20, rounds))
            x[:, 0] += mean * (rng.random(runs // 20) < participation)  # the place does not matter to a symmetric test
            score = (np.exp(2.0 * v * x - 2.0 * v * v) - factor * np.exp(v * x - 0.5 * v * v)).sum(axis=1)
            rejected += int(np.sum(score < found.threshold if found.reversed else score > found.threshold))
        rates.append(rejected / runs)
    hit, alarm = rates[::-1] if found.reversed else rates
    error = 5.0 * math.sqrt((hit + k * k * alarm) / runs)
    assert found.delta <= hit - k * alarm + error
    assert found.delta >= (hit - k * alarm) - error - 0.01 * found.delta


def test_the_threshold_is_where_the_densities_cross() -> None:
    """T = 3, r = 0.6: the sum test rejects exactly where the density of one mixture exceeds k times the other."""
    sigma, rounds, r, epsilon = 1.1, 3, 0.6, 0.2
    found = ShuffleAttack(sigma, rounds, r).best_test(epsilon)
    assert found.statistic == "sum"
    assert not found.reversed
    k, v = math.exp(epsilon), 1.0 / sigma
    x = np.random.default_rng(3).normal(0.0, 1.5, (20_000, rounds))
    present, absent = (
        (1 - r) + r * np.mean([np.exp(m * x[:, t] - 0.5 * m * m) for t in range(rounds)], axis=0) for m in (2 * v, v)
    )
    score = (np.exp(2.0 * v * x - 2.0 * v * v) - k * np.exp(v * x - 0.5 * v * v)).sum(axis=1)
    assert np.array_equal(score > found.threshold, present > k * absent)


def test_published_settings_are_improved() -> None:
    """The optimal test shows more than the event {max w >= C}: 0.01826 against 0.01795, 2.91e-5 against 2.04e-5, ..."""
    assert ShuffleAttack(0.8, 1_000).best_test(1.0).delta >= 0.01826
    assert ShuffleAttack(1.3, 10_000).best_test(0.1).delta >= 2.91e-5
    assert ShuffleAttack(1.0, 1_140_000).best_test(0.0).delta >= 0.00239


@settings(max_examples=8)
@given(sigma=st.floats(0.35, 4.0), rounds=st.integers(1, 100_000), epsilon=st.floats(0.0, 3.0))
def test_between_the_event_and_deterministic_batches(sigma: float, rounds: int, epsilon: float) -> None:
    """Never below the paper's events in either direction, never above Theorem 4.1."""
    found = ShuffleAttack(sigma, rounds).best_test(epsilon).delta
    assert found >= shuffle_delta_lower(epsilon, sigma, rounds).delta
    assert found >= shuffle_delta_lower(epsilon, sigma, rounds, zeroed=True).delta
    assert found <= shuffle_delta_upper(epsilon, sigma, rounds)


@pytest.mark.parametrize(("sigma", "rounds", "delta"), [(0.8, 1_000, 1e-5), (1.3, 10_000, 1e-6), (0.5, 10**9, 1e-6)])
def test_epsilon_of_one_epoch(sigma: float, rounds: int, delta: float) -> None:
    """epsilon(delta) beats the event's, stays below that of one Gaussian round, and is shown by a test."""
    attack = ShuffleAttack(sigma, rounds)
    epsilon, _ = attack.best_epsilon(delta)
    assert shuffle_epsilon_lower(delta, sigma, rounds) <= epsilon <= gaussian_epsilon(1.0 / sigma, delta)
    assert attack.best_delta(epsilon)[0] >= delta * (1.0 - 1e-9)


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_epochs_of_one_batch_compose_like_gaussians(sigma: float) -> None:
    """T = 1, four epochs: the composed attack stays below mu = 2/sigma and finds 98% of its epsilon."""
    attack = AttackProduct([(ShuffleAttack(sigma, 1), 4)])
    exact = gaussian_epsilon(2.0 / sigma, 1e-5)
    assert 0.98 * exact <= attack.epsilon(1e-5)[0] <= exact
    delta = float(gaussian_delta(2.0 / sigma, 0.8))
    assert 0.97 * delta <= attack.delta(0.8)[0] <= delta


def test_a_hundred_epochs_approach_gaussian_privacy() -> None:
    """T = 10,000, sigma = 1.3: mu^2 = E Var(U - V)/T, by lognormal moments; the third moment adds a few percent."""
    v2 = 1.0 / 1.3**2
    variance = (math.exp(4 * v2) - 1) + (math.exp(v2) - 1) - 2 * (math.exp(2 * v2) - 1)
    limit = gaussian_epsilon(math.sqrt(100 * variance / 10_000), 1e-5)
    found, *_ = AttackProduct([(ShuffleAttack(1.3, 10_000), 100)]).epsilon(1e-5)
    assert 0.98 * limit <= found <= 1.08 * limit


@pytest.mark.parametrize(("sigma", "rounds", "participation"), [(-1.0, 5, 1.0), (1.0, 0, 1.0), (1.0, 5, 1.5)])
def test_bad_input(sigma: float, rounds: int, participation: float) -> None:
    """Values outside their domains are refused when the attack is built."""
    with pytest.raises(InputError):
        ShuffleAttack(sigma, rounds, participation)


def test_description_is_runnable() -> None:
    """Both kinds of test name their statistic, side and threshold."""
    text = str(ShuffleAttack(1.0, 10, 0.5).best_test(0.1))
    assert "exp(2 x_t/sigma - 2/sigma^2) - 1.10517" in text
    assert "max_t" in str(ShuffleAttack(0.4, 10_000).best_test(12.0))
    reversed_text = str(ShuffleTest(0.1, 0.01, "sum", -0.25, reversed=True))
    assert reversed_text.startswith("say 'zeroed out' when")
    assert "exp(2 x_t/sigma - 2/sigma^2) - 0.904837 exp(x_t" in reversed_text  # Q > e^0.1 P is P < e^-0.1 Q
    assert "is < -0.25" in reversed_text


def test_maximum_events_in_closed_form() -> None:
    """T = 3 by hand: 1 - Phi(C - 2) Phi(C)^2 and 1 - Phi(C - 1) Phi(C)^2, forward; the complements, reversed."""
    forward, backward = MaximumTests(1.0, 3, 2.0, 1.0).families(np.array([1.5]))
    hit, alarm = (1.0 - ndtr(1.5 - shift) * ndtr(1.5) ** 2 for shift in (2.0, 1.0))
    assert forward.power[0] == pytest.approx(hit, rel=1e-13)
    assert forward.alpha[0] == pytest.approx(alarm, rel=1e-13)
    assert backward.power[0] == pytest.approx(1.0 - alarm, rel=1e-13)
    assert backward.alpha[0] == pytest.approx(1.0 - hit, rel=1e-13)
    assert forward.power[0] < hit
    assert forward.alpha[0] > alarm


def test_law_of_tests_is_the_upper_hull() -> None:
    """Three tests, one below the chord of the others: the profile is the maximum over the two good ones."""
    alpha, power = np.array([0.01, 0.05, 0.2]), np.array([0.2, 0.25, 0.7])
    forward = EventFamily(alpha, power, np.zeros(3))
    backward = EventFamily(np.array([0.05]), np.array([0.3]), np.zeros(1))
    pmf = pmf_of_tests([forward], [backward], -40.0)
    for epsilon in (0.0, 0.5, 1.0, 1.4, 2.0, 3.0):
        k = math.exp(epsilon)
        assert pmf.delta(epsilon) == pytest.approx(max(0.0, float(np.max(power - k * alpha))), abs=1e-10)
        assert pmf.reverse().delta(epsilon) == pytest.approx(max(0.3 - k * 0.05, 1 - 0.2 - k * 0.3, 0.0), abs=1e-10)
    assert pmf.size == 4
    assert np.all(np.diff(pmf.log_ratio) > 0)


def test_no_test_shows_anything_beyond_all_false_positive_rates() -> None:
    """From epsilon = 668 on e^epsilon times the smallest false positive rate that is counted exceeds 1."""
    with np.errstate(all="raise"):
        assert ShuffleAttack(0.7, 97).best_test(1e300).delta == 0.0


@pytest.mark.parametrize(("epsilon", "kept"), [(0.0, 0.08436761), (0.7, 5.251816e-3), (3.0, 9.474796e-6)])
def test_what_was_shown_is_still_shown(epsilon: float, kept: float) -> None:
    """delta of 234 shuffled batches at noise 1.1, 96 of 60,000 records left over, on grids at 0.05."""
    attack = ShuffleAttack(1.1, 234, 0.9984)
    shown = attack.families(epsilon, -39.0, 0.05)[0].best(epsilon)[0]
    assert kept * (1.0 - 1e-4) <= shown <= kept * 1.002


def test_a_pmf_shows_what_a_grid_for_every_epsilon_showed() -> None:
    """600 rounds at noise 0.7: the profile of one epoch as a grid for every one of all epsilons gave it."""
    pmf = ShuffleAttack(0.7, 600, 0.999).lower(0.05, -40.0)
    kept = {0.0: 0.229595, 0.2: 0.182056, 1.5: 0.0489891, 4.0: 0.00251966, 8.0: 1.02372e-7}
    for epsilon, before in kept.items():
        assert before * (1.0 - 1.5e-3) <= pmf.delta(epsilon) <= before * 1.001
    for epsilon, before in {0.2: 0.135264, 0.5: 0.0356023, 1.5: 6.59317e-11}.items():
        assert before * (1.0 - 1e-3) <= pmf.reverse().delta(epsilon) <= before * 1.001


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("error", "drift"), [(0.05, 1e-12), (1e-12, 0.01), (0.05, 0.01)])
def test_masses_that_are_too_large_show_no_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch, error: float, drift: float, reverse: bool
) -> None:
    """One batch, all masses too large by e^error, the alternative's by 2 drift more, as is said: below a Gaussian's."""

    def wrong(*asked: object) -> MultiResolutionSum:
        total = multiplied(*asked)  # type: ignore[arg-type]
        more = math.exp(error) * np.where(np.arange(3) == 1 + reverse, 1.0 + 2.0 * drift, 1.0)[:, None]
        levels = {e: LatticeSegment(low, rows * more) for e, (low, rows) in total.levels.items()}
        return replace(total, levels=levels, error=total.error + error, drift=total.drift + drift)

    monkeypatch.setattr(shuffle_attack, "multiplied", wrong)
    exact = float(gaussian_delta(1.0, 0.5))
    families = shuffle_attack._on_grid.__wrapped__(ShuffleAttack(1.0, 1), -0.5 if reverse else 0.5, 0.01, -40.0)
    assert 0.999 * exact - 5.0 * drift <= families[reverse].best(0.5)[0] <= exact
