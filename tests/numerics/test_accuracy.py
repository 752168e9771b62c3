"""The functions underneath keep what `calipers.numerics.accuracy` trusts them with, by ball arithmetic."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from flint import arb, ctx

from calipers.numerics.accuracy import TRUSTED, Trusted

SAMPLES = 1500


def tail(x: arb) -> arb:
    """Phi(x)."""
    return (-x / arb(2).sqrt()).erfc() / 2


def quantile(p: arb, start: float) -> arb:
    """Phi^-1(p) by Newton steps from a double; the last step bounds the error."""
    x = arb(start)
    for _ in range(6):
        x = (x - (tail(x) - p) * (2 * arb.pi()).sqrt() * (x * x / 2).exp()).mid()
    return x


EXACT = {
    "exp": lambda x: x.exp(),
    "expm1": lambda x: x.expm1(),
    "log": lambda x: x.log(),
    "log1p": lambda x: (1 + x).log(),
    "erfcx": lambda x: (x * x).exp() * x.erfc(),
    "ndtr": tail,
    "log_ndtr": lambda x: tail(x).log(),
}


def arguments(trusted: Trusted, rng: random.Random) -> list[float]:
    """Even over the range, and even over magnitudes on either side of zero."""
    low, high = trusted.low, trusted.high
    found = [rng.uniform(low, high) for _ in range(SAMPLES // 3)]
    for sign, end in ((-1.0, -low), (1.0, high)):
        if end > 0.0:
            start = low if low > 0.0 else min(1e-18, end)
            found += [sign * math.exp(rng.uniform(math.log(start), math.log(end))) for _ in range(SAMPLES // 3)]
    return [x for x in found if low <= x <= high]


def worst(trusted: Trusted, seed: int) -> tuple[float, float]:
    """(largest relative error in units of 2^-53, where)."""
    rng = random.Random(seed)
    places = arguments(trusted, rng)
    # A whole array, since vector code and scalar code need not agree.
    values = trusted.function(np.array(places))
    found = (0.0, math.nan)
    for x, value in zip(places, values, strict=True):
        truth = quantile(arb(x), float(value)) if trusted.name == "ndtri" else EXACT[trusted.name](arb(x))
        if truth == 0:
            assert value == 0.0
            continue
        error = abs(arb(float(value)) / truth - 1) * arb(2) ** 53
        found = max(found, (float(error.mid()) + float(error.rad()), x))
    return found


@pytest.mark.parametrize("trusted", TRUSTED, ids=lambda one: f"{one.name}-{one.high:g}")
def test_the_errors_stay_within_what_is_trusted(trusted: Trusted) -> None:
    """On this machine, with this NumPy and SciPy."""
    # log Phi(37) = -1e-299 needs a thousand bits of Phi.
    saved, ctx.prec = ctx.prec, 1200 if trusted.name == "log_ndtr" else 400
    try:
        error, place = worst(trusted, 3)
    finally:
        ctx.prec = saved
    assert error <= trusted.units, f"{trusted.name}({place!r})"
