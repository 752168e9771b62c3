"""The record of a run that is watched: what `calipers.adapters.opacus.attach` returns."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from calipers.adapters.loader_settings import loader_behind
from calipers.adapters.opacus_library import installed_opacus, torch_module
from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_ahead import Ahead
from calipers.adapters.watched_before import (
    MOMENTUM,
    UNCHECKED_LOSS,
    UNKNOWN_SUM,
    keeps_traces,
    steps_elsewhere,
    steps_reported,
    unexplained,
    updates_counted,
)
from calipers.adapters.watched_facts import SEEN_AT, executed_words, law_words, noise_words, release_words
from calipers.adapters.watched_filter import NO_ATTACK, PaidSteps
from calipers.adapters.watched_license import UNPAID, Terms
from calipers.adapters.watched_phases import MANY_LEVELS, measured_phases, reported_runs, unproven
from calipers.adapters.watched_processes import joined
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_release import divided_now
from calipers.adapters.watched_run import Description, NeighborReading, describe, nothing_proven, outside
from calipers.adapters.watched_steps import SINCE, Steps
from calipers.adaptive import PrivacyFilter
from calipers.auditing.pairs import Pairs, ThreeNumbers, audit_pairs
from calipers.bracket import Bracket
from calipers.domains import PROBABILITY, choice
from calipers.errors import CalipersError, CalipersWarning, InputError, UnsupportedError
from calipers.measure import Measurement, measure
from calipers.measure.bounds import Bounds
from calipers.measure.measurement import Claim
from calipers.measure.watched import Watched
from calipers.numerics.types import IntArray
from calipers.run import ADJACENCIES, Run
from calipers.synonyms import adjacency_named

OTHER_READING = "The privacy filter is for the neighbors that attach was given, and for no others."


class Attachment:
    """The record of a run that is being watched; see `attach`."""

    def __init__(
        self,
        accountant: Any,
        optimizer: Any,
        source: LoaderLaw,
        reading: NeighborReading,
        state: Mapping[str, Any] | None,
        earlier: tuple[Run, ...],
        rows: IntArray | None = None,
    ) -> None:
        described = sum(run.total_steps for run in earlier) + (0 if state is None else int(state.get("steps", 0)))
        counts = {
            "The accountant's history counts": steps_reported(accountant),
            "The inner optimizer's own counter shows": updates_counted(optimizer),
            "Another private optimizer of the same parameters counts": steps_elsewhere(optimizer, accountant),
        }
        for who, count in counts.items():
            if count > described:
                raise UnsupportedError(unexplained(count, described, who))
        if not described and keeps_traces(optimizer):
            raise UnsupportedError(MOMENTUM)
        if any(run.dataset_size != source.dataset_size for run in earlier):
            raise InputError(f"Expected earlier runs with dataset_size={source.dataset_size}, that of the loader.")
        self._accountant, self._optimizer, self._earlier = accountant, optimizer, earlier
        self.reading, self._hook = reading, optimizer.step_hook
        self._seen = Seen(source.indices, rows)
        self.loss = ""
        """What the criterion was seen to do; empty where attach was not given it."""
        self._ranks = int(getattr(optimizer, "world_size", 1))
        self._gathered: Seen | None = None
        self._loaders: list[Any] = []
        self._measured: tuple[object, Measurement] | None = None
        self._seen.draws.changed = self._warn_of
        self._warned = False
        self._steps = Steps(optimizer, self._seen, bool(earlier))
        self._paying: PaidSteps | None = None
        self._paid = 0
        self.planned_steps: int | None = None
        """The largest number of steps there can be, which a training that may stop earlier is reported with."""

    def watch(self, data_loader: Any, source: LoaderLaw, observed: bool = False) -> None:
        """Listen to one more loader of the same records."""
        data_loader = loader_behind(data_loader)
        known = self._seen.draws.sources
        if known and (source.dataset_size, source.indices) != (known[0].dataset_size, known[0].indices):
            raise UnsupportedError(
                f"The loaders of one run draw from the same records, got {known[0].dataset_size} and "
                f"{source.dataset_size} of them; attach each dataset's optimizer by itself."
            )
        self._seen.draws.watch(data_loader, source, observed)
        self._loaders.append(data_loader)
        if source.kind == "other" or (source.kind == "dealt" and not source.whole):
            self._seen.complain(
                f"A pass over {source.name} is no permutation of the dataset, and no Run describes it.", False
            )

    def warned(self) -> None:
        """A warning said already that numbers of this record are for zeroing one record out."""
        self._warned = True

    def _warn_of(self, law: LoaderLaw) -> None:
        self._warned = self.reading.warn_of(law, divided_now(self._optimizer)) or self._warned

    def watches(self, data_loader: Any) -> bool:
        """Whether this very loader is listened to."""
        return any(loader_behind(data_loader) is loader for loader in self._loaders)

    @property
    def steps(self) -> int:
        """Noisy sums released so far, those of a loaded checkpoint included."""
        return self._seen.steps + sum(run.total_steps for run in self._earlier)

    @property
    def privacy_filter(self) -> PrivacyFilter | None:
        """The filter that every step is paid from, if there is one."""
        return None if self._paying is None else self._paying.source

    def pay_from(self, source: PrivacyFilter) -> None:
        """Pay for every step from a filter, before its noise is added; a step that does not fit raises.

        Raises:
            InputError: steps were taken that it did not pay for, or the present settings are not on its menu.
            UnsupportedError: its steps are not the optimizer's, or batches are not drawn afresh for each.
        """
        if self._earlier:
            raise UnsupportedError("A privacy filter pays for all steps of a training; leave earlier=... out.")
        paying = PaidSteps(source, self._seen.draws.sources, self.reading, self._optimizer)
        paying.resumed(self._seen.steps, self._paid if self._paying is None else self._paying.count)
        self._paying, self._steps.pay = paying, paying.pay

    def fits(self, further: int = 1) -> bool:
        """Whether the filter has room for so many more steps, as the optimizer is set now."""
        return self._paying is None or self._paying.allows(further)

    @property
    def next_step(self) -> str:
        """The step of the filter's menu that the optimizer would take now."""
        if self._paying is None:
            raise InputError("This record pays from no filter: attach(..., privacy_filter=...).")
        return self._paying.source.name_of(self._paying.next())

    @property
    def _licensing(self) -> Terms:
        return Terms(self.planned_steps, self._paying is not None)

    @property
    def declared(self) -> bool:
        """Whether somebody said under which condition the numbers hold: a largest number of steps, or a filter."""
        return self.planned_steps is not None or self._paying is not None

    @property
    def licensed_by(self) -> str:
        """The condition under which the numbers of this record hold."""
        return self._licensing.licensed_by(self.steps)

    @property
    def conditions(self) -> tuple[str, ...]:
        """What every answer rests on and nobody could watch, a sentence each."""
        seen = self._now()
        since = (SINCE,) if self._steps.moved_since else ()
        return (
            *self._licensing.conditions(seen, self.steps),
            *dict.fromkeys((*seen.notes, *since)),
            *(() if self.loss else (UNCHECKED_LOSS,)),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What was seen, in plain numbers: keys are words, values numbers, strings or lists of them.

        The last entry, "seen at", names for every conclusion where it was read.
        """
        seen = self._now()
        draws, groups = seen.draws, seen.draws.groups.values()
        repeats = (len(used) for group in groups for used in group.uses)
        return {
            "library": installed_opacus(),
            "loaders": [law_words(source) for source in draws.sources],
            "records": seen.records,
            "rows of one record": max(source.copies for source in draws.sources),
            "steps": self.steps,
            "batches drawn": draws.drawn,
            "batches delivered": sum(group.delivered for group in groups),
            "batches used": sum(group.used() for group in groups),
            "most steps on one batch": max(repeats, default=min(1, seen.steps)),
            "passes begun": draws.begun,
            "passes finished": draws.finished,
            "releases": [f"{count} steps: {release_words(release)}" for release, count in seen.releases.items()],
            "noise multipliers realized": sorted(seen.noises),
            "clipping norms realized": sorted(seen.norms),
            "parameters": seen.dimension,
            "loss": self.loss or "not given to attach",
            "noise source": noise_words(self._optimizer),
            "most participations of a record": seen.participation.busiest(),
            "steps counted by the accountant": steps_reported(self._accountant),
            "updates counted by the inner optimizer": updates_counted(self._optimizer) or "it has no counter",
            "step hook replaced": self._hook is not None and self._optimizer.step_hook is not self._hook,
            "seen at": dict(SEEN_AT),
        }

    def why_not(self, **reading: Any) -> tuple[str, ...]:
        """Why the numbers may promise less than they seem to, a sentence each; nothing where no reason is known.

        What was seen is not one of the described runs, or the numbers are for other neighbors than adding and removing
        one record, or the criterion is not known to sum as loss_reduction='sum' says.
        """
        summed = any(release.reduction == "sum" for release in self._now().releases)
        unknown = (UNKNOWN_SUM,) if summed and not self.loss else ()
        return (*self._describe(reading).reasons, *unknown)

    def why_nothing(self, *, in_hand: bool = False) -> tuple[str, ...]:
        """Why nothing at all is proven, a sentence each; empty where something may be.

        `in_hand`: the loop is about to use the batches that it holds, so that they were not passed over.
        """
        seen = self._now()
        counted, reported = updates_counted(self._optimizer), steps_reported(self._accountant)
        if counted > self.steps:
            return (*seen.reasons, unexplained(counted, self.steps, "The inner optimizer's own counter shows"))
        if reported > self.steps:
            return (*seen.reasons, unexplained(reported, self.steps))
        if self._ranks > 1 and seen is self._seen:
            return ("Every process saw its own draws alone; call record.gather() on each of them.",)
        if self._paid and self._paying is None:
            return (*seen.reasons, UNPAID)
        return nothing_proven(seen, in_hand=in_hand)

    def attained(self, **reading: Any) -> bool:
        """Whether attacks on `runs()` are attacks on what was executed; else the runs only bound it from above."""
        found = self._describe(reading)
        return bool(found.runs) and found.attained

    def runs(self, **reading: Any) -> tuple[Run, ...]:
        """What was executed so far: one run for each stretch of equal noise, in order.

        Where the draws fit no run, fixed batches that reveal at least as much (`measure().executed`); nothing where
        nothing is proven. `reading` may name another adjacency or public_rate than `attach` was given.
        """
        return self._describe(reading).runs

    def measure(self, *, tolerance: float = 1e-3, **reading: Any) -> Measurement:
        """The measurement of what was executed so far; asked again before another step, it is the same one."""
        found = self._describe(reading)
        key = (found, steps_reported(self._accountant), tolerance, self.conditions)
        if self._measured is None or self._measured[0] != key:
            self._measured = (key, self._measurement(found, tolerance, reading))
        return self._measured[1]

    def _measurement(self, found: Description, tolerance: float, reading: Mapping[str, Any]) -> Measurement:
        if self._paying is not None and found.runs and found.attained:
            return self._filtered(self._paying, tolerance)
        claimed = reported_runs(self._accountant)
        claim = measure(claimed[:MANY_LEVELS], tolerance=tolerance).claim if claimed else None
        try:
            measured = measured_phases(found.runs, tolerance) if found.runs else None
        except CalipersError as error:
            found, measured = dataclasses.replace(found, reasons=(*found.reasons, str(error))), None
        why = " ".join(found.reasons)
        if measured is None or self._paying is not None:
            nothing = unproven(why)
            reasons = (*found.reasons, *self.conditions)
            return Measurement((), nothing, claim or Claim(nothing.upper, tolerance), tolerance, reasons)
        conditions = (*found.reasons, *filter(None, [found.note]), *measured.conditions, *self.conditions)
        evaluation = measured.evaluation
        if not found.attained:
            evaluation = Bounds(evaluation.upper, unproven(found.note or why).lower)
        longest = (self.planned_steps or 0) > self.steps  # which is then what both are about
        claim = measured.claim if longest or claim is None else claim
        said = executed_words(self._now(), self.steps, self.planned_steps) if found.instead else ""
        return dataclasses.replace(
            measured,
            evaluation=evaluation,
            claim=claim,
            conditions=conditions,
            executed=said,
            watched=self._watched(reading),
        )

    def _watched(self, reading: Mapping[str, Any]) -> Watched:
        """Where the training was seen, and what is proven of it for each relation."""
        found = {word: self._describe({**reading, "adjacency": word}) for word in ADJACENCIES}
        library = "" if self._earlier else installed_opacus()
        return Watched(library, tuple((word, one.for_others) for word, one in found.items()))

    def _filtered(self, paying: PaidSteps, tolerance: float) -> Measurement:
        """The filter's number, which holds whatever was chosen."""
        above = paying.upper()
        evaluation = Bounds(above, unproven(NO_ATTACK).lower)
        return Measurement((), evaluation, Claim(above, tolerance), tolerance, self.conditions, stated=paying.stated)

    def epsilon(self, delta: float, *, tolerance: float = 1e-3, **reading: Any) -> Bracket:
        """epsilon(delta) of what was executed so far: lower <= truth <= upper; [0, inf] where nothing is proven.

        It holds under `licensed_by`, which the evidence of its upper end repeats.
        """
        found = self.measure(tolerance=tolerance, **reading).epsilon(delta)
        proof = found.upper_evidence
        said = f"{proof.statement} Holds under this condition: {self.licensed_by}."
        return dataclasses.replace(found, upper_evidence=dataclasses.replace(proof, statement=said))

    def audit(
        self, pairs: Pairs, seen: Any = None, *, delta: float, confidence: float = 0.95, tolerance: float = 1e-2
    ) -> ThreeNumbers:
        """Certified above and below, and observed: what the pairs of canaries in this training showed of it.

        `seen`: a number for every candidate, minus its loss for example; left out, what `pairs` learned on the way.
        The run is measured for substituted records, which is what a coin turned around changes.
        """
        PROBABILITY.check("delta", delta)
        measurement = self.measure(tolerance=tolerance, adjacency="substitute")
        return audit_pairs(pairs.scores(seen), measurement, delta=delta, confidence=confidence)

    def ahead(self, *, in_hand: bool = False) -> Ahead:
        """What this run becomes if it goes on; for whoever decides whether to take one more step.

        Raises:
            UnsupportedError: nothing is proven about it (`why_nothing`).
        """
        nothing = self.why_nothing(in_hand=in_hand)
        if nothing:
            raise UnsupportedError(" ".join(nothing))
        return Ahead(self._now(), self._optimizer, self.reading, self._earlier)

    def state_dict(self) -> dict[str, Any]:
        """What was seen, for a checkpoint next to the model's: plain numbers and strings. Holds no record.

        It holds a digest of the weights, which have to be those of the first step after it is loaded.
        """
        paid = {} if self._paying is None else {"paid": self._paying.count}
        since = [SINCE] if self._steps.moved_since else []
        own = {"weights": self._steps.weights, "notes": [*self._seen.notes, *since]}
        return self._seen.state_dict() | own | paid

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the record of a checkpoint, after the engine's own was loaded and before the next step."""
        self._seen.load_state_dict(state)
        self._steps.resumed_from = str(state.get("weights", ""))
        self._paid = int(state.get("paid", 0))
        if self._paying is not None:
            self._paying.resumed(self._seen.steps, self._paid)

    def gather(self) -> Attachment:
        """Put the records of all processes together; call it on every one of them, like a barrier.

        On several processes each sees its own draws alone, and nothing is proven before they were compared.
        """
        if self._ranks == 1:
            return self
        states: list[dict[str, Any] | None] = [None] * self._ranks
        torch_module("torch.distributed").all_gather_object(states, self.state_dict())
        self._gathered = joined(self._seen, [state for state in states if state is not None])
        return self

    def _now(self) -> Seen:
        return self._seen if self._gathered is None or self._gathered.steps != self._seen.steps else self._gathered

    def _describe(self, reading: Mapping[str, Any]) -> Description:
        if not self.steps:
            raise InputError("No step was taken yet; ask after training.")
        chosen = dataclasses.replace(self.reading, **reading)
        if chosen.adjacency is not None:
            named = choice("adjacency", adjacency_named(chosen.adjacency), ADJACENCIES)
            chosen = dataclasses.replace(chosen, adjacency=named)
        seen = self._now()
        nothing = self.why_nothing()
        if nothing:
            return Description((), False, nothing)
        if self._paying is not None and reading and chosen != self.reading:
            return Description((), False, (*seen.reasons, OTHER_READING))
        found = self._with_earlier(describe(seen, chosen))
        if chosen.adjacency is None and found.runs and found.runs[0].adjacency != "add-remove" and not self._warned:
            self._warned = True
            said = " ".join([*found.reasons[-1:], *found.reasons[:-1]])
            warnings.warn(f"{said} Ask record.why_not().", CalipersWarning, stacklevel=outside())
        ahead = Ahead(seen, self._optimizer, chosen, self._earlier)
        return self._licensing.longest(found, ahead, self.steps)

    def _with_earlier(self, found: Description) -> Description:
        """With the steps before, which somebody described."""
        if not self._earlier or not found.runs:
            return found
        return dataclasses.replace(
            found,
            runs=(*(run.replace(adjacency=found.runs[0].adjacency) for run in self._earlier), *found.runs),
            note=f"{found.note} The first {sum(run.total_steps for run in self._earlier)} steps were not watched; they "
            "are taken as they were described.".strip(),
        )
