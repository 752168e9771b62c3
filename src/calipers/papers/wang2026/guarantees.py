"""The items of Figures 5 and 7 and of the limit theorem; see `ceilings` for what the curves are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calipers.bracket import Side
from calipers.curves import epsilon_from_rdp
from calipers.measure import measure
from calipers.numerics.types import FloatArray
from calipers.papers.items import ItemProgress, NumberPair, watched
from calipers.papers.sheets import Column, Computed, Sheet
from calipers.papers.wang2026 import published
from calipers.papers.wang2026.ceilings import (
    ALPHA,
    FIGURE_5_METHODS,
    RELATIVE_ERROR,
    SMALLEST,
    Ceiling,
    kept_share,
    smallest_telling_copies,
)
from calipers.papers.wang2026.settings import claimed_fnr, epsilon_bounds, mechanism_at, mechanism_curves, rounds
from calipers.run import Run

_OPACUS_ORDERS = np.array((*(1.0 + x / 10.0 for x in range(1, 100)), *(float(x) for x in range(12, 64))))
"""The Renyi orders that Opacus tries unless given otherwise; Appendix A.4 takes its accountant for the claim."""


def _exact(ceiling: Ceiling, alpha: float) -> NumberPair:
    """One value of the exact ceiling, with its rounding."""
    value = float(ceiling.exact(np.array([alpha]))[0])
    low = value * (1.0 - RELATIVE_ERROR) if value > SMALLEST else 0.0
    return low, value * (1.0 + RELATIVE_ERROR) + SMALLEST


def _limit(ceiling: Ceiling, alpha: float) -> dict[str, Any]:
    """One value of the limit theorem, None where it does not apply, and what is to be said about it."""
    value = float(ceiling.by_limit(np.array([alpha]))[0])
    silent = value >= 1.0 - alpha
    return {"limit": None if math.isnan(value) else value, "note": "above 1 − α: says nothing" if silent else ""}


def _gaps(claim: FloatArray, ceiling: Ceiling) -> dict[str, float | None]:
    """How far the ceiling, exact and by the limit theorem, lies below the claim at the best alpha."""
    limit = claim - ceiling.by_limit(ALPHA)
    by_limit = None if np.all(np.isnan(limit)) else float(np.nanmax(limit))
    return {"gap": float(np.max(claim - ceiling.exact(ALPHA))), "limit_gap": by_limit}


def _band(run: Run) -> tuple[FloatArray, FloatArray]:
    """Both sides of the mechanism's curve."""
    curves = mechanism_curves(run)
    return np.asarray(curves[Side.UPPER](ALPHA)), np.asarray(curves[Side.LOWER](ALPHA))


def _draw(lines: Sheet, words: dict[str, str], **curves: FloatArray) -> None:
    """The curves of a picture, and (`below_`) how far they lie below perfect privacy."""
    below = {f"below_{name}": 1.0 - ALPHA - curve for name, curve in curves.items()}
    lines.records += [words | record for record in Sheet.of_columns("", {"alpha": ALPHA, **curves, **below}).records]


def figure_5(progress: ItemProgress) -> Computed:
    """One round on datasets of four sizes: claims, ceilings (exact and by the limit theorem), mechanisms."""
    values, lines, tables = Sheet(listed=False), Sheet("lines", listed=False), []
    for method, (normalization, dimension, rate) in watched(FIGURE_5_METHODS.items(), progress):
        claim, claimed = claimed_fnr(rate, ALPHA), float(claimed_fnr(rate, np.array([0.5]))[0])
        columns: dict[str, Column] = {"alpha": ALPHA, "claim": claim}
        for size in published.FIGURE_5_SIZES:
            run = rounds(normalization, size, rate, dimension)
            ceiling = Ceiling.of(run)
            exact, limit, middle = ceiling.exact(ALPHA), ceiling.by_limit(ALPHA), np.full_like(ALPHA, np.nan)
            close = normalization == "realized" and size == published.FIGURE_5_SIZES[-1]
            values.add(method=method, size=size, ceiling=_exact(ceiling, 0.5), said="" if close else "> 0")
            values.unlisted(**_gaps(claim, ceiling))
            # Where even the ceiling is gone there is nothing to measure; dividing by |B| keeps some privacy there.
            if normalization != "expected" or float(ceiling.exact(np.array([0.01]))[0]) >= SMALLEST:
                band, (low, high) = _band(run), mechanism_at(run, 0.5)
                values.unlisted(mechanism=(low, high), excess=(claimed - high, claimed - low))
                columns |= {f"mechanism_{end}, N = {size}": b for end, b in zip(("low", "high"), band, strict=True)}
                middle[::4] = 0.5 * (band[0] + band[1])[::4]
            columns |= {f"exact, N = {size}": exact, f"limit, N = {size}": limit}
            shown = np.where(limit <= 1.03, limit, np.nan)
            words = {"method": method, "size": f"N = {size:,}"}
            _draw(lines, words, claim=claim, exact=exact, limit=shown, mechanism=middle)
        tables.append(Sheet.of_columns(method.split(",")[0].lower(), columns))
    return Computed([*tables, values, lines])


