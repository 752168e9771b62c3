"""What the elementary and special functions underneath are trusted with, in one place.

NumPy and SciPy promise no accuracy, and what they deliver depends on the machine's vector units. Every bound of
Calipers rests on the constants of this file: on its range each function has at most so many units of roundoff
(u = 2^-53) of relative error, for arguments taken as the doubles they are. They are checked against ball arithmetic
(Arb) on many arguments of every range; run this once on a new machine, a new NumPy or a new SciPy. A random check is no
proof: the constants are at least twice the worst error seen.

How they are used. Exponentials of log masses and sums of a dozen of them: `pld/core/pair.py`, `pld/core/pmf.py`
(`ATOM_ROUNDING`, 4e-15 = 36 u). Normal tails through `erfcx`, `ndtr`, `log_ndtr`, `ndtri`: `numerics/normal.py`
(`GAUSSIAN_RELATIVE_ERROR`, 1e-12 = 9,000 u, which also pays for quadrature) and `pld/allocation/average_tests.py`,
where the x^2 units of `log_ndtr` far to the right are charged with the rounding of its argument.

**Inputs.** A run is what its doubles say: q, sigma, delta and epsilon are exact by definition. Three numbers are
computed from them. 1/sigma is rounded once (u) and moves a log ratio z/sigma - 1/(2 sigma^2) by at most 2 u times
its size plus that of its parts, which `Law.shift_error` (8e-16 (30 + |log L|) a step) covers. q = B/N and the
participation r = kept/N are rounded once (u): 1 - q + q L moves by a relative 2 u at most, one sixteenth of the
same charge, and masses of both hypotheses by as much, which `ATOM_ROUNDING` covers. mu of fixed batches is charged
eight units (`measure/bounds.py`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from flint import arb, ctx
from scipy import special

from calipers.numerics.types import FloatArray

SAMPLES = 1500


@dataclass(frozen=True)
class Trusted:
    """`function` has relative error at most `units` 2^-53 on [low, high]."""

    name: str
    function: Callable[[FloatArray], FloatArray]
    low: float
    high: float
    units: float


TRUSTED = (
    Trusted("exp", np.exp, -700.0, 700.0, 4.0),
    Trusted("expm1", np.expm1, -40.0, 700.0, 8.0),
    Trusted("log", np.log, 1e-300, 1e300, 4.0),
    Trusted("log1p", np.log1p, -0.999, 1e300, 8.0),
    Trusted("erfcx", special.erfcx, 0.0, 1e8, 16.0),
    # e^(x^2) with x^2 rounded: about x^2 units, as in both normal tails, whose argument is divided by sqrt 2 first.
    Trusted("erfcx", special.erfcx, -26.0, 0.0, 2000.0),
    Trusted("ndtr", special.ndtr, -37.0, 37.0, 4000.0),
    Trusted("log_ndtr", special.log_ndtr, -1e4, 4.0, 64.0),
    Trusted("log_ndtr", special.log_ndtr, 4.0, 37.0, 4000.0),
    Trusted("ndtri", special.ndtri, 1e-300, 0.499, 64.0),
)


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
