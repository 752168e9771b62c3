"""The tables, figures and quoted numbers of the papers, computed again beside what was printed.

One module (or package) per paper, named by its key in `calipers.citations`; each offers `ITEMS`. `registry` finds
them, computes one and writes its files.
"""

from __future__ import annotations
