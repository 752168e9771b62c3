"""What licenses the numbers of a report: theorem, attack, certified computation or statistics.

Every end of every bracket has one piece of evidence. The section lists each piece once, with all ends it licenses, and
the publications in full below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calipers.bracket import Evidence, Kind
from calipers.citations import SOURCES, Source
from calipers.reports.document import Items, Section, Table, setting

KINDS = {
    Kind.THEOREM: "proof",
    Kind.TEST: "attack",
    Kind.NUMERICAL: "certified computation",
    Kind.CONJECTURE: "conjecture, not a bound",
    Kind.STATISTICAL: "statistical",
}


def evidence_section(evidence: Iterable[tuple[Evidence, Sequence[str]]]) -> Section:
    """Which theorem, attack or computation licenses which numbers; then the publications in full."""
    listed = list(evidence)
    rows = tuple((licensed(names), kind_text(found), found.statement, found.source) for found, names in listed)
    table = Table("Evidence", ("licenses", "kind", "statement or test", "source"), rows, wide=True)
    return Section("What licenses the numbers", (table, Items(references([found for found, _ in listed]))))


def kind_text(evidence: Evidence) -> str:
    """The kind of evidence in words, with its confidence where it has one."""
    kind = KINDS[evidence.kind]
    return f"{kind}, confidence {setting(evidence.confidence)}" if evidence.confidence is not None else kind


def licensed(names: Sequence[str]) -> str:
    """The ends that one piece of evidence licenses, those that differ only in where they are read drawn together."""
    families: dict[tuple[str, str], list[str]] = {}
    for name in names:
        quantity, _, end = name.partition(" (")
        family, _, place = quantity.partition(" = ")
        families.setdefault((family, end.removesuffix(")")), []).append(place)
    texts = []
    for (family, end), places in families.items():
        given = f" = {', '.join(places)}" if places[0] else ""
        texts.append(f"{family}{given} ({end})" if end else f"{family}{given}")
    return "; ".join(texts)


def references(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """The publications that the evidence names, in full, and the one behind the way of reporting."""
    texts = [f"{found.statement} {found.source}" for found in evidence]
    named = {key for key, entry in SOURCES.items() if any(name in text for text in texts for name in _cited_as(entry))}
    return tuple(sorted(str(SOURCES[key]) for key in named | {"gomez2025"}))


def _cited_as(source: Source) -> tuple[str, str]:
    """The two ways in which a text names a publication."""
    first = source.authors.partition(",")[0]
    return f"{source.authors} {source.year}", f"{first} et al. {source.year}"
