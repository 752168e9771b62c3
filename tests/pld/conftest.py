"""Makes the independent oracles of `tests/oracles` importable from here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
