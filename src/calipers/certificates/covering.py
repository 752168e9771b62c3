"""Constants for the checker's proof about shuffled epochs that use every record. None of them can make it wrong.

The theorem of `calipers.laws.allocated.first_batch` leaves open how much of the weight of later batches is covered, by
how many weights of which size, and with which exponential moments this is shown: here the best of a grid.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from calipers.laws.allocated.first_batch import weights_of_records

_LOSSES, _POWERS = (1.0, 2.0, 4.0, 8.0), (0.1, 0.3, 0.5, 0.7, 0.9)
_TILTS = np.geomspace(1e-3, 40.0, 300)
_LEVELS = np.linspace(0.02, 0.8, 40)
_ROOM = 1.0 + 1e-6
"""Constants are rounded; what they are to satisfy is left some room."""


@lru_cache(maxsize=256)
def covering(width: float, batch: int, size: int, exponent: float) -> dict[str, object] | None:
    """Constants with which all but about e^-exponent is covered, as evenly as possible, or None."""
    if batch < 3 or size < 2 * batch:
        return None
    found = [each for more in _LOSSES if (each := _with_loss(width, batch, size, exponent, more))]
    return min(found, key=lambda each: each[0])[1] if found else None


def _with_loss(
    width: float, batch: int, size: int, exponent: float, more: float
) -> tuple[float, dict[str, object]] | None:
    later, batches = size / batch - 1.0, -(-size // batch) - 1
    loss = (exponent + more + 1.0 + 2.0 * width * width) / ((batch - 2) * (size - batch) / (size - 2))
    if loss >= 0.9:
        return None
    weights = weights_of_records(loss, width, batch)
    tilts = _TILTS / (weights.largest - 1.0)
    log_moments = weights.log_moment(tilts)
    highs = 1.0 + (log_moments + exponent + math.log(batches)) / (tilts * batch)
    at = int(np.argmin(highs))
    high = float(highs[at]) * _ROOM
    best: tuple[float, dict[str, object]] | None = None
    for level in 1.0 + (high - 1.0) * _LEVELS:
        exponents = log_moments - tilts * batch * (level - 1.0)
        spread = np.where(exponents < 50.0, np.exp(np.minimum(exponents, 50.0)), np.inf)
        totals = np.array(
            [
                (exponent + batches * np.log1p(y * (1.0 - y) ** ((1.0 - y) / y) * spread)) / (y * tilts * batch)
                for y in _POWERS
            ]
        )
        power, tilt = np.unravel_index(int(np.argmin(totals)), totals.shape)
        few = math.ceil(float(totals[power, tilt]) * _ROOM / (high - level))
        many = int((later - few * high) / (level * _ROOM))
        if many < 1:
            continue
        uneven = (later - few * high) ** 2 / many + few * high**2
        if best is None or uneven < best[0]:
            constants = (loss, exponent, tilts[at], level, tilts[tilt], _POWERS[power])
            names = ("loss", "exponent", "tilt", "level", "level_tilt", "power")
            best = uneven, dict(zip(names, map(_short, constants), strict=True)) | {"many": many, "few": few}
    return best


def _short(number: float) -> str:
    """A fraction next to the number, with a small denominator."""
    found = Fraction(float(number)).limit_denominator(10**9)
    return f"{found.numerator}/{found.denominator}"
