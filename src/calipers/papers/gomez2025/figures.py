"""Figures 1, 2 and 5 to 8. (Figure 3 is a listing; Figure 4 has its own module.)

The drawn curve of a mechanism is its attack, the upper end of the bracket of f; the guarantee would be
indistinguishable on paper, and the CSV files hold both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.curves import adp_tradeoff, delta_divergence
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon, gaussian_mu, gaussian_power, gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.gomez2025 import drawing, published
from calipers.papers.gomez2025.drawing import ALPHA
from calipers.papers.gomez2025.representations import Regrets, dpsgd_regrets, laplace_regrets
from calipers.papers.gomez2025.settings import (
    Curves,
    dpsgd_curves,
    fit,
    laplace_curves,
    measured,
    response_curves,
    run_of,
    topdown_curves,
)
from calipers.papers.items import Column, Data, Outcome, Picture, Progress, Row, printed
from calipers.theorems.gaussian_limits import gdp_of_pure_dp

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _tradeoff_data(name: str, curves: Curves, mu: float, **others: FloatArray) -> Data:
    columns = {"alpha": ALPHA, "beta_lower": curves.guarantee(ALPHA), "beta_upper": curves.attack(ALPHA)}
    columns |= {"beta_gdp": gaussian_tradeoff(mu, ALPHA)} | others
    return Data.of_columns(name, {key: np.asarray(values) for key, values in columns.items()})


def _bars(regrets: Regrets) -> dict[str, float]:
    return {
        "(ε, δ)": regrets.epsilon_delta,
        "zCDP": regrets.zcdp,
        "RDP,\nProp. 12": regrets.rdp_as_published,
        "RDP,\noptimal": regrets.rdp_optimal,
        "GDP": regrets.gdp,
    }


def figure_1(progress: Progress) -> Outcome:
    """The Laplace mechanism under pure DP, DP-SGD under GDP, and the regret of every representation."""
    run = run_of(published.TABLE_4[-1])
    laplace, dpsgd = laplace_curves(), dpsgd_curves(run)
    pure, mu = adp_tradeoff(1.0), fit(dpsgd).mu[1]
    epsilon = measured(run).epsilon(published.DELTA).upper
    pair = adp_tradeoff(epsilon, published.DELTA)
    progress(1, 3)
    of_laplace, of_dpsgd = laplace_regrets(), dpsgd_regrets(run)
    progress(3, 3)
    rows = [
        Row.of("Laplace: regret of pure DP", None, (delta_divergence(laplace.guarantee, pure), of_laplace.pure)),
        Row.of("DP-SGD: regret of GDP", published.HEADLINE_REGRET, fit(dpsgd).regret, note="up to δ0 = 1e-10"),
    ]
    note = "upper bound of the regret"
    for name, regrets in (("Laplace", of_laplace), ("DP-SGD", of_dpsgd)):
        for label, value in _bars(regrets).items():
            quantity = f"{name}: regret of {label}".replace("\n", " ")
            rows.append(Row.of(quantity, None, value, "estimate", note))
        on_grid = regrets.zcdp_on_grid
        rows.append(Row.of(f"{name}: zCDP, orders up to 64 only", None, on_grid, "estimate", note))
    label = f"ε = {epsilon:.2f}, δ = 1e-5"

    def draw(figure: Figure) -> None:
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.35))
        drawing.draw_laplace(left, laplace.attack, pure)
        drawing.draw_dpsgd(middle, dpsgd.attack, mu, pair, label)
        bars = _bars(of_laplace), _bars(of_dpsgd)
        drawing.draw_regret_bars(right, list(bars[0]), list(bars[0].values()), list(bars[1].values()))

    fields = tuple(Regrets.__dataclass_fields__)
    data = (
        _tradeoff_data("a", laplace, fit(laplace).mu[1], beta_pure_dp=pure(ALPHA)),
        _tradeoff_data("b", dpsgd, mu, beta_epsilon_delta=pair(ALPHA)),
        Data("c", ("mechanism", *fields), [["laplace", *astuple(of_laplace)], ["dp-sgd", *astuple(of_dpsgd)]]),
    )
    return Outcome(rows, data=data, picture=Picture(draw, (14.0, 4.4)))


def figure_2(progress: Progress) -> Outcome:
    """The regret as a shift: DP-SGD reported by its (epsilon, 1e-5) guarantee."""
    run = run_of(published.TABLE_4[1])
    curves = dpsgd_curves(run)
    reported = adp_tradeoff(measured(run).epsilon(published.DELTA).upper, published.DELTA)
    kappa = delta_divergence(curves.attack, reported)
    least = delta_divergence(curves.guarantee, reported)
    progress(1, 1)
    rows = (Row.of("regret of (ε, 1e-5) for σ = 24, T = 1156", None, (least, kappa)),)
    shifted = np.where(ALPHA + kappa <= 1.0, curves.attack(np.minimum(ALPHA + kappa, 1.0)) - kappa, np.nan)
    data = _tradeoff_data("curves", curves, fit(curves).mu[1], beta_reported=reported(ALPHA), beta_shifted=shifted)
    picture = Picture.on_axes((5.4, 5.2), drawing.draw_shift, curves.attack, reported, kappa)
    return Outcome(rows, data=(data,), picture=picture)


def figure_5(progress: Progress) -> Outcome:
    """TopDown, which GDP fits, and randomized response, which it does not."""
    census, response = topdown_curves(published.TOPDOWN_RHO_ROUNDED), response_curves()
    epsilon = published.RANDOMIZED_RESPONSE_EPSILON
    of_census, of_response = fit(census), fit(response)
    closed = gdp_of_pure_dp(epsilon)
    progress(1, 1)
    note = "ε = 1 is not printed; it is the value that gives the printed regret"
    rows = (
        Row.of("TopDown: μ", published.TOPDOWN_MU, of_census.mu, note="ρ = 3.65, up to δ0 = 1e-10"),
        Row.of("TopDown: regret", None, of_census.regret),
        Row.of("randomized response: μ of Proposition 6.1", None, closed, "closed form", f"ε = {epsilon:g}"),
        Row.of("randomized response: μ", None, of_response.mu, note="up to δ0 = 1e-10"),
        Row.of("randomized response: regret", published.RANDOMIZED_RESPONSE_REGRET, of_response.regret, note=note),
    )

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        drawing.draw_gdp_fit(left, census.attack, of_census.mu[1], "TopDown", "(a) TopDown, ρ = 3.65")
        title = f"(b) randomized response, ε = {epsilon:g}"
        drawing.draw_gdp_fit(right, response.attack, closed, "randomized response", title)

    data = _tradeoff_data("a", census, of_census.mu[1]), _tradeoff_data("b", response, closed)
    return Outcome(rows, data=data, picture=Picture(draw, (9.6, 4.8)))


def figure_6(progress: Progress) -> Outcome:
    """The profile of a Gaussian mechanism, and what each of its points says about attacks."""
    budget = published.FIGURE_6_EPSILON, published.FIGURE_6_DELTA
    mu = gaussian_mu(*budget)
    pairs = [budget, *((gaussian_epsilon(mu, delta), delta) for delta in (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.3))]
    epsilon, fpr = np.linspace(0.0, 10.0, 201), np.geomspace(1e-7, 1.0, 281)
    progress(1, 1)
    rows = []
    for rate in (1e-5, 1e-3, 1e-1):
        power = float(gaussian_power(mu, rate))
        rows.append(Row.of(f"largest TPR at FPR = {rate:g}, all (ε, δ)", None, power, "closed form"))

    def draw(figure: Figure) -> None:
        top, bottom = figure.subplots(2, 1)
        drawing.draw_profile(top, mu, pairs, epsilon)
        drawing.draw_attack_bounds(bottom, mu, pairs, fpr)

    data = (
        Data.of_columns("profile", {"epsilon": epsilon, "delta": gaussian_delta(mu, epsilon)}),
        Data.of_columns("attacks", {"fpr": fpr, "tpr": gaussian_power(mu, fpr)}),
        Data("pairs", ("epsilon", "delta"), pairs),
    )
    return Outcome(rows, data=data, picture=Picture(draw, (6.4, 8.4)), facts={"mu": mu})


def _fits(columns: Sequence[Any], title: str, progress: Progress, *, claimed: bool) -> Outcome:
    """Curves, their GDP guarantees, and the gap between the two; `claimed`: Appendix F speaks about these gaps."""
    rows: list[Row] = []
    curves, mus, gaps, labels = [], [], [], []
    table: dict[str, Column] = {"alpha": ALPHA}
    for done, column in enumerate(columns):
        found = dpsgd_curves(run_of(column), 1e-5)
        entry = fit(found)
        # f - G_mu lies between these two at every alpha; the largest is taken over the grid of alpha.
        gap = (
            found.guarantee(ALPHA) - gaussian_tradeoff(entry.mu[0], ALPHA),
            found.attack(ALPHA) - gaussian_tradeoff(entry.mu[1], ALPHA),
        )
        least, most = (float(np.max(bound)) for bound in gap)
        ratio = least / (2.0 * entry.regret[1]), most / (2.0 * entry.regret[0])
        label = f"ε = {column.epsilon[0]}, σ = {column.noise_multiplier:g}, T = {column.steps}"
        relation = "> 1" if column.noise_multiplier == published.APPENDIX_F_EXCEPTION else "<= 1"
        rows += [
            Row.of(f"{label}: largest gap", None, (least, most), "estimate", "over a grid of α"),
            Row.of(
                f"{label}: gap/(2 × regret)",
                printed(relation) if claimed else None,
                ratio,
                "estimate",
                "over a grid of α",
            ),
        ]
        curves.append(found.attack)
        mus.append(entry.mu[1])
        gaps.append(gap)
        labels.append(label)
        table |= {f"beta, {label}": found.attack(ALPHA)}
        table |= {f"gap_{end}, {label}": bound for end, bound in zip(("lower", "upper"), gap, strict=True)}
        progress(done + 1, len(columns))

    def draw(figure: Figure) -> None:
        figure.suptitle(title)
        left, right = figure.subplots(1, 2)
        drawing.draw_family(left, curves, mus, labels)
        drawing.draw_gaps(right, gaps, labels)

    return Outcome(rows, data=(Data.of_columns("curves", table),), picture=Picture(draw, (11.0, 5.0)))


def figure_7(progress: Progress) -> Outcome:
    """The first row of Table 2: training from scratch (Table 4)."""
    columns = tuple(column for column in published.TABLE_4 if column.epsilon in published.TABLE_2_EPSILON)
    return _fits(columns, "CIFAR-10 from scratch: DP-SGD and its μ-GDP guarantee", progress, claimed=True)


def figure_8(progress: Progress) -> Outcome:
    """The third row of Table 2: fine-tuning (Table 5)."""
    return _fits(published.TABLE_5, "ImageNet-32 → CIFAR-10: DP-SGD and its μ-GDP guarantee", progress, claimed=False)
