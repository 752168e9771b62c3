"""The same run for other neighbors, and for what nobody said about its last batch.

People do not know beforehand which neighboring relation they need, and the numbers differ: for 60,000 records in
shuffled batches of 256 (sigma 1.1, 60 epochs) epsilon at delta 1e-5 is at most 14.18 for adding or removing a record,
and 11.6 for zeroing one out. So they are shown side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calipers.bracket import Bracket
from calipers.errors import CalipersError
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.run import ADJACENCIES, Run
from calipers.samplers import scheme_of
from calipers.scope import differing, last_batch_matters, neighbors_text, only_side

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.measure.watched import OtherNeighbors


@dataclass(frozen=True)
class NeighborRelation:
    """Epsilon at `delta` for one neighboring relation, or why the run has no such neighbors.

    `last_batch` is named where it is another one than the run was read with, `side` where the numbers are for adding or
    for removing only, and nothing finite holds for the other.
    """

    adjacency: str
    words: str
    delta: float
    epsilon: Bracket | None
    refused: str = ""
    last_batch: str = ""
    side: str = ""

    def to_dict(self) -> dict[str, object]:
        """For programs; without ends where it was refused."""
        record: dict[str, object] = {"adjacency": self.adjacency, "neighbors": self.words, "delta": self.delta}
        if self.last_batch:
            record["last_batch"] = self.last_batch
        if self.side:
            record["only"] = self.side
        if self.epsilon is None:
            return record | {"refused": self.refused}
        return record | {"lower": self.epsilon.lower, "upper": self.epsilon.upper}


def relations(measurement: Measurement, delta: float) -> tuple[NeighborRelation, ...]:
    """The measured run under all adjacencies, then with its last batch treated the other way if nobody named one."""
    if not measurement.runs or measurement.stated is not None or measurement.dataset_sizes is not None:
        return ()
    runs, found = measurement.runs, []
    for adjacency in ADJACENCIES:
        if adjacency == runs[0].adjacency:
            found.append(_of_runs(runs, delta, measurement.epsilon(delta)))
        elif measurement.watched:
            found.append(_watched(adjacency, dict(measurement.watched.others)[adjacency], measurement, delta))
        else:
            found.append(_changed(runs, delta, measurement.tolerance, adjacency=adjacency))
    other = _other_last_batch(runs)
    if other:
        adjacency = runs[0].adjacency
        found.append(_changed(runs, delta, measurement.tolerance, adjacency=adjacency, last_batch=other))
    return tuple(found)


def _other_last_batch(runs: tuple[Run, ...]) -> str:
    """What else might have become of the last batch, where that was assumed and makes a difference."""
    for run in runs:
        if last_batch_matters(run) and "last_batch" in run.to_dict():
            return "keep"
    return ""


def _watched(adjacency: str, seen: OtherNeighbors, measurement: Measurement, delta: float) -> NeighborRelation:
    """Of a watched training: what its record says for these neighbors, which the keys of its runs may not show."""
    from calipers.measure import measure

    if not seen.runs:
        return NeighborRelation(adjacency, differing(adjacency, measurement.runs[0]), delta, None, seen.why)
    try:
        epsilon = measure(seen.runs, tolerance=measurement.tolerance).epsilon(delta)
    except CalipersError as error:
        return NeighborRelation(adjacency, differing(adjacency, measurement.runs[0]), delta, None, str(error))
    if not seen.attained:
        epsilon = replace(epsilon, lower=0.0)
    return _of_runs(seen.runs, delta, epsilon)


def _changed(runs: tuple[Run, ...], delta: float, tolerance: float, **change: str) -> NeighborRelation:
    from calipers.measure import measure

    adjacency, last_batch = change["adjacency"], change.get("last_batch", "")
    words = differing(adjacency, runs[0])
    try:
        changed = tuple(_with(run, change) for run in runs)
        words = neighbors_text(changed[0])
        epsilon = measure(changed, tolerance=tolerance).epsilon(delta)
    except CalipersError as error:
        return NeighborRelation(adjacency, words, delta, None, str(error), last_batch)
    found = _of_runs(changed, delta, epsilon, last_batch)
    if adjacency != "add-remove" or runs[0].adjacency == adjacency or found.side:
        return found
    numbers = dict.fromkeys([*map(shared_number, changed), "number of steps"])
    if any(run.normalization == "constant" for run in changed):
        numbers["divisor"] = None
    return replace(found, words=f"{found.words}, if {listed(numbers)} are the same for both neighbors")


def shared_number(run: Run) -> str:
    """What fixes the batches of a run, in words: neighbors have to share it."""
    scheme = scheme_of(run)
    if scheme.equal_batches:
        return "size of full batches" if run.last_batch == "keep" and scheme.whole_epochs else "batch size"
    return "batches per epoch" if scheme.whole_epochs else "sampling rate"


def listed(words: Iterable[str]) -> str:
    """Words as a sentence lists them."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _of_runs(runs: tuple[Run, ...], delta: float, epsilon: Bracket, last_batch: str = "") -> NeighborRelation:
    """What was measured of runs, for the neighbors that they have."""
    words, side = neighbors_text(runs[0]), only_side(runs)
    return NeighborRelation(runs[0].adjacency, words, delta, epsilon, last_batch=last_batch, side=side)


