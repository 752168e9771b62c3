"""The pictures of the paper. Every function draws on the axes it is given and returns them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calipers.numerics.types import FloatArray, IntArray
from calipers.papers.style import BLUE, CYCLE, GRAY, GREEN, ORANGE, PURPLE, RED, SKY, tidy, tradeoff_axes
from calipers.papers.wang2026 import published
from calipers.papers.wang2026.ceilings import Ceiling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FPR = np.linspace(0.0, 1.0, 401)
_SIZES = (RED, ORANGE, PURPLE, BLUE)

Grid = Mapping[tuple[int, float], float]


@dataclass(frozen=True)
class Epsilons:
    """One curve of Figure 3, 4 or 6: epsilon at delta = 1e-5 from both sides, audited, and claimed."""

    label: str
    lower: float
    upper: float
    audited: float
    claim: float


@dataclass(frozen=True)
class CeilingCurve:
    """The exact ceiling, the limit theorem, and the band (low, high) of the mechanism where it is known."""

    label: str
    exact: FloatArray
    limit: FloatArray
    band: tuple[FloatArray, FloatArray] | None


@dataclass(frozen=True)
class CeilingPanel:
    """One method of Figure 5 or 7."""

    title: str
    alpha: FloatArray
    claim: FloatArray
    curves: list[CeilingCurve]


def draw_leakage(
    ax: Axes, title: str, exact: Mapping[tuple[int, float], tuple[float, float]], audited: Grid, theorem: Grid
) -> Axes:
    """Figure 2: delta(0) against N, one color for each rate."""
    rates = sorted({rate for _, rate in exact})
    sizes = np.array(published.AUDITED_SIZES)
    for number, (color, rate) in enumerate(zip(CYCLE, rates, strict=False)):
        low, high = (np.array([exact[size, rate][end] for size in published.AUDITED_SIZES]) for end in (0, 1))
        ax.fill_between(sizes, low, high, color=color, alpha=0.3, linewidth=0)
        # Division by N q hardly depends on the rate: narrower lines on top of wider ones keep all of them visible.
        width = 1.6 if theorem else 5.2 - 0.8 * number
        ax.plot(sizes, 0.5 * (low + high), color=color, linewidth=width, label=f"q = {rate:g}")
        found = [audited[size, rate] for size in published.AUDITED_SIZES]
        ax.plot(sizes, found, "x", color=color, markersize=7)
        if theorem:
            ax.plot(sizes, [theorem[size, rate] for size in published.AUDITED_SIZES], ":", color=color, linewidth=1.4)
    ax.plot([], [], "x", color="black", label="audited (95 %)")
    if theorem:
        ax.plot([], [], ":", color="black", label="Theorem 3.7")
    ax.set_xticks(sizes)
    ax.set_ylim(0.0 if theorem else 0.7, 1.03)
    tidy(ax, xlabel="records in the smaller dataset, N", ylabel="δ(0)", title=title)
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def _guaranteed(epsilon: float) -> FloatArray:
    """The trade-off curve of (epsilon, 1e-5)-DP on the grid."""
    room, level = 1.0 - published.DELTA, min(epsilon, 700.0)
    steep, flat = room - np.exp(level) * _FPR, np.exp(-level) * (room - _FPR)
    return np.asarray(np.maximum(np.maximum(steep, flat), 0.0), dtype=np.float64)


def draw_epsilon_curves(ax: Axes, title: str, curves: Sequence[Epsilons]) -> Axes:
    """Figures 3, 4 and 6: what (epsilon, 1e-5) allows; solid the exact lower jaw, dashed the audit, green the claim.

    Where nothing but the audit is known, it is the solid line.
    """
    tradeoff_axes(ax, title)
    claims = {curve.claim: curve.label for curve in reversed(curves)}
    for claim, label in sorted(claims.items()):
        whose = f", {label}" if len(claims) > 1 else ""
        ax.plot(_FPR, _guaranteed(claim), color=GREEN, linewidth=2.6, label=f"claimed{whose}: ε = {claim:.3g}")
    for color, curve in zip((BLUE, ORANGE, RED, PURPLE, SKY, "black"), curves, strict=False):
        exact = f"ε ≥ {curve.lower:.4g}, " if curve.lower > curve.audited else ""
        label = f"{curve.label}: {exact}audited ε = {curve.audited:.3g}"
        ax.plot(_FPR, _guaranteed(curve.lower), color=color, linewidth=1.8, label=label)
        if exact:
            ax.plot(_FPR, _guaranteed(curve.audited), color=color, linestyle="--", linewidth=1.1)
    if any(curve.lower > curve.audited for curve in curves):
        ax.plot([], [], "--", color="black", linewidth=1.1, label="dashed: audited")
    ax.legend(frameon=False, fontsize="x-small", loc="upper right")
    return ax


def draw_panels(panels: Mapping[str, Sequence[Epsilons]], shape: tuple[int, int], figure: Figure) -> None:
    """Figures 3 and 4: such curves for several divisors or methods."""
    for ax, (title, curves) in zip(np.ravel(figure.subplots(*shape)), panels.items(), strict=True):
        draw_epsilon_curves(ax, title, curves)


def draw_ceilings(ax: Axes, panel: CeilingPanel) -> Axes:
    """Figure 5: the claim, and for each dataset size the ceiling (solid), the limit theorem (dotted), the mechanism."""
    tradeoff_axes(ax, panel.title)
    ax.plot(panel.alpha, panel.claim, color=GREEN, linewidth=3.4, alpha=0.5, label="claim")
    for color, curve in zip(_SIZES, panel.curves, strict=True):
        ax.plot(panel.alpha, curve.exact, color=color, linewidth=1.7, label=f"{curve.label}: exact ceiling")
        shown = np.where(curve.limit <= 1.03, curve.limit, np.nan)
        ax.plot(panel.alpha, shown, color=color, linestyle=":", linewidth=1.5)
        if curve.band is not None:
            middle = 0.5 * (curve.band[0] + curve.band[1])
            ax.plot(panel.alpha[::4], middle[::4], "o", color=color, markersize=3.2, markerfacecolor="none")
    ax.plot([], [], ":", color="black", label="limit theorem")
    ax.plot([], [], "o", color="black", markersize=3.2, markerfacecolor="none", label="mechanism (both sides)")
    ax.legend(frameon=False, fontsize="x-small", loc="upper right")
    return ax


def draw_distances(ax: Axes, panel: CeilingPanel) -> Axes:
    """Figure 5 again, as distance 1 - alpha - beta from perfect privacy, where large datasets can be told apart."""
    identity = 1.0 - panel.alpha
    ax.plot(panel.alpha, identity - panel.claim, color=GREEN, linewidth=3.4, alpha=0.5)
    for color, curve in zip(_SIZES, panel.curves, strict=True):
        ax.plot(panel.alpha, identity - curve.exact, color=color, linewidth=1.7)
        shown = np.where(curve.limit < identity, identity - curve.limit, np.nan)
        ax.plot(panel.alpha, shown, color=color, linestyle=":", linewidth=1.5)
        if curve.band is not None:
            middle = identity - 0.5 * (curve.band[0] + curve.band[1])
            ax.plot(panel.alpha[::4], middle[::4], "o", color=color, markersize=3.2, markerfacecolor="none")
    ax.set(yscale="log", ylim=(3e-6, 1.5))
    return tidy(ax, xlabel="false positive rate α", ylabel="1 − α − β")


def draw_ceilings_log(ax: Axes, panel: CeilingPanel) -> Axes:
    """Figure 7: the same on a logarithmic scale, where the curves can be told from the axis."""
    (curve,) = panel.curves
    ax.plot(panel.alpha, panel.claim, color=GREEN, linewidth=2.4, label="claim (undivided sum)")
    ax.plot(panel.alpha, curve.limit, color=ORANGE, linestyle=":", linewidth=2, label="ceiling by the limit theorem")
    ax.plot(panel.alpha, curve.exact, color=BLUE, linewidth=1.8, label="ceiling, exact")
    if curve.band is not None:
        ax.fill_between(panel.alpha, *curve.band, color=RED, alpha=0.3, linewidth=0, label="mechanism: bracket")
    ax.set(yscale="log", xlim=(-0.01, 1.0))
    deepest = math.log10(ax.get_ylim()[0])
    # Nothing lies above 1; the room over it keeps the claim off the frame.
    ax.set_ylim(top=10.0 ** (-0.05 * deepest))
    ax.set_yticks([10.0**-power for power in _round_powers(-deepest)], minor=False)
    tidy(ax, xlabel="false positive rate α", ylabel="false negative rate β", title=panel.title)
    ax.legend(frameon=False, fontsize="small", loc="best")
    return ax


def _round_powers(deepest: float) -> range:
    """0 and multiples of 2, 5, 10, 20, 50 or 100 up to the depth, about six of them."""
    step = next(step for step in (2, 5, 10, 20, 50, 100) if deepest / step <= 8)
    return range(0, int(deepest) + 1, step)


def draw_limit(ax: Axes, dimensions: IntArray, divisors: Sequence[int]) -> Axes:
    """The ceiling at fpr = 0.1 against the number of coordinates, exact and by the limit theorem."""
    alpha = np.array([0.1])
    for color, divisor in zip(CYCLE, divisors, strict=False):
        ceilings = [Ceiling(int(dimension) - 1, divisor) for dimension in dimensions]
        exact = np.array([ceiling.exact(alpha)[0] for ceiling in ceilings])
        limit = np.array([ceiling.by_limit(alpha)[0] for ceiling in ceilings])
        ax.plot(dimensions, exact, color=color, linewidth=1.8, label=f"K = {divisor:,}: exact")
        ax.plot(dimensions, limit, color=color, linestyle=":", linewidth=1.8, label=f"K = {divisor:,}: limit theorem")
    ax.axhline(0.9, color=GRAY, linewidth=0.8)
    ax.text(dimensions[-1], 0.91, "above this line a bound says nothing", color=GRAY, fontsize="small", ha="right")
    ax.set(xscale="log", ylim=(-0.02, 1.08))
    tidy(ax, xlabel="coordinates, T(n − 1)", ylabel="β at α = 0.1")
    ax.legend(frameon=False, fontsize="small", loc="lower left")
    return ax
