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

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from calipers.adapters.loader_settings import loader_behind, rows_behind
from calipers.adapters.opacus_attachment import Attachment
from calipers.adapters.opacus_loaders import SUMMED, LoaderLaw, described_keys, forgotten_batch_size, source_of
from calipers.adapters.watched_before import accountant_behind, check_loss
from calipers.adapters.watched_license import Terms
from calipers.adapters.watched_release import Divided, divided_now
from calipers.adapters.watched_run import NeighborReading
from calipers.adapters.watched_steps import check_optimizer
from calipers.adaptive import PrivacyFilter
from calipers.domains import choice
from calipers.errors import CalipersWarning, InputError, UnsupportedError
from calipers.run import ADJACENCIES, Run
from calipers.synonyms import adjacency_named

_MARK = "_calipers_record"


def run_of(
    optimizer: Any,
    data_loader: Any,
    *,
    steps: int,
    batch_size: int | None = None,
    noise_multiplier: float | None = None,
    adjacency: str | None = None,
    public_rate: bool = False,
) -> Run:
    """The run that `steps` steps of a configured optimizer and loader amount to, if the loop does as they say.

    `noise_multiplier` replaces the optimizer's present one. `public_rate` reads a sample rate that moves
    with the size of the dataset as a public constant; without it such a run is refused.
    """
    check_optimizer(None, optimizer)
    if adjacency is not None:
        adjacency = choice("adjacency", adjacency_named(adjacency), ADJACENCIES)
    noise = float(optimizer.noise_multiplier) if noise_multiplier is None else noise_multiplier
    source = source_of(data_loader, batch_size=batch_size)
    dimension = sum(parameter.numel() for parameter in optimizer.params)
    return NeighborReading(adjacency, public_rate).run(source, divided_now(optimizer), steps, noise, dimension)


def attach(
    engine: Any,
    optimizer: Any,
    data_loader: Any = None,
    *,
    batch_size: int | None = None,
    public_rate: bool = False,
    adjacency: str | None = None,
    loss: Any = None,
    observed: bool = False,
    state: Mapping[str, Any] | None = None,
    earlier: Sequence[Run] = (),
    planned_steps: int | None = None,
    privacy_filter: PrivacyFilter | None = None,
) -> Attachment:
    """Watch a private training run from now on; the accountant of the engine stays in place.

    `engine` is the `PrivacyEngine`, `optimizer` and `data_loader` what its `make_private` returned. A second loader of
    the same data is attached by a second call. Refused at once: adaptive clipping, streams, samplers whose distribution
    is not known, a sample rate that differs between neighbors, an accountant with steps that nobody watched.

    batch_size: the one the script gave its loader; needed where Opacus's arithmetic does not tell (N a multiple of B).
    public_rate: the number of records is public, so that the neighbor is drawn with the same rate and as many steps.
    adjacency: "add-remove", "zero-out" or "substitute"; the last two leave the number of records alone. Left out, it is
    add-remove where the run has such neighbors, and zero-out, with a warning, where it does not.
    loss: the criterion. Refused: one that reduces otherwise than the optimizer, or whose mean depends on other records.
    observed: the draws of a sampler that Calipers does not know, and rows that are chosen anew during training, do not
    depend on the records.
    state: `state_dict()` of the record of an earlier part of this run. earlier: runs that describe steps which nobody
    watched, as somebody vouches for.
    planned_steps: the largest number of steps that was possible, all parts included. A training that may stop earlier
    has that number; left out, the numbers hold if the length was fixed in advance.
    privacy_filter: pays for every step before its noise is added, as it is about to be executed; one that does not fit
    raises `FilterSpent` and is not taken. Noise may then be chosen by what was released, among the filter's menu.
    """
    if data_loader is None:
        # Without the engine, as in earlier releases: the step hook that make_private attached is the accountant's.
        optimizer, data_loader, engine = engine, optimizer, None
        check_optimizer(engine, optimizer)
    if adjacency is not None:
        adjacency = choice("adjacency", adjacency_named(adjacency), ADJACENCIES)
    accountant = _accountant_of(optimizer) if engine is None else engine.accountant
    return attached(
        accountant, optimizer, data_loader, engine=engine, batch_size=batch_size, observed=observed, state=state,
        earlier=tuple(earlier), loss=loss, reading=NeighborReading(adjacency, public_rate),
        planned_steps=planned_steps, privacy_filter=privacy_filter,
    )  # fmt: skip


