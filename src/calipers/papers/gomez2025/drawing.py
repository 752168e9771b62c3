"""The pictures of the paper. Every function draws on the axes it is given and returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.curves import TradeoffCurve
from calipers.numerics.normal import gaussian_delta, gaussian_power, gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.style import BLUE, CYCLE, GRAY, GREEN, ORANGE, RED, tidy, tradeoff_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALPHA: FloatArray = np.unique(np.concatenate((np.geomspace(1e-6, 1.0, 241), np.linspace(0.0, 1.0, 201))))
"""Where curves are drawn and listed."""


def draw_laplace(ax: Axes, true: TradeoffCurve, pure: TradeoffCurve) -> Axes:
    """Figure 1 (a): the Laplace mechanism and the guarantee of pure DP."""
    tradeoff_axes(ax, "(a) Laplace, b = 1")
    ax.plot(ALPHA, true(ALPHA), color=BLUE, linewidth=2, label="Laplace")
    ax.plot(ALPHA, pure(ALPHA), color=GREEN, linestyle="--", linewidth=1.6, label="ε = 1")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def draw_dpsgd(ax: Axes, true: TradeoffCurve, mu: float, pair: TradeoffCurve, label: str) -> Axes:
    """Figure 1 (b): DP-SGD, its GDP guarantee and its (epsilon, delta) guarantee."""
    tradeoff_axes(ax, "(b) DP-SGD, σ = 9.4, T = 2000")
    ax.plot(ALPHA, true(ALPHA), color=BLUE, linewidth=3, alpha=0.55, label="DP-SGD")
    ax.plot(ALPHA, gaussian_tradeoff(mu, ALPHA), color=RED, linestyle="--", linewidth=1.4, label=f"{mu:.3f}-GDP")
    ax.plot(ALPHA, pair(ALPHA), color=GREEN, linestyle="-.", linewidth=1.6, label=label)
    ax.axvline(0.1, color=GRAY, linewidth=0.8)
    ax.text(0.11, 0.62, "FPR 10 %", color=GRAY, fontsize="small")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def draw_regret_bars(ax: Axes, names: Sequence[str], laplace: Sequence[float], dpsgd: Sequence[float]) -> Axes:
    """Figure 1 (c): the regret of each representation, logarithmic."""
    places = np.arange(len(names))
    for offset, values, color, label in ((-0.2, laplace, ORANGE, "Laplace"), (0.2, dpsgd, BLUE, "DP-SGD")):
        bars = ax.bar(places + offset, values, width=0.38, color=color, label=label)
        ax.bar_label(bars, [f"{value:.2g}" for value in values], fontsize="x-small", padding=1)
    tidy(ax, xlabel="", ylabel="regret", title="(c) regret of each report")
    ax.grid(False, axis="x")
    ax.set_yscale("log")
    ax.set_xticks(places, names, fontsize="small")
    ax.set_ylim(5e-4, 2.0)
    ax.legend(frameon=False, fontsize="small", loc="upper right", ncols=2)
    return ax


def draw_shift(ax: Axes, true: TradeoffCurve, reported: TradeoffCurve, kappa: float) -> Axes:
    """Figure 2: the reported curve, the true one, and the true one shifted left and down until it lies below."""
    tradeoff_axes(ax, f"Regret Δ = {kappa:.3f}")
    ax.plot(ALPHA, true(ALPHA), color=BLUE, linewidth=2, label="f, the mechanism")
    ax.plot(ALPHA, reported(ALPHA), color=GREEN, linestyle="-.", linewidth=1.8, label="f̃, the report")
    moved = ALPHA[ALPHA + kappa <= 1.0]
    ax.plot(moved, true(moved + kappa) - kappa, color=RED, linestyle="--", linewidth=1.6, label="f(α + Δ) − Δ")
    start = 0.15
    ax.annotate(
        "",
        xy=(start, float(true(start + kappa)) - kappa),
        xytext=(start + kappa, float(true(start + kappa))),
        arrowprops={"arrowstyle": "->", "color": GRAY},
    )
    ax.legend(frameon=False, loc="upper right")
    return ax


def draw_gdp_fit(ax: Axes, true: TradeoffCurve, mu: float, name: str, title: str) -> Axes:
    """Figure 5: a mechanism and the best GDP guarantee."""
    tradeoff_axes(ax, title)
    ax.plot(ALPHA, true(ALPHA), color=BLUE, linewidth=3, alpha=0.55, label=name)
    ax.plot(ALPHA, gaussian_tradeoff(mu, ALPHA), color=RED, linestyle="--", linewidth=1.5, label=f"{mu:.3f}-GDP")
    ax.legend(frameon=False, loc="upper right")
    return ax


def draw_profile(ax: Axes, mu: float, pairs: Sequence[tuple[float, float]], epsilon: FloatArray) -> Axes:
    """Figure 6, top: the profile of mu-GDP; the first pair is the one it is calibrated to."""
    ax.plot(epsilon, gaussian_delta(mu, epsilon), color=BLUE, linewidth=2.5, label=f"{mu:.3f}-GDP")
    others = np.array(pairs[1:])
    ax.plot(others[:, 0], others[:, 1], "o", color=ORANGE, markersize=6, label="other (ε, δ) of the same mechanism")
    ax.plot(*pairs[0], "o", color=BLUE, markersize=11, label=f"ε = {pairs[0][0]:g}, δ = {pairs[0][1]:g}")
    ax.set_yscale("log")
    ax.set(xlim=(0.0, float(epsilon[-1])), ylim=(1e-7, 1.5))
    tidy(ax, xlabel="ε", ylabel="δ(ε)", title="Privacy profile")
    ax.legend(frameon=False, fontsize="small", loc="lower left")
    return ax


def draw_attack_bounds(ax: Axes, mu: float, pairs: Sequence[tuple[float, float]], fpr: FloatArray) -> Axes:
    """Figure 6, bottom: the largest true positive rate each pair allows, and all of them together."""
    for number, (epsilon, delta) in enumerate(pairs):
        bound = np.minimum(np.minimum(delta + np.exp(epsilon) * fpr, 1.0 - np.exp(-epsilon) * (1.0 - delta - fpr)), 1.0)
        if number == 0:
            ax.plot(fpr, bound, color=BLUE, linewidth=1.2, label=f"ε = {epsilon:g}, δ = {delta:g} alone")
        else:
            label = "one other (ε, δ) each" if number == 1 else None
            ax.plot(fpr, bound, color=ORANGE, linewidth=1.0, linestyle="--", label=label)
    ax.plot(fpr, gaussian_power(mu, fpr), color=BLUE, linewidth=3, label="all of them: the GDP curve")
    ax.plot(fpr, fpr, color=GRAY, linestyle=":", linewidth=1, label="guessing")
    ax.set(xscale="log", yscale="log", xlim=(float(fpr[0]), 1.0), ylim=(float(fpr[0]), 1.4))
    tidy(ax, xlabel="false positive rate", ylabel="true positive rate at most", title="Membership inference bounds")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax


def draw_family(ax: Axes, curves: Sequence[TradeoffCurve], mus: Sequence[float], labels: Sequence[str]) -> Axes:
    """Figures 7 and 8, left: curves (solid) and their GDP guarantees (dotted)."""
    tradeoff_axes(ax)
    for color, curve, mu, label in zip(CYCLE, curves, mus, labels, strict=False):
        ax.plot(ALPHA, curve(ALPHA), color=color, linewidth=2.2, alpha=0.6, label=label)
        ax.plot(ALPHA, gaussian_tradeoff(mu, ALPHA), color=color, linestyle=":", linewidth=1.8)
    ax.plot([], [], color="black", linestyle=":", label="μ-GDP")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def draw_gaps(ax: Axes, gaps: Sequence[tuple[FloatArray, FloatArray]], labels: Sequence[str]) -> Axes:
    """Figures 7 and 8, right: how far the GDP guarantee lies below the curve, as a band between both bounds."""
    inside = (ALPHA > 0.0) & (ALPHA < 1.0)
    for color, (low, high), label in zip(CYCLE, gaps, labels, strict=False):
        ax.fill_between(ALPHA[inside], low[inside], high[inside], color=color, alpha=0.45, linewidth=0)
        ax.plot(ALPHA[inside], 0.5 * (low + high)[inside], color=color, linewidth=1.2, label=label)
    ax.set_xscale("log")
    tidy(ax, xlabel="false positive rate α", ylabel="curve − μ-GDP (band: both bounds)")
    ax.ticklabel_format(axis="y", style="sci", scilimits=(-3, -3))
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax
