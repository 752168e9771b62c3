"""What computing an item finds: sheets of runs or of theorem values, of which rows and CSV files are views.

An entry of `items.toml` says which rows a sheet gives: `quantity`, `printed` and `note` are texts whose braces name
cells of a record, facts of the item or numbers that the paper prints; `value` names the cell that is compared. A record
without that cell, or with None in it, gives no such row.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from calipers.errors import InputError
from calipers.papers.items import Cell, Data, Row, Value, bounds_of

Column = Sequence[Cell] | np.ndarray[Any, Any]
SheetRecord = dict[str, Any]
Names = Mapping[str, Any]


class Sheet:
    """Records that all have the same cells, in a CSV file (if `listed`); further cells serve rows and pictures only.

    A cell that is known from both sides makes two columns of the file, NAME_lower and NAME_upper.
    """

    def __init__(self, name: str = "values", *, listed: bool = True) -> None:
        self.name, self.listed = name, listed
        self.records: list[SheetRecord] = []
        self._unlisted: set[str] = set()

    @classmethod
    def of_columns(cls, name: str, columns: Mapping[str, Column], *, listed: bool = True) -> Sheet:
        """One record from the entries of all columns, which have the same length."""
        plain = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
        sheet = cls(name, listed=listed)
        sheet.records = [dict(zip(columns, cells, strict=True)) for cells in zip(*plain, strict=True)]
        return sheet

    def add(self, **cells: Cell | Value) -> Self:
        """One record more."""
        self.records.append(cells)
        return self

    def unlisted(self, **cells: object) -> Self:
        """Further cells of the last record (of an only one, if there is none), which the CSV file leaves out."""
        self.records = self.records or [{}]
        self.records[-1] |= cells
        self._unlisted |= cells.keys()
        return self

    def column(self, name: str) -> list[Any]:
        """One cell of every record, or one side of it by its name in the file."""
        return [entry(record, name) for record in self.records]

    def where(self, **shared: Cell) -> list[SheetRecord]:
        """The records that have these cells."""
        return [record for record in self.records if all(record.get(name) == cell for name, cell in shared.items())]

    @property
    def data(self) -> Data | None:
        """The CSV file, if there is one."""
        lines = [dict(_listed(record, self._unlisted)) for record in self.records if self.listed]
        header = tuple(lines[0]) if lines else ()
        return Data(self.name, header, [list(line.values()) for line in lines]) if header else None


def entry(record: SheetRecord, name: str) -> Any:
    """A cell, or one side of it: NAME, NAME_lower or NAME_upper."""
    if name in record:
        return record[name]
    stem, _, side = name.rpartition("_")
    return bounds_of(record[stem])[("lower", "upper").index(side)]


def _listed(record: SheetRecord, unlisted: set[str]) -> Iterator[tuple[str, Cell]]:
    for name, cell in record.items():
        if name in unlisted:
            continue
        if isinstance(cell, float | int | str):
            yield name, cell
        else:
            yield from zip((f"{name}_lower", f"{name}_upper"), bounds_of(cell), strict=True)


@dataclass(frozen=True)
class Computed:
    """The sheets of an item, and facts that its remarks and rows may name."""

    sheets: Sequence[Sheet]
    facts: Mapping[str, object] = field(default_factory=dict)

    def sheet(self, view: Mapping[str, Any]) -> Sheet:
        """The sheet that a view is `of`: the first, unless it says another name."""
        return next(sheet for sheet in self.sheets if sheet.name == view.get("of", sheet.name))

    @property
    def data(self) -> tuple[Data, ...]:
        """The CSV files."""
        return tuple(data for sheet in self.sheets if (data := sheet.data) is not None)


def rows_of(views: Iterable[Mapping[str, Any]], found: Computed, names: Names) -> Iterator[Row]:
    """For every view and every record of its sheet, one row for each of its entries.

    A cell that no record has is a mistake in the description, and `InputError`: no comparison is lost in silence.
    """
    for view in views:
        records = found.sheet(view).where(**view.get("where", {}))
        for each in view["each"]:
            if not any(each["value"] in record for record in records):
                raise InputError(f"No record has the cell {each['value']!r} that a row is to show.")
        for record in records:
            known = ChainMap(record, dict(names))
            for each in view["each"]:
                value = record.get(each["value"])
                if value is not None:
                    words = [worded(each.get(key, ""), known) for key in ("quantity", "printed", "note")]
                    yield Row.of(words[0], words[1], value, each.get("basis", "bracket"), words[2])


def worded(text: str, names: Names) -> Any:
    """The text with names filled in; one that is nothing but a name is what that name stands for."""
    whole = text[1:-1]
    if text == f"{{{whole}}}" and whole in names:
        return names[whole]
    return re.sub(r"e-0(?=\d)", "e-", text.format_map(names))  # 1e-5, as everywhere else
