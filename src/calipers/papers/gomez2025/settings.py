"""The mechanisms of the paper as pairs of curves, and what mu and regret they have.

**Fit.** Both curves of a mechanism bracket its trade-off function f: the guarantee lies at or below it, the attack at
or above. mu(delta0) is the smallest mu for which G_mu tensor f_(0, delta0) lies below f, so

    gdp_mu(attack) <= mu <= gdp_mu(guarantee),

and because a larger mu and a higher f both enlarge the regret of reporting mu,

    regret(guarantee, lower mu) <= regret <= regret(attack, upper mu).

**A nearly lost case.** Delta(f, g) is a difference of Bayes errors, hence at most the largest Bayes error of f. For a
symmetric f that is attained at prior 1/2 and equals (1 - advantage)/2. When this is already below `NEGLIGIBLE`, no mu
is fitted: an attacker wins almost surely and every summary says so.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves import TradeoffCurve, epsilon_from_rdp, gdp_mu, regret
from calipers.measure import Measurement, measure
from calipers.measure.bounds import depth_for
from calipers.mechanisms import DiscreteGaussian, compose, laplace, randomized_response
from calipers.numerics.types import FloatArray
from calipers.papers.gomez2025 import published
from calipers.pld.composition.sweep import sweep
from calipers.run import Run

DELTA0 = 1e-10
"""mu is always stated up to this failure probability, unless a row says otherwise."""

NEGLIGIBLE = 1e-3
TOPDOWN_RHO_PRODUCTION = (485 / 254) ** 2
"""The budget of the 2020 Census before rounding."""
TOLERANCE = 1e-4
ORDERS = np.concatenate((1.0 + np.geomspace(0.02, 1.0, 12), np.arange(2.5, 8.0, 0.5), np.geomspace(8.0, 64.0, 14)))
"""Renyi orders: dense where the conversions to (epsilon, delta) are decided for the paper's settings."""


class Curves(NamedTuple):
    """guarantee <= f <= attack."""

    guarantee: TradeoffCurve
    attack: TradeoffCurve

    @classmethod
    def of(cls, found: Measurement, *depth: float) -> Curves:
        """Both curves of a measurement, as deep as usual or as asked for."""
        return cls(found.curve(Side.UPPER, *depth), found.curve(Side.LOWER, *depth))


class Fit(NamedTuple):
    """Brackets of mu up to delta0 and of the regret of reporting it."""

    mu: tuple[float, float]
    regret: tuple[float, float]


def dpsgd(noise_multiplier: float, steps: int, rate: float = published.BATCH_SIZE / published.CIFAR_RECORDS) -> Run:
    """One DP-SGD run of the paper: Poisson sampling, add-remove adjacency."""
    return Run(sample_rate=rate, steps=steps, noise_multiplier=noise_multiplier)


def run_of(column: Any, records: int = published.CIFAR_RECORDS) -> Run:
    """A column of Table 4 or 5, on a dataset of `records`."""
    return dpsgd(column.noise_multiplier, column.steps, published.BATCH_SIZE / records)


HEADLINE = run_of(published.TABLE_4[-1])
"""sigma = 9.4, p = 16384/50000, T = 2000: the run that the text speaks about."""


@cache
def measured(run: Run, tolerance: float = TOLERANCE) -> Measurement:
    """The measurement of one of the paper's settings; asked twice, computed once."""
    return measure(run, tolerance=tolerance)


def dpsgd_curves(run: Run, tolerance: float = TOLERANCE) -> Curves:
    """Both curves of a DP-SGD run."""
    return Curves.of(measured(run, tolerance))


def fit(curves: Curves, delta0: float = DELTA0) -> Fit:
    """mu up to delta0 and its regret; see the module docstring for both inequalities."""
    mu = gdp_mu(curves.attack, delta0), gdp_mu(curves.guarantee, delta0)
    return Fit(mu, (regret(curves.guarantee, mu[0], delta0), regret(curves.attack, mu[1], delta0)))


def fit_run(run: Run, delta0: float = DELTA0) -> Fit:
    """The fit of a run; where the attacker wins almost surely, no mu (NaN) and an upper bound of every regret.

    Meant for grids: nothing is kept between calls.
    """
    found = measure(run)
    bound = 0.5 * (1.0 - found.advantage().lower)
    if bound <= NEGLIGIBLE:
        return Fit((math.nan, math.inf), (0.0, bound))
    return fit(Curves.of(found, depth_for(delta0)), delta0)


@implements("calipers:mu-over-all-alpha")
def mu_over_all_alpha(run: Run) -> float:
    """sqrt(T)/sigma: the smallest mu with f >= G_mu at *every* alpha, exactly (Equation 5 taken literally).

    Enough: 1 - q + q L is dominated by L, so subsampling only removes leakage. Necessary: with m = sqrt(T)/sigma, the
    record enters all T batches with probability q^T, so rejecting when the sum of the outputs is large has
    alpha = Phi(-x) and power at least q^T Phi(m - x). For mu < m the ratio of that power to the Phi(mu - x) which
    mu-GDP allows grows without bound as x does.
    """
    return math.sqrt(run.total_steps) / run.noise_multiplier


def rho_over_all_orders(run: Run) -> float:
    """T/(2 sigma^2): the smallest rho with D_t <= rho t at *every* order t > 1, exactly (Equation 25 taken literally).

    Enough: as for `mu_over_all_alpha`. Necessary: E_Q[L^t] >= q^t e^(t (t-1)/(2 sigma^2)) for one step, so
    D_t/t >= 1/(2 sigma^2) + log(q)/(t - 1), which tends to 1/(2 sigma^2).
    """
    return run.total_steps / (2.0 * run.noise_multiplier**2)


@cache
def rdp_values(run: Run) -> FloatArray:
    """Upper bounds of the Renyi divergences of a run at `ORDERS`."""
    found = measured(run)
    return np.array([found.rdp(float(order)).upper for order in ORDERS])


def rdp_epsilon(run: Run, delta: float = published.DELTA) -> float:
    """epsilon(delta) through Renyi accounting: at least the true epsilon."""
    return epsilon_from_rdp(ORDERS, rdp_values(run), delta)


def _swept(*factors: object, tolerance: float = 1e-5) -> Curves:
    found = sweep(compose(*factors), tolerance=tolerance)  # type: ignore[arg-type]
    return Curves(found[Side.UPPER], found[Side.LOWER])


@cache
def laplace_curves() -> Curves:
    """The Laplace mechanism with scale 1 (Figure 1, left)."""
    return _swept(laplace(1.0), tolerance=1e-6)


@cache
def response_curves() -> Curves:
    """Randomized response (Figure 5, right)."""
    return _swept(randomized_response(published.RANDOMIZED_RESPONSE_EPSILON))


@cache
def topdown_curves(rho: float) -> Curves:
    """The TopDown algorithm: ten discrete Gaussian queries on each of eight levels, rho = 1/(2 sigma^2) apiece."""
    factors = []
    for share in published.TOPDOWN_SHARES.values():
        each = rho * share / 1000 / published.TOPDOWN_QUERIES
        factors.append((DiscreteGaussian(math.sqrt(1.0 / (2.0 * each))), published.TOPDOWN_QUERIES))
    return _swept(*factors)
