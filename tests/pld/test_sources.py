"""Proofs and attacks are types: who has a side has it, who has none is never asked for it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

import calipers.mechanisms
import calipers.pld
from calipers.bracket import Side
from calipers.mechanisms import exponential_mechanism, gaussian, laplace, randomized_response
from calipers.mechanisms.concentrated import Concentrated
from calipers.pld.allocation.replaced import ReplacedPair
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.composition.renyi import renyi_above
from calipers.pld.core.source import AnyPair, AttainedPair, DominatingPair, TwoSidedPair
from calipers.pld.division.hidden_membership import HiddenMembershipPair
from calipers.pld.division.pairs import DividedPair, MovingRatePair, RealizedPair, ScaleFactor
from calipers.samplers.analysis import Analysis, Attack, Proof


def sources() -> list[type[AnyPair]]:
    """Every class of the two rooms that has laws; not what several of a module share."""
    found: set[type[AnyPair]] = set()
    for package in (calipers.pld, calipers.mechanisms):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                shared = kind.__name__.startswith("_") and inspect.isabstract(kind)
                if issubclass(kind, AnyPair) and kind.__module__ != "calipers.pld.core.source" and not shared:
                    found.add(kind)
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", sources(), ids=lambda kind: kind.__name__)
def test_nobody_has_a_side_that_it_refuses(kind: type[AnyPair]) -> None:
    """A class has `upper` where it is a proof, `lower` where it is an attack, and implements what it has."""
    assert not inspect.isabstract(kind)
    assert hasattr(kind, "upper") == issubclass(kind, DominatingPair)
    assert hasattr(kind, "lower") == issubclass(kind, AttainedPair)
    assert hasattr(kind, "exact") == issubclass(kind, TwoSidedPair)


def test_there_are_sources_of_every_kind() -> None:
    """The list above sees proofs, attacks and what is both."""
    kinds = sources()
    assert {ShuffledEpoch, HiddenMembershipPair} <= {kind for kind in kinds if not issubclass(kind, AttainedPair)}
    assert ShuffleAttack in [kind for kind in kinds if not issubclass(kind, DominatingPair)]
    assert ReplacedPair in [kind for kind in kinds if issubclass(kind, TwoSidedPair)]


@pytest.mark.parametrize(
    ("source", "exact"),
    [
        (gaussian(1.0), True),
        (ScaleFactor(10, 50), True),
        (ReplacedPair(1.0, 5), True),
        (Concentrated(0.1), False),
        (exponential_mechanism(0.5), False),
        (DividedPair(1.0, 0.1, 20, 20), False),
        (RealizedPair(1.0, 0.1, 20, 3), False),
        (MovingRatePair(1.0, 20, 4), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exact_is_said_where_one_pair_is_proven_and_attained(source: TwoSidedPair, exact: bool) -> None:
    """And laws carry the side they were asked for."""
    assert source.exact is exact
    assert source.both is source
    assert source.upper(0.1, -40.0).side is Side.UPPER
    assert source.lower(0.1, -40.0).side is Side.LOWER


def test_an_exposure_closes_where_proof_and_attack_are_the_same_pair() -> None:
    """A proof without an attack beside it never does, nor an attack without a proof, nor two different pairs."""
    pair, other = gaussian(1.0), gaussian(2.0)
    attack = Attack(pair, 1, "", "")
    assert Analysis((Proof(pair, 1, "", ""),), attack).closes
    assert not Analysis((Proof(other, 1, "", ""),), attack).closes
    assert not Analysis((Proof(ShuffledEpoch(1.0, 5), 1, "", ""),), attack).closes
    assert not Analysis((Proof(pair, 1, "", ""),), Attack(ShuffleAttack(1.0, 5), 1, "", "")).closes
    assert not Analysis((Proof(pair, 1, "", ""), Proof(other, 1, "", "")), attack).closes
    assert not Analysis((Proof(pair, 1, "", ""),), attack, neighbors=(Analysis((), attack),)).closes


def test_facts_default_to_nothing_claimed() -> None:
    """A proof about shuffling has no lattice and no closed moment; a coin has a lattice."""
    epoch = ShuffledEpoch(1.0, 5)
    assert (epoch.span, epoch.both) == (None, None)
    assert epoch.log_moment_bound(2.0, False) is None
    assert epoch.log_beyond(2.0, -40.0, False) is None
    coin = randomized_response(0.5)
    assert coin.span == pytest.approx(0.5)


def test_a_guarantee_beside_a_mechanism_has_renyi_divergences() -> None:
    """zCDP states its moments in both orders: rho t, beside the order-infinity bound of Laplace noise."""
    alone = renyi_above([(laplace(2.0), 1)], 4.0)
    assert renyi_above([(Concentrated(0.1), 1), (laplace(2.0), 1)], 4.0) == pytest.approx(alone + 0.4, rel=1e-9)


@pytest.mark.parametrize("kind", sources(), ids=lambda kind: kind.__name__)
def test_no_field_takes_a_fact_for_its_default(kind: type[AnyPair]) -> None:
    """A field named as a fact of its base, and without a value of its own, would get the base's property."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    assert [field.name for field in fields if isinstance(field.default, property)] == []