def _with(run: Run, change: dict[str, str]) -> Run:
    """The run with the change, which says nothing about the last batch of one that has none; its steps stay."""
    record = run.to_dict()
    return Run.from_dict(record | {key: value for key, value in change.items() if key in record})


def presence(found: tuple[NeighborRelation, ...], runs: tuple[Run, ...]) -> str:
    """Epsilon under add-remove, where it shows that being in the data at all is easier to tell than what `runs` say.

    That is where it exceeds what is proven of them.
    """
    rows = {one.adjacency: one for one in found if not one.last_batch}
    if not runs:
        return ""
    own, other = (rows[name].epsilon if name in rows else None for name in (runs[0].adjacency, "add-remove"))
    if own is None or other is None:
        return ""
    if other.lower <= own.upper:
        return ""
    at = f"at delta = {setting(rows['add-remove'].delta)}"
    if math.isinf(other.lower):
        return f"no epsilon {at} is finite"
    return f"epsilon {at} is at least {floor_digits(other.lower)}"


def last_batch_notice(found: tuple[NeighborRelation, ...], runs: tuple[Run, ...]) -> str:
    """That the last batch is taken to be dropped, with the number it would have otherwise; empty where it was named."""
    row = next((one for one in found if one.last_batch), None)
    run = next((one for one in runs if one.sizes is not None), None)
    if row is None or run is None or run.sizes is None:
        return ""
    said = _taken_to_be_dropped(*run.sizes)
    if row.epsilon is None:
        return f"{said} nothing is proven: {row.refused}"
    side = only_side([_with(run, {"last_batch": row.last_batch})]) if row.adjacency == "add-remove" else ""
    return (
        f"{said} epsilon at delta = {setting(row.delta)} lies between {floor_digits(row.epsilon.lower)} and "
        f"{ceil_digits(row.epsilon.upper)} instead{f', for {side} a record only' if side else ''}."
    )


def noise_notice(runs: tuple[Run, ...]) -> str:
    """That noise was found for a last batch that is dropped, where nobody said so; else empty."""
    for run in runs:
        if last_batch_matters(run) and run.sizes is not None:
            said = _taken_to_be_dropped(*run.sizes)
            # Added or removed, a record lengthens or shortens a kept batch, which nothing hides.
            enough = "is not" if run.adjacency == "add-remove" else "may not be"
            return f"{said} this noise {enough} enough: describe the run with last_batch = 'keep'."
    return ""


def _taken_to_be_dropped(size: int, batch: int) -> str:
    rest = size % batch
    if not rest:
        return (
            f"Nobody said what becomes of a last, shorter batch: there is none ({size:,} = {size // batch:,} x "
            f"{batch:,}), but one record more or fewer makes one. It is taken to be dropped (last_batch = 'drop', "
            "drop_last=True). If the loader keeps it, as PyTorch does by default,"
        )
    return (
        f"Nobody said what becomes of the {rest:,} records that do not fill a batch ({size:,} = {size // batch:,} x "
        f"{batch:,} + {rest:,}): they are taken to be dropped (last_batch = 'drop', drop_last=True). If the loader "
        "keeps them, as PyTorch does by default,"
    )
