"""The pictures of the paper. Every function draws on the axes it is given and returns them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.numerics.types import FloatArray
from calipers.papers.style import BLUE, CYCLE, GRAY, GREEN, ORANGE, RED, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Sequence[tuple[float, float]]


def _series(ax: Axes, points: Points, **style: object) -> None:
    x, y = np.array(points).T
    ax.plot(x, y, **style)  # type: ignore[arg-type]


def draw_delta_against_rounds(
    ax: Axes, theorem: Mapping[float, Points], exact: Mapping[float, Points], marks: Sequence[float]
) -> Axes:
    """Figure 1: the theorem (solid, from where its condition holds) and the pair itself (dashed, circles)."""
    for color, (sigma, points) in zip(CYCLE, theorem.items(), strict=False):
        _series(ax, points, color=color, linewidth=1.8, label=f"σ = {sigma:g}")
        _series(ax, points[:1], color=color, marker="s", markersize=5, linestyle="none")
        _series(ax, exact[sigma], color=color, linewidth=1.0, linestyle="--", marker="o", markersize=3.5)
    ax.plot([], [], color="black", linewidth=1.8, label="Theorem 4.1")
    ax.plot([], [], color="black", linewidth=1.0, linestyle="--", marker="o", markersize=3.5, label="the pair itself")
    for mark in marks:
        ax.axhline(mark, color=GRAY, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlim=(60.0, 2e11), ylim=(3e-6, 1.0))
    tidy(ax, xlabel="rounds M", ylabel="δ: largest distance below 1 − a", title="One epoch")
    ax.legend(frameon=False, fontsize="small", loc="lower left")
    return ax


def draw_coefficients(ax: Axes, sigma: FloatArray, shuffle: FloatArray, symmetrized: FloatArray) -> Axes:
    """Figure 2, left: both coefficients, and that of the Poisson pair, which lies on the first."""
    ax.plot(sigma, shuffle, color=BLUE, linewidth=2.0, label="shuffling (Theorem 5.2)")
    ax.plot(sigma, symmetrized, color=ORANGE, linestyle="--", linewidth=1.8, label="symmetrized Poisson (Cor. 5.4)")
    marked = sigma[:: max(1, len(sigma) // 14)]
    ax.plot(marked, np.sqrt(np.expm1(marked**-2)), "o", color=RED, markersize=4, label="Poisson pair itself")
    ax.set_yscale("log")
    tidy(ax, xlabel="noise multiplier σ", ylabel="μ per unit of c = √(E/M)", title="GDP coefficients")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def draw_ratio(ax: Axes, sigma: FloatArray, ratio: FloatArray, midpoint: float) -> Axes:
    """Figure 2, right: the ratio that the paper draws, and the ratio of the pairs."""
    top, middle = math.sqrt(2.0), 0.5 * (1.0 + math.sqrt(2.0))
    ax.plot(sigma, ratio, color=ORANGE, linewidth=2.0, label="symmetrized Poisson / shuffling")
    ax.axhline(1.0, color=RED, linewidth=1.6, linestyle="--", label="Poisson pair / shuffling")
    ax.axhline(top, color=GRAY, linewidth=0.8, linestyle=":")
    ax.text(float(sigma[-1]), top, "√2", color=GRAY, ha="right", va="bottom")
    ax.plot([midpoint], [middle], "D", color=GREEN, markersize=7, label=f"σ = {midpoint:.3f}, ratio {middle:.3f}")
    ax.set_ylim(0.97, 1.55)
    tidy(ax, xlabel="noise multiplier σ", ylabel="ratio of coefficients", title="Is shuffling up to √2 better?")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def draw_rounds_against_noise(
    ax: Axes, sigma: FloatArray, curves: Mapping[float, Mapping[str, FloatArray]], exact: Mapping[float, Points]
) -> Axes:
    """Figure 3: Equation (3), Equation (53) with (19), the limit of the pair, and its exact values."""
    styles = {"eq3": ("-", 2.0), "eq53": ("--", 1.3), "limit": (":", 1.3)}
    for color, (delta, lines) in zip((BLUE, ORANGE, GREEN), curves.items(), strict=True):
        for name, values in lines.items():
            style, width = styles[name]
            label = f"δ = {delta:g}" if name == "eq3" else None
            ax.plot(sigma, values, color=color, linestyle=style, linewidth=width, label=label)
        _series(ax, exact[delta], color=color, marker="o", markersize=5, linestyle="none")
    ax.plot([], [], color="black", linewidth=2.0, label="Equation (3)")
    ax.plot([], [], color="black", linewidth=1.3, linestyle="--", label="Equation (53) with (19)")
    ax.plot([], [], color="black", linewidth=1.3, linestyle=":", label="limit of the pair")
    ax.plot([], [], color="black", marker="o", markersize=5, linestyle="none", label="the pair itself")
    ax.set_yscale("log")
    ax.set_ylim(30.0, 1e20)
    tidy(ax, xlabel="noise multiplier σ", ylabel="rounds M needed", title="One epoch")
    ax.legend(frameon=False, fontsize="small", loc="upper right", ncols=2)
    return ax


def draw_epochs(ax: Axes, epochs: FloatArray, lines: Mapping[str, FloatArray], exact: Points, title: str) -> Axes:
    """The advantage after E epochs: proven, conjectured, the limit, and what it is."""
    styles = (("-", RED), ("--", ORANGE), (":", BLUE))
    for (style, color), (label, values) in zip(styles, lines.items(), strict=True):
        ax.plot(epochs, values, color=color, linestyle=style, linewidth=1.8, label=label)
    _series(ax, exact, color=BLUE, marker="o", markersize=5, linestyle="none", label="the pair itself")
    ax.set(xscale="log", yscale="log")
    tidy(ax, xlabel="epochs E", ylabel="advantage", title=title)
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def draw_gaps(ax: Axes, alpha: FloatArray, gaps: Mapping[int, tuple[FloatArray, FloatArray]]) -> Axes:
    """How far the curve of E = M epochs lies above its limit, as a band between both bounds."""
    for color, (rounds, (low, high)) in zip(CYCLE, gaps.items(), strict=False):
        ax.fill_between(alpha, low, high, color=color, alpha=0.4, linewidth=0)
        ax.plot(alpha, 0.5 * (low + high), color=color, linewidth=1.2, label=f"M = E = {rounds}")
    ax.axhline(0.0, color=GRAY, linewidth=0.8)
    tidy(ax, xlabel="false positive rate α", ylabel="curve − limit (band: both bounds)", title="Gap to the limit")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def draw_errors(ax: Axes, lines: Mapping[str, Points], *, xlabel: str, ylabel: str, title: str, slope: str) -> Axes:
    """Errors against a count on logarithmic axes, with a line of slope -1 or -1/2 below the lowest to compare."""
    for color, (label, points) in zip(CYCLE, lines.items(), strict=False):
        _series(ax, points, color=color, marker="o", markersize=4, linewidth=1.5, label=label)
    power = {"1/M": -1.0, "1/√n": -0.5}[slope]
    x, y = np.array(min(lines.values(), key=lambda points: points[-1][1])).T
    ax.plot(x, 0.4 * y[-1] * (x / x[-1]) ** power, color=GRAY, linestyle=":", linewidth=1.2, label=f"slope of {slope}")
    ax.set(xscale="log", yscale="log")
    tidy(ax, xlabel=xlabel, ylabel=ylabel, title=title)
    ax.legend(frameon=False, fontsize="small", loc="best")
    return ax
