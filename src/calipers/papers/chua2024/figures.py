"""Figures 1 and 3 to 7: three samplers over one epoch. (Figure 2 has its own module.)

The paper draws epsilon against sigma at fixed delta, or delta against epsilon at fixed sigma. So do we, with the
certified brackets of Poisson and shuffled batches added; the points of the curves are in the CSV files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calipers.papers.chua2024 import drawing, published
from calipers.papers.chua2024.quoted import delta_rows, epsilon_rows, number
from calipers.papers.chua2024.settings import by_every_route, epoch, poisson
from calipers.papers.items import Outcome, Picture, Progress, Row, Table, Value, jaws_of, printed, watched
from calipers.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIGMA = (0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 1.1, 1.3)


def _point(run: Run, quantity: Literal["epsilon", "delta"], level: float) -> dict[str, Value]:
    """One place of the curves: the deterministic batches by their upper jaw, the others as they are known."""
    found = by_every_route(run, quantity, level)
    return found | {"deterministic": jaws_of(found["deterministic"])[1]}


def _drawn(
    table: Table, rows: list[Row], quotes: Sequence[Any], axis: str, draw: Callable[..., object], *more: object
) -> Outcome:
    """The curves of the table over its first column, with what is printed."""
    columns = {name: np.array(table.column(name)) for name in table.records[0]}
    marks = [
        (getattr(quote, axis), printed(text))
        for quote in quotes
        for text in (quote.poisson, quote.renyi, quote.shuffle, quote.deterministic)
        if text
    ]

    def picture(canvas: Figure) -> None:
        draw(canvas.subplots(), columns.pop(axis), columns, marks, *more)

    return Outcome(rows, data=(table.data,), picture=Picture(picture, (6.4, 5.0)))


def epsilon_figure(progress: Progress, figure: str) -> Outcome:
    """epsilon against sigma at fixed delta and T, and the quoted numbers."""
    shown = getattr(published, figure)
    rows = [row for quote in shown.quotes for row in epsilon_rows(quote, shown.steps, shown.delta)]
    if figure == "FIGURE_4":
        caption = published.FIGURE_4_STEPS_OF_CAPTION
        for quote in shown.quotes:
            rows += epsilon_rows(quote, caption, shown.delta, f"T = {number(caption)}, ", bins=False)
    table = Table("curves")
    for sigma in watched(_SIGMA, progress):
        table.add(noise_multiplier=sigma, **_point(epoch(sigma, shown.steps), "epsilon", shown.delta))
    title = f"δ = {shown.delta:.0e}".replace("e-0", "e-") + f", one epoch of T = {number(shown.steps)} batches"
    return _drawn(table, rows, shown.quotes, "noise_multiplier", drawing.draw_epsilon, title)


def delta_figure(progress: Progress, figure: str, epsilon: Sequence[float], lowest: float) -> Outcome:
    """delta against epsilon at fixed sigma and T, and the quoted numbers; the picture ends at `lowest`."""
    shown = getattr(published, figure)
    run = epoch(shown.noise_multiplier, shown.steps)
    rows: list[Row] = []
    for place, quote in enumerate(shown.quotes):
        rows += delta_rows(quote, shown.noise_multiplier, shown.steps, bins=place == 0)
    if figure == "FIGURE_3":
        guarantee = poisson(run).delta(4.0)
        rows.append(Row.of("δ of the guarantee (4, δ) of Poisson batches", published.FIGURE_3_ROUNDED_DELTA, guarantee))
    if figure == "FIGURE_7":
        # The numbers quoted for epsilon = 1 again at epsilon = 1/2, where they fit.
        rows += delta_rows(published.FIGURE_7_AT_ONE_HALF, shown.noise_multiplier, shown.steps)
    table = Table("curves")
    for value in watched(epsilon, progress):
        table.add(epsilon=value, **_point(run, "delta", value))
    title = f"σ = {shown.noise_multiplier:g}, one epoch of T = {number(shown.steps)} batches"
    return _drawn(table, rows, shown.quotes, "epsilon", drawing.draw_delta, title, lowest)
