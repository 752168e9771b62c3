"""Steps of a menu: what dominates each of them, and what an attack sees of it.

A step is a `Run` (one optimizer step, an epoch, or a block of several), a mechanism of `calipers.mechanisms`, or a
`Guarantee` that is stated. Whatever it is, its batches are drawn afresh each time it is taken: a record's place that
persists from one step to the next (reshuffle = "once") has no pair that dominates after every past, and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from calipers.errors import InputError, UnsupportedError
from calipers.guarantee import Guarantee
from calipers.measure.divisors import is_divided, rate_moves
from calipers.measure.routes import factors_of
from calipers.mechanisms.classic import approximate_dp
from calipers.mechanisms.concentrated import Concentrated
from calipers.mechanisms.gaussian import gaussian
from calipers.pld.composition.product import Product
from calipers.pld.core.source import AnyPair, AttainedPair, DominatingPair, TwoSidedPair
from calipers.run import Run
from calipers.samplers import scheme_of
from calipers.samplers.analysis import Analysis

Step: TypeAlias = Run | TwoSidedPair | Product | Guarantee
Proofs: TypeAlias = tuple[tuple[DominatingPair, int], ...]
Attacks: TypeAlias = tuple[tuple[AttainedPair, int], ...]
Kind = TypeVar("Kind", bound=AnyPair)

_ROUNDED = 8.0 * 2.0**-53
"""Relative error of the root of a sum of squares of shifts."""


@dataclass(frozen=True)
class StepPairs:
    """What is known of one step.

    Args:
        dominating: for every kind of neighbor the factors whose product dominates the step; the adversary of the upper
            bound may choose among them anew each time, which can only raise it.
        attained: the factors that an attack sees; empty where none is known whose parts can be scored one by one.
        shift: mu, where the step is a Gaussian release.
        attack description: what everybody's gradients are in that attack.
    """

    dominating: tuple[Proofs, ...]
    attained: Attacks
    shift: float | None
    description: str

    @property
    def closes(self) -> bool:
        """Whether one pair is both proven and attained."""
        attained: object = (self.attained,)
        return self.dominating == attained

    @property
    def symmetric(self) -> bool:
        """Whether both directions of every pair are the same."""
        sources = [source for factors in (*self.dominating, self.attained) for source, _ in factors]
        return all(source.symmetric for source in sources)


def repeated(pairs: StepPairs, times: int) -> StepPairs:
    """A block of so many steps that are alike."""
    if times == 1:
        return pairs
    return StepPairs(
        tuple(tuple((source, count * times) for source, count in factors) for factors in pairs.dominating),
        tuple((source, count * times) for source, count in pairs.attained),
        None if pairs.shift is None else pairs.shift * math.sqrt(times) * (1.0 + _ROUNDED),
        pairs.description,
    )


def block_of(step: Step, times: int) -> Step | None:
    """The block as a step of a menu; None where none describes it."""
    if times == 1:
        return step
    if isinstance(step, Run):
        return step.replace(epochs=step.epochs * times) if step.epochs else step.replace(steps=step.total_steps * times)
    if isinstance(step, Guarantee) and step.rho is None:
        return replace(step, times=step.times * times)
    return None


def step_pairs(name: str, step: Step) -> StepPairs:
    """The pairs of a step.

    Raises:
        InputError: what was given is no step.
        UnsupportedError: nothing is proven about such a step after every past.
    """
    try:
        if isinstance(step, Run):
            return _of_run(step)
        if isinstance(step, Guarantee):
            return _of_guarantee(step)
        if isinstance(step, TwoSidedPair | Product):
            factors = tuple(step.factors) if isinstance(step, Product) else ((step, 1),)
            return _pairs((factors,), factors, "The record contributes what each pair assumes, all others nothing.")
    except UnsupportedError as error:
        raise UnsupportedError(f"Step {name!r} of the menu: {error}") from error
    raise InputError(
        f"Expected step {name!r} of the menu to be a Run, a mechanism or a Guarantee, got {type(step).__name__}."
    )


def _of_run(run: Run) -> StepPairs:
    scheme = scheme_of(run)
    if is_divided(run) or rate_moves(run):
        raise UnsupportedError(
            "its divisor or rate depends on the data, and no single pair dominates such a step; divide by a public "
            "constant and use a public rate."
        )
    if run.records_per_unit > 1 and run.adjacency not in scheme.counts_units:
        raise UnsupportedError(f"no pair is known for a {run.unit_name} of {run.records_per_unit} records.")
    if "reshuffle" in scheme.keys and run.reshuffle == "once":
        raise UnsupportedError("reshuffle='once' draws no fresh batches; use reshuffle='every-epoch'.")
    if run.cycle is not None and run.total_steps % run.cycle:
        raise UnsupportedError(f"groups of records take turns; a step of the menu is a whole cycle of {run.cycle}.")
    remedy = "With so little noise nothing is private; with so much, nothing is left to resolve."
    scheme.noise_range(run).check("noise_multiplier", run.noise_multiplier, remedy)
    analysis = scheme.analyze(run)
    attack = tuple(factors_of([analysis.attack]))
    seen = () if any(source.interchangeable for source, _ in attack) else attack
    return _pairs(tuple(_best(e) for e in (analysis, *analysis.neighbors)), seen, analysis.attack.description)


def _best(analysis: Analysis) -> Proofs:
    """Of the proofs that compete the one whose steps have the smallest total variations; any of them would hold."""
    choices = [tuple(factors_of([proof])) for proof in analysis.proofs]
    if len(choices) == 1:
        return choices[0]
    return min(choices, key=lambda factors: math.fsum(n * source.upper().delta(0.0) ** 2 for source, n in factors))


def _of_guarantee(step: Guarantee) -> StepPairs:
    description = "Some mechanism with the stated guarantee attains it; the one behind the statement may leak less."
    if step.rho is not None:
        return _pairs((((Concentrated(step.rho), 1),),), ((gaussian(math.sqrt(2.0 * step.rho)), 1),), description)
    pair: TwoSidedPair
    if step.mu is not None:
        pair = gaussian(step.mu)
    else:
        assert step.epsilon is not None  # one of the three is given
        pair = approximate_dp(step.epsilon, step.delta or 0.0)
    factors = ((pair, step.times),)
    return _pairs((factors,), factors, description)


def _pairs(dominating: Sequence[Proofs], attained: Attacks, description: str) -> StepPairs:
    shifts = [_one_gaussian(factors) for factors in (*dominating, attained)]
    known = [shift for shift in shifts if shift is not None]
    shift = max(known) if known and len(known) == len(shifts) else None
    return StepPairs(
        tuple(_merged(factors, 1.0 + _ROUNDED) for factors in dominating),
        _merged(attained, 1.0 - _ROUNDED),
        shift if shift is None else shift * (1.0 + _ROUNDED),
        description,
    )


def _one_gaussian(factors: Sequence[tuple[AnyPair, int]]) -> float | None:
    """mu of the whole step, where all of its factors are Gaussian releases."""
    shifts = [(source.mu, count) for source, count in factors if source.mu is not None]
    if not shifts or len(shifts) < len(factors):
        return None
    return math.sqrt(math.fsum(count * shift * shift for shift, count in shifts))


def _merged(factors: tuple[tuple[Kind, int], ...], rounding: float) -> tuple[tuple[Kind, int], ...]:
    """The same factors, Gaussian releases as one."""
    releases = [(source, count) for source, count in factors if source.mu is not None]
    if sum(count for _, count in releases) < 2:
        return factors
    shift = _one_gaussian(releases)
    assert shift is not None
    others = tuple((source, count) for source, count in factors if source.mu is None)
    return ((gaussian(shift * rounding), 1), *others)  # type: ignore[arg-type]  # a pair is proof and attack
