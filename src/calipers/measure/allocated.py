"""The route of runs that shuffle in the worst-case view: a proof above, an attack below.

See `calipers.measure.allocation` for what is known about samplers that deal every record out once per epoch. Phases
compose on both sides. Above, two proofs compete: a phase that shuffles counts as fixed batches (given the order
batches are fixed), or with the law of its epochs (`calipers.laws.shuffled` where records are left over,
`calipers.laws.displaced` where none is); the others count with their own pairs, and an adaptive composition is
dominated by the product. Below, an attack chooses everybody's gradients anew in every phase, so attacks on the phases
are one attack on the run, and its score is the sum of theirs.

**One order for all epochs.** A record then sits in the same batch in every epoch. An attack that repeats itself sees
one epoch at noise sigma / sqrt(E); above, fixed batches are all that is proven.

**A short last batch** is not looked at by the attack: a record that sits in it counts as left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from calipers.laws.average import SIGMA, AllocationPair
from calipers.laws.direction import LawSource
from calipers.laws.displaced import DisplacedEpoch
from calipers.laws.product import Product
from calipers.laws.proof_product import ProofProduct
from calipers.laws.shuffle import ShuffleAttack
from calipers.laws.shuffle_product import AttackProduct
from calipers.laws.shuffled import ShuffledEpoch
from calipers.laws.switching import SwitchingAttack
from calipers.measure.allocation import AttackBackend
from calipers.measure.backends import Backend, ProductBackend, SplitBackend
from calipers.measure.compositions import gaussian_backend, gaussian_releases, known_release, source
from calipers.measure.participation import gaussian_shift, left_over, participation, participations
from calipers.measure.proven import LeastBackend, ProofBackend
from calipers.run import Run

FIXED, SHUFFLED, DISPLACED = "chua2024:thm4.1", "calipers:shuffled", "calipers:displaced"
_NEVER_MORE = "Shuffling never leaks more than fixed batches (Chua et al. 2024, Theorem 4.1)"
_LEFT_OVER = (
    "Every epoch leaves at least one record over, so the record that makes room for this one goes where nobody looks, "
    "and where this one is shows in one batch sum only: an epoch is dominated by a sum of independent worst terms, and "
    "by a recursion over what an adversary can choose from round to round; the smaller one counts."
)
_NOTHING_LEFT_OVER = (
    "Every record is used in every epoch, so the record that makes room for this one is seen once, in the first batch: "
    "an epoch is dominated by fewer equal rounds, and by fixed batches for the small share of weight they do not cover."
)

Factors = list[tuple[LawSource, int]]


def is_open(run: Run) -> bool:
    """Whether proof and attack of a shuffled run are different statements."""
    hidden = run.sampler == "shuffle" and gaussian_shift(run) is None
    return hidden and (run.view == "worst-case" or run.reshuffle == "once")


def open_backend(phases: tuple[Run, ...]) -> Backend:
    """Phases of which at least one is open."""
    factors = _counted(phases, _attacked)
    single = factors[0][0] if len(factors) == 1 and factors[0][1] == 1 else None
    below = AttackBackend(
        AttackProduct(factors),
        _scene(phases),
        ("original", "replaced") if phases[0].adjacency == "substitute" else ("present", "zeroed out"),
        single if isinstance(single, ShuffleAttack) else None,
        _rival(phases) if len(factors) == 1 else None,
    )
    return SplitBackend(_above(phases), below)


def _rival(phases: tuple[Run, ...]) -> SwitchingAttack | None:
    """The attack that changes sides in epochs that are all alike, drawn anew, and not isolated."""
    run = phases[0]
    if run.reshuffle == "once" or run.view == "isolated":
        return None
    noise, rounds, share = _dealt(run)
    return SwitchingAttack(noise, rounds, share, substituted=run.adjacency == "substitute")


def _counted(phases: tuple[Run, ...], factor: Callable[[Run], tuple[LawSource, int]]) -> Factors:
    """The factors of all phases, equal ones together."""
    counts: dict[LawSource, int] = {}
    for run in phases:
        found, count = factor(run)
        counts[found] = counts.get(found, 0) + count
    return list(counts.items())


def _attacked(run: Run) -> tuple[LawSource, int]:
    """What the attack sees of one participation, and how often."""
    if not is_open(run):
        return source(run), participations(run)
    (noise, rounds, share), count = _dealt(run), 1 if run.reshuffle == "once" else participations(run)
    if run.view == "isolated":
        return AllocationPair(noise, rounds, share), count
    if run.adjacency == "substitute":
        return AllocationPair(0.5 * noise, rounds, share), count
    return ShuffleAttack(noise, rounds, share), count


def _dealt(run: Run) -> tuple[float, int, float]:
    """Noise, full batches and the share of records in them, of an epoch as an attack sees it."""
    noise = run.noise_multiplier
    if run.reshuffle == "once":
        # More noise than there is can only weaken the attack.
        noise = max(noise / math.sqrt(participations(run)), 2.0 * SIGMA.low)
    full = run if run.last_batch == "drop" else run.replace(last_batch="drop", epochs=1)
    return noise, full.steps_per_epoch, participation(full)


def _proven(run: Run) -> tuple[LawSource, int]:
    """A pair that dominates one participation, and how often."""
    if not is_open(run):
        return source(run), participations(run)
    return _epoch(run) or known_release(run), participations(run)


def _epoch(run: Run) -> ShuffledEpoch | None:
    """The law of one shuffled epoch, or None where fixed batches are all that is proven."""
    rest = left_over(run)
    if rest is None or run.reshuffle == "once":
        return None
    assert run.batch_size is not None
    assert run.dataset_size is not None
    replaced = run.adjacency == "substitute"
    if rest:
        return ShuffledEpoch(run.noise_multiplier, run.steps_per_epoch, participation(run), replaced)
    return DisplacedEpoch(run.noise_multiplier, run.steps_per_epoch, 1.0, replaced, run.batch_size, run.dataset_size)


def _above(phases: tuple[Run, ...]) -> Backend:
    """The best of fixed batches, which show the record at a known time, and of the laws of shuffled epochs."""
    fixed = _fixed(phases)
    epochs = [epoch for run in phases if is_open(run) and (epoch := _epoch(run)) is not None]
    if not epochs:
        return fixed
    factors = _counted(phases, _proven)
    alone = len(factors) == 1 and factors[0][1] == 1
    displaced = any(isinstance(epoch, DisplacedEpoch) for epoch in epochs)
    kept = not all(isinstance(epoch, DisplacedEpoch) for epoch in epochs)
    reason = " ".join(text for text, said in ((_LEFT_OVER, kept), (_NOTHING_LEFT_OVER, displaced)) if said)
    statement = DISPLACED if displaced else SHUFFLED
    proof = ProofBackend(ProofProduct(factors), reason, statement, epochs[0] if alone else None)
    return LeastBackend(((FIXED, fixed), (statement, proof)))


def _fixed(phases: tuple[Run, ...]) -> Backend:
    """Every shuffled epoch as fixed batches, which show the record at a known time."""
    known = [run for run in phases if is_open(run) or gaussian_shift(run) is not None]
    releases = sum(participations(run) for run in known)
    if len(known) == len(phases):
        reason = f"{_NEVER_MORE}, which show the record in {gaussian_releases(releases)}."
        return replace(gaussian_backend(phases), reason=reason)
    factors = _counted(phases, lambda run: (known_release(run) if run in known else source(run), participations(run)))
    reason = f"{_NEVER_MORE}: {gaussian_releases(releases)}, composed with the other phases' own pairs."
    return ProductBackend(Product(factors), reason, "zhu2022:thm10", "")


def _scene(phases: tuple[Run, ...]) -> str:
    """Everybody's gradients, and the score of what is seen, in words."""
    shuffled = [run for run in phases if is_open(run)]
    replaced = phases[0].adjacency == "substitute"
    alone = len(shuffled) == len(phases)
    kinds = {(run.batch_size, run.noise_multiplier, participation(run)) for run in shuffled}
    own = "" if len(kinds) == 1 else " (B, sigma and r are the phase's own)"
    share = max(participation(run) for run in shuffled)
    kept = all(participation(run) == 1.0 for run in shuffled)
    present, absent = ("mean_t U_t", "mean_t V_t") if kept else ("(1 - r + r mean_t U_t)", "(1 - r + r mean_t V_t)")
    score = f"log {present}" if replaced else f"log({present} / {absent})"
    weights = "U_t = exp(2 x_t/sigma - 2/sigma^2)" + ("" if replaced else ", V_t = exp(x_t/sigma - 1/(2 sigma^2))")
    rate = (
        "" if kept else f", r = {share:.10g} the share of records an epoch keeps" if len(kinds) == 1 else ", r likewise"
    )
    shown = "is u, or -u once it is replaced" if replaced else "is u, or zero once it is zeroed out"
    where = "" if alone else "In phases that shuffle: "
    text = (
        f"{where}All other clipped gradients are -u, a unit vector, and the record's {shown}; so batches sum to -B "
        "along u, except where the record is. With x_t = (sum of batch t along u + B)/sigma the score of an epoch is "
        f"{score}, {weights}{rate}{own}."
    )
    if alone:
        return text
    others = "the record's is u, or -u once it is replaced" if replaced else "the record's is u or zero"
    return (
        f"{text} In all other phases: the other gradients are zero, {others}, and scores are log likelihood ratios of "
        "what a step (balls-and-bins: an epoch) shows."
    )
