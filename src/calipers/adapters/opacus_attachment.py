"""The record of a run that is watched: what `calipers.adapters.opacus.attach` returns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calipers.adapters.loader_settings import loader_behind
from calipers.adapters.opacus_library import installed_opacus, torch_module
from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.opacus_sharded import SHIFTED, shifted
from calipers.adapters.watched_ahead import Ahead
from calipers.adapters.watched_before import UNCHECKED_LOSS, steps_elsewhere, steps_told, updates_counted
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_release import Release
from calipers.adapters.watched_run import Description, NeighborReading, describe
from calipers.adapters.watched_steps import Steps
from calipers.auditing.pairs import Pairs, ThreeNumbers, audit_pairs
from calipers.bracket import Bracket, Evidence, Kind, Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import PROBABILITY, choice
from calipers.errors import CalipersError, InputError, UnsupportedError
from calipers.measure import Measurement, measure
from calipers.measure.closed import KnownCurve
from calipers.measure.jaw import Evaluation
from calipers.measure.measurement import Claim
from calipers.numerics.types import IntArray
from calipers.run import ADJACENCIES, Run
from calipers.synonyms import adjacency_named

FIXED = (
    "Noise multipliers, sample rates, clipping norms, divisors and the number of steps were fixed in advance, or "
    "follow from public numbers alone: none was chosen by what the training showed."
)
STOPPED = (
    "Where training may stop early (early stopping, a break, a crash that is resumed or not), the number belongs to "
    "the longest run that was possible; ask for that one."
)
_MANY_LEVELS = 32
"""Distinct phases measured one by one, 0.1 s each; more are put together, by their least and their largest noise."""

TWINS = (
    "Two processes drew batches from the same random numbers: whether a record is in a batch shows in a record of the "
    "other process, and hides nothing. Seed every process by itself: torch.manual_seed(seed + rank)."
)


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
            "The accountant's history counts": steps_told(accountant),
            "The inner optimizer's own counter shows": updates_counted(optimizer),
            "Another private optimizer of the same parameters counts": steps_elsewhere(optimizer, accountant),
        }
        for who, count in counts.items():
            if count > described:
                raise UnsupportedError(unexplained(count, described, who))
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
        Steps(optimizer, self._seen)

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

    def watches(self, data_loader: Any) -> bool:
        """Whether this very loader is listened to."""
        return any(loader_behind(data_loader) is loader for loader in self._loaders)

    @property
    def steps(self) -> int:
        """Noisy sums released so far, those of a loaded checkpoint included."""
        return self._seen.steps + sum(run.total_steps for run in self._earlier)

    @property
    def conditions(self) -> tuple[str, ...]:
        """What every answer rests on and nobody could watch, a sentence each."""
        return (FIXED, STOPPED, *(() if self.loss else (UNCHECKED_LOSS,)))

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
            "loaders": [_law(source) for source in draws.sources],
            "records": seen.records,
            "rows of one record": max(source.copies for source in draws.sources),
            "steps": self.steps,
            "batches drawn": draws.drawn,
            "batches delivered": sum(group.delivered for group in groups),
            "batches used": sum(group.used() for group in groups),
            "most steps on one batch": max(repeats, default=min(1, seen.steps)),
            "passes begun": draws.begun,
            "passes finished": draws.finished,
            "releases": [f"{count} steps: {_terms(release)}" for release, count in seen.releases.items()],
            "noise multipliers realized": sorted(seen.noises),
            "clipping norms realized": sorted(seen.norms),
            "parameters": seen.dimension,
            "loss": self.loss or "not given to attach",
            "noise source": _noise_source(self._optimizer),
            "most participations of a record": seen.participation.busiest(),
            "steps counted by the accountant": steps_told(self._accountant),
            "updates counted by the inner optimizer": updates_counted(self._optimizer),
            "step hook replaced": self._hook is not None and self._optimizer.step_hook is not self._hook,
            "seen at": dict(SEEN_AT),
        }

    def why_not(self, **reading: Any) -> tuple[str, ...]:
        """Why what was seen is not one of the described runs, a sentence each; nothing if it is."""
        return self._describe(reading).reasons

    def attained(self, **reading: Any) -> bool:
        """Whether attacks on `runs()` are attacks on what was executed; else the runs only bound it from above."""
        found = self._describe(reading)
        return bool(found.runs) and found.attained

    def runs(self, **reading: Any) -> tuple[Run, ...]:
        """What was executed so far: one run for each stretch of equal noise, in order.

        Where the draws fit no described run, fixed batches with as many participations as were seen; nothing where
        nothing is proven. `reading` may name another adjacency or public_rate than `attach` was given.
        """
        return self._describe(reading).runs

    def measure(self, *, tolerance: float = 1e-3, **reading: Any) -> Measurement:
        """The measurement of what was executed so far; asked again before another step, it is the same one."""
        found = self._describe(reading)
        key = (found, steps_told(self._accountant), tolerance)
        if self._measured is None or self._measured[0] != key:
            self._measured = (key, self._measurement(found, tolerance))
        return self._measured[1]

    def _measurement(self, found: Description, tolerance: float) -> Measurement:
        claimed = _history(self._accountant)
        claim = measure(claimed[:_MANY_LEVELS], tolerance=tolerance).claim if claimed else None
        try:
            measured = _measured(found.runs, tolerance) if found.runs else None
        except CalipersError as error:
            found, measured = dataclasses.replace(found, reasons=(*found.reasons, str(error))), None
        why = " ".join(found.reasons)
        if measured is None:
            nothing = unproven(why)
            reasons = (*found.reasons, *self.conditions)
            return Measurement((), nothing, claim or Claim(nothing.above, tolerance), tolerance, reasons)
        conditions = (*found.reasons, *filter(None, [found.note]), *measured.conditions, *self.conditions)
        evaluation = measured.evaluation
        if not found.attained:
            evaluation = Evaluation(evaluation.above, unproven(found.note or why).below)
        claim = claim or measured.claim
        return dataclasses.replace(measured, evaluation=evaluation, claim=claim, conditions=conditions)

    def epsilon(self, delta: float, **reading: Any) -> Bracket:
        """epsilon(delta) of what was executed so far: lower <= truth <= upper; [0, inf] where nothing is proven."""
        return self.measure(**reading).epsilon(delta)

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

    def ahead(self) -> Ahead:
        """What this run becomes if it goes on; for whoever decides whether to take one more step."""
        told = steps_told(self._accountant)
        if told > self.steps:
            raise UnsupportedError(unexplained(told, self.steps))
        return Ahead(self._now(), self._optimizer, self.reading, self._earlier)

    def state_dict(self) -> dict[str, Any]:
        """What was seen, for a checkpoint next to the model's: plain numbers and strings. Holds no record."""
        return self._seen.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the record of a checkpoint, after the engine's own was loaded and before the next step."""
        self._seen.load_state_dict(state)

    def gather(self) -> Attachment:
        """Put the records of all processes together; call it on every one of them, like a barrier.

        On several processes each sees its own draws alone, and nothing is proven before they were compared.
        """
        if self._ranks == 1:
            return self
        states: list[dict[str, Any] | None] = [None] * self._ranks
        torch_module("torch.distributed").all_gather_object(states, self.state_dict())
        self._gathered = _joined(self._seen, [state for state in states if state is not None])
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
        counted = updates_counted(self._optimizer)
        if counted > self.steps:
            why = unexplained(counted, self.steps, "The inner optimizer's own counter shows")
            return Description((), False, (*seen.reasons, why))
        told = steps_told(self._accountant)
        if told > self.steps:
            return Description((), False, (*seen.reasons, unexplained(told, self.steps)))
        if self._ranks > 1 and seen is self._seen:
            return Description(
                (), False, ("Every process saw its own draws alone; call record.gather() on each of them.",)
            )
        found = describe(seen, chosen)
        if not self._earlier or not found.runs:
            return found
        return dataclasses.replace(
            found,
            runs=(*(run.replace(adjacency=found.runs[0].adjacency) for run in self._earlier), *found.runs),
            note=f"{found.note} The first {sum(run.total_steps for run in self._earlier)} steps were not watched; they "
            "are taken as they were described.".strip(),
        )