def attached(
    accountant: Any,
    optimizer: Any,
    data_loader: Any,
    *,
    reading: NeighborReading,
    engine: Any = None,
    batch_size: int | None = None,
    observed: bool = False,
    state: Mapping[str, Any] | None = None,
    earlier: tuple[Run, ...] = (),
    loss: Any = None,
    planned_steps: int | None = None,
    privacy_filter: PrivacyFilter | None = None,
) -> Attachment:
    """`attach`, for whoever has the accountant."""
    Terms(planned_steps, privacy_filter is not None)
    known: Attachment | None = getattr(optimizer, _MARK, None)
    words = "" if loss is None else check_loss(loss, optimizer)
    if known is not None and known.watches(data_loader):
        known.reading, known.loss = reading, words or known.loss
        return _on_terms(known, planned_steps, privacy_filter)
    if known is None:
        check_optimizer(engine, optimizer)
    source = source_of(data_loader, observed=observed, batch_size=batch_size)
    warned = _refuse_undescribed(source, optimizer, reading)
    rows = rows_behind(loader_behind(data_loader).dataset)
    record = known or Attachment(accountant, optimizer, source, reading, state, earlier, rows)
    record.loss = words or record.loss
    if warned:
        record.warned()
    record.watch(data_loader, source, observed)
    if state is not None:
        record.load_state_dict(state)
    setattr(optimizer, _MARK, record)
    return _on_terms(record, planned_steps, privacy_filter)


def _on_terms(record: Attachment, planned_steps: int | None, privacy_filter: PrivacyFilter | None) -> Attachment:
    """The record, with the condition of its numbers. A plan that is extended after the first step is none."""
    if planned_steps is not None:
        if record.steps and record.planned_steps not in (None, planned_steps):
            raise InputError(f"Steps were taken with planned_steps={record.planned_steps}; a plan is not extended.")
        record.planned_steps = planned_steps
    if privacy_filter is not None:
        record.pay_from(privacy_filter)
    return record


def _refuse_undescribed(source: LoaderLaw, optimizer: Any, reading: NeighborReading) -> bool:
    """What no `Run` can say is refused before training; what one says for zeroed-out records alone is a warning.

    Returns:
        Whether that was said.
    """
    divided = divided_now(optimizer)
    if source.sample_rate is None and source.sampler is None:
        return reading.warn_of(source, divided, 5)
    try:
        described_keys(source, divided, source.batches, reading.public)
    except UnsupportedError:
        if reading.adjacency is not None:
            raise
        described_keys(source, divided, source.batches, reading.zeroed.public)
        advice = [forgotten_batch_size(source), f"{SUMMED}." if _sums_help(source, reading) else ""]
        warnings.warn(
            "Opacus computes its sample rate from the number of records, and one record more or less may change it or "
            "the number it divides by: the record's bracket is for zeroing one record out (adjacency='zero-out'). For "
            "adding or removing one, say public_rate=True if the number of records is public. "
            f"{' '.join(filter(None, advice))}".rstrip(),
            CalipersWarning,
            stacklevel=4,
        )
        return True
    return reading.warn_of(source, divided, 5)


def _sums_help(source: LoaderLaw, reading: NeighborReading) -> bool:
    """Whether the run would be described for adding or removing a record if only its sums were not divided."""
    try:
        described_keys(source, Divided("sum"), source.batches, reading.public)
    except UnsupportedError:
        return False
    return True


def _accountant_of(optimizer: Any) -> Any:
    found = accountant_behind(optimizer)
    if found is None:
        raise InputError(
            "The optimizer's step hook is not the accountant's; write attach(engine, optimizer, data_loader)."
        )
    return found
