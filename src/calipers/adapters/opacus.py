"""An Opacus training script, measured as it ran.

Two lines turn a script that trains with Opacus into one that ends with a bracket: one after `make_private`, one at the
end::

    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, ...)
    record = attach(engine, optimizer, loader)
    ...                                                   # train as before
    print(record.epsilon(delta=1e-5))

`attach` believes nothing that it can see. It watches the draws of the loader (`watched_draws`), the clipping, the noise
and the updates of every step (`watched_steps`), and reads the accountant's history. What fits one of the described
runs is measured as that run; what does not is a warning during training, and the bracket is the widest that is still
proven (`watched_run`). After training nothing raises: `record.why_not()` and `record.facts` say what was seen.

What is known to be beyond proof when `attach` is called is refused there, before anything is spent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from calipers.adapters.opacus_library import installed_opacus, torch_module
from calipers.adapters.opacus_loaders import Source, described_keys, source_of
from calipers.adapters.unproven import Unproven
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_run import Description, Reading, describe
from calipers.adapters.watched_steps import Steps, check_optimizer
from calipers.bracket import Bracket
from calipers.domains import choice
from calipers.errors import InputError, UnsupportedError
from calipers.measure import Measurement, measure
from calipers.measure.backends import SplitBackend
from calipers.measure.measurement import Claim
from calipers.run import ADJACENCIES, Run

__all__ = ["Attachment", "attach", "run_of"]

_MARK = "_calipers_record"


def run_of(
    optimizer: Any,
    data_loader: Any,
    *,
    steps: int,
    batch_size: int | None = None,
    noise_multiplier: float | None = None,
    adjacency: str = "add-remove",
    public_rate: bool = False,
) -> Run:
    """The run that `steps` steps of a configured optimizer and loader amount to, if the loop does as they say.

    `noise_multiplier` replaces the optimizer's present one. `public_rate` reads a sample rate that moves
    with the size of the dataset as a public constant; without it such a run is refused.
    """
    check_optimizer(None, optimizer)
    choice("adjacency", adjacency, ADJACENCIES)
    noise = float(optimizer.noise_multiplier) if noise_multiplier is None else noise_multiplier
    public = public_rate or adjacency != "add-remove"
    keys = described_keys(source_of(data_loader), optimizer, steps, batch_size, public)
    dimension = sum(parameter.numel() for parameter in optimizer.params)
    return Run.from_dict(keys | {"noise_multiplier": noise, "dimension": dimension, "adjacency": adjacency})


class Attachment:
    """The record of a run that is being watched; see `attach`."""

    def __init__(self, accountant: Any, optimizer: Any, records: int, reading: Reading, earlier: tuple[Run, ...]) -> None:
        self._accountant, self._optimizer, self._earlier = accountant, optimizer, earlier
        self.reading, self._hook = reading, optimizer.step_hook
        self._seen = Seen(records)
        self._ranks = int(getattr(optimizer, "world_size", 1))
        self._gathered: Seen | None = None
        Steps(optimizer, self._seen)

    def watch(self, data_loader: Any, source: Source) -> None:
        """Listen to one more loader of the same records."""
        known = self._seen.draws.sources
        if known and (source.dataset_size, source.indices) != (known[0].dataset_size, known[0].indices):
            raise UnsupportedError(
                f"The loaders of one run draw from the same records, got {known[0].dataset_size} and "
                f"{source.dataset_size} of them; attach each dataset's optimizer by itself."
            )
        self._seen.draws.watch(data_loader, source)
        if source.kind == "other" or (source.kind == "dealt" and not source.whole):
            self._seen.complain(f"A pass over {source.name} is no permutation of the dataset, and no Run describes it.", False)

    @property
    def steps(self) -> int:
        """Noisy sums released so far, those of a loaded checkpoint included."""
        return self._seen.steps + sum(run.total_steps for run in self._earlier)

    @property
    def facts(self) -> dict[str, Any]:
        """What was seen, in plain numbers: keys are words, values numbers, strings or lists of them."""
        seen = self._now()
        draws, groups = seen.draws, seen.draws.groups.values()
        uses = [noises for group in groups for noises, count in group.noises.items() if count and len(noises) > 1]
        return {
            "library": installed_opacus(),
            "loaders": [f"{source.kind}: {source.name}" for source in draws.sources],
            "records": seen.records,
            "steps": self.steps,
            "batches drawn": draws.drawn,
            "batches delivered": sum(group.delivered for group in groups),
            "batches used": sum(group.used() for group in groups),
            "most steps on one batch": max(map(len, uses), default=min(1, seen.steps)),
            "passes begun": draws.begun,
            "passes finished": draws.finished,
            "noise multipliers realized": sorted(seen.noises),
            "clipping norms realized": sorted(seen.norms),
            "most participations of a record": seen.participation.busiest(),
            "steps told to the accountant": _told(self._accountant),
            "step hook replaced": self._hook is not None and self._optimizer.step_hook is not self._hook,
        }

    def why_not(self, **reading: Any) -> tuple[str, ...]:
        """Why what was seen is not one of the described runs, a sentence each; nothing if it is."""
        return self._describe(reading).reasons

    def runs(self, **reading: Any) -> tuple[Run, ...]:
        """What was executed so far: one run for each stretch of equal noise, in order.

        Where the draws fit no described run, fixed batches with as many participations as were seen; nothing where
        nothing is proven. `reading` may name another adjacency or public_rate than `attach` was given.
        """
        return self._describe(reading).runs

    def measure(self, *, tolerance: float = 1e-3, **reading: Any) -> Measurement:
        """The measurement of what was executed so far."""
        found = self._describe(reading)
        claimed = _history(self._accountant)
        claim = measure(claimed, tolerance=tolerance).claim if claimed else None
        why = " ".join(found.reasons)
        if not found.runs:
            backend = Unproven(why)
            return Measurement((), backend, claim or Claim(backend, tolerance), tolerance, found.reasons)
        measured = measure(found.runs, tolerance=tolerance)
        notes = (*found.reasons, *filter(None, [found.note]), *measured.notes)
        backend = measured.backend if found.attained else SplitBackend(measured.backend, Unproven(found.note or why))
        return dataclasses.replace(measured, backend=backend, claim=claim or measured.claim, notes=notes)

    def epsilon(self, delta: float, **reading: Any) -> Bracket:
        """epsilon(delta) of what was executed so far: lower <= truth <= upper; [0, inf] where nothing is proven."""
        return self.measure(**reading).epsilon(delta)

    def state_dict(self) -> dict[str, Any]:
        """What was seen, for a checkpoint beside the model's: plain numbers and strings. Holds no record."""
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
        whole = Seen(self._seen.records)
        whole.draws.sources = self._seen.draws.sources
        first, *others = [state for state in states if state is not None]
        whole.load_state_dict(first)
        for state in others:
            whole.reasons |= state["reasons"]
            whole.participation.merge(state["participation"])
            if any(state[key] != first[key] for key in ("steps", "noises", "norms", "passes")):
                reason = "The processes took different numbers of steps, or with different noise or norms."
                whole.reasons[reason] = True
        self._gathered = whole
        return self

    def _now(self) -> Seen:
        return self._seen if self._gathered is None or self._gathered.steps != self._seen.steps else self._gathered

    def _describe(self, reading: Mapping[str, Any]) -> Description:
        if not self.steps:
            raise InputError("No step was taken yet; ask after training.")
        chosen = dataclasses.replace(self.reading, **reading)
        choice("adjacency", chosen.adjacency, ADJACENCIES)
        seen = self._now()
        told = _told(self._accountant)
        if told > self.steps:
            seen.reasons[_unexplained(told, self.steps)] = True
        if self._ranks > 1 and seen is self._seen:
            return Description((), False, ("Every process saw its own draws alone; call record.gather() on each of them.",))
        found = describe(seen, self._optimizer, chosen)
        if not self._earlier or not found.runs:
            return found
        return dataclasses.replace(
            found,
            runs=(*(run.replace(adjacency=chosen.adjacency) for run in self._earlier), *found.runs),
            note=f"{found.note} The first {sum(run.total_steps for run in self._earlier)} steps were not watched; they "
            "are taken as they were described.".strip(),
        )


