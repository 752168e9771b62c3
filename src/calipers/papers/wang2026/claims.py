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

from itertools import pairwise

import numpy as np

from calipers.bracket import Side
from calipers.numerics.normal import gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.items import Cell, Data, Outcome, Progress, Published, Row, printed
from calipers.papers.wang2026 import published
from calipers.papers.wang2026.ceilings import Ceiling
from calipers.papers.wang2026.settings import claimed_fnr, delta_jaws, divisors, mechanism_curves, rounds
from calipers.theorems.division_guarantees import expected_delta
from calipers.theorems.division_pairs import scale_fnr, shifted_scale_fnr

NETWORK_LAYERS = {
    "8 x 8 convolution": 1_040,
    "4 x 4 convolution": 8_224,
    "dense 512 to 32": 16_416,
    "dense 32 to 10": 330,
}
"""The network of Tramer and Boneh for 28 x 28 images: weights and biases of each layer."""

_ALPHA: FloatArray = np.linspace(0.02, 0.98, 13)
_ROUNDING = 1e-9


def fpr_at(ceiling: Ceiling, fnr: float) -> float:
    """The FPR at which the ceiling falls to `fnr`, to 1e-9; 0 where it is below at every positive one."""
    low, high = 1e-300, 1.0 - 1e-12
    if float(ceiling.exact(np.array([low]))[0]) <= fnr:
        return 0.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(ceiling.exact(np.array([middle]))[0]) > fnr else (low, middle)
    return high


