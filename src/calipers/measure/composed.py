"""Bounds of compositions: products of privacy loss distributions.

Pairs that have both sides are composed from both at once (`Composition`), since each side tells the other how fine to
look; `PairProof` and `PairAttack` are its two views. A proof without an attack, or an attack without a proof, is
composed alone (`ComposedProof`, `ComposedAttack`). Where there is one participation only, its own numbers are sharper
than those of its PLDs, and are used.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.measure.bounds import Bound, Bounds, BoundValue, composed_pairs
from calipers.memoize import memoize
from calipers.pld.composition.direction import BoundsWithTest
from calipers.pld.composition.one_sided import AttackProduct, ProofProduct
from calipers.pld.composition.product import Product
from calipers.pld.composition.renyi import renyi, renyi_above, renyi_below, renyi_of_tests
from calipers.pld.composition.sweep import directed_sweep
from calipers.pld.core.source import SingleAttack, SinglePair, SingleProof
from calipers.scope import ORIENTATIONS

if TYPE_CHECKING:
    from calipers.pld.allocation.adaptive_sign import AdaptiveSignAttack

_MOST_EPSILON = 100.0
"""Per epoch. Beyond it e^epsilon leaves the range in which sums of it and of 1 have digits."""
_RENYI_DEPTH = 1e-30
"""Error rates of the tests that show Renyi divergences reach down to about this."""
FINE_TOLERANCE = 2e-4
"""From here on proofs may take up to a minute where that makes upper bounds tighter."""


def sum_rule(threshold: float, order: str, epsilon: float) -> str:
    """The test behind a lower value at epsilon; an infinite threshold stands for all of them.

    The number is that of rounded ratios with their own `threshold`. Of exact ratios the threshold epsilon is the best
    at epsilon, and at the same false positive rate none is better (Neyman and Pearson).
    """
    score, used = "the sum of the composed pairs' log likelihood ratios", "the computation used rounded ratios"
    if not (math.isfinite(threshold) and math.isfinite(epsilon)):
        more = "with errors counted against the attack; exact ratios show at least as much"
        return f"{score} is compared with a threshold ({used}, {more})"
    answer, _, other = order.partition(" against ")
    said = f"say '{answer}' when {score} of {answer} to {other} exceeds {epsilon:.10g}"
    return f"{said} ({used} and the threshold {threshold:.10g}; this test shows at least as much)"


@dataclass(frozen=True)
class Composition:
    """A product of pairs, each number computed once; `published`: others publish the bound too.

    `sides`: both, or the one that is asked for where the proof, or the attack, is another's. `single` is the pair
    itself where there is one participation: epsilon and delta come from it, both sides at once, and the rest from its
    PLDs.
    """

    product: Product
    published: bool = False
    sides: tuple[Side, ...] = tuple(Side)
    single: SinglePair | None = None

    @property
    def exact(self) -> bool:
        """Whether every factor is proven and attained."""
        return all(source.exact for source, _ in self.product.factors)

    @property
    def coarse(self) -> bool:
        """Whether some factor's PLDs end at a resolution of their own."""
        return any(source.coarse for source, _ in self.product.factors)

    def one_sided(self, side: Side) -> Composition:
        """The same product, for whoever does not ask what is proven, or what the pairs show."""
        return replace(self, sides=(side,))

    @functools.cached_property
    def _proven(self) -> ProofProduct:
        return ProofProduct(self.product.factors)

    @memoize
    def epsilon(self, delta: float, tolerance: float) -> BoundsWithTest:
        """Of the smallest epsilon >= 0 at delta; 0 stands below what is proven alone."""
        if self.single is not None:
            lower, upper = self.single.epsilon(delta)
            return BoundsWithTest(lower, upper, lower)
        if Side.LOWER not in self.sides:
            return BoundsWithTest(0.0, self._proven.epsilon(delta, tolerance, self.published))
        return self.product.epsilon(delta, tolerance)

    @memoize
    def delta(self, epsilon: float, tolerance: float) -> BoundsWithTest:
        """Of delta at epsilon >= 0, as `epsilon`."""
        if self.single is not None:
            return BoundsWithTest(*self.single.delta(epsilon), epsilon)
        if Side.LOWER not in self.sides:
            return BoundsWithTest(0.0, self._proven.delta(epsilon, tolerance))
        return self.product.delta(epsilon, tolerance)

    @memoize
    def renyi(self, order: float) -> BoundsWithTest:
        """Of the Renyi divergence of this order."""
        if Side.LOWER not in self.sides:
            return BoundsWithTest(0.0, renyi_above(self.product.factors, order))
        return renyi(self.product, order)

    @memoize
    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed curves of its sides; what a single participation shows are the tests of its PLD, with no
        plan.
        """
        if self.single is not None and Side.UPPER not in self.sides:
            return {Side.LOWER: Envelope((AttackProduct(self.product.factors).curve(smallest_delta),))}
        directed = directed_sweep(self.product, smallest_delta, tolerance, self.sides)
        return {side: Envelope((curve,)) for side, curve in directed.items()}

    def rule(self, threshold: float, order: str, epsilon: float) -> str:
        """The test behind a lower value, or behind whole curves; of one ratio no other is better at its threshold."""
        if self.single is not None and math.isfinite(threshold):
            return f"the log likelihood ratio of the epoch is compared with {threshold:.10g}"
        return sum_rule(threshold, order, epsilon)


@dataclass(frozen=True)
class PairBound(Bound):
    """One side of a composition of pairs, and what is said of it: why it holds, or the attack description of the
    attack.
    """

    composed: Composition
    explanation: str
    statement: str

    @property
    def alone(self) -> Self:
        """The same, computed without the other side."""
        return replace(self, composed=self.composed.one_sided(self.side))

    def sharing(self, other: Bound) -> Bound:
        """Pairs may be the same where what is said of them is not."""
        if self != other and isinstance(other, PairBound) and self.composed == other.composed:
            return replace(self, composed=other.composed)
        return super().sharing(other)

    @property
    def curves_add(self) -> bool:
        """Not where the PLDs are as coarse as they are."""
        return not self.composed.coarse

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """From the composed PLD."""
        found = self.composed.epsilon(delta, tolerance)
        return self._found(found, found.lower)

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """From the composed PLD."""
        return self._found(self.composed.delta(epsilon, tolerance), epsilon)

    def renyi(self, order: float) -> BoundValue:
        """The sum over steps."""
        return self._found(self.composed.renyi(order), math.inf)

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """Its sweep of this side."""
        return self.composed.envelopes(smallest_delta, tolerance)[self.side]

    @abstractmethod
    def _found(self, bounds: BoundsWithTest, epsilon: float) -> BoundValue:
        """This side's; `epsilon`: at which a test shows the lower one, infinite where all of them do."""


