"""Renyi divergences of products, from both sides, without any convolution.

E_Q[L^t] multiplies under composition, so D_t(P||Q) = log E_Q[L^t] / (t - 1) adds. For t > 1 the
function L^t is convex: an UPPER law gives at least the truth and a LOWER law at most. What lies
beyond the last atom of an UPPER law is not infinite here: with `slope` a bound on d log L / dz,
L(z)^t <= L(end)^t e^(t slope (z - end)), whose expectation is known in closed form.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.bracket import Side
from calipers.domains import Domain
from calipers.errors import UnsupportedError
from calipers.laws.direction import Jaws, LawSource
from calipers.laws.law import Law
from calipers.laws.pair import Pair
from calipers.laws.product import Product
from calipers.numerics.types import FloatArray

ORDER = Domain(1.0, 1000.0, low_open=True)
_RESOLUTION = 0.02


def _log_sum(values: FloatArray) -> float:
    return float(np.logaddexp.reduce(np.sort(values)))


def _lower(law: Law, order: float) -> float:
    """At most log E_Q[L^t] of the truth, by data processing."""
    value = _log_sum(order * law.log_p + (1.0 - order) * law.log_q)
    return value - (2.0 * order * law.mass_error + 1e-13 * (1.0 + abs(value)))


def _upper(source: LawSource, law: Law, order: float, log_tail: float, reverse: bool) -> float:
    """At least log E_Q[L^t] of the truth."""
    bound = getattr(source, "log_moment_bound", None)
    if bound is not None:
        return float(bound(order)) * (1.0 + 1e-14)
    if not isinstance(source, Pair) or source.p_inf > 0 or source.q_zero > 0:
        raise UnsupportedError(
            "No finite Renyi divergence is proven for this factor; ask for epsilon at delta instead."
        )
    pieces = [_log_sum(law.log_q + order * law.log_ratio)]
    for part in source.smooth:
        low, high = part.range_for(log_tail)
        end = float(part.log_ratio(np.array([low if reverse else high]))[0])
        growth = part.log_growth_below if reverse else part.log_growth_above
        pieces.append(order * abs(end) + growth(order * part.slope, low if reverse else high))
    value = _log_sum(np.array(pieces))
    return value + (law.mass_error + order * law.shift_error + 1e-13 * (1.0 + abs(value)))


def renyi(product: Product, order: float) -> Jaws:
    """Jaws of max(D_t(P||Q), D_t(Q||P)) at t = order > 1."""
    order = ORDER.check("order", order)
    lows, highs = [], []
    for direction in product.directions:
        low_total = high_total = 0.0
        for source, count in product.factors:
            slopes = [part.slope for part in source.smooth] if isinstance(source, Pair) else []
            # The law tilted by t sits up to t slopes to the side; cover it and ten deviations more.
            log_tail = -0.5 * (order * max(slopes, default=0.0) + 10.0) ** 2
            laws = {side: source.law(side, _RESOLUTION, log_tail) for side in Side}
            if direction.reverse:
                laws = {side: law.reverse() for side, law in laws.items()}
            low_total += count * _lower(laws[Side.LOWER], order)
            high_total += count * _upper(source, laws[Side.UPPER], order, log_tail, direction.reverse)
        lows.append(low_total)
        highs.append(high_total)
    scale = order - 1.0
    return Jaws(max(0.0, max(lows) / scale), max(highs) / scale, math.inf, False)
