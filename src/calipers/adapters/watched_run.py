"""From what was seen to what is proven: a described run, fixed batches as observed, or nothing.

1. **A described run.** Every step used batches of one loader as that loader's distribution says: both bounds of
    `measure` hold.
   Under Poisson sampling k steps on one batch with noise multipliers s_1, ..., s_k are one step with 1/s^2 the sum of
   1/s_i^2: given that the record is in the batch they are Gaussian releases that compose to one of that noise, and
   whether it is in the batch is drawn once. (Mixing with the same probability keeps one pair below the other.)
2. **At most once in a pass.** The draws fit no described run (a loop that breaks off, a noise that changes inside an
   epoch), but the loader deals: whatever the order, a record is in at most one batch of each pass. Its participations
   are Gaussian releases, counted at the pass's least noisy batch. The upper bound holds for every order the loader
   might have drawn; no attack is claimed where the order is random.
3. **Batches as observed.** No distribution bounds how often a record comes, but every draw was seen. For these batches,
   read as fixed and known, the record that was in most steps is a composition of Gaussian releases. The statement is
   about this execution given its draws: it needs that they do not depend on the records, and another execution draws
   others.
4. **Nothing**, where something was not seen or could depend on the records.

Rate, noise and divisor are those that were in force at each draw and each release. Where nobody names an adjacency,
the answer is for adding or removing a record if the run has such neighbors, and for zeroing one out if it does not.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from calipers.adapters.opacus_loaders import SUMMED, LoaderLaw, described_keys
from calipers.adapters.watched_draws import RECORDS, TWICE
from calipers.adapters.watched_queue import SKIPPED, Group
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_release import Divided, WatchedRelease
from calipers.errors import CalipersError, CalipersWarning, UnsupportedError
from calipers.measure.watched import OtherNeighbors
from calipers.run import DATA_DEPENDENT, Run
from calipers.scope import adjacency_notice, only_side

AS_OBSERVED = (
    "The bracket is about this execution given the batches that it drew, read as fixed: the record that was in most "
    "steps took part in them at known times. It needs that the draws did not depend on the records; another execution "
    "draws other batches."
)
ONCE_A_PASS = (
    "The upper bound counts every record once in every pass with a step, whatever the order. No attack is "
    "computed for passes that were broken off."
)
IRREGULAR = (
    "Some batches were used in more steps than others. That cannot be distinguished from steps on batches of a "
    "loader that is "
    "not watched, so nothing is proven. Take the same number of steps on every batch, or attach the other loader."
)
CHANGED_DIVISOR = (
    "What the noisy sum is divided by was set by hand and changed during the run ({values}). A number that follows the "
    "data shows in the scale of the noise, and nothing is proven. Set expected_batch_size once, before training. "
    f"{SUMMED}."
)
REJECTED = f"{SKIPPED[:-1]}. (Several passes broke off with a batch in hand, at different places.)"
ZEROED_OUT = "The bracket is for zeroing one record out, not for adding or removing one."
MOVES_OTHERS = (
    "Adding or removing one would change the number of batches, or which batches the other records are in; "
    "adjacency='add-remove' asks for that where something is proven."
)
OTHER_NEIGHBOR = (
    "Fixed batches bound what zeroing a record out shows; nothing is proven here for adding or removing one. Ask for "
    "adjacency='zero-out'."
)
_NEGLIGIBLE = 1e-18


@dataclass(frozen=True)
class NeighborReading:
    """How the asker wants neighbors to be read; see `calipers.adapters.opacus.attach`."""

    adjacency: str | None = None
    public_rate: bool = False

    @property
    def public(self) -> bool:
        """Whether neighbors share the rate: said to be public, or their number of records is the same."""
        return self.public_rate or self.adjacency in ("zero-out", "substitute")

    @property
    def zeroed(self) -> NeighborReading:
        """The same for zeroed-out records, where no adjacency was named."""
        return self if self.adjacency is not None else dataclasses.replace(self, adjacency="zero-out")

    def run(
        self,
        source: LoaderLaw,
        divided: Divided,
        steps: int,
        noise: float,
        dimension: int,
        reshuffle: str = "every-epoch",
    ) -> Run:
        """So many steps with one noise multiplier, on batches as the loader draws them.

        Where no adjacency is named it is left to `Run`, which has add-remove neighbors where they exist.
        """
        keys = described_keys(source, divided, steps, self.public, reshuffle)
        keys |= {"noise_multiplier": noise, "dimension": dimension}
        return Run.from_dict(keys if self.adjacency is None else keys | {"adjacency": self.adjacency})

    def zeroed_alone(self, source: LoaderLaw, divided: Divided) -> str:
        """Why batches of this loader are measured for zeroed-out records where none are named; empty if not so."""
        if self.adjacency is not None or source.kind == "other" or (source.kind == "dealt" and not source.whole):
            return ""
        try:
            run = self.run(source, divided, source.batches, 1.0, 1)
        except UnsupportedError as error:
            return str(error)
        return MOVES_OTHERS if run.adjacency == "zero-out" else ""

    def warn_of(self, source: LoaderLaw, divided: Divided, level: int = 2) -> bool:
        """Warn where that is so; whether it is."""
        why = self.zeroed_alone(source, divided)
        if why:
            warnings.warn(f"{ZEROED_OUT} {why}", CalipersWarning, stacklevel=level)
        return bool(why)


def outside() -> int:
    """The stacklevel of a warning of the caller's that names the first line outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        frame, level = frame.f_back, level + 1
    return level