class PairProof(PairBound):
    """The upper side: the pair dominates."""

    side = Side.UPPER

    def _found(self, bounds: BoundsWithTest, epsilon: float) -> BoundValue:
        return BoundValue(bounds.upper, self.evidence())

    def evidence(self) -> Evidence:
        """Why the upper bound holds."""
        text = (
            f"{self.explanation} The likelihood ratio of each pair is split onto a lattice (which dominates it) and "
            "composed by tilted FFT; truncation, aliasing and rounding are added to the upper bound."
        )
        return Evidence.of(Kind.NUMERICAL, self.statement, text)


@dataclass(frozen=True)
class PairAttack(PairBound):
    """The lower side: the pair is what each step shows."""

    orientations: tuple[str, str] = ORIENTATIONS["add-remove"]
    side = Side.LOWER

    def _found(self, bounds: BoundsWithTest, epsilon: float) -> BoundValue:
        return BoundValue(bounds.lower, self._test(bounds.threshold, bounds.reversed, epsilon))

    def evidence(self) -> Evidence:
        """The test behind whole curves."""
        return self._test(math.inf, False, math.inf)

    def _test(self, threshold: float, backward: bool, epsilon: float) -> Evidence:
        text = f"{self.explanation} The test: {self.composed.rule(threshold, self.orientations[backward], epsilon)}."
        return Evidence.of(Kind.TEST, self.statement, text)


