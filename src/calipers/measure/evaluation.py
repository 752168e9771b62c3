"""The best proof and the best attack: exposures of the phases of a run, composed and evaluated.

Nothing at all is perfect privacy; plain Gaussians are one Gaussian, in closed form; where every phase has a pair that
is proven and attained it is one product of laws; else the least of the proofs that compete above, and the most that any
attack shows below. Where the neighbors of a dataset differ, the largest over them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from calipers.bracket import Side
from calipers.laws.composed.product import Product
from calipers.laws.composed.proof_product import ProofProduct
from calipers.laws.composed.shuffle_product import AttackProduct
from calipers.laws.core.drawn_shift import Shifts
from calipers.laws.core.source import AnySource, LawSource
from calipers.measure.choice import Covered, Greatest, greatest, least, worst
from calipers.measure.closed import gaussians
from calipers.measure.composed import RECORD_WAYS, Composition, LawAttack, LawProof, PairAttack, composition
from calipers.measure.guarantees import no_release
from calipers.measure.jaw import Evaluation, Jaw
from calipers.measure.told import ToldProof
from calipers.schemes.exposure import Attack, Exposure, Kind, Participations, Proof

_WAYS = {
    True: ("the original against its replacement", "the replacement against the original"),
    False: RECORD_WAYS,
}
Part = TypeVar("Part")
_CLAIMS = {True: ("original", "replaced"), False: ("present", "zeroed out")}


def evaluated(exposures: Sequence[Exposure], replaced: bool) -> Evaluation:
    """Phases that follow one another; `replaced` when the neighbors differ by a replaced record."""
    if not exposures:
        return no_release()
    neighbors = _alternatives([(e, *e.neighbors) for e in exposures])
    show = functools.cache(functools.partial(_shown, replaced=replaced))  # neighbors may share attacks
    found = worst([_one_neighbor(phases, replaced, show) for phases in neighbors])
    covering = [e.covering for e in exposures if e.covering is not None]
    if isinstance(found.above, Greatest) and len(covering) == len(exposures):
        one = _proven(covering, [e.attack for e in exposures], replaced)
        return replace(found, above=Covered(found.above.parts, one))
    return found


def _one_neighbor(exposures: Sequence[Exposure], replaced: bool, show: Callable[..., Jaw]) -> Evaluation:
    attacks = [exposure.attack for exposure in exposures]
    tried = _alternatives([(exposure.attack, *exposure.attacks) for exposure in exposures])
    told = _told([exposure.proofs[0] for exposure in exposures])
    if told is not None and told.loud:  # hiding how many take part hides nothing
        return Evaluation(told, greatest([show(tuple(one), loud=True) for one in tried]))
    if all(exposure.closes for exposure in exposures):
        proofs = [exposure.proofs[0] for exposure in exposures]
        pairs = _pairs(factors_of(proofs))
        assert pairs is not None  # what is proven and attained has both sides
        return _attained(proofs, pairs, attacks, replaced)
    competing = _alternatives([exposure.proofs for exposure in exposures])
    above = least([_proven(proofs, attacks, replaced) for proofs in competing])
    return Evaluation(above, greatest([show(tuple(one)) for one in tried]))


def _alternatives(phases: Sequence[Sequence[Part]]) -> list[list[Part]]:
    """The first choices of all phases, the second ones, and so on; a phase with fewer repeats its last."""
    most = max(len(choices) for choices in phases)
    return [[choices[min(place, len(choices) - 1)] for choices in phases] for place in range(most)]


def factors_of(parts: Sequence[Participations[Kind]]) -> list[tuple[Kind, int]]:
    """The sources of all phases with the number of participations, equal ones together."""
    counts: dict[Kind, int] = {}
    for part in parts:
        for source, count in ((part.source, part.count), *part.beside):
            counts[source] = counts.get(source, 0) + count
    return list(counts.items())


def _pairs(factors: Sequence[tuple[AnySource, int]]) -> list[tuple[LawSource, int]] | None:
    """The same factors, where every one of them is proof and attack in one."""
    found = [(source.both, count) for source, count in factors]
    kept = [(both, count) for both, count in found if both is not None]
    return kept if len(kept) == len(found) else None


def gaussian_releases(count: int) -> str:
    """So many Gaussian releases, in words."""
    return "one Gaussian release at a known time" if count == 1 else f"{count} Gaussian releases at known times"


def _statement(proofs: Sequence[Proof]) -> str:
    """The statement behind several phases: that of a proof from above only, where there is one."""
    return next((proof.statement for proof in reversed(proofs) if proof.one_sided), proofs[-1].statement)


def _proven(proofs: Sequence[Proof], attacks: Sequence[Attack], replaced: bool) -> Jaw:
    """The composition of one proof per phase, beside what is proven where all phases tell their lengths."""
    found, told = _hiding(proofs, attacks, replaced), _told(proofs)
    return found if told is None else least([told, found])


def _told(proofs: Sequence[Proof]) -> ToldProof | None:
    """What is proven where all phases tell their lengths, and some of them draw these."""
    known = [Shifts.of([proof.shift], [1.0]) if proof.shift is not None else proof.lengths for proof in proofs]
    told = [(lengths, proof.count) for lengths, proof in zip(known, proofs, strict=True) if lengths is not None]
    if len(told) < len(proofs) or all(proof.lengths is None for proof in proofs):
        return None
    return ToldProof(tuple(told))


def _hiding(proofs: Sequence[Proof], attacks: Sequence[Attack], replaced: bool) -> Jaw:
    """What hides how many of a unit take part."""
    factors = factors_of(proofs)
    pairs = _pairs(factors)
    if pairs is not None:
        return _attained(proofs, pairs, attacks, replaced, (Side.UPPER,)).above
    reason = " ".join(dict.fromkeys(proof.reason for proof in proofs if proof.one_sided))
    lone = factors[0][0].lone_proof if _counted(factors) == 1 else None
    return LawProof(ProofProduct(factors), reason, _statement(proofs), lone)


def _counted(factors: Sequence[tuple[AnySource, int]]) -> int:
    return sum(number for _, number in factors)


def _attained(
    proofs: Sequence[Proof],
    pairs: Sequence[tuple[LawSource, int]],
    attacks: Sequence[Attack],
    replaced: bool,
    sides: tuple[Side, ...] = tuple(Side),
) -> Evaluation:
    """The composition of pairs that have both sides; `sides`: both, or the upper one where the attacks are others."""
    count = _counted(pairs)
    shifts = [(proof.shift, proof.count) for proof in proofs if proof.shift is not None]
    if len(shifts) == len(proofs):
        reason = max((proof.reason for proof in proofs), key=len)
        return gaussians(shifts, f"{reason} {gaussian_releases(count)}.")
    hidden = [proof for proof in proofs if proof.shift is None]
    reason = f"{'. '.join(dict.fromkeys(proof.reason for proof in hidden))}: a product of {count} pairs."
    for words in dict.fromkeys(proof.reason for proof in proofs if proof.shift is not None):
        reason += f" {words} {gaussian_releases(sum(part.count for part in proofs if part.reason == words))}."
    scene = _scenes([attack.scene for proof, attack in zip(proofs, attacks, strict=True) if proof.shift is None])
    lone = pairs[0][0].lone_pair if count == 1 else None
    composed = Composition(Product(pairs), any(proof.published for proof in proofs), sides, lone)
    return composition(composed, reason, _statement(hidden), scene, _WAYS[replaced])


def _shown(attacks: Sequence[Attack], replaced: bool, loud: bool = False) -> Jaw:
    """The composition of the attacks on all phases."""
    factors, scene = factors_of(attacks), _scenes([attack.scene for attack in attacks])
    pairs = None if loud or any(attack.one_sided for attack in attacks) else _pairs(factors)
    if pairs is not None:
        alone = pairs[0][0].lone_pair if _counted(pairs) == 1 else None
        composed = Composition(Product(pairs), sides=(Side.LOWER,), lone=alone)
        return PairAttack(composed, scene, attacks[-1].statement, _WAYS[replaced])
    rival = attacks[0].rival if len(factors) == 1 else None
    lone = factors[0][0].lone_attack if _counted(factors) == 1 else None
    if loud and not any(attack.one_sided for attack in attacks):
        scene = f"{scene} The score of a step is its log ratio."
    return LawAttack(AttackProduct(factors, loud), scene, _CLAIMS[replaced], attacks[-1].statement, lone, rival)


def shown_by(attacks: Sequence[Attack], replaced: bool) -> Jaw:
    """What one attack per phase shows of the whole run, from below."""
    return _shown(attacks, replaced)


def _scenes(scenes: Sequence[str]) -> str:
    """What everybody's gradients are: once where all phases are alike."""
    if len(set(scenes)) == 1:
        return scenes[0]
    told = " ".join(f"In phase {number}: {scene}" for number, scene in enumerate(scenes, start=1))
    return f"{told} Where no score is named, it is the log likelihood ratio of what is shown."
