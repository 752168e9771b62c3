"""What revealing and repeating do to a trade-off curve (Wang et al. 2026, Lemmas 2.6 and 3.3).

**Repeating (Lemma 2.6).** If a curve is not 1 - a, some test of one copy has a + b < 1. Run it on each of n copies and
count the rejections: binomial with probability a under the null, 1 - b under the alternative. The best test between
those two counts is a test between the n copies, so its false negative rate bounds f^(n) from above, and it falls
like e^(-n C) with C > 0 the Chernoff information of the two coins. The lemma states the limit 0; this is the number.

**Revealing (Lemma 3.3).** If mechanism i runs with probability w_i and i is revealed, the best split of the false
positive rate over the i is at least as good as the even one: T(a) <= sum w_i f_i(a). The best split itself (Lemmas 2.10
and 3.1) is `calipers.curves.TradeoffCurve.mixture`, which merges segments by slope; Lemma 3.2, that lower components
give a lower mixture, is what makes it respect the side of its curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves import TradeoffCurve
from calipers.domains import OPEN_UNIT, POSITIVE_PROBABILITY, PROBABILITY, Domain
from calipers.errors import ConditionError, InputError
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, log_binomial
from calipers.theorems.registry import theorem

_COPIES = Domain(1, 10**6, integer=True)
_MASS_ALLOWANCE = 1e-9


@theorem(
    "wang-lemma-2.6",
    copies=(_COPIES, "number of copies of f"),
    single_fpr=(OPEN_UNIT, "false positive rate of a test of one copy"),
    single_fnr=(OPEN_UNIT, "its false negative rate"),
)
def repeated_test_fnr(fpr: float, copies: int, single_fpr: float, single_fnr: float) -> float:
    """The false negative rate of the best test that counts rejections of one test, rounded up.

    Post-condition: at least f^(copies)(fpr). Raises `ConditionError` where the single test is no better than guessing.
    """
    if single_fpr + single_fnr >= 1.0:
        raise ConditionError(
            f"A test of one copy must beat guessing, single_fpr + single_fnr < 1, got {single_fpr:g} + {single_fnr:g}."
        )
    rejections = np.arange(copies, -1, -1, dtype=np.float64)
    # From the largest count down: reject while the false positives fit, then toss a coin at the next count.
    null = np.exp(log_binomial(rejections, copies, single_fpr)) * (1.0 + 2.0 * BINOMIAL_RELATIVE_ERROR)
    missed = np.exp(log_binomial(copies - rejections, copies, single_fnr))
    used = np.cumsum(null) * (1.0 + 1e-15 * copies)
    inside = int(np.searchsorted(used, fpr, side="right"))
    if inside > copies:
        return 0.0
    spent = float(used[inside - 1]) if inside else 0.0
    share = min((fpr - spent) / float(null[inside]), 1.0) if null[inside] > 0.0 else 0.0
    rest = math.fsum(missed[inside + 1 :]) + (1.0 - share) * float(missed[inside])
    return min(rest * (1.0 + 4.0 * BINOMIAL_RELATIVE_ERROR), 1.0)


@implements("wang2026:lemma3.3")
def revealed_mixture_ceiling(curves: Sequence[TradeoffCurve], weights: Sequence[float], fpr: float) -> float:
    """sum w_i f_i(fpr), at least the curve of the mixture whose index is revealed.

    The curves must be LOWER (at or above the true ones): the value bounds the truth from above.
    """
    alpha = PROBABILITY.check("fpr", fpr)
    if len(curves) != len(weights) or not curves:
        raise InputError(f"Expected one weight per curve, got {len(curves)} curves and {len(weights)} weights.")
    shares = [POSITIVE_PROBABILITY.check("weight", weight) for weight in weights]
    lost = abs(math.fsum(shares) - 1.0)
    if lost > _MASS_ALLOWANCE:
        raise InputError(f"Expected weights that sum to 1, got {math.fsum(shares)!r}.")
    if any(curve.side is not Side.LOWER for curve in curves):
        raise InputError("Expected LOWER curves: a bound from above needs curves at or above the true ones.")
    value = math.fsum(share * float(curve(alpha)) for share, curve in zip(shares, curves, strict=True))
    return min(value * (1.0 + 1e-15 * len(shares)) + lost, 1.0)
