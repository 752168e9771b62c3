"""The gate: is what was executed within the budget that somebody signed?

from calipers.gate import Budget, check
check(run, Budget(epsilon=3, delta=1e-5)).outcome      # within, unproven, exceeded or uncertified
"""

from __future__ import annotations

from calipers.gate.budget import Budget, configured, find_settings, settings_of
from calipers.gate.outcome import Checked, Outcome, check, uncertified
from calipers.gate.sources import Described, read_described

__all__ = [
    "Budget",
    "Checked",
    "Described",
    "Outcome",
    "check",
    "configured",
    "find_settings",
    "read_described",
    "settings_of",
    "uncertified",
]
