"""Callbacks that stop a training at its privacy budget and log both bounds while it runs.

    from calipers.callbacks.lightning import PrivacyBudget       # Trainer(callbacks=[PrivacyBudget(...)])
    from calipers.callbacks.transformers import PrivacyBudget    # trainer.add_callback(PrivacyBudget(...))
    from calipers.callbacks.keras import PrivacyBudget           # model.fit(..., callbacks=[PrivacyBudget(...)])
    from calipers.callbacks import BudgetGuard                   # a loop of your own

Each asks *before* a step whether the run with that step is still proven to be within the budget.
"""

from __future__ import annotations

from calipers.callbacks.guard import BudgetGuard, BudgetSpent

__all__ = ["BudgetGuard", "BudgetSpent"]
