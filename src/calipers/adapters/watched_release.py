"""What acted in one release: the noise, and what the noisy sum was divided by, read when they acted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class WatchedRelease(NamedTuple):
    """The terms of one noisy sum.

    noise: its realized noise multiplier. reduction: the optimizer's, "sum" or "mean". divisor: the optimizer's
    expected_batch_size, 0 where sums are not divided. follows: whether the divisor was the number of rows in this
    very step; `divisor` is 0 then too if it is not the number that was set when the optimizer was attached.
    """

    noise: float
    reduction: str = "sum"
    divisor: float = 0.0
    follows: bool = False


@dataclass(frozen=True)
class Divided:
    """What all releases of one kind were divided by; `realized`: by the number of rows of each step."""

    reduction: str
    divisor: float = 0.0
    realized: bool = False


def divided_now(optimizer: Any) -> Divided:
    """As the optimizer would divide now."""
    summed = str(optimizer.loss_reduction) == "sum"
    return Divided("sum") if summed else Divided("mean", float(optimizer.expected_batch_size or 0))
