"""Pictures of curves. Every function draws on the axes it is given and returns them.

No global state is touched: figures are built from `matplotlib.figure.Figure`, never through pyplot.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from calipers.bracket import Side
from calipers.extras import library
from calipers.reports.points import PlottedSide

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from calipers.reports.comparison import ProfileBounds

_MISSING = "Pictures need matplotlib: pip install '.[plots]' in the clone; or ask for CSV."
PROOF, ATTACK, PAPER = "#1b6ca8", "#c8452d", "#8a8a8a"
LABELS = {Side.UPPER: "proof", Side.LOWER: "attack"}
RUN_COLORS = ("#1b6ca8", "#c8452d", "#2f8f4e", "#7d4ca8", "#b8860b", "#4a4a4a")
COLORS = {Side.UPPER: PROOF, Side.LOWER: ATTACK}


def draw_tradeoff(ax: Axes, points: Sequence[PlottedSide]) -> Axes:
    """Trade-off curves, beta against alpha. The truth lies between the bounds; perfect privacy is dashed."""
    ax.plot([0, 1], [1, 0], color=PAPER, linestyle="--", linewidth=1, label="perfect privacy")
    ax.set(xlabel="type I error (false positive rate)", ylabel="type II error (false negative rate)")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return _with_bounds(ax, points)


def draw_profile(ax: Axes, points: Sequence[PlottedSide]) -> Axes:
    """Privacy profiles, delta (logarithmic) against epsilon. Points with delta = 0 have no logarithm and stay out."""
    ax.set(xlabel="epsilon", ylabel="delta")
    ax.set_yscale("log", nonpositive="mask")
    return _with_bounds(ax, points)


def _with_bounds(ax: Axes, points: Sequence[PlottedSide]) -> Axes:
    for curve in points:
        ax.plot(curve.x, curve.y, color=COLORS[curve.side], linewidth=1.6, label=LABELS[curve.side])
    ax.legend(frameon=False)
    return ax


def draw_profiles(ax: Axes, profiles: Sequence[ProfileBounds], *, smallest: float = 1e-8) -> Axes:
    """Bounds of several privacy profiles, one color each: solid the proof, dashed the attack, the truth between."""
    for i, (profile, color) in enumerate(zip(profiles, itertools.cycle(RUN_COLORS))):
        width = max(1.4, 3.4 - 0.6 * i)  # of two bounds that coincide the first stays visible around the second
        lower, upper = (which.clip(min=0.1 * smallest) for which in (profile.lower, profile.upper))
        ax.fill_between(profile.epsilon, lower, upper, color=color, alpha=0.15, linewidth=0)
        ax.plot(profile.epsilon, upper, color=color, linewidth=width, label=profile.name)
        ax.plot(profile.epsilon, lower, color=color, linewidth=0.8 * width, linestyle="--")
    ax.plot([], [], color=PAPER, linewidth=1.6, label=LABELS[Side.UPPER])
    ax.plot([], [], color=PAPER, linewidth=1.3, linestyle="--", label=LABELS[Side.LOWER])
    ax.set(xlabel="epsilon", ylabel="delta", yscale="log", ylim=(smallest, 1.0))
    ax.set_xlim(left=0.0)
    ax.tick_params(axis="x", pad=7)  # in the corner the first labels of both axes would touch
    # Next to the axes: curves run through every corner of them.
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return ax


def picture(draw: Callable[[Axes], object], file_format: str, *, wide: bool = False) -> bytes:
    """One figure as "png" or "svg" bytes; `draw` gets the axes. A wide one has room for a legend next to them."""
    figure = empty_figure((8.0 if wide else 6.0, 5.0))
    draw(figure.subplots())
    # A mark by which a later call knows its own file (calipers.reports.files).
    return saved(figure, file_format, {{"png": "Software", "svg": "Creator"}[file_format]: "Drawn with Calipers"})


def empty_figure(size: tuple[float, float]) -> Figure:
    """A figure of so many inches."""
    found: Figure = library("matplotlib.figure", _MISSING).Figure(figsize=size, layout="constrained")
    return found


def saved(figure: Figure, file_format: str, metadata: dict[str, Any]) -> bytes:
    """The figure as the bytes of a file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, dpi=160, metadata=metadata)
    return buffer.getvalue()
