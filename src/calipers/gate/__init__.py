"""The gate: is what was executed within the budget that somebody signed?

from calipers.gate import Budget, check
check(run, Budget(epsilon=3, delta=1e-5)).outcome      # within, unproven, exceeded or uncertified
"""

from __future__ import annotations

from calipers.gate.budget import Budget as Budget
from calipers.gate.budget import asked_of as asked_of
from calipers.gate.budget import configured as configured
from calipers.gate.budget import find_budget as find_budget
from calipers.gate.budget import find_settings as find_settings
from calipers.gate.budget import refuse_looser as refuse_looser
from calipers.gate.budget import refuse_other_view as refuse_other_view
from calipers.gate.budget import settings_of as settings_of
from calipers.gate.outcome import Checked as Checked
from calipers.gate.outcome import Outcome as Outcome
from calipers.gate.outcome import check as check
from calipers.gate.outcome import uncertified as uncertified
from calipers.gate.sources import Described as Described
from calipers.gate.sources import read_described as read_described