def claimed_fpr_at(rate: float, fnr: float) -> float:
    """The FPR at which the undivided sum's curve falls to `fnr`, to 1e-12."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(claimed_fnr(rate, np.array([middle]))[0]) > fnr else (low, middle)
    return high


def quoted_rates(progress: Progress) -> Outcome:
    """FPR at FNR 0.5: below 0.2 in some cases, where the claim says more than 0.4."""
    fnr = published.QUOTED_FNR
    rows: list[Row] = []
    table: list[list[Cell]] = []
    methods = (
        ("expected", published.LARGE_MODEL, published.FIGURE_5_EXPECTED_RATE),
        ("expected", published.SMALL_MODEL, published.FIGURE_5_EXPECTED_RATE),
        ("realized", published.SMALL_MODEL, published.FIGURE_5_REALIZED_RATE),
    )
    for number, (normalization, dimension, rate) in enumerate(methods):
        name = f"{normalization}, n = {dimension:,}, q = {rate:g}: "
        claim = claimed_fpr_at(rate, fnr)
        rows.append(Row.of(f"{name}claimed", published.QUOTED_CLAIMED_FPR, claim, "closed form"))
        found = {
            size: fpr_at(Ceiling.of(rounds(normalization, size, rate, dimension)), fnr)
            for size in published.FIGURE_5_SIZES
        }
        least = min(found.values())
        rows.append(Row.of(f"{name}least ceiling", published.QUOTED_FPR, least, "closed form"))
        rows += [Row.of(f"{name}ceiling, N = {size:,}", None, value, "closed form") for size, value in found.items()]
        table += [[normalization, dimension, rate, size, value, claim] for size, value in found.items()]
        progress(number + 1, len(methods) + 1)
    for size in published.FIGURE_5_SIZES[:2]:
        curves = mechanism_curves(rounds("realized", size, published.FIGURE_5_REALIZED_RATE, published.SMALL_MODEL))
        low, high = (float(curves[side](fnr)) for side in (Side.UPPER, Side.LOWER))
        said = printed(published.QUOTED_FPR) if size == 1 else None
        rows.append(
            Row.of(f"mechanism divided by |B|, N = {size}", said, (low, high), note="symmetric, so FPR = f(0.5)")
        )
    progress(len(methods) + 1, len(methods) + 1)
    columns = ("normalization", "dimension", "rate", "others", "fpr_at_fnr_0.5", "claimed")
    return Outcome(rows, data=(Data("rates", columns, table),))


def _falls(curves: list[FloatArray]) -> int:
    """How often a later curve exceeds an earlier one by more than rounding."""
    rises = (after > before * (1.0 + _ROUNDING) + _ROUNDING for before, after in pairwise(curves))
    return sum(int(np.count_nonzero(rise)) for rise in rises)


def _monotone_rows() -> list[Row]:
    shifts, scales, alphas = (0.0, 0.05, 0.1, 0.5, 1.0, 3.0), (0.99, 0.9, 0.5, 0.2), _ALPHA[::2]
    by_shift = sum(
        _falls([np.array([shifted_scale_fnr(float(a), m, s) for a in alphas]) for m in shifts]) for s in scales
    )
    by_scale = _falls([np.array([scale_fnr(float(a), s) for a in alphas]) for s in scales])
    sizes, dimensions = (59_999, 999, 99, 9, 4, 2, 1), (2, 10, 100, 26_010, 1_485_217)
    rates = (0.1, 0.5, 0.7, 0.9)

    def ceiling(normalization: str, size: int, dimension: int, rate: float) -> FloatArray:
        return Ceiling.of(rounds(normalization, size, rate, dimension)).exact(_ALPHA)

    by_size = sum(_falls([ceiling("expected", size, n, 0.5) for size in sizes]) for n in dimensions)
    by_dimension = sum(
        _falls([ceiling(kind, size, n, 0.7) for n in dimensions]) for kind in ("expected", "realized") for size in sizes
    )
    by_rate = sum(_falls([ceiling("realized", size, n, rate) for rate in rates]) for size in sizes for n in dimensions)
    counts = {
        "Theorem 3.4: T(N(0,1), N(μ, s²)) falls with μ": by_shift,
        "Theorem 3.5: T(N(0,1), N(0, s²)) falls as s falls": by_scale,
        "Lemma 3.14: the ceiling of Theorem 3.8 falls as N falls": by_size,
        "Lemma 3.15: both ceilings fall as n grows": by_dimension,
        "Lemma 3.16: the ceiling of Theorem 3.10 falls as q grows": by_rate,
    }
    return [Row.of(f"{name}: violations", "0", count, "exact check", "on a grid") for name, count in counts.items()]


def statements(progress: Progress) -> Outcome:
    """Monotone relations, tightness at q = 1, the limit of Section 3.4.2, parameters, the divisors of Figure 7."""
    rows = _monotone_rows()
    progress(1, 3)
    size, dimension = 4, published.FIGURE_2_DIMENSION
    tight = rounds("expected", size, 1.0, dimension)
    theorem = expected_delta(0.0, dimension, size, 1.0, tight.noise_multiplier)
    low, high = delta_jaws(tight)
    equal = Published("equal", -1e-3, 1e-3, 0.0)
    rows.append(Row.of("q = 1, N = 4, n = 100: Theorem 3.6's δ(0) − leakage", equal, (theorem - high, theorem - low)))
    progress(2, 3)
    rate, alpha = published.FIGURE_3_REALIZED_RATE, 0.5
    gap = rate * ((1.0 - rate) ** size * (1.0 - alpha) - float(gaussian_tradeoff(1.0 / tight.noise_multiplier, alpha)))
    rows.append(Row.of("Section 3.4.2: limit − claim, N = 4, q = 0.7, α = 0.5", "< 0", gap, "closed form"))
    counted = sum(NETWORK_LAYERS.values())
    rows += [
        Row.of("parameters of the small model", str(published.SMALL_MODEL), counted, "exact check"),
        Row.of("parameters of the small model, Section 5.3", published.SMALL_MODELS_EXCEED, counted, "exact check"),
        Row.of("parameters of the large model", published.LARGE_MODELS_EXCEED, published.LARGE_MODEL),
    ]
    floors = [
        int(divisors(rounds("floor", published.FIGURE_7_SIZE, published.FIGURE_7_RATE, 2), present).values[0])
        for present in (False, True)
    ]
    rows += [
        Row.of(f"Figure 7: divisor with {published.FIGURE_7_SIZE + more} records", None, value, "exact check")
        for more, value in enumerate(floors)
    ]
    progress(3, 3)
    return Outcome(rows)
