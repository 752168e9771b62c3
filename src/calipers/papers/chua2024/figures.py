"""Figures 1 and 3 to 7: three samplers over one epoch. (Figure 2 has its own module.)

The paper draws epsilon against sigma at fixed delta, or delta against epsilon at fixed sigma. So do we, with the
certified brackets of Poisson and shuffled batches added; the points of the curves are in the CSV files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.numerics.types import FloatArray
from calipers.papers.chua2024 import drawing, published
from calipers.papers.chua2024.published import DeltaFigure, DeltaQuote, EpsilonFigure, EpsilonQuote
from calipers.papers.chua2024.quoted import delta_rows, epsilon_rows, number
from calipers.papers.chua2024.settings import (
    Setting,
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
from calipers.papers.items import Cell, Data, Outcome, Picture, Progress, Row, printed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ("deterministic", "poisson_lower", "poisson_upper", "renyi", "event", "shuffle_lower", "shuffle_upper")
_SIGMA: FloatArray = np.array([0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 1.1, 1.3])
_SIZE = (6.4, 5.0)

SHUFFLED = (
    "The bracket of ε_S or δ_S runs from the best test found of the pair of Equations (1) and (2) to deterministic "
    "batches (Theorem 4.1). That pair is not the worst case (item conjecture-3-2)."
)


def _column(values: FloatArray) -> list[Cell]:
    return [float(value) for value in values]


def _as_points(quotes: Sequence[tuple[float, EpsilonQuote | DeltaQuote]]) -> drawing.Quotes:
    """Every printed number with its place on the horizontal axis."""
    texts = [(x, text) for x, q in quotes for text in (q.poisson, q.renyi, q.shuffle, q.deterministic) if text]
    return [(x, printed(text)) for x, text in texts]


def _epsilon_point(setting: Setting, delta: float) -> tuple[float, ...]:
    found = poisson(setting).epsilon(delta)
    fixed = deterministic_epsilon_bracket(setting, delta)[1]
    event = shuffle_epsilon_by_event(setting, delta)
    shuffled = shuffle_epsilon_bracket(setting, delta)
    return fixed, found.lower, found.upper, renyi_epsilon(setting, delta), event, *shuffled


def _delta_point(setting: Setting, epsilon: float) -> tuple[float, ...]:
    found = poisson(setting).delta(epsilon)
    fixed = deterministic_delta_bracket(setting, epsilon)[1]
    event = shuffle_delta_by_event(setting, epsilon)
    shuffled = shuffle_delta_bracket(setting, epsilon)
    return fixed, found.lower, found.upper, renyi_delta(setting, epsilon), event, *shuffled


def _epsilon_figure(figure: EpsilonFigure, rows: list[Row], remarks: tuple[str, ...], progress: Progress) -> Outcome:
    points = []
    for done, sigma in enumerate(_SIGMA):
        points.append(_epsilon_point(Setting(float(sigma), figure.steps), figure.delta))
        progress(done + 1, len(_SIGMA))
    curves = dict(zip(_COLUMNS, np.array(points).T, strict=True))
    title = f"δ = {figure.delta:.0e}".replace("e-0", "e-") + f", one epoch of T = {number(figure.steps)} batches"
    quotes = _as_points([(quote.noise_multiplier, quote) for quote in figure.quotes])

    def draw(canvas: Figure) -> None:
        drawing.draw_epsilon(canvas.subplots(), _SIGMA, curves, quotes, title)

    columns = {"noise_multiplier": _column(_SIGMA)} | {key: _column(value) for key, value in curves.items()}
    data = (Data.of_columns("curves", columns),)
    return Outcome(tuple(rows), (*remarks, SHUFFLED), data, Picture(draw, _SIZE))


def _delta_figure(
    figure: DeltaFigure,
    epsilon: FloatArray,
    lowest: float,
    rows: list[Row],
    remarks: tuple[str, ...],
    progress: Progress,
) -> Outcome:
    setting = Setting(figure.noise_multiplier, figure.steps)
    points = []
    for done, value in enumerate(epsilon):
        points.append(_delta_point(setting, float(value)))
        progress(done + 1, len(epsilon))
    curves = dict(zip(_COLUMNS, np.array(points).T, strict=True))
    title = f"σ = {figure.noise_multiplier:g}, one epoch of T = {number(figure.steps)} batches"
    quotes = _as_points([(quote.epsilon, quote) for quote in figure.quotes])

    def draw(canvas: Figure) -> None:
        drawing.draw_delta(canvas.subplots(), epsilon, curves, quotes, title, lowest)

    columns = {"epsilon": _column(epsilon)} | {key: _column(value) for key, value in curves.items()}
    data = (Data.of_columns("curves", columns),)
    return Outcome(tuple(rows), (*remarks, SHUFFLED), data, Picture(draw, _SIZE))


def _quoted_epsilons(figure: EpsilonFigure) -> list[Row]:
    return [row for quote in figure.quotes for row in epsilon_rows(quote, figure.steps, figure.delta)]


def _quoted_deltas(figure: DeltaFigure) -> list[Row]:
    rows = []
    for place, quote in enumerate(figure.quotes):
        rows += delta_rows(quote, figure.noise_multiplier, figure.steps, bins=place == 0)
    return rows


def figure_1_rows() -> list[Row]:
    """The six numbers of Section 1.1."""
    return _quoted_epsilons(published.FIGURE_1)


def figure_1(progress: Progress) -> Outcome:
    """epsilon against sigma at delta = 1e-6, T = 10,000."""
    remark = (
        "Every number agrees. At σ = 1.3 the best test shows one percent more than Equation (3), at σ = 0.5 nothing "
        "more: there the largest batch says it all."
    )
    return _epsilon_figure(published.FIGURE_1, figure_1_rows(), (remark,), progress)


def figure_3_rows() -> list[Row]:
    """The numbers of Section 4.3."""
    rows = _quoted_deltas(published.FIGURE_3)
    found = poisson(Setting(published.FIGURE_3.noise_multiplier, published.FIGURE_3.steps)).delta(4.0)
    rounded = printed(published.FIGURE_3_ROUNDED_DELTA)
    return [*rows, Row("δ of the guarantee (4, δ) of Poisson batches", rounded, found.lower, found.upper)]


def figure_3(progress: Progress) -> Outcome:
    """delta against epsilon for sigma = 0.4, T = 10,000."""
    remark = (
        "The quoted δ_S(12) >= 7.5e-5 is a matter of rounding: Equation (3) gives 7.4734e-5, and by Theorem 4.1 "
        "δ_S(12) <= δ_D(12) = 7.4744e-5. What the paper concludes from it, δ_S(12) > δ_P(4), holds."
    )
    epsilon = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0])
    return _delta_figure(published.FIGURE_3, epsilon, 1e-13, figure_3_rows(), (remark,), progress)


def figure_4_rows() -> list[Row]:
    """The numbers of Appendix A.1 for T = 100,000, and again for the T of the caption."""
    figure, caption = published.FIGURE_4, published.FIGURE_4_STEPS_OF_CAPTION
    rows = _quoted_epsilons(figure)
    for quote in figure.quotes:
        rows += epsilon_rows(quote, caption, figure.delta, f"T = {number(caption)}, ", bins=False)
    return rows


def figure_4(progress: Progress) -> Outcome:
    """epsilon against sigma at delta = 1e-6, T = 100,000."""
    remarks = (
        "The caption says T = 10,000, which is Figure 1's; the text says T = 100,000, and all its numbers fit. With "
        "T = 10,000 the three upper bounds of ε_P would be false: ε_P is 5.34 at σ = 0.4 and 0.0306 at σ = 1.3.",
        "At σ = 1.3 the best test shows ε_S >= 0.03455, 16 percent more than Equation (3).",
    )
    return _epsilon_figure(published.FIGURE_4, figure_4_rows(), remarks, progress)


def figure_5_rows() -> list[Row]:
    """The numbers of Appendix A.1 for T = 1000."""
    return _quoted_epsilons(published.FIGURE_5)


def figure_5(progress: Progress) -> Outcome:
    """epsilon against sigma at delta = 1e-5, T = 1000."""
    remark = (
        "Rényi accounting does not give ε_P <= 1.64 at σ = 0.7: the conversion that gives the paper's other Rényi "
        "numbers gives 1.653 here, and 1.652 at the best real order. The inequality itself is true, as ε_P <= 0.609."
    )
    return _epsilon_figure(published.FIGURE_5, figure_5_rows(), (remark,), progress)


def figure_6_rows() -> list[Row]:
    """The numbers of Appendix A.2 for sigma = 0.8."""
    return _quoted_deltas(published.FIGURE_6)


def figure_6(progress: Progress) -> Outcome:
    """delta against epsilon for sigma = 0.8, T = 1000."""
    remarks = (
        "δ_S(1) >= 0.018 and δ_S(4) >= 1.6e-4 are true, but not by Equation (3), whose 0.01795 and 1.596e-4 were "
        "rounded up. The best test proves them: 0.01826 and 1.60047e-4.",
        "At ε = 4 the paper's numerical accountant lies above Rényi accounting, 3.2e-15, for lack of digits. The truth "
        "is 4.46e-17, and the bracket is as narrow there as elsewhere.",
    )
    epsilon = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0])
    return _delta_figure(published.FIGURE_6, epsilon, 1e-18, figure_6_rows(), remarks, progress)


def figure_7_rows() -> list[Row]:
    """The numbers of Appendix A.2 for sigma = 1, and those quoted for epsilon = 1 again at epsilon = 1/2."""
    figure = published.FIGURE_7
    return [
        *_quoted_deltas(figure),
        *delta_rows(published.FIGURE_7_AT_ONE_HALF, figure.noise_multiplier, figure.steps),
    ]


def figure_7(progress: Progress) -> Outcome:
    """delta against epsilon for sigma = 1, T = 1000."""
    remarks = (
        "The three numbers quoted for ε = 1 fit ε = 1/2: Equation (3) gives 0.00433 there, Rényi accounting "
        "8.448e-5, and δ_P(1/2) = 2.06e-10. At ε = 1 they are 0.000999, 2.09e-7 and 2.54e-13.",
        "So δ_S(1) >= 0.004 is unproven: the best test against the pair of Equations (1) and (2) shows 0.00101.",
        "Where the paper's numerical accountant stops decreasing (ε > 1), δ_P goes on falling: 1.3e-26 at ε = 4.",
    )
    epsilon = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0])
    return _delta_figure(published.FIGURE_7, epsilon, 1e-27, figure_7_rows(), remarks, progress)
