"""Whether learning rates follow the sizes of batches.

An update is the learning rate times the noisy sum, so a rate of c/n for a batch of n records divides by the realized
batch size: the scale of the noise shows the size, whatever the noise. It is worse than a divisor that is known to be n
where momentum, Adam or weight decay come between, since rate and sum do not act as one quotient there.

Only this one is recognized: in steps one after the other on batches of one loader, the rate changes and rate times
records does not. A schedule that counts steps would have to meet the sizes of several batches in a row by accident.
"""

from __future__ import annotations

import math
from typing import Any

FOLLOWS = (
    "The learning rate times the number of records in the batch stays the same while the learning rate changes: that "
    "is division by the realized batch size, which shows in the scale of the noise, and nothing is proven. Divide the "
    "learning rate by a constant, the batch size that was configured."
)
_CHANGES = 3
"""So many changes of the rate in a row that a batch's size explains are no accident."""
_CLOSE = 1e-6


class LearningRates:
    """The rates of one optimizer's parameter groups, step by step."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._loader: int | None = None
        self._size = 0
        self._rates: list[float] = []
        self._explained: list[int] = []

    def follow(self, loader: int | None, records: int) -> bool:
        """One more step is about to move parameters; whether some rate is seen to follow the sizes of batches."""
        rates = [float(group.get("lr", 0.0)) for group in self._optimizer.param_groups]
        size = max(records, 1)
        if loader is None or loader != self._loader or len(rates) != len(self._rates):
            self._explained = [0] * len(rates)
        else:
            steps = zip(self._explained, self._rates, rates, strict=True)
            self._explained = [self._count(sofar, before, now, size) for sofar, before, now in steps]
        self._loader, self._size, self._rates = loader, size, rates
        return max(self._explained, default=0) >= _CHANGES

    def _count(self, sofar: int, before: float, now: float, size: int) -> int:
        """Changes in a row that sizes explain; one that they do not explain begins anew."""
        if not math.isclose(before * self._size, now * size, rel_tol=_CLOSE):
            return 0
        return sofar + (not math.isclose(before, now, rel_tol=_CLOSE))
