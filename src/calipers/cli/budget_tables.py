"""What a command takes from the budget that goes with a run file, where neither an option nor the run names it.

The tables are those of `calipers check`: [calipers] of the run file, then [tool.calipers] of pyproject.toml, searched,
read and refused by the same functions (`calipers.gate.budget`). Without a run file there is none.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from calipers.errors import InputError, UnsupportedError
from calipers.phases import as_phases
from calipers.run import Run
from calipers.run_keys import STANDARD_INPUT, read_toml
from calipers.synonyms import adjacency_named

if TYPE_CHECKING:
    from calipers.reports.answers import Questions
    from calipers.reports.document import Document
    from calipers.reports.report import Report

_MET = "calipers.budget_tables"
_TARGET = ("epsilon", "delta")
_ASKED = ("adjacency", "view")
_T = TypeVar("_T")


class BudgetTables:
    """The tables that go with a run file, and what was taken from them."""

    def __init__(self, run_file: str | None) -> None:
        self._run_file = run_file
        self._taken: dict[str, tuple[str, str]] = {}  # by key: the place, and what it says in words
        self._overruled: list[str] = []

    @functools.cached_property
    def _places(self) -> tuple[tuple[str, Mapping[str, object]], ...]:
        """The tables with their places as a sentence calls them, nearest first."""
        if self._run_file is None:
            return ()
        from calipers.gate import find_budget, settings_of

        file = "standard input" if self._run_file == STANDARD_INPUT else self._run_file
        own = {} if self._run_file.lower().endswith(".json") else settings_of(self._run_file)  # events have no tables
        place, project = find_budget()
        return (f"[calipers] in {file}", own), ("" if place is None else os.path.relpath(place), project)

    def _said(self, key: str) -> tuple[str, object] | None:
        """The nearest place that has a key, and what it says."""
        return next(((place, table[key]) for place, table in self._places if key in table), None)

    def said(self, key: str) -> object:
        """What the nearest table says of a key; None where none has it."""
        found = self._said(key)
        return None if found is None else found[1]

    def _take(self, *keys: str) -> dict[str, object]:
        """What the tables say of these keys, unless the run file's is looser than its project's."""
        if not any(map(self._said, keys)):
            return {}
        from calipers.gate import refuse_looser
        from calipers.numerics.decimals import setting

        own, project = ({key: table[key] for key in keys if key in table} for _, table in self._places)
        refuse_looser(own, {}, project)
        found: dict[str, object] = {}
        for key in keys:
            if (said := self._said(key)) is not None:
                place, value = said[0], adjacency_named(said[1]) if key == "adjacency" else said[1]
                found[key] = value
                self._taken[key] = place, f"{key} {setting(value) if isinstance(value, float | int) else value}"
        return found

    def asked_of(self, phases: tuple[Run, ...]) -> tuple[Run, ...]:
        """The phases, about the adjacency and the view of the tables where neither they nor an option name one."""
        if self._run_file is None:
            return phases
        unnamed = [key for key in _ASKED if all(key in run.assumed for run in phases)]
        for key in _ASKED:
            if key not in unnamed:
                self._overrule(key, getattr(phases[0], key))
        found = self._take(*unnamed)
        if not found:
            return phases
        from calipers.gate import asked_of, refuse_other_view

        adjacency, view = (None if key not in found else str(found[key]) for key in _ASKED)
        try:
            asked = asked_of(phases, adjacency, view)
            for run in asked if view is not None else ():
                refuse_other_view(run, str(view), run.assumed)
            return as_phases(asked)
        except (InputError, UnsupportedError) as error:  # of what the run itself does not say
            raise type(error)(f"{self.sentence} {error}") from error

    def asked_of_noise(self, subject: _T, given: Mapping[str, object]) -> _T:
        """The same of a file with a noise matrix, which has an adjacency; of anything else nothing is asked."""
        from calipers.measure import CorrelatedNoise

        if self._run_file is None or not isinstance(subject, CorrelatedNoise) or "adjacency" in given:
            return subject
        if "adjacency" in read_toml(self._run_file):
            self._overrule("adjacency", subject.adjacency)
            return subject
        found = self._take("adjacency")
        if not found:
            return subject
        return subject.replace(adjacency=str(found["adjacency"]))  # type: ignore[return-value]  # as it was

    def _overrule(self, key: str, own: str) -> None:
        """What the run says, or an option, counts; where a table says something else, that is worth a sentence."""
        said = self._said(key)
        if said is None:
            return
        place, value = said
        if adjacency_named(str(value)) != own:
            self._overruled.append(f"{key} {own} is named for this run, and counts: not {value}, from {place}.")

    def target(self, wanted: Mapping[str, float | None]) -> dict[str, float | None]:
        """The target of a calibration: what options leave open of epsilon and delta, if the tables have all of it."""
        named = {key: value for key, value in wanted.items() if value is not None}
        missing = [key for key in _TARGET if key not in named]
        if named.keys() - set(_TARGET) or not all(map(self._said, missing)):
            return dict(wanted)
        return {**wanted, **self._take(*missing)}  # type: ignore[dict-item]  # numbers: `settings_of` has checked them

    def delta(self) -> float | None:
        """The delta of the tables, where no option names one."""
        return self._take("delta").get("delta")  # type: ignore[return-value]  # the same

    def answering(self, questions: Questions) -> Questions:
        """The questions, at the delta of the tables where no option names one."""
        if not questions.delta_assumed or (delta := self.delta()) is None:
            return questions
        from dataclasses import replace

        return replace(questions, deltas=(delta,), delta_assumed=False)

    @property
    def sentence(self) -> str:
        """What was taken, and from where; empty where nothing was."""
        places: dict[str, list[str]] = {}
        for place, words in (self._taken[key] for key in (*_TARGET, *_ASKED) if key in self._taken):
            places.setdefault(place, []).append(words)
        taken = "; from ".join(f"{place}: {_listed(words)}" for place, words in places.items())
        return " ".join([*([f"From {taken}."] if taken else []), *self._overruled])

    def said_in(self, document: Document) -> Document:
        """The document with that sentence, below what was measured."""
        from dataclasses import replace

        said = self.sentence
        return replace(document, subject=f"{document.subject}\n{said}") if said else document

    def said_in_report(self, report: Report) -> Report:
        """The same of a report."""
        from dataclasses import replace

        return replace(report, document=self.said_in(report.document))

    def say_aside(self) -> None:
        """The sentence on standard error, where standard output is for programs."""
        if self.sentence:
            click.echo(self.sentence, err=True)


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def met_tables(run_file: str | None) -> BudgetTables:
    """The tables of this command's run file, kept for `budget_tables`."""
    tables = click.get_current_context().meta[_MET] = BudgetTables(run_file)
    return tables


def budget_tables() -> BudgetTables:
    """The tables of this command's run file."""
    found: BudgetTables = click.get_current_context().meta[_MET]
    return found
