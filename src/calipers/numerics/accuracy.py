"""What the elementary and special functions underneath are trusted with, in one place.

NumPy and SciPy promise no accuracy, and what they deliver depends on the machine's vector units. Every bound of
Calipers rests on the constants of this file: on its range each function has at most so many units of roundoff
(u = 2^-53) of relative error, for arguments taken as the doubles they are. `tests/numerics/test_accuracy.py` checks
them against ball arithmetic (Arb) on many arguments of every range; run it once on a new machine, a new NumPy or a new
SciPy. A random check is no proof: the constants are at least twice the worst error seen.

How they are used. Exponentials of log masses and sums of a dozen of them: `laws/core/pair.py`, `laws/core/law.py`
(`ATOM_ROUNDING`, 4e-15 = 36 u). Normal tails through `erfcx`, `ndtr`, `log_ndtr`, `ndtri`: `numerics/normal.py`
(`GAUSSIAN_RELATIVE_ERROR`, 1e-12 = 9,000 u, which also pays for quadrature) and `laws/allocated/average_tests.py`,
where the x^2 units of `log_ndtr` far to the right are charged with the rounding of its argument.

**Inputs.** A run is what its doubles say: q, sigma, delta and epsilon are exact by definition. Three numbers are
computed from them. 1/sigma is rounded once (u) and moves a log ratio z/sigma - 1/(2 sigma^2) by at most 2 u times
its size plus that of its parts, which `Law.shift_error` (8e-16 (30 + |log L|) a step) covers. q = B/N and the
participation r = kept/N are rounded once (u): 1 - q + q L moves by a relative 2 u at most, one sixteenth of the
same charge, and masses of both hypotheses by as much, which `ATOM_ROUNDING` covers. mu of fixed batches is charged
eight units (`measure/closed.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from calipers.numerics.types import FloatArray


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
