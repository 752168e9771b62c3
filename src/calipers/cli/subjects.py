"""What a command may measure instead of a run: a guarantee that is stated somewhere, or a dp_accounting event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from calipers.errors import InputError
from calipers.run import Run, load_runs
from calipers.stated import Guarantee, load_guarantee

if TYPE_CHECKING:
    from calipers.measure import Measurement

_NAMES = ("guarantee", "mu", "zcdp", "event")


@dataclass(frozen=True)
class StatedGuarantee:
    """A guarantee as options or a file give it."""

    guarantee: Guarantee

    def measured(self, tolerance: float) -> Measurement:
        """Its measurement."""
        from calipers.measure import measure

        return measure(self.guarantee, tolerance=tolerance)


@dataclass(frozen=True)
class EventFile:
    """A dp_accounting event written as JSON, and the neighbors it is about."""

    path: str
    adjacency: str = "add-remove"

    def measured(self, tolerance: float) -> Measurement:
        """Its measurement."""
        from calipers.adapters.dp_accounting import measurement_of
        from calipers.adapters.event_json import load_event

        return measurement_of(load_event(self.path), adjacency=self.adjacency, tolerance=tolerance)


Subject = tuple[Run, ...] | StatedGuarantee | EventFile


def with_stated_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --guarantee, --mu, --zcdp and --event."""
    options = (
        click.option(
            "--guarantee", metavar="EPS,DELTA", help="Read an (epsilon, delta) guarantee instead of a run: 8,1e-5."
        ),
        click.option("--mu", type=float, metavar="MU", help="Read a mu-GDP guarantee instead of a run."),
        click.option("--zcdp", type=float, metavar="RHO", help="Read a rho-zCDP guarantee instead of a run."),
        click.option("--event", metavar="FILE.json", help="Read a dp_accounting event instead of a run."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def stated_subject(values: dict[str, Any], given: dict[str, object], run_file: str | None) -> Subject | None:
    """What --guarantee, --mu, --zcdp, --event or a [guarantee] file state; None where a run is described."""
    stated = {name: value for name in _NAMES if (value := values.pop(name)) is not None}
    if not stated:
        return None if run_file is None or given else _unless_run(run_file)
    others = [f"--{name.replace('_', '-')}" for name in given if name != "adjacency"]
    others += ["--run"] if run_file is not None else []
    if len(stated) > 1 or others:
        names = ", ".join([*(f"--{name}" for name in stated), *others])
        raise InputError(f"{names} contradict each other: state one guarantee, or describe a run.")
    adjacency = str(given.get("adjacency", "add-remove"))
    if "event" in stated:
        return EventFile(stated["event"], adjacency)
    if "guarantee" in stated:
        return StatedGuarantee(Guarantee.parse(stated["guarantee"], adjacency))
    kind, value = next(iter(stated.items()))
    return StatedGuarantee(Guarantee(**{"mu" if kind == "mu" else "rho": value, "adjacency": adjacency}))


def load_subject(name: str) -> Subject:
    """What a file describes: a run, a guarantee, or (FILE.json) an event."""
    if name.lower().endswith(".json"):
        return EventFile(name)
    return _unless_run(name) or load_runs(name)


def _unless_run(name: str) -> StatedGuarantee | None:
    found = load_guarantee(name)
    return None if found is None else StatedGuarantee(found)
