"""How a limit on batches treats a record: how often it is kept, given that the others fill the batch by themselves.

Every record joins with probability q; of more than B that have joined, B are kept, uniformly at random. If m >= B
others have joined, a record that joins is kept with probability B/(m + 1), and one of the others then goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calipers.domains import COUNT, POSITIVE_PROBABILITY
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window
from calipers.numerics.types import FloatArray

DEEPEST = -690.0
"""Log of the least probability of a batch size that is counted; the rest is charged."""


@dataclass(frozen=True)
class Truncation:
    """n `others`, `rate` q, batches of at most `largest`."""

    others: int
    rate: float
    largest: int

    def __post_init__(self) -> None:
        POSITIVE_PROBABILITY.check("rate", self.rate)
        COUNT.check_int("max_batch_size", self.largest)

    @property
    def rounding(self) -> float:
        """At least the relative error of every probability below."""
        return 4.0 * BINOMIAL_RELATIVE_ERROR + 1e-13

    @cached_property
    def _sizes(self) -> tuple[FloatArray, FloatArray]:
        """m >= B that matter, with their probabilities; what lies beyond them is counted at the last."""
        window = binomial_window(self.others, self.rate, DEEPEST)
        kept = window.values >= self.largest
        if not np.any(kept):
            return np.array([float(self.largest)]), np.array([window.outside])
        values, weights = window.values[kept], window.weights[kept].copy()
        if values[-1] < self.others:
            weights[-1] += window.outside
        return values, weights

    @cached_property
    def truncated(self) -> float:
        """tau = P(m >= B): the dataset without the record fills its batch by itself."""
        if self.largest > self.others:
            return 0.0
        # At most one is true, and nearer to the truth than a sum that rounding, which is added, carries beyond it.
        return min(1.0, float(np.sum(self._sizes[1])))

    @cached_property
    def room(self) -> float:
        """P(m < B)."""
        if self.truncated <= 0.5:
            return 1.0 - self.truncated
        window = binomial_window(self.others, self.rate, DEEPEST)  # without cancellation
        return float(np.sum(window.weights[window.values < self.largest])) + window.outside

    @property
    def kept(self) -> float:
        """q E[B/(m + 1)] given m >= B: the record is in a batch that the others fill; 0 where they never do."""
        return self._mean_if_full(self.rate * self.largest, 0.0)

    @property
    def missing(self) -> float:
        """1 less the same, E[(m + 1 - B + (1 - q) B)/(m + 1)]; 0 where they never do."""
        return self._mean_if_full((1.0 - self.rate) * self.largest, 1.0)

    def _mean_if_full(self, always: float, each: float) -> float:
        """The mean of (always + each (m + 1 - B))/(m + 1), positive terms alone."""
        if self.truncated == 0.0:
            return 0.0
        sizes, weights = self._sizes
        shares = (always + each * (sizes + 1.0 - self.largest)) / (sizes + 1.0)
        return float(weights @ shares / np.sum(weights))
