"""Jaws of samplers that deal every record out once per epoch: balls-and-bins and shuffling.

**Balls-and-bins.** Every record is thrown into one of M batches independently, so what the others do says
nothing about it. Zeroed out, one epoch is dominated, and attained, by the mean of M independent ratios
(`calipers.laws.allocated.average`); replaced, by opposite gradients (`calipers.laws.allocated.replaced`). The bracket
closes.

**Shuffling, isolated view.** An adversary who sees nothing but the differing record's noisy contribution
faces the same pairs (van Dijk and Ertan; Ertan and van Dijk).

**Shuffling, worst case.** With batches of fixed size the other records reveal where the differing one
is, and no dominating pair is proven. The upper jaw is that of fixed batches (shuffling never hurts, Chua
et al., Theorem 4.1: given the permutation batches are fixed, and divergences are jointly convex, whatever the
neighbors are); the lower jaw is the better of two explicit attacks: one dataset throughout
(`calipers.laws.allocated.shuffle`), which Conjecture 3.2 of Chua et al. held to be the worst case, and the record
that changes sides (`calipers.laws.allocated.switching`), which shows that it is not.

**The attack on a replaced record.** All other gradients are -u, the record's is u before and -u after. Without it every
batch sums to -B along u; with it one batch, at a uniformly random place, sums to -B + 2. So the pair is exactly one
record hidden in one of M rounds with a shift of 2, `AllocationPair(sigma / 2, M)`, and its LOWER law is an attack.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gdp_mu
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.composed.direction import Jaws
from calipers.laws.composed.renyi import renyi_below, renyi_of_tests
from calipers.laws.composed.shuffle_product import AttackProduct
from calipers.laws.composed.sweep import directed_attack
from calipers.laws.core.source import LoneAttack, LonePair
from calipers.measure.backends import ProductBackend, depth_for

if TYPE_CHECKING:
    from calipers.laws.allocated.switching import SwitchingAttack

_MOST_EPSILON = 100.0
"""Per epoch. Beyond it e^epsilon leaves the range in which sums of it and of 1 have digits."""
_RENYI_DEPTH = 1e-30
"""Error rates of the tests that show Renyi divergences reach down to about this."""


@dataclass(frozen=True)
class AttackBackend:
    """An explicit attack: a lower jaw only; its upper values are infinite or trivial.

    `scene` says what everybody's gradients are and what to observe; `claims` are what the test says, about the dataset
    with the record and about the other one. `single` is the attack on a lone epoch, where it is sharper than its law.
    `rival` is the attack that changes sides, where all epochs are alike; it is made for the number asked for.
    """

    product: AttackProduct
    scene: str
    claims: tuple[str, str]
    single: LoneAttack | None = None
    rival: SwitchingAttack | None = None
    statement: str = "calipers:shuffle-sum-test"

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """At most the true epsilon, which is also the threshold of the test that shows it."""
        del tolerance
        found, backward = self.product.epsilon(delta) if self.single is None else self.single.best_epsilon(delta)
        switching = self._switching(found)
        if switching is not None:
            shown, way = switching.epsilon(delta, self.product.steps)
            if shown > found:
                return Jaws(shown, math.inf, shown, way, attack=switching_words(switching, self.product.steps))
        return Jaws(found, math.inf, found, backward)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """At most the true delta, shown by the test with threshold epsilon."""
        del tolerance
        found, backward = self.product.delta(epsilon) if self.single is None else self.single.best_delta(epsilon)
        switching = self._switching(epsilon)
        if switching is not None:
            shown, way = switching.delta(epsilon, self.product.steps)
            if shown > found:
                return Jaws(shown, 1.0, epsilon, way, attack=switching_words(switching, self.product.steps))
        return Jaws(found, 1.0, epsilon, backward)

    def _switching(self, epsilon: float) -> SwitchingAttack | None:
        """The policy made for epsilon, where such policies are known to show more."""
        epochs = self.product.steps
        if self.rival is None or not self.rival.promising(epochs) or epsilon > _MOST_EPSILON * epochs:
            return None
        return self.rival.made_for(epsilon, epochs)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The symmetric hull of the attack's curve."""
        return {Side.LOWER: self.envelopes(smallest_delta, tolerance)[Side.LOWER].hull()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The attack's curve, from its tests in both directions."""
        del tolerance
        forward, backward = self.product.tests(smallest_delta)
        return {Side.LOWER: Envelope((directed_attack(forward, backward),))}

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the attack's curve."""
        curve = self.curves(depth_for(delta0), tolerance)[Side.LOWER]
        return gdp_mu(curve, delta0), math.inf

    def renyi(self, order: float) -> Jaws:
        """What the laws of the attack show, or its tests where steps are not told apart: there only a sum is seen."""
        if any(direction.alike for direction in self.product.directions):
            shown = (renyi_of_tests(tests, order) for tests in self.product.tests(_RENYI_DEPTH))
            return Jaws(max(shown), math.inf, math.inf, False)
        ways = [direction.reverse for direction in self.product.directions]
        return Jaws(renyi_below(self.product.factors, order, ways), math.inf, math.inf, False)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The attack and the test at the epsilon or delta asked for, so that a reader could run it.

        The log likelihood ratio test with threshold epsilon is the best of all at epsilon, hence at least as good as
        whichever test gave the number.
        """
        if jaws is not None and jaws.attack:
            return Evidence.of(Kind.TEST, "calipers:switching", f"{jaws.attack} {self._claim(jaws)}")
        if jaws is None:
            test = "Compare the sum of all scores with a threshold; every threshold is one point of the curve."
        elif jaws.lower <= 0.0:
            test = "No test on the sum of all scores was found to show more than 0 here."
        else:
            test = self._claim(jaws)
        return Evidence.of(Kind.TEST, self.statement, f"{self.scene} {test}")

    def _claim(self, jaws: Jaws) -> str:
        if jaws.reversed:
            return f"Say '{self.claims[1]}' when the sum of all scores is below {0.0 - jaws.threshold:.10g}."
        return f"Say '{self.claims[0]}' when the sum of all scores exceeds {jaws.threshold:.10g}."


@dataclass(frozen=True)
class LoneBackend:
    """One participation: epsilon and delta come from the pair itself, the rest from its laws."""

    laws: ProductBackend
    pair: LonePair
    closes: ClassVar[bool] = True

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """The pair's own."""
        del tolerance
        lower, upper = self.pair.epsilon(delta)
        return Jaws(lower, upper, lower, False)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """The pair's own."""
        del tolerance
        lower, upper = self.pair.delta(epsilon)
        return Jaws(lower, upper, epsilon, False)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """Of its laws."""
        return self.laws.curves(smallest_delta, tolerance)

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """Of its laws."""
        return self.laws.envelopes(smallest_delta, tolerance)

    def renyi(self, order: float) -> Jaws:
        """Of its laws."""
        return self.laws.renyi(order)

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Of its laws."""
        return self.laws.mu(delta0, tolerance)

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Of its laws."""
        return self.laws.upper_evidence(jaws)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The likelihood ratio test, which is the best of all at its threshold."""
        if jaws is None:
            return self.laws.lower_evidence(jaws)
        rule = "reject when the log likelihood ratio of the epoch exceeds"
        text = f"{self.laws.attack} The test: {rule} {jaws.threshold:.10g}."
        return Evidence.of(Kind.TEST, self.laws.statement, text)


def switching_words(attack: SwitchingAttack, epochs: int) -> str:
    """Everybody's gradients under the policy, when the record changes sides, and the score of what is seen."""
    policy, r = attack.policy, attack.participation
    looks = _listed(list(itertools.accumulate(policy.blocks))[:-1])
    jump, missed = "exp(2 x_t/sigma - 2/sigma^2)", "exp(x_t/sigma - 1/(2 sigma^2))"
    if attack.substituted:
        opposing, agreeing = "is u (-u once it is replaced)", "is -u (u once it is replaced)"
        weights = f"U_t = {jump} and V_t = 1 while it opposes the others, U_t = 1 and V_t = {jump} while it agrees"
    else:
        opposing, agreeing = "is u (zero once it is zeroed out)", "is -u (zero)"
        weights = f"V_t = {missed}, U_t = {jump} while it opposes the others and U_t = 1 while it agrees"
    means = "mean_t U_t / mean_t V_t" if r == 1.0 else "(1 - r + r mean_t U_t) / (1 - r + r mean_t V_t)"
    kept = "" if r == 1.0 else f", r = {r:.10g} the share of records an epoch keeps"
    return (
        f"The record changes sides. {'In every epoch all' if epochs > 1 else 'All'} other clipped gradients are -u, a "
        f"unit vector; the record's {opposing} at first. After {looks} batches it {agreeing} until the next look if "
        f"the running sum of U_t - {math.exp(attack.tuned):.10g} V_t is above {_listed(policy.marks)} respectively, "
        f"and as at first if not. Here x_t = (sum of batch t along u + B)/sigma, {weights}. The certified figure is "
        "that of a running sum rounded on the way, by fair coins, to a lattice. The score of an epoch is "
        f"log({means}){kept}."
    )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)
