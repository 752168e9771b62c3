"""The route of runs that shuffle in the worst-case view: a proof above, an attack below.

See `calipers.measure.allocation` for what is known about samplers that deal every record out once per epoch. Phases
compose on both sides. Above, a phase that shuffles counts as fixed batches, the others with their own pairs, and an
adaptive composition is dominated by the product. Below, an attack chooses everybody's gradients anew in every phase, so
attacks on the phases are one attack on the run, and its score is the sum of theirs.
"""

from __future__ import annotations

from dataclasses import replace

from calipers.laws.average import AllocationPair
from calipers.laws.direction import LawSource
from calipers.laws.product import Product
from calipers.laws.shuffle import ShuffleAttack
from calipers.laws.shuffle_product import AttackProduct
from calipers.laws.switching import SwitchingAttack
from calipers.measure.allocation import AttackBackend
from calipers.measure.backends import Backend, ProductBackend, SplitBackend
from calipers.measure.compositions import counted, gaussian_backend, gaussian_releases, known_release, source
from calipers.measure.participation import gaussian_shift, participation, participations
from calipers.run import Run

_NEVER_MORE = "Shuffling never leaks more than fixed batches (Chua et al. 2024, Theorem 4.1)"


def is_open(run: Run) -> bool:
    """Whether the record is hidden by shuffled batches from an adversary who knows all others: no pair is proven."""
    return run.sampler == "shuffle" and run.view == "worst-case" and gaussian_shift(run) is None


def open_backend(phases: tuple[Run, ...]) -> Backend:
    """Phases of which at least one is open."""
    factors = counted(phases, _attacked)
    single = factors[0][0] if len(factors) == 1 and factors[0][1] == 1 else None
    below = AttackBackend(
        AttackProduct(factors),
        _scene(phases),
        ("original", "replaced") if phases[0].adjacency == "substitute" else ("present", "zeroed out"),
        single if isinstance(single, ShuffleAttack) else None,
        _rival(phases) if len(factors) == 1 else None,
    )
    return SplitBackend(_above(phases), below)


def _rival(phases: tuple[Run, ...]) -> SwitchingAttack:
    """The attack that changes sides in epochs that are all alike."""
    run = phases[0]
    replaced = run.adjacency == "substitute"
    return SwitchingAttack(run.noise_multiplier, run.steps_per_epoch, participation(run), substituted=replaced)


def _attacked(run: Run) -> LawSource:
    """What the attack sees of one participation."""
    if not is_open(run):
        return source(run)
    if run.adjacency == "substitute":
        return AllocationPair(0.5 * run.noise_multiplier, run.steps_per_epoch, participation(run))
    return ShuffleAttack(run.noise_multiplier, run.steps_per_epoch, participation(run))


def _above(phases: tuple[Run, ...]) -> Backend:
    """Every shuffled epoch as fixed batches, which show the record at a known time."""
    known = [run for run in phases if is_open(run) or gaussian_shift(run) is not None]
    releases = sum(participations(run) for run in known)
    if len(known) == len(phases):
        reason = f"{_NEVER_MORE}, which show the record in {gaussian_releases(releases)}."
        return replace(gaussian_backend(phases), reason=reason)
    factors = counted(phases, lambda run: known_release(run) if run in known else source(run))
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
