"""Attacks on shuffled batches of fixed size: a lower bound for the worst-case view.

The dataset (Chua et al. 2024): every other record pulls by -1, so each of the T batches of an epoch sums to -B,
except that of the differing record: -B + 2 when it is present (+1), -B + 1 when it is zeroed out. With
x_t = (sum of batch t + B) / sigma, where all sums carry noise of deviation sigma,

    P_S = (1/T) sum_t N((2/sigma) e_t, I),      Q_S = (1/T) sum_t N((1/sigma) e_t, I),

and relative to pure noise P_S has density mean(U_t), Q_S mean(V_t), with

    U = exp(2 x/sigma - 2/sigma^2),      V = exp(x/sigma - 1/(2 sigma^2)).

The best event at k = e^eps is {sum_t (U_t - k V_t) > 0}: a threshold on a sum of T independent terms, whose
PLD under pure noise, and with one term shifted, is computed on a multi-resolution grid
(`calipers.pld.allocation.multi_resolution`). Rounding the terms there makes it another test, one that knows slightly
less; so its value is a lower bound for the plain test above, which is what a reader would run. The paper's event
{max_t w_t >= C} is always tried as well.

A record that is in the remainder in an epoch (N is not a multiple of B, and the leftovers are random) changes no batch:
with probability 1 - r both hypotheses show pure noise. The best event is then
{sum_t (U_t - k V_t) > T (1 - r)(k - 1)/r}, and all probabilities are mixtures with those of pure noise.

Upper bounds of this sampler are other statements: `calipers.pld.allocation.shuffled_epoch` where an epoch drops a
remainder, `calipers.pld.allocation.full_epoch` and `calipers.pld.allocation.batch_weights` where there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calipers.citations import implements
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, OPEN_UNIT, POSITIVE_PROBABILITY
from calipers.numerics.normal import gaussian_delta
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.adaptive_sign_rounds import RoundStrategy, seen
from calipers.pld.allocation.average import AllocatedEpoch, shared_depth, single_depth
from calipers.pld.allocation.average_tests import SMALLEST_PROBABILITY, EventFamily, MaximumTests, tail_families
from calipers.pld.allocation.multi_resolution import multiplied, placed
from calipers.pld.allocation.pmf_of_tests import curve_of_tests, pmf_of_tests
from calipers.pld.allocation.resolution_plan import resolution_plans
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair

_PRESENT, _ABSENT = 2.0, 1.0
"""Lengths, in units of C, by which a batch moves with the record against the others, and without it."""
_TEST_RESOLUTION = 0.025
"""Resolution of the multi-resolution grids that give an answer."""
_ROUGH_RESOLUTION, _SEARCH_RESOLUTION = 0.15, 0.04
"""The same for a first look, and for tuning."""
_CLEARLY_LESS, _MUCH_LESS = 0.99, 0.5
"""Of the epsilon of one direction: where coarse tests of the other show less than this, finer ones will not pass it, or
not even better tuned ones."""
_THE_SAME = 1e-5
"""Tuning ends where two epsilons differ by less than this share."""
_PMF_RESOLUTION = 0.06
"""Resolution of the multi-resolution grids of a PLD."""
_FINEST_RESOLUTION = 0.02
"""Where a PLD of tests is built in a second; a smaller resolution gives this one."""
_USUAL_LOG_TAIL, _LOWEST_LOG_TAIL = -40.0, -560.0
"""Depth of most answers, and the largest one: deeper, products of probabilities leave the doubles."""
_FAR = 12.0
"""Scores are cut off at this multiple of the largest threshold: beyond it a single term decides the test."""
_ABOVE_LEAST = 1e-3
"""How much above the least score scores begin, as a share of their range below 0."""
_HIGH_NOISE, _ROUGHLY, _NEGLIGIBLE = 1e-7, 0.1, 12.0
"""Once tests show less than the first, multi-resolution grids may be this rough. Tests end where they show e^12 times
what was asked for, as a proof does, and tests on the largest observation are left."""
_MANY = 256
"""Sums of so many rounds are slow, and tests of neighboring epsilons much the same: every other one will do."""
_PMF_EPSILONS = (0.0, 0.3, 0.7, 1.2, 1.8, 2.5, 3.4, 4.5, 6.0, 8.0, 11.0, 15.0, 20.0, 26.0, 33.0, 41.0, 50.0)
"""Where the tests of a PLD are tuned, in units of 1/sigma if that is below 1."""


@dataclass(frozen=True)
class ShuffleTest:
    """A test that shows `delta` at `epsilon`: delta_S(epsilon) >= delta.

    `statistic` is "sum" or "max"; reject when it is above the threshold, below if `reversed`.
    """

    epsilon: float
    delta: float
    statistic: str
    threshold: float
    reversed: bool

    def __str__(self) -> str:
        side, claim = ("<", "zeroed out") if self.reversed else (">", "used")
        if self.statistic == "max":
            return f"say '{claim}' when max_t (sum of batch t + B) {side} {self.threshold:.6g}"
        factor = math.exp(-self.epsilon if self.reversed else self.epsilon)
        return (
            f"say '{claim}' when the sum over t of exp(2 x_t/sigma - 2/sigma^2) - {factor:.6g} "
            f"exp(x_t/sigma - 1/(2 sigma^2)) is {side} {self.threshold:.6g}, x_t = (sum of batch t + B)/sigma"
        )


@lru_cache(maxsize=16)
def _observed(played: RoundStrategy, rounds: int, log_tail: float) -> tuple[FloatArray, FloatArray, float]:
    """Middles of cells of one observation, rows of their masses (noise, present, absent) and the error of these."""
    means = 0.0, played.present, played.absent
    middle, masses, error = seen(means, played.present, rounds, log_tail)
    return middle, np.stack([masses[mean] for mean in means]), error


@lru_cache(maxsize=64)
def _on_grid(
    attack: ShuffleAttack, log_factor: float, resolution: float, log_tail: float
) -> tuple[EventFamily, EventFamily]:
    """Tests on sum_t (U_t - e^log_factor V_t), forward and reversed."""
    rounds, participation = attack.rounds, attack.participation
    played = RoundStrategy(_PRESENT / attack.sigma, _ABSENT / attack.sigma)
    middle, masses, error = _observed(played, rounds, log_tail)
    scores = played.score(middle, math.exp(log_factor), _FAR * rounds * math.exp(max(log_factor, 0.0)))
    if log_factor < 0.0:
        # Reversed events lie near the least possible sum, so the multi-resolution grid is to be fine there: it starts
        # at that point.
        scores = scores - float(scores.min()) + _ABOVE_LEAST * float(np.ptp(np.minimum(scores, 0.0)))
    order = np.argsort(scores, kind="stable")
    plans = resolution_plans(scores[order], masses[0][order], rounds, resolution, 2.0 / attack.sigma, log_tail)
    total = multiplied(placed(scores, masses, plans[0], error, float(rounds)), rounds, plans)
    values, (nothing, present, absent) = total.flat()
    p = participation * present + (1.0 - participation) * nothing
    q = participation * absent + (1.0 - participation) * nothing
    # Erasure (see `calipers.pld.allocation.average`): one constant for both hypotheses, then a relative error of 2
    # drift.
    kept = math.exp(-total.error)
    return tail_families(values, kept * p, kept * q, 2.02 * total.drift + 1e-15)


@implements("calipers:shuffle-sum-test")
@dataclass(frozen=True)
class ShuffleAttack(AllocatedEpoch, AttainedPair):
    """The attack on one epoch of T = `rounds` shuffled batches; a source of optimistic PLDs only.

    `participation`: probability that a record takes part in an epoch, kept/N (1 if B divides N).
    """

    @property
    def maximum(self) -> MaximumTests:
        """The events {max_t w_t >= C}, w_t = sum of batch t + B."""
        return MaximumTests(self.sigma, self.rounds, _PRESENT, _ABSENT, self.participation)

    def families(self, log_factor: float, log_tail: float, resolution: float) -> tuple[EventFamily, EventFamily]:
        """Tests on sum_t (U_t - e^log_factor V_t), forward and reversed."""
        return _on_grid(self, log_factor, resolution, log_tail)

    def best_test(self, epsilon: float) -> ShuffleTest:
        """The best test found at epsilon >= 0. Post-condition: delta_S(epsilon) >= its delta, which is 0 at worst."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        best = ShuffleTest(epsilon, 0.0, "max", math.inf, False)
        if epsilon > -math.log(SMALLEST_PROBABILITY):  # no test with such a false positive rate is counted
            return best
        for reverse in (False, True):
            value, threshold = self.maximum.delta(epsilon, reverse)
            if value > best.delta:
                best = ShuffleTest(epsilon, value, "max", threshold, reverse)
        log_tail = max(_LOWEST_LOG_TAIL, min(_USUAL_LOG_TAIL, math.log(max(best.delta, 1e-280)) - 20.0))
        for reverse in (False, True):
            factor = -epsilon if reverse else epsilon
            value, _ = self.families(factor, log_tail, _TEST_RESOLUTION)[reverse].best(epsilon)
            if value > best.delta:
                # The plain test at this threshold is the best of all at epsilon, hence at least as good.
                plain = self.rounds * (1.0 - self.participation) * math.expm1(factor) / self.participation
                best = ShuffleTest(epsilon, value, "sum", plain, reverse)
        return best

    def best_epsilon(self, delta: float) -> tuple[float, bool]:
        """(epsilon, reversed): at most epsilon_S(delta) of one epoch, and the direction that shows it.

        Tests are tuned to the epsilon they have just shown, until that gains nothing more, on coarse multi-resolution
        grids first.
        """
        log_tail = math.log(OPEN_UNIT.check("delta", delta)) - 18.0
        best, reversed_too = (0.0, False), list[float]()
        for reverse in (False, True):
            largest, _ = self.maximum.epsilon(delta, reverse)
            current = max([largest, *(reversed_too if reverse else [])])
            best = max(best, (current, reverse))
            for resolution in (_ROUGH_RESOLUTION, _SEARCH_RESOLUTION):
                for _ in range(3):
                    tests = self.families(-current if reverse else current, log_tail, resolution)
                    reversed_too.append(tests[True].epsilon(delta)[0])
                    shown, _ = tests[reverse].epsilon(delta)
                    best = max(best, (shown, reverse))
                    tuned, current = shown <= current * (1.0 + 1e-3), max(current, shown)
                    if tuned or current < _MUCH_LESS * best[0]:
                        break
                # Where one observation decides, the sum is no other test, however finely it is looked at.
                if current < _CLEARLY_LESS * best[0] or abs(shown - largest) <= _THE_SAME * largest:
                    break
        return best

    def best_delta(self, epsilon: float) -> tuple[float, bool]:
        """(delta, reversed) of the best test at epsilon."""
        test = self.best_test(epsilon)
        return test.delta, test.reversed

    def curve(self, smallest_delta: float) -> TradeoffCurve:
        """What tests of one epoch attain, their null "record absent", down to about `smallest_delta`."""
        log_tail = single_depth(smallest_delta)
        return curve_of_tests(*_tests(self, _PMF_RESOLUTION, log_tail), log_tail)

    @property
    def single_attack(self) -> ShuffleAttack:  # type: ignore[override]
        """Its own epsilon and delta."""
        return self

    def lower(self, resolution: float = _PMF_RESOLUTION, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The optimistic PLD of a few hundred tests, good at all epsilon in both directions.

        `Side.UPPER` raises `UnsupportedError`.
        """
        POSITIVE_PROBABILITY.check("resolution", resolution)
        log_tail = shared_depth(log_tail)
        return pmf_of_tests(*_tests(self, max(resolution, _FINEST_RESOLUTION), log_tail), log_tail)


@lru_cache(maxsize=24)
def _tests(attack: ShuffleAttack, resolution: float, log_tail: float) -> tuple[list[EventFamily], list[EventFamily]]:
    """Tests on sums and on the largest observation, forward and reversed."""
    forward, backward = _maxima(attack, log_tail)
    forward += _scan(attack, 1.0, resolution, log_tail)
    backward += _scan(attack, -1.0, resolution, log_tail)
    return forward, backward


def _maxima(attack: ShuffleAttack, log_tail: float) -> tuple[list[EventFamily], list[EventFamily]]:
    """Tests on the largest observation, forward and reversed."""
    width = 1.0 / attack.sigma
    farthest = width * (math.sqrt(-2.0 * log_tail) + 1.5 * width)  # epsilon of one Gaussian round, not hidden
    forward, backward = attack.maximum.families(np.linspace(*attack.maximum.range(farthest), 4001))
    return [forward], [backward]


def _scan(attack: ShuffleAttack, sign: float, resolution: float, log_tail: float) -> list[EventFamily]:
    """Tests on sums, forward or reversed, for all epsilon at which one may show anything that counts."""
    found: list[EventFamily] = []
    shown, last, fall, least = 1.0, 0.0, 0.0, math.exp(log_tail + _NEGLIGIBLE)
    for each in _PMF_EPSILONS[:: 2 if attack.rounds > _MANY else 1]:
        # A record that is hidden shows no more than one whose round is known. What reversed tests show falls ever
        # faster, as there is a least ratio.
        epsilon = min(1.0, attack.shift) * each
        known, expected = float(gaussian_delta(attack.shift, epsilon)), shown * math.exp(-fall * (epsilon - last))
        if min(known, expected) <= least:
            break
        fine = resolution if shown > _HIGH_NOISE else max(resolution, _ROUGHLY)
        found.append(_on_grid(attack, sign * epsilon, fine, log_tail)[sign < 0])
        before, shown = shown, found[-1].best(epsilon)[0]
        if sign < 0 and epsilon > last and shown > 0.0:
            fall = math.log(before / shown) / (epsilon - last)
        last = epsilon
    return found
