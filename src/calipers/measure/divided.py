"""Poisson sampled runs that divide the noisy sum by a number that depends on the data.

Both neighbors of the dataset count: the pairs (N - 1, N) and (N, N + 1), or all pairs of a range of sizes. For each of
them the upper bound is what its proof gives, the lower bound the most that any of a few explicit attacks gets
(gradients on one line); the measurement is the largest over the pairs on either side.
Which pairs there are is `calipers.measure.divisors`' to say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import InputError, UnsupportedError
from calipers.measure.bounds import Bound, Bounds, BoundValue
from calipers.measure.composed import sum_rule
from calipers.measure.divisors import SIZE, check_divided
from calipers.measure.neighbors import LineGradients, NeighborPair, divided_pairs, range_of_neighbors
from calipers.memoize import memoize
from calipers.pld.composition.one_sided import AttackProduct, ShownBound
from calipers.pld.composition.renyi import renyi_above, renyi_below
from calipers.pld.division.length_tests import delta_shown, epsilon_shown
from calipers.run import DATA_DEPENDENT, Run
from calipers.run_fields import divisor_of
from calipers.samplers import scheme_of
from calipers.scope import ORIENTATIONS

_TYPICAL_DELTA = 1e-5
_PERFECT = 1e-300
_ROUGHLY, _GLANCE = 0.03, 0.2
"""Tolerances of first looks at proofs and at attacks."""
_LIKELY, _NO_RATE = 0.9, 745.0
"""Where even this delta needs so large an epsilon nothing is hidden: e^-745 is no float."""
_NO_GUARANTEE = TradeoffCurve.from_profile([0.0], [1.0], side=Side.UPPER, symmetric=True)
_PROVES = {
    "calipers:hidden-bit": "The batch is revealed and the record's membership hidden: one test serves both branches.",
    "calipers:size-and-sum": "Batch size and noisy sum are revealed: at most two clipped gradients change.",
    "calipers:moving-rate": "The batch of all other records, drawn at another rate on either side, is revealed.",
}
_NOTHING_HIDDEN = (
    "Nothing is hidden: the length of the noise alone, in all coordinates of all noisy sums, tells beyond doubt "
    "whether the record is there, and no gradient is needed for it."
)


def divided(pairs: tuple[NeighborPair, ...]) -> tuple[CollinearProof, CollinearAttack]:
    """The proof and the attack, each the largest over the pairs."""
    apart = tuple(pair for pair in pairs if pair.is_distinguished)
    return (NoProof(pairs), LengthAttack(apart)) if apart else (CollinearProof(pairs), CollinearAttack(pairs))


def divided_evaluation(phases: tuple[Run, ...]) -> Bounds:
    """The largest over both neighbors of a dataset."""
    proof, attack = divided(divided_pairs(phases))
    return Bounds(proof, attack, notes=(_NOTHING_HIDDEN,) if isinstance(proof, NoProof) else ())


def sized(phases: tuple[Run, ...], sizes: tuple[int, int]) -> Bounds:
    """The worst over all datasets of low to high records of a run with one phase."""
    low, high = (SIZE.check_int("dataset_sizes", size) for size in sizes)
    if low > high:
        raise InputError(f"Expected dataset_sizes = (low, high) with low <= high, got {low} and {high}.")
    run = phases[0]
    moving = run.normalization in DATA_DEPENDENT and scheme_of(run).independent and run.adjacency == "add-remove"
    if len(phases) > 1 or not moving:
        raise InputError(
            "A range of dataset sizes matters to one phase whose divisor moves with the size: normalization "
            "'expected', 'floor' or 'realized', sampler 'poisson', adjacency 'add-remove'; leave the range out."
        )
    check_divided(run.replace(dataset_size=low, sample_rate=run.rate, steps=run.total_steps))
    pairs = range_of_neighbors(phases, low, high)
    if not any(pair.is_divided for pair in pairs):
        raise InputError(
            f"floor(N q) is {divisor_of(run, low)} for every size from {low - 1} to {high + 1}: the divisor is the "
            "same public number for all of them; leave the range out."
        )
    return Bounds(*divided(pairs))


@dataclass(frozen=True)
class CollinearProof(Bound):
    """The largest over the pairs of what the proof of each gives."""

    pairs: tuple[NeighborPair, ...]
    side = Side.UPPER

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """At least the true epsilon."""
        return self._largest(lambda pair, within: pair.proven.epsilon(delta, within), tolerance)

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """At least the true delta."""
        return self._largest(lambda pair, within: pair.proven.delta(epsilon, within), tolerance)

    def _largest(self, above: Callable[[NeighborPair, float], float], tolerance: float) -> BoundValue:
        """On a coarse grid first: that holds too, so only the pair that decides is computed finely."""
        found = {pair: above(pair, _ROUGHLY) for pair in self.pairs}
        fine: set[NeighborPair] = set()
        while True:
            worst = max(found, key=lambda pair: found[pair])
            if worst in fine or tolerance >= _ROUGHLY:
                return BoundValue(found[worst], self._explained(worst))
            fine.add(worst)
            found[worst] = min(found[worst], above(worst, tolerance))

    def renyi(self, order: float) -> BoundValue:
        """What the proof bounds it by, of the pair with the most."""
        if {pair.statement for pair in self.pairs} != {"calipers:hidden-bit"}:
            raise UnsupportedError(
                f"No finite Renyi divergence of order {order:g} is proven where the rate moves with the dataset, or "
                "where the divisor is the realized batch size: the proofs reveal batch sizes that only one of two "
                "datasets can show; ask for epsilon, delta or the curve."
            )
        found = {pair: renyi_above(pair.proven.factors, order) for pair in self.pairs}
        worst = max(found, key=lambda pair: found[pair])
        if not math.isfinite(found[worst]):
            finite = min(pair.finite_orders for pair in self.pairs)
            raise UnsupportedError(
                f"The Renyi divergence of order {order:g} is infinite, since one record more makes all noise "
                f"smaller; it is finite below order {finite:.4g}: ask for such an order, or for epsilon at delta."
            )
        return BoundValue(found[worst], self._explained(worst))

    @memoize
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The directed guarantees of all pairs."""
        return Envelope(tuple(self._guarantee(pair, smallest_delta, tolerance) for pair in self.pairs))

    def _guarantee(self, pair: NeighborPair, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """That of one pair, or none where no float holds a rate below 1."""
        likely = pair.proven.epsilon(_LIKELY, _ROUGHLY)
        if likely > _NO_RATE:
            spread = pair.proven.epsilon(1.0 - _LIKELY, _ROUGHLY) - likely  # two and a half deviations
            if likely - 3.0 * spread > _NO_RATE:
                return _NO_GUARANTEE
        return pair.proven.curve(smallest_delta, tolerance)

    def evidence(self) -> Evidence:
        """The proof of the first pair."""
        return self._explained(self.pairs[0])

    def _explained(self, pair: NeighborPair) -> Evidence:
        return Evidence.of(
            Kind.NUMERICAL,
            pair.statement,
            f"{_PROVES[pair.statement]} {_sizes(self.pairs)} Composed over all steps (Zhu, Dong, Wang 2022, Theorem "
            "10) by tilted FFT; truncation, aliasing and rounding are added to the upper bound.",
        )


@dataclass(frozen=True)
class CollinearAttack(Bound):
    """The most that explicit attacks show: gradients on one line, or no gradients at all."""

    pairs: tuple[NeighborPair, ...]
    side = Side.LOWER

    @functools.cached_property
    def _attacked(self) -> NeighborPair:
        """The first pair whose divisor moves: the smaller a dataset, the more one record changes."""
        return next(pair for pair in self.pairs if pair.is_divided)

    def _product(self, attack: LineGradients) -> AttackProduct:
        return self._attacked.attacked(attack)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """At most the true epsilon."""
        return self._most(
            lambda attack: self._roughly(attack, delta),
            lambda product, within: product.epsilon(delta, within),
            tolerance,
            None,
        )

    @memoize
    def _roughly(self, attack: LineGradients, delta: float) -> ShownBound:
        """At most epsilon by one attack, on a coarse grid."""
        return self._product(attack).epsilon(delta, _GLANCE)

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """At most the true delta."""
        return self._most(
            lambda attack: self._product(attack).delta(epsilon, _GLANCE),
            lambda product, within: product.delta(epsilon, within),
            tolerance,
            epsilon,
        )

    def _most(
        self,
        roughly: Callable[[LineGradients], ShownBound],
        below: Callable[[AttackProduct, float], ShownBound],
        tolerance: float,
        at: float | None,
    ) -> BoundValue:
        """The most of all attacks; `at`: the epsilon asked about, where the value is none."""
        tried = {attack: roughly(attack) for attack in self._attacked.attacks}
        attack = max(tried, key=lambda attack: tried[attack].value)
        shown = max(below(self._product(attack), tolerance), tried[attack], key=lambda item: item.value)
        return BoundValue(shown.value, self._test(attack, shown, shown.value if at is None else at))

    def renyi(self, order: float) -> BoundValue:
        """What the PLDs of the best attack show."""
        shown = {attack: renyi_below(self._product(attack).factors, order) for attack in self._attacked.attacks}
        best = max(shown, key=lambda attack: shown[attack])
        return BoundValue(shown[best], self._test(best, ShownBound(shown[best]), math.inf))

    @memoize
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The tests of the attack that shows most at a typical delta."""
        best = max(self._attacked.attacks, key=lambda attack: self._roughly(attack, _TYPICAL_DELTA).value)
        return Envelope((self._product(best).curve(smallest_delta, tolerance),))

    def evidence(self) -> Evidence:
        """The explicit datasets and the tests of all thresholds."""
        return self._test(None, ShownBound(0.0), math.inf)

    def _test(self, attack: LineGradients | None, shown: ShownBound, epsilon: float) -> Evidence:
        best = ""
        if attack is not None:
            best = f" (here {_records(self._attacked)}, v = {attack[0]:g}, w = {attack[1]:g})"
        text = (
            "The differing record's clipped gradient is w e, e a unit vector, all others are v e with the best of a "
            f"few v and w{best}; the coordinate along e and the length of the rest are observed. The test: "
            f"{sum_rule(shown.threshold, ORIENTATIONS['add-remove'][shown.reversed], epsilon)}."
        )
        return Evidence.of(Kind.TEST, "calipers:collinear-attack", text)


class NoProof(CollinearProof):
    """Where noise alone tells the datasets apart beyond doubt, epsilon is some 5,000 and more: nothing is proven."""

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Anything."""
        return BoundValue(math.inf, self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """Anything."""
        return BoundValue(1.0, self.evidence())

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """No guarantee."""
        return Envelope((_NO_GUARANTEE,))

    def evidence(self) -> Evidence:
        """That there is none."""
        text = "No bound is computed where the length of the noise alone tells the datasets apart beyond doubt."
        return Evidence.of(Kind.NUMERICAL, self.pairs[0].statement, f"{text} {_sizes(self.pairs)}")


class LengthAttack(CollinearAttack):
    """Everybody's gradient is zero, and the length of the noise tells the datasets of the first pair apart."""

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Of a test of the length."""
        value, reversed_test = epsilon_shown(self.pairs[0].length_tests(delta), delta)
        return BoundValue(value, _length_test(self.pairs[0], reversed_test))

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """Of a test of the length."""
        value, reversed_test = delta_shown(self.pairs[0].length_tests(1e-3), epsilon)
        return BoundValue(value, _length_test(self.pairs[0], reversed_test))

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """One test whose errors no float can hold, rounded up."""
        return Envelope((TradeoffCurve.from_tests([_PERFECT], [1.0], power_c=[_PERFECT], side=Side.LOWER),))

    def evidence(self) -> Evidence:
        """The test of any threshold."""
        return _length_test(None, False)


def _records(pair: NeighborPair) -> str:
    return f"{pair.size:,} and {pair.size + 1:,} records"


def _sizes(pairs: tuple[NeighborPair, ...]) -> str:
    first, last = pairs[0].size, max(pair.upto or pair.size for pair in pairs)
    if last == first:
        return f"Both neighbors count: datasets of {_records(pairs[0])} decide, since larger ones show less."
    if last == first + 1:
        return f"Both neighbors count: datasets of {first:,} to {last + 1:,} records."
    return f"All neighbors of the range count: datasets of {first:,} to {last + 1:,} records."


def _length_test(pair: NeighborPair | None, backward: bool) -> Evidence:
    where = "" if pair is None else f" ({_records(pair)}, everybody's gradient zero)"
    return Evidence.of(
        Kind.TEST,
        "calipers:noise-length",
        f"Everybody's gradient is zero, the record's too{where}: the length of the noise over all coordinates and "
        f"rounds is compared with a threshold ({ORIENTATIONS['add-remove'][backward]}); both error rates in closed "
        "form.",
    )
