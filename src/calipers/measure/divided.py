"""Poisson sampled runs that divide the noisy sum by a number that depends on the data.

Both neighbors of the dataset count: the pairs (N - 1, N) and (N, N + 1). For each of them the upper jaw is the least
that any proof gives, the lower jaw the most that any of a few explicit attacks gets (other gradients v e, v in
`DIRECTIONS`); the measurement is the larger of the two pairs on either side.

Which proofs compete. Divisor K against K + 1: the batch is revealed, membership hidden. (Revealing membership too, as
the published guarantee does, can only be worse: there each branch may choose its own alpha, here both share one.)
Realized batch size: size and sum revealed, or batch revealed and membership hidden.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gdp_mu
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.laws.direction import Jaws, LawSource
from calipers.laws.divided import DividedPair, RealizedPair
from calipers.laws.law import Law
from calipers.laws.product import Product
from calipers.laws.saddle import saddle_for_delta, saddle_for_epsilon
from calipers.laws.scale import scale_pair
from calipers.laws.sweep import directed_sweep
from calipers.measure.compositions import source
from calipers.measure.divisors import REMEDY, check_divided, divisor_of, is_divided, moving_pairs, public_because
from calipers.numerics.types import FloatArray
from calipers.run import Run

DIRECTIONS = (-1.0, 0.0, 1.0)
_COARSE = 0.2
_MOST_TERMS = 3e5
_MOST_SIZES = 40
_SEEN, _FEW = 1e-15, 6
_FEW_STEPS = 16
_TYPICAL_LOG_DELTA = math.log(1e-5)
_PROVES = {
    "calipers:hidden-bit": "The batch is revealed and the record's membership hidden: one test serves both branches.",
    "calipers:size-and-sum": "Batch size and noisy sum are revealed: at most two clipped gradients change.",
    "calipers:batch-revealed": "The batch is revealed, the membership hidden: a subsampled pair for every size.",
}


@dataclass(frozen=True)
class NeighborPair:
    """Datasets with `size` and `size` + 1 records; products for every proof and every attack."""

    phases: tuple[Run, ...]
    size: int

    @functools.cached_property
    def proofs(self) -> tuple[str, ...]:
        """Statements that may prove the upper jaw."""
        realized = [run for run in self.phases if self._kind(run) == "realized"]
        if not realized:
            return ("calipers:hidden-bit",)
        pairs = [
            RealizedPair(run.noise_multiplier, run.rate, self.size, run.dimension or 1, batch_revealed=True)
            for run in realized
        ]
        few = all(pair.proof.sizes(-40.0) <= _MOST_SIZES for pair in pairs)  # type: ignore[union-attr]  # selected above
        # Sizes tell too much only where a batch may well hold every record, or where there are few of them.
        few = few and any(
            run.total_steps * run.rate ** (self.size + 1) > _SEEN or self.size <= _FEW for run in realized
        )
        return ("calipers:size-and-sum", "calipers:batch-revealed") if few else ("calipers:size-and-sum",)

    @functools.cached_property
    def directions(self) -> tuple[float, ...]:
        """The attacks worth trying.

        Where batches are large, their sizes cost the most and tell the least. Against a fixed divisor they drown the
        signal unless the other gradients are zero; against the realized size opposite gradients are best by far.
        """
        cost = dict.fromkeys(("fixed", "realized"), 0)
        for run in self.phases:
            kind = self._kind(run)
            if kind != "plain":
                pair = DividedPair(run.noise_multiplier, run.rate, self.size, max(1, self._divisor(run)), 1.0)
                cost[kind] += pair.attack.terms(_COARSE)
        if sum(cost.values()) <= _MOST_TERMS:
            return DIRECTIONS
        return (0.0,) if cost["fixed"] > 0 else (-1.0,)

    def _kind(self, run: Run) -> str:
        """plain, fixed (K against K + 1), or realized; at rate 1 the realized size is the dataset size."""
        if not is_divided(run) or self.size not in moving_pairs(run):
            return "plain"
        return "realized" if run.normalization == "realized" and run.rate < 1.0 else "fixed"

    def _divisor(self, run: Run) -> int:
        return divisor_of(run, self.size) if run.normalization == "floor" else self.size

    def factors(self, proof: str, direction: float) -> list[tuple[LawSource, int]]:
        """The pairs of all phases with their multiplicities."""
        counts: dict[LawSource, int] = {}
        degrees: dict[int, int] = {}
        for run in self.phases:
            kind, divisor, steps = self._kind(run), self._divisor(run), run.total_steps
            pair: LawSource
            if kind == "plain":
                pair = source(run)
            elif kind == "realized":
                dimension = run.dimension or 1
                revealed = proof == "calipers:batch-revealed"
                pair = RealizedPair(run.noise_multiplier, run.rate, self.size, dimension, direction, revealed)
            else:
                pair = DividedPair(run.noise_multiplier, run.rate, self.size, divisor, direction)
                degrees[divisor] = degrees.get(divisor, 0) + steps * ((run.dimension or 1) - 1)
            counts[pair] = counts.get(pair, 0) + steps
        for divisor, count in degrees.items():
            if count:
                counts[_scale(count, divisor)] = 1
        return list(counts.items())

    @functools.cache  # noqa: B019  # a measurement lives shortly and holds few pairs
    def product(self, proof: str, direction: float) -> Product:
        """The composition, with this proof above and this attack below."""
        return Product(self.factors(proof, direction))

    @property
    def steps(self) -> int:
        """Steps of all phases."""
        return sum(run.total_steps for run in self.phases)

    def best_direction(self, estimate: Callable[[list[tuple[Law, int]]], float]) -> float:
        """The attack that a saddle point estimate ranks first; the estimate decides which bound is computed, not what
        it says.
        """
        if len(self.directions) == 1:
            return self.directions[0]
        return max(self.directions, key=lambda v: self._promise(v, estimate))

    def _promise(self, direction: float, estimate: Callable[[list[tuple[Law, int]]], float]) -> float:
        laws = [
            (pair.law(Side.LOWER, _COARSE, -60.0), count) for pair, count in self.factors(self.proofs[0], direction)
        ]
        return max(estimate(laws), estimate([(law.reverse(), count) for law, count in laws]))


@functools.lru_cache(maxsize=32)
def _scale(degrees: int, divisor: int) -> LawSource:
    return scale_pair(degrees, divisor)


@dataclass(frozen=True)
class DividedBackend:
    """The larger of both neighboring pairs, each between its best attack and its best proof."""

    pairs: tuple[NeighborPair, ...]
    closes: ClassVar[bool] = False
    _swept: dict[tuple[float, float], dict[Side, Envelope]] = field(default_factory=dict, repr=False)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Jaws of epsilon at delta."""
        log_delta = math.log(delta)
        return self._measured(
            lambda laws: saddle_for_delta(laws, log_delta).mean, lambda product: product.epsilon(delta, tolerance)
        )

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """Jaws of delta at epsilon."""
        return self._measured(
            lambda laws: saddle_for_epsilon(laws, epsilon).log_delta, lambda product: product.delta(epsilon, tolerance)
        )

    def _measured(self, estimate: Callable[[list[tuple[Law, int]]], float], ask: Callable[[Product], Jaws]) -> Jaws:
        found = []
        few = self.pairs[0].steps <= _FEW_STEPS  # saddle point estimates are poor there, and answers cheap
        tried = self.pairs[0].directions if few else (self.pairs[0].best_direction(estimate),)
        for pair in self.pairs:
            attacked = {v: ask(pair.product(pair.proofs[0], v)) for v in tried}
            best = max(attacked, key=lambda v: attacked[v].lower)
            lead = attacked[best]
            answers = {pair.proofs[0]: lead} | {name: ask(pair.product(name, best)) for name in pair.proofs[1:]}
            proof = min(answers, key=lambda name: answers[name].upper)
            attack = f"{pair.size} and {pair.size + 1} records, v = {best:g}"
            found.append(Jaws(lead.lower, answers[proof].upper, lead.threshold, lead.reversed, proof, attack))
        low, high = max(found, key=lambda jaws: jaws.lower), max(found, key=lambda jaws: jaws.upper)
        return Jaws(low.lower, high.upper, low.threshold, low.reversed, high.proof, low.attack)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The guarantee that holds for both pairs, and the hull of the attacks on either."""
        return {side: found.hull() for side, found in self.envelopes(smallest_delta, tolerance).items()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed guarantees of both pairs, and the directed attacks on them."""
        key = (smallest_delta, tolerance)
        if key not in self._swept:
            proven: list[TradeoffCurve] = []
            attacks: list[TradeoffCurve] = []
            direction = self.pairs[0].best_direction(lambda laws: saddle_for_delta(laws, _TYPICAL_LOG_DELTA).mean)
            for pair in self.pairs:
                products = [pair.product(proof, direction) for proof in pair.proofs]
                swept = [directed_sweep(product, smallest_delta, tolerance) for product in products]
                proven.append(_either([curves[Side.UPPER] for curves in swept]))
                attacks.extend(curves[Side.LOWER] for curves in swept)
            self._swept[key] = {Side.UPPER: Envelope.of(proven), Side.LOWER: Envelope.of(attacks)}
        return self._swept[key]

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the two curves."""
        curves = self.curves(max(1e-280, min(1e-12, 1e-2 * delta0)), tolerance)
        return gdp_mu(curves[Side.LOWER], delta0), gdp_mu(curves[Side.UPPER], delta0)

    def renyi(self, order: float) -> Jaws:
        """Not offered: the dominating pairs put charged mass at infinity."""
        raise UnsupportedError(
            f"No finite Renyi divergence of order {order:g} is proven for a divisor that depends on the data; ask for "
            "epsilon, delta or the curve."
        )

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The proof that gave the value, and what it competed with."""
        names = list(dict.fromkeys(name for pair in self.pairs for name in pair.proofs))
        won = jaws.proof if jaws is not None and jaws.proof else names[0]
        sizes = " and ".join(f"({pair.size}, {pair.size + 1})" for pair in self.pairs)
        text = (
            f"{_PROVES[won]} Both neighbors count: datasets of {sizes} records. Composed over all steps by tilted FFT; "
            "truncation, aliasing and rounding are charged upward."
        )
        if len(names) > 1 and jaws is not None and jaws.proof:
            text += " This proof gave less than the other one."
        return Evidence.of(Kind.NUMERICAL, won, text)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The explicit datasets and the test."""
        rule = "reject when the sum of the steps' rounded log likelihood ratios exceeds a threshold"
        if jaws is not None and math.isfinite(jaws.threshold):
            order = "record absent against present" if jaws.reversed else "record present against absent"
            rule = f"{rule}, {jaws.threshold:.10g} here ({order})"
        best = f" (here {jaws.attack})" if jaws is not None and jaws.attack else ""
        text = (
            "The differing record's clipped gradient is a unit vector e, all others are v e with the best of a few v"
            f"{best}; the quotient's coordinate along e and the length of the rest are observed. The test: {rule}."
        )
        return Evidence.of(Kind.TEST, "calipers:collinear-attack", text)


def _either(curves: list[TradeoffCurve]) -> TradeoffCurve:
    """The directed guarantee that several proofs give together: at every node the least of their profiles."""
    if len(curves) == 1:
        return curves[0]
    return TradeoffCurve.from_profile(
        *_least_profile(curves), side=Side.UPPER, reverse=_least_profile([curve.inverse() for curve in curves])
    )


def _least_profile(curves: list[TradeoffCurve]) -> tuple[FloatArray, FloatArray]:
    odds = np.unique(np.concatenate([curve.odds for curve in curves]))
    nodes = np.unique(np.append(np.log(odds[(odds >= 1.0) & np.isfinite(odds)]), 0.0))
    return nodes, np.min([curve.delta(nodes) for curve in curves], axis=0)


def divided_backend(phases: tuple[Run, ...]) -> DividedBackend:
    """Every phase Poisson sampled, at least one of them divided by a number that moves with the data."""
    for run in phases:
        if run.sampler != "poisson":
            raise UnsupportedError(
                "Phases that divide by a data-dependent number cannot be mixed with phases of other samplers than "
                "Poisson: measure them one by one."
            )
        if is_divided(run):
            check_divided(run)
    size = phases[0].dataset_size
    assert size is not None
    return DividedBackend(tuple(NeighborPair(phases, absent) for absent in (size - 1, size)))


def divisor_notes(phases: tuple[Run, ...]) -> list[str]:
    """What a reader must know about the divisors of the phases."""
    notes: list[str] = []
    for run in phases:
        reason = public_because(run)
        if reason is not None:
            notes.append(reason)
        elif is_divided(run):
            notes.extend(_moving_notes(run))
    if any(is_divided(run) for run in phases):
        notes.append(f"The usual claim is about another mechanism: here the divisor depends on the data. {REMEDY}")
    return list(dict.fromkeys(notes))


def _moving_notes(run: Run) -> list[str]:
    if run.normalization == "realized":
        return [
            "The noisy sum is divided by the number of records in the batch; an empty batch is read as divided by 1."
        ]
    if run.normalization == "floor":
        moving = moving_pairs(run)
        sizes = " and ".join(f"{size} to {size + 1}" for size in moving)
        return [
            f"floor(N q) changes from {sizes} records, so one record changes the scale of all noise. For other dataset "
            "sizes it may not, or may matter more: a guarantee of the mechanism has to hold for every N (see "
            "worst_dataset_size)."
        ]
    return ["N q changes with every record, so one record changes the scale of all noise."]
