"""The quoted numbers as rows: the paper's own route and the certified bracket, one below the other.

A lower bound of shuffling that the text quotes gets two rows. "By Equation (3)" compares it with what the paper's
formula gives; the row without that remark compares it with the bracket of the truth. The two can part: a number rounded
up is not what the formula proves, and may still be true.
"""

from __future__ import annotations

from typing import Any, Literal

from calipers.papers.chua2024.settings import balls_and_bins, by_every_route, epoch
from calipers.papers.items import Row
from calipers.run import Run

EVENT_NOTE = "lower bound: the best event {max w >= C}"
SHUFFLE_NOTE = "best test found to Theorem 4.1"
RENYI_NOTE = "upper bound: Proposition 12 of Canonne et al., best of the orders 1.1 to 63"
BINS_NOTE = "not in the paper: each record picks its batch independently"


def number(value: float) -> str:
    """A count with its thousands, for labels: 10,000."""
    return f"{value:,.0f}"


def epsilon_rows(quote: Any, steps: int, delta: float, prefix: str = "", *, bins: bool = True) -> list[Row]:
    """Everything said about epsilon(delta) at one noise multiplier; `bins` adds balls-and-bins."""
    name = f"{prefix}σ = {quote.noise_multiplier:g}: ε"
    return _rows(quote, epoch(quote.noise_multiplier, steps), "epsilon", delta, (name, ""), bins)


def delta_rows(quote: Any, noise_multiplier: float, steps: int, *, bins: bool = False) -> list[Row]:
    """Everything said about delta(epsilon) at one epsilon; `bins` adds balls-and-bins."""
    return _rows(quote, epoch(noise_multiplier, steps), "delta", quote.epsilon, ("δ", f"({quote.epsilon:g})"), bins)


def _rows(
    quote: Any, run: Run, quantity: Literal["epsilon", "delta"], level: float, name: tuple[str, str], bins: bool
) -> list[Row]:
    found, (before, after) = by_every_route(run, quantity, level), name
    rows = [
        Row.of(f"{before}_P{after}", quote.poisson, found["poisson"]),
        Row.of(f"{before}_P{after} by Rényi accounting", quote.renyi, found["renyi"], "estimate", RENYI_NOTE),
        Row.of(f"{before}_S{after} by Equation (3)", quote.shuffle, found["event"], "closed form", EVENT_NOTE),
        Row.of(f"{before}_S{after}", quote.shuffle, found["shuffle"], note=SHUFFLE_NOTE),
        Row.of(f"{before}_D{after}", quote.deterministic, found["deterministic"], "closed form"),
    ]
    if bins:
        spread = getattr(balls_and_bins(run), quantity)(level)
        rows.append(Row.of(f"{before}{after} of balls-and-bins", None, spread, note=BINS_NOTE))
    return rows