SEEN_AT = {
    "which records a step used, and at what sample rate": "every draw of the watched loaders' batch samplers",
    "which batch was used, repeated or passed over": "rows behind the gradients of every step, against the deliveries",
    "rows of one record": "Subset and ConcatDataset of the dataset, when attached and when each pass begins",
    "clipping norm": "clip_and_accumulate of every step (ghost clipping: get_clipping_coef of every backward pass)",
    "noise multiplier": "add_noise of every step",
    "reduction and divisor": "scale_grad of every step",
    "noise is new": "the state of its generator at every step and every pass",
    "who moved the parameters": "step of the inner optimizer, and the parameters between two steps",
    "steps that nobody watched": "the accountant's history, the inner optimizer's counter, other private optimizers",
}


def _law(source: LoaderLaw) -> str:
    """A loader's law in a few words."""
    rate = "" if source.sample_rate is None else f", rate {source.sample_rate!r}"
    batch = "" if source.kind != "dealt" else f", batches of {source.batch_size}"
    return f"{source.kind}: {source.name}{rate}{batch}"


def _terms(release: Release) -> str:
    """What acted in a release, in a few words."""
    if release.reduction == "sum":
        return f"noise {release.noise!r}, sum"
    divisor = f"{release.divisor:g}" if release.divisor else "its own number of rows"
    return f"noise {release.noise!r}, mean, divided by {divisor}"


