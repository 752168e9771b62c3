"""Figures 1 and 3 to 7: three samplers over one epoch, and the numbers that the text quotes. (Figure 2: `crossing`.)

The paper draws epsilon against sigma at fixed delta, or delta against epsilon at fixed sigma. So do we, with the
certified brackets of Poisson and shuffled batches added. A lower bound of shuffling that the text quotes gets two rows.
"By Equation (3)" compares it with what the paper's formula gives; the row without that remark compares it with the
bracket of the truth. The two can part: a number rounded up is not what the formula proves, and may still be true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from calipers.papers.chua2024 import published
from calipers.papers.chua2024.settings import Quantity, balls_and_bins, by_every_route, epoch, poisson
from calipers.papers.items import ItemProgress, bounds_of, printed, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.run import Run

AXES: dict[Quantity, str] = {"epsilon": "noise_multiplier", "delta": "epsilon"}
"""What each quantity is drawn against."""
_SIGMA = (0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 1.1, 1.3)


def _asked(shown: Any, quantity: Quantity, place: float) -> tuple[Run, Quantity, float]:
    """What a figure asks at a place of its axis: epsilon(delta) with that noise, or delta at that epsilon."""
    if quantity == "epsilon":
        return epoch(place, shown.steps), quantity, shown.delta
    return epoch(shown.noise_multiplier, shown.steps), quantity, place


def add_quote(table: Sheet, quote: Any, shown: Any, quantity: Quantity, prefix: str = "", *, bins: bool) -> None:
    """Everything said at the place of one quote; `bins` adds balls-and-bins."""
    place = getattr(quote, AXES[quantity])
    run, _, level = asked = _asked(shown, quantity, place)
    table.add(**by_every_route(*asked))
    table.unlisted(bins=getattr(balls_and_bins(run), quantity)(level) if bins else None, guarantee=None, quote=quote)
    before, after = (f"{prefix}σ = {place:g}: ε", "") if quantity == "epsilon" else ("δ", f"({place:g})")
    table.unlisted(before=before, after=after)


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


def figure(
    progress: ItemProgress, figure: str, quantity: Quantity, places: Sequence[float] = _SIGMA, lowest: float = 0.0
) -> Computed:
    """epsilon against sigma, or delta against epsilon, and the quoted numbers; the picture ends at `lowest`."""
    shown, quoted, curves = getattr(published, figure), Sheet("quoted", listed=False), Sheet("curves")
    for number, quote in enumerate(shown.quotes):
        add_quote(quoted, quote, shown, quantity, bins=quantity == "epsilon" or number == 0)
    if figure == "FIGURE_3":
        quoted.unlisted(guarantee=poisson(epoch(shown.noise_multiplier, shown.steps)).delta(4.0))
    if figure == "FIGURE_4":
        caption = SimpleNamespace(steps=published.FIGURE_4_STEPS_OF_CAPTION, delta=shown.delta)
        for quote in shown.quotes:
            add_quote(quoted, quote, caption, quantity, f"T = {caption.steps:,}, ", bins=False)
    if figure == "FIGURE_7":
        # The numbers quoted for epsilon = 1 again at epsilon = 1/2, where they fit.
        add_quote(quoted, published.FIGURE_7_AT_ONE_HALF, shown, quantity, bins=False)
    for place in watched(places, progress):
        found = by_every_route(*_asked(shown, quantity, place))
        # Deterministic batches are drawn by their upper bound, the others as they are known.
        curves.add(**{AXES[quantity]: place}, **(found | {"deterministic": bounds_of(found["deterministic"])[1]}))
    return Computed([curves, quoted, _marks(shown.quotes, AXES[quantity])], {"shown": shown})
