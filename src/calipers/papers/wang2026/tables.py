"""Table 2: what each release of Opacus divides its noisy sum by.

Every entry was read in the published package, most were run; the rules and how each was checked are in
`calipers.opacus_releases`. A row here counts the releases for which our reading and the paper's agree.
"""

from __future__ import annotations

from typing import Any

from calipers.opacus_releases import RELEASES, VERSIONS, release_of
from calipers.papers.items import Cell, Data, Outcome, Progress, Row
from calipers.papers.wang2026 import published

_WORDS = {"A": "|B|", "EA": "N q", "FEA": "floor(N q)"}
_BY_MECHANISM = {"ASGM": "realized", "EASGM": "expected", "FEASGM": "floor"}


def _span(versions: tuple[str, ...]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _agreeing(row: Any) -> int:
    """How many releases of a row divide by what the paper says, under the mechanism it names."""
    found = [release_of(version) for version in row.versions]
    return sum(
        entry.normalization == published.DIVISORS[row.divisor] and entry.mechanism == row.mechanism for entry in found
    )


def _introduction_rows() -> list[Row]:
    """Section 1 counts 0.14 to 1.4 as dividing by N q; Table 2 and the packages say floor(N q) from 1.0 on."""
    first, last = (VERSIONS.index(version) for version in published.INTRODUCTION_EXPECTED)
    counted = VERSIONS[first : last + 1]
    expected = sum(release_of(version).normalization == "expected" for version in counted)
    rows = [
        Row.of(
            f"Section 1: releases {_span(counted)} that divide by N q",
            str(len(counted)),
            expected,
            "exact check",
            "Table 2 and the packages: floor(N q) from 1.0.0 on",
        )
    ]
    for version, mechanism in published.INTRODUCTION:
        agrees = int(release_of(version).normalization == _BY_MECHANISM[mechanism])
        rows.append(Row.of(f"Section 1: {version} is {mechanism}", "1", agrees, "exact check", "1: yes"))
    return rows


def table_2(progress: Progress) -> Outcome:
    """The divisor of every release from 0.9.0 to 1.5.4."""
    rows: list[Row] = []
    table: list[list[Cell]] = []
    for row in published.TABLE_2:
        agreeing = _agreeing(row)
        checked = " and ".join(dict.fromkeys(release_of(version).verified for version in row.versions))
        quantity = f"{_span(row.versions)}: releases that divide by {_WORDS[row.divisor]} ({row.mechanism})"
        rows.append(Row.of(quantity, str(len(row.versions)), agreeing, "exact check", checked))
        for version in row.versions:
            found = release_of(version)
            ours = [found.normalization, found.mechanism, found.verified]
            table.append([version, row.commit, row.divisor, row.mechanism, *ours])
        progress(len(rows), len(published.TABLE_2))
    rows += _introduction_rows()
    newer = [version for release in RELEASES if not release.commit for version in release.versions]
    columns = ("version", "commit", "printed_divisor", "printed_mechanism", "divisor", "mechanism", "checked")
    return Outcome(rows, data=(Data("releases", columns, table),), facts={"newer": ", ".join(newer)})
