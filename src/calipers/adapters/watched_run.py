"""From what was seen to what is proven: a described run, fixed batches as observed, or nothing.

1. **A described run.** Every step used batches of one loader as that loader's law says: both jaws of `measure` hold.
   Under Poisson sampling k steps on one batch with noise multipliers s_1, ..., s_k are one step with 1/s^2 the sum of
   1/s_i^2: given that the record is in the batch they are Gaussian releases that compose to one of that noise, and
   whether it is in the batch is drawn once. (Mixing with the same probability keeps one pair below the other.)
2. **At most once in a pass.** The draws fit no described run (a loop that breaks off, a noise that changes inside an
   epoch), but the loader deals: whatever the order, a record is in at most one batch of each pass. Its participations
   are Gaussian releases, counted at the pass's least noisy batch. The upper jaw holds for every order the loader might
   have drawn; no attack is claimed where the order is random.
3. **Batches as observed.** No law bounds how often a record comes, but every draw was seen. For these batches, read as
   fixed and known, the record that was in most steps is a composition of Gaussian releases. The statement is about
   this execution given its draws: it needs that they do not depend on the records, and another execution draws others.
4. **Nothing**, where something was not seen or could depend on the records.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from calipers.adapters.opacus_loaders import LoaderLaw, described_keys
from calipers.adapters.watched_draws import Group
from calipers.adapters.watched_record import Seen
from calipers.errors import CalipersError, UnsupportedError
from calipers.run import DATA_DEPENDENT, Run

AS_OBSERVED = (
    "The bracket is about this execution given the batches that it drew, read as fixed: the record that was in most "
    "steps took part in them at known times. It needs that the draws did not depend on the records; another execution "
    "draws other batches."
)
ONCE_A_PASS = (
    "The upper jaw counts every record once in every pass with a step, whatever the order. No attack is claimed: the "
    "order of the batches was random and nobody saw it."
)
IRREGULAR = (
    "Some batches were used in more steps than others. That cannot be told from steps on batches of a loader that is "
    "not watched, so nothing is proven. Take the same number of steps on every batch, or attach the other loader."
)
_NEGLIGIBLE = 1e-18


@dataclass(frozen=True)
class NeighborReading:
    """How the asker wants neighbors to be read; see `calipers.adapters.opacus.attach`."""

    adjacency: str = "add-remove"
    public_rate: bool = False

    @property
    def public(self) -> bool:
        """Whether neighbors share the rate: said to be public, or their number of records is the same."""
        return self.public_rate or self.adjacency != "add-remove"

    def run(self, source: LoaderLaw, optimizer: Any, steps: int, noise: float, reshuffle: str = "every-epoch") -> Run:
        """So many steps with one noise multiplier, on batches as the loader draws them."""
        keys = described_keys(source, optimizer, steps, self.public, reshuffle)
        dimension = sum(parameter.numel() for parameter in optimizer.params)
        return Run.from_dict(keys | {"noise_multiplier": noise, "dimension": dimension, "adjacency": self.adjacency})


@dataclass(frozen=True)
class Description:
    """`runs` whose upper jaw holds (none: nothing is proven); the lower jaw holds too if `attained`."""

    runs: tuple[Run, ...]
    attained: bool
    reasons: tuple[str, ...] = ()
    note: str = ""


def describe(seen: Seen, optimizer: Any, reading: NeighborReading) -> Description:
    """The best of the four statements that holds."""
    reasons = tuple(seen.reasons)
    repeats = _repeats(seen)
    if repeats is None:
        reasons = (*reasons, IRREGULAR)
    if repeats is None or any(seen.reasons.values()):
        return Description((), False, reasons)
    try:
        if not reasons:
            return Description(_described(seen, optimizer, reading), True)
    except CalipersError as error:
        reasons = (str(error),)
        if reading.adjacency == "add-remove" and any(source.sample_rate is not None for source in seen.draws.sources):
            # The rate or the divisor moves with the dataset: fixed batches would be another question's answer.
            return Description((), False, reasons)
    sources = seen.draws.sources
    if all(source.in_known_order for source in sources):
        # That a batch was the same one again is known by its size alone: enough for a bound, not for an attack.
        return Description(_as_observed(seen, reading), repeats == 1, reasons)
    if all(source.once for source in sources) and not seen.crossing:
        return Description(_once_a_pass(seen, reading), False, reasons, ONCE_A_PASS)
    return Description(_as_observed(seen, reading), False, reasons, AS_OBSERVED)


def _repeats(seen: Seen) -> int | None:
    """How many steps every batch was used in, but for one that a loop broke off at; None if they differ otherwise."""
    steps: Counter[int] = Counter()
    for group in seen.draws.groups.values():
        for noises, count in group.uses.items():
            steps[len(noises)] += count
    most = max(steps, default=1)
    fewer = steps.total() - steps[most]
    regular = most == 1 or (steps[most] > 1 and fewer <= 1)
    return most if regular else None


def _described(seen: Seen, optimizer: Any, reading: NeighborReading) -> tuple[Run, ...]:
    """One run for each stretch of equal noise with each loader; refuses what does not fit."""
    found: list[Run] = []
    for number, source in enumerate(seen.draws.sources):
        groups = [group for group in seen.draws.groups.values() if group.loader == number and group.used()]
        apart = source.stepwise
        uses, reshuffle = (poisson_uses(source, groups), "every-epoch") if apart else _dealt_uses(source, groups)
        if source.repeats and len(uses) > 1:
            # Phases of different noise are measured as if each had an order of its own.
            raise UnsupportedError("All epochs had the batches of the first one, with different noise.")
        for noises, count in uses.items():
            run = reading.run(source, optimizer, count, together(noises), reshuffle)
            if len(noises) > 1 and run.normalization in DATA_DEPENDENT:
                raise UnsupportedError(
                    "Several steps were taken on one batch, each divided by a number that depends on the data; nothing "
                    "is proven for that. Use loss_reduction='sum'."
                )
            found.append(run)
    return tuple(found)


def together(noises: tuple[float, ...]) -> float:
    """The noise multiplier of one release that shows as much as one with each of these; never rounded up."""
    if len(noises) == 1:
        return noises[0]
    return math.nextafter(1.0 / math.sqrt(math.fsum(1.0 / noise**2 for noise in noises)) * (1.0 - 2.0**-50), 0.0)


def poisson_uses(source: LoaderLaw, groups: list[Group]) -> Counter[tuple[float, ...]]:
    """How many draws were used with which noises."""
    uses: Counter[tuple[float, ...]] = Counter()
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


def _dealt_uses(source: LoaderLaw, groups: list[Group]) -> tuple[Counter[tuple[float, ...]], str]:
    """The batches of whole epochs, by noise, and whether every epoch had an order of its own."""
    uses: Counter[tuple[float, ...]] = Counter()
    for group in groups:
        kinds = list(group.uses)
        if group.used() != source.batches:
            raise UnsupportedError(
                f"A pass ended after {group.used()} of {source.batches} batches; the next one begins anew, and no Run "
                "describes epochs that are not whole."
            )
        if len(kinds) != 1 or len(kinds[0]) != 1:
            raise UnsupportedError(
                "Batches of one epoch were used with different noise, or in several steps; no Run describes that."
            )
        uses[kinds[0]] += group.used()
    orders = {group.order for group in groups}
    if not source.shuffled or len(orders) == len(groups):
        return uses, "every-epoch"
    if len(orders) == 1 and len(uses) == 1:
        return uses, "once"
    # Phases of different noise are measured as if each had an order of its own.
    raise UnsupportedError("Epochs had the order of an earlier one, but not all of them, or with another noise.")


def _fixed(noise_multiplier: float, count: int, seen: Seen, reading: NeighborReading) -> Run:
    """So many Gaussian releases at known times, as the run of one batch an epoch."""
    size = seen.draws.sources[0].dataset_size
    return Run(
        dataset_size=size, batch_size=size, steps=count, noise_multiplier=noise_multiplier, sampler="deterministic",
        adjacency=reading.adjacency,
    )  # fmt: skip


def _as_observed(seen: Seen, reading: NeighborReading) -> tuple[Run, ...]:
    noise, count = seen.participation.largest()
    return (_fixed(noise, count, seen, reading),) if count else ()


def _once_a_pass(seen: Seen, reading: NeighborReading) -> tuple[Run, ...]:
    releases: Counter[float] = Counter()
    for group in seen.draws.groups.values():
        if group.uses:
            releases.update(max(group.uses, key=lambda noises: math.fsum(1.0 / noise**2 for noise in noises)))
    return tuple(_fixed(noise, count, seen, reading) for noise, count in releases.items())
