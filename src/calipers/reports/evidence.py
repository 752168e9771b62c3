"""The evidence behind the numbers of a report: theorem, attack, evaluated proof or statistics.

Every end of every bracket has one piece of evidence. The section lists each piece once, with all ends it proves or
shows, and the publications in full below.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from calipers.bracket import Evidence, Kind
from calipers.citations import SOURCES, Source
from calipers.numerics.decimals import setting
from calipers.reports.document import Block, Items, Prose, Section, Table

BEHIND = "Proofs and attacks behind each number"
"""The title of the section."""
_MU = "mu up to "
_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z])")
KINDS = {
    Kind.THEOREM: "proof",
    Kind.TEST: "attack",
    Kind.NUMERICAL: "computed proof",
    Kind.CONJECTURE: "conjecture, not a bound",
    Kind.STATISTICAL: "statistical",
}


def evidence_section(
    evidence: Iterable[tuple[Evidence, Sequence[str]]], whose: str = "", said_first: tuple[Prose, ...] = ()
) -> Section:
    """Which theorem, attack or computation is behind which numbers, each given once; then the publications in full."""
    listed = list(evidence)
    columns = ("proves or shows", "kind", "statement or test", "source")
    table = Table("Evidence", columns, tuple(map(tuple, evidence_rows(listed))), wide=True)
    reported = any(name.startswith(_MU) for _, names in listed for name in names)
    cited = references([found for found, _ in listed], with_mu=reported)
    blocks: tuple[Block, ...] = (*said_first, table, Items(cited))
    return Section(f"{BEHIND}{whose}", blocks, detail=True)


_OWN = 2
"""Sentences that a test or a proof may have of its own and still be the same otherwise."""


class EvidenceRow(NamedTuple):
    """One piece of evidence in words."""

    licenses: str
    kind: str
    statement: str
    source: str


def evidence_rows(evidence: Iterable[tuple[Evidence, Sequence[str]]]) -> list[EvidenceRow]:
    """Each piece after what it proves or shows; sentences that an earlier piece of its kind began with are left out."""
    listed = list(evidence)
    every = [name for _, names in listed for name in names]
    earlier: dict[tuple[str, str], list[tuple[list[str], str]]] = {}
    found = []
    for piece, names in listed:
        kind, sentences = kind_text(piece), _SENTENCE_END.split(piece.statement)
        others = earlier.setdefault((kind, piece.source), [])
        begun = ((_shared(sentences, other), name) for other, name in others)
        shared, first = max(begun, key=lambda one: one[0], default=(0, ""))
        known = min(shared, len(sentences) - 1)
        if len(sentences) - known > _OWN:  # data of its own: a record that changes sides at other marks
            known = 0
        others.append((sentences, names[0].rpartition(" (")[0] or names[0]))
        # What is shared is what an attack is played on; it has a threshold of its own.
        said = f"{kind} {'on the same data ' if piece.kind is Kind.TEST else ''}as for {first}" if known else kind
        found.append(EvidenceRow(licensed(names, every), said, " ".join(sentences[known:]), piece.source))
    return found


def _shared(sentences: Sequence[str], other: Sequence[str]) -> int:
    """How many sentences both begin with."""
    same = (one == two for one, two in zip(sentences, other, strict=False))
    return sum(1 for _ in itertools.takewhile(bool, same))


def kind_text(evidence: Evidence) -> str:
    """The kind of evidence in words, with its confidence where it has one."""
    kind = KINDS[evidence.kind]
    return f"{kind}, confidence {setting(evidence.confidence)}" if evidence.confidence is not None else kind


def licensed(names: Sequence[str], every: Sequence[str] = ()) -> str:
    """The ends that one piece of evidence is behind, those that differ only in where they are read drawn together.

    Where they are all there are of one side, or all but mu, a few words say it.
    """
    for side in ("upper", "lower"):
        whole = [name for name in every if name.endswith(f" ({side})")]
        if len(names) > 1 and list(names) == whole:
            return f"every {side} value"
        if len(names) > 1 and list(names) == [name for name in whole if not name.startswith(_MU)] != []:
            return f"every {side} value but mu{' and its regret' * (side == 'upper')}"
    families: dict[tuple[str, str], list[str]] = {}
    for name in names:
        quantity, _, end = name.rpartition(" (") if name.endswith(")") else (name, "", "")
        family, _, place = quantity.partition(" = ")
        families.setdefault((family, end.removesuffix(")")), []).append(place)
    texts = []
    for (family, end), places in families.items():
        given = f" = {', '.join(places)}" if places[0] else ""
        texts.append(f"{family}{given} ({end})" if end else f"{family}{given}")
    return "; ".join(texts)


def references(evidence: Sequence[Evidence], *, with_mu: bool = False) -> tuple[str, ...]:
    """The publications that the evidence names, in full, and the one behind the way of reporting (mu, its regret)."""
    texts = [f"{found.statement} {found.source}" for found in evidence]
    named = {key for key, entry in SOURCES.items() if any(name in text for text in texts for name in _cited_as(entry))}
    said = {"gomez2025": " Mu is reported with its regret as proposed there."} if with_mu else {}
    return tuple(sorted(f"{SOURCES[key]}{said.get(key, '')}" for key in named | {"gomez2025"}))


def _cited_as(source: Source) -> tuple[str, str]:
    """The two ways in which a text names a publication."""
    first = source.authors.partition(",")[0]
    return f"{source.authors} {source.year}", f"{first} et al. {source.year}"
