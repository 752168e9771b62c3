"""The bounds of a guarantee that somebody states, without a word about the mechanism behind it.

**(epsilon, delta)-DP** has a worst mechanism, randomized response with a mass delta that gives the dataset away
(Kairouz, Oh, Viswanath): one pair is proven and attained, and everything is closed form. Its trade-off curve has three
straight pieces. **mu-GDP** is the Gaussian mechanism. **rho-zCDP** has no single worst mechanism: what it implies and
what some rho-zCDP mechanism attains are two curves (`calipers.mechanisms.concentrated`).

The lower bound is about the guarantee, not about the mechanism that earned it: it is what *some* mechanism with this
guarantee leaks. The one behind it may leak less, which no statement of this kind can show.

**Mechanisms.** A mechanism is anything that can state its privacy loss distribution from both sides
(`calipers.mechanisms`), a composition of such, or a `Guarantee`. It takes the shortest route: closed forms for
(epsilon, delta), mu and rho and for Gaussians, a product for everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.rdp_curve import adp_tradeoff
from calipers.curves.renyi import epsilon_from_rdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import InputError, UnsupportedError
from calipers.guarantee import Guarantee, GuaranteeSubject
from calipers.measure.bounds import Bounds, BoundValue, KnownCurve, TradeoffBound, gaussians, one_gaussian
from calipers.measure.composed import Composition, composition
from calipers.measure.measurement import Claim, Measurement
from calipers.mechanisms.classic import approximate_dp
from calipers.mechanisms.composition import compose
from calipers.mechanisms.concentrated import Concentrated, attained_curve, guarantee_curve
from calipers.mechanisms.gaussian import gaussian
from calipers.numerics.decimals import setting
from calipers.pld.composition.product import Product
from calipers.pld.core.source import TwoSidedPair

Mechanism = TwoSidedPair | Product | Guarantee
_WRITTEN = 4
_ITS_OWN_CLAIM = (
    "This is a statement about a mechanism, not a run: nothing is said about how batches were drawn or what was "
    "divided, and there is no standard accounting to compare with (in JSON, the claim is the upper bound)."
)
_NO_CLAIM = "There is no standard accounting to compare with (in JSON, the claim is the upper bound)."
_ATTACK = "The record contributes what each pair assumes and all others contribute nothing, so each release shows it."
_SLACK = 1e-13
_ORDERS = 1.0 + np.geomspace(1e-3, 1e5, 4001)
SOME = "The lower bound is what some mechanism with this guarantee leaks; the one behind the statement may leak less."

_SOME_GAUSSIAN = f"It is attained by the Gaussian mechanism of sensitivity mu and noise 1. {SOME}"


@implements("calipers:stated-pair")
def stated_pair(epsilon: float, delta: float) -> Bounds:
    """(epsilon, delta)-DP and nothing else: three straight pieces, closed forms."""
    proof = Evidence.of(
        Kind.THEOREM,
        "calipers:stated-pair",
        f"The mechanism is said to be ({setting(epsilon)}, {setting(delta)})-DP. Randomized response with a mass delta "
        "in the clear dominates every such mechanism.",
    )
    attack = Evidence.of(
        Kind.TEST,
        "calipers:stated-pair",
        f"{SOME} Randomized response that answers truly with odds e^epsilon, and with probability delta shows the "
        "record itself, attains it: claim the record where the answer is yes.",
    )
    above = StatedPair(adp_tradeoff(epsilon, delta), proof, epsilon, delta)
    return Bounds(above, StatedPair(_response(epsilon, delta), attack, epsilon, delta), closes=True)


def _response(epsilon: float, delta: float) -> TradeoffCurve:
    """The tests on randomized response with a mass delta in the clear."""
    # The chance to answer wrongly, rounded up: that of both errors when the answer is believed.
    wrong = (1.0 - delta) / (1.0 + math.exp(epsilon)) * (1.0 + 8e-16)
    error, success = np.array([0.0, wrong, 1.0 - delta]), np.array([1.0, 1.0 - wrong, delta])
    return TradeoffCurve.from_tests(error, success[::-1], success, error[::-1], side=Side.LOWER)


@dataclass(frozen=True, eq=False)
class StatedPair(KnownCurve):
    """Either side of (stated_epsilon, stated_delta)-DP, exact at what is stated."""

    stated_epsilon: float
    stated_delta: float

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """At the stated delta exactly the stated epsilon; below it none."""
        if delta < self.stated_delta:
            return BoundValue(math.inf, self.explanation)
        if delta == self.stated_delta:
            return BoundValue(self.stated_epsilon, self.explanation)
        return BoundValue(min(super().epsilon(delta, tolerance).value, self.stated_epsilon), self.explanation)

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """From the stated epsilon on exactly the stated delta."""
        if epsilon >= self.stated_epsilon:
            return BoundValue(self.stated_delta, self.explanation)
        return super().delta(epsilon, tolerance)

    def renyi(self, order: float) -> BoundValue:
        """Infinite where a mass delta may be in the clear."""
        if self.stated_delta > 0.0:
            raise UnsupportedError(
                f"An ({setting(self.stated_epsilon)}, {setting(self.stated_delta)})-DP guarantee allows outcomes "
                f"that only one dataset can produce, so the Renyi divergence of order {order:g} is infinite."
            )
        return super().renyi(order)


@dataclass(frozen=True)
class ConcentratedProof(TradeoffBound):
    """What follows from Renyi divergences of at most xi + rho t."""

    rho: float
    xi: float = 0.0
    side = Side.UPPER

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """What the orders imply."""
        return guarantee_curve(self.rho, self.xi)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """The curve, or the conversion of single orders where that is sharper."""
        orders = _ORDERS
        for _ in range(3):  # ever closer around the best order
            values = (
                self.xi
                + self.rho * orders
                - (math.log(delta) + np.log(orders)) / (orders - 1.0)
                + np.log1p(-1 / orders)
            )
            best = int(np.argmin(values))
            orders = np.linspace(orders[max(best - 1, 0)], orders[min(best + 1, len(orders) - 1)], 1001)
        single = epsilon_from_rdp(orders, self.xi + self.rho * orders, delta)
        read = super().epsilon(delta, tolerance)
        return BoundValue(min(read.value, single), read.evidence)

    def renyi(self, order: float) -> BoundValue:
        """xi + rho t: the guarantee."""
        return BoundValue((self.xi + self.rho * order) * (1.0 + _SLACK), self.evidence())

    def evidence(self) -> Evidence:
        """The Renyi bounds as a trade-off curve."""
        allowed = "rho t" if self.xi == 0.0 else f"{self.xi:g} + rho t"
        text = (
            f"The mechanism is said to be {self.rho:.12g}-zCDP: its Renyi divergence of every order t > 1 is at most "
            f"{allowed}, and each order excludes error rates whose coins would exceed it."
        )
        return Evidence.of(Kind.THEOREM, "gomez2025:a6", text)


@dataclass(frozen=True)
class ConcentratedAttack(TradeoffBound):
    """What some rho-zCDP mechanisms attain."""

    rho: float
    xi: float = 0.0
    side = Side.LOWER

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """What Gaussian noise and biased coins attain."""
        return attained_curve(self.rho, self.xi)

    def renyi(self, order: float) -> BoundValue:
        """rho t is attained by the Gaussian mechanism."""
        return BoundValue(self.rho * order * (1.0 - _SLACK), self.evidence())

    def evidence(self) -> Evidence:
        """A mechanism that has the guarantee."""
        text = (
            f"{SOME} Shown by the Gaussian mechanism with mu = sqrt(2 rho) and by biased coins whose Renyi "
            "divergences are at most rho t at every order: claim the record when the coin shows heads."
        )
        return Evidence.of(Kind.TEST, "calipers:zcdp-coins", text)


def stated_concentrated(rho: float, xi: float = 0.0) -> Bounds:
    """(xi, rho)-zCDP and nothing else."""
    return Bounds(ConcentratedProof(rho, xi), ConcentratedAttack(rho, xi))


def stated_guarantee(guarantee: Guarantee) -> Bounds:
    """The bounds of a stated guarantee."""
    if guarantee.mu is not None:
        reason = f"The mechanism is said to be {guarantee.mu:.12g}-GDP."
        return one_gaussian(guarantee.mu, reason, "dong2022:cor2.13", _SOME_GAUSSIAN)
    if guarantee.rho is not None:
        return stated_concentrated(guarantee.rho)
    assert guarantee.epsilon is not None
    assert guarantee.delta is not None
    return stated_pair(guarantee.epsilon, guarantee.delta)


def no_release() -> Bounds:
    """The bounds of an empty composition: both datasets give the same (empty) output.

    Returns:
        (0, 0)-DP, proven and attained.
    """
    nothing = Evidence.of(Kind.THEOREM, "dong2022:cor2.13", "Nothing was released that could tell two datasets apart.")
    guess = Evidence.of(Kind.TEST, "dong2022:cor2.13", "Nothing was released: guessing is all that is left.")
    above, below = (
        StatedPair(TradeoffCurve.perfect_privacy(side), explanation, 0.0, 0.0)
        for side, explanation in ((Side.UPPER, nothing), (Side.LOWER, guess))
    )
    return Bounds(above, below, closes=True)


def measure_mechanism(value: object, tolerance: float) -> Measurement:
    """The measurement of a mechanism, of a composition, or of a sequence of mechanisms that are composed."""
    if isinstance(value, Guarantee):
        found = stated_guarantee(value) if value.times == 1 else evaluation_of(compose((_pair_of(value), value.times)))
        return stated_measurement(value.stated, found, tolerance, _notes_of(value))
    product = _composed(value)
    words = written(product)
    stated = GuaranteeSubject(f"What is released: {words}", (("releases", words),), "its own")
    return stated_measurement(stated, evaluation_of(product), tolerance, about(product))


def _pair_of(guarantee: Guarantee) -> TwoSidedPair:
    """What composes as a mechanism with the guarantee does."""
    if guarantee.mu is not None:
        return gaussian(guarantee.mu)
    assert guarantee.epsilon is not None  # those of zCDP are added up before they are stated
    return approximate_dp(guarantee.epsilon, guarantee.delta or 0.0)


def written(product: Product) -> str:
    """A composition in words.

    Args:
        product: Of mechanisms.

    Returns:
        Its factors with their counts, the first few of many.
    """
    words = [f"{count} x {source.words}" if count > 1 else source.words for source, count in product.factors]
    more = len(words) - _WRITTEN
    return "; ".join(words) if more <= 0 else "; ".join([*words[:_WRITTEN], f"and {more} more"])


def stated_measurement(
    stated: GuaranteeSubject, found: Bounds, tolerance: float, notes: tuple[str, ...]
) -> Measurement:
    """A measurement of what is no run.

    Args:
        stated: what was measured, for reports.
        found: its bounds.
        tolerance: the relative width aimed for.
        notes: what a reader must know about it.

    Returns:
        The measurement, whose claim is its own upper bound.
    """
    claim = Claim(found.upper, tolerance)
    last = _NO_CLAIM if stated.is_described else _ITS_OWN_CLAIM
    return Measurement((), found, claim, tolerance, (*notes, last), stated=stated)


def _composed(value: object) -> Product:
    if isinstance(value, Product):
        return value
    if isinstance(value, TwoSidedPair):
        return compose(value)
    if not isinstance(value, Sequence):
        raise InputError(f"Expected a Run, a mechanism, or several in a list, got {type(value).__name__}.")
    for position, part in enumerate(value, start=1):
        if not isinstance(part, Product | TwoSidedPair | tuple):
            raise InputError(
                f"Expected mechanism {position} to be one of calipers.mechanisms or (mechanism, count), got "
                f"{type(part).__name__}; runs and mechanisms are measured one by one, and a guarantee composes as "
                "approximate_dp, gaussian or Concentrated."
            )
    return compose(value)


def evaluation_of(product: Product) -> Bounds:
    """The bounds of a composition of mechanisms, by the shortest route.

    Args:
        product: Of mechanisms that state their privacy loss from both sides.

    Returns:
        Closed forms for Gaussians and single guarantees; else the product of all pairs. zCDP guarantees are added up
        first, which is sharper than composing their curves.
    """
    factors = product.factors
    shifts = [(source.mu, count) for source, count in factors if source.mu is not None]
    if len(shifts) == len(factors):
        return gaussians(shifts, "Gaussian mechanisms compose to one.", "Every mechanism attains its own pair.")
    parts = [(source.concentrated, count) for source, count in factors]
    rho = [(part[0] * count, part[1] * count) for part, count in parts if part is not None]
    added = [math.fsum(column) * (1.0 + 1e-15) for column in zip(*rho, strict=True)]
    if len(rho) == len(factors):
        return stated_concentrated(*added)
    if len(rho) > 1:
        others = [(source, count) for source, count in factors if source.concentrated is None]
        product = Product([(Concentrated(*added), 1), *others])
    steps = sum(count for _, count in product.factors)
    reason = f"The composition is dominated by the product of its {steps} pair{'s' if steps > 1 else ''}."
    if steps == 1:
        single = factors[0][0]
        if single.stated is not None:
            return stated_pair(*single.stated)
        if single.alone is not None:
            pair, attack = single.alone
            explanation = f"{attack} Every point is attained, each by its own scores."
            return composition(Composition(Product([(pair, 1)])), reason, "zhu2022:thm10", explanation)
    attack = _ATTACK if all(source.exact for source, _ in product.factors) else f"{_ATTACK} {SOME}"
    return composition(Composition(product), reason, "zhu2022:thm10", attack)


def _notes_of(guarantee: Guarantee) -> tuple[str, ...]:
    if guarantee.mu is not None:
        return (SOME,)
    if guarantee.rho is not None:
        return (
            SOME,
            "Different mechanisms attain different points below: no single one need attain all of them.",
        )
    if guarantee.delta:
        return (
            SOME,
            f"Up to a probability of {setting(guarantee.delta)}{' each time' if guarantee.times > 1 else ''} such a "
            "guarantee allows anything, the record itself included; so no epsilon holds at a smaller delta, and no "
            "finite mu up to a smaller delta0.",
        )
    return (SOME,)


def about(product: Product) -> tuple[str, ...]:
    """What a reader must know about the sides of such a product."""
    some = any(source.concentrated is not None or source.stated is not None for source, _ in product.factors)
    return (SOME,) if some else ()


def described(measurement: Measurement) -> str:
    """What was measured, in a few words."""
    if measurement.stated is not None:
        return measurement.stated.words
    phases = (
        f"{run.total_steps} steps, noise multiplier {run.noise_multiplier:g}, {run.sampler}" for run in measurement.runs
    )
    return " then ".join(phases)