@dataclass(frozen=True)
class Description:
    """`runs` whose upper bound holds (none: nothing is proven); the lower bound holds too if `attained`.

    `instead`: the runs are not what was executed, but reveal at least as much.
    """

    runs: tuple[Run, ...]
    attained: bool
    reasons: tuple[str, ...] = ()
    note: str = ""
    instead: bool = False

    @property
    def for_others(self) -> OtherNeighbors:
        """The same, where it is one of the relations that a report compares."""
        why = " ".join(reason for reason in self.reasons if reason != OTHER_NEIGHBOR)
        return OtherNeighbors(self.runs, self.attained, why)


def describe(seen: Seen, reading: NeighborReading) -> Description:
    """The best of the four statements that holds; that it is for adding or removing alone is a reason too."""
    found = _describe(seen, reading)
    if reading.adjacency is not None or (found.runs and all(run.adjacency == "add-remove" for run in found.runs)):
        sided = (adjacency_notice(found.runs),) if only_side(found.runs) else ()
        return dataclasses.replace(found, reasons=(*found.reasons, *sided)) if sided else found
    zeroed = _describe(seen, reading.zeroed)
    if not zeroed.runs:
        return zeroed if found.runs else found
    why = [reason for reason in found.reasons if reason not in (*zeroed.reasons, OTHER_NEIGHBOR)]
    if found.runs:
        why = [MOVES_OTHERS]  # some phase of it, and all phases of a run have the same neighbors
    weaker = " ".join([ZEROED_OUT, *why[:1]])
    return dataclasses.replace(zeroed, reasons=(*zeroed.reasons, weaker))


def nothing_proven(seen: Seen, *, in_hand: bool = False) -> tuple[str, ...]:
    """Why nothing is proven, whatever the reading; empty where something may be.

    `in_hand`: the loop is about to use the batches that it holds, so that they were not passed over.
    """
    known, irregular = _known(seen, in_hand), _repeats(seen) is None
    return (*known, *([IRREGULAR] if irregular else [])) if irregular or any(known.values()) else ()


def _known(seen: Seen, in_hand: bool = False) -> dict[str, bool]:
    """Each sentence that something does not fit, and whether it blinds."""
    held = {} if in_hand else dict(seen.draws.queue.unsettled())
    return seen.reasons | held | ({REJECTED: True} if _rejects(seen) else {})


def _describe(seen: Seen, reading: NeighborReading) -> Description:
    nothing, repeats = nothing_proven(seen), _repeats(seen)
    if nothing or repeats is None:
        return Description((), False, nothing)
    reasons = tuple(_known(seen))
    try:
        if not reasons:
            return Description(_described(seen, reading), True, instead=(_repeats(seen) or 1) > 1)
        divided_by(seen.releases)
    except CalipersError as error:
        reasons = (str(error),)
        if any(source.sample_rate is not None for source in seen.draws.sources):
            # The rate or the divisor is not one of a described run: fixed batches would answer another question.
            return Description((), False, reasons)
    return _fallback(seen, reading, reasons, repeats)