def figure_7(progress: ItemProgress) -> Computed:
    """Two hundred rounds divided by floor(N q) = 700 or 701: ceilings, mechanism, and the claim."""
    rate, steps = published.FIGURE_7_RATE, published.FIGURE_7_STEPS
    claim = measure(Run(sample_rate=rate, steps=steps, noise_multiplier=published.NOISE_MULTIPLIER), tolerance=1e-3)
    moments = np.array([claim.rdp(float(order)).upper for order in _OPACUS_ORDERS])
    renyi = epsilon_from_rdp(_OPACUS_ORDERS, moments, published.DELTA)
    claimed = np.asarray(claim.curve(Side.LOWER)(ALPHA))
    columns: dict[str, Column] = {"alpha": ALPHA, "claim": claimed}
    values, lines = Sheet(listed=False), Sheet("lines", listed=False)
    for dimension in watched((published.SMALL_MODEL, published.LARGE_MODEL), progress):
        run = rounds("floor", published.FIGURE_7_SIZE, rate, dimension, steps)
        ceiling, band = Ceiling.of(run), (np.full_like(ALPHA, np.nan),) * 2
        for place, alpha in enumerate((0.01, 0.1, 0.5)):
            values.add(dimension=dimension, alpha=alpha, ceiling=_exact(ceiling, alpha))
            values.unlisted(**_limit(ceiling, alpha), **(_gaps(claimed, ceiling) if place == 0 else {}))
        if dimension == published.SMALL_MODEL:
            band = _band(run)
            values.unlisted(epsilon=epsilon_bounds(run, tolerance=0.02))
            columns |= {"mechanism_low": band[0], "mechanism_high": band[1]}
        exact, limit = ceiling.exact(ALPHA), ceiling.by_limit(ALPHA)
        columns |= {f"exact, n = {dimension}": exact, f"limit, n = {dimension}": limit}
        words = {"model": "small" if dimension == published.SMALL_MODEL else "large"}
        _draw(lines, words, claim=claimed, exact=exact, limit=limit, low=band[0], high=band[1])
    claims = Sheet("claims").unlisted(tight=claim.epsilon(published.DELTA), renyi=renyi)
    return Computed([Sheet.of_columns("curves", columns), claims, values, lines])


def limit_versus_exact(progress: ItemProgress) -> Computed:
    """Theorems 3.13 and A.7 next to the chi-square test they bound, at fpr = 0.1."""
    small, large, steps = published.SMALL_MODEL, published.LARGE_MODEL, published.FIGURE_7_STEPS
    sizes, table = published.FIGURE_5_SIZES[2:], Sheet()
    cases = [(700, small, steps), (700, large, steps)]
    cases += [(size, dimension, 1) for size in sizes for dimension in (small, large)]
    for divisor, dimension, count in watched(cases, progress):
        ceiling = Ceiling(count * (dimension - 1), divisor)
        exact, found = _exact(ceiling, 0.1), _limit(ceiling, 0.1)
        mu, gamma = ceiling.limit() or (float("nan"), float("nan"))
        limit = "" if found["limit"] is None else found["limit"]
        table.add(divisor=divisor, dimension=dimension, steps=count, exact=exact[0], limit=limit, mu=mu, gamma=gamma)
        table.unlisted(ceiling=exact, by_limit=found["limit"], note=found["note"])
    telling, lines = Sheet("telling", listed=False), Sheet("lines", listed=False)
    for divisor in (700, *sizes):
        telling.add(divisor=divisor, copies=smallest_telling_copies(divisor) / divisor)
        for dimension in np.unique(np.geomspace(100, 1e12, 80).astype(np.int64)).tolist():
            ceiling, alpha = Ceiling(dimension - 1, divisor), np.array([0.1])
            exact_at, limit_at = ceiling.exact(alpha)[0], ceiling.by_limit(alpha)[0]
            lines.add(divisor=divisor, dimension=dimension, exact=exact_at, limit=limit_at)
    return Computed([table, telling, lines], {"share": kept_share(sizes[-1])})
