"""The page of theorems: every statement of the registry, what it says, and the function that computes it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import calipers
from _generate.text import short_authors
from calipers import citations
from calipers.citations import Source, Statement

INTRODUCTION = """# Theorems

Every number of Calipers rests on a statement: a theorem, a definition or a test, of others or derived
[here](../mathematics.md). This page lists the whole registry, `calipers.citations`, as it stood when the page was
built. Functions are named without the leading `calipers.`; a statement with a command can be evaluated by itself:

```console
$ calipers theorem chua-prop-3.1 --epsilon 4 --noise-multiplier 0.4
value = 0.2438198973
exact value: delta_D(epsilon) = value for deterministic batches, one epoch
Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang 2024, Proposition 3.1
```

`calipers theorem NAME --explain` lists the parameters and their domains. A direction ("upper bound", "lower bound")
says how the returned value stands to the truth; "asymptotic" values bound nothing.
"""


def pages() -> dict[str, str]:
    """theorems.md: the sources in the order of the registry, each with its statements."""
    _import_everything()
    from calipers.theorems import THEOREMS

    commands: dict[str, list[str]] = {}
    for name, entry in THEOREMS.items():
        commands.setdefault(entry.statement, []).append(f"`calipers theorem {name}` ({entry.direction.value})")
    by_source: dict[str, list[Statement]] = {}
    for statement in citations.STATEMENTS.values():
        by_source.setdefault(statement.source.key, []).append(statement)
    parts = [INTRODUCTION]
    for key, statements in sorted(by_source.items(), key=lambda item: -len(item[1])):
        parts += _section(citations.SOURCES[key], statements, commands)
    return {"theorems.md": "\n".join(parts)}


def _import_everything() -> None:
    """Run every `@implements`. Modules whose optional library is absent register nothing that others lack."""
    for module in pkgutil.walk_packages(calipers.__path__, "calipers."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                if (error.name or "calipers").partition(".")[0] == "calipers":
                    raise


def _section(source: Source, statements: list[Statement], commands: dict[str, list[str]]) -> Iterator[str]:
    if source.key == "calipers":
        heading = "Derived in this documentation"
        cited = "Proofs: on the pages named; [the mathematics](../mathematics.md) lists its chapters."
    else:
        heading = f"{short_authors(source)} ({source.year})"
        cited = f"{source.authors} ({source.year}). *{source.title}.* {source.where}."
    yield f"## {heading}\n\n{_plain(cited) if source.key != 'calipers' else cited}\n"
    for statement in statements:
        places = dict.fromkeys(citations.IMPLEMENTATIONS.get(statement.key, ()))
        rest = [f"{command}." for command in commands.get(statement.key, ())]
        if places:
            rest.append("Computed by " + ", ".join(f"`{place.removeprefix('calipers.')}`" for place in places) + ".")
        where = _plain(statement.where[:1].upper() + statement.where[1:])
        yield f"{where}\n: {_plain(statement.says)}\n" + (f"\n  {' '.join(rest)}\n" if rest else "")


def _plain(text: str) -> str:
    """Text whose stars, carets and underscores are not markup."""
    italics = text.count(" *") == 1 and ".* " in text
    for sign in "_<[" + ("" if italics else "*"):
        text = text.replace(sign, f"\\{sign}")
    return text
