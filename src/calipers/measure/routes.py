"""From a run to its bounds: which statements license them, and how they are combined.

The sampler of a run says how a record is exposed (`calipers.samplers`): upper bounds that compete, attacks that
compete. `evaluated` composes the phases. Nothing at all is perfect privacy; plain Gaussians are one Gaussian, in closed
form; where every phase has a pair that is proven and attained it is one product; else the minimum of the proofs and the
maximum of the attacks. Where the neighbors of a dataset differ, the maximum over them. Division by a number that
depends on the data is a route of its own (`calipers.measure.divisors`). A combination for which nothing is proven is
refused, with what is missing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from calipers.bracket import Side
from calipers.domains import TOLERANCE
from calipers.errors import CalipersError, InputError, UnsupportedError
from calipers.guarantee import Guarantee
from calipers.measure.bounds import RELEASES, Bound, Bounds, composed_pairs, gaussians
from calipers.measure.competing import maximum, minimum, worst
from calipers.measure.composed import (
    ComposedAttack,
    ComposedProof,
    Composition,
    PairAttack,
    composition,
)
from calipers.measure.divisors import divisor_notes, is_divided, rate_moves
from calipers.measure.measurement import Claim, Measurement
from calipers.measure.notes import notes_of
from calipers.measure.units import GroupedProof, OneOfUnit, RevealedAllocationProof
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.phases import as_phases
from calipers.pld.composition.one_sided import AttackProduct, ProofProduct
from calipers.pld.composition.product import Product
from calipers.pld.core.source import AnyPair, TwoSidedPair
from calipers.run import DATA_DEPENDENT, Run
from calipers.samplers import ASSUMED, scheme_of
from calipers.samplers.analysis import Analysis, Attack, CompositionFactor, Kind, Proof
from calipers.scope import ANSWERS, ORIENTATIONS

if TYPE_CHECKING:
    from calipers.measure.guarantees import Mechanism

Part = TypeVar("Part")


@runtime_checkable
class Measurable(Protocol):
    """What brings its own measurement."""

    def measured(self, tolerance: float) -> Measurement:
        """Certified bounds from both sides."""


def measure(
    run: Run | Sequence[Run] | Mechanism | Measurable | Sequence[Mechanism],
    *,
    tolerance: float = 1e-3,
    dataset_sizes: tuple[int, int] | None = None,
) -> Measurement:
    """The certified bracket of what was executed. Nothing is computed before a quantity is asked for.

    Args:
        run: One run, or a sequence of phases on the same data; a mechanism, a `Guarantee`, or a sequence of mechanisms
            that are composed; or anything that brings its own measurement (`Selection`, `CorrelatedNoise`,
            `JointRelease`, adaptive runs).
        tolerance: The relative width aimed for: upper - lower <= tolerance * upper for epsilon.
        dataset_sizes: (low, high), where the divisor moves with the dataset size, which is known only to lie in this
            range: every number is then about the worst of these sizes.

    Returns:
        Brackets with lower <= truth <= upper for every quantity, under the adjacency and the view of the run.

    Raises:
        InputError: A number is outside its domain, or something is given that has no meaning here.
        UnsupportedError: Nothing is proven for this combination, with what is missing.
    """
    tolerance = TOLERANCE.check("tolerance", tolerance)
    mechanism = _released(run) or (isinstance(run, list | tuple) and any(map(_released, run)))
    if mechanism or isinstance(run, Measurable):
        if dataset_sizes is not None:
            raise InputError("dataset_sizes is about runs whose divisor moves with the data; leave it out.")
        if not mechanism:
            return run.measured(tolerance)  # type: ignore[union-attr]
        from calipers.measure.guarantees import measure_mechanism  # mechanisms that runs do not need

        return measure_mechanism(run, tolerance)
    phases = as_phases(run)  # type: ignore[arg-type]  # no mechanism, so runs or something that is refused
    _refuse_missing_neighbors(phases, tolerance)
    for phase in phases:
        remedy = "With so little noise nothing is private; with so much, nothing is left to resolve."
        scheme_of(phase).noise_range(phase).check("noise_multiplier", phase.noise_multiplier, remedy)
    if dataset_sizes is None:
        found = _evaluation(phases)
    else:
        from calipers.measure.divided import sized  # imports that few runs need

        found = sized(phases, dataset_sizes)
    # Where the very steps that are claimed were executed, both are computed once.
    claim = Claim(_claimed(phases).sharing(found.upper), tolerance, phases)
    notes = (*notes_of(phases), *divisor_notes(phases, dataset_sizes), *found.notes)
    alone = dataset_sizes is None and all(map(others_are_zero, phases))
    return Measurement(phases, found, claim, tolerance, notes, dataset_sizes=dataset_sizes, others_zero=alone)


_USUAL_DELTA, _MANY_BATCHES = 1e-5, 10**7
"""Where a refusal says what other relations give, and the batches beyond which that would take too long."""


def _refuse_missing_neighbors(phases: tuple[Run, ...], tolerance: float) -> None:
    """Refuse an adjacency that a phase does not have, with what others give."""
    try:
        for run in phases:
            scheme_of(run).check_neighbors(run)
    except UnsupportedError as error:
        given = []
        many = max(run.steps_per_epoch for run in phases) > _MANY_BATCHES
        for adjacency in () if many else ("zero-out", "substitute"):
            try:
                found = measure([run.replace(adjacency=adjacency) for run in phases], tolerance=tolerance)
                bracket = found.epsilon(_USUAL_DELTA)
            except CalipersError:
                continue
            ends = f"{floor_digits(bracket.lower)} to {ceil_digits(bracket.upper)}"
            given.append(f"{adjacency} {ends}")
        # The noise is named: a search for noise refuses at one that nobody gave.
        noise = " then ".join(dict.fromkeys(setting(run.noise_multiplier) for run in phases))
        what = f" An example, at delta = {setting(_USUAL_DELTA)} and noise {noise}: epsilon is {', '.join(given)}."
        also = what if given else ""
        raise UnsupportedError(f"{error}{also}") from error


def _released(part: object) -> bool:
    """A mechanism, or one with its count."""
    return isinstance(part[0] if isinstance(part, tuple) and part else part, Product | Guarantee | TwoSidedPair)


def _evaluation(phases: tuple[Run, ...]) -> Bounds:
    records = phases[0].records_per_unit
    if any(is_divided(run) or rate_moves(run) for run in phases):
        if records > 1:
            raise UnsupportedError(
                f"Nothing is proven for a {phases[0].unit_name} of {records} records whose number changes a divisor or "
                "a rate: divide by a public constant, or not at all, and use a public rate."
            )
        from calipers.measure.divided import divided_evaluation  # a twentieth of a second of imports that few need

        return divided_evaluation(phases)
    if records > 1 and not all(run.adjacency in scheme_of(run).counts_units for run in phases):
        unit, attacked = phases[0].unit_name, _shown_of_units(phases)
        others_zero = all(run.view == "isolated" for run in attacked)
        chained = tuple(_one_record(run, scheme_of(run).sizes_of_units(run), 1) for run in phases)
        attack = OneOfUnit((_evaluation(attacked).lower.alone,), unit, others_zero)
        chain = GroupedProof(_evaluation(chained).upper, records, unit)
        above = minimum([*_revealed(phases), chain])
        together = zip(*(scheme_of(run).unit_attacks(run) for run in phases), strict=False)
        equal = [_shown(each, phases[0].adjacency) for each in together]
        return Bounds(above, maximum([attack, *equal]) if equal else attack)
    return evaluated([scheme_of(run).analyze(run) for run in phases], phases[0].adjacency)


def _revealed(phases: tuple[Run, ...]) -> list[Bound]:
    """What is proven of units where whoever looks is revealed which batches their records are in."""
    allocated = [found for run in phases if (found := scheme_of(run).revealed_allocation(run)) is not None]
    if len(allocated) < len(phases):
        return []
    reason = (
        f"Which batches the records of the {phases[0].unit_name} are in is revealed; at worst they fill whole batches, "
        "and all batches together are one Gaussian release."
    )
    return [
        gaussians([(unit.full * unit.shift, times) for unit, times in allocated], reason).upper,
        RevealedAllocationProof(tuple(allocated)),
    ]


def _one_record(run: Run, sizes: tuple[int, int] | None, which: int) -> Run:
    """The run about one record, in a dataset of the size that counts for it."""
    alone = {"unit": None, "records_per_unit": None, "adjacency": run.adjacency}
    if sizes is None:
        return run.replace(**alone)
    return run.replace(**alone, dataset_size=sizes[which], steps=run.total_steps, last_batch=run.last_batch)


def _shown_of_units(phases: tuple[Run, ...]) -> tuple[Run, ...]:
    """Runs whose attacks on one record are attacks on a unit of which it is a part.

    A unit of up to g records may have one, so that whatever is shown of one record that is replaced, or removed from
    batches of fixed size, is shown of a unit. (Where units are only added, a unit of one is removed from N + 1 records,
    and the attack is worked out for N + g: there an epoch uses it less often, which shows less.) Elsewhere all other
    gradients are zero, as in the isolated view, so that the unit's other records may be there too.
    """
    found = []
    for run in phases:
        sizes = scheme_of(run).sizes_of_units(run)
        alone = _one_record(run, sizes, 0)
        if run.adjacency != "substitute" and sizes is None:
            if not scheme_of(run).isolates:
                raise UnsupportedError(
                    "No attack on units of several records is known for phases of these samplers together; measure the "
                    "phases one by one."
                )
            alone = alone.replace(view="isolated")
        found.append(alone)
    return tuple(found)


def others_are_zero(run: Run) -> bool:
    """Whether the attack on the run moves one record's sum alone, in a direction that may be any."""
    return (
        scheme_of(run).others_zero
        and run.adjacency in ("add-remove", "zero-out")
        and run.normalization not in DATA_DEPENDENT
        and run.records_per_unit == 1
        and run.derived_rate == "public"
        and run.view == "worst-case"
        and run.dimension is None
    )


