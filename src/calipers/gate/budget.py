"""A privacy budget, and the places where a project may write it down.

    [tool.calipers]              # pyproject.toml; plain [calipers] works too, there and in a run file
    epsilon = 3
    delta = 1e-5
    runs = ["run.toml"]          # pyproject.toml only: what `calipers check` looks at when it is given nothing

What is said nearest wins, key by key: options of the command, then the run file, then pyproject.toml. There is no
default delta: a budget without one is no budget. A run file, or the marker of a test, may be stricter than its project,
never looser: a larger epsilon or delta is refused, and which guarantee the budget is about, neighbors and view, is
decided where the budget is given. A pyproject.toml that cannot be read is refused: nobody knows which rule stood in it.
The nearest one with a budget counts; a table without a key of a budget hides none further up, and half a budget below
another is refused.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from calipers.domains import NON_NEGATIVE, OPEN_UNIT, choice
from calipers.errors import InputError
from calipers.run import ADJACENCIES, VIEWS, Run
from calipers.run_keys import known, read_toml
from calipers.synonyms import adjacency_named

BUDGET_KEYS = ("epsilon", "delta", "adjacency", "view")
TABLE = "calipers"


_USUAL_VIEW = "worst-case"
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

    names_view: ClassVar[bool] = False
    """Whether the view was given: an attribute of every budget, and no key of it."""

    epsilon: float
    delta: float
    adjacency: str | None = None
    view: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names_view", bool(self.view))
        object.__setattr__(self, "view", self.view or _USUAL_VIEW)
        for name in _NUMBERS:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.adjacency is not None:
            named = adjacency_named(self.adjacency)
            object.__setattr__(self, "adjacency", choice("adjacency", named, ADJACENCIES))
        choice("view", self.view, VIEWS)

    def asked_of(self, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """The runs, about the budget's adjacency where they name none themselves; a view that both have is named.

        Args:
            runs: the phases of one run.

        Returns:
            The same, each with its own adjacency or the budget's.
        """
        return asked_of(runs, self.adjacency, self.view if self.names_view else None)

    def about(self, runs: tuple[Run, ...], assumed: Sequence[str] | None = None) -> None:
        """Refuse runs that answer another question than the budget asks.

        Args:
            runs: the phases of one run.
            assumed: what its receipt calls assumed, for a run that stands in one.

        Raises:
            InputError: their view or adjacency is not the budget's; the message says what to change.
        """
        for run in runs:
            refuse_other_view(run, self.view, run.assumed if assumed is None else assumed)
            if self.adjacency is not None and run.adjacency != self.adjacency:
                if "adjacency" in (assumed or ()):
                    raise InputError(
                        f"The budget is about adjacency={self.adjacency!r}, and the receipt states numbers for "
                        f"{run.adjacency!r}, which nobody named; write a receipt of a run that names "
                        f"{self.adjacency!r}, or check the run file."
                    )
                raise InputError(
                    f"The budget is about adjacency={self.adjacency!r}, the run is described with "
                    f"adjacency={run.adjacency!r}; change one of them."
                )

    def to_dict(self) -> dict[str, object]:
        """The keys that were given."""
        named = {name: getattr(self, name) for name in BUDGET_KEYS}
        return {name: value for name, value in named.items() if value is not None}


def asked_of(runs: tuple[Run, ...], adjacency: str | None, view: str | None) -> tuple[Run, ...]:
    """The runs, about this adjacency where they name none themselves; the view is named where it is the run's."""

    def asked(run: Run) -> Run:
        given: dict[str, object] = {}
        if adjacency is not None and "adjacency" in run.assumed:
            given["adjacency"] = adjacency
        if view is not None and "view" in run.assumed and run.view == view:
            given["view"] = view
        return run.replace(**given) if given else run

    return tuple(map(asked, runs))


def refuse_other_view(run: Run, view: str, assumed: Sequence[str]) -> None:
    """Refuse a run in another view than the budget's; `assumed`: the keys of the run that nobody named."""
    if run.view == view:
        return
    said = f"the run is described with view={run.view!r}"
    if "view" in assumed:
        said = f"and nobody named a view of the run, so {run.view!r} is assumed"
    here, there = ("run", "budget") if view == "isolated" else ("budget", "run")
    raise InputError(
        f"The budget is about view={view!r}, {said}; leave view "
        f'out of the {there}, or say view = "isolated" in the {here} if that weaker adversary is meant.'
    )


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


