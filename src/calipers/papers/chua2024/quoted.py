"""The quoted numbers as rows: the paper's own route and the certified bracket, one below the other.

A lower bound of shuffling that the text quotes gets two rows. "By Equation (3)" compares it with what the paper's
formula gives; the row without that remark compares it with the bracket of the truth. The two can part: a number rounded
up is not what the formula proves, and may still be true.
"""

from __future__ import annotations

from calipers.papers.chua2024.published import DeltaQuote, EpsilonQuote
from calipers.papers.chua2024.settings import (
    Interval,
    Setting,
    balls_and_bins,
    deterministic_delta_bracket,
    deterministic_epsilon_bracket,
    poisson,
    renyi_delta,
    renyi_epsilon,
    shuffle_delta_bracket,
    shuffle_delta_by_event,
    shuffle_epsilon_bracket,
    shuffle_epsilon_by_event,
)
from calipers.papers.items import Basis, Published, Row, printed

EVENT_NOTE = "lower bound: the best event {max w >= C}"
SHUFFLE_NOTE = "best test found to Theorem 4.1"
RENYI_NOTE = "upper bound: Proposition 12 of Canonne et al., best of the orders 1.1 to 63"
BINS_NOTE = "not in the paper: each record picks its batch independently"


def number(value: float) -> str:
    """A count with its thousands, for labels: 10,000."""
    return f"{value:,.0f}"


def _printed(text: str | None) -> Published | None:
    return None if text is None else printed(text)


def _row(quantity: str, text: str | None, interval: Interval, basis: Basis = "bracket", note: str = "") -> Row:
    return Row(quantity, _printed(text), *interval, basis, note)


def epsilon_rows(quote: EpsilonQuote, steps: int, delta: float, prefix: str = "", *, bins: bool = True) -> list[Row]:
    """Everything said about epsilon(delta) at one noise multiplier; `bins` adds balls-and-bins."""
    setting = Setting(quote.noise_multiplier, steps)
    name = f"{prefix}σ = {quote.noise_multiplier:g}: "
    bracket = poisson(setting).epsilon(delta)
    renyi = renyi_epsilon(setting, delta)
    event = shuffle_epsilon_by_event(setting, delta)
    fixed = deterministic_epsilon_bracket(setting, delta)
    rows = [
        _row(f"{name}ε_P", quote.poisson, (bracket.lower, bracket.upper)),
        _row(f"{name}ε_P by Rényi accounting", quote.renyi, (renyi, renyi), "estimate", RENYI_NOTE),
        _row(f"{name}ε_S by Equation (3)", quote.shuffle, (event, event), "closed form", EVENT_NOTE),
        _row(f"{name}ε_S", quote.shuffle, shuffle_epsilon_bracket(setting, delta), note=SHUFFLE_NOTE),
        _row(f"{name}ε_D", quote.deterministic, fixed, "closed form"),
    ]
    if bins:
        spread = balls_and_bins(setting).epsilon(delta)
        rows.append(_row(f"{name}ε of balls-and-bins", None, (spread.lower, spread.upper), note=BINS_NOTE))
    return rows


def delta_rows(quote: DeltaQuote, noise_multiplier: float, steps: int, *, bins: bool = False) -> list[Row]:
    """Everything said about delta(epsilon) at one epsilon; `bins` adds balls-and-bins."""
    setting = Setting(noise_multiplier, steps)
    at = f"({quote.epsilon:g})"
    bracket = poisson(setting).delta(quote.epsilon)
    renyi = renyi_delta(setting, quote.epsilon)
    event = shuffle_delta_by_event(setting, quote.epsilon)
    fixed = deterministic_delta_bracket(setting, quote.epsilon)
    rows = [
        _row(f"δ_P{at}", quote.poisson, (bracket.lower, bracket.upper)),
        _row(f"δ_P{at} by Rényi accounting", quote.renyi, (renyi, renyi), "estimate", RENYI_NOTE),
        _row(f"δ_S{at} by Equation (3)", quote.shuffle, (event, event), "closed form", EVENT_NOTE),
        _row(f"δ_S{at}", quote.shuffle, shuffle_delta_bracket(setting, quote.epsilon), note=SHUFFLE_NOTE),
        _row(f"δ_D{at}", quote.deterministic, fixed, "closed form"),
    ]
    if bins:
        spread = balls_and_bins(setting).delta(quote.epsilon)
        rows.append(_row(f"δ{at} of balls-and-bins", None, (spread.lower, spread.upper), note=BINS_NOTE))
    return rows
