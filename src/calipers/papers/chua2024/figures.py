"""Figures 1 and 3 to 7: three samplers over one epoch, and the numbers that the text quotes. (Figure 2: `crossing`.)

The paper draws epsilon against sigma at fixed delta, or delta against epsilon at fixed sigma. So do we, with the
certified brackets of Poisson and shuffled batches added. A lower bound of shuffling that the text quotes gets two rows.
"By Equation (3)" compares it with what the paper's formula gives; the row without that remark compares it with the
bracket of the truth. The two can part: a number rounded up is not what the formula proves, and may still be true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from calipers.papers.chua2024 import published
from calipers.papers.chua2024.settings import Quantity, balls_and_bins, by_every_route, epoch, poisson
from calipers.papers.items import Progress, jaws_of, printed, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.run import Run

_SIGMA = (0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 1.1, 1.3)


def add_epsilons(table: Sheet, quote: Any, steps: int, delta: float, prefix: str = "", *, bins: bool = True) -> None:
    """Everything said about epsilon(delta) at one noise multiplier; `bins` adds balls-and-bins."""
    _add(table, epoch(quote.noise_multiplier, steps), "epsilon", delta, bins)
    table.beside(quote=quote, before=f"{prefix}σ = {quote.noise_multiplier:g}: ε", after="")


def add_deltas(table: Sheet, quote: Any, noise_multiplier: float, steps: int, *, bins: bool = False) -> None:
    """Everything said about delta(epsilon) at one epsilon; `bins` adds balls-and-bins."""
    _add(table, epoch(noise_multiplier, steps), "delta", quote.epsilon, bins)
    table.beside(quote=quote, before="δ", after=f"({quote.epsilon:g})")


def _add(table: Sheet, run: Run, quantity: Quantity, level: float, bins: bool) -> None:
    table.add(**by_every_route(run, quantity, level))
    table.beside(bins=getattr(balls_and_bins(run), quantity)(level) if bins else None, guarantee=None)


def _marks(quotes: Sequence[Any], axis: str) -> Sheet:
    """Where the printed numbers stand, and which way they bound."""
    table = Sheet("marks", listed=False)
    for quote in quotes:
        for said in (
            printed(text) for text in (quote.poisson, quote.renyi, quote.shuffle, quote.deterministic) if text
        ):
            ends = [end for end in (said.low, said.high) if math.isfinite(end)]
            kind = "about" if len(ends) == 2 else "at most" if math.isinf(said.low) else "at least"
            table.add(place=getattr(quote, axis), height=sum(ends) / len(ends), kind=kind)
    return table


def _curves(axis: str, places: Sequence[float], shown: Any, quantity: Quantity, progress: Progress) -> Sheet:
    """Along the axis, the deterministic batches by their upper jaw, the others as they are known."""
    table = Sheet("curves")
    for place in watched(places, progress):
        if quantity == "epsilon":
            found = by_every_route(epoch(place, shown.steps), quantity, shown.delta)
        else:
            found = by_every_route(epoch(shown.noise_multiplier, shown.steps), quantity, place)
        table.add(**{axis: place}, **(found | {"deterministic": jaws_of(found["deterministic"])[1]}))
    return table


def epsilon_figure(progress: Progress, figure: str) -> Computed:
    """epsilon against sigma at fixed delta and T, and the quoted numbers."""
    shown, quoted = getattr(published, figure), Sheet("quoted", listed=False)
    for quote in shown.quotes:
        add_epsilons(quoted, quote, shown.steps, shown.delta)
    if figure == "FIGURE_4":
        caption = published.FIGURE_4_STEPS_OF_CAPTION
        for quote in shown.quotes:
            add_epsilons(quoted, quote, caption, shown.delta, f"T = {caption:,}, ", bins=False)
    curves = _curves("noise_multiplier", _SIGMA, shown, "epsilon", progress)
    facts = {"shown": shown, "level": f"{shown.delta:g}"}
    return Computed([curves, quoted, _marks(shown.quotes, "noise_multiplier")], facts)


def delta_figure(progress: Progress, figure: str, epsilon: Sequence[float], lowest: float) -> Computed:
    """delta against epsilon at fixed sigma and T, and the quoted numbers; the picture ends at `lowest`."""
    shown, quoted = getattr(published, figure), Sheet("quoted", listed=False)
    for place, quote in enumerate(shown.quotes):
        add_deltas(quoted, quote, shown.noise_multiplier, shown.steps, bins=place == 0)
    if figure == "FIGURE_3":
        quoted.beside(guarantee=poisson(epoch(shown.noise_multiplier, shown.steps)).delta(4.0))
    if figure == "FIGURE_7":
        # The numbers quoted for epsilon = 1 again at epsilon = 1/2, where they fit.
        add_deltas(quoted, published.FIGURE_7_AT_ONE_HALF, shown.noise_multiplier, shown.steps)
    curves = _curves("epsilon", epsilon, shown, "delta", progress)
    return Computed([curves, quoted, _marks(shown.quotes, "epsilon")], {"shown": shown})