def refuse_looser(
    own: Mapping[str, object],
    options: Mapping[str, object],
    project: Mapping[str, object],
    *,
    speaker: tuple[str, str] = ("[calipers]", "A run file"),
) -> None:
    """Refuse the budget of a run file, or of a test's marker, that allows more, or promises less, than one elsewhere.

    Args:
        own: what the run file says under [calipers], or the marker.
        options: what whoever checks says, which counts in any case.
        project: what pyproject.toml says.
        speaker: how a sentence calls the place of `own`, and what has it.

    Raises:
        InputError: `own` has a larger epsilon or delta than the project, or says view = "isolated" or an adjacency,
            and the places that give the budget do not agree.
    """
    place_said, holder = speaker
    given = {key: value for place in (project, options) for key, value in place.items() if value is not None}
    if not set(given) & set(BUDGET_KEYS):
        return
    for key in _NUMBERS:
        if options.get(key) is not None or own.get(key) is None or key not in project:
            continue
        if _number(key, own[key]) > _number(key, project[key]):
            raise InputError(
                f"{place_said} allows {key} up to {own[key]!r}, and the project's budget in pyproject.toml up to "
                f"{project[key]!r}. {holder} may only be stricter: leave {key} out there, or change the project's."
            )
    for key, decided in (("view", given.get("view", _USUAL_VIEW)), ("adjacency", given.get("adjacency"))):
        said = own.get(key)
        if said in (None, decided, _USUAL_VIEW) or decided is None:
            continue
        if key == "adjacency" and adjacency_named(str(said)) == adjacency_named(str(decided)):
            continue
        raise InputError(
            f"{place_said} says {key} = {said!r}, but the budget is given elsewhere and is about {decided!r}; leave "
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
    """The budget that counts in a folder (the current one), and the run files listed nearest to it.

    The budget is that of the nearest pyproject.toml, from the folder upwards, whose table has a key of a budget: a
    table without one removes no budget further up. The runs are those of the nearest table that lists any.

    Returns:
        The file that lists the runs, from whose folder they are seen, or else that of the budget; and the settings.

    Raises:
        InputError: a file on the way cannot be read, so that nobody knows whether it has the table; or the nearest
            budget is not whole, and there is another one further up.
    """
    place, budget, lists = _searched(folder)
    return (place, budget) if lists is None else (lists[0], budget | {"runs": lists[1]})


def find_budget(folder: Path | None = None) -> tuple[Path | None, dict[str, object]]:
    """The budget alone, with the file that it stands in, found and refused as `find_settings` does."""
    return _searched(folder)[:2]


_Listed: TypeAlias = "tuple[Path, object] | None"


def _searched(folder: Path | None) -> tuple[Path | None, dict[str, object], _Listed]:
    """(the file with the budget, its keys of a budget, the runs with the file that lists them)."""
    start = (Path.cwd() if folder is None else folder).absolute()
    lists: _Listed = None
    half: tuple[Path, dict[str, object]] | None = None
    for place in (start, *start.parents):
        candidate = place / "pyproject.toml"
        if not candidate.is_file() or not _tables(read_toml(str(candidate), "project file")):
            continue
        table = settings_of(candidate, runs_allowed=True)
        if lists is None and "runs" in table:
            lists = candidate, table["runs"]
        if not table.keys() & set(BUDGET_KEYS):
            continue
        if half is not None:
            raise InputError(_not_mixed(*half, candidate))
        budget = {key: value for key, value in table.items() if key in BUDGET_KEYS}
        if _NUMBERS.keys() <= table.keys():
            return candidate, budget, lists
        half = candidate, budget
    return (None, {}, lists) if half is None else (*half, lists)


def _not_mixed(place: Path, table: Mapping[str, object], further: Path) -> str:
    given = [key for key in BUDGET_KEYS if key in table]
    missing = [key for key in _NUMBERS if key not in table]
    return (
        f"{place}: the budget has {' and '.join(given)} but not {' and '.join(missing)}, and {further} has a budget "
        "too. Budgets of two files are not mixed: write the whole budget into the nearer one, or none."
    )


def _tables(record: Mapping[str, object]) -> dict[str, object]:
    """The tables of a file that hold a budget, by the names they have there."""
    places = {TABLE: record, f"tool.{TABLE}": record.get("tool")}
    return {name: place[TABLE] for name, place in places.items() if isinstance(place, Mapping) and TABLE in place}