def attach(
    engine: Any,
    optimizer: Any,
    data_loader: Any = None,
    *,
    batch_size: int | None = None,
    public_rate: bool = False,
    adjacency: str = "add-remove",
    observed: bool = False,
    state: Mapping[str, Any] | None = None,
    earlier: Sequence[Run] = (),
) -> Attachment:
    """Watch a private training run from now on; the accountant of the engine stays in place.

    `engine` is the `PrivacyEngine`, `optimizer` and `data_loader` what its `make_private` returned. A second loader of
    the same data is attached by a second call. Refused at once: adaptive clipping, streams, samplers whose law is not
    known, a sample rate that differs between neighbors, an accountant with steps that nobody watched.

    batch_size: the one the script gave its loader; needed where Opacus's arithmetic does not tell (N a multiple of B).
    public_rate: the number of records is public, so that the neighbor is drawn with the same rate and as many steps.
    adjacency: "add-remove", "zero-out" or "substitute"; the last two leave the number of records alone.
    observed: the draws of a sampler that Calipers does not know do not depend on the records.
    state: `state_dict()` of the record of an earlier part of this run. earlier: runs that describe steps which nobody
    watched, as somebody vouches for.
    """
    if data_loader is None:
        # Without the engine, as in earlier releases: the step hook that make_private attached is the accountant's.
        optimizer, data_loader, engine = engine, optimizer, None
        check_optimizer(engine, optimizer)
    accountant = _accountant_of(optimizer) if engine is None else engine.accountant
    return attached(
        accountant, optimizer, data_loader, engine=engine, observed=observed, state=state, earlier=tuple(earlier),
        reading=Reading(batch_size, choice("adjacency", adjacency, ADJACENCIES), public_rate),
    )  # fmt: skip