def _noise_source(optimizer: Any) -> str:
    """Where the noise of the steps comes from, as far as Opacus says."""
    if getattr(optimizer, "secure_mode", False):
        return "Opacus's secure mode: sums of noise from a cryptographic generator"
    own = "a generator that the script chose" if optimizer.generator is not None else "PyTorch's default generator"
    return f"{own}, not a cryptographic one; floating-point Gaussian noise"


def _joined(seen: Seen, states: list[dict[str, Any]]) -> Seen:
    """What all processes saw of one run."""
    whole, drawn = Seen(seen.records), set[str]()
    whole.draws.sources = list(seen.draws.sources)
    whole.load_state_dict(states[0])
    for state in states:
        whole.reasons |= state["reasons"]
        if any(state[key] != states[0][key] for key in ("steps", "releases", "norms", "passes")):
            whole.reasons["The processes took different numbers of steps, or with different noise or norms."] = True
        if drawn & set(state["drawn from"]):
            whole.reasons[TWINS] = True
        drawn |= set(state["drawn from"])
    if shifted(states):
        whole.reasons[SHIFTED] = True
    for state in states[1:]:
        whole.participation.merge(state["participation"])
    return whole


def _history(accountant: Any) -> list[Run]:
    """What the accountant was told, as it reads it: Poisson sampling of the undivided sum."""
    return [
        Run(noise_multiplier=float(noise), sample_rate=float(rate), steps=int(steps))
        for noise, rate, steps in accountant.history
        if noise > 0 and 0 < rate <= 1
    ]


def unexplained(told: int, described: int, who: str = "The accountant's history counts") -> str:
    """Why a history cannot be taken over, and what to do."""
    return (
        f"{who} {told} steps, and {described} of them are known here; how the others drew "
        "their batches nobody can tell. After a checkpoint hand the record of its steps on, "
        "attach(..., state=saved), where saved is what record.state_dict() gave; or describe them yourself, "
        "attach(..., earlier=[Run(...)])."
    )


def _measured(runs: tuple[Run, ...], tolerance: float) -> Measurement:
    """The measurement of some phases; of very many, those of equal settings and nearly equal noise are one phase.

    Adding noise is post-processing: the least noise of such phases bounds them from above, the largest from below.
    """
    if len(runs) <= _MANY_LEVELS:
        return measure(runs, tolerance=tolerance)
    above = measure(_together(runs, min), tolerance=tolerance)
    below = measure(_together(runs, max), tolerance=tolerance)
    evaluation = Evaluation(above.evaluation.above, below.evaluation.below)
    note = (
        f"{len(runs)} phases were measured as {_MANY_LEVELS} or fewer, the upper bound with the least and the lower "
        "bound with the largest noise of those put together."
    )
    return dataclasses.replace(above, evaluation=evaluation, conditions=(*above.conditions, note))


def _together(runs: tuple[Run, ...], noise: Callable[[Iterable[float]], float]) -> tuple[Run, ...]:
    """Phases that differ in nothing but a little noise, as one with the least or the largest of it."""
    kinds: dict[Run, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.replace(noise_multiplier=1.0, steps=1), []).append(run)
    found: list[Run] = []
    for members in kinds.values():
        members.sort(key=lambda run: run.noise_multiplier)
        share = max(1, math.ceil(len(members) * (len(kinds) + 1) / _MANY_LEVELS))
        for start in range(0, len(members), share):
            part = members[start : start + share]
            steps = sum(run.total_steps for run in part)
            found.append(part[0].replace(steps=steps, noise_multiplier=noise(run.noise_multiplier for run in part)))
    return tuple(found)


_SOURCE = "true of every mechanism"


def unproven(reason: str) -> Evaluation:
    """Epsilon between 0 and infinity; `reason` says why no more is known."""
    nothing = Evidence(Kind.THEOREM, f"No finite number is proven. {reason}", _SOURCE)
    guess = Evidence(Kind.TEST, f"Guessing: no attack is claimed. {reason}", _SOURCE)
    perfect = TradeoffCurve.from_tests([0.0], [1.0], side=Side.UPPER)
    return Evaluation(KnownCurve(perfect, nothing), KnownCurve(TradeoffCurve.perfect_privacy(Side.LOWER), guess))
