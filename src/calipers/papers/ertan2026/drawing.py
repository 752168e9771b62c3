"""The pictures of the paper. Every function draws on the axes it is given and returns them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.numerics.types import FloatArray
from calipers.papers.ertan2026 import published
from calipers.papers.items import Table
from calipers.papers.style import BLUE, CYCLE, GRAY, GREEN, ORANGE, PURPLE, RED, SKY, tidy, tradeoff_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROOT_2 = math.sqrt(2.0)


def _segment(ax: Axes, fpr: float, distance: float, color: str) -> tuple[float, float]:
    """The perpendicular from the point at `fpr`, `distance` below the line 1 - a; returns its middle."""
    fnr, step = 1.0 - fpr - distance * _ROOT_2, distance / _ROOT_2
    ax.plot([fpr, fpr + step], [fnr, fnr + step], "o-", color=color, linewidth=1.8, markersize=4, zorder=5)
    return fpr + 0.5 * step, fnr + 0.5 * step


def draw_separation(ax: Axes, alpha: FloatArray, beta: FloatArray, kappa: float) -> Axes:
    """Figure 1: a curve, the perpendicular κ, and the vertical √2 κ."""
    tradeoff_axes(ax, "Separation of one shuffled epoch, M = 20")
    ax.plot(alpha, beta, color=GREEN, linewidth=2, label="f, the epoch at σ = 1/√(2 ln M)")
    fixed = 0.5 - kappa / _ROOT_2
    x, y = _segment(ax, fixed, kappa, RED)
    ax.annotate(f"κ = {kappa:.3f}", (x, y), xytext=(8, -10), textcoords="offset points", color=RED)
    ax.plot([fixed, fixed], [fixed, 1.0 - fixed], color=GRAY, linestyle="--", linewidth=1.2)
    ax.text(fixed - 0.01, 0.66, f"√2 κ = {_ROOT_2 * kappa:.3f}", color=GRAY, fontsize="small", ha="right")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def draw_three_separations(
    ax: Axes, alpha: FloatArray, sub: FloatArray, true: FloatArray, segments: Mapping[str, tuple[float, float]]
) -> Axes:
    """Figure 2: f_sub, the true curve, and the three distances from the line."""
    tradeoff_axes(ax, "Three separations of one shuffled epoch, M = 20")
    ax.plot(alpha, sub, color=BLUE, linewidth=2, label="f_sub, the largest observation")
    ax.plot(alpha, true, color=GREEN, linestyle="--", linewidth=2, label="f_shuf, the best tests")
    for color, (name, (fpr, distance)) in zip((RED, BLUE, GREEN), segments.items(), strict=True):
        _segment(ax, fpr, distance, color)
        step = distance / _ROOT_2
        ax.annotate(
            f"{name} = {distance:.4f}",
            (fpr + step, 1.0 - fpr - distance * _ROOT_2 + step),
            xytext=(6, 3),
            textcoords="offset points",
            color=color,
        )
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def _rounds_axis(ax: Axes, title: str) -> Axes:
    ax.set_xscale("log")
    tidy(ax, xlabel="rounds per epoch M", ylabel="separation", title=title)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize="small")
    return ax


def draw_explicit_bounds(
    ax: Axes, rounds: Sequence[int], lines: Mapping[str, Sequence[float]], measured: Table
) -> Axes:
    """Figure 3: Equation (52) for several s, the true separation at s = 1/√2, and the ceiling of one epoch."""
    for color, (label, values) in zip(CYCLE, lines.items(), strict=False):
        # A negative bound says nothing.
        shown = np.where(np.array(values) >= 0.0, values, np.nan)
        ax.plot(rounds, shown, color=color, linewidth=1.8, label=f"(52), s = {label}")
    counts, ceilings, truth = (measured.column(name) for name in ("rounds", "ceiling", "separation_lower"))
    ax.plot(counts, ceilings, color=GRAY, linestyle="--", linewidth=1.4, label="one Poisson epoch, any σ: at most")
    ax.plot(counts, truth, "o", color=ORANGE, label="one Poisson epoch, s = 1/√2: truth")
    ax.set_ylim(0.0, 0.75)
    return _rounds_axis(ax, "What the Gaussian limit says, and what one epoch does")


def draw_predictions(ax: Axes, rounds: Sequence[int], lines: Mapping[int, Sequence[float]], measured: Table) -> Axes:
    """Figure 4: the predicted separation for several E, and the true one."""
    # The lines meet at 1/√2; the later ones are thinner, so that all of them can be seen.
    styles = zip((ORANGE, BLUE, GREEN), (5.0, 3.0, 1.2), lines.items(), strict=True)
    for color, width, (epochs, values) in styles:
        runs = measured.where(epochs=epochs)
        counts, truth = ([run[name] for run in runs] for name in ("rounds", "separation_lower"))
        ax.plot(rounds, values, color=color, linewidth=width, label=f"E = {epochs}: predicted")
        ax.plot(counts, truth, "o", color=color, label=f"E = {epochs}: truth")
    counts, ceilings = ([run[name] for run in measured.where(epochs=1)] for name in ("rounds", "ceiling"))
    ax.plot(counts, ceilings, color=GRAY, linestyle="--", linewidth=1.4, label="E = 1, any σ: at most")
    ax.set_ylim(0.0, 0.75)
    return _rounds_axis(ax, "Separation at σ = 1/√(2 ln M): predicted and true")


def draw_dichotomies(ax: Axes, table: Table) -> Axes:
    """Theorems 6.1 and 6.3 at the threshold, and the separations they bound."""
    counts = table.column("rounds")
    for name, label, style in (
        ("worst_lower", "shuffling, worst case", {"color": PURPLE, "marker": "s", "linestyle": "None"}),
        ("isolated_lower", "shuffling, isolated view", {"color": GREEN, "marker": "o", "linestyle": "None"}),
        ("poisson_lower", "Poisson", {"color": ORANGE, "marker": "^", "linestyle": "None"}),
        ("kappa_sub", "κ_sub", {"color": SKY, "linestyle": "--", "linewidth": 1.4}),
        ("theorem_6_1", "Theorem 6.1", {"color": BLUE, "linewidth": 1.8}),
        ("theorem_6_3", "Theorem 6.3 (Poisson)", {"color": RED, "linewidth": 1.8}),
    ):
        ax.plot(counts, table.column(name), label=label, **style)
    ax.set_ylim(0.0, 0.75)
    return _rounds_axis(ax, "Separation at σ = 1/√(2 ln M): bounds and truth")


def draw_utility(
    figure: Figure,
    panels: Mapping[str, Mapping[tuple[int, str], Sequence[tuple[float, float]]]],
    thresholds: Mapping[str, float],
) -> None:
    """Test accuracy against the noise multiplier, one panel for each dataset, the forced noise marked."""
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    colors = dict(zip(sorted({epochs for lines in panels.values() for epochs, _ in lines}), CYCLE, strict=False))
    looks = dict(zip(published.SAMPLERS, (("-", "o", 5, True), ("--", "s", 8, False)), strict=True))
    shown = {}
    for ax, (title, lines) in zip(axes, panels.items(), strict=True):
        tidy(ax, xlabel="noise multiplier σ", ylabel="test accuracy (%)" if ax is axes[0] else "", title=title)
        ax.axvline(thresholds[title], color=GRAY, linestyle=":", zorder=0)
        for (epochs, sampler), points in lines.items():
            style, marker, size, filled = looks[sampler]
            (line,) = ax.plot(*zip(*points, strict=True), style, marker=marker, markersize=size, color=colors[epochs])
            line.set_markerfacecolor(colors[epochs] if filled else "none")
            shown[f"{epochs} epoch{'s' if epochs > 1 else ''}, {sampler}"] = line
        ax.set(ylim=(0, 103))
        ax.locator_params(axis="x", nbins=5)
        ax.annotate(
            "σ = 1/√(2 ln M)",
            (thresholds[title], 3),
            xytext=(-5 if ax is not axes[-1] else 5, 0),
            textcoords="offset points",
            ha="right" if ax is not axes[-1] else "left",
            color=GRAY,
            fontsize="small",
        )
    figure.legend(shown.values(), shown.keys(), frameon=False, fontsize="small", loc="outside lower center", ncols=6)
