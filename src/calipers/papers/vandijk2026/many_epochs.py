"""Several epochs: Figure 2, Section 6.2, and Section 5 at finite M.

**Figure 2.** The paper compares shuffling with Dong et al.'s Corollary 5.4, whose coefficient belongs to the
symmetrized Poisson curve min(f, f^-1)**. The Poisson pair itself has sqrt(e^(1/sigma^2) - 1) per unit of c = q sqrt(T)
= sqrt(E/M), the coefficient of shuffling: one step's ratio 1 + q (Y - 1) has variance q^2 (e^(1/sigma^2) - 1), one
epoch of M = 1/q rounds has mean(Y), with variance (e^(1/sigma^2) - 1)/M = M q^2 (e^(1/sigma^2) - 1), the same.

**E delta and sqrt(E) delta.** The proof composes the line 1 - a - delta, whose composition loses E delta to first
order; the curve itself loses about sqrt(E) delta, and the paper conjectures that as a bound. With the delta of Theorem
4.1 it holds at every setting computed here, by a factor of twenty or more; with the smallest valid delta of one epoch,
its advantage, it is *false*, by up to a percent: two epochs of a skewed pair have slightly more than sqrt(2) times the
advantage of one. A proof needs a constant above 1 or a margin.

**Limits.** Theorems 5.1 and 5.2 have no rate. The exact bracket shows one: with E = c^2 M epochs the profile differs
from that of its limit by about a constant over M.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from calipers.bracket import Side
from calipers.domains import COUNT
from calipers.mechanisms import poisson_gaussian
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import gaussian_delta, gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.items import ItemProgress, Published, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.papers.vandijk2026.exact import QUICK_TOLERANCE, advantage, limit_advantage, limit_mu, profile
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.composition.product import Product
from calipers.pld.composition.sweep import sweep
from calipers.theorems import shuffle_limits as theorem
from calipers.theorems.lognormal_ratio import berry_esseen_distance, ratio_variance
from calipers.theorems.shuffle_one_epoch import shuffle_delta

_FAR = 1e4
_SETTINGS = ((0.5, 10**4, 10), (0.5, 10**5, 100), (1.0, 10**4, 100))
"""Noise multiplier, rounds, epochs; the first two have the same limit."""
_ROUNDS = 1_140_000
"""M of the single-epoch setting at sigma = 1 (abstract, Section 6.1)."""
_SKEWED = ((1.0, 2683, 4), (0.75, 3359, 16), (0.5, 1_411_582, 100))
"""Noise multiplier, the first M that Theorem 4.1 allows, epochs."""
_DRAWN_NOISE = {1.0: (30, 100, 300, 1000), 0.75: (100, 300, 1000, 3000), 0.5: (300, 1000, 3000, 10_000)}
_FINE = 1e-4
_ALPHA = np.linspace(0.0, 1.0, 201)
_WITHIN = np.linspace(-1.0, 1.0, 41)
_NODE_SPACING = 2.0**-8
_REACH = 12.0
_STEP = 0.1
_BLOCK = 64
_MOST_BLOCKS = 400
_NEGLIGIBLE = 1e-17


def figure_2(progress: ItemProgress) -> Computed:
    """The two GDP coefficients, their ratio, and what the two samplers do at finite M."""
    table, samplers, root = Sheet("coefficients"), Sheet("samplers", listed=False), math.sqrt(2.0)
    for place, sigma in enumerate(np.geomspace(0.35, 6.0, 180)):
        found = theorem.gdp_coefficients(float(sigma))
        coefficients = {"shuffle": found.shuffle, "symmetrized_poisson": found.symmetrized_poisson}
        table.add(noise_multiplier=float(sigma), **coefficients, ratio=found.ratio).unlisted(marked=place % 12 == 0)
    middle = 0.5 * (1.0 + root)
    # The sigma at which the drawn ratio is in the middle, by bisection of a decreasing function.
    midpoint = bisect(0.1, 100.0, lambda sigma: theorem.gdp_coefficients(sigma).ratio > middle, 48)[0]
    far = theorem.gdp_coefficients(_FAR)
    claims = Sheet("claims").unlisted(midpoint=midpoint, middle=middle, top=root)
    claims.unlisted(at_low=theorem.gdp_coefficients(0.1).ratio, at_far=far.ratio, far_shuffle=_FAR * far.shuffle)
    claims.unlisted(rising=float(np.max(np.diff(table.column("ratio")))))
    # Values near a limit that the paper states, with how near they have to be.
    for name, text, limit, slack in (("root_2", "√2", root, 1e-9), ("one", "1", 1.0, 1e-3), ("unit", "1", 1.0, 1e-6)):
        claims.unlisted(**{name: Published(text, limit - slack, limit + slack, limit)})
    for sigma, rounds, epochs in watched(_SETTINGS, progress):
        brackets = Product([(poisson_gaussian(1.0 / rounds, sigma), rounds * epochs)]).delta(0.0, QUICK_TOLERANCE)
        low, high = advantage(sigma, rounds, epochs, QUICK_TOLERANCE)
        drawn = theorem.gdp_coefficients(sigma).ratio
        samplers.add(noise_multiplier=sigma, rounds=rounds, epochs=epochs, poisson=brackets, shuffling=(low, high))
        samplers.unlisted(claim=Published(f"{drawn:.2f} (drawn)", drawn - 0.01, drawn + 0.01, drawn))
        samplers.unlisted(
            over=(brackets.lower / high, brackets.upper / low), limit=limit_advantage(sigma, rounds, epochs)
        )
    return Computed([table, claims, samplers])


def several_epochs(progress: ItemProgress) -> Computed:
    """sigma = 1 and M = 1.14e6: advantage and separation after E epochs, next to E delta and sqrt(E) delta."""
    delta = shuffle_delta(1.0, _ROUNDS).delta
    table, skewed, grid = Sheet("epochs"), Sheet("skewed", listed=False), np.geomspace(1.0, 1e4, 81)
    for epochs in watched((1, 4, 16, 100, 1000, 10_000), progress):
        low, high = advantage(1.0, _ROUNDS, epochs, QUICK_TOLERANCE)
        conjectured, root = math.sqrt(epochs) * delta, math.sqrt(2.0)
        bounds = {"proven": -math.expm1(epochs * math.log1p(-delta)), "conjectured": conjectured}
        table.add(epochs=epochs, advantage=(low, high), **bounds, limit=limit_advantage(1.0, _ROUNDS, epochs))
        table.unlisted(over=(low / conjectured, high / conjectured), separation=(low / root, high / root))
        table.unlisted(most=theorem.shuffle_separation_upper(1.0, _ROUNDS, epochs))
        table.unlisted(apart=theorem.shuffle_separation_limit(1.0, _ROUNDS, epochs))
    for sigma, rounds, epochs in watched(_SKEWED, progress):
        (low, high), (least, most) = advantage(sigma, rounds, epochs, 1e-4), advantage(sigma, rounds)
        root = math.sqrt(epochs)
        skewed.add(sigma=sigma, rounds=rounds, epochs=epochs, over=(low / (root * most), high / (root * least)))
    lines = {
        "epochs": grid,
        "proven": -np.expm1(grid * math.log1p(-delta)),
        "conjectured": np.sqrt(grid) * delta,
        "limit": limit_advantage(1.0, _ROUNDS, 1) * np.sqrt(grid),
    }
    return Computed([table, skewed, Sheet.of_columns("lines", lines, listed=False)], {"delta": delta})


def gaussian_limit(progress: ItemProgress) -> Computed:
    """E = M epochs at sigma = 1 against G_mu, mu = sqrt(e - 1); E = sqrt(M) epochs against the diagonal."""
    table = Sheet("profiles")
    limits, few, gaps = (Sheet(name, listed=False) for name in ("limits", "few", "gaps"))
    for epsilon in watched((0.0, 1.0, 6.0, 10.0), progress):
        limit = float(gaussian_delta(limit_mu(1.0, 1, 1), epsilon))
        for rounds in (10, 100, 1000, 10_000):
            brackets = profile(1.0, rounds, rounds, epsilon, _FINE if rounds <= 1000 else QUICK_TOLERANCE)
            run = {"noise_multiplier": 1.0, "rounds": rounds, "epochs": rounds}
            table.add(**run, epsilon=epsilon, delta=brackets, delta_limit=limit).unlisted(all_rounds=brackets)
        table.unlisted(limit=limit)
    for rounds in (100, 10_000, 1_000_000):
        low, high = advantage(1.0, rounds, 1, QUICK_TOLERANCE)
        first = limit_mu(1.0, rounds - 1, 1) / math.sqrt(2.0 * math.pi)
        root = advantage(1.0, rounds, math.isqrt(rounds), QUICK_TOLERANCE)
        few.add(rounds=rounds, root=root, over=(low / first, high / first))
    for sigma, counts in _DRAWN_NOISE.items():
        for rounds in counts:
            # As many epochs, two or more, as bring the limit's mu nearest to 1.
            epochs = max(2, round(rounds / math.expm1(sigma**-2)))
            low, high = advantage(sigma, rounds, epochs, _FINE)
            limit = limit_advantage(sigma, rounds, epochs)
            run = {"noise_multiplier": sigma, "rounds": rounds, "epochs": epochs}
            table.add(**run, epsilon=0.0, delta=(low, high), delta_limit=limit)
            limits.add(**run, error=limit - 0.5 * (low + high))
        limits.unlisted(scaled=(rounds * (limit - high), rounds * (limit - low)))
    for rounds in (10, 100, 1000):
        curves = sweep(Product([(AllocationPair(1.0, rounds), rounds)]), 1e-6, QUICK_TOLERANCE)
        limit_curve = gaussian_tradeoff(limit_mu(1.0, rounds, rounds), _ALPHA)
        low_gap, high_gap = curves[Side.UPPER](_ALPHA) - limit_curve, curves[Side.LOWER](_ALPHA) - limit_curve
        for alpha, least, most in zip(_ALPHA, low_gap, high_gap, strict=True):
            gaps.add(rounds=rounds, alpha=alpha, low=least, high=most, middle=0.5 * (least + most))
    return Computed([table, few, limits, gaps])


def standardized_cdf(noise_multiplier: float, count: int, x: FloatArray) -> FloatArray:
    """P(S <= x) for the standardized mean of `count` likelihood ratios, by Fourier inversion: an estimate.

    With Y = exp(X/sigma - 1/(2 sigma^2)), X standard normal, and S the standardized sum of n copies,

        P(S <= x) = 1/2 - (1/pi) int_0^inf Im(e^(-itx) phi(t)) / t dt,    phi(t) = E[e^(it(Y-1)/(s sqrt n))]^n.

    E is the trapezoidal rule over X, whose error for a Gaussian weight is far below rounding as long as the phase turns
    slowly from node to node, and where it does not the weight is below 1e-9. The integral over t is the midpoint rule
    with step h: it is exact for the distribution folded to a circle of circumference 2 pi/h standard deviations, so it
    misses the mass beyond half of that. What is left is rounding, raised to the n-th power: about n 1e-14.

    These are estimates (no error bound is charged); `tests/papers` holds them against other computations. They serve to
    look at Theorem 5.1, whose own error term has no known size either.
    """
    n = COUNT.check_int("count", count)
    deviation = math.sqrt(ratio_variance(noise_multiplier) * n)
    width = 1.0 / noise_multiplier
    nodes = np.arange(-_REACH, _REACH + 3.0 * width, _NODE_SPACING)
    weights = np.exp(-0.5 * nodes * nodes)
    weights /= weights.sum()
    terms = np.expm1(width * nodes - 0.5 * width * width)
    # The mean is zero; what rounding leaves of it would be multiplied by n.
    terms = (terms - weights @ terms) / deviation
    total = np.zeros(len(x))
    for block in range(_MOST_BLOCKS):
        t = _STEP * (block * _BLOCK + np.arange(_BLOCK) + 0.5)
        transform = (np.exp(1j * np.outer(t, terms)) @ weights) ** n
        total += (np.exp(-1j * np.outer(x, t)) @ (transform / t)).imag
        if np.max(np.abs(transform)) < _NEGLIGIBLE:
            break
    found: FloatArray = 0.5 - total * _STEP / math.pi
    return found


def edgeworth(progress: ItemProgress) -> Computed:
    """Theorem 5.1 for the mean of n likelihood ratios: n sup |F_n - Phi(p_n)| over |x| <= 1 goes to zero."""
    table = Sheet("errors")
    for sigma in watched((0.75, 1.0, 2.0), progress):
        for count in (100, 1000, 10_000, 100_000):
            cdf, root = standardized_cdf(sigma, count, _WITHIN), math.sqrt(count)
            edge = theorem.ratio_edgeworth_map(sigma, count)
            mapped = ndtr(np.array([edge(float(x)) for x in _WITHIN]))
            table.add(
                noise_multiplier=sigma,
                n=count,
                n_sup_edgeworth=count * float(np.max(np.abs(cdf - mapped))),
                root_n_sup_normal=root * float(np.max(np.abs(cdf - ndtr(_WITHIN)))),
                root_n_berry_esseen_eq19=root * berry_esseen_distance(sigma, count),
            )
    return Computed([table])
