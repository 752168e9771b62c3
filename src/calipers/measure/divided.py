"""Poisson sampled runs that divide the noisy sum by a number that depends on the data.

Both neighbors of the dataset count: the pairs (N - 1, N) and (N, N + 1), or all pairs of a range of sizes. For each of
them the upper jaw is the least that any proof gives, the lower jaw the most that any of a few explicit attacks gets
(gradients on one line); the measurement is the largest over the pairs on either side.
Which pairs there are is `calipers.measure.dataset_sizes`' to say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gdp_mu
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.laws.composed.direction import Jaws
from calipers.laws.composed.one_sided import Shown, delta_above, delta_below, epsilon_above, epsilon_below
from calipers.laws.composed.product import Product
from calipers.laws.composed.renyi import renyi_above, renyi_below
from calipers.laws.composed.sweep import directed_sweep
from calipers.laws.divided.told_apart import delta_shown, epsilon_by_moments, epsilon_shown
from calipers.measure.backends import depth_for
from calipers.measure.neighbors import Attack, NeighborPair
from calipers.measure.proven import best_guarantee

_TYPICAL_DELTA = 1e-5
_PERFECT = 1e-300
_ROUGHLY = 0.03
_PROVES = {
    "calipers:hidden-bit": "The batch is revealed and the record's membership hidden: one test serves both branches.",
    "calipers:size-and-sum": "Batch size and noisy sum are revealed: at most two clipped gradients change.",
    "calipers:full-batch": "Batch size and noisy sum are revealed, but full and empty batches compared by their noise.",
    "calipers:batch-revealed": "The batch is revealed, the membership hidden: a subsampled pair for every size.",
    "calipers:moving-rate": "The batch of all other records, drawn at another rate on either side, is revealed.",
    "calipers:one-moment": "Batch and membership are revealed: one moment of isotropic Gaussians, in closed form.",
}
_SILENT = (0.0, 0.0)
_LENGTH = "everybody's gradient zero"


@dataclass(frozen=True)
class DividedBackend:
    """The largest over neighboring pairs, each between its best attack and its best proof."""

    pairs: tuple[NeighborPair, ...]
    closes: ClassVar[bool] = False
    _swept: dict[tuple[float, float], dict[Side, Envelope]] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def told_apart(self) -> NeighborPair | None:
        """A pair whose noise alone tells which dataset was used, if there is one."""
        return next((pair for pair in self.pairs if pair.is_told_apart), None)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Jaws of epsilon at delta."""
        apart = self.told_apart
        if apart is not None:
            value, way = epsilon_shown(apart.length_tests(delta), delta)
            return Jaws(value, self._by_moments(delta), math.inf, way, "calipers:one-moment", _attacked(apart, None))
        return self._measured(
            lambda pair: epsilon_shown(pair.length_tests(delta), delta),
            lambda product, within: epsilon_below(product, delta, within),
            lambda product, within: epsilon_above(product, delta, within),
            tolerance,
        )

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """Jaws of delta at epsilon."""
        apart = self.told_apart
        if apart is not None:
            value, way = delta_shown(apart.length_tests(1e-3), epsilon)
            return Jaws(value, 1.0, math.inf, way, "calipers:one-moment", _attacked(apart, None))
        return self._measured(
            lambda pair: delta_shown(pair.length_tests(1e-9), epsilon),
            lambda product, within: delta_below(product, epsilon, within),
            lambda product, within: delta_above(product, epsilon, within),
            tolerance,
        )

    @functools.cached_property
    def _attacked_pair(self) -> NeighborPair:
        """The first pair whose divisor moves: the smaller a dataset, the more one record changes."""
        return next(pair for pair in self.pairs if pair.is_divided)

    def _by_moments(self, delta: float) -> float:
        rounds = [pair.rounds() for pair in self.pairs]
        return max(epsilon_by_moments(part, delta) if part is not None else math.inf for part in rounds)

    def _measured(
        self,
        by_length: Callable[[NeighborPair], tuple[float, bool]],
        below: Callable[[Product, float | None], Shown],
        above: Callable[[Product, float], float],
        tolerance: float,
    ) -> Jaws:
        shown, where = self._shown(by_length, below, tolerance)
        upper, proof = self._least(above, tolerance)
        return Jaws(shown.value, upper, shown.threshold, shown.reversed, proof, where)

    def _least(self, above: Callable[[Product, float], float], tolerance: float) -> tuple[float, str]:
        """The largest over the pairs of the least that any proof gives, and its name.

        All that is computed roughly holds too, so only what decides is computed finely.
        """
        found: dict[NeighborPair, tuple[float, str]] = {}
        for pair in self.pairs:
            tried = {name: above(pair.product(name, pair.attacks[0]), _ROUGHLY) for name in pair.proofs}
            name = min(tried, key=lambda name: tried[name])
            found[pair] = tried[name], name
        fine: set[NeighborPair] = set()
        while True:
            worst = max(found, key=lambda pair: found[pair][0])
            if worst in fine or tolerance >= _ROUGHLY:
                return found[worst]
            fine.add(worst)
            value, name = found[worst]
            found[worst] = min(value, above(worst.product(name, worst.attacks[0]), tolerance)), name

    def _shown(
        self,
        by_length: Callable[[NeighborPair], tuple[float, bool]],
        below: Callable[[Product, float | None], Shown],
        tolerance: float | None,
    ) -> tuple[Shown, str]:
        """The best of the attacks, with its words; without a tolerance after one rough look at the cheap ones."""
        pair = self._attacked_pair
        attacks = [attack for attack in pair.attacks if tolerance is not None or attack in (pair.attacks[0], _SILENT)]
        tried = {attack: below(pair.product(pair.proofs[0], attack), None) for attack in attacks}
        attack = max(tried, key=lambda attack: tried[attack].value)
        shown = tried[attack]
        if tolerance is not None:
            shown = max(below(pair.product(pair.proofs[0], attack), tolerance), shown, key=lambda item: item.value)
        where = _attacked(pair, attack)
        for other in self.pairs:
            value, way = by_length(other)
            if value > shown.value:
                shown, where = Shown(value, math.inf, way), _attacked(other, None)
        return shown, where

    def roughly_shown(self, delta: float) -> float:
        """At most epsilon(delta), quickly: what an attack gets on a coarse grid."""
        apart = self.told_apart
        if apart is not None:
            return epsilon_shown(apart.length_tests(delta), delta)[0]
        shown, _ = self._shown(
            lambda pair: epsilon_shown(pair.length_tests(delta), delta),
            lambda product, within: epsilon_below(product, delta, within),
            None,
        )
        return shown.value

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The guarantee that holds for all pairs, and the hull of the tests of the best attack."""
        return {side: found.hull() for side, found in self.envelopes(smallest_delta, tolerance).items()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed guarantees of all pairs, and the tests of the best attack on one of them."""
        key = (smallest_delta, tolerance)
        if key not in self._swept:
            self._swept[key] = self._distinguished() if self.told_apart else self._sweep(smallest_delta, tolerance)
        return self._swept[key]

    def _distinguished(self) -> dict[Side, Envelope]:
        """No guarantee, and one test whose errors no float can hold, rounded up."""
        nothing = TradeoffCurve.from_profile([0.0], [1.0], side=Side.UPPER, symmetric=True)
        test = TradeoffCurve.from_tests([_PERFECT], [1.0], power_c=[_PERFECT], side=Side.LOWER)
        return {Side.UPPER: Envelope((nothing,)), Side.LOWER: Envelope((test,))}

    def _sweep(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        first = self._attacked_pair
        tried = {
            attack: epsilon_below(first.product(first.proofs[0], attack), _TYPICAL_DELTA, None).value
            for attack in first.attacks
        }
        attack = max(tried, key=lambda attack: tried[attack])
        product = first.product(first.proofs[0], attack)
        shown = directed_sweep(product, smallest_delta, tolerance, (Side.LOWER,), False)[Side.LOWER]
        proven = [
            best_guarantee(
                [
                    directed_sweep(
                        pair.product(proof, pair.attacks[0]), smallest_delta, tolerance, (Side.UPPER,), False
                    )[Side.UPPER]
                    for proof in pair.proofs
                ]
            )
            for pair in self.pairs
        ]
        return {Side.UPPER: Envelope.of(proven), Side.LOWER: Envelope((shown,))}

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the two curves."""
        curves = self.curves(depth_for(delta0), tolerance)
        return gdp_mu(curves[Side.LOWER], delta0), gdp_mu(curves[Side.UPPER], delta0)

    def renyi(self, order: float) -> Jaws:
        """Where the divisor is a function of N: the largest over the pairs, of proof and of attack."""
        if any(name != "calipers:hidden-bit" for pair in self.pairs for name in pair.proofs):
            raise UnsupportedError(
                f"No finite Renyi divergence of order {order:g} is proven where the divisor is the realized batch size "
                "or the rate moves with the dataset: the proofs reveal batch sizes that only one of two datasets can "
                "show; ask for epsilon, delta or the curve."
            )
        proven = [(pair, pair.product(pair.proofs[0], pair.attacks[0])) for pair in self.pairs]
        upper = max(renyi_above(product.factors, order) for _, product in proven)
        first = self._attacked_pair
        shown = {attack: renyi_below(first.product(first.proofs[0], attack).factors, order) for attack in first.attacks}
        best = max(shown, key=lambda attack: shown[attack])
        return Jaws(shown[best], upper, math.inf, False, "calipers:hidden-bit", _attacked(first, best))

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The proof that gave the value, and what it competed with."""
        names = list(dict.fromkeys(name for pair in self.pairs for name in pair.proofs))
        won = jaws.proof if jaws is not None and jaws.proof else names[0]
        text = f"{_PROVES[won]} {self._sizes()}"
        if won == "calipers:one-moment" or self.told_apart:
            return Evidence.of(
                Kind.NUMERICAL, "calipers:one-moment", f"{_PROVES['calipers:one-moment']} {self._sizes()}"
            )
        text += " Composed over all steps by tilted FFT; truncation, aliasing and rounding are charged upward."
        if len(names) > 1 and jaws is not None and jaws.proof:
            text += " This proof gave the least of those that compete."
        return Evidence.of(Kind.NUMERICAL, won, text)

    def _sizes(self) -> str:
        first, last = self.pairs[0].size, max(pair.upto or pair.size for pair in self.pairs)
        if last <= first + 1:
            sizes = " and ".join(f"({size}, {size + 1})" for size in range(first, last + 1))
            return f"Both neighbors count: datasets of {sizes} records."
        return f"All neighbors of the range count: datasets of {first} to {last + 1} records."

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The explicit datasets and the test."""
        order = (
            "record absent against present" if jaws is not None and jaws.reversed else "record present against absent"
        )
        if self.told_apart or (jaws is not None and _LENGTH in jaws.attack):
            best = f" ({jaws.attack})" if jaws is not None and jaws.attack else ""
            return Evidence.of(
                Kind.TEST,
                "calipers:noise-length",
                f"Everybody's gradient is zero, the record's too{best}: the length of the noise over all coordinates "
                f"and rounds is compared with a threshold ({order}); both error rates in closed form.",
            )
        rule = "reject when the sum of the steps' rounded log likelihood ratios exceeds a threshold"
        if jaws is not None and math.isfinite(jaws.threshold):
            rule = f"{rule}, {jaws.threshold:.10g} here ({order})"
        best = f" (here {jaws.attack})" if jaws is not None and jaws.attack else ""
        text = (
            "The differing record's clipped gradient is w e, e a unit vector, all others are v e with the best of a "
            f"few v and w{best}; the coordinate along e and the length of the rest are observed. The test: "
            f"{rule}."
        )
        return Evidence.of(Kind.TEST, "calipers:collinear-attack", text)


def _attacked(pair: NeighborPair, attack: Attack | None) -> str:
    how = _LENGTH if attack is None else f"v = {attack[0]:g}, w = {attack[1]:g}"
    return f"{pair.size} and {pair.size + 1} records, {how}"
