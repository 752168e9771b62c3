"""Table 2: what each release of Opacus divides its noisy sum by.

Every entry was read in the published package, most were run; the rules and how each was checked are in
`calipers.opacus_releases`. A row here counts the releases for which our reading and the paper's agree.
"""

from __future__ import annotations

from calipers.opacus_releases import RELEASES, VERSIONS, release_of
from calipers.papers.items import Cell, Data, Outcome, Progress, Row, printed
from calipers.papers.wang2026 import published

_WORDS = {"A": "|B|", "EA": "N q", "FEA": "floor(N q)"}
_BY_MECHANISM = {"ASGM": "realized", "EASGM": "expected", "FEASGM": "floor"}


def _span(versions: tuple[str, ...]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _agreeing(row: published.ReleaseRow) -> int:
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
        Row(
            f"Section 1: releases {_span(counted)} that divide by N q",
            printed(str(len(counted))),
            expected,
            expected,
            "exact check",
            "Table 2 and the packages: floor(N q) from 1.0.0 on",
        )
    ]
    for version, mechanism in published.INTRODUCTION:
        agrees = int(release_of(version).normalization == _BY_MECHANISM[mechanism])
        rows.append(Row(f"Section 1: {version} is {mechanism}", printed("1"), agrees, agrees, "exact check", "1: yes"))
    return rows


def table_2(progress: Progress) -> Outcome:
    """The divisor of every release from 0.9.0 to 1.5.4."""
    rows: list[Row] = []
    table: list[list[Cell]] = []
    for row in published.TABLE_2:
        agreeing = _agreeing(row)
        checked = " and ".join(dict.fromkeys(release_of(version).verified for version in row.versions))
        quantity = f"{_span(row.versions)}: releases that divide by {_WORDS[row.divisor]} ({row.mechanism})"
        rows.append(Row(quantity, printed(str(len(row.versions))), agreeing, agreeing, "exact check", checked))
        for version in row.versions:
            found = release_of(version)
            ours = [found.normalization, found.mechanism, found.verified]
            table.append([version, row.commit, row.divisor, row.mechanism, *ours])
        progress(len(rows), len(published.TABLE_2))
    rows += _introduction_rows()
    newer = [version for release in RELEASES if not release.commit for version in release.versions]
    remarks = (
        "Section 1 says that releases 0.14.0 to 1.4.* divide by N q and 1.5.* by floor(N q). Table 2 says floor(N q) "
        "from 1.0.0 on, and so do the packages.",
        "0.14 and 0.15 divide by N q only with poisson=True and a fixed sample rate. Given a batch size they compute "
        "q = B/N and divide by B, a constant, and the claim holds.",
        "From 1.0 on the rate itself depends on N, as 1/ceil(N/B): one record more can change q, the number of steps "
        "and the divisor at once.",
        f"Newer than the paper and the same: {', '.join(newer)}.",
    )
    columns = ("version", "commit", "printed_divisor", "printed_mechanism", "divisor", "mechanism", "checked")
    return Outcome(tuple(rows), remarks, (Data("releases", columns, table),))
