"""What the text of Sections 1, 3 and 5 says in numbers or in monotone relations, beyond the figures.

**Rates at FNR 0.5 (Section 1).** The curves of Figure 5 are ceilings of guarantees. The FPR at which one falls to 0.5
is read off by bisection; for division by |B| the mixture with ID is below 0.5 at every positive FPR as soon as
1 - q + q (1-q)^N is, so the FPR is 0 there. The mechanism's own curve is the symmetric one that holds in both orders,
f(f(a)) = a, so its FPR at FNR 0.5 is f(0.5).

**Monotone (Theorems 3.4 and 3.5, Lemmas 3.14 to 3.16).** Checked on grids with the exact curves; a violation is a pair
of neighbors in the wrong order by more than rounding.

**Tight at q = 1 (Section 3.4.1).** Nothing is hidden, so Theorem 3.6 is attained by gradients opposite to the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise, product

import numpy as np

from calipers.numerics.elementary import bisect
from calipers.numerics.normal import gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.items import ItemProgress, Published, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.papers.wang2026 import published
from calipers.papers.wang2026.ceilings import FIGURE_5_METHODS, Ceiling
from calipers.papers.wang2026.settings import claimed_fnr, delta_bounds, divisors, mechanism_at, rounds
from calipers.theorems.division_guarantees import expected_delta
from calipers.theorems.division_pairs import scale_fnr, shifted_scale_fnr

_ALPHA: FloatArray = np.linspace(0.02, 0.98, 13)
_ROUNDING = 1e-9


def _first_below(curve: Callable[[FloatArray], FloatArray], level: float, high: float, width: float) -> float:
    """Where a falling curve passes the level, from above, to the given width; 0 where it is below from the start."""
    if float(curve(np.array([1e-300]))[0]) <= level:
        return 0.0
    return bisect(1e-300, high, lambda at: float(curve(np.array([at]))[0]) > level, 100, width)[1]


def fpr_at(ceiling: Ceiling, fnr: float) -> float:
    """The FPR at which the ceiling falls to `fnr`, to 1e-9; 0 where it is below at every positive one."""
    return _first_below(ceiling.exact, fnr, 1.0 - 1e-12, 1e-9)


def quoted_rates(progress: ItemProgress) -> Computed:
    """FPR at FNR 0.5: below 0.2 in some cases, where the claim says more than 0.4."""
    fnr, table, mechanisms = published.QUOTED_FNR, Sheet("rates"), Sheet("mechanisms", listed=False)
    for normalization, dimension, rate in watched(FIGURE_5_METHODS.values(), progress):
        # The undivided sum's curve falls to `fnr` at the FPR that is claimed.
        claim = _first_below(partial(claimed_fnr, rate), fnr, 1.0, 1e-12)
        runs = [rounds(normalization, size, rate, dimension) for size in published.FIGURE_5_SIZES]
        found = [fpr_at(Ceiling.of(run), fnr) for run in runs]
        for place, (size, value) in enumerate(zip(published.FIGURE_5_SIZES, found, strict=True)):
            method = {"normalization": normalization, "dimension": dimension, "rate": rate, "others": size}
            table.add(**method, **{"fpr_at_fnr_0.5": value}, claimed=claim)
            table.unlisted(claim=None if place else claim, least=None if place else min(found))
    for size in published.FIGURE_5_SIZES[:2]:
        run = rounds("realized", size, published.FIGURE_5_REALIZED_RATE, published.SMALL_MODEL)
        mechanisms.add(size=size, fpr=mechanism_at(run, fnr), said=published.QUOTED_FPR if size == 1 else "")
    return Computed([table, mechanisms])


def _rises(curves: list[FloatArray]) -> int:
    """How often a later curve exceeds an earlier one by more than rounding."""
    rises = (after > before * (1.0 + _ROUNDING) + _ROUNDING for before, after in pairwise(curves))
    return sum(int(np.count_nonzero(rise)) for rise in rises)


def _monotone() -> Sheet:
    """How often each of the monotone relations is violated on its grid."""
    shifts, scales, alphas = (0.0, 0.05, 0.1, 0.5, 1.0, 3.0), (0.99, 0.9, 0.5, 0.2), _ALPHA[::2]
    sizes, dimensions = (59_999, 999, 99, 9, 4, 2, 1), (2, 10, 100, 26_010, 1_485_217)
    rates = (0.1, 0.5, 0.7, 0.9)

    def shifted(shift: float, scale: float) -> FloatArray:
        return np.array([shifted_scale_fnr(float(a), shift, scale) for a in alphas])

    def ceiling(normalization: str, size: int, dimension: int, rate: float) -> FloatArray:
        return Ceiling.of(rounds(normalization, size, rate, dimension)).exact(_ALPHA)

    # Curves one after the other, as they should fall.
    families = {
        "Theorem 3.4: T(N(0,1), N(μ, s²)) falls with μ": [[shifted(m, s) for m in shifts] for s in scales],
        "Theorem 3.5: T(N(0,1), N(0, s²)) falls as s falls": [
            [np.array([scale_fnr(float(a), s) for a in alphas]) for s in scales]
        ],
        "Lemma 3.14: the ceiling of Theorem 3.8 falls as N falls": [
            [ceiling("expected", size, n, 0.5) for size in sizes] for n in dimensions
        ],
        "Lemma 3.15: both ceilings fall as n grows": [
            [ceiling(kind, size, n, 0.7) for n in dimensions] for kind, size in product(("expected", "realized"), sizes)
        ],
        "Lemma 3.16: the ceiling of Theorem 3.10 falls as q grows": [
            [ceiling("realized", size, n, rate) for rate in rates] for size, n in product(sizes, dimensions)
        ],
    }
    counts = {name: sum(map(_rises, family)) for name, family in families.items()}
    return Sheet.of_columns("monotone", {"name": list(counts), "count": list(counts.values())}, listed=False)


def statements() -> Computed:
    """Monotone relations, tightness at q = 1, the limit of Section 3.4.2, parameters, the divisors of Figure 7."""
    monotone = _monotone()
    size, dimension = 4, published.FIGURE_2_DIMENSION
    tight = rounds("expected", size, 1.0, dimension)
    theorem = expected_delta(0.0, dimension, size, 1.0, tight.noise_multiplier)
    low, high = delta_bounds(tight)
    values = Sheet().unlisted(tight=(theorem - high, theorem - low), equal=Published("equal", -1e-3, 1e-3, 0.0))
    rate, alpha = published.FIGURE_3_REALIZED_RATE, 0.5
    gap = rate * ((1.0 - rate) ** size * (1.0 - alpha) - float(gaussian_tradeoff(1.0 / tight.noise_multiplier, alpha)))
    values.unlisted(gap=gap, counted=sum(published.NETWORK_LAYERS.values()), large=published.LARGE_MODEL)
    floors = Sheet("floors", listed=False)
    for present in (False, True):
        run = rounds("floor", published.FIGURE_7_SIZE, published.FIGURE_7_RATE, 2)
        floors.add(records=published.FIGURE_7_SIZE + present, divisor=int(divisors(run, present).values[0]))
    return Computed([monotone, values, floors])
