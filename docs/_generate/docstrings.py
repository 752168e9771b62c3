"""Docstrings of Calipers for autodoc: `names` in single backquotes are code."""

from __future__ import annotations

import re

_NAME = re.compile(r"(?<![`:])`([^`\n]+)`(?!`)")


def to_rst(_app: object, _what: str, _name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """`x` becomes ``x``, which reStructuredText sets as code."""
    lines[:] = [_NAME.sub(r"``\1``", line) for line in lines]
