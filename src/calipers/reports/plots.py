"""Pictures of curves. Every function draws on the axes it is given and returns them.

No global state is touched: figures are built from `matplotlib.figure.Figure`, never through pyplot.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from calipers.bracket import Side
from calipers.errors import MissingExtraError
from calipers.reports.points import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROOF, ATTACK, PAPER = "#1b6ca8", "#c8452d", "#8a8a8a"
LABELS = {Side.UPPER: "upper jaw (proof)", Side.LOWER: "lower jaw (attack)"}
COLORS = {Side.UPPER: PROOF, Side.LOWER: ATTACK}


def draw_tradeoff(ax: Axes, points: Sequence[Points], *, label: str = "") -> Axes:
    """Trade-off curves, beta against alpha. The truth lies between the jaws; perfect privacy is dashed."""
    ax.plot([0, 1], [1, 0], color=PAPER, linestyle="--", linewidth=1, label="perfect privacy")
    _draw_jaws(ax, points, label)
    ax.set(xlabel="type I error (false positive rate)", ylabel="type II error (false negative rate)")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(frameon=False)
    return ax


def draw_profile(ax: Axes, points: Sequence[Points], *, label: str = "") -> Axes:
    """Privacy profiles, delta (logarithmic) against epsilon. Points with delta = 0 have no logarithm and stay out."""
    visible = [_positive(curve) for curve in points]
    _draw_jaws(ax, visible, label)
    ax.set(xlabel="epsilon", ylabel="delta", yscale="log")
    ax.legend(frameon=False)
    return ax


def picture(draw: Callable[[Axes], object], file_format: str) -> bytes:
    """One figure as "png" or "svg" bytes; `draw` gets the axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("Pictures need matplotlib; install it, or ask for CSV.") from error
    figure = Figure(figsize=(6.0, 5.0), layout="constrained")
    draw(figure.subplots())
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, dpi=160)
    return buffer.getvalue()


def _draw_jaws(ax: Axes, points: Sequence[Points], label: str) -> None:
    prefix = f"{label}, " if label else ""
    for curve in points:
        ax.plot(curve.x, curve.y, color=COLORS[curve.side], linewidth=1.6, label=prefix + LABELS[curve.side])


def _positive(curve: Points) -> Points:
    kept = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y > 0]
    return Points(curve.side, tuple(x for x, _ in kept), tuple(y for _, y in kept))