def _claimed(phases: tuple[Run, ...]) -> Bound:
    """What an accountant reports that assumes Poisson sampling of the undivided sum."""
    assumed = tuple(
        Run(sampler=ASSUMED, sample_rate=run.mean_rate, steps=run.total_steps, noise_multiplier=run.noise_multiplier)
        for run in phases
    )
    return _evaluation(assumed).upper


def evaluated(analyses: Sequence[Analysis], adjacency: str) -> Bounds:
    """The bounds of phases that follow one another.

    Args:
        analyses: of every phase, by its sampler; none is perfect privacy.
        adjacency: what neighbors differ by.

    Returns:
        The smallest of the proofs and the largest of the attacks, each the largest over the neighbors of the dataset.
    """
    if not analyses:
        from calipers.measure.guarantees import no_release

        return no_release()
    neighbors = _alternatives([(e, *e.neighbors) for e in analyses])
    show = functools.cache(functools.partial(_shown, adjacency=adjacency))  # neighbors may share attacks
    return worst([_one_neighbor(phases, adjacency, show) for phases in neighbors])


def _one_neighbor(analyses: Sequence[Analysis], adjacency: str, show: Callable[..., Bound]) -> Bounds:
    attacks = [analysis.attack for analysis in analyses]
    tried = _alternatives([(analysis.attack, *analysis.attacks) for analysis in analyses])
    if all(analysis.closes for analysis in analyses):
        proofs = [analysis.proofs[0] for analysis in analyses]
        pairs = _pairs(factors_of(proofs))
        assert pairs is not None  # what is proven and attained has both sides
        return _attained(proofs, pairs, attacks, adjacency)
    competing = _alternatives([analysis.proofs for analysis in analyses])
    above = minimum([_proven(proofs, attacks, adjacency) for proofs in competing])
    return Bounds(above, maximum([show(tuple(one)) for one in tried]))


