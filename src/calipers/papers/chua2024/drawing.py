"""The pictures of the paper. Every function draws on the axes it is given and returns them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.numerics.types import FloatArray
from calipers.papers.items import Published
from calipers.papers.style import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = Mapping[str, FloatArray]
"""Columns of a figure's CSV file: one array per curve, all of the length of the horizontal axis."""

_LINES: tuple[tuple[str, str, str, str, str], ...] = (
    ("deterministic", GREEN, "--", "", "deterministic (Proposition 3.1)"),
    ("event", ORANGE, ":", "x", "shuffled, at least: Equation (3)"),
    ("renyi", PURPLE, "-.", "", "Poisson, at most: Rényi accounting"),
    ("poisson_upper", BLUE, "-", "o", "Poisson (certified from both sides)"),
)


Quotes = Sequence[tuple[float, Published]]
"""Printed numbers with their place on the horizontal axis."""


def _draw_quotes(ax: Axes, quotes: Quotes) -> None:
    """A triangle for each printed bound (pointing the way it bounds), a square for each printed number."""
    for place, published in quotes:
        if math.isinf(published.low):
            marker, height = "v", published.high
        elif math.isinf(published.high):
            marker, height = "^", published.low
        else:
            marker, height = "s", 0.5 * (published.low + published.high)
        ax.plot(place, height, marker=marker, markersize=8, markerfacecolor="none", color="black", linestyle="")
    ax.plot(
        [],
        [],
        "^",
        markersize=7,
        markerfacecolor="none",
        color="black",
        label="printed: at least (△), at most (▽), about (□)",
    )


def _draw_samplers(ax: Axes, x: FloatArray, curves: Curves, quotes: Quotes) -> None:
    """The open bracket of shuffling as a band, one line for each of the paper's curves, and what is printed."""
    ax.fill_between(
        x,
        curves["shuffle_lower"],
        curves["shuffle_upper"],
        color=RED,
        alpha=0.13,
        linewidth=0,
        label="shuffled: bracket",
    )
    ax.plot(x, curves["shuffle_lower"], color=RED, linewidth=2.0, label="shuffled, at least: best test")
    for key, color, style, marker, label in _LINES:
        ax.plot(x, curves[key], color=color, linestyle=style, marker=marker, markersize=4, linewidth=1.5, label=label)
    _draw_quotes(ax, quotes)


def draw_epsilon(ax: Axes, sigma: FloatArray, curves: Curves, quotes: Quotes, title: str) -> Axes:
    """Figures 1, 4 and 5: epsilon against the noise multiplier."""
    _draw_samplers(ax, sigma, curves, quotes)
    ax.set_yscale("log")
    tidy(ax, xlabel="noise multiplier σ", ylabel="ε", title=title)
    ax.legend(frameon=False, fontsize="x-small", loc="lower left")
    return ax


def draw_delta(ax: Axes, epsilon: FloatArray, curves: Curves, quotes: Quotes, title: str, lowest: float) -> Axes:
    """Figures 3, 6 and 7: delta against epsilon; what lies below `lowest` is left to the CSV file."""
    _draw_samplers(ax, epsilon, curves, quotes)
    ax.set_yscale("log")
    # A little room on both sides, so that a mark at the edge is not cut in half.
    room = 0.02 * float(epsilon[-1])
    ax.set(xlim=(-room, float(epsilon[-1]) + room), ylim=(lowest, 3.0))
    tidy(ax, xlabel="ε", ylabel="δ(ε)", title=title)
    ax.legend(frameon=False, fontsize="x-small", loc="lower left")
    return ax


def draw_crossing(ax: Axes, epsilon: FloatArray, curves: Curves, marks: Mapping[str, float], last: float) -> Axes:
    """Figure 2: Poisson against deterministic batches up to epsilon = `last`, with what the proof of 4.2(b) shows."""
    shown = epsilon <= last
    x = epsilon[shown]
    ax.plot(x, curves["deterministic"][shown], color=GREEN, linestyle="--", linewidth=1.8, label="deterministic")
    ax.plot(x, curves["poisson_upper"][shown], color=BLUE, linewidth=1.8, label="Poisson (certified from both sides)")
    for key, color, label in (
        ("halfspace_best", ORANGE, "Poisson, at least: best halfspace"),
        ("halfspace_closed", PURPLE, "Poisson, at least: closed form of 4.2(b)"),
    ):
        ax.plot(x, np.where(curves[key][shown] > 0.0, curves[key][shown], np.nan), color=color, ls=":", label=label)
    floor = float(np.min(curves["deterministic"][shown]))
    ax.set_yscale("log")
    ax.set(xlim=(0.0, last), ylim=(0.3 * floor, 3.0))
    for name, place in marks.items():
        if place < last:
            ax.axvline(place, ymin=0.22, color=GRAY, linewidth=0.8)
            where = (place + 0.008 * last, 0.28)
            text = ax.annotate(f"{name} = {place:.2f}", where, xycoords=("data", "axes fraction"), va="bottom")
            text.set(rotation=90, color=GRAY, fontsize="x-small")
    return tidy(ax, xlabel="ε", ylabel="δ(ε)")
