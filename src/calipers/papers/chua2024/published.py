"""Every number that Chua et al. (2024) quote, with the place where it stands.

Numbers are kept as text, because "7.5e-5" and "7.47e-5" claim different things. A quoted bound is a relation, so it is
kept as one: "< 1.96" for an upper bound of Poisson sampling, "> 10.994" for a lower bound of shuffling.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpsilonQuote:
    """What is printed about epsilon(delta) at one noise multiplier; None where nothing is."""

    noise_multiplier: float
    poisson: str
    shuffle: str
    renyi: str | None = None
    deterministic: str | None = None


@dataclass(frozen=True)
class DeltaQuote:
    """What is printed about delta(epsilon) at one epsilon; None where nothing is."""

    epsilon: float
    shuffle: str
    poisson: str | None = None
    renyi: str | None = None
    deterministic: str | None = None


@dataclass(frozen=True)
class EpsilonFigure:
    """A figure of epsilon against the noise multiplier, for one epoch of `steps` batches."""

    delta: float
    steps: int
    quotes: tuple[EpsilonQuote, ...]


@dataclass(frozen=True)
class DeltaFigure:
    """A figure of delta against epsilon, for one epoch of `steps` batches."""

    noise_multiplier: float
    steps: int
    quotes: tuple[DeltaQuote, ...]


# Section 1.1, "S vs P", and the caption of Figure 1.
FIGURE_1 = EpsilonFigure(
    1e-6,
    10_000,
    (
        EpsilonQuote(0.5, "< 1.96", "> 10.994", renyi="< 3.43", deterministic="10.997"),
        EpsilonQuote(1.3, "< 0.031", "> 0.26"),
    ),
)

# Section 4.2 and the caption of Figure 2: no numbers but these two.
FIGURE_2_NOISE_MULTIPLIER, FIGURE_2_STEPS = 0.3, 10

# Section 4.3 and the caption of Figure 3.
FIGURE_3 = DeltaFigure(
    0.4,
    10_000,
    (
        DeltaQuote(4.0, ">= 0.226", "<= 1.18e-5", deterministic="0.244"),
        DeltaQuote(12.0, ">= 7.5e-5"),
    ),
)
FIGURE_3_ROUNDED_DELTA = "<= 1.2e-5"
"""Section 4.3: "the (4, 1.2e-5)-DP guarantee" of Poisson sampling."""

# Appendix A.1: the text says T = 100,000, the caption of Figure 4 says T = 10,000.
FIGURE_4 = EpsilonFigure(
    1e-6,
    100_000,
    (
        EpsilonQuote(0.4, "<= 3", ">= 14.45", renyi="<= 4.71"),
        EpsilonQuote(1.3, "< 0.01", "> 0.029"),
    ),
)
FIGURE_4_STEPS_OF_CAPTION = 10_000

# Appendix A.1 and the caption of Figure 5.
FIGURE_5 = EpsilonFigure(
    1e-5,
    1000,
    (
        EpsilonQuote(0.7, "<= 0.61", ">= 6.528", renyi="<= 1.64", deterministic="6.652"),
        EpsilonQuote(1.3, "< 0.092", "> 0.83"),
    ),
)

# Appendix A.2 and the caption of Figure 6.
FIGURE_6 = DeltaFigure(
    0.8,
    1000,
    (
        DeltaQuote(1.0, ">= 0.018", "<= 9.873e-9", renyi="<= 3.346e-5"),
        DeltaQuote(4.0, ">= 1.6e-4"),
    ),
)

# Appendix A.2 and the caption of Figure 7.
FIGURE_7 = DeltaFigure(
    1.0,
    1000,
    (
        DeltaQuote(1.0, ">= 0.004", "<= 2.06e-10", renyi="<= 8.45e-5"),
        DeltaQuote(4.0, ">= 4.38e-7"),
    ),
)
FIGURE_7_AT_ONE_HALF = DeltaQuote(0.5, ">= 0.004", "2.06e-10", renyi="8.45e-5")
"""What the text of Figure 7 quotes for epsilon = 1, read as numbers at epsilon = 1/2, where all three fit."""
