"""Under which condition the number of a run that was watched holds.

The composition of the steps that were taken is a guarantee only if noise, rates and length were fixed in advance, and
if learning rates do not follow what was not released. Who
stopped early has the number of the longest run that was possible: the transcript is a prefix of it. Who chose steps
while training has the number of the privacy filter that paid for them. Nobody can see which of these it was, so every
answer says which it is.
"""

from __future__ import annotations

import dataclasses

from calipers.adapters.watched_ahead import Ahead
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_run import ONCE_A_PASS, Description
from calipers.adaptive.filter import LICENSE
from calipers.domains import COUNT
from calipers.errors import CalipersError, InputError, UnsupportedError

FIXED = (
    "A condition that nobody can see: noise multipliers, sample rates, clipping norms, divisors and the largest "
    "possible number of steps were fixed in advance, or follow from public numbers alone."
)
POST_PROCESSED = (
    "Another one: learning rates, weight decay and the other settings of the inner optimizer were fixed in advance or "
    "computed from what was released, not from batches, their sizes, or losses on training records: an update shows "
    "them."
)
STOPPED = (
    "Nobody said how long the training could have become, so the number holds if the length was fixed in advance. "
    "Where it may stop early (early stopping, a break, a crash that is resumed or not), the number belongs to the "
    "longest run that was possible: attach(..., planned_steps=...) gives that one."
)
CHANGED = (
    "Noise or rate changed while training ({levels}). The number holds if that schedule was fixed in advance; steps "
    "that are chosen by what the training showed need a privacy filter: attach(..., privacy_filter=...)."
)
PLANNED = (
    "The training was planned for at most {planned} steps, every pass over a loader taken to its end before another "
    "one begins, and may have been stopped by what it showed."
)
EXCEEDED = (
    "{taken} steps were taken and {planned} planned: a plan that is extended later is none, and the number holds if "
    "the length was fixed in advance."
)
UNBOUNDED = "{taken} of {planned} planned steps were taken; nothing is proven about all of them ({why})."
UNPAID = (
    "Steps of the checkpoint were paid from a privacy filter, which is not attached: attach(..., privacy_filter=...)."
)


@dataclasses.dataclass(frozen=True)
class Terms:
    """What was said before training: the largest number of steps, or that a filter pays for them."""

    planned: int | None = None
    paid: bool = False

    def __post_init__(self) -> None:
        if self.planned is not None:
            COUNT.check_int("planned_steps", self.planned)
            if self.paid:
                raise InputError("A privacy filter holds for stopping at any time; leave planned_steps out.")

    def licensed_by(self, taken: int) -> str:
        """The condition under which the number of a run with so many steps holds, in a few words."""
        if self.paid:
            return LICENSE
        if self.planned is None:
            return "schedule and length fixed in advance, which nobody declared"
        if taken > self.planned:
            return f"schedule and length fixed in advance, though {self.planned} steps were planned and {taken} taken"
        return (
            f"schedule fixed in advance; the longest run that was possible: at most {self.planned} steps, every pass "
            "taken to its end"
        )

    def conditions(self, seen: Seen, taken: int) -> tuple[str, ...]:
        """The same in full sentences."""
        if self.paid:
            return (f"The number holds because of: {LICENSE}.", POST_PROCESSED)
        found = [FIXED, POST_PROCESSED]
        rates = {source.sample_rate for source in seen.draws.sources if source.sample_rate is not None}
        for name, levels in (("noise multipliers", sorted(seen.noises)), ("sample rates", sorted(rates))):
            if len(levels) > 1:
                shown = ", ".join(f"{level:g}" for level in levels[:5]) + (", ..." if len(levels) > 5 else "")
                found.append(CHANGED.format(levels=f"{name} {shown}"))
        if self.planned is None:
            found.append(STOPPED)
        else:
            found.append((EXCEEDED if taken > self.planned else PLANNED).format(taken=taken, planned=self.planned))
        return tuple(found)

    def longest(self, found: Description, ahead: Ahead, taken: int) -> Description:
        """The longest run that was possible in place of the one that was taken, where it is known and longer."""
        if self.planned is None or taken >= self.planned or not found.runs:
            return found
        earlier = sum(run.total_steps for run in ahead.earlier)
        try:
            if len(ahead.seen.noises) > 1:
                raise UnsupportedError("noise changed, and that of later steps is not known")
            runs = ahead.runs(ahead.position_of(self.planned - earlier))
        except CalipersError as error:
            why = UNBOUNDED.format(taken=taken, planned=self.planned, why=str(error).rstrip("."))
            return Description((), False, (*found.reasons, why))
        adjacency = found.runs[0].adjacency
        own = found.note.replace(ONCE_A_PASS, "").strip()
        note = (
            f"{own} {taken} steps were taken. The bound is that of the longest run that was possible, {self.planned} "
            "steps (up to the end of an epoch, where batches are cut from an order) with the noise of those that were "
            "taken; no attack is claimed, since where the training stops may depend on what it showed."
        )
        longest = tuple(run.replace(adjacency=adjacency) for run in runs)
        return Description(longest, False, found.reasons, note.strip(), True)
