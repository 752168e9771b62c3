"""Mechanisms and stated guarantees as measurements: any guarantee in, the same page out.

A mechanism is anything that can state its law from both sides (`calipers.mechanisms`), a composition of such, or a
`Guarantee`. It takes the shortest route: closed forms for (epsilon, delta), mu and rho and for Gaussians, a product of
laws for everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from calipers.errors import InputError
from calipers.laws.composed.product import Product
from calipers.laws.core.source import LawSource
from calipers.measure.closed import gaussians
from calipers.measure.composed import Composition, composition
from calipers.measure.guarantees import SOME, stated_concentrated, stated_guarantee, stated_pair
from calipers.measure.jaw import Evaluation
from calipers.measure.measurement import Claim, Measurement
from calipers.mechanisms.classic import approximate_dp
from calipers.mechanisms.composition import compose
from calipers.mechanisms.concentrated import Concentrated
from calipers.mechanisms.gaussian import gaussian
from calipers.numerics.decimals import setting
from calipers.stated import Guarantee, Stated

Mechanism = LawSource | Product | Guarantee
_WRITTEN = 4
_ITS_OWN_CLAIM = (
    "This is a statement about a mechanism, not a run: the claim in the report is its own upper bound, and nothing "
    "is said about how batches were drawn or what was divided."
)
_ATTACK = "The record contributes what each pair assumes and all others contribute nothing, so each release shows it."


def is_mechanism(value: object) -> bool:
    """Whether `measure` can take this as a mechanism."""
    return isinstance(value, Product | Guarantee | LawSource)


def measure_mechanism(value: object, tolerance: float) -> Measurement:
    """The measurement of a mechanism, of a composition, or of a sequence of mechanisms that are composed."""
    if isinstance(value, Guarantee):
        found = stated_guarantee(value) if value.times == 1 else evaluation_of(compose((_pair_of(value), value.times)))
        return stated_measurement(value.stated, found, tolerance, _notes_of(value))
    product = _composed(value)
    words = written(product)
    stated = Stated(f"What is released: {words}", (("releases", words),), "its own")
    return stated_measurement(stated, evaluation_of(product), tolerance, about(product))


def _pair_of(guarantee: Guarantee) -> LawSource:
    """What composes as a mechanism with the guarantee does."""
    if guarantee.mu is not None:
        return gaussian(guarantee.mu)
    assert guarantee.epsilon is not None  # those of zCDP are added up before they are stated
    return approximate_dp(guarantee.epsilon, guarantee.delta or 0.0)


def written(product: Product) -> str:
    """The factors with their counts, the first few of many."""
    words = [f"{count} x {source.words}" if count > 1 else source.words for source, count in product.factors]
    more = len(words) - _WRITTEN
    return "; ".join(words) if more <= 0 else "; ".join([*words[:_WRITTEN], f"and {more} more"])


def stated_measurement(stated: Stated, found: Evaluation, tolerance: float, notes: tuple[str, ...]) -> Measurement:
    """A measurement of what is stated, whose claim is its own upper bound."""
    claim = Claim(found.above, tolerance)
    return Measurement((), found, claim, tolerance, (*notes, _ITS_OWN_CLAIM), stated=stated)


def _composed(value: object) -> Product:
    if isinstance(value, Product):
        return value
    if isinstance(value, LawSource):
        return compose(value)
    if not isinstance(value, Sequence):
        raise InputError(f"Expected a Run, a mechanism, or several in a list, got {type(value).__name__}.")
    for position, part in enumerate(value, start=1):
        if isinstance(part, Guarantee) or not (is_mechanism(part) or isinstance(part, tuple)):
            raise InputError(
                f"Expected mechanism {position} to be one of calipers.mechanisms or (mechanism, count), got "
                f"{type(part).__name__}; runs and mechanisms are measured one by one, and a guarantee composes as "
                "approximate_dp, gaussian or Concentrated."
            )
    return compose(value)


def evaluation_of(product: Product) -> Evaluation:
    """The shortest route; zCDP guarantees are added up first, which is sharper than composing their curves."""
    factors = product.factors
    shifts = [(source.mu, count) for source, count in factors if source.mu is not None]
    if len(shifts) == len(factors):
        return gaussians(shifts, "Gaussian mechanisms compose to one.")
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
        lone = factors[0][0]
        if lone.stated is not None:
            return stated_pair(*lone.stated)
        if lone.alone is not None:
            pair, attack = lone.alone
            said = f"{attack} Every point is attained, each by its own scores."
            return composition(Composition(Product([(pair, 1)])), reason, "zhu2022:thm10", said)
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
