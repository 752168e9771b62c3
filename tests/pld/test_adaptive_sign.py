"""The attack that changes sides: simulated as described, below what is proven, above the attack that never does."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.shuffled_adversary import Shuffled, line
from oracles.shuffled_recursion import exact_divergence

from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta
from calipers.pld.allocation import adaptive_sign, adaptive_sign_rounds
from calipers.pld.allocation.adaptive_sign import AdaptiveSignAttack
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.allocation.lattice_segment import LatticeSegment
from calipers.pld.allocation.multi_resolution import MultiResolutionSum
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.composition.one_sided import AttackProduct


def shuffled_epoch(
    rng: np.random.Generator, attack: AdaptiveSignAttack, records: int, batch: int, runs: int, present: bool
) -> np.ndarray:
    """log(dP/dQ) of `runs` epochs of the mechanism itself: batch sums with noise, and the policy as it is described.

    A uniform permutation puts the record anywhere with equal probability. Nothing of the attack's own arithmetic is
    used: the ratio of the densities of all batch sums, given what was played, is a mean over the record's places.
    """
    sigma, k = attack.sigma, math.exp(attack.tuned)
    place = rng.integers(records, size=runs)
    running, score_p, score_q = (np.zeros(runs) for _ in range(3))
    opposed = np.ones(runs, dtype=bool)
    looks = dict(zip(np.cumsum(attack.policy.blocks)[:-1].tolist(), attack.policy.marks, strict=True))
    for t in range(attack.rounds):
        if t in looks:
            opposed = running <= looks[t]
        there = place // batch == t
        own = np.where(opposed, 1.0, -1.0)
        other = -own if attack.substituted else np.zeros(runs)
        shown = np.where(there, -(batch - 1.0) + (own if present else other), -float(batch))
        total = shown + sigma * rng.standard_normal(runs)

        def ratio(mean: np.ndarray, total: np.ndarray = total) -> np.ndarray:
            """Density with the given mean against that of a batch without the record."""
            return np.exp(((total + batch) ** 2 - (total - mean) ** 2) / (2.0 * sigma**2))

        u, v = ratio(-(batch - 1.0) + own), ratio(-(batch - 1.0) + other)
        running, score_p, score_q = running + u - k * v, score_p + u, score_q + v
    left_over = records - batch * attack.rounds
    return np.log(left_over + batch * score_p) - np.log(left_over + batch * score_q)


def simulated(
    attack: AdaptiveSignAttack, records: int, batch: int, epsilon: float, runs: int, epochs: int = 1
) -> tuple[float, float]:
    """(delta, standard error): the mean of (1 - e^(epsilon - log ratio))+ over runs with the record."""
    rng = np.random.default_rng(5)
    scores = sum(shuffled_epoch(rng, attack, records, batch, runs, present=True) for _ in range(epochs))
    gains = np.maximum(-np.expm1(epsilon - scores), 0.0)
    return float(gains.mean()), float(gains.std()) / math.sqrt(runs)


def test_two_batches_of_two_records_by_direct_simulation() -> None:
    """sigma 2, epsilon 1/2: the error rates in ten million epochs show .0353, six errors above the pair's .03333."""
    attack = AdaptiveSignAttack(2.0, 2, tuned=0.5)
    assert attack.policy.blocks == (1, 1)
    assert attack.policy.marks == (0.0,)
    rng, runs, k = np.random.default_rng(3), 10_000_000, math.exp(0.5)
    hits, alarms = (
        sum(int(np.sum(shuffled_epoch(rng, attack, 4, 2, runs // 10, present) > 0.5)) / runs for _ in range(10))
        for present in (True, False)
    )
    found = hits - k * alarms
    error = math.sqrt((hits * (1.0 - hits) + k * k * alarms * (1.0 - alarms)) / runs)
    pair = ShuffleAttack(2.0, 2).best_test(0.5).delta
    assert pair == pytest.approx(0.03333, abs=1e-5)
    assert found - pair > 6.0 * error
    certified, backward = attack.delta(0.5)
    assert 0.03528 < certified < 0.03530
    assert not backward
    assert certified <= found + 4.0 * error
    assert found <= certified + 4.0 * error


@pytest.mark.parametrize(
    ("sigma", "rounds", "batch", "records", "epsilon", "substituted"),
    [(3.0, 12, 2, 25, 0.1, False), (3.0, 12, 1, 12, 0.3, True)],
)
def test_a_policy_of_many_looks_by_direct_simulation(
    sigma: float, rounds: int, batch: int, records: int, epsilon: float, substituted: bool
) -> None:
    """The plain policy shows what is certified, within 4 errors, and more than opposing throughout, by 4 errors."""
    share = rounds * batch / records
    attack = AdaptiveSignAttack(sigma, rounds, share, epsilon, substituted)
    found, error = simulated(attack, records, batch, epsilon, 600_000)
    certified = attack.delta(epsilon)[0]
    assert found - 4.0 * error <= certified * 1.005
    assert certified <= found + 4.0 * error
    if substituted:
        fixed = AttackProduct([(AllocationPair(sigma / 2.0, rounds, share), 1)]).delta(epsilon)[0]
    else:
        fixed = ShuffleAttack(sigma, rounds, share).best_test(epsilon).delta
    assert found - fixed > 4.0 * error


def test_two_epochs_follow_one_policy() -> None:
    """T = 3, two epochs: the composed test, simulated, shows what the square of the policy's law certifies.

    The law keeps one sum per epoch where the best test of two epochs would want all of them: that costs 8 %.
    """
    attack = AdaptiveSignAttack(2.0, 3, tuned=0.4)
    certified, backward = attack.delta(0.5, epochs=2)
    found, error = simulated(attack, 6, 2, 0.5, 500_000, epochs=2)
    assert not backward
    assert certified <= found + 4.0 * error
    assert 0.9 * found <= certified


@pytest.mark.parametrize("substituted", [False, True])
def test_three_records_of_which_one_is_dropped(substituted: bool) -> None:
    """N = 3, B = 1, M = 2: others who agree are as good as any, so the policy reaches the enumerated supremum."""
    k = math.exp(0.5)
    supremum = Shuffled(3, 1, 2, 2.0, replaced=substituted, width=0.05).divergence(k, line(3))
    found = AdaptiveSignAttack(2.0, 2, 2.0 / 3.0, 0.5, substituted).delta(0.5)[0]
    assert supremum <= found <= 1.002 * supremum


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "size", "batch", "delta", "epsilon", "said"),
    [
        (1.1, 60_000, 256, 1e-5, 2.98301, "0.9995"),
        (2.0, 60_000, 256, 1e-5, 0.266270, "0.9988"),
        (4.0, 60_000, 256, 1e-5, 0.0556685, "0.9980"),
        (5.0, 60_010, 100, 1e-8, 0.0396523, "0.9980"),
    ],
)
def test_how_near_to_the_best_adversary(
    sigma: float, size: int, batch: int, delta: float, epsilon: float, said: str
) -> None:
    """Of the exact delta of one epoch; less than three ten-thousandths of epsilon are missing (theory, section 8)."""
    rounds = size // batch
    share = rounds * batch / size
    shown = AdaptiveSignAttack(sigma, rounds, share, epsilon).delta(epsilon)[0]
    exact, farther = (
        exact_divergence(sigma, rounds, at, share, shares=(0.0, 1.0)) for at in (epsilon, 1.0003 * epsilon)
    )
    assert shown == pytest.approx(delta, rel=2e-3)
    assert shown < exact
    assert 0.998 <= float(said) <= shown / exact < float(said) + 1e-4
    assert farther < shown


@pytest.mark.parametrize(("sigma", "epsilon"), [(2.0, 0.5), (4.0, 0.15)])
def test_looks_before_every_round_are_the_recursion(sigma: float, epsilon: float) -> None:
    """With few rounds nothing but rounding keeps the attack from the best of both controls, evaluated by itself."""
    attack = AdaptiveSignAttack(sigma, 12, 0.96, epsilon)
    exact = exact_divergence(sigma, 12, epsilon, 0.96, shares=(0.0, 1.0))
    assert set(attack.policy.blocks) == {1}
    assert 0.9998 * exact <= attack.delta(epsilon)[0] < exact


def test_what_is_not_followed_would_not_have_gained() -> None:
    """Sums below the floors are erased for one epoch: less than a ten-thousandth of delta comes from there."""
    attack = AdaptiveSignAttack(4.0, 40, 0.96, 0.1)
    assert any(math.isfinite(floor) for floor in attack.policy.floors)
    followed, everything = (attack.families(-30.0, far)[0].best(0.1)[0] for far in (4.0, 40.0))
    assert everything * (1.0 - 1e-4) <= followed < everything


@settings(max_examples=6)
@given(
    sigma=st.floats(0.4, 15.0),
    rounds=st.integers(1, 150),
    share=st.floats(0.05, 0.999),
    at=st.floats(0.0, 3.0),
    substituted=st.booleans(),
)
def test_never_above_the_proof(sigma: float, rounds: int, share: float, at: float, substituted: bool) -> None:
    """Every policy, also one made for another epsilon, stays below the theorem for shuffled batches."""
    epsilon = at / sigma
    proven = ShuffledEpoch(sigma, rounds, share, substituted).delta(epsilon)
    for tuned in (epsilon, 0.5 * epsilon):
        attack = AdaptiveSignAttack(sigma, rounds, share, tuned, substituted)
        assert attack.delta(epsilon)[0] <= proven
        assert attack.lower().delta(epsilon) <= proven


@pytest.mark.parametrize(
    ("sigma", "rounds", "epsilon", "fixed", "least"),
    [(2.0, 100, 0.7, 1.1911e-6, 1.041), (5.0, 100, 0.05, 9.0450e-5, 1.044), (1.0, 30, 2.0, 0.0070778, 1.0077)],
)
def test_gains_over_the_conjectured_pair(sigma: float, rounds: int, epsilon: float, fixed: float, least: float) -> None:
    """delta grows by 4 %, 5 % and 0.8 %; `fixed` is the pair's own value, to four digits from both sides."""
    assert ShuffleAttack(sigma, rounds).best_test(epsilon).delta == pytest.approx(fixed, rel=5e-4)
    assert AdaptiveSignAttack(sigma, rounds, tuned=epsilon).delta(epsilon)[0] > least * fixed


def test_marks_fall_to_the_strike() -> None:
    """The fewer rounds are left, the lower the mark; before the last round it is what the final sum must pass."""
    for attack in (AdaptiveSignAttack(2.0, 77, 0.9, 0.4), AdaptiveSignAttack(1.0, 40, 1.0, 1.0, substituted=True)):
        policy = attack.policy
        assert sum(policy.blocks) == attack.rounds
        assert policy.blocks[-1] == 1
        assert list(policy.marks) == sorted(policy.marks, reverse=True)
        assert policy.marks[-1] == policy.threshold


def test_one_round_and_one_batch_leave_nothing_to_switch() -> None:
    """With T = 1 there is no look, and the policy is the Gaussian mechanism."""
    attack = AdaptiveSignAttack(1.0, 1, tuned=0.5)
    assert attack.policy.marks == ()
    assert attack.delta(0.5)[0] == pytest.approx(ShuffleAttack(1.0, 1).best_test(0.5).delta, rel=1e-3)
    assert not attack.promising()


def test_what_is_refused() -> None:
    """A policy is made for an epsilon that is not negative."""
    with pytest.raises(InputError, match="tuned"):
        AdaptiveSignAttack(1.0, 10, tuned=-0.1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("error", "drift"), [(0.05, 1e-12), (1e-12, 0.01), (0.05, 0.01)])
def test_masses_that_are_too_large_show_no_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch, error: float, drift: float, reverse: bool
) -> None:
    """One batch, all masses too large by e^error, the alternative's by 2 drift more, as is said: below a Gaussian's."""

    def wrong(*asked: object) -> MultiResolutionSum:
        total = adaptive_sign_rounds.ended(*asked)  # type: ignore[arg-type]
        more = math.exp(error) * np.where(np.arange(3) == 1 + reverse, 1.0 + 2.0 * drift, 1.0)[:, None]
        levels = {e: LatticeSegment(low, rows * more) for e, (low, rows) in total.levels.items()}
        return replace(total, levels=levels, error=total.error + error, drift=total.drift + drift)

    monkeypatch.setattr(adaptive_sign, "ended", wrong)
    exact = float(gaussian_delta(1.0, 0.0))
    found = adaptive_sign._measured.__wrapped__(AdaptiveSignAttack(1.0, 1), -40.0, 4.0)[reverse].best(0.0)[0]
    assert 0.99 * exact - 5.0 * drift <= found <= exact


def two_parts() -> tuple[MultiResolutionSum, MultiResolutionSum]:
    """Sums on levels 0 and 2 of one lattice, of step 1/4."""
    rows = np.arange(1.0, 16.0).reshape(3, 5)
    first = MultiResolutionSum({0: LatticeSegment(-2, rows), 2: LatticeSegment(-1, 10.0 * rows)}, 0.25, 2, 3e-9, 1e-9)
    second = MultiResolutionSum({0: LatticeSegment(1, 100.0 * rows)}, 0.25, 2, 1e-9, 4e-9, lost=2e-9, lost_moment=5e-9)
    return first, second


@pytest.mark.parametrize("exchanged", [False, True])
def test_two_parts_together_are_as_wrong_as_the_worse_one(exchanged: bool) -> None:
    """Masses add up place by place; of errors and drifts the larger one counts, and what was lost is lost."""
    first, second = two_parts()[::-1] if exchanged else two_parts()
    total = adaptive_sign_rounds._together(first, second)
    assert (total.error, total.drift) == pytest.approx((3e-9, 4e-9), rel=1e-6)
    assert total.error >= 3e-9
    assert total.drift >= 4e-9
    assert (total.lost, total.lost_moment) == (2e-9, 5e-9)
    values, rows = total.flat()
    at = dict.fromkeys((-4, -2, -1, 0, 1, 2, 3, 4, 5, 8, 12), 0.0)
    for value, mass in zip(values, rows[0], strict=True):
        at[round(4 * value)] += mass
    assert list(at.values()) == [10, 1, 2, 3 + 20, 4 + 100, 5 + 200, 300, 30 + 400, 500, 40, 50]


@pytest.mark.parametrize("level", [-10.0, -0.5, -0.3, 0.0, 0.25, 0.6, 1.0, 10.0])
def test_a_cut_leaves_the_mark_itself_below(level: float) -> None:
    """The record agrees where the sum is above the mark, as is said of the policy, and opposes at it."""
    whole = two_parts()[0]
    values, rows = whole.flat()
    parts = adaptive_sign_rounds._cut(whole, level)
    for part, inside in zip(parts, (values <= level, values > level), strict=True):
        found = part.flat() if part.levels else (np.zeros(0), np.zeros((3, 0)))
        assert found[0].tolist() == values[inside].tolist()
        assert found[1].sum() == rows[:, inside].sum()
