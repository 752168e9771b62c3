"""Table 2: what each release of Opacus divides its noisy sum by.

Every entry was read in the published package, most were run; the rules and how each was checked are in
`calipers.opacus_releases`. A row here counts the releases for which our reading and the paper's agree.
"""

from __future__ import annotations

from calipers.opacus_releases import RELEASES, VERSIONS, release_of
from calipers.papers.items import ItemProgress, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.papers.wang2026 import published

_WORDS = {"A": "|B|", "EA": "N q", "FEA": "floor(N q)"}
_BY_MECHANISM = {"ASGM": "realized", "EASGM": "expected", "FEASGM": "floor"}


def _span(versions: tuple[str, ...]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def table_2(progress: ItemProgress) -> Computed:
    """The divisor of every release from 0.9.0 to 1.5.4."""
    table, lines = Sheet("releases"), Sheet("lines", listed=False)
    for row in watched(published.TABLE_2, progress):
        found = {version: release_of(version) for version in row.versions}
        checked = " and ".join(dict.fromkeys(entry.verified for entry in found.values()))
        # How many releases of a row divide by what the paper says, under the mechanism it names.
        said = published.DIVISORS[row.divisor], row.mechanism
        agreeing = sum((entry.normalization, entry.mechanism) == said for entry in found.values())
        lines.add(span=_span(row.versions), word=_WORDS[row.divisor], count=len(found), agreeing=agreeing)
        lines.unlisted(mechanism=row.mechanism, checked=checked)
        for version, entry in found.items():
            theirs = {"commit": row.commit, "printed_divisor": row.divisor, "printed_mechanism": row.mechanism}
            ours = {"divisor": entry.normalization, "mechanism": entry.mechanism, "checked": entry.verified}
            table.add(version=version, **theirs, **ours)
    # Section 1 counts 0.14 to 1.4 as dividing by N q; Table 2 and the packages say floor(N q) from 1.0 on.
    first, last = (VERSIONS.index(version) for version in published.INTRODUCTION_EXPECTED)
    counted, quoted = VERSIONS[first : last + 1], Sheet("quoted", listed=False)
    expected = sum(release_of(version).normalization == "expected" for version in counted)
    for version, mechanism in published.INTRODUCTION:
        agrees = int(release_of(version).normalization == _BY_MECHANISM[mechanism])
        quoted.add(version=version, mechanism=mechanism, agrees=agrees)
    newer = [version for release in RELEASES if not release.commit for version in release.versions]
    introduction = Sheet("introduction").unlisted(span=_span(counted), count=len(counted), expected=expected)
    return Computed([table, lines, introduction, quoted], {"newer": ", ".join(newer)})