def _alternatives(phases: Sequence[Sequence[Part]]) -> list[list[Part]]:
    """The first choices of all phases, the second ones, and so on; a phase with fewer repeats its last."""
    most = max(len(choices) for choices in phases)
    return [[choices[min(place, len(choices) - 1)] for choices in phases] for place in range(most)]


def factors_of(parts: Sequence[CompositionFactor[Kind]]) -> list[tuple[Kind, int]]:
    """The factors of the composition of several phases.

    Args:
        parts: a proof, or an attack, of every phase.

    Returns:
        Their sources of privacy loss distributions with the number of participations, equal ones together.
    """
    counts: dict[Kind, int] = {}
    for part in parts:
        for source, count in ((part.source, part.count), *part.additional):
            counts[source] = counts.get(source, 0) + count
    return list(counts.items())


def _pairs(factors: Sequence[tuple[AnyPair, int]]) -> list[tuple[TwoSidedPair, int]] | None:
    """The same factors, where every one of them is proof and attack in one."""
    found = [(source.both, count) for source, count in factors]
    kept = [(both, count) for both, count in found if both is not None]
    return kept if len(kept) == len(found) else None


def gaussian_releases(count: int) -> str:
    """How many Gaussian releases there are, in words.

    Args:
        count: at least 1.

    Returns:
        The end of a sentence that begins "the record takes part in".
    """
    return "one Gaussian release at a known time" if count == 1 else f"{count} Gaussian releases at known times"