def _fallback(seen: Seen, reading: NeighborReading, reasons: tuple[str, ...], repeats: int) -> Description:
    """Fixed batches: for each pass, or as observed."""
    sources = seen.draws.sources
    summed = all(release.reduction == "sum" for release in seen.releases)
    if reading.adjacency not in ("zero-out", "substitute") and not (summed and all(each.by_coins for each in sources)):
        return Description((), False, (*reasons, OTHER_NEIGHBOR))
    if all(source.in_known_order for source in sources):
        # That a batch was the same one again is known by its size alone: enough for a bound, not for an attack.
        return Description(_as_observed(seen, reading), repeats == 1, reasons, instead=True)
    allocated = not seen.reasons.keys() & {TWICE, RECORDS}
    if allocated and all(source.once for source in sources) and not seen.crossing:
        return Description(_once_a_pass(seen, reading), False, reasons, ONCE_A_PASS, True)
    return Description(_as_observed(seen, reading), False, reasons, AS_OBSERVED, True)


def _rejects(seen: Seen) -> bool:
    """Whether passes broke off with a batch in hand as they do where batches are refused for what is in them.

    A look at one batch (`next(iter(loader))`) or a break at one place is innocent. Loops that train by single looks and
    leave some of them unused, or that break at different places, choose.
    """
    groups = [group for group in seen.draws.groups.values() if group.delivered]
    coins = [group for group in groups if seen.draws.sources[group.loader].kind != "calipers"]
    broken = [
        group for group in coins if not group.ended and group.delivered < seen.draws.sources[group.loader].batches
    ]
    single = any(group.delivered == group.used() == 1 for group in broken)
    looks = sum(group.delivered == 1 and not group.used() for group in broken[:-1])
    places = {group.used() for group in broken[:-1] if 0 < group.used() < group.delivered}
    return (single and looks > 0) or len(places) > 1


def divided_by(releases: Iterable[WatchedRelease]) -> dict[WatchedRelease, Divided]:
    """What each of these releases was divided by; `UnsupportedError` where that was set by hand and moved."""
    means = [release for release in releases if release.reduction == "mean"]
    values = {release.divisor for release in means}
    realized = bool(means) and all(release.follows for release in means) and 0.0 in values
    if (len(values) > 1 and not realized) or (0.0 in values and not realized):
        listed = ", ".join("the batch's own size" if not value else f"{value:g}" for value in sorted(values)[:5])
        raise UnsupportedError(CHANGED_DIVISOR.format(values=listed))
    return {each: Divided(each.reduction, each.divisor, realized and each.reduction == "mean") for each in releases}


def _repeats(seen: Seen) -> int | None:
    """How many steps every batch was used in, but for one that a loop broke off at; None if they differ otherwise."""
    steps: Counter[int] = Counter()
    for group in seen.draws.groups.values():
        for used, count in group.uses.items():
            steps[len(used)] += count
    most = max(steps, default=1)
    fewer = steps.total() - steps[most]
    regular = most == 1 or (steps[most] > 1 and fewer <= 1)
    return most if regular else None


def _described(seen: Seen, reading: NeighborReading) -> tuple[Run, ...]:
    """One run for each stretch of equal terms with each loader; refuses what does not fit."""
    found: list[Run] = []
    divided = divided_by(seen.releases)
    for number, source in enumerate(seen.draws.sources):
        groups = [group for group in seen.draws.groups.values() if group.loader == number and group.used()]
        uses, reshuffle = (
            (poisson_uses(source, groups), "every-epoch") if source.stepwise else _allocated_uses(source, groups)
        )
        if source.repeats and len(uses) > 1:
            # Phases of different noise are measured as if each had an order of its own.
            raise UnsupportedError("All epochs had the batches of the first one, with different noise.")
        merged: Counter[tuple[Divided, tuple[float, ...]]] = Counter()
        for used, count in uses.items():
            merged[(_one([divided[each] for each in used]), tuple(each.noise for each in used))] += count
        for (by, noises), count in merged.items():
            run = reading.run(source, by, count, together(noises), seen.dimension, reshuffle)
            if len(noises) > 1 and run.normalization in DATA_DEPENDENT:
                raise UnsupportedError(
                    "Several steps were taken on one batch, each divided by a number that depends on the data; nothing "
                    f"is proven for that. {SUMMED}."
                )
            found.append(run)
    return tuple(found)


