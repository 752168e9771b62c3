"""Compute slow items of the gallery and keep their results; see `_generate.kept`."""

from __future__ import annotations

import sys

from _generate.kept import FOLDER, keep
from calipers.papers.registry import finished, list_items

missing = [item.name for item in list_items() if item.cost == "slow" and not finished(item.name, FOLDER)]
for name in sys.argv[1:] or missing:
    print(name, flush=True)
    keep(name)