def composition(
    composed: Composition,
    reason: str,
    statement: str,
    description: str,
    orientations: tuple[str, str] = ORIENTATIONS["add-remove"],
) -> Bounds:
    """Both bounds of a composition of pairs."""
    attack = PairAttack(composed, description, statement, orientations)
    return Bounds(PairProof(composed, reason, statement), attack, composed.exact)


@dataclass(frozen=True)
class ComposedProof(Bound):
    """PLDs that dominate, composed from above alone. `single` is the single epoch, where there is just one."""

    product: ProofProduct
    reason: str
    statement: str
    single: SingleProof | None = None
    side = Side.UPPER

    @memoize
    def _sharpest(self, fine: bool) -> SingleProof:
        """What answers; `fine`: with the tighter PLDs of sources that have some."""
        if not fine or all(source.finer is None for source, _ in self.product.factors):
            return self.product if self.single is None else self.single
        product = ProofProduct([(source.finer or source, count) for source, count in self.product.factors])
        single = None if self.single is None else product.factors[0][0].single_proof
        return single or product

    @property
    def rough(self) -> ComposedProof:
        """With the wider PLDs of sources that have some."""
        factors = [(source.coarser or source, count) for source, count in self.product.factors]
        if all(source.coarser is None for source, _ in self.product.factors):
            return self
        return replace(self, product=ProofProduct(factors), single=self.single and factors[0][0].single_proof)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """At least the true epsilon."""
        found = self._sharpest(tolerance <= FINE_TOLERANCE).epsilon(delta)
        return BoundValue(found, self._evidence_at(found))

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """At least the true delta."""
        return BoundValue(self._sharpest(tolerance <= FINE_TOLERANCE).delta(epsilon), self._evidence_at(epsilon))

    def renyi(self, order: float) -> BoundValue:
        """See `calipers.pld.composition.renyi`."""
        return BoundValue(renyi_above(self.product.factors, order), self.evidence())

    @memoize
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The directed guarantee; computed once for each depth."""
        return Envelope((self._sharpest(tolerance <= FINE_TOLERANCE).curve(smallest_delta),))

    def evidence(self) -> Evidence:
        """The theorem, and how its bound is computed."""
        return self._evidence_at(None)

    def _evidence_at(self, epsilon: float | None) -> Evidence:
        """Of a single epoch, which rule of the theorem gives the bound at epsilon; of several all thresholds count."""
        at = None if self.single is None else epsilon
        rules = dict.fromkeys(source.rule_text(at) for source, _ in self.product.factors)
        count = sum(count for _, count in self.product.factors)
        composing = f"; {composed_pairs(count)} by tilted FFT" if count > 1 else ""
        computed = f"The bound is computed at many e^epsilon, between which the divergence is convex{composing}."
        added = "Truncation, aliasing and rounding are added to the upper bound."
        text = " ".join(filter(None, (self.reason, *rules, computed, added)))
        return Evidence.of(Kind.NUMERICAL, self.statement, text)


@dataclass(frozen=True)
class ComposedAttack(Bound):
    """PLDs that an explicit attack shows, composed from below alone.

    `description` says what everybody's gradients are and what to observe; `claims` are what the test says, about the
    dataset with the record and about the other one. `single` is the attack on a single epoch, where it is sharper than
    its PLD. `rival` is the attack that changes sides, where all epochs are alike; it is made for the number asked for.
    """

    product: AttackProduct
    description: str
    claims: tuple[str, str]
    statement: str = "calipers:shuffle-sum-test"
    single: SingleAttack | None = None
    rival: AdaptiveSignAttack | None = None
    side = Side.LOWER

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """At most the true epsilon, which is also the threshold of the test that shows it."""
        found, backward = self.product.epsilon(delta)[:2] if self.single is None else self.single.best_epsilon(delta)
        return self._or_adaptive_sign(found, backward, None, lambda rival: rival.epsilon(delta, self.product.steps))

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """At most the true delta, shown by the test with threshold epsilon."""
        found, backward = self.product.delta(epsilon)[:2] if self.single is None else self.single.best_delta(epsilon)
        return self._or_adaptive_sign(found, backward, epsilon, lambda rival: rival.delta(epsilon, self.product.steps))

    def _or_adaptive_sign(
        self,
        found: float,
        backward: bool,
        epsilon: float | None,
        ask: Callable[[AdaptiveSignAttack], tuple[float, bool]],
    ) -> BoundValue:
        """What was found, or what the policy made for that epsilon shows, where such policies are known to show more.

        The threshold of the test is the epsilon asked about, or the one that it shows.
        """
        near, epochs = found if epsilon is None else epsilon, self.product.steps
        if self.rival is not None and self.rival.promising(epochs) and near <= _MOST_EPSILON * epochs:
            rival = self.rival.made_for(near, epochs)
            shown, order = ask(rival)
            if shown > found:
                claim = self._claim(shown if epsilon is None else epsilon, order)
                words = f"{adaptive_sign_text(rival, epochs)} {claim}"
                return BoundValue(shown, Evidence.of(Kind.TEST, "calipers:switching", words))
        return BoundValue(found, self.test_at(found, near, backward))

    def renyi(self, order: float) -> BoundValue:
        """What the PLDs of the attack show, or its tests where steps are not distinguished: there only a sum is
        seen.
        """
        if any(direction.alike for direction in self.product.directions):
            shown = renyi_of_tests(self.product.tests(_RENYI_DEPTH), order)
            return BoundValue(shown, self.evidence())
        return BoundValue(renyi_below(self.product.factors, order), self.evidence())

    @memoize
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The attack's curve, from its tests in both directions; computed once for each depth."""
        if self.single is not None:
            return Envelope((self.single.curve(smallest_delta),))
        return Envelope((self.product.curve(smallest_delta),))

    def evidence(self) -> Evidence:
        """The attack, with any threshold."""
        return self._test("Compare the sum of all scores with a threshold; every threshold is one point of the curve.")

    def test_at(self, shown: float, threshold: float, backward: bool) -> Evidence:
        """The attack and the test at the epsilon or delta asked for, so that a reader could run it.

        The log likelihood ratio test with threshold epsilon is the best of all at epsilon, hence at least as good as
        whichever test gave the number.
        """
        if shown <= 0.0:
            return self._test("No test on the sum of all scores was found to show more than 0 here.")
        return self._test(self._claim(threshold, backward))

    def _test(self, test: str) -> Evidence:
        return Evidence.of(Kind.TEST, self.statement, f"{self.description} {test}")

    def _claim(self, threshold: float, backward: bool) -> str:
        if backward:
            return f"Say '{self.claims[1]}' when the sum of all scores is below {0.0 - threshold:.10g}."
        return f"Say '{self.claims[0]}' when the sum of all scores exceeds {threshold:.10g}."


def adaptive_sign_text(attack: AdaptiveSignAttack, epochs: int) -> str:
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
    means = "mean_t U_t / mean_t V_t" if r == 1.0 else "(1 - p + p mean_t U_t) / (1 - p + p mean_t V_t)"
    kept = "" if r == 1.0 else f", p = {r:.10g} the probability that the record is in one of these batches"
    return (
        f"The record changes sides. {'In every epoch all' if epochs > 1 else 'All'} other clipped gradients are -u, a "
        f"unit vector; the record's {opposing} at first. After {looks} batches it {agreeing} until the next look if "
        f"the running sum of U_t - {math.exp(attack.tuned):.10g} V_t is above {_listed(policy.marks)} respectively, "
        f"and as at first if not. Here x_t = (sum of batch t along u + B)/sigma, {weights}. The certified figure is "
        "that of a running sum rounded on the way, by coins that keep its mean, to a lattice. The score of an epoch is "
        f"log({means}){kept}."
    )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)
