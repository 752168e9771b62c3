"""The best proof and the best attack: exposures of the phases of a run, composed and turned into a backend.

Closed form where every participation is a plain Gaussian at a known time; one product of laws where every phase has a
pair that is proven and attained; else the least of the proofs that compete above, and the most that any attack shows
below. Where the neighbors of a dataset differ, the largest over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from calipers.laws.direction import LawSource
from calipers.laws.product import Product
from calipers.laws.proof_product import ProofProduct
from calipers.laws.replaced import ReplacedPair
from calipers.laws.shuffle import ShuffleAttack
from calipers.laws.shuffle_product import AttackProduct
from calipers.laws.shuffled import ShuffledEpoch
from calipers.measure.allocation import AttackBackend, ReplacedBackend
from calipers.measure.backends import Backend, GaussianBackend, ProductBackend, SplitBackend
from calipers.measure.greatest import GreatestBackend
from calipers.measure.proven import LeastBackend, ProofBackend
from calipers.schemes.exposure import Attack, Exposure, Proof

_WAYS = {
    True: ("the original against its replacement", "the replacement against the original"),
    False: ("record present against absent", "record absent against present"),
}
Source = TypeVar("Source")
Part = TypeVar("Part")
_CLAIMS = {True: ("original", "replaced"), False: ("present", "zeroed out")}


def evaluated(exposures: Sequence[Exposure], replaced: bool) -> Backend:
    """A backend for phases that follow one another; `replaced` when the neighbors differ by a replaced record."""
    found = [_one_neighbor(phases, replaced) for phases in _alternatives([(e, *e.neighbors) for e in exposures])]
    return found[0] if len(found) == 1 else GreatestBackend(tuple(found))


def _one_neighbor(exposures: Sequence[Exposure], replaced: bool) -> Backend:
    attacks = [exposure.attack for exposure in exposures]
    if all(exposure.closes for exposure in exposures):
        return _proven([exposure.proofs[0] for exposure in exposures], attacks, replaced)
    competing = _alternatives([exposure.proofs for exposure in exposures])
    parts = tuple((_statement(proofs), _proven(proofs, attacks, replaced)) for proofs in competing)
    above = parts[0][1] if len(parts) == 1 else LeastBackend(parts)
    tried = _alternatives([(exposure.attack, *exposure.attacks) for exposure in exposures])
    shown = tuple(_shown(one, replaced) for one in tried)
    return SplitBackend(above, shown[0] if len(shown) == 1 else GreatestBackend(shown))


def _alternatives(phases: Sequence[Sequence[Part]]) -> list[list[Part]]:
    """The first choices of all phases, the second ones, and so on; a phase with fewer repeats its last."""
    most = max(len(choices) for choices in phases)
    return [[choices[min(place, len(choices) - 1)] for choices in phases] for place in range(most)]


def factors_of(parts: Sequence[Proof] | Sequence[Attack]) -> list[tuple[LawSource, int]]:
    """The sources of all phases with the number of participations, equal ones together."""
    counts: dict[LawSource, int] = {}
    for part in parts:
        for source, count in ((part.source, part.count), *part.beside):
            counts[source] = counts.get(source, 0) + count
    return list(counts.items())


def gaussian_releases(count: int) -> str:
    """So many Gaussian releases, in words."""
    return "one Gaussian release at a known time" if count == 1 else f"{count} Gaussian releases at known times"


def _statement(proofs: Sequence[Proof]) -> str:
    """The statement behind several phases: that of a proof from above only, where there is one."""
    return next((proof.statement for proof in reversed(proofs) if proof.one_sided), proofs[-1].statement)


def _proven(proofs: Sequence[Proof], attacks: Sequence[Attack], replaced: bool) -> Backend:
    """The composition of one proof per phase; its lower jaw counts only where the attacks have the same sources."""
    factors = factors_of(proofs)
    count = sum(number for _, number in factors)
    if any(proof.one_sided for proof in proofs):
        reason = " ".join(dict.fromkeys(proof.reason for proof in proofs if proof.one_sided))
        return ProofBackend(ProofProduct(factors), reason, _statement(proofs), _lone(factors, ShuffledEpoch))
    shifts = [(proof.count, proof.shift) for proof in proofs if proof.shift is not None]
    if len(shifts) == len(proofs):
        mu = math.sqrt(math.fsum(number * shift * shift for number, shift in shifts))
        reason = max((proof.reason for proof in proofs), key=len)
        return GaussianBackend(mu, f"{reason} {gaussian_releases(count)}.")
    hidden = [proof for proof in proofs if proof.shift is None]
    reason = f"{'. '.join(dict.fromkeys(proof.reason for proof in hidden))}: a product of {count} pairs."
    for words in dict.fromkeys(proof.reason for proof in proofs if proof.shift is not None):
        reason += f" {words} {gaussian_releases(sum(part.count for part in proofs if part.reason == words))}."
    scene = _scenes([attack.scene for proof, attack in zip(proofs, attacks, strict=True) if proof.shift is None])
    kind = ProductBackend if _lone(factors, ReplacedPair) is None else ReplacedBackend
    fineness = min(proof.fineness for proof in proofs)
    return kind(Product(factors), reason, _statement(hidden), scene, _WAYS[replaced], fineness)


def _shown(attacks: Sequence[Attack], replaced: bool) -> Backend:
    """The composition of the attacks on all phases."""
    factors, scene = factors_of(attacks), _scenes([attack.scene for attack in attacks])
    if not any(attack.one_sided for attack in attacks):
        return ProductBackend(Product(factors), "", attacks[-1].statement, scene, _WAYS[replaced])
    rival = attacks[0].rival if len(factors) == 1 else None
    statement, single = attacks[-1].statement, _lone(factors, ShuffleAttack)
    return AttackBackend(AttackProduct(factors), scene, _CLAIMS[replaced], single, rival, statement)


def _lone(factors: Sequence[tuple[LawSource, int]], kind: type[Source]) -> Source | None:
    """The only participation there is, if it is of this kind: its own numbers are sharper than those of its laws."""
    source, count = factors[0]
    return source if len(factors) == 1 and count == 1 and isinstance(source, kind) else None


def _scenes(scenes: Sequence[str]) -> str:
    """What everybody's gradients are: once where all phases are alike."""
    if len(set(scenes)) == 1:
        return scenes[0]
    told = " ".join(f"In phase {number}: {scene}" for number, scene in enumerate(scenes, start=1))
    return f"{told} Where no score is named, it is the log likelihood ratio of what is shown."
