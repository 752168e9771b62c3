"""Gaussian differential privacy as a summary of a curve, and what the summary costs.

**mu up to delta0.** A mechanism that may fail with probability delta0 and is mu-GDP otherwise has the curve of
G_mu tensor f_(0, delta0),

    (1 - delta0) G_mu(alpha/(1 - delta0))   for alpha <= 1 - delta0,   and 0 beyond.

The smallest mu for which a piecewise linear f lies above it is a maximum over breakpoints (Gomez et al.,
Proposition C.1: f is linear and the Gaussian curve convex in between). delta0 = 0 is their Equation (21). With
f(0) < 1 - delta0 there is no finite mu (their Proposition 6.2), and the answer is inf, never a cut-off value. For
subsampled mechanisms mu keeps growing with the depth of the tail, so a mu without its delta0 says nothing.

**Regret.** Delta(f, g) = inf{kappa : f(alpha + kappa) - kappa <= g(alpha)} says how much g overstates the leakage of f.
In terms of profiles it is sup over k of (D_g(k) - D_f(k))/(1 + k) (Equation 24), and with prior k/(1+k) the same ratio
is the loss of Bayes error (Equation 28). Between two kinks of D_f, which are the slopes of f, the numerator is
convex minus linear; a convex D_g is below its chord, and linear over linear is monotone, so **the supremum is attained
at the kinks of D_f**, whatever g is. Nothing is searched, and the result is exact up to rounding. Slopes below 1
are treated as slopes above 1 of the inverse curves, which leaves the ratio unchanged and keeps the digits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves.envelope import bayes_error
from calipers.curves.points import UNIT, moved
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import BELOW_ONE, COUNT, NON_NEGATIVE, POSITIVE
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_kept,
    normal_tail,
    normal_tail_quantile,
)
from calipers.numerics.types import FloatArray

_SMALLEST = 1e-300


def _scaled_quantile(x: FloatArray, x_c: FloatArray, delta0: float, up: float) -> FloatArray:
    """Phi^-1(1 - x/(1 - delta0)), rounded up (up = 1) or down (up = -1); needs x_c > delta0."""
    kept = 1.0 - delta0
    relative = up * 8.0 * UNIT
    share, share_c = (x / kept) * (1.0 - relative), ((x_c - delta0) / kept) * (1.0 + relative)
    small = share <= 0.5
    argument = normal_tail_quantile(np.minimum(np.where(small, share, share_c), 1.0))
    argument = np.where(small, argument, -argument)
    with np.errstate(invalid="ignore"):
        rounded = argument + up * (GAUSSIAN_RELATIVE_ERROR * np.abs(argument) + 4.0 * UNIT)
    return np.where(np.isfinite(argument), rounded, argument)


@implements("gomez2025:eq21", "gomez2025:prop6.1", "gomez2025:prop6.2")
def gdp_mu(curve: TradeoffCurve, delta0: float = 1e-10) -> float:
    """The smallest mu with f >= G_mu tensor f_(0, delta0); inf where f(0) < 1 - delta0 (or f reaches 0 too early).

    Post-condition: UPPER: the mechanism is mu-GDP up to delta0, rounding included. LOWER: no mu below the returned one
    is valid for any mechanism whose curve lies at or below the attack's.
    """
    delta0 = BELOW_ONE.check("delta0", delta0)
    # A coordinate at or above 1 - delta0 is never below the Gaussian curve, which stays at or under 1 - delta0.
    binding = (curve.alpha_c > delta0) & (curve.beta_c > delta0)
    if not binding.any():
        return 0.0
    up = 1.0 if curve.side is Side.UPPER else -1.0
    total = _scaled_quantile(curve.alpha[binding], curve.alpha_c[binding], delta0, up) + _scaled_quantile(
        curve.beta[binding], curve.beta_c[binding], delta0, up
    )
    return max(float(np.max(total)), 0.0)


def _worst_ratio(f: TradeoffCurve, profile: Callable[[FloatArray], FloatArray], up: float) -> float:
    """sup over k >= 1 of (profile(k) - D_f(k))/(1 + k), at the kinks of D_f; the profile comes already rounded.

    At a kink two breakpoints tie; taking the smaller line (up = 1) keeps the bound valid although the kink itself is
    rounded, because on either side of it one of the two lines is used at both ends of its interval.
    """
    steep = int(np.searchsorted(-f.odds, -1.0, side="right"))
    odds = np.concatenate((f.odds[:steep], [1.0]))
    finite = np.isfinite(odds)
    before = np.arange(steep + 1)
    after = np.minimum(np.arange(1, steep + 2), steep)
    odds, before, after = odds[finite], before[finite], after[finite]
    lines = np.stack([f.beta_c[i] - odds * f.alpha[i] for i in (before, after)])
    best = np.min(lines, axis=0) if up > 0.0 else np.max(lines, axis=0)
    rounding = 8.0 * UNIT * (f.beta_c[after] + odds * f.alpha[after])
    return float(np.max((profile(odds) - best + up * rounding) / (1.0 + odds)))


def regret(curve: TradeoffCurve, mu: float, delta0: float = 0.0) -> float:
    """Delta(f, G_mu tensor f_(0, delta0)): how much reporting (mu, delta0) overstates the leakage of the curve.

    Post-condition: from a LOWER curve (an attack), an upper bound of the regret of every mechanism whose curve lies at
    or below it; from an UPPER curve, a lower bound of the mechanism's regret. Rounding is added to that direction.
    """
    mu, delta0 = NON_NEGATIVE.check("mu", mu), BELOW_ONE.check("delta0", delta0)
    up = 1.0 if curve.side is Side.LOWER else -1.0

    def profile(odds: FloatArray) -> FloatArray:
        # The profile decreases, so rounding epsilon down rounds it up.
        epsilon = np.log(odds)
        epsilon = epsilon - up * 4.0 * UNIT * (1.0 + epsilon)
        gaussian = gaussian_delta(mu, epsilon) * (1.0 + up * GAUSSIAN_RELATIVE_ERROR)
        return np.asarray((delta0 + (1.0 - delta0) * gaussian) * (1.0 + up * 4.0 * UNIT), dtype=np.float64)

    return max(0.0, *(_worst_ratio(side, profile, up) for side in (curve, curve.inverse())))


@implements("gomez2025:eq6", "gomez2025:eq24")
def delta_divergence(f: TradeoffCurve, g: TradeoffCurve) -> float:
    """Delta(f, g) of two stored curves: the smallest shift of f down and left that puts it below g.

    Post-condition: Delta(f, g) <= returned <= Delta(f, g) + 1e-14; 0 when f lies below g by more than rounding.
    """
    both = (f, g), (f.inverse(), g.inverse())
    return max(0.0, *(_worst_ratio(first, partial(second.gains, up=1.0), 1.0) for first, second in both))


def symmetric_divergence(f: TradeoffCurve, g: TradeoffCurve) -> float:
    """max(Delta(f, g), Delta(g, f)), a metric; |advantage(f) - advantage(g)| is at most twice it (Proposition 4.1)."""
    return max(delta_divergence(f, g), delta_divergence(g, f))


@implements("gomez2025:eq28")
def bayes_regret(f: TradeoffCurve, g: TradeoffCurve) -> float:
    """max over priors of BayesError_f - BayesError_g: the same number as delta_divergence, by another route.

    An estimate with absolute rounding of about 1e-15: the errors carry the rounding of their curves' sides.
    The maximum over priors k/(1 + k) is at the slopes k of f, where the Bayes error of f has its kinks.
    """
    odds = np.concatenate((f.odds[np.isfinite(f.odds)], [1.0]))
    prior, prior_c = odds / (1.0 + odds), 1.0 / (1.0 + odds)
    return max(float(np.max(bayes_error(f, prior, prior_c) - bayes_error(g, prior, prior_c))), 0.0)


def gaussian_curve(mu: float, side: Side, points: int = 1000) -> TradeoffCurve:
    """G_mu as a piecewise linear curve of either side: tangents from below (UPPER), explicit tests from above (LOWER).

    Post-condition: f <= G_mu (UPPER), f >= G_mu (LOWER). Close to it while its errors are floats, up to mu = 30.
    """
    mu, count = POSITIVE.check("mu", mu), COUNT.check_int("points", points)
    if side is Side.UPPER:
        epsilon = mu * (np.linspace(0.0, 37.0, count) + 0.5 * mu)
        epsilon = np.concatenate((np.linspace(0.0, 0.5 * mu * mu, count // 4 + 2), epsilon))
        delta = np.minimum(gaussian_delta(mu, epsilon) * (1.0 + GAUSSIAN_RELATIVE_ERROR), 1.0)
        kept = gaussian_kept(mu, np.minimum(epsilon, 0.5 * mu * mu)) * (1.0 - GAUSSIAN_RELATIVE_ERROR)
        small = (kept < 0.5) & (epsilon <= 0.5 * mu * mu)  # then it has the digits, else delta has
        delta, kept = np.where(small, 1.0 - kept, delta), np.where(small, kept, 1.0 - delta)
        return TradeoffCurve.from_profile(epsilon, delta, Side.UPPER, symmetric=True, kept=kept)
    # alpha = Phi(-x), beta = Phi(x - mu); both moved up and right by the accuracy of the tails.
    ends = (-37.0, 37.0) if mu < 37.0 else (min(mu - 37.0, 0.5 * mu), max(37.0, 0.5 * mu))
    x = np.linspace(*ends, 2 * count)
    x = x[x >= mu - 37.0] if mu < 37.0 else x
    # A rate too small for a double is rounded up: no test is without errors.
    alpha, beta = np.maximum(normal_tail(x), _SMALLEST), np.maximum(normal_tail(mu - x), _SMALLEST)
    alpha_c, power = normal_tail(-x), normal_tail(x - mu)
    alpha, alpha_c = moved(alpha, alpha_c, GAUSSIAN_RELATIVE_ERROR, up=True)
    beta, power = moved(beta, power, GAUSSIAN_RELATIVE_ERROR, up=True)
    return TradeoffCurve.from_tests(alpha, power, alpha_c, beta, side=Side.LOWER)
