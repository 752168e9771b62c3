"""A privacy budget, and the places where a project may write it down.

    [tool.calipers]              # pyproject.toml; plain [calipers] works too, there and in a run file
    epsilon = 3
    delta = 1e-5
    runs = ["run.toml"]          # pyproject.toml only: what `calipers check` looks at when it is given nothing

What is said nearest wins, key by key: options of the command, then the run file, then pyproject.toml. There is no
default delta: a budget without one is no budget. A run file may be stricter than its project, never looser: a larger
epsilon or delta is refused, and which guarantee the budget is about, neighbors and view, is decided where the budget
is given. A pyproject.toml that cannot be read is refused: nobody knows which rule stood in it.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from calipers.domains import NON_NEGATIVE, OPEN_UNIT, choice
from calipers.errors import InputError
from calipers.run import ADJACENCIES, VIEWS, Run
from calipers.run_keys import known, read_toml
from calipers.synonyms import adjacency_named

BUDGET_KEYS = ("epsilon", "delta", "adjacency", "view")
TABLE = "calipers"


_NUMBERS = {"epsilon": NON_NEGATIVE, "delta": OPEN_UNIT}


def _number(name: str, value: object) -> float:
    """Epsilon or delta of a budget, wherever it was written; `InputError` elsewhere."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"Expected the budget's {name} to be a number (without quotes), got {value!r}.")
    if value not in _NUMBERS[name]:
        raise InputError(f"Expected the budget's {name} in {_NUMBERS[name]}, got {value!r}.")
    return float(value)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """(epsilon, delta), and which guarantee it is about.

    adjacency: where it is given, runs that name another one are refused, and those that name none are measured for it.
    view: "worst-case" unless somebody says that the weaker adversary of the "isolated" view is what the budget is
    about; a run in the other view is refused.
    """

    epsilon: float
    delta: float
    adjacency: str | None = None
    view: str = "worst-case"

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.adjacency is not None:
            named = adjacency_named(self.adjacency)
            object.__setattr__(self, "adjacency", choice("adjacency", named, ADJACENCIES))
        choice("view", self.view, VIEWS)

    def asked_of(self, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """The runs, about the budget's adjacency where they name none themselves.

        Args:
            runs: the phases of one run.

        Returns:
            The same, each with its own adjacency or the budget's.
        """
        if self.adjacency is None:
            return runs
        return tuple(run.replace(adjacency=self.adjacency) if "adjacency" in run.assumed else run for run in runs)

    def about(self, runs: tuple[Run, ...]) -> None:
        """Refuse runs that answer another question than the budget asks.

        Args:
            runs: the phases of one run.

        Raises:
            InputError: their view or adjacency is not the budget's; the message says what to change.
        """
        for run in runs:
            if run.view != self.view:
                here, there = ("run", "budget") if self.view == "isolated" else ("budget", "run")
                raise InputError(
                    f"The budget is about view={self.view!r}, the run is described with view={run.view!r}; leave view "
                    f'out of the {there}, or say view = "isolated" in the {here} if that weaker adversary is meant.'
                )
            if self.adjacency is not None and run.adjacency != self.adjacency:
                raise InputError(
                    f"The budget is about adjacency={self.adjacency!r}, the run is described with "
                    f"adjacency={run.adjacency!r}; change one of them."
                )

    def to_dict(self) -> dict[str, object]:
        """The keys that were given."""
        named = {name: getattr(self, name) for name in BUDGET_KEYS}
        return {name: value for name, value in named.items() if value is not None}


def configured(*places: Mapping[str, object]) -> Budget:
    """The budget that these places say together; an earlier one wins, key by key."""
    merged: dict[str, object] = {}
    for place in reversed(places):
        merged |= {key: value for key, value in place.items() if key in BUDGET_KEYS and value is not None}
    missing = [name for name in ("epsilon", "delta") if name not in merged]
    if missing:
        raise InputError(
            f"A budget needs {' and '.join(missing)}: give {' and '.join(f'--{name}' for name in missing)}, or write "
            "[tool.calipers] with epsilon and delta into pyproject.toml, or [calipers] into the run file."
        )
    return Budget(**merged)  # type: ignore[arg-type]  # every value is checked by __post_init__


def refuse_looser(own: Mapping[str, object], options: Mapping[str, object], project: Mapping[str, object]) -> None:
    """Refuse the budget table of a run file that allows more, or promises less, than the budget given elsewhere.

    Args:
        own: what the run file says under [calipers].
        options: what whoever checks says, which counts in any case.
        project: what pyproject.toml says.

    Raises:
        InputError: `own` has a larger epsilon or delta than the project, or says view = "isolated" or an adjacency,
            and the places that give the budget do not agree.
    """
    given = {key: value for place in (project, options) for key, value in place.items() if value is not None}
    if not set(given) & set(BUDGET_KEYS):
        return
    for key in _NUMBERS:
        if options.get(key) is not None or key not in own or key not in project:
            continue
        if _number(key, own[key]) > _number(key, project[key]):
            raise InputError(
                f"[calipers] allows {key} up to {own[key]!r}, and the project's budget in pyproject.toml up to "
                f"{project[key]!r}. A run file may only be stricter: leave {key} out there, or change the project's."
            )
    for key, decided in (("view", given.get("view", Budget.view)), ("adjacency", given.get("adjacency"))):
        said = own.get(key)
        if said in (None, decided, Budget.view) or decided is None:
            continue
        if key == "adjacency" and adjacency_named(str(said)) == adjacency_named(str(decided)):
            continue
        raise InputError(
            f"[calipers] says {key} = {said!r}, but the budget is given elsewhere and is about {decided!r}; leave "
            f"{key} out there, or say it where the budget is given."
        )


def settings_of(path: str | Path, *, runs_allowed: bool = False) -> dict[str, object]:
    """The budget table of one TOML file, empty where there is none."""
    name = str(path)
    record = read_toml(name, "project file" if runs_allowed else "run file")
    given = _tables(record)
    if len(given) > 1:
        raise InputError(f"{name}: [calipers] and [tool.calipers] contradict each other; keep one of them.")
    if not given:
        return {}
    ((written, table),) = given.items()
    if not isinstance(table, dict):
        raise InputError(f"{name}: expected [{written}] to be a table, got {table!r}.")
    try:
        for key in table:
            known(key, (*BUDGET_KEYS, "runs") if runs_allowed else BUDGET_KEYS)
            if key in _NUMBERS:
                _number(key, table[key])
    except InputError as error:
        raise InputError(f"{name}: [{written}]: {error}") from error
    return table


def find_settings(folder: Path | None = None) -> tuple[Path | None, dict[str, object]]:
    """The nearest pyproject.toml with a budget table, from `folder` (the current one) upwards, and the table.

    Raises:
        InputError: one on the way cannot be read, so that nobody knows whether it has the table.
    """
    start = (Path.cwd() if folder is None else folder).absolute()
    for place in (start, *start.parents):
        candidate = place / "pyproject.toml"
        if candidate.is_file() and _tables(read_toml(str(candidate), "project file")):
            return candidate, settings_of(candidate, runs_allowed=True)
    return None, {}


def _tables(record: Mapping[str, object]) -> dict[str, object]:
    """The tables of a file that hold a budget, by the names they have there."""
    places = {TABLE: record, f"tool.{TABLE}": record.get("tool")}
    return {name: place[TABLE] for name, place in places.items() if isinstance(place, Mapping) and TABLE in place}
