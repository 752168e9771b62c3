"""The tables, figures and quoted numbers of the papers, computed again next to what was printed.

One package per paper, named by its key in `calipers.citations`. Its `items.toml` says which tables and figures there
are and what is to be remarked about each, `published.toml` what the paper prints, and its modules compute; `registry`
finds the items, computes one and writes its files.
"""

from __future__ import annotations
