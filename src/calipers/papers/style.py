"""How the pictures look: colors that color-blind readers can tell apart, a light grid, room for the legend.

Everything acts on the axes it is given; nothing global is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008), the yellow left out: it is too faint for lines on white.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
GRAY = "#7f7f7f"


def tidy(ax: Axes, *, xlabel: str, ylabel: str, title: str = "") -> Axes:
    """Labels, a light grid behind the data, and no box where it says nothing."""
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if title:
        ax.set_title(title, fontsize="medium")
    ax.grid(True, color="#d9d9d9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def tinted(color: str, strength: float) -> tuple[float, float, float]:
    """The color mixed with white: 1 is the color itself, 0 is white."""
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (1.0 - strength * (1.0 - channel) for channel in channels)
    return red, green, blue


def tradeoff_axes(ax: Axes, title: str = "") -> Axes:
    """The unit square of a trade-off curve, with the line of perfect privacy."""
    ax.plot([0, 1], [1, 0], color=GRAY, linestyle=":", linewidth=1, label="perfect privacy")
    # A little room around the square, so that a curve along its edges can be seen.
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    return tidy(ax, xlabel="false positive rate α", ylabel="false negative rate β", title=title)