def _one(divided: list[Divided]) -> Divided:
    """What all steps on one batch were divided by."""
    if len(set(divided)) > 1:
        raise UnsupportedError("Steps on one batch were divided in different ways; no Run describes that.")
    return divided[0]


def together(noises: tuple[float, ...]) -> float:
    """The noise multiplier of one release that shows as much as one with each of these; never rounded up."""
    if len(noises) == 1:
        return noises[0]
    return math.nextafter(1.0 / math.sqrt(math.fsum(1.0 / noise**2 for noise in noises)) * (1.0 - 2.0**-50), 0.0)


def poisson_uses(source: LoaderLaw, groups: list[Group]) -> Counter[tuple[WatchedRelease, ...]]:
    """How many draws were used in which releases."""
    uses: Counter[tuple[WatchedRelease, ...]] = Counter()
    for group in groups:
        uses.update(group.uses)
    if source.ranks > 1:
        assert source.sample_rate is not None
        local = source.dataset_size // source.ranks
        empty = uses.total() * source.ranks * math.exp(local * math.log1p(-source.sample_rate))
        if empty > _NEGLIGIBLE:
            raise UnsupportedError(
                f"On several processes Opacus skips a batch that is empty on one of them, and its batches no longer "
                f"fit together; with {local} records each that happens with probability up to {empty:.2g}. Use larger "
                "batches."
            )
    return uses


def _allocated_uses(source: LoaderLaw, groups: list[Group]) -> tuple[Counter[tuple[WatchedRelease, ...]], str]:
    """The batches of whole epochs, by release, and whether every epoch had an order of its own."""
    uses: Counter[tuple[WatchedRelease, ...]] = Counter()
    for group in groups:
        kinds = {tuple(each._replace(divisor=0.0, follows=False) for each in used): used for used in group.uses}
        if group.used() != source.batches:
            raise UnsupportedError(
                f"A pass was broken off after {group.used()} of {source.batches} batches (another one would begin "
                "anew), and no Run describes epochs that are not whole."
            )
        if len(kinds) != 1 or len(next(iter(kinds))) != 1:
            raise UnsupportedError(
                "Batches of one epoch were used with different noise, or in several steps; no Run describes that."
            )
        uses[next(iter(kinds.values()))] += group.used()
    orders = {group.order for group in groups}
    if not source.shuffled or len(orders) == len(groups):
        return uses, "every-epoch"
    if len(orders) == 1 and len(uses) == 1:
        return uses, "once"
    # Phases of different noise are measured as if each had an order of its own.
    raise UnsupportedError("Epochs had the order of an earlier one, but not all of them, or with another noise.")


def _fixed(noise_multiplier: float, count: int, seen: Seen, reading: NeighborReading) -> Run:
    """So many Gaussian releases at known times: one batch an epoch, or where a record is removed, a rate of 1."""
    keys: dict[str, object] = {"dataset_size": seen.draws.sources[0].dataset_size, "steps": count}
    if reading.adjacency in ("zero-out", "substitute"):
        keys |= {"batch_size": keys["dataset_size"], "sampler": "deterministic", "last_batch": "drop"}
    else:
        keys |= {"sample_rate": 1.0}
    keys |= {"noise_multiplier": noise_multiplier, "normalization": "none"}
    return Run.from_dict(keys | {"adjacency": reading.adjacency or "add-remove"})


def _as_observed(seen: Seen, reading: NeighborReading) -> tuple[Run, ...]:
    noise, count = seen.participation.largest()
    return (_fixed(noise, count, seen, reading),) if count else ()


def _once_a_pass(seen: Seen, reading: NeighborReading) -> tuple[Run, ...]:
    releases: Counter[float] = Counter()
    for group in seen.draws.groups.values():
        if group.uses:
            most = max(group.uses, key=lambda used: math.fsum(1.0 / each.noise**2 for each in used))
            releases.update(each.noise for each in most)
    return tuple(_fixed(noise, count, seen, reading) for noise, count in releases.items())