def attached(
    accountant: Any,
    optimizer: Any,
    data_loader: Any,
    *,
    reading: Reading,
    engine: Any = None,
    observed: bool = False,
    state: Mapping[str, Any] | None = None,
    earlier: tuple[Run, ...] = (),
) -> Attachment:
    """`attach`, for whoever has the accountant."""
    record: Attachment | None = getattr(optimizer, _MARK, None)
    if record is not None and getattr(data_loader, _MARK, None) is record:
        record.reading = reading
        return record
    if record is None:
        check_optimizer(engine, optimizer)
    source = source_of(data_loader, observed=observed)
    if source.kind in ("poisson", "calipers"):
        public = reading.public_rate or reading.adjacency != "add-remove"
        described_keys(source, optimizer, source.batches, reading.batch_size, public)
    if record is None:
        record = _new_record(accountant, optimizer, source, reading, state, earlier)
    record.watch(data_loader, source)
    if state is not None:
        record.load_state_dict(state)
    for thing in (optimizer, data_loader):
        setattr(thing, _MARK, record)
    return record


def _new_record(
    accountant: Any,
    optimizer: Any,
    source: Source,
    reading: Reading,
    state: Mapping[str, Any] | None,
    earlier: tuple[Run, ...],
) -> Attachment:
    described = sum(run.total_steps for run in earlier) + (0 if state is None else int(state.get("steps", 0)))
    if _told(accountant) != described:
        raise UnsupportedError(_unexplained(_told(accountant), described))
    if any(run.dataset_size != source.dataset_size for run in earlier):
        raise InputError(f"Expected earlier runs with dataset_size={source.dataset_size}, that of the loader.")
    return Attachment(accountant, optimizer, source.indices, reading, earlier)


def _told(accountant: Any) -> int:
    """Steps in an accountant's history."""
    return sum(int(steps) for _, _, steps in accountant.history)


def _history(accountant: Any) -> list[Run]:
    """What the accountant was told, as it reads it: Poisson sampling of the undivided sum."""
    return [
        Run(noise_multiplier=noise, sample_rate=rate, steps=steps)
        for noise, rate, steps in accountant.history
        if noise > 0 and 0 < rate <= 1
    ]


def _unexplained(told: int, described: int) -> str:
    return (
        f"The accountant's history counts {told} steps, and {described} of them are known here; how the others drew "
        "their batches nobody can tell. After a checkpoint hand the record of its steps on, "
        "attach(..., state=saved), where saved is what record.state_dict() gave; or describe them yourself, "
        "attach(..., earlier=[Run(...)])."
    )


def _accountant_of(optimizer: Any) -> Any:
    cells = getattr(optimizer.step_hook, "__closure__", None) or ()
    for cell in cells:
        if hasattr(cell.cell_contents, "history"):
            return cell.cell_contents
    raise InputError("The optimizer's step hook is not the accountant's; write attach(engine, optimizer, data_loader).")
