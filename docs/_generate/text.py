"""Words of the program as text of a page."""

from __future__ import annotations

from calipers.citations import Source


def plain(text: str) -> str:
    """Text whose stars, underscores and brackets are not markup."""
    for sign in "_*<[":
        text = text.replace(sign, f"\\{sign}")
    return text


def paper_heading(source: Source) -> str:
    """Who wrote it, as a heading of the first level, and the whole citation below."""
    cited = f"{source.authors} ({source.year}). *{source.title}.* {source.where}."
    return f"# {short_authors(source)} ({source.year})\n\n{cited}\n"


def short_authors(source: Source) -> str:
    """Up to three names; the first of more."""
    names = source.authors.split(", ")
    return source.authors if len(names) <= 3 else f"{names[0]} et al."
