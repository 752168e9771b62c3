"""The items of Figures 5 and 7 and of the limit theorem; see `ceilings` for what the curves are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.curves import epsilon_from_rdp
from calipers.measure import Measurement, measure
from calipers.numerics.types import FloatArray
from calipers.papers.items import Cell, Column, Data, Outcome, Picture, Progress, Row, printed
from calipers.papers.wang2026 import drawing, published
from calipers.papers.wang2026.ceilings import (
    ALPHA,
    RELATIVE_ERROR,
    SMALLEST,
    Ceiling,
    kept_share,
    smallest_telling_copies,
)
from calipers.papers.wang2026.settings import claimed_fnr, epsilon_jaws, mechanism_curves, rounds
from calipers.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OPACUS_ORDERS = (*(1.0 + x / 10.0 for x in range(1, 100)), *(float(x) for x in range(12, 64)))
"""The Renyi orders that Opacus tries unless told otherwise; Appendix A.4 takes its accountant for the claim."""

_SHOWN = (0.01, 0.1, 0.5)
_GRID = "largest over a grid of α"


def exact_row(quantity: str, ceiling: Ceiling, alpha: float) -> Row:
    """One value of the exact ceiling, with its rounding."""
    value = float(ceiling.exact(np.array([alpha]))[0])
    low, high = value * (1.0 - RELATIVE_ERROR) if value > SMALLEST else 0.0, value * (1.0 + RELATIVE_ERROR) + SMALLEST
    return Row.of(quantity, None, (low, high), "closed form")


def limit_row(quantity: str, ceiling: Ceiling, alpha: float) -> Row | None:
    """One value of the limit theorem; None where it does not apply."""
    value = float(ceiling.by_limit(np.array([alpha]))[0])
    if np.isnan(value):
        return None
    note = "above 1 − α: says nothing" if value >= 1.0 - alpha else ""
    return Row.of(quantity, None, value, "closed form", note)


def _gap_rows(name: str, claim: FloatArray, ceiling: Ceiling, said: str | None) -> list[Row]:
    """How far the ceiling, exact and by the limit theorem, lies below the claim at the best alpha."""
    relation = printed(said) if said is not None else None
    rows = []
    for label, curve in (("exact ceiling", ceiling.exact(ALPHA)), ("limit theorem", ceiling.by_limit(ALPHA))):
        gap = float(np.nanmax(claim - curve)) if not np.all(np.isnan(curve)) else float("nan")
        if not np.isnan(gap):
            rows.append(Row.of(f"{name}claim − {label}", relation, gap, "estimate", _GRID))
    return rows


def _panels() -> dict[str, tuple[str, int, float]]:
    small, large = published.SMALL_MODEL, published.LARGE_MODEL
    return {
        "PrivImage, DP-FETA": ("expected", large, published.FIGURE_5_EXPECTED_RATE),
        "DPSGD-HF": ("expected", small, published.FIGURE_5_EXPECTED_RATE),
        "DPSUR": ("realized", small, published.FIGURE_5_REALIZED_RATE),
    }


def figure_5(progress: Progress) -> Outcome:
    """One round on datasets of four sizes: claims, ceilings (exact and by the limit theorem), mechanisms."""
    rows: list[Row] = []
    data: list[Data] = []
    panels: list[drawing.CeilingPanel] = []
    for method, (normalization, dimension, rate) in _panels().items():
        claim = claimed_fnr(rate, ALPHA)
        panel = drawing.CeilingPanel(f"{method}, n = {dimension:,}, q = {rate:g}", ALPHA, claim, [])
        table: dict[str, Column] = {"alpha": ALPHA, "claim": claim}
        for size in published.FIGURE_5_SIZES:
            run = rounds(normalization, size, rate, dimension)
            ceiling = Ceiling.of(run)
            name = f"{method}, N = {size:,}: "
            close = normalization == "realized" and size == published.FIGURE_5_SIZES[-1]
            rows += _gap_rows(name, claim, ceiling, None if close else "> 0")
            rows.append(exact_row(f"{name}exact ceiling at α = 0.5", ceiling, 0.5))
            # Where even the ceiling is gone there is nothing to measure; dividing by |B| keeps some privacy there.
            lost = normalization == "expected" and float(ceiling.exact(np.array([0.01]))[0]) < SMALLEST
            band = None
            if not lost:
                curves = mechanism_curves(run)
                band = np.asarray(curves[Side.UPPER](ALPHA)), np.asarray(curves[Side.LOWER](ALPHA))
                low, high = (float(curves[side](0.5)) for side in (Side.UPPER, Side.LOWER))
                claimed = float(claimed_fnr(rate, np.array([0.5]))[0])
                rows += [
                    Row.of(f"{name}mechanism at α = 0.5", None, (low, high), note="symmetric"),
                    Row.of(
                        f"{name}claim − mechanism at α = 0.5", None, (claimed - high, claimed - low), note="symmetric"
                    ),
                ]
                table |= {f"mechanism_{end}, N = {size}": b for end, b in zip(("low", "high"), band, strict=True)}
            exact, limit = ceiling.exact(ALPHA), ceiling.by_limit(ALPHA)
            table |= {f"exact, N = {size}": exact, f"limit, N = {size}": limit}
            panel.curves.append(drawing.CeilingCurve(f"N = {size:,}", exact, limit, band))
            progress(len(panels) * 4 + len(panel.curves), 4 * len(_panels()))
        panels.append(panel)
        data.append(Data.of_columns(method.split(",")[0].lower(), table))

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, 3)
        for column, panel in enumerate(panels):
            drawing.draw_ceilings(axes[0, column], panel)
            drawing.draw_distances(axes[1, column], panel)

    return Outcome(rows, data=tuple(data), picture=Picture(draw, (14.4, 9.6)))


def _undivided() -> Measurement:
    run = Run(
        sample_rate=published.FIGURE_7_RATE, steps=published.FIGURE_7_STEPS, noise_multiplier=published.NOISE_MULTIPLIER
    )
    return measure(run, tolerance=1e-3)


def figure_7(progress: Progress) -> Outcome:
    """Two hundred rounds divided by floor(N q) = 700 or 701: ceilings, mechanism, and the claim."""
    claim = _undivided()
    tight = claim.epsilon(published.DELTA)
    orders = np.array(_OPACUS_ORDERS)
    renyi = epsilon_from_rdp(orders, np.array([claim.rdp(float(order)).upper for order in orders]), published.DELTA)
    claimed = np.asarray(claim.curve(Side.LOWER)(ALPHA))
    progress(1, 3)
    rows = [
        Row.of("claim: ε at δ = 1e-5, tight", None, tight),
        Row.of("claim: ε at δ = 1e-5, Rényi accountant of Opacus", None, renyi, "estimate", "upper bound"),
    ]
    table: dict[str, Column] = {"alpha": ALPHA, "claim": claimed}
    panels: list[drawing.CeilingPanel] = []
    for dimension in (published.SMALL_MODEL, published.LARGE_MODEL):
        run = rounds("floor", published.FIGURE_7_SIZE, published.FIGURE_7_RATE, dimension, published.FIGURE_7_STEPS)
        ceiling = Ceiling.of(run)
        name = f"n = {dimension:,}: "
        rows += _gap_rows(name, claimed, ceiling, "> 0")
        for alpha in _SHOWN:
            rows.append(exact_row(f"{name}exact ceiling at α = {alpha:g}", ceiling, alpha))
            found = limit_row(f"{name}limit theorem at α = {alpha:g}", ceiling, alpha)
            rows += [found] if found is not None else []
        band = None
        if dimension == published.SMALL_MODEL:
            curves = mechanism_curves(run)
            band = np.asarray(curves[Side.UPPER](ALPHA)), np.asarray(curves[Side.LOWER](ALPHA))
            rows.append(Row.of(f"{name}mechanism: ε at δ = 1e-5", None, epsilon_jaws(run, tolerance=0.02)))
            table |= {"mechanism_low": band[0], "mechanism_high": band[1]}
        exact, limit = ceiling.exact(ALPHA), ceiling.by_limit(ALPHA)
        table |= {f"exact, n = {dimension}": exact, f"limit, n = {dimension}": limit}
        curve = drawing.CeilingCurve("divided by 700 or 701", exact, limit, band)
        panels.append(
            drawing.CeilingPanel(f"n = {dimension:,}, T = {published.FIGURE_7_STEPS}", ALPHA, claimed, [curve])
        )
        progress(1 + len(panels), 3)

    def draw(figure: Figure) -> None:
        for ax, panel in zip(np.ravel(figure.subplots(1, 2)), panels, strict=True):
            drawing.draw_ceilings_log(ax, panel)

    return Outcome(rows, data=(Data.of_columns("curves", table),), picture=Picture(draw, (11.0, 5.0)))


def limit_versus_exact(progress: Progress) -> Outcome:
    """Theorems 3.13 and A.7 beside the chi-square test they bound, at fpr = 0.1."""
    small, large, steps = published.SMALL_MODEL, published.LARGE_MODEL, published.FIGURE_7_STEPS
    cases = [(700, small, steps), (700, large, steps)]
    cases += [(size, dimension, 1) for size in published.FIGURE_5_SIZES[2:] for dimension in (small, large)]
    rows: list[Row] = []
    table: list[list[Cell]] = []
    for divisor, dimension, count in cases:
        ceiling = Ceiling(count * (dimension - 1), divisor)
        name = f"K = {divisor:,}, n = {dimension:,}, T = {count}: "
        exact = exact_row(f"{name}exact β at α = 0.1", ceiling, 0.1)
        limit = limit_row(f"{name}limit theorem", ceiling, 0.1)
        rows += [exact, *([limit] if limit is not None else [])]
        mu, gamma = ceiling.limit() or (float("nan"), float("nan"))
        table.append([divisor, dimension, count, exact.lower, limit.lower if limit else "", mu, gamma])
        progress(len(table), len(cases))
    for divisor in (700, *published.FIGURE_5_SIZES[2:]):
        first = smallest_telling_copies(divisor)
        rows.append(Row.of(f"K = {divisor:,}: smallest telling (n − 1)/K", None, first / divisor, "closed form"))
    share = kept_share(published.FIGURE_5_SIZES[-1])
    dimensions = np.unique(np.geomspace(100, 1e12, 80).astype(np.int64))

    columns = ("divisor", "dimension", "steps", "exact", "limit", "mu", "gamma")
    picture = Picture.on_axes((7.6, 4.8), drawing.draw_limit, dimensions, (700, *published.FIGURE_5_SIZES[2:]))
    return Outcome(rows, data=(Data("values", columns, table),), picture=picture, facts={"share": share})