def _statement(proofs: Sequence[Proof]) -> str:
    """The statement behind several phases: that of a proof from above only, where there is one."""
    return next((proof.statement for proof in reversed(proofs) if proof.one_sided), proofs[-1].statement)


def _proven(proofs: Sequence[Proof], attacks: Sequence[Attack], adjacency: str) -> Bound:
    """The composition of one proof per phase."""
    factors = factors_of(proofs)
    pairs = _pairs(factors)
    if pairs is not None:
        return _attained(proofs, pairs, attacks, adjacency, (Side.UPPER,)).upper
    reason = " ".join(dict.fromkeys(proof.reason for proof in proofs if proof.one_sided))
    single = factors[0][0].single_proof if _counted(factors) == 1 else None
    return ComposedProof(ProofProduct(factors), reason, _statement(proofs), single)


def _counted(factors: Sequence[tuple[AnyPair, int]]) -> int:
    return sum(number for _, number in factors)


def _attained(
    proofs: Sequence[Proof],
    pairs: Sequence[tuple[TwoSidedPair, int]],
    attacks: Sequence[Attack],
    adjacency: str,
    sides: tuple[Side, ...] = tuple(Side),
) -> Bounds:
    """The composition of pairs that have both sides; `sides`: both, or the upper one where the attacks are others."""
    count = _counted(pairs)
    shifts = [(proof.shift, proof.count) for proof in proofs if proof.shift is not None]
    if len(shifts) == len(proofs):
        reason = max((proof.reason for proof in proofs), key=len)
        played = _descriptions([attack.description for attack in attacks])
        own = next((proof.statement for proof in proofs if proof.statement != RELEASES), "")
        return gaussians(shifts, f"{reason} {gaussian_releases(count)}.", played, own)
    hidden = [proof for proof in proofs if proof.shift is None]
    reason = f"{'. '.join(dict.fromkeys(proof.reason for proof in hidden))}; {composed_pairs(count)}."
    for words in dict.fromkeys(proof.reason for proof in proofs if proof.shift is not None):
        reason += f" {words} {gaussian_releases(sum(part.count for part in proofs if part.reason == words))}."
    description = _descriptions(
        [attack.description for proof, attack in zip(proofs, attacks, strict=True) if proof.shift is None]
    )
    single = pairs[0][0].single_pair if count == 1 else None
    composed = Composition(Product(pairs), any(proof.published for proof in proofs), sides, single)
    return composition(composed, reason, _statement(hidden), description, ORIENTATIONS[adjacency])


def _shown(attacks: Sequence[Attack], adjacency: str) -> Bound:
    """The composition of the attacks on all phases."""
    factors, description = factors_of(attacks), _descriptions([attack.description for attack in attacks])
    pairs = None if any(attack.one_sided for attack in attacks) else _pairs(factors)
    if pairs is not None:
        alone = pairs[0][0].single_pair if _counted(pairs) == 1 else None
        composed = Composition(Product(pairs), sides=(Side.LOWER,), single=alone)
        return PairAttack(composed, description, attacks[-1].statement, ORIENTATIONS[adjacency])
    rival = attacks[0].rival if len(factors) == 1 else None
    single = factors[0][0].single_attack if _counted(factors) == 1 else None
    return ComposedAttack(AttackProduct(factors), description, ANSWERS[adjacency], attacks[-1].statement, single, rival)


def _descriptions(descriptions: Sequence[str]) -> str:
    """What everybody's gradients are: once where all phases are alike."""
    if len(set(descriptions)) == 1:
        return descriptions[0]
    revealed = " ".join(f"In phase {number}: {description}" for number, description in enumerate(descriptions, start=1))
    return f"{revealed} Where no score is named, it is the log likelihood ratio of what is shown."
